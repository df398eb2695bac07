// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/definition.h"

#include "core/status.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {

int32_t Clamp(const Integer& value, int64_t lo, int64_t hi) {
  Integer result = value;
  if (result < lo) result = lo;
  if (result > hi) result = hi;
  return static_cast<int32_t>(result);
}

std::optional<Rational> RealValue(const Case& c, int64_t m, int64_t n) {
  switch (c.op) {
    case Op::kQuantize: return QuantizeValue(c, m, n);
    case Op::kDequantize: return DequantizeValue(c, m, n);
    case Op::kRequantize: return RequantizeValue(c, m, n);
    case Op::kLinear: return LinearValue(c, m, n);
  }
  QUALM_CHECK(!"unknown operation");
  return std::nullopt;
}

Tensor EvaluateRational(const Case& c) {
  switch (c.op) {
    case Op::kQuantize: return Quantize(c);
    case Op::kDequantize: return Dequantize(c);
    case Op::kRequantize: return Requantize(c);
    case Op::kLinear: return Linear(c);
  }
  QUALM_CHECK(!"unknown operation");
  return Tensor();
}

}  // namespace qualm::exact
