// SPDX-License-Identifier: Apache-2.0
// Depthwise convolution, one output channel per input channel, to codes. Up to four activations of
// a column of the window (a quad) are brought next to each other once, for all output pixels that
// see them: those of a line, and of further lines where the last quad has rows
// to spare (four rows hold two windows of three, if lines are as far apart as taps). Then each quad
// is one multiply-add, as in linear; where a quad has activations of other windows, their weights
// are 0. Sums are exact for the same reason as there (accumulate.cc), they fit int32
// (PackDepthwiseLines looks), and codes-inl.h rounds them once.
#include "kernels/sums/depthwise_lines.h"

#include <algorithm>
#include <bit>
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
#include "kernels/sums/quads-inl.h"

#ifndef QUALM_KERNELS_DEPTHWISE_LINES_ARGS_
#define QUALM_KERNELS_DEPTHWISE_LINES_ARGS_
namespace qualm::kernels {
namespace {

// Columns of a line whose quads are kept at a time: 24 KiB of quads with the longest vectors of
// x86.
constexpr int64_t kColumns = 96;
// Output pixels between sums and codes.
constexpr int64_t kPixels = 16;
// Output pixels whose codes are decided before those next to ties are written again.
constexpr int64_t kMostAgain = 64;

// One line of output pixels, or some that share their quads, and one block of channels. Positions
// count from the first pixel of the image; those outside it are padding.
struct LineArgs {
  const uint8_t* x = nullptr;  // first channel of the image's first pixel
  int64_t height = 0;
  int64_t width = 0;
  int64_t x_line = 0;                // bytes from line to line
  int64_t x_pixel = 0;               // from pixel to pixel
  int64_t top = 0;                   // line under the first tap of the first line
  int64_t left = 0;                  // pixel under the first tap of the first output pixel
  const uint8_t* padding = nullptr;  // a block of it
  bool flips = false;  // 128 is added to each activation modulo 256: x is s8, or (kDot) x is u8
  internal::QuadSum quad_sum = internal::QuadSum::kHighway;
  int64_t rows = 0;                 // of taps, those of all lines together
  int64_t row_step = 0;             // lines from tap to tap
  bool threes = false;              // CodesOfThrees can take it, and there is one line
  int64_t quads = 0;                // of a column of taps
  int64_t columns = 0;              // of taps
  int64_t column_step = 0;          // pixels from tap to tap
  int64_t stride = 0;               // pixels from output pixel to output pixel
  int64_t pixels = 0;               // of a line of the output
  int64_t lines = 0;                // of the output
  int64_t y_line = 0;               // bytes from line to line
  const int8_t* weights = nullptr;  // of the first line; then those of the others
  int64_t weights_of_line = 0;      // bytes
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

// As codes::kHasBlocks. Vectors of SVE, of known length or not, cannot be fields.
#if HWY_TARGET != HWY_SCALAR && !HWY_TARGET_IS_SVE

namespace hn = hwy::HWY_NAMESPACE;
using internal::QuadSum;
using DI32 = hn::ScalableTag<int32_t>;
using DI8 = hn::Repartition<int8_t, DI32>;
using DU8 = hn::Repartition<uint8_t, DI32>;
using DU16 = hn::Repartition<uint16_t, DI32>;
using VI32 = hn::Vec<DI32>;
using VI8 = hn::Vec<DI8>;
using VU8 = hn::Vec<DU8>;

constexpr int64_t kBytes = static_cast<int64_t>(hn::MaxLanes(DU8()));  // of a vector

// The largest stride that CodesOfThrees takes; 0 without it. With fewer than 32 registers it
// spills, and that costs more than it saves where two columns are laid for each output pixel.
constexpr int64_t kMostStride = HWY_TARGET_IS_NEON || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) ? 2
                                : HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128                     ? 1
                                                                                               : 0;

template <bool kFlip, bool kWhole>
HWY_INLINE VU8 LoadChannels(const uint8_t* x, size_t count) {
  const DU8 d;
  const VU8 v = kWhole ? hn::LoadU(d, x) : hn::LoadN(d, x, count);
  return kFlip ? hn::Xor(v, hn::Set(d, 0x80)) : v;
}

// Four vectors with names: in an array, gcc 12 keeps them in memory.
struct Quads {
  VU8 q0, q1, q2, q3;
};
struct Taps {
  VI8 w0, w1, w2, w3;
};
struct Sums {
  VI32 s0, s1, s2, s3;
};

// The quads of four rows at one pixel.
HWY_INLINE Quads QuadsOf(VU8 r0, VU8 r1, VU8 r2, VU8 r3) {
  const DU8 d;
  const DU16 d16;
  const auto low01 = hn::BitCast(d16, hn::InterleaveLower(d, r0, r1));
  const auto high01 = hn::BitCast(d16, hn::InterleaveUpper(d, r0, r1));
  const auto low23 = hn::BitCast(d16, hn::InterleaveLower(d, r2, r3));
  const auto high23 = hn::BitCast(d16, hn::InterleaveUpper(d, r2, r3));
  return {hn::BitCast(d, hn::InterleaveLower(d16, low01, low23)),
          hn::BitCast(d, hn::InterleaveUpper(d16, low01, low23)),
          hn::BitCast(d, hn::InterleaveLower(d16, high01, high23)),
          hn::BitCast(d, hn::InterleaveUpper(d16, high01, high23))};
}

// The same of activations in memory. kWhole: all channels of the block.
template <bool kFlip, bool kWhole>
HWY_INLINE void LayQuad(const uint8_t* x0, const uint8_t* x1, const uint8_t* x2, const uint8_t* x3,
                        size_t count, uint8_t* to) {
  const DU8 d;
  const Quads quads =
      QuadsOf(LoadChannels<kFlip, kWhole>(x0, count), LoadChannels<kFlip, kWhole>(x1, count),
              LoadChannels<kFlip, kWhole>(x2, count), LoadChannels<kFlip, kWhole>(x3, count));
  hn::Store(quads.q0, d, to);
  hn::Store(quads.q1, d, to + kBytes);
  hn::Store(quads.q2, d, to + 2 * kBytes);
  hn::Store(quads.q3, d, to + 3 * kBytes);
}

HWY_INLINE Taps LoadTaps(const int8_t* weights) {
  const DI8 d;
  return {hn::Load(d, weights), hn::Load(d, weights + kBytes), hn::Load(d, weights + 2 * kBytes),
          hn::Load(d, weights + 3 * kBytes)};
}
HWY_INLINE Sums LoadSums(const int32_t* sums) {
  const DI32 d;
  constexpr int64_t kLanes = kBytes / 4;
  return {hn::Load(d, sums), hn::Load(d, sums + kLanes), hn::Load(d, sums + 2 * kLanes),
          hn::Load(d, sums + 3 * kLanes)};
}
HWY_INLINE void StoreSums(const Sums& sums, int32_t* to) {
  const DI32 d;
  constexpr int64_t kLanes = kBytes / 4;
  hn::Store(sums.s0, d, to);
  hn::Store(sums.s1, d, to + kLanes);
  hn::Store(sums.s2, d, to + 2 * kLanes);
  hn::Store(sums.s3, d, to + 3 * kLanes);
}

template <QuadSum kQuadSum>
HWY_INLINE Sums Plus(Sums sums, const Quads& x, const Taps& w) {
  quads::Add<kQuadSum>(sums.s0, x.q0, w.w0);
  quads::Add<kQuadSum>(sums.s1, x.q1, w.w1);
  quads::Add<kQuadSum>(sums.s2, x.q2, w.w2);
  quads::Add<kQuadSum>(sums.s3, x.q3, w.w3);
  return sums;
}

// [column][quads][4 vectors] of the pixels from `left` on, for all rows of taps. Where the last
// quad has fewer than four rows, the last row stands for the rest, whose weights are 0.
template <bool kFlip, bool kWhole>
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
        LayQuad<kFlip, kWhole>(none, none, none, none, count, to + c * step);
        continue;
      }
      LayQuad<kFlip, kWhole>(x[0], x[1], x[2], x[3], count, to + c * step);
      for (int64_t i = 0; i < 4; ++i) x[i] += x_step[i];
    }
  }
}

