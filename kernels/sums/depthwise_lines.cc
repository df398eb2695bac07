// SPDX-License-Identifier: Apache-2.0
// Up to four activations of a column of the window are brought next to each other once, for all
// output pixels of a line that see them. Then each quad is one multiply-add, as in linear. Sums are
// exact for the same reason as there (accumulate.cc), and codes-inl.h rounds them once.
#include "kernels/sums/depthwise_lines.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>

#include "kernels/sums/pack.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sums/depthwise_lines.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h:
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"
#include "kernels/sums/codes-inl.h"

#ifndef QUALM_KERNELS_DEPTHWISE_LINES_ARGS_
#define QUALM_KERNELS_DEPTHWISE_LINES_ARGS_
namespace qualm::kernels {
namespace {

// Columns of a line whose quads are kept at a time: 24 KiB of quads with the longest vectors of
// x86.
constexpr int64_t kColumns = 96;
// Output pixels between sums and codes.
constexpr int64_t kPixels = 16;

// One line of output pixels, one block of channels. Positions count from the first pixel of the
// image; those outside it are padding.
struct LineArgs {
  const uint8_t* x = nullptr;  // first channel of the image's first pixel
  int64_t height = 0;
  int64_t width = 0;
  int64_t x_line = 0;                // bytes from line to line
  int64_t x_pixel = 0;               // from pixel to pixel
  int64_t top = 0;                   // line under the first tap
  int64_t left = 0;                  // pixel under the first tap of the first output pixel
  const uint8_t* padding = nullptr;  // a block of it
  bool x_is_signed = false;
  int64_t rows = 0;         // of taps
  int64_t row_step = 0;     // lines from tap to tap
  int64_t quads = 0;        // of a column of taps
  int64_t columns = 0;      // of taps
  int64_t column_step = 0;  // pixels from tap to tap
  int64_t stride = 0;       // pixels from output pixel to output pixel
  int64_t pixels = 0;       // of the output
  const int8_t* weights = nullptr;
  const int32_t* initial = nullptr;
  const float* multiplier = nullptr;
  const CodePlan* plan = nullptr;
  CodesOut codes;
  uint8_t* scratch = nullptr;
};

}  // namespace
}  // namespace qualm::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE  // as codes::kHasBlocks

namespace hn = hwy::HWY_NAMESPACE;
using DI32 = hn::ScalableTag<int32_t>;
using DI8 = hn::Repartition<int8_t, DI32>;
using DU8 = hn::Repartition<uint8_t, DI32>;
using DU16 = hn::Repartition<uint16_t, DI32>;
using VI32 = hn::Vec<DI32>;
using VU8 = hn::Vec<DU8>;

constexpr int64_t kBytes = static_cast<int64_t>(hn::MaxLanes(DU8()));  // of a vector

template <bool kSigned>
HWY_INLINE VU8 LoadChannels(const uint8_t* x, size_t count) {
  const DU8 d;
  const VU8 v = HWY_LIKELY(count == hn::Lanes(d)) ? hn::LoadU(d, x) : hn::LoadN(d, x, count);
  return kSigned ? hn::Xor(v, hn::Set(d, 0x80)) : v;  // s8 -> u8, adds 128 to each
}

// The quads of four rows at one pixel.
template <bool kSigned>
HWY_INLINE void LayQuad(const uint8_t* x0, const uint8_t* x1, const uint8_t* x2, const uint8_t* x3,
                        size_t count, uint8_t* to) {
  const DU8 d;
  const DU16 d16;
  const VU8 r0 = LoadChannels<kSigned>(x0, count);
  const VU8 r1 = LoadChannels<kSigned>(x1, count);
  const VU8 r2 = LoadChannels<kSigned>(x2, count);
  const VU8 r3 = LoadChannels<kSigned>(x3, count);
  const auto low01 = hn::BitCast(d16, hn::InterleaveLower(d, r0, r1));
  const auto high01 = hn::BitCast(d16, hn::InterleaveUpper(d, r0, r1));
  const auto low23 = hn::BitCast(d16, hn::InterleaveLower(d, r2, r3));
  const auto high23 = hn::BitCast(d16, hn::InterleaveUpper(d, r2, r3));
  hn::Store(hn::BitCast(d, hn::InterleaveLower(d16, low01, low23)), d, to);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(d16, low01, low23)), d, to + kBytes);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(d16, high01, high23)), d, to + 2 * kBytes);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(d16, high01, high23)), d, to + 3 * kBytes);
}

