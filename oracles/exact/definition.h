// SPDX-License-Identifier: Apache-2.0
// The definition of every operation in rationals, one file per operation, term by term.
// Internal to oracles/exact; EvaluateRational is the door.
#ifndef QUALM_ORACLES_EXACT_DEFINITION_H_
#define QUALM_ORACLES_EXACT_DEFINITION_H_

#include <cstdint>
#include <optional>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/exact/rational.h"
#include "oracles/trace.h"

namespace qualm::exact {

// The real value of output (m, n) before rounding, zero point and clamp; m counts the pixels of an
// output with a window in row-major order.
std::optional<Rational> QuantizeValue(const Case& c, int64_t m, int64_t n);  // none: x NaN or inf
Rational DequantizeValue(const Case& c, int64_t m, int64_t n);
Rational RequantizeValue(const Case& c, int64_t m, int64_t n);
Rational LinearValue(const Case& c, int64_t m, int64_t n);
Rational ConvValue(const Case& c, int64_t m, int64_t n);  // conv2d, depthwise
Rational AddValue(const Case& c, int64_t m, int64_t n);
Rational MulValue(const Case& c, int64_t m, int64_t n);
Rational RescaleValue(const Case& c, int64_t m, int64_t n);
Rational MaxPoolValue(const Case& c, int64_t m, int64_t n);
Rational AvgPoolValue(const Case& c, int64_t m, int64_t n);  // avg_pool, global_avg_pool
std::optional<Rational> RealValue(const Case& c, int64_t m, int64_t n);  // by op

// What linear and convolutions make of their sum: float bias and scales of channel n.
Rational ScaledSum(const Case& c, int64_t n, const Integer& sum);

// sum_k (x-zx)(w-zw_n) + bias_i32_n.
Integer LinearSum(const Case& c, int64_t m, int64_t n);
Integer ConvSum(const Case& c, int64_t m, int64_t n);

// x_scale*w_scale/out_scale of channel n, or the given multiplier of requantize.
Rational RealMultiplier(const Case& c, int64_t n);

// An accumulator in the arithmetic of a requantization mode other than exact: the code before the
// clamp, zero point added, and how it came about.
struct Requantized {
  Integer code;
  Trace steps;
};
Requantized RequantizeAs(const Case& c, int64_t n, const Integer& accumulator);

// All outputs. Only quantize has inputs without a real value.
Tensor Quantize(const Case& c);

// min(max(value, lo), hi): where relu puts lo above hi the result is hi.
int32_t Clamp(const Integer& value, int64_t lo, int64_t hi);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_DEFINITION_H_
