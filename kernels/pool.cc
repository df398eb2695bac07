// SPDX-License-Identifier: Apache-2.0
// Pools. Neighbouring output pixels of a line that see equally many taps are a run. The inner loop
// takes a whole run; for means, as much of it as there is room for sums, or one pixel where y has
// gaps. A maximum is exact in any order: nothing is rounded. A mean is exact too:
// an exact integer sum, rounded once by a requantization with the multiplier sx / (count * sy)
// (common/rescale.cc). There is one plan for each count; counts differ at the edges of the image
// only. For means, s8 codes and their zero points are shifted by 128, so that codes are unsigned.
// They are added in 16 bits as long as they fit (257 codes; of many taps two channels at a time,
// SumOfManyCodes), then modulo 2^32 if the sum fits int32, else in 128 bits (WriteWide).
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

// The pixels of one image under the windows of some output pixels. Steps in bytes.
struct Taps {
  const uint8_t* first = nullptr;  // of the first window
  size_t rows = 0, columns = 0;
  int64_t row_step = 0, column_step = 0;
  size_t pixels = 1;  // of the output
  int64_t pixel_step = 0;
  bool is_signed = false;
  bool dense = false;  // no bytes lie between the pixels of a line
};

// The same taps. If windows and outputs are contiguous, the run becomes one output pixel with
// pixels * channels channels. `y_step` leads from output pixel to output pixel.
inline Taps Merged(Taps taps, int64_t y_step, size_t* channels) {
  const auto count = static_cast<int64_t>(*channels);
  if (taps.pixels > 1 && taps.pixel_step == count && y_step == count) {
    *channels *= taps.pixels;
    taps.pixels = 1;
  }
  return taps;
}

constexpr size_t kSpareSums = 256;  // of a vector, at least

}  // namespace
}  // namespace qualm::kernels::internal
#endif

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// y[p][c] = clamp(max over the taps). At least one tap.
template <typename T>
void MaxOfCodes(const Taps& taps, size_t channels, T lo, T hi, T* y, int64_t y_step) {
  const hn::ScalableTag<T> d;
  const auto least = hn::Set(d, lo);
  const auto most = hn::Set(d, hi);
  for (size_t pixel = 0; pixel < taps.pixels; ++pixel) {
    const auto at = static_cast<int64_t>(pixel);
    const T* const first = reinterpret_cast<const T*>(taps.first) + at * taps.pixel_step;
    T* const out = y + at * y_step;
    ForEachVector(d, channels, [&](size_t c, size_t n) HWY_ATTR {
      auto max = least;
      for (size_t r = 0; r < taps.rows; ++r) {
        const T* p = first + static_cast<int64_t>(r) * taps.row_step + c;
        for (size_t s = 0; s < taps.columns; ++s, p += taps.column_step) {
          max = hn::Max(max, LoadSome(d, p, n));
        }
      }
      StoreSome(hn::Min(max, most), d, out + c, n);
    });
  }
}

// The same for pixels of a few channels with a stride, which would be read and written a few bytes
// at a time: the maxima of all bytes of a piece of the line, down the taps and then along the line.
// Of those a window's are every pixel_step-th; the others mean nothing.
constexpr size_t kPiece = 2048;

inline bool IsNarrow(const Taps& taps, size_t channels) {
  const auto window = static_cast<int64_t>(taps.columns - 1) * taps.column_step;
  const auto width = static_cast<int64_t>(channels);
  return taps.dense && taps.pixels > 2 && channels <= 8 && taps.pixel_step <= 4 * width &&
         taps.rows != 0 && window + width <= static_cast<int64_t>(kPiece / 2);
}

