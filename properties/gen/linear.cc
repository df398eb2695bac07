// SPDX-License-Identifier: Apache-2.0
// Cases of linear. Values, shape, qparams and post-ops are drawn independently of each other: half
// of the documented bugs need two of them at once.
#include <algorithm>
#include <array>

#include "properties/gen/layer.h"
#include "properties/gen/sums.h"

namespace qualm::gen::internal {
namespace {

void DrawDims(Rng& rng, Theme theme, Case& c) {
  if (theme == Theme::kLayer) return DrawLayerProducts(rng, c);
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
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, BoundaryCode(rng, c.x.dtype()));
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, BoundaryCode(rng, c.w.dtype()));
  if (c.M == 0) return;
  for (int64_t k = 0; k + 1 < c.K; k += 2) {
    const auto x0 = static_cast<int32_t>(rng.Between(200, 255));
    const auto x1 = static_cast<int32_t>(rng.Between(4, 255));
    c.x.SetInt(k, x0 - shift);
    c.x.SetInt(k + 1, x1 - shift);
    for (int64_t n = 0; n < c.N; ++n) {
      const auto off = static_cast<int32_t>(rng.Between(-8, 8));
      const int32_t target = (rng.Chance(1, 2) ? 32767 : -32768) + off;
      const int32_t w0 = target > 0 ? static_cast<int32_t>(rng.Between(100, 127))
                                    : static_cast<int32_t>(rng.Between(-128, -100));
      const int32_t w1 = (target - x0 * w0) / x1;
      c.w.SetInt(n * c.K + k, std::clamp(w0, w_range.min, w_range.max));
      c.w.SetInt(n * c.K + k + 1, std::clamp(w1, w_range.min, w_range.max));
    }
  }
}

void FillValues(Rng& rng, Theme theme, Case& c) {
  c.x = Tensor(c.x.dtype(), {c.M, c.K});
  c.w = Tensor(c.w.dtype(), {c.N, c.K});
  const DType xd = c.x.dtype();
  const DType wd = c.w.dtype();
  if (theme == Theme::kLayer) {
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
      for (int64_t i = 0; i < c.x.size(); ++i) {
        c.x.SetInt(i, by_pair && rng.Chance(3, 4) ? xr.max : ExtremeCode(rng, xd));
      }
      for (int64_t n = 0; n < c.N; ++n) {
        bool high = rng.Chance(1, 2);
        for (int64_t k = 0; k < c.K; ++k) {
          if (by_pair && k % 2 == 0) high = rng.Chance(1, 2);
          if (!by_pair && c.M > 0) high = c.x.IntAt(k) == xr.max;
          const auto less = static_cast<int32_t>(rng.Chance(1, 4) ? rng.Between(0, 3) : 0);
          c.w.SetInt(n * c.K + k, high ? wr.max - less : wr.min + less);
        }
      }
      break;
    }
    case Fill::kConstant: {
      for (int64_t m = 0; m < c.M; ++m) {
        const int32_t code = BoundaryCode(rng, xd);
        for (int64_t k = 0; k < c.K; ++k) c.x.SetInt(m * c.K + k, code);
      }
      const bool constant_w = rng.Chance(1, 3);
      for (int64_t n = 0; n < c.N; ++n) {
        const int32_t code = BoundaryCode(rng, wd);
        for (int64_t k = 0; k < c.K; ++k) {
          c.w.SetInt(n * c.K + k, constant_w ? code : BoundaryCode(rng, wd));
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
  FillValues(rng, theme, c);
  DrawAroundSums(rng, theme, c);
  return c;
}

}  // namespace qualm::gen::internal
