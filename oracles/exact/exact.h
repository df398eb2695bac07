// SPDX-License-Identifier: Apache-2.0
// The exact meaning of every operation: the real result, rounded once half to even, then clamped
// (docs/quantization.md). Two independent forms; each is tested against the other.
#ifndef QUALM_ORACLES_EXACT_EXACT_H_
#define QUALM_ORACLES_EXACT_EXACT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/trace.h"

namespace qualm::exact {

// A requantization mode other than exact (Case::requant) is part of the meaning of an output. The
// functions below that give outputs follow it; functions that give real values do not.

// Fast form: int64 sums, 128-bit integers, and a 768-bit sum where exponents lie far apart; real
// functions in fixed point of growing width. Any valid case.
Tensor Evaluate(const Case& c);

// Naive form: rationals over big integers, mirroring the definition term by term; real functions
// enclosed by MPFR. Any valid case.
Tensor EvaluateRational(const Case& c);

// Raw sums of linear and convolutions, exact: sum_k x*w without zero points or bias (int64, [M*N]).
// Taps in the padding add nothing.
std::vector<int64_t> RawSums(const Case& c);
// Exact sum_k (x-zx)(w-zw_n) + bias_i32 [M*N]; zero points may be any int32, hence 128 bits. Taps
// in the padding add real 0, whatever the zero points.
std::vector<__int128> CorrectedSums(const Case& c);

// The same of each block of a linear with weights in blocks, which has no CorrectedSums: [M*N]
// times RowBlocks, output by output.
std::vector<__int128> BlockSums(const Case& c);

// The sums of x*(w-zw) of each block of a linear of f32 x, or of their magnitudes. Exponents of x
// may lie too far apart for one integer, so each sum has a part for every `levels` ranges of
// kLevelBits exponents: [M*N] times RowBlocks times `levels`. Part i counts in units of
// 2^(unit + i*kLevelBits) and is less than 2^110.
struct FloatBlockSums {
  static constexpr int kLevelBits = 24;
  std::vector<__int128> values;
  int unit = 0;
  int64_t levels = 1;
};
enum class Signs : uint8_t { kKept, kDropped };
FloatBlockSums SumsOfFloats(const Case& c, Signs signs = Signs::kKept);

// The rest of linear and convolutions from given corrected sums ([M*N], as CorrectedSums gives
// them): float bias, scale, one rounding, zero point, clamp. Counterfactuals put other sums in and
// keep the rest exact.
Tensor EvaluateFromSums(const Case& c, std::span<const __int128> sums);

// The fast form in stages: integers, then codes, then the clamp. A counterfactual replaces one
// stage and keeps the others exact.

// The integers of the fast form, from which the scales make the outputs.
struct Integers {
  // [M*N], except that choose_qparams has none. Of each output:
  //   linear, conv2d, depthwise       its element of CorrectedSums
  //   linear with weights in blocks   its BlockSums, one integer for each block: [M*N*RowBlocks]
  //   linear of f32 x                 the values of SumsOfFloats
  //   dynamic_linear                  the same of the linear on the codes that it chooses
  //   avg_pool, global_avg_pool       the sum of x - zx over the window
  //   max_pool                        the maximum of x - zx over the window
  //   mul                             (a - za)(b - zb)
  //   add, sub                        a - za
  //   rescale, dequantize, table      x - zx
  //   concat                          a - za or b - zb
  //   requantize                      x
  //   quantize                        the mantissa of x
  //   softmax                         t
  std::vector<__int128> values;
  // Average pools: the divisor of each pixel. softmax: sum of t of each row. Empty for others.
  std::vector<int64_t> counts;
  // dynamic_linear: of x, for each row. Empty for others.
  std::vector<float> scales;
  // linear of f32 x: those of SumsOfFloats.
  int unit = 0;
  int64_t levels = 1;
};
Integers IntegersOf(const Case& c);

// An integer output before the clamp to [lo, out_max].
struct Code {
  __int128 value = 0;  // rounded + zero point, or the s32 sum; far outside for +-inf
  int64_t lo = 0;
  std::optional<double> tie_distance;  // as TieDistance: of the real value, in any mode
  int rest = 0;  // sign of the real value less its rounded one; 0 for far values and NaN
};

// Computes the stages after the integers, to the end; the functions of evaluate.h stop at a stage.
// Any operation but choose_qparams.
Tensor EvaluateFrom(const Case& c, Integers integers);

// Whether an output might leave int32 between the accumulator and the clamp in a mode that then
// gives the wrong end of the range (float32: INT32_MIN, fixed_q31: modulo 2^32), so that outputs no
// longer rise with the input. Never true in the other two modes. May already be true for values of
// a quarter of the size that overflows.
bool RequantMayOverflow(const Case& c);

// Derivation of output element `index` (row-major), with every term that matters. Stages, where
// they apply: accumulate, offset, bias, scale, round, zero_point, clamp; add, sub and mul have an
// offset for each operand. A float bias of codes is added in units of x_scale*w_scale, before
// scaling; an f32 output takes it after. The last value is the output; max_pool goes from
// accumulate to clamp. table: three steps of scale (argument, function, quotient). softmax: offset,
// scale (t), accumulate (its sum), round, and clamp where 255 cuts.
Trace Derive(const Case& c, int64_t index);

// The exact real value of output `index` before rounding, zero point and clamp, as "p/q".
// "nan", "inf" or "-inf" where quantize has such an input. Of max_pool: (x - z) of the largest
// code. Of table, where it is not rational: "sigmoid(p/q) / (p/q)". Of softmax: 256*t / sum t,
// which is rounded half up.
std::string RealValueText(const Case& c, int64_t index);

// Twice the distance from that value to the nearest rounding tie, in lsb: 0 on a tie, 1 on an
// integer. It is a double next to the exact number, and 0 on ties only. nullopt for s32 and f32
// outputs (the codes of a choose_qparams have one), for NaN and infinite inputs, and for magnitudes
// from 2^33 on: no zero point brings such a value back to a code, however it rounds.
std::optional<double> TieDistance(const Case& c, int64_t index);
// The same of every output of codes, without computing a row again for each of its outputs.
std::vector<std::optional<double>> TieDistances(const Case& c);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_EXACT_H_
