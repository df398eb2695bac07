// SPDX-License-Identifier: Apache-2.0
// Functions that the definitions of several operations share. Internal to oracles/exact; other
// folders call EvaluateRational.
#ifndef QUALM_ORACLES_EXACT_DEFINITION_H_
#define QUALM_ORACLES_EXACT_DEFINITION_H_

#include <cstdint>
#include <optional>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/exact/arithmetic/rational.h"
#include "oracles/trace.h"

namespace qualm::exact {

// Definition::value of the case's operation.
std::optional<Rational> RealValue(const Case& c, int64_t m, int64_t n);

// scale * (code - zero point) of code `index` of an operand with one scale and zero point.
Rational RealOperand(const Tensor& codes, const QParams& q, int64_t index);

// x_scale*w_scale/out_scale of channel n, or the given multiplier of requantize.
Rational RealMultiplier(const Case& c, int64_t n);

// The code that a requantization mode other than exact makes of an accumulator, before the clamp
// and with the zero point, and the steps to it.
struct Requantized {
  Integer code;
  Trace steps;
};
Requantized RequantizeAs(const Case& c, int64_t n, const Integer& accumulator);

// min(max(value, lo), hi): where relu puts lo above hi the result is hi.
int32_t Clamp(const Integer& value, int64_t lo, int64_t hi);

// The largest finite value of a float type.
Rational LargestOf(const FloatFormat& format);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_DEFINITION_H_