// The sums of one output pixel.
template <QuadSum kQuadSum>
HWY_INLINE void SumPixel(const LineArgs& args, const int8_t* w, const uint8_t* quads, int32_t* to) {
  const DU8 d;
  Sums sums = LoadSums(args.initial);
  const int64_t skip = (args.column_step - 1) * args.quads * 4 * kBytes;
  for (int64_t column = 0; column < args.columns; ++column, quads += skip) {
    for (int64_t q = 0; q < args.quads; ++q, w += 4 * kBytes, quads += 4 * kBytes) {
      const Quads x = {hn::Load(d, quads), hn::Load(d, quads + kBytes),
                       hn::Load(d, quads + 2 * kBytes), hn::Load(d, quads + 3 * kBytes)};
      sums = Plus<kQuadSum>(sums, x, LoadTaps(w));
    }
  }
  StoreSums(sums, to);
}

// The sums of some output pixels under windows of three columns of one quad each: the weights stay
// in registers.
template <QuadSum kQuadSum>
HWY_INLINE void SumThrees(const LineArgs& args, const int8_t* weights, const uint8_t* quads,
                          int64_t pixels, int32_t* sums) {
  const DI32 d;
  const DI8 d8;
  const DU8 du8;
  const int64_t pixel = args.stride * 4 * kBytes;
  const int64_t column = args.column_step * 4 * kBytes;
  for (int64_t v = 0; v < 4; ++v, quads += kBytes, sums += kBytes / 4, weights += kBytes) {
    const VI32 initial = hn::Load(d, args.initial + v * kBytes / 4);
    const VI8 w0 = hn::Load(d8, weights);
    const VI8 w1 = hn::Load(d8, weights + 4 * kBytes);
    const VI8 w2 = hn::Load(d8, weights + 8 * kBytes);
    const uint8_t* x = quads;
    for (int64_t p = 0; p < pixels; ++p, x += pixel) {
      VI32 sum = initial;
      quads::Add<kQuadSum>(sum, hn::Load(du8, x), w0);
      quads::Add<kQuadSum>(sum, hn::Load(du8, x + column), w1);
      quads::Add<kQuadSum>(sum, hn::Load(du8, x + 2 * column), w2);
      hn::Store(sum, d, sums + p * kBytes);
    }
  }
}