template <typename T>
void MaxOfNarrow(const Taps& taps, size_t channels, T lo, T hi, T* y, int64_t y_step) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  constexpr size_t kSpare = 512;  // whole vectors, and the moves of 8 bytes below
  static_assert(hn::MaxLanes(d) + 8 <= kSpare);
  HWY_ALIGN T down[kPiece + kSpare];
  HWY_ALIGN T along[kPiece + kSpare];
  const auto least = hn::Set(d, lo);
  const auto most = hn::Set(d, hi);
  const auto step = static_cast<size_t>(taps.pixel_step);
  const size_t window = (taps.columns - 1) * static_cast<size_t>(taps.column_step);
  const size_t room = (kPiece - window - channels) / step + 1;  // pixels of a piece
  for (size_t done = 0; done < taps.pixels;) {
    const size_t pixels = HWY_MIN(room, taps.pixels - done);
    const size_t outputs = (pixels - 1) * step + channels;
    const T* const first = reinterpret_cast<const T*>(taps.first) + done * step;
    ForEachVector(d, outputs + window, [&](size_t i, size_t n) HWY_ATTR {
      auto largest = least;
      for (size_t r = 0; r < taps.rows; ++r) {
        const T* const row = first + static_cast<int64_t>(r) * taps.row_step;
        largest = hn::Max(largest, LoadSome(d, row + i, n));
      }
      hn::Store(largest, d, down + i);
    });
    hn::StoreU(least, d, down + outputs + window);
    for (size_t i = 0; i < outputs; i += lanes) {
      auto max = hn::Load(d, down + i);
      const T* p = down + i;
      for (size_t s = 1; s < taps.columns; ++s) {
        p += taps.column_step;
        max = hn::Max(max, hn::LoadU(d, p));
      }
      hn::Store(hn::Min(max, most), d, along + i);
    }
    // 8 bytes at a time: the next pixel overwrites what is too much.
    const T* from = along;
    T* to = y + static_cast<int64_t>(done) * y_step;
    size_t k = 0;
    if (y_step == static_cast<int64_t>(channels)) {
      for (; (pixels - k) * channels >= 8; ++k, from += step, to += channels) {
        hwy::CopyBytes<8>(from, to);
      }
    }
    for (; k < pixels; ++k, from += step, to += y_step) {
      for (size_t c = 0; c < channels; ++c) to[c] = from[c];
    }
    done += pixels;
  }
}

template <typename T>
void MaxOfRun(const Taps& taps, size_t channels, Bounds bounds, T* y, int64_t y_step) {
  const auto lo = static_cast<T>(bounds.lo);
  const auto hi = static_cast<T>(bounds.hi);
  IsNarrow(taps, channels) ? MaxOfNarrow<T>(taps, channels, lo, hi, y, y_step)
                           : MaxOfCodes<T>(taps, channels, lo, hi, y, y_step);
}

void MaxOfTaps(const Taps& taps, size_t channels, Bounds bounds, uint8_t* y, int64_t y_step) {
  if (taps.is_signed) {
    MaxOfRun<int8_t>(taps, channels, bounds, reinterpret_cast<int8_t*>(y), y_step);
  } else {
    MaxOfRun<uint8_t>(taps, channels, bounds, y, y_step);
  }
}

constexpr size_t kNarrow = 257;  // so many codes fit 16 bits

#if HWY_TARGET == HWY_SCALAR

void SumOfTaps(const Taps& taps, size_t channels, uint32_t correction, uint32_t* sums) {
  const uint8_t flip = taps.is_signed ? 0x80 : 0;
  for (size_t pixel = 0; pixel < taps.pixels; ++pixel) {
    const uint8_t* const first = taps.first + static_cast<int64_t>(pixel) * taps.pixel_step;
    for (size_t c = 0; c < channels; ++c, ++sums) {
      *sums = 0 - correction;
      for (size_t r = 0; r < taps.rows; ++r) {
        const uint8_t* p = first + static_cast<int64_t>(r) * taps.row_step + c;
        for (size_t s = 0; s < taps.columns; ++s, p += taps.column_step) {
          *sums += static_cast<uint8_t>(*p ^ flip);
        }
      }
    }
  }
}

#else

using D32 = hn::ScalableTag<uint32_t>;

