// SPDX-License-Identifier: Apache-2.0
// Operands that are dequantized first and computed with in floating point, T: what people write by
// hand, and what compilers make of a model that says dequantize and quantize around each operator.
#ifndef QUALM_ORACLES_CONVENTIONS_DEQUANTIZED_H_
#define QUALM_ORACLES_CONVENTIONS_DEQUANTIZED_H_

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/case.h"
#include "core/status.h"
#include "oracles/conventions/steps.h"
#include "oracles/trace.h"

namespace qualm::conventions {

template <std::floating_point T>
T NumberOf(const Value& v) {
  return std::same_as<T, float> ? static_cast<T>(v.number) : static_cast<T>(v.wide);
}
template <std::floating_point T>
void SetNumber(Value& v, T number) {
  if constexpr (std::same_as<T, float>) {
    v.SetReal(number);
  } else {
    v.SetWide(number);
  }
}

template <std::floating_point T>
T Dequantized(int64_t code, int64_t zero_point, float scale) {
  return static_cast<T>(code - zero_point) * static_cast<T>(scale);
}

template <std::floating_point T>
std::string_view TypeName() {
  return std::same_as<T, float> ? "float32" : "float64";
}

// The sum of x[m] * w[n] of dequantized operands, one product after the other, and the bias.
template <std::floating_point T>
Value DequantizedSum(const Case& c, int64_t index, Trace* trace) {
  const int64_t m = index / c.N, n = index % c.N;
  T sum = 0;
  for (int64_t k = 0; k < c.K; ++k) {
    const T x = Dequantized<T>(c.x.IntAt(m * c.K + k), c.x_q.zero_point_at(0), c.x_q.scale_at(0));
    const T w = Dequantized<T>(c.w.IntAt(n * c.K + k), c.w_q.zero_point_at(n), c.w_q.scale_at(n));
    const T product = x * w;
    sum = sum + product;
  }
  if (c.bias) sum = sum + static_cast<T>((*c.bias)[static_cast<size_t>(n)]);
  Value value;
  SetNumber(value, sum);
  Note(trace, Stage::kAccumulate,
       "sum of " + std::to_string(c.K) + " products of dequantized numbers" +
           (c.bias ? ", + bias" : "") + ", in " + std::string(TypeName<T>()),
       ValueText(value), true);
  return value;
}

template <std::floating_point T>
T Combined(Combine combine, T a, T b) {
  switch (combine) {
    case Combine::kSum: return a + b;
    case Combine::kDifference: return a - b;
    case Combine::kProduct: return a * b;
    case Combine::kNone: break;
  }
  QUALM_CHECK(!"no two operands");
  return 0;
}

constexpr std::string_view ResultOf(Combine combine) {
  switch (combine) {
    case Combine::kSum: return "sum";
    case Combine::kDifference: return "difference";
    case Combine::kProduct: return "product";
    case Combine::kNone: break;
  }
  return "";
}

template <std::floating_point T>
Value DequantizedOperands(const Case& c, int64_t index, Trace* trace) {
  const Combine combine = RowOf(c.op).combine;
  const T a = Dequantized<T>(c.x.IntAt(index), c.x_q.zero_point_at(0), c.x_q.scale_at(0));
  const T b = Dequantized<T>(c.w.IntAt(index), c.w_q.zero_point_at(0), c.w_q.scale_at(0));
  Value value;
  SetNumber<T>(value, Combined(combine, a, b));
  Note(trace, Stage::kAccumulate,
       std::string(ResultOf(combine)) + " of the dequantized operands, in " +
           std::string(TypeName<T>()),
       ValueText(value), true);
  return value;
}

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_DEQUANTIZED_H_