// [column][quads][4 vectors] of the pixels from `left` on, for all rows of taps. Where the last
// quad has fewer than four rows, the last row stands for the rest, whose weights are 0.
template <bool kSigned>
void LayQuads(const LineArgs& args, int64_t left, int64_t columns, uint8_t* to) {
  const size_t count = static_cast<size_t>(args.codes.count);
  const int64_t step = args.quads * 4 * kBytes;
  const int64_t begin = std::clamp<int64_t>(-left, 0, columns);  // inside the image
  const int64_t end = std::clamp(args.width - left, begin, columns);
  const uint8_t* const none = args.padding;
  for (int64_t q = 0; q < args.quads; ++q, to += 4 * kBytes) {
    const uint8_t* x[4];
    int64_t x_step[4];
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t line = args.top + std::min(4 * q + i, args.rows - 1) * args.row_step;
      const bool inside = line >= 0 && line < args.height && begin < end;
      x[i] = inside ? args.x + line * args.x_line + (left + begin) * args.x_pixel : none;
      x_step[i] = inside ? args.x_pixel : 0;
    }
    for (int64_t c = 0; c < columns; ++c) {
      if (c < begin || c >= end) {
        LayQuad<kSigned>(none, none, none, none, count, to + c * step);
        continue;
      }
      LayQuad<kSigned>(x[0], x[1], x[2], x[3], count, to + c * step);
      for (int64_t i = 0; i < 4; ++i) x[i] += x_step[i];
    }
  }
}

// The sums of one output pixel.
HWY_INLINE void SumPixel(const LineArgs& args, const uint8_t* quads, int32_t* sums) {
  const DI32 d;
  const DI8 d8;
  const DU8 du8;
  constexpr int64_t kLanes = kBytes / 4;
  VI32 sum0 = hn::LoadU(d, args.initial);
  VI32 sum1 = hn::LoadU(d, args.initial + kLanes);
  VI32 sum2 = hn::LoadU(d, args.initial + 2 * kLanes);
  VI32 sum3 = hn::LoadU(d, args.initial + 3 * kLanes);
  const int8_t* w = args.weights;
  const int64_t skip = (args.column_step - 1) * args.quads * 4 * kBytes;
  for (int64_t column = 0; column < args.columns; ++column, quads += skip) {
    for (int64_t q = 0; q < args.quads; ++q, w += 4 * kBytes, quads += 4 * kBytes) {
      const auto add = [&](VI32& sum, int64_t at) HWY_ATTR {
        sum = hn::SumOfMulQuadAccumulate(d, hn::Load(du8, quads + at), hn::Load(d8, w + at), sum);
      };
      add(sum0, 0);
      add(sum1, kBytes);
      add(sum2, 2 * kBytes);
      add(sum3, 3 * kBytes);
    }
  }
  hn::StoreU(sum0, d, sums);
  hn::StoreU(sum1, d, sums + kLanes);
  hn::StoreU(sum2, d, sums + 2 * kLanes);
  hn::StoreU(sum3, d, sums + 3 * kLanes);
}

// The sums of some output pixels under windows of three columns of one quad each: the weights stay
// in registers.
HWY_INLINE void SumThrees(const LineArgs& args, const uint8_t* quads, int64_t pixels,
                          int32_t* sums) {
  const DI32 d;
  const DI8 d8;
  const DU8 du8;
  const int64_t pixel = args.stride * 4 * kBytes;
  const int64_t column = args.column_step * 4 * kBytes;
  for (int64_t v = 0; v < 4; ++v, quads += kBytes, sums += kBytes / 4) {
    const VI32 initial = hn::LoadU(d, args.initial + v * kBytes / 4);
    const auto w0 = hn::Load(d8, args.weights + v * kBytes);
    const auto w1 = hn::Load(d8, args.weights + (4 + v) * kBytes);
    const auto w2 = hn::Load(d8, args.weights + (8 + v) * kBytes);
    const uint8_t* x = quads;
    for (int64_t p = 0; p < pixels; ++p, x += pixel) {
      VI32 sum = hn::SumOfMulQuadAccumulate(d, hn::Load(du8, x), w0, initial);
      sum = hn::SumOfMulQuadAccumulate(d, hn::Load(du8, x + column), w1, sum);
      sum = hn::SumOfMulQuadAccumulate(d, hn::Load(du8, x + 2 * column), w2, sum);
      hn::StoreU(sum, d, sums + p * kBytes);
    }
  }
}