// Sums of whole vectors of channels, where a window has many taps; returns for how many channels.
// Two sums of 16 bits for each pair of codes e, o: of o, and of e + 256*o modulo 2^16, from which
// 256 times the first is taken in the end. So a pair costs a shift and two additions, and is not
// widened.
template <bool kSigned>
size_t SumOfManyCodes(const Taps& taps, const uint8_t* first, size_t channels, hn::Vec<D32> initial,
                      uint32_t* sums) {
  constexpr size_t kMany = 8;
  size_t c = 0;
#if HWY_IS_LITTLE_ENDIAN
  const D32 d32;
  const hn::Repartition<uint16_t, D32> d16;
  const hn::Repartition<uint8_t, D32> d8;
  const size_t lanes = hn::Lanes(d8);
  if (taps.rows * taps.columns < kMany) return 0;
  const auto lower = hn::Set(d32, 0xFFFF);
  for (; c + lanes <= channels; c += lanes) {
    auto s0 = initial, s1 = initial, s2 = initial, s3 = initial;  // of every fourth channel
    auto pairs = hn::Zero(d16);
    auto odd = hn::Zero(d16);
    const auto widen = [&]() HWY_ATTR {
      const auto even32 = hn::BitCast(d32, hn::Sub(pairs, hn::ShiftLeft<8>(odd)));
      const auto odd32 = hn::BitCast(d32, odd);
      s0 = hn::Add(s0, hn::And(even32, lower));
      s1 = hn::Add(s1, hn::And(odd32, lower));
      s2 = hn::Add(s2, hn::ShiftRight<16>(even32));
      s3 = hn::Add(s3, hn::ShiftRight<16>(odd32));
    };
    size_t room = kNarrow;
    for (size_t r = 0; r < taps.rows; ++r) {
      const uint8_t* p = first + static_cast<int64_t>(r) * taps.row_step + c;
      for (size_t left = taps.columns; left != 0;) {
        if (HWY_UNLIKELY(room == 0)) {
          widen();
          pairs = odd = hn::Zero(d16);
          room = kNarrow;
        }
        const size_t n = HWY_MIN(left, room);
        for (size_t s = 0; s < n; ++s, p += taps.column_step) {
          auto codes = hn::LoadU(d8, p);
          if (kSigned) codes = hn::Xor(codes, hn::Set(d8, 0x80));
          const auto words = hn::BitCast(d16, codes);
          pairs = hn::Add(pairs, words);
          odd = hn::Add(odd, hn::ShiftRight<8>(words));
        }
        room -= n;
        left -= n;
      }
    }
    widen();
    hn::StoreInterleaved4(s0, s1, s2, s3, d32, sums + c);
  }
#endif
  return c;
}

template <bool kSigned>
void SumOfCodes(const Taps& taps, size_t channels, uint32_t correction, uint32_t* sums) {
  const hn::ScalableTag<uint16_t> d16;
  const hn::RepartitionToWide<decltype(d16)> d32;
  const hn::Rebind<uint8_t, decltype(d16)> d8;
  const auto initial = hn::Set(d32, 0 - correction);
  for (size_t pixel = 0; pixel < taps.pixels; ++pixel, sums += channels) {
    const uint8_t* const first = taps.first + static_cast<int64_t>(pixel) * taps.pixel_step;
    const size_t whole = SumOfManyCodes<kSigned>(taps, first, channels, initial, sums);
    ForEachVector(d16, channels - whole, [&](size_t begin, size_t n) HWY_ATTR {
      const size_t c = whole + begin;
      auto low = initial;
      auto high = initial;
      auto narrow = hn::Zero(d16);
      const auto widen = [&]() HWY_ATTR {
        low = hn::Add(low, hn::PromoteTo(d32, hn::LowerHalf(narrow)));
        high = hn::Add(high, hn::PromoteUpperTo(d32, narrow));
      };
      size_t room = kNarrow;
      for (size_t r = 0; r < taps.rows; ++r) {
        const uint8_t* p = first + static_cast<int64_t>(r) * taps.row_step + c;
        for (size_t s = 0; s < taps.columns; ++s, p += taps.column_step) {
          if (HWY_UNLIKELY(room == 0)) {
            widen();
            narrow = hn::Zero(d16);
            room = kNarrow;
          }
          --room;
          auto codes = LoadSome(d8, p, n);
          if (kSigned) codes = hn::Xor(codes, hn::Set(d8, 0x80));
          narrow = hn::Add(narrow, hn::PromoteTo(d16, codes));
        }
      }
      widen();
      // The next pixel overwrites the lanes past the last channel, or they lie in kSpareSums.
      hn::StoreU(low, d32, sums + c);
      hn::StoreU(high, d32, sums + c + hn::Lanes(d32));
    });
  }
}

