// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/evaluate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/status.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {
namespace {

Line LineOf(const Case& c, int64_t n) {
  const auto channel = static_cast<size_t>(n);
  switch (c.op) {
    case Op::kQuantize:  // the gain exponent is that of each x
      return Over(Line(), c.out_q.scale_at(n));
    case Op::kDequantize: return Scale(c.x_q.scale_at(n));
    case Op::kRequantize:
      if (!c.multiplier.empty()) return Scale(c.multiplier[c.multiplier.size() == 1 ? 0 : channel]);
      return Over(Scale(c.x_q.scale_at(0), c.w_q.scale_at(n)), c.out_q.scale_at(0));
    case Op::kLinear: {
      Line line = Scale(c.x_q.scale_at(0), c.w_q.scale_at(n));
      if (c.bias) line = Plus(line, (*c.bias)[channel]);
      return c.out_dtype == DType::kF32 ? line : Over(line, c.out_q.scale_at(0));
    }
  }
  QUALM_CHECK(!"unknown operation");
  return {};
}

template <class T>
void TakeChannel(std::vector<T>* list, int64_t n) {
  if (list->size() > 1) *list = {(*list)[static_cast<size_t>(n)]};
}

Tensor TakeRow(const Tensor& tensor, int64_t row, int64_t length) {
  Tensor taken(tensor.dtype(), {1, length});
  const size_t bytes = static_cast<size_t>(length) * SizeOf(tensor.dtype());
  const auto source = tensor.bytes().subspan(static_cast<size_t>(row) * bytes, bytes);
  std::copy(source.begin(), source.end(), taken.bytes().begin());
  return taken;
}

}  // namespace

Outputs::Outputs(const Case& c)
    : Outputs(c, c.op == Op::kLinear ? CorrectedSums(c) : std::vector<__int128>{}) {}

Outputs::Outputs(const Case& c, std::vector<__int128> sums) : c_(c), sums_(std::move(sums)) {
  const bool codes = IsCode(c.out_dtype);
  for (int64_t n = 0; n < c.N; ++n) {
    if (c.out_dtype != DType::kS32) lines_.push_back(LineOf(c, n));
    lo_.push_back(LowerBound(c, n));
    zero_.push_back(codes ? c.out_q.zero_point_at(n) : 0);
  }
}

__int128 Outputs::IntegerAt(int64_t m, int64_t n) const {
  const int64_t index = m * c_.N + n;
  if (c_.op == Op::kLinear) return sums_[static_cast<size_t>(index)];
  const int64_t x = c_.x.IntAt(index);
  return c_.op == Op::kDequantize ? x - c_.x_q.zero_point_at(n) : x;
}

Outputs::Code Outputs::CodeAt(int64_t m, int64_t n) const {
  const auto channel = static_cast<size_t>(n);
  Code code;
  code.lo = lo_[channel];
  if (c_.out_dtype == DType::kS32) {
    code.value = IntegerAt(m, n);
    return code;
  }
  Rounded rounded;
  if (c_.op == Op::kQuantize) {
    const float x = c_.x.FloatAt(m * c_.N + n);
    if (std::isinf(x)) {
      rounded.integer = std::signbit(x) ? -kFar : kFar;
    } else if (!std::isnan(x)) {  // NaN: real 0, without a distance
      const Dyadic dyadic = Decode(x);
      Line line = lines_[channel];
      line.gain_exponent = dyadic.exponent;
      rounded = Round(line, dyadic.mantissa);
    }
  } else {
    rounded = Round(lines_[channel], IntegerAt(m, n));
  }
  code.value = rounded.integer + zero_[channel];
  code.tie_distance = rounded.tie_distance;
  return code;
}

float Outputs::UnclampedFloatAt(int64_t m, int64_t n) const {
  return RoundToFloat(lines_[static_cast<size_t>(n)], IntegerAt(m, n));
}

float Outputs::FloatAt(int64_t m, int64_t n) const {
  const float value = UnclampedFloatAt(m, n);
  // By the sign bit: a comparison would let a negative denormal through under DAZ.
  return c_.relu && std::signbit(value) ? 0.0f : value;
}

Case OneOutput(const Case& c, int64_t index) {
  QUALM_CHECK_LE(0, index);
  QUALM_CHECK_LT(index, c.M * c.N);
  const int64_t n = index % c.N;
  Case one;
  one.op = c.op;
  one.M = 1;
  one.N = 1;
  one.K = c.K;
  if (c.op == Op::kLinear) {
    one.x = TakeRow(c.x, index / c.N, c.K);
    one.w = TakeRow(c.w, n, c.K);
  } else {
    one.x = TakeRow(c.x, index, 1);
  }
  one.x_q = c.x_q;
  one.w_q = c.w_q;
  one.out_q = c.out_q;
  one.per_channel = c.per_channel;
  one.multiplier = c.multiplier;
  one.bias = c.bias;
  one.bias_i32 = c.bias_i32;
  // Lists of one entry belong to all channels, longer ones have one entry per channel.
  for (QParams* q : {&one.x_q, &one.w_q, &one.out_q}) {
    TakeChannel(&q->scale, n);
    TakeChannel(&q->zero_point, n);
  }
  TakeChannel(&one.multiplier, n);
  if (one.bias) TakeChannel(&*one.bias, n);
  if (one.bias_i32) TakeChannel(&*one.bias_i32, n);
  one.out_dtype = c.out_dtype;
  one.out_min = c.out_min;
  one.out_max = c.out_max;
  one.relu = c.relu;
  one.requant = c.requant;
  return one;
}

namespace {

Tensor Clamped(const Case& c, const Outputs& outputs) {
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      const int64_t index = m * c.N + n;
      if (c.out_dtype == DType::kF32) {
        y.as<float>()[static_cast<size_t>(index)] = outputs.FloatAt(m, n);
        continue;
      }
      const Outputs::Code code = outputs.CodeAt(m, n);
      const __int128 value = std::max<__int128>(code.value, code.lo);
      y.SetInt(index, static_cast<int32_t>(std::min<__int128>(value, c.out_max)));
    }
  }
  return y;
}

}  // namespace

Tensor Evaluate(const Case& c) { return Clamped(c, Outputs(c)); }

Tensor EvaluateFromSums(const Case& c, std::span<const __int128> sums) {
  QUALM_CHECK(c.op == Op::kLinear);
  QUALM_CHECK_EQ(sums.size(), static_cast<size_t>(c.M * c.N));
  return Clamped(c, Outputs(c, {sums.begin(), sums.end()}));
}

std::optional<double> TieDistance(const Case& c, int64_t index) {
  if (!IsCode(c.out_dtype)) return std::nullopt;
  const Case one = OneOutput(c, index);
  return Outputs(one).CodeAt(0, 0).tie_distance;
}

}  // namespace qualm::exact