void RunLineImpl(const LineArgs& args) {
  HWY_ALIGN int32_t sums[kPixels * kBytes];
  const int64_t span = (args.columns - 1) * args.column_step + 1;
  const int64_t most = std::max<int64_t>((kColumns - span) / args.stride + 1, 1);
  for (int64_t first = 0; first < args.pixels; first += most) {
    const int64_t pixels = std::min(most, args.pixels - first);
    const int64_t left = args.left + first * args.stride;
    const int64_t columns = (pixels - 1) * args.stride + span;
    args.x_is_signed ? LayQuads<true>(args, left, columns, args.scratch)
                     : LayQuads<false>(args, left, columns, args.scratch);
    for (int64_t p = 0; p < pixels; p += kPixels) {
      const int64_t some = std::min(kPixels, pixels - p);
      const int64_t pixel = args.stride * args.quads * 4 * kBytes;
      const uint8_t* quads = args.scratch + p * pixel;
      if (args.columns == 3 && args.quads == 1) {
        SumThrees(args, quads, some, sums);
      } else {
        for (int64_t i = 0; i < some; ++i) SumPixel(args, quads + i * pixel, sums + i * kBytes);
      }
      CodesOut out = args.codes;
      out.y += (first + p) * out.y_stride;
      codes::OfRows<4, codes::Order::kBlocks>(*args.plan, args.multiplier, sums, kBytes, some, out);
    }
  }
}

int64_t BytesOfVectorImpl() { return kBytes; }

#else