// sums[p][c] = sum over the taps - correction, modulo 2^32, and kSpareSums more that mean nothing.
void SumOfTaps(const Taps& taps, size_t channels, uint32_t correction, uint32_t* sums) {
  static_assert(hn::MaxLanes(hn::ScalableTag<uint16_t>()) <= kSpareSums);
  taps.is_signed ? SumOfCodes<true>(taps, channels, correction, sums)
                 : SumOfCodes<false>(taps, channels, correction, sums);
}

#endif

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
  // The count is a divisor (types.h).
  if (shape.window.kernel_h * shape.window.kernel_w > int64_t{1} << 53) {
    return Error("shape", ".window has " + std::to_string(shape.window.kernel_h) + " x " +
                              std::to_string(shape.window.kernel_w) +
                              " taps, expected at most 2^53");
  }
  QUALM_RETURN_IF_ERROR(CheckScale("x_q.scale", x_q.scale));
  return CheckScale("y_q.scale", y_q.scale);
}

// How many windows from across[first] on have equally many taps, and equally many that count, and
// begin `stride` pixels after each other.
size_t RunAt(const std::vector<AxisWindow>& across, size_t first, const WindowGeometry& g) {
  const auto left = [&](const AxisWindow& w) { return w.start + w.begin * g.dilation_w; };
  size_t end = first + 1;
  for (; end < across.size(); ++end) {
    const AxisWindow& last = across[end - 1];
    const AxisWindow& next = across[end];
    if (next.end - next.begin != last.end - last.begin || next.counted != last.counted) break;
    if (next.begin < next.end && left(next) - left(last) != g.stride_w) break;
  }
  return end - first;
}

// visit(taps, counted positions, output) for each run of output pixels, row-major.
template <class Visit>
void ForEachRun(const ConstImages& x, const PoolShape& shape, const MutableMatrix& y,
                const Visit& visit) {
  WindowGeometry g = shape.window;
  g.in_h = x.height;
  g.in_w = x.width;
  std::vector<AxisWindow> across(static_cast<size_t>(shape.out_w));
  for (size_t i = 0; i < across.size(); ++i) across[i] = WindowAlongW(g, static_cast<int64_t>(i));
  auto* out = static_cast<uint8_t*>(y.data);
  Taps taps;
  taps.is_signed = x.type == ElementType::kS8;
  taps.dense = x.pixel_stride == x.channels;
  // A window with one tap in the image along an axis does not use the step, which might overflow.
  // A run of one pixel does not use its step either.
  taps.row_step = g.dilation_h < g.in_h ? g.dilation_h * x.row_stride : 0;
  taps.column_step = g.dilation_w < g.in_w ? g.dilation_w * x.pixel_stride : 0;
  const int64_t pixel_step = g.stride_w < g.in_w ? g.stride_w * x.pixel_stride : 0;
  for (int64_t image = 0; image < x.batch; ++image) {
    const auto* in = static_cast<const uint8_t*>(x.data) + image * x.image_stride;
    for (int64_t oy = 0; oy < shape.out_h; ++oy) {
      const AxisWindow down = WindowAlongH(g, oy);
      for (size_t i = 0; i < across.size(); i += taps.pixels) {
        const AxisWindow& w = across[i];
        taps.pixels = RunAt(across, i, g);
        taps.rows = static_cast<size_t>(down.end - down.begin);
        taps.columns = static_cast<size_t>(w.end - w.begin);
        if (taps.rows == 0 || taps.columns == 0) {
          taps.rows = taps.columns = 0;
          taps.pixel_step = 0;
        } else {
          const int64_t top = down.start + down.begin * g.dilation_h;
          const int64_t left = w.start + w.begin * g.dilation_w;
          taps.first = in + top * x.row_stride + left * x.pixel_stride;
          taps.pixel_step = pixel_step;
        }
        visit(taps, down.counted * w.counted, out);
        out += static_cast<int64_t>(taps.pixels) * y.row_stride;
      }
    }
  }
}

