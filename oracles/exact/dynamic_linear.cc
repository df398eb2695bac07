// SPDX-License-Identifier: Apache-2.0
// Three steps:
//   - s and z, by the rule of the case, from the finite values of x or of each row;
//   - q = clamp(RNE(x / s) + z);
//   - y = (sum_k (q_mk - z) * (w_nk - zw_n)) * s * sw_n + bias_n, rounded once.
#include "oracles/exact/dynamic_linear.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/float_text.h"
#include "core/status.h"
#include "oracles/exact/arithmetic/rational.h"
#include "oracles/exact/definition.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/meanings.h"
#include "oracles/exact/nearest_environment.h"
#include "oracles/exact/qparams_rule.h"

namespace qualm::exact {
namespace {

// Rows that share a scale and zero point.
struct Group {
  int64_t first = 0, count = 0;
};
std::vector<Group> GroupsOf(const Case& c) {
  if (c.x_gran == Granularity::kTensor) return {{0, c.M}};
  std::vector<Group> groups;
  for (int64_t m = 0; m < c.M; ++m) groups.push_back({m, 1});
  return groups;
}

std::span<const float> ValuesOf(const Case& c, const Group& group) {
  return c.x.as<float>().subspan(static_cast<size_t>(group.first * c.K),
                                 static_cast<size_t>(group.count * c.K));
}

namespace definition {

ObservedRange RangeOfFinite(std::span<const float> values) {
  Rational min = 0, max = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    min = std::min(min, ToRational(value));
    max = std::max(max, ToRational(value));
  }
  return {RoundToFloat32(min), RoundToFloat32(max)};
}

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  const Group group = c.x_gran == Granularity::kTensor ? Group{0, c.M} : Group{m, 1};
  const ChosenQParams chosen = ChosenForRational(c, RangeOfFinite(ValuesOf(c, group)));
  const Tensor codes = EvaluateRational(QuantizeOf(c, m, 1, chosen));
  return RealValue(SumsCaseOf(c, codes, chosen), 0, n);
}

Tensor All(const Case& c) {
  Tensor y(DType::kF32, c.output_shape());
  for (const Group& group : GroupsOf(c)) {
    const ChosenQParams chosen = ChosenForRational(c, RangeOfFinite(ValuesOf(c, group)));
    const Tensor codes = EvaluateRational(QuantizeOf(c, group.first, group.count, chosen));
    const Tensor rows = EvaluateRational(SumsCaseOf(c, codes, chosen));
    std::ranges::copy(rows.as<float>(), y.as<float>().begin() + group.first * c.N);
  }
  return y;
}

}  // namespace definition
namespace fast {

void Sums(const Case& c, Integers* integers) {
  for (const Group& group : GroupsOf(c)) {
    const ChosenQParams chosen = ChosenFor(c, FiniteRange(ValuesOf(c, group)));
    const Tensor codes = Evaluate(QuantizeOf(c, group.first, group.count, chosen));
    const std::vector<__int128> sums = IntegersOf(SumsCaseOf(c, codes, chosen)).values;
    integers->values.insert(integers->values.end(), sums.begin(), sums.end());
    integers->scales.insert(integers->scales.end(), static_cast<size_t>(group.count), chosen.scale);
  }
}

// The line of a sum in units of the scale of x.
Line WithoutScaleOfX(const Case& c, int64_t n) { return Scale(c.w_q.scale_at(n)); }

void WithScaleOfX(const Case& c, const Integers& integers, int64_t m, int64_t n, Scaled* scaled) {
  scaled->line = Scale(integers.scales[static_cast<size_t>(m)], c.w_q.scale_at(n));
  if (c.bias) scaled->line = Plus(scaled->line, (*c.bias)[static_cast<size_t>(n)]);
}

}  // namespace fast
namespace told {

struct Row {
  ObservedRange range;
  ChosenQParams chosen;
  Case quantize, linear;  // of this row alone
};
Row RowOfOutput(const Case& c, int64_t index) {
  const int64_t m = index / c.N;
  const bool shared = c.x_gran == Granularity::kTensor;
  Row row;
  row.range = FiniteRange(ValuesOf(c, shared ? Group{0, c.M} : Group{m, 1}));
  row.chosen = ChosenFor(c, row.range);
  row.quantize = QuantizeOf(c, m, 1, row.chosen);
  row.linear = SumsCaseOf(c, EvaluateRational(row.quantize), row.chosen);
  return row;
}

Trace Steps(const Case& c, int64_t index) {
  const Row row = RowOfOutput(c, index);
  const std::string rule(Name(c.rule));
  Trace trace;
  const auto step = [&](Stage stage, const std::string& text, const std::string& value) {
    trace.push_back({stage, text, value, false});
  };
  const std::string whose = c.x_gran == Granularity::kTensor ? "x" : "the row of x";
  // In a batch that shares one scale a row depends on those beside it.
  const ObservedRange own = FiniteRange(ValuesOf(c, {index / c.N, 1}));
  const bool of_others = own.min != row.range.min || own.max != row.range.max;
  step(Stage::kAccumulate,
       "the finite values of " + whose + ", with 0, span [" + ShortestDecimal(row.range.min) +
           ", " + ShortestDecimal(row.range.max) + "]" +
           (of_others ? ", those of this row [" + ShortestDecimal(own.min) + ", " +
                            ShortestDecimal(own.max) + "]: other rows of the batch change it"
                      : ""),
       FloatText(row.range.max));
  step(Stage::kScale,
       "the rule " + rule + " chooses the scale " + ShortestDecimal(row.chosen.scale),
       FloatText(row.chosen.scale));
  const std::string zero_point = std::to_string(row.chosen.zero_point);
  step(Stage::kZeroPoint, "and the zero point " + zero_point, zero_point);
  for (int64_t k = 0; k < std::min<int64_t>(c.K, 4); ++k) {
    const std::string code = std::to_string(row.linear.x.IntAt(k));
    step(Stage::kRound, "x " + ShortestDecimal(row.quantize.x.FloatAt(k)) + " has the code " + code,
         code);
  }
  for (TraceStep& after : Derive(row.linear, index % c.N)) trace.push_back(std::move(after));
  return trace;
}

}  // namespace told
}  // namespace

