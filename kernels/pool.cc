// SPDX-License-Identifier: Apache-2.0
// Pools. Codes are read as unsigned: s8 codes and their zero points are shifted by 128. A mean is
// an integer sum, then a requantization with the multiplier sx / (count * sy) (rescale.h): one plan
// for each count, of which there are few, at the edges of the image. Neighbouring pixels of one
// count are requantized in one go.
#include "kernels/pool.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "kernels/common/fp_environment.h"
#include "kernels/common/rescale.h"
#include "kernels/common/validate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pool.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/vectors-inl.h"

#ifndef QUALM_KERNELS_POOL_TAPS_
#define QUALM_KERNELS_POOL_TAPS_
namespace qualm::kernels::internal {
namespace {

// The pixels of one image under one window. Steps in bytes.
struct Taps {
  const uint8_t* first = nullptr;
  size_t rows = 0, columns = 0;
  int64_t row_step = 0, column_step = 0;
  uint8_t flip = 0;  // 0x80 for s8
};

}  // namespace
}  // namespace qualm::kernels::internal
#endif

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// y[c] = clamp(max over the taps), flipped back. At least one tap.
void MaxOfTaps(const Taps& taps, size_t channels, uint8_t lo, uint8_t hi, uint8_t* y) {
  const hn::ScalableTag<uint8_t> d;
  const auto flip = hn::Set(d, taps.flip);
  const auto least = hn::Set(d, lo);
  const auto most = hn::Set(d, hi);
  ForEachVector(d, channels, [&](size_t c, size_t n) HWY_ATTR {
    auto max = least;
    for (size_t r = 0; r < taps.rows; ++r) {
      const uint8_t* p = taps.first + static_cast<int64_t>(r) * taps.row_step + c;
      for (size_t s = 0; s < taps.columns; ++s, p += taps.column_step) {
        max = hn::Max(max, hn::Xor(LoadSome(d, p, n), flip));
      }
    }
    const auto result = hn::Xor(hn::Min(max, most), flip);
    StoreSome(result, d, y + c, n);
  });
}

