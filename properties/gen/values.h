// SPDX-License-Identifier: Apache-2.0
// Building blocks of the generators. Only IEEE basic operations, ldexp and nextafter: no other libm
// function gives the same bits everywhere. And never two draws in one expression or argument list:
// their order would be the compiler's choice.
#ifndef QUALM_PROPERTIES_GEN_VALUES_H_
#define QUALM_PROPERTIES_GEN_VALUES_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/case.h"
#include "core/rng.h"
#include "properties/gen/gen.h"

namespace qualm::gen::internal {

struct Weighted {
  Theme theme;
  int weight;
};
// A theme of `items`, with probability weight / sum of weights.
Theme PickTheme(Rng& rng, std::span<const Weighted> items);

// A dimension: 1..8, around q*L +-1 for vector widths L of 4 to 64, or uniform; rarely 0.
int64_t DrawDim(Rng& rng, int64_t cap);
// Elementwise shape: few rows, or few columns, at most `budget` elements.
void DrawShape(Rng& rng, Theme theme, int64_t budget, Case& c);

// value as float32, moved inside [smallest denormal, FLT_MAX]: a valid scale.
float ToScale(double value);
// Random mantissa, exponent uniform in [low, high].
float DrawScale(Rng& rng, int low, int high);
// The codes of an observer whose type and symmetry are drawn: all, or a part that holds 0. `reduce`
// halves them where PyTorch allows it.
void DrawCodesOf(Rng& rng, Theme theme, bool reduce, Observer& o);
// Denormals, 2^-126, 2^+-64, FLT_MAX, 1 and neighbours.
float ExtremeScale(Rng& rng);
// Multiplier corners: mantissas 2^23, 2^23+1, 2^24-1, random; exponents -31..+31.
float CornerMultiplier(Rng& rng);

// A multiplier at an edge of fixed-point arithmetic: a power of two or a corner of the mantissa,
// with any shift from -31 to 40, mostly those where a convention changes its way.
struct EdgeMultiplier {
  double value = 1;
  int shift = 0;  // value lies in [2^-shift, 2^(1-shift))
};
EdgeMultiplier DrawEdgeMultiplier(Rng& rng);
// 2^-9 to 2^9, for the scales around an edge multiplier.
float PowerOfTwo(Rng& rng);
// An accumulator that such a multiplier brings to a tie, next to one, or to an end of int32.
int32_t EdgeAccumulator(Rng& rng, const EdgeMultiplier& multiplier);

// From {min, -1, 0, 1, max, random code}; in few cases also outside the codes. One choice for all
// entries of a list, since one entry outside is enough to keep most libraries from the case.
void DrawZeroPoints(Rng& rng, DType dtype, Theme theme, std::vector<int32_t>& zero_points);

inline int32_t UniformCode(Rng& rng, DType dtype) {
  const CodeRange range = RangeOf(dtype);
  return static_cast<int32_t>(rng.Between(range.min, range.max));
}
inline int32_t ExtremeCode(Rng& rng, DType dtype) {
  const CodeRange range = RangeOf(dtype);
  return rng.Chance(1, 2) ? range.min : range.max;
}
// One code, biased towards the ends, 0 and +-1.
int32_t BoundaryCode(Rng& rng, DType dtype);
// Each code of a tensor of codes, in order.
template <class Draw>
void FillEach(Tensor& codes, const Draw& draw) {
  for (uint8_t& byte : codes.bytes()) byte = static_cast<uint8_t>(draw());
}
// The same as FillEach with UniformCode, BoundaryCode or ExtremeCode: the same draws and codes in a
// third of the time, because most of the cost of a drawn case is its codes.
void FillUniform(Rng& rng, DType dtype, std::span<uint8_t> codes);
void FillBoundary(Rng& rng, DType dtype, std::span<uint8_t> codes);
void FillExtreme(Rng& rng, DType dtype, std::span<uint8_t> codes);
// As many rng.Pick(alphabet).
void FillPicks(Rng& rng, const std::array<int32_t, 4>& alphabet, std::span<uint8_t> codes);
// All codes of an operand: uniform, boundary or extreme ones, or every code in order.
void FillCodes(Rng& rng, Theme theme, Tensor& codes);
// A float with few mantissa bits: products and halves of such are floats.
double ShortScale(Rng& rng);
// 1 or, as often, an odd number. Over an odd number a ratio of scales is no binary fraction, and
// its exact ties are not those of a multiplier in float64 (49 * (1/49) < 1).
int64_t DrawDivisor(Rng& rng);
// Makes about half of the codes differ from `zero` by a multiple of `divisor`, where the type can;
// none for a divisor of 1.
void FillMultiples(Rng& rng, int32_t zero, int64_t divisor, Tensor& codes);
// 0, +-1, +-2^k, +-2^k +-1, INT32_MIN, INT32_MAX.
int32_t CornerAccumulator(Rng& rng);
// floor(value) as int32, moved inside the type.
int32_t ToInt32(double value);

// Zeros, denormals, infinities, NaNs, FLT_MAX.
float SpecialFloat(Rng& rng);

// Clamp and relu of an integer output whose dtype and zero point are set.
void DrawClamp(Rng& rng, Theme theme, Case& c);

Case DrawLinear(Rng& rng, Theme theme, Op op);
Case DrawQuantize(Rng& rng, Theme theme, Op op);
Case DrawDequantize(Rng& rng, Theme theme, Op op);
// The same, `small`: with codes of fewer than 8 bits.
Case DrawQuantize(Rng& rng, Theme theme, Op op, bool small);
Case DrawDequantize(Rng& rng, Theme theme, Op op, bool small);
Case DrawRequantize(Rng& rng, Theme theme, Op op);
Case DrawConv(Rng& rng, Theme theme, Op op);
Case DrawPool(Rng& rng, Theme theme, Op op);
Case DrawObserver(Rng& rng, Theme theme, Op op);  // choose_qparams
Case DrawDynamicLinear(Rng& rng, Theme theme, Op op);
Case DrawOperands(Rng& rng, Theme theme, Op op);  // codes of one or two inputs
Case DrawConcat(Rng& rng, Theme theme, Op op);
Case DrawTable(Rng& rng, Theme theme, Op op);
Case DrawSoftmax(Rng& rng, Theme theme, Op op);
Case DrawCast(Rng& rng, Theme theme, Op op);
// Of linear and convolutions, with x of 16 bits.
Case DrawWideSums(Rng& rng, Op op);

}  // namespace qualm::gen::internal

#endif  // QUALM_PROPERTIES_GEN_VALUES_H_