ObservedRange FiniteRange(std::span<const float> values) {
  ObservedRange range;
  const NearestEnvironment environment;  // denormals are told from 0
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    range.min = std::min(range.min, value);
    range.max = std::max(range.max, value);
  }
  return range;
}

Case QuantizeOf(const Case& c, int64_t first, int64_t count, const ChosenQParams& chosen) {
  Case quantize =
      CaseOver(Op::kQuantize, Tensor::Of<float>({count, c.K}, ValuesOf(c, {first, count})),
               c.observer.dtype);
  quantize.out_q = {{chosen.scale}, {chosen.zero_point}};
  return quantize;
}

Case SumsCaseOf(const Case& c, Tensor codes, const ChosenQParams& chosen) {
  Case linear;
  linear.op = Op::kLinear;
  linear.M = codes.shape()[0];
  linear.N = c.N;
  linear.K = c.K;
  linear.x = std::move(codes);
  linear.w = c.w;
  linear.x_q = {{chosen.scale}, {chosen.zero_point}};
  linear.w_q = c.w_q;
  linear.per_channel = c.per_channel;
  linear.w_block = c.w_block;
  linear.bias = c.bias;
  linear.out_dtype = c.out_dtype;
  linear.out_min = c.out_min;
  linear.out_max = c.out_max;
  linear.relu = c.relu;
  return linear;
}

extern constexpr Meaning kDynamicLinear{
    .op = Op::kDynamicLinear,
    .definition = {.value = definition::Value, .outputs = definition::All},
    .fast = {.integers = fast::Sums, .line = fast::WithoutScaleOfX, .scaled = fast::WithScaleOfX},
    .told = {.steps = told::Steps}};

}  // namespace qualm::exact
