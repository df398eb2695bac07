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

namespace qualm::exact {

// The real value of output (m, n) before rounding, zero point and clamp.
std::optional<Rational> QuantizeValue(const Case& c, int64_t m, int64_t n);  // none: x NaN or inf
Rational DequantizeValue(const Case& c, int64_t m, int64_t n);
Rational RequantizeValue(const Case& c, int64_t m, int64_t n);
Rational LinearValue(const Case& c, int64_t m, int64_t n);
std::optional<Rational> RealValue(const Case& c, int64_t m, int64_t n);  // by op

// All outputs.
Tensor Quantize(const Case& c);
Tensor Dequantize(const Case& c);
Tensor Requantize(const Case& c);
Tensor Linear(const Case& c);

// min(max(value, lo), hi): where relu puts lo above hi the result is hi.
int32_t Clamp(const Integer& value, int64_t lo, int64_t hi);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_DEFINITION_H_