// Means whose sums fit int32: all but those of enormous windows and zero points.
class Means {
 public:
  Means(const Quantization& x_q, const Quantization& y_q, Bounds bounds, bool is_signed,
        size_t channels, size_t pixels)
      : x_q_(x_q),
        y_q_(y_q),
        bounds_(bounds),
        zero_(int64_t{x_q.zero_point} + (is_signed ? 128 : 0)),
        channels_(channels),
        room_(channels * std::min(pixels, std::max<size_t>(1, kMostSums / channels))),
        sums_(room_ + kSpareSums) {}

  // A run of output pixels, `y_step` from each to the next. They are written by Flush at the
  // latest.
  void Write(const Taps& taps, int64_t divisor, uint8_t* y, int64_t y_step) {
    const Rescale& rescale = PlanFor(divisor);
    const auto count = static_cast<__int128>(taps.rows) * static_cast<__int128>(taps.columns);
    const bool fits = count * std::max(std::abs(zero_), std::abs(255 - zero_)) <= INT32_MAX;
    Taps part = taps;
    for (size_t done = 0; done < taps.pixels; done += part.pixels) {
      const auto at = static_cast<int64_t>(done);
      part.first = taps.first + at * taps.pixel_step;
      part.pixels = taps.pixels - done;
      if (fits) {
        const auto correction = static_cast<uint32_t>(static_cast<int64_t>(count) * zero_);
        part.pixels = AddSums(rescale, part, correction, y + at * y_step, y_step);
      } else {
        part.pixels = 1;
        WriteWide(rescale, part, y + at * y_step);
      }
    }
  }

  // Writes the pixels whose sums are known: one after the other in memory, with one plan.
  void Flush() {
    if (pending_ != 0) plan_->CodesFromSums(sums_.data(), 0, pending_, y_);
    pending_ = 0;
  }

 private:
  static constexpr size_t kMostSums = 4096;  // of several pixels: they fit the L1 cache

  // The sums of as many pixels as there is room for, all of one plan and next to each other;
  // returns how many.
  size_t AddSums(const Rescale& rescale, Taps taps, uint32_t correction, uint8_t* y,
                 int64_t y_step) {
    if (&rescale != plan_ || y != y_ + pending_ || pending_ + channels_ > room_) {
      Flush();
      plan_ = &rescale;
      y_ = y;
    }
    const bool dense = y_step == static_cast<int64_t>(channels_);
    taps.pixels = dense ? std::min(taps.pixels, (room_ - pending_) / channels_) : 1;
    const size_t pixels = taps.pixels;
    size_t channels = channels_;
    const Taps merged = Merged(taps, y_step, &channels);
    QUALM_DISPATCH(SumOfTaps)
    (merged, channels, correction, reinterpret_cast<uint32_t*>(sums_.data() + pending_));
    pending_ += pixels * channels_;
    return pixels;
  }

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
  const size_t room_;  // of sums_
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
              static_cast<size_t>(x.channels), static_cast<size_t>(y.rows));
  ForEachRun(x, shape, y, [&](const Taps& taps, int64_t counted, uint8_t* out) {
    const auto inside = static_cast<int64_t>(taps.rows * taps.columns);
    means.Write(taps, count_padding ? counted : inside, out, y.row_stride);
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
  internal::ForEachRun(
      x, shape, y, [&](const internal::Taps& taps, int64_t /*counted*/, uint8_t* out) {
        auto channels = static_cast<size_t>(x.channels);
        const internal::Taps merged = internal::Merged(taps, y.row_stride, &channels);
        QUALM_DISPATCH(internal::MaxOfTaps)(merged, channels, bounds, out, y.row_stride);
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
