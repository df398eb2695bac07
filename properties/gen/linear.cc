// SPDX-License-Identifier: Apache-2.0
// Cases of linear. Values, shape, qparams and post-ops are drawn independently of each other: half
// of the documented bugs need two of them at once.
#include <algorithm>
#include <array>
#include <span>

#include "properties/gen/layer.h"
#include "properties/gen/sums.h"

namespace qualm::gen::internal {
namespace {

void DrawDims(Rng& rng, Theme theme, Case& c) {
  if (theme == Theme::kLayer) return DrawLayerProducts(rng, c);
  if (theme == Theme::kMiddling) return DrawMiddlingProducts(rng, c);
  if (theme == Theme::kFarValue || theme == Theme::kWideTerms) {
    c.K = theme == Theme::kFarValue ? DrawFarLength(rng) : DrawWideDepth(rng);
    c.M = c.K < 10000 ? rng.Between(1, 2) : 1;
    c.N = c.K < 10000 ? rng.Between(1, 3) : 1;
    return;
  }
  if (theme == Theme::kParameterEdges) {  // powers of two divide the ends of int32
    c.M = rng.Between(1, 2);
    c.N = rng.Between(1, 5);
    c.K = rng.Chance(1, 2) ? int64_t{1} << rng.Between(0, 3) : rng.Between(1, 9);
    return;
  }
  if (theme == Theme::kLongK) {
    constexpr std::array<int64_t, 12> kLong{255, 256,  257,  258,  511,  512,
                                            513, 1023, 1024, 1025, 1041, 1042};
    // Flush intervals of 16-bit lane sums: 256 vectors of 8, 16 or 32 lanes.
    constexpr std::array<int64_t, 7> kLonger{2049, 4095, 4096, 4097, 4113, 8193, 8225};
    // Where sums with, and without, zero points can leave int32.
    constexpr std::array<int64_t, 5> kLongest{33024, 33025, 33026, 65793, 65794};
    const uint64_t style = rng.Below(100);
    c.M = style < 85 ? rng.Between(1, 2) : 1;
    c.N = style < 85 ? rng.Between(1, 3) : 1;
    c.K = style < 85 ? rng.Pick(kLong) : style < 97 ? rng.Pick(kLonger) : rng.Pick(kLongest);
    return;
  }
  const int64_t cap = theme == Theme::kTails || rng.Chance(1, 10) ? 131 : 40;
  c.K = DrawDim(rng, cap);
  c.N = DrawDim(rng, cap);
  c.M = rng.Chance(3, 5) ? rng.Between(1, 4) : DrawDim(rng, cap);
  if (theme == Theme::kEmpty) {
    const uint64_t which = rng.Below(5);
    if (which == 0 || which == 4) c.M = 0;
    if (which == 1 || which == 4) c.N = 0;
    if (which == 2 || which == 3) c.K = 0;
  }
  // Small cases find what big ones find, and thousands of them run per second.
  const int64_t budget = 16000;
  if (c.M * c.N * c.K > budget) c.M = rng.Between(1, 4);
  if (c.M * c.N * c.K > budget) c.N = rng.Between(1, 12);
}

// Pairs (k, k+1) of row 0 with every weight row that sum to 32767 +- 8 or -32768 +- 8, as a kernel
// sees them that shifts s8 activations to u8; or FillMagnitudes.
void FillThreshold(Rng& rng, Case& c) {
  const int32_t shift = c.x.dtype() == DType::kS8 ? 128 : 0;
  const CodeRange w_range = RangeOf(c.w.dtype());
  if (rng.Chance(1, 3)) return FillMagnitudes(rng, c);
  FillBoundary(rng, c.x.dtype(), c.x.bytes());
  FillBoundary(rng, c.w.dtype(), c.w.bytes());
  if (c.M == 0) return;
  const std::span<uint8_t> x = c.x.bytes(), w = c.w.bytes();
  for (int64_t k = 0; k + 1 < c.K; k += 2) {
    const auto x0 = static_cast<int32_t>(rng.Between(200, 255));
    const auto x1 = static_cast<int32_t>(rng.Between(4, 255));
    x[static_cast<size_t>(k)] = static_cast<uint8_t>(x0 - shift);
    x[static_cast<size_t>(k + 1)] = static_cast<uint8_t>(x1 - shift);
    for (int64_t n = 0; n < c.N; ++n) {
      const auto off = static_cast<int32_t>(rng.Between(-8, 8));
      const int32_t target = (rng.Chance(1, 2) ? 32767 : -32768) + off;
      const int32_t w0 = target > 0 ? static_cast<int32_t>(rng.Between(100, 127))
                                    : static_cast<int32_t>(rng.Between(-128, -100));
      const int32_t w1 = (target - x0 * w0) / x1;
      uint8_t* const pair = &w[static_cast<size_t>(n * c.K + k)];
      pair[0] = static_cast<uint8_t>(std::clamp(w0, w_range.min, w_range.max));
      pair[1] = static_cast<uint8_t>(std::clamp(w1, w_range.min, w_range.max));
    }
  }
}

void FillValues(Rng& rng, Theme theme, Case& c) {
  c.x = Tensor(c.x.dtype(), {c.M, c.K});
  c.w = Tensor(c.w.dtype(), {c.N, c.K});
  const DType xd = c.x.dtype();
  const DType wd = c.w.dtype();
  if (theme == Theme::kLayer || (theme == Theme::kMiddling && rng.Chance(1, 2))) {
    FillLayer(rng, c.K, c.x);
    FillLayer(rng, c.K, c.w);
    return;
  }
  const Fill fill = PickFill(rng, theme);
  switch (fill) {
    case Fill::kUniform:
    case Fill::kBoundary:
    case Fill::kExtreme: FillElements(rng, fill, c); break;
    case Fill::kSignAligned: {
      // Weights take the sign of the activation above them (row 0), or of their pair, so that
      // products add up instead of cancelling.
      const CodeRange xr = RangeOf(xd);
      const CodeRange wr = RangeOf(wd);
      const bool by_pair = rng.Chance(1, 2);
      FillEach(c.x, [&] { return by_pair && rng.Chance(3, 4) ? xr.max : ExtremeCode(rng, xd); });
      uint8_t* w = c.w.bytes().data();
      for (int64_t n = 0; n < c.N; ++n) {
        bool high = rng.Chance(1, 2);
        for (int64_t k = 0; k < c.K; ++k) {
          if (by_pair && k % 2 == 0) high = rng.Chance(1, 2);
          if (!by_pair && c.M > 0) high = c.x.IntAt(k) == xr.max;
          const auto less = static_cast<int32_t>(rng.Chance(1, 4) ? rng.Between(0, 3) : 0);
          *w++ = static_cast<uint8_t>(high ? wr.max - less : wr.min + less);
        }
      }
      break;
    }
    case Fill::kConstant: {
      const auto depth = static_cast<size_t>(c.K);
      const auto row = [&](Tensor& codes, int64_t i) {
        return codes.bytes().subspan(static_cast<size_t>(i) * depth, depth);
      };
      for (int64_t m = 0; m < c.M; ++m) {
        std::ranges::fill(row(c.x, m), static_cast<uint8_t>(BoundaryCode(rng, xd)));
      }
      const bool constant_w = rng.Chance(1, 3);
      for (int64_t n = 0; n < c.N; ++n) {
        const auto code = static_cast<uint8_t>(BoundaryCode(rng, wd));
        if (constant_w) {
          std::ranges::fill(row(c.w, n), code);
        } else {
          FillBoundary(rng, wd, row(c.w, n));
        }
      }
      break;
    }
    case Fill::kThreshold: FillThreshold(rng, c); break;
  }
  ZeroAChannel(rng, c);
}

}  // namespace

Case DrawLinear(Rng& rng, Theme theme, Op op) {
  Case c;
  c.op = op;
  DrawDims(rng, theme, c);
  DrawTypes(rng, c);
  if (theme == Theme::kLayer) DrawLayerList(rng, c);
  FillValues(rng, theme, c);
  NarrowWeights(rng, theme, c);
  DrawAroundSums(rng, theme, c);
  return c;
}

}  // namespace qualm::gen::internal