// Codes of one line, or a part of it, whose quads are laid.
template <QuadSum kQuadSum>
void CodesOfLine(const LineArgs& args, const int8_t* weights, int64_t pixels, CodesOut out) {
  HWY_ALIGN int32_t sums[kPixels * kBytes];
  const int64_t pixel = args.stride * args.quads * 4 * kBytes;
  for (int64_t p = 0; p < pixels; p += kPixels, out.y += kPixels * out.y_stride) {
    const int64_t some = std::min(kPixels, pixels - p);
    const uint8_t* const quads = args.scratch + p * pixel;
    if (args.columns == 3 && args.quads == 1) {
      SumThrees<kQuadSum>(args, weights, quads, some, sums);
    } else {
      for (int64_t i = 0; i < some; ++i) {
        SumPixel<kQuadSum>(args, weights, quads + i * pixel, sums + i * kBytes);
      }
    }
    codes::OfRows<4, codes::Order::kBlocks>(*args.plan, args.multiplier, sums, kBytes, some, out);
  }
}

// Windows of three columns next to each other and at most three rows, the stride 1 or 2: quads go
// from the shuffles to the sums of all output pixels that see them, and none is kept. `sums` has
// room for kMostAgain pixels.
template <QuadSum kQuadSum, bool kFlip, bool kWhole, int64_t kStride>
HWY_NOINLINE void CodesOfThrees(const LineArgs& args, int64_t first, int64_t pixels,
                                int32_t* HWY_RESTRICT sums) {
  const size_t count = static_cast<size_t>(args.codes.count);
  const int64_t left = args.left + first * kStride;
  const uint8_t* x[3];
  int64_t step[3];
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t line = args.top + std::min(i, args.rows - 1) * args.row_step;
    const bool inside = line >= 0 && line < args.height;
    x[i] = inside ? args.x + line * args.x_line : args.padding;
    step[i] = inside ? args.x_pixel : 0;
  }
  const uint8_t* const x0 = x[0];
  const uint8_t* const x1 = x[1];
  const uint8_t* const x2 = x[2];
  const int64_t step0 = step[0], step1 = step[1], step2 = step[2];
  const auto quads = [&](int64_t column) HWY_ATTR {
    const int64_t at = left + column;
    const bool inside = at >= 0 && at < args.width;
    const auto load = [&](const uint8_t* row, int64_t of_pixel) HWY_ATTR {
      return LoadChannels<kFlip, kWhole>(inside ? row + at * of_pixel : args.padding, count);
    };
    const VU8 last = load(x2, step2);
    return QuadsOf(load(x0, step0), load(x1, step1), last, last);  // the fourth weight is 0
  };
  const Taps taps0 = LoadTaps(args.weights);
  // Read again for each output pixel: not all fits into registers.
  const int8_t* const taps1 = args.weights + 4 * kBytes;
  const int8_t* const taps2 = args.weights + 8 * kBytes;
  const int32_t* const initial = args.initial;

  // Of the next output pixel, and with stride 1 of the one after it.
  const Quads first_column = quads(0);
  Sums next = Plus<kQuadSum>(LoadSums(initial), first_column, taps0);
  Sums second = next;
  if constexpr (kStride == 1) {
    const Quads second_column = quads(1);
    next = Plus<kQuadSum>(next, second_column, LoadTaps(taps1));
    second = Plus<kQuadSum>(LoadSums(initial), second_column, taps0);
  }
  CodesOut out = args.codes;
  out.y += first * out.y_stride;
  uint64_t again = 0;  // a bit for each pixel
  static_assert(kMostAgain == 64);
  codes::OfRows<4, codes::Order::kBlocks>(
      *args.plan, args.multiplier, pixels, out,
      [&](int64_t p, VI32& s0, VI32& s1, VI32& s2, VI32& s3) HWY_ATTR {
        if constexpr (kStride == 2) next = Plus<kQuadSum>(next, quads(2 * p + 1), LoadTaps(taps1));
        const Quads last = quads(kStride * p + 2);
        const Sums done = Plus<kQuadSum>(next, last, LoadTaps(taps2));
        if constexpr (kStride == 1) {
          next = Plus<kQuadSum>(second, last, LoadTaps(taps1));
          second = Plus<kQuadSum>(LoadSums(initial), last, taps0);
        } else {
          next = Plus<kQuadSum>(LoadSums(initial), last, taps0);
        }
        s0 = done.s0;
        s1 = done.s1;
        s2 = done.s2;
        s3 = done.s3;
      },
      [&](int64_t p, uint8_t*, VI32 s0, VI32 s1, VI32 s2, VI32 s3) HWY_ATTR {
        StoreSums({s0, s1, s2, s3}, sums + p * kBytes);
        again |= uint64_t{1} << p;
      });
  // Not in the loop: a call there would push the weights out of their registers.
  for (; again != 0; again &= again - 1) {
    const int64_t p = std::countr_zero(again);
    codes::DecideBlocks(*args.plan, sums + p * kBytes, out, out.y + p * out.y_stride);
  }
}