void RunLineImpl(const LineArgs&) {}
int64_t BytesOfVectorImpl() { return 0; }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {

HWY_EXPORT(RunLineImpl);
HWY_EXPORT(BytesOfVectorImpl);

namespace {

// Columns under the window must leave room for others, or neighbours share nothing.
bool IsSmall(const WindowGeometry& w) {
  return w.kernel_h <= kColumns && (w.kernel_w - 1) * w.dilation_w < kColumns / 2;
}

int8_t WeightAt(const LinearParams& layer, int64_t n, int64_t tap) {
  const uint8_t byte =
      static_cast<const uint8_t*>(layer.weights.data)[n * layer.weights.row_stride + tap];
  return static_cast<int8_t>(layer.weights.type == ElementType::kU8 ? byte ^ 0x80 : byte);
}

}  // namespace

std::optional<PackedDepthwiseLines> PackDepthwiseLines(const ConvParams& params,
                                                       const CodePlan* plan, uint8_t padding) {
  const LinearParams& layer = params.layer;
  const WindowGeometry& window = params.window;
  const int64_t block = QUALM_DISPATCH(BytesOfVectorImpl)();
  const int64_t za = ZeroPointOfA(layer);
  const bool has_padding_code = !IsPadded(window) || (za >= 0 && za <= 255);
  if (plan == nullptr || block == 0 || layer.weights.rows != params.in_channels ||
      !has_padding_code || !Bands::Fit(window, params.in_channels) || !IsSmall(window)) {
    return {};
  }
  PackedDepthwiseLines packed;
  packed.window = window;
  packed.channels = params.in_channels;
  packed.block_channels = block;
  packed.padding.resize(static_cast<size_t>(block), padding);
  packed.plan = plan;
  const int64_t blocks = (packed.channels - 1) / block + 1;
  const int64_t bytes_of_block = window.kernel_w * packed.Quads() * 4 * block;
  const size_t bytes = static_cast<size_t>(blocks * bytes_of_block);
  packed.weights = hwy::AllocateAligned<int8_t>(bytes);
  if (packed.weights == nullptr) throw std::bad_alloc();
  std::memset(packed.weights.get(), 0, bytes);
  packed.initial.resize(static_cast<size_t>(blocks * block));
  packed.multiplier.resize(packed.initial.size());
  std::vector<int8_t> b(static_cast<size_t>(layer.weights.columns));
  for (int64_t n = 0; n < packed.channels; ++n) {
    int64_t sum = 0;
    for (size_t tap = 0; tap < b.size(); ++tap) {
      b[tap] = WeightAt(layer, n, static_cast<int64_t>(tap));
      sum += b[tap];
    }
    const int64_t zb = ZeroPointOfB(layer, n);
    const int64_t bias = layer.bias_i32.empty() ? 0 : layer.bias_i32[static_cast<size_t>(n)];
    if (zb != 0 || SumWidthOf(b, PaddedTermsOf(layer), zb, bias) != SumWidth::k32) return {};
    // Where the channel's lane is in the block.
    const int64_t c = n % block;
    const int64_t lane = c % 16 / 4 * (block / 4) + c / 16 * 4 + c % 4;
    int8_t* const to = packed.weights.get() + n / block * bytes_of_block + lane * 4;
    for (int64_t r = 0; r < window.kernel_h; ++r) {
      for (int64_t s = 0; s < window.kernel_w; ++s) {
        to[(s * packed.Quads() + r / 4) * 4 * block + r % 4] =
            b[static_cast<size_t>(r * window.kernel_w + s)];
      }
    }
    const size_t at = static_cast<size_t>(n / block * block + lane);
    packed.initial[at] = static_cast<int32_t>(bias - za * sum);
    packed.multiplier[at] = plan->multiplier[static_cast<size_t>(n)];
  }
  return packed;
}

int64_t DepthwiseLinesBytes(const PackedDepthwiseLines& packed) {
  return kColumns * packed.Quads() * 4 * packed.block_channels + packed.block_channels;
}

void RunDepthwiseLines(const PackedDepthwiseLines& packed, const ConstImages& images,
                       const Band& band, uint8_t* y, int64_t y_stride, uint8_t* scratch) {
  const WindowGeometry& window = packed.window;
  const int64_t block = packed.block_channels;
  const int64_t bytes_of_block = window.kernel_w * packed.Quads() * 4 * block;
  const uintptr_t misaligned = reinterpret_cast<uintptr_t>(scratch) % static_cast<uintptr_t>(block);
  LineArgs args = {
      .height = images.height,
      .width = images.width,
      .x_line = images.row_stride,
      .x_pixel = images.pixel_stride,
      .left = band.column * window.stride_w - window.pad_left,
      .padding = packed.padding.data(),
      .x_is_signed = images.type == ElementType::kS8,
      .rows = window.kernel_h,
      .row_step = window.dilation_h,
      .quads = packed.Quads(),
      .columns = window.kernel_w,
      .column_step = window.dilation_w,
      .stride = window.stride_w,
      .pixels = band.columns,
      .plan = packed.plan,
      .codes = {},
      .scratch = scratch + (misaligned == 0 ? 0 : block - static_cast<int64_t>(misaligned))};
  const uint8_t* const image =
      static_cast<const uint8_t*>(images.data) + band.image * images.image_stride;
  const auto run_line = QUALM_DISPATCH(RunLineImpl);
  for (int64_t first = 0; first < packed.channels; first += block) {
    args.weights = packed.weights.get() + first / block * bytes_of_block;
    args.initial = packed.initial.data() + first;
    args.multiplier = packed.multiplier.data() + first;
    for (int64_t line = 0; line < band.lines; ++line) {
      args.x = image + first;
      args.top = (band.line + line) * window.stride_h - window.pad_top;
      args.codes = {.channel = first,
                    .count = std::min(block, packed.channels - first),
                    .y = y + (band.pixel + line * band.out_w) * y_stride + first,
                    .y_stride = y_stride};
      run_line(args);
    }
  }
}

}  // namespace qualm::kernels
#endif  // HWY_ONCE