// sums[c] = sum over the taps - correction, modulo 2^32.
void SumOfTaps(const Taps& taps, size_t channels, uint32_t correction, uint32_t* sums) {
  const hn::ScalableTag<uint32_t> d32;
  const hn::Rebind<uint16_t, decltype(d32)> d16;
  const hn::Rebind<uint8_t, decltype(d32)> d8;
  const auto flip = hn::Set(d8, taps.flip);
  const auto initial = hn::Set(d32, 0 - correction);
  ForEachVector(d32, channels, [&](size_t c, size_t n) HWY_ATTR {
    auto sum = initial;
    auto narrow = hn::Zero(d16);
    size_t room = 257;  // 257 * 255 fits 16 bits
    for (size_t r = 0; r < taps.rows; ++r) {
      const uint8_t* p = taps.first + static_cast<int64_t>(r) * taps.row_step + c;
      for (size_t s = 0; s < taps.columns; ++s, p += taps.column_step) {
        if (HWY_UNLIKELY(room == 0)) {
          sum = hn::Add(sum, hn::PromoteTo(d32, narrow));
          narrow = hn::Zero(d16);
          room = 257;
        }
        --room;
        narrow = hn::Add(narrow, hn::PromoteTo(d16, hn::Xor(LoadSome(d8, p, n), flip)));
      }
    }
    sum = hn::Add(sum, hn::PromoteTo(d32, narrow));
    StoreSome(sum, d32, sums + c, n);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {
namespace internal {
namespace {

HWY_EXPORT(MaxOfTaps);
HWY_EXPORT(SumOfTaps);

Status Error(const char* name, const std::string& rest) { return {name + rest}; }

WindowGeometry WindowOn(const ConstImages& x, const PoolShape& shape) {
  WindowGeometry window = shape.window;
  window.in_h = x.height;
  window.in_w = x.width;
  return window;
}

Status CheckSize(const char* name, int64_t value) {
  constexpr int64_t kMost = int64_t{1} << 30;  // as in CheckWindow
  if (value >= 0 && value <= kMost) return {};
  return Error(name, " is " + std::to_string(value) + ", expected 0.." + std::to_string(kMost));
}

// Every output has something that counts under its window.
Status CheckNoneEmpty(const ConstImages& x, const PoolShape& shape, bool count_padding) {
  const WindowGeometry window = WindowOn(x, shape);
  const auto counts = [&](const AxisWindow& w) {
    return count_padding ? w.counted > 0 : w.begin < w.end;
  };
  bool ok = true;
  for (int64_t i = 0; i < shape.out_h; ++i) ok = ok && counts(WindowAlongH(window, i));
  for (int64_t i = 0; i < shape.out_w; ++i) ok = ok && counts(WindowAlongW(window, i));
  if (ok) return {};
  return Error("shape", std::string(" has a window without a pixel of the image") +
                            (count_padding ? " or its padding" : "") +
                            ", expected at least one in each");
}

Status CheckPool(const ConstImages& x, const PoolShape& shape, bool count_padding,
                 const OutputRange& range, const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckCode("x", x.type));
  QUALM_RETURN_IF_ERROR(CheckImages(x));
  QUALM_RETURN_IF_ERROR(CheckWindow(WindowOn(x, shape)));
  QUALM_RETURN_IF_ERROR(CheckSize("shape.out_h", shape.out_h));
  QUALM_RETURN_IF_ERROR(CheckSize("shape.out_w", shape.out_w));
  QUALM_RETURN_IF_ERROR(CheckCode("y", y.type));
  QUALM_RETURN_IF_ERROR(CheckRange("range", range, y.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("y", y));
  if (y.rows != static_cast<__int128>(shape.out_h) * shape.out_w * x.batch) {
    return Error("y", ".rows is " + std::to_string(y.rows) +
                          ", expected batch * out_h * out_w = " + std::to_string(x.batch) + " * " +
                          std::to_string(shape.out_h) + " * " + std::to_string(shape.out_w));
  }
  if (y.columns != x.channels) {
    return Error("y", ".columns is " + std::to_string(y.columns) +
                          ", expected x.channels = " + std::to_string(x.channels));
  }
  QUALM_RETURN_IF_ERROR(CheckDisjoint(AsMatrix(x), y, {}));
  return y.rows == 0 ? Status{} : CheckNoneEmpty(x, shape, count_padding);
}

Status ValidateMaxPool(const ConstImages& x, const PoolShape& shape, const OutputRange& range,
                       const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckPool(x, shape, false, range, y));
  return CheckType("y", y.type, x.type);
}

Status ValidateAvgPool(const ConstImages& x, const PoolShape& shape, bool count_padding,
                       const Quantization& x_q, const Quantization& y_q, const OutputRange& range,
                       const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckPool(x, shape, count_padding, range, y));
  // The count is a divisor (elementwise.h).
  if (shape.window.kernel_h * shape.window.kernel_w > int64_t{1} << 53) {
    return Error("shape", ".window has " + std::to_string(shape.window.kernel_h) + " x " +
                              std::to_string(shape.window.kernel_w) +
                              " taps, expected at most 2^53");
  }
  QUALM_RETURN_IF_ERROR(CheckScale("x_q.scale", x_q.scale));
  return CheckScale("y_q.scale", y_q.scale);
}

// visit(taps, counted positions, output) for each output pixel, row-major.
template <class Visit>
void ForEachWindow(const ConstImages& x, const PoolShape& shape, const MutableMatrix& y,
                   const Visit& visit) {
  WindowGeometry g = shape.window;
  g.in_h = x.height;
  g.in_w = x.width;
  std::vector<AxisWindow> across(static_cast<size_t>(shape.out_w));
  for (size_t i = 0; i < across.size(); ++i) across[i] = WindowAlongW(g, static_cast<int64_t>(i));
  auto* out = static_cast<uint8_t*>(y.data);
  Taps taps;
  taps.flip = x.type == ElementType::kS8 ? 0x80 : 0;
  // A window with one tap in the image along an axis does not use the step, which might overflow.
  taps.row_step = g.dilation_h < g.in_h ? g.dilation_h * x.row_stride : 0;
  taps.column_step = g.dilation_w < g.in_w ? g.dilation_w * x.pixel_stride : 0;
  for (int64_t image = 0; image < x.batch; ++image) {
    const auto* in = static_cast<const uint8_t*>(x.data) + image * x.image_stride;
    for (int64_t oy = 0; oy < shape.out_h; ++oy) {
      const AxisWindow down = WindowAlongH(g, oy);
      for (const AxisWindow& w : across) {
        taps.rows = static_cast<size_t>(down.end - down.begin);
        taps.columns = static_cast<size_t>(w.end - w.begin);
        if (taps.rows == 0 || taps.columns == 0) {
          taps.rows = taps.columns = 0;
        } else {
          const int64_t top = down.start + down.begin * g.dilation_h;
          const int64_t left = w.start + w.begin * g.dilation_w;
          taps.first = in + top * x.row_stride + left * x.pixel_stride;
        }
        visit(taps, down.counted * w.counted, out);
        out += y.row_stride;
      }
    }
  }
}

// Means whose sums fit int32: all but those of enormous windows and zero points.
class Means {
 public:
  Means(const Quantization& x_q, const Quantization& y_q, Bounds bounds, bool is_signed,
        size_t channels)
      : x_q_(x_q),
        y_q_(y_q),
        bounds_(bounds),
        zero_(int64_t{x_q.zero_point} + (is_signed ? 128 : 0)),
        channels_(channels),
        sums_(channels * std::max<size_t>(1, kMostSums / channels)) {}

  // One output pixel. It is written by Flush at the latest.
  void Write(const Taps& taps, int64_t divisor, uint8_t* y) {
    const Rescale& rescale = PlanFor(divisor);
    const auto count = static_cast<__int128>(taps.rows) * static_cast<__int128>(taps.columns);
    if (count * std::max(std::abs(zero_), std::abs(255 - zero_)) > INT32_MAX) {
      return WriteWide(rescale, taps, y);
    }
    if (&rescale != plan_ || y != y_ + pending_ || pending_ + channels_ > sums_.size()) {
      Flush();
      plan_ = &rescale;
      y_ = y;
    }
    const auto correction = static_cast<uint32_t>(static_cast<int64_t>(count) * zero_);
    auto* sums = reinterpret_cast<uint32_t*>(sums_.data() + pending_);
    QUALM_DISPATCH(SumOfTaps)(taps, channels_, correction, sums);
    pending_ += channels_;
  }

  // Writes the pixels whose sums are known: one after the other in memory, with one plan.
  void Flush() {
    if (pending_ != 0) plan_->CodesFromSums(sums_.data(), 0, pending_, y_);
    pending_ = 0;
  }

 private:
  static constexpr size_t kMostSums = 4096;  // of several pixels: they fit the L1 cache

  const Rescale& PlanFor(int64_t divisor) {
    auto found = plans_.find(divisor);
    if (found == plans_.end()) {
      const Multiplier multiplier{x_q_.scale, 1.0f, y_q_.scale, divisor};
      found =
          plans_.emplace(divisor, Rescale({&multiplier, 1}, {}, y_q_.zero_point, bounds_)).first;
    }
    return found->second;
  }

  // Row by row in pieces whose sums fit 32 bits.
  void WriteWide(const Rescale& rescale, const Taps& taps, uint8_t* y) {
    Flush();  // its sums have the same place
    constexpr size_t kPiece = size_t{1} << 24;
    const __int128 correction = static_cast<__int128>(zero_) * static_cast<int64_t>(taps.rows) *
                                static_cast<int64_t>(taps.columns);
    wide_.assign(channels_, -correction);
    auto* sums = reinterpret_cast<uint32_t*>(sums_.data());
    for (size_t r = 0; r < taps.rows; ++r) {
      for (size_t s = 0; s < taps.columns; s += kPiece) {
        Taps piece = taps;
        piece.first += static_cast<int64_t>(r) * taps.row_step;
        piece.first += static_cast<int64_t>(s) * taps.column_step;
        piece.rows = 1;
        piece.columns = std::min(kPiece, taps.columns - s);
        QUALM_DISPATCH(SumOfTaps)(piece, channels_, 0, sums);
        for (size_t c = 0; c < wide_.size(); ++c) wide_[c] += sums[c];
      }
    }
    for (size_t c = 0; c < wide_.size(); ++c) {
      y[c] = static_cast<uint8_t>(rescale.CodeFromSum(wide_[c], 0));
    }
  }

  const Quantization x_q_, y_q_;
  const Bounds bounds_;
  const int64_t zero_;                // shifted like the codes
  std::map<int64_t, Rescale> plans_;  // by divisor
  const size_t channels_;
  std::vector<int32_t> sums_;
  std::vector<__int128> wide_;
  size_t pending_ = 0;             // sums, for plan_ and from y_ on
  const Rescale* plan_ = nullptr;  // in plans_, which moves none
  uint8_t* y_ = nullptr;
};

// Not inlined: else the compiler may move arithmetic in front of ScopedFpEnvironment.
HWY_NOINLINE void RunAvgPool(const ConstImages& x, const PoolShape& shape, bool count_padding,
                             const Quantization& x_q, const Quantization& y_q,
                             const OutputRange& range, const MutableMatrix& y) {
  Means means(x_q, y_q, OutputBounds(y.type, range, y_q.zero_point), x.type == ElementType::kS8,
              static_cast<size_t>(x.channels));
  ForEachWindow(x, shape, y, [&](const Taps& taps, int64_t counted, uint8_t* out) {
    const auto inside = static_cast<int64_t>(taps.rows * taps.columns);
    means.Write(taps, count_padding ? counted : inside, out);
  });
  means.Flush();
}

}  // namespace
}  // namespace internal

Status MaxPool(const ConstImages& x, const PoolShape& shape, int32_t zero_point,
               const OutputRange& range, const MutableMatrix& y) {
  if (Status s = internal::ValidateMaxPool(x, shape, range, y); !s.ok()) return s;
  if (y.rows == 0 || y.columns == 0) return {};
  const internal::Bounds bounds = internal::OutputBounds(y.type, range, zero_point);
  internal::ForEachWindow(
      x, shape, y, [&](const internal::Taps& taps, int64_t /*counted*/, uint8_t* out) {
        const auto shifted = [&](int32_t code) { return static_cast<uint8_t>(code ^ taps.flip); };
        QUALM_DISPATCH(internal::MaxOfTaps)
        (taps, static_cast<size_t>(x.channels), shifted(bounds.lo), shifted(bounds.hi), out);
      });
  return {};
}

Status AvgPool(const ConstImages& x, const PoolShape& shape, bool count_padding,
               const Quantization& x_q, const Quantization& y_q, const OutputRange& range,
               const MutableMatrix& y) {
  const ScopedFpEnvironment environment;
  if (Status s = internal::ValidateAvgPool(x, shape, count_padding, x_q, y_q, range, y); !s.ok()) {
    return s;
  }
  if (y.rows == 0 || y.columns == 0) return {};
  internal::RunAvgPool(x, shape, count_padding, x_q, y_q, range, y);
  return {};
}

Status GlobalAvgPool(const ConstImages& x, const Quantization& x_q, const Quantization& y_q,
                     const OutputRange& range, const MutableMatrix& y) {
  PoolShape shape;
  shape.window.kernel_h = std::max<int64_t>(x.height, 1);
  shape.window.kernel_w = std::max<int64_t>(x.width, 1);
  shape.out_h = x.height > 0 ? 1 : 0;
  shape.out_w = x.width > 0 ? 1 : 0;
  return AvgPool(x, shape, false, x_q, y_q, range, y);
}

}  // namespace qualm::kernels
#endif  // HWY_ONCE