template <QuadSum kQuadSum, bool kFlip, bool kWhole>
void RunThrees(const LineArgs& args) {
  HWY_ALIGN int32_t sums[kMostAgain * kBytes];
  const auto codes_of = args.stride == 1 ? CodesOfThrees<kQuadSum, kFlip, kWhole, 1>
                                         : CodesOfThrees<kQuadSum, kFlip, kWhole, kMostStride>;
  for (int64_t first = 0; first < args.pixels; first += kMostAgain) {
    codes_of(args, first, std::min(kMostAgain, args.pixels - first), sums);
  }
}

template <QuadSum kQuadSum>
void RunLines(const LineArgs& args) {
  const bool whole = args.codes.count == kBytes;
  if constexpr (kMostStride > 0) {
    if (args.threes) {
      const auto run =
          args.flips
              ? (whole ? RunThrees<kQuadSum, true, true> : RunThrees<kQuadSum, true, false>)
              : (whole ? RunThrees<kQuadSum, false, true> : RunThrees<kQuadSum, false, false>);
      return run(args);
    }
  }
  const int64_t span = (args.columns - 1) * args.column_step + 1;
  const int64_t most = std::max<int64_t>((kColumns - span) / args.stride + 1, 1);
  const auto lay = args.flips ? (whole ? LayQuads<true, true> : LayQuads<true, false>)
                              : (whole ? LayQuads<false, true> : LayQuads<false, false>);
  for (int64_t first = 0; first < args.pixels; first += most) {
    const int64_t pixels = std::min(most, args.pixels - first);
    lay(args, args.left + first * args.stride, (pixels - 1) * args.stride + span, args.scratch);
    CodesOut out = args.codes;
    out.y += first * out.y_stride;
    const int8_t* weights = args.weights;
    for (int64_t line = 0; line < args.lines; ++line) {
      CodesOfLine<kQuadSum>(args, weights, pixels, out);
      weights += args.weights_of_line;
      out.y += args.y_line;
    }
  }
}

void RunLinesImpl(const LineArgs& args) {
  quads::ForQuadSum(args.quad_sum, [&](auto quad_sum) {
    // No weights are certified here.
    if constexpr (quad_sum() != QuadSum::kPairs && quad_sum() != QuadSum::kWidened)
      RunLines<quad_sum()>(args);
  });
}

