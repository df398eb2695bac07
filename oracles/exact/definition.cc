// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/definition.h"

#include "core/status.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/observer.h"

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
    case Op::kConv2d:
    case Op::kDepthwise: return ConvValue(c, m, n);
    case Op::kAdd: return AddValue(c, m, n);
    case Op::kMul: return MulValue(c, m, n);
    case Op::kMaxPool: return MaxPoolValue(c, m, n);
    case Op::kAvgPool:
    case Op::kGlobalAvgPool: return AvgPoolValue(c, m, n);
    case Op::kRescale: return RescaleValue(c, m, n);
    case Op::kConcat: return ConcatValue(c, m, n);
    case Op::kTable: return TableValue(c, m, n);
    case Op::kSoftmax: return SoftmaxValue(c, m, n);
    case Op::kChooseQParams: break;
  }
  QUALM_CHECK(!"unknown operation");
  return std::nullopt;
}

namespace {

Integer AccumulatorOf(const Case& c, int64_t m, int64_t n) {
  if (c.op == Op::kRequantize) return c.x.IntAt(m * c.N + n);
  return c.op == Op::kLinear ? LinearSum(c, m, n) : ConvSum(c, m, n);
}

}  // namespace

// u8, s8: clamp(RNE(value) + z); with a requantization mode that of its definition
// s32:    clamp(value), an integer
// f32:    value rounded once to float32, then max(0, .) under relu
Tensor EvaluateRational(const Case& c) {
  if (c.op == Op::kQuantize) return Quantize(c);
  if (c.op == Op::kTable) return Table(c);
  if (c.op == Op::kSoftmax) return Softmax(c);
  if (c.op == Op::kChooseQParams) return ChooseQParamsRational(c);
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      const int64_t index = m * c.N + n;
      if (c.requant != Requant::kExact) {
        const Requantized as = RequantizeAs(c, n, AccumulatorOf(c, m, n));
        y.SetInt(index, Clamp(as.code, LowerBound(c), c.out_max));
        continue;
      }
      const Rational value = *RealValue(c, m, n);
      switch (c.out_dtype) {
        case DType::kU8:
        case DType::kS8: {
          const Integer zero_point = c.out_q.zero_point_at(0);
          y.SetInt(index, Clamp(RoundHalfEven(value) + zero_point, LowerBound(c), c.out_max));
          break;
        }
        case DType::kS32: y.SetInt(index, Clamp(numerator(value), LowerBound(c), c.out_max)); break;
        case DType::kF32:
          y.as<float>()[static_cast<size_t>(index)] =
              c.relu && value < 0 ? 0.0f : RoundToFloat32(value);
          break;
        case DType::kU4:
        case DType::kS4: QUALM_CHECK(!"no operation has an output of 4 bits"); break;
      }
    }
  }
  return y;
}

}  // namespace qualm::exact
