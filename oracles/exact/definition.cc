// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/definition.h"

#include "core/slice.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/meanings.h"

namespace qualm::exact {

int32_t Clamp(const Integer& value, int64_t lo, int64_t hi) {
  Integer result = value;
  if (result < lo) result = lo;
  if (result > hi) result = hi;
  return static_cast<int32_t>(result);
}

std::optional<Rational> RealValue(const Case& c, int64_t m, int64_t n) {
  return MeaningOf(c.op).definition.value(c, m, n);
}

Rational RealOperand(const Tensor& codes, const QParams& q, int64_t index) {
  const Integer code = codes.IntAt(index);
  return ToRational(q.scale_at(0)) * Rational(Integer(code - q.zero_point_at(0)));
}

// codes:  clamp(RNE(value) + z); with a requantization mode that of its definition
// s32:    clamp(value), an integer
// f32:    value rounded once to float32, then max(0, .) under relu
Tensor EvaluateRational(const Case& c) {
  if (HasElementBlocks(c)) return slice::InRowsOf(c, EvaluateRational(slice::BlocksAsChannels(c)));
  const Definition& definition = MeaningOf(c.op).definition;
  if (definition.outputs != nullptr) return definition.outputs(c);
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      const int64_t index = m * c.N + n;
      if (c.requant != Requant::kExact) {
        const Requantized as = RequantizeAs(c, n, definition.accumulator(c, m, n));
        y.SetInt(index, Clamp(as.code, LowerBound(c), c.out_max));
        continue;
      }
      const Rational value = *definition.value(c, m, n);
      if (IsCode(c.out_dtype)) {
        const Integer zero_point = c.out_q.zero_point_at(0);
        y.SetInt(index, Clamp(RoundHalfEven(value) + zero_point, LowerBound(c), c.out_max));
        continue;
      }
      switch (c.out_dtype) {
        case DType::kS32: y.SetInt(index, Clamp(numerator(value), LowerBound(c), c.out_max)); break;
        case DType::kF32:
          y.as<float>()[static_cast<size_t>(index)] =
              c.relu && value < 0 ? 0.0f : RoundToFloat32(value);
          break;
        default: QUALM_CHECK(!"no output of this type is a rounded integer"); break;
      }
    }
  }
  return y;
}

// Fractions and exponents end below the patterns that mean something else.
Rational LargestOf(const FloatFormat& f) {
  using Top = FloatFormat::Top;
  const int top = (1 << f.exponent_bits) - 1 - f.bias;  // the exponent of all ones
  const Rational full = 2 - PowerOfTwo(-f.fraction_bits);
  switch (f.top) {
    case Top::kIeee: return full * PowerOfTwo(top - 1);
    case Top::kAllOnes:
      if (f.fraction_bits == 0) return PowerOfTwo(top - 1);
      return (full - PowerOfTwo(-f.fraction_bits)) * PowerOfTwo(top);
    case Top::kMinusZero:
    case Top::kFinite: break;
  }
  return full * PowerOfTwo(top);
}

}  // namespace qualm::exact