int64_t BytesOfVectorImpl() { return kBytes; }
int64_t MostStrideOfThreesImpl() { return kMostStride; }

#else

void RunLinesImpl(const LineArgs&) {}
int64_t BytesOfVectorImpl() { return 0; }
int64_t MostStrideOfThreesImpl() { return 0; }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {

HWY_EXPORT(RunLinesImpl);
HWY_EXPORT(BytesOfVectorImpl);
HWY_EXPORT(MostStrideOfThreesImpl);

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
  packed.quad_sum = internal::TargetQuadSum();
  packed.padding.resize(static_cast<size_t>(block), padding);
  packed.plan = plan;
  packed.threes = window.kernel_w == 3 && window.kernel_h <= 3 && window.dilation_w == 1 &&
                  window.stride_w <= QUALM_DISPATCH(MostStrideOfThreesImpl)();
  // Lines share quads where they are as far apart as taps.
  const int64_t spare = 4 * packed.Quads() - window.kernel_h;
  if (!packed.threes && window.stride_h == window.dilation_h) packed.lines = 1 + spare;
  const int64_t blocks = (packed.channels - 1) / block + 1;
  const int64_t bytes_of_line = packed.BytesOfLine();
  const int64_t bytes_of_block = packed.lines * bytes_of_line;
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
    int8_t* to = packed.weights.get() + n / block * bytes_of_block + lane * 4;
    for (int64_t line = 0; line < packed.lines; ++line, to += bytes_of_line) {
      for (int64_t r = 0; r < window.kernel_h; ++r) {
        const int64_t row = line + r;  // of the quads
        for (int64_t s = 0; s < window.kernel_w; ++s) {
          to[(s * packed.Quads() + row / 4) * 4 * block + row % 4] =
              b[static_cast<size_t>(r * window.kernel_w + s)];
        }
      }
    }
    const size_t at = static_cast<size_t>(n / block * block + lane);
    // sdot takes a - 128 for a (quads-inl.h).
    const int64_t more = packed.quad_sum == internal::QuadSum::kDot ? 128 * sum : 0;
    packed.initial[at] = static_cast<int32_t>(bias - za * sum + more);
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
  const int64_t bytes_of_line = packed.BytesOfLine();
  const uintptr_t misaligned = reinterpret_cast<uintptr_t>(scratch) % static_cast<uintptr_t>(block);
  LineArgs args = {
      .height = images.height,
      .width = images.width,
      .x_line = images.row_stride,
      .x_pixel = images.pixel_stride,
      .left = band.column * window.stride_w - window.pad_left,
      .padding = packed.padding.data(),
      .flips = (images.type == ElementType::kS8) != (packed.quad_sum == internal::QuadSum::kDot),
      .quad_sum = packed.quad_sum,
      .row_step = window.dilation_h,
      .threes = packed.threes,
      .quads = packed.Quads(),
      .columns = window.kernel_w,
      .column_step = window.dilation_w,
      .stride = window.stride_w,
      .pixels = band.columns,
      .y_line = band.out_w * y_stride,
      .weights_of_line = bytes_of_line,
      .plan = packed.plan,
      .codes = {},
      .scratch = scratch + (misaligned == 0 ? 0 : block - static_cast<int64_t>(misaligned))};
  const uint8_t* const image =
      static_cast<const uint8_t*>(images.data) + band.image * images.image_stride;
  const auto run_lines = QUALM_DISPATCH(RunLinesImpl);
  // All blocks of some lines, whose activations are still near.
  for (int64_t line = 0; line < band.lines; line += packed.lines) {
    args.lines = std::min(packed.lines, band.lines - line);
    args.rows = window.kernel_h + args.lines - 1;
    args.top = (band.line + line) * window.stride_h - window.pad_top;
    for (int64_t first = 0; first < packed.channels; first += block) {
      args.x = image + first;
      args.weights = packed.weights.get() + first / block * packed.lines * bytes_of_line;
      args.initial = packed.initial.data() + first;
      args.multiplier = packed.multiplier.data() + first;
      args.codes = {.channel = first,
                    .count = std::min(block, packed.channels - first),
                    .y = y + (band.pixel + line * band.out_w) * y_stride + first,
                    .y_stride = y_stride};
      run_lines(args);
    }
  }
}

}  // namespace qualm::kernels
#endif  // HWY_ONCE
