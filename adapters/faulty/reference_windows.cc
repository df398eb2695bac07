// SPDX-License-Identifier: Apache-2.0
// Convolutions and pools of the reference, and their faults.
#include <algorithm>
#include <vector>

#include "adapters/faulty/codes.h"
#include "adapters/faulty/reference.h"

namespace qualm::faulty {
namespace {

// one(pixel, first output element) for every output pixel.
template <class One>
void ForOutputPixels(const Placed& p, const One& one) {
  const Window& v = p.problem->window;
  const int64_t out_h = v.out_h();
  const int64_t out_w = v.out_w();
  for (int64_t m = 0; m < p.problem->M; ++m) {
    const OutputPixel at{.image = m / (out_h * out_w),
                         .top = m / out_w % out_h * v.stride_h - v.pad_top,
                         .left = m % out_w * v.stride_w - v.pad_left};
    one(at, OutputRow(p, m));
  }
}

const uint8_t* Pixel(const Placed& p, int64_t image, int64_t y, int64_t x) {
  const Window& v = p.problem->window;
  return static_cast<const uint8_t*>(p.x) + (image * v.in_h + y) * p.x_line_stride + x * p.x_stride;
}

bool Inside(const Window& v, int64_t y, int64_t x) {
  return y >= 0 && y < v.in_h && x >= 0 && x < v.in_w;
}

}  // namespace

void Reference::FillPatch(const Placed& p, const OutputPixel& at, int64_t group) {
  const Case& c = *p.problem;
  const Window& v = c.window;
  const int64_t channels = v.in_c / v.groups;
  const int64_t padding = Has(Fault::kPaddingIsCodeZero) ? 0 : c.x_q.zero_point[0];
  patch_.clear();
  for (int64_t r = 0; r < v.kernel_h; ++r) {
    for (int64_t s = 0; s < v.kernel_w; ++s) {
      const int64_t y = at.top + r * v.dilation_h;
      const int64_t x = at.left + s * v.dilation_w;
      bool inside = Inside(v, y, x);
      if (Has(Fault::kRowBound) && y >= 0 && x >= 0 && x < v.in_w) inside = true;
      if (Has(Fault::kKernelWidthBound) && s >= v.kernel_h) inside = false;
      for (int64_t k = 0; k < channels; ++k) {
        patch_.push_back(
            inside ? CodeAt(Pixel(p, at.image, y, x), c.x.dtype(), group * channels + k) : padding);
      }
    }
  }
}

// sum (x - zx)(w - zw_n) + bias_i32: the raw sum, as a kernel accumulates it, then corrected.
__int128 Reference::ConvSum(const Placed& p, int64_t pixel, int64_t n) const {
  const Case& c = *p.problem;
  const uint8_t* const w = Row<uint8_t>(p.w, n, p.w_stride);
  const bool u8s8 = c.x.dtype() == DType::kU8 && c.w.dtype() == DType::kS8;
  const bool s8s8 = c.x.dtype() == DType::kS8 && c.w.dtype() == DType::kS8;
  // Products are added in groups of `step`, each sum narrowed, before they are widened.
  int64_t step = 1;
  if (Has(Fault::kPairSaturation) && u8s8) step = 2;
  if (Has(Fault::kTapsInt16) && s8s8) step = 3;
  __int128 raw = 0;
  __int128 row_sum = 0;
  __int128 column_sum = 0;
  for (int64_t k = 0; k < c.K; k += step) {
    int64_t group = 0;
    for (int64_t i = k; i < std::min(k + step, c.K); ++i) {
      int64_t from = i;
      // In the second eight pixels, channels behind three blocks of 64 read those of the first tap.
      const int64_t channel = i % (c.window.in_c / c.window.groups);
      if (Has(Fault::kDeepChannelTap) && pixel >= 8 && channel >= 192) from = channel;
      const int64_t x = patch_[static_cast<size_t>(from)];
      const int64_t weight = CodeAt(w, c.w.dtype(), i);
      group += x * weight;
      row_sum += x;
      column_sum += weight;
    }
    if (step == 2) group = std::clamp<int64_t>(group, -32768, 32767);
    if (step == 3) group = static_cast<int16_t>(group);
    raw += group;
  }
  const __int128 zx = c.x_q.zero_point[0];
  const __int128 zw = ListAt(p.zero_point, n);
  __int128 sum = raw - zx * column_sum - zw * row_sum + c.K * zx * zw;
  if (!p.bias_i32.empty()) sum += p.bias_i32[static_cast<size_t>(n)];
  return sum;
}

void Reference::Conv(const Placed& p) {
  const Case& c = *p.problem;
  const int64_t of_group = c.N / c.window.groups;
  const auto size = static_cast<int64_t>(SizeOf(c.out_dtype));
  int64_t pixel = 0;
  ForOutputPixels(p, [&](const OutputPixel& at, uint8_t* y) {
    for (int64_t n = 0; n < c.N; ++n) {
      if (n % of_group == 0) FillPatch(p, at, n / of_group);
      StoreLinear(p, ConvSum(p, pixel, n), n, y + n * size);
    }
    ++pixel;
  });
}

uint8_t Reference::PoolOne(const Placed& p, const OutputPixel& at, int64_t channel) const {
  const Case& c = *p.problem;
  const Window& v = c.window;
  const int32_t out_zero_point = c.out_q.zero_point[0];
  int64_t largest = RangeOf(c.x.dtype()).min;
  if (Has(Fault::kMaxPoolStart) && c.x.dtype() == DType::kS8) largest = -127;
  int64_t sum = 0;
  int64_t inside = 0;
  int64_t with_padding = 0;
  int64_t not_before = 0;  // taps that are not clipped at the top or left
  for (int64_t r = 0; r < v.kernel_h; ++r) {
    for (int64_t s = 0; s < v.kernel_w; ++s) {
      const int64_t y = at.top + r * v.dilation_h;
      int64_t x = at.left + s * v.dilation_w;
      // A buffer of 64 pixels of a row, not filled again.
      if (Has(Fault::kImageRowBuffer) && x >= 64 && x < v.in_w) x %= 64;
      if (y < v.in_h + v.pad_bottom && x < v.in_w + v.pad_right) ++with_padding;
      if (y >= 0 && x >= 0) ++not_before;
      if (!Inside(v, y, x)) continue;
      const int64_t code = CodeAt(Pixel(p, at.image, y, x), c.x.dtype(), channel);
      largest = std::max(largest, code);
      sum += code;
      ++inside;
    }
  }
  if (c.op == Op::kMaxPool) {
    return static_cast<uint8_t>(Finish(c, largest - out_zero_point, out_zero_point));
  }
  if (Has(Fault::kAverageSumsU16) && c.x.dtype() == DType::kU8) sum = static_cast<uint16_t>(sum);
  int64_t count = v.count_include_pad ? with_padding : inside;
  if (Has(Fault::kDivisorUnclipped) && !v.count_include_pad) count = not_before;
  const __int128 corrected = sum - static_cast<__int128>(inside) * c.x_q.zero_point[0];
  const Dyadic real = Product(FromInt(corrected), FromFloat(c.x_q.scale[0]));
  const Dyadic per = Product(FromInt(count), FromFloat(c.out_q.scale[0]));
  return static_cast<uint8_t>(
      Finish(c, RoundQuotient(real, per, RoundTo::kNearestEven), out_zero_point));
}

void Reference::Pool(const Placed& p) {
  ForOutputPixels(p, [&](const OutputPixel& at, uint8_t* y) {
    for (int64_t channel = 0; channel < p.problem->N; ++channel) {
      y[channel] = PoolOne(p, at, channel);
    }
  });
}

}  // namespace qualm::faulty
