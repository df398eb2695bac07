// SPDX-License-Identifier: Apache-2.0
// Three steps:
//   - s and z, by the rule of the case, from the finite values of x or of each row;
//   - q = clamp(RNE(x / s) + z);
//   - y = (sum_k (q_mk - z) * (w_nk - zw_n)) * s * sw_n + bias_n, rounded once.
//
// The rule itself defines how s and z follow from the values. The definition computes it with
// rationals and rounds where a step of the rule does; the fast form uses floats of the processor.
#include "oracles/exact/dynamic_linear.h"

#include <algorithm>
#include <cfloat>
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

namespace qualm::exact {
namespace {

// Below this scale ATen chooses this scale: a float16 has no full precision there. It then widens
// the range, to 0..b codes where one end is 0, and takes the zero point from the end that is nearer
// to 0. The other end gives the same zero point in every case, and widening by a factor the same as
// widening to b codes; so here the lower end alone is moved.
constexpr float kAtenLeastScale = 6.1e-5f;
constexpr int32_t kOnnxSteps = 255;
constexpr float kOnnxLeastScale = FLT_TRUE_MIN;

int32_t AtenSteps(bool reduce_range) { return reduce_range ? 127 : 255; }

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

Rational Single(const Rational& value) { return ToRational(RoundToFloat32(value)); }

// Rounded to float64, of normal size.
Rational Double(const Rational& value) {
  if (value == 0) return value;
  int exponent = static_cast<int>(msb(Integer(abs(numerator(value))))) -
                 static_cast<int>(msb(Integer(denominator(value))));
  if (abs(value) < PowerOfTwo(exponent)) --exponent;
  const Rational unit = PowerOfTwo(exponent - 52);
  return Rational(RoundHalfEven(value / unit)) * unit;
}

struct Range {
  Rational min = 0, max = 0;
};

Range RangeOfFinite(std::span<const float> values) {
  Range range;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    range.min = std::min(range.min, ToRational(value));
    range.max = std::max(range.max, ToRational(value));
  }
  return range;
}

ChosenQParams Aten(Range range, bool reduce_range) {
  const Rational least = ToRational(kAtenLeastScale);
  const int32_t steps = AtenSteps(reduce_range);
  Rational scale = Double(Double(range.max - range.min) / steps);
  const Rational single = Single(scale);
  if (single == 0 || std::isinf(RoundToFloat32(1 / single))) scale = Double(Rational(1, 10));
  if (scale < least) {
    range.min = Single(range.min * Single(least / Single(scale)));
    scale = least;
  }
  const Rational zero_point = -Double(range.min / scale);
  return {RoundToFloat32(scale),
          static_cast<int32_t>(RoundHalfEven(std::clamp<Rational>(zero_point, 0, steps)))};
}

ChosenQParams Onnx(const Range& range) {
  if (range.min == range.max) return {1.0f, 0};
  const float width = RoundToFloat32(range.max - range.min);
  if (std::isinf(width)) return {width, 0};
  const float scale = std::max(RoundToFloat32(ToRational(width) / kOnnxSteps), kOnnxLeastScale);
  const Rational zero_point = -Single(range.min / ToRational(scale));
  return {scale,
          static_cast<int32_t>(RoundHalfEven(std::clamp<Rational>(zero_point, 0, kOnnxSteps)))};
}

ChosenQParams Choose(const Case& c, const Range& range) {
  ChosenQParams chosen;
  switch (c.rule) {
    case QParamsRule::kObserver:
      chosen = FromRangeRational(c.observer, RoundToFloat32(range.min), RoundToFloat32(range.max));
      break;
    case QParamsRule::kAten: chosen = Aten(range, c.observer.reduce_range); break;
    case QParamsRule::kOnnx: chosen = Onnx(range); break;
  }
  chosen.scale = std::min(chosen.scale, FLT_MAX);
  return chosen;
}

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  const Group group = c.x_gran == Granularity::kTensor ? Group{0, c.M} : Group{m, 1};
  const ChosenQParams chosen = Choose(c, RangeOfFinite(ValuesOf(c, group)));
  const Tensor codes = EvaluateRational(QuantizeOf(c, m, 1, chosen));
  return RealValue(SumsCaseOf(c, codes, chosen), 0, n);
}

Tensor All(const Case& c) {
  Tensor y(DType::kF32, c.output_shape());
  for (const Group& group : GroupsOf(c)) {
    const ChosenQParams chosen = Choose(c, RangeOfFinite(ValuesOf(c, group)));
    const Tensor codes = EvaluateRational(QuantizeOf(c, group.first, group.count, chosen));
    const Tensor rows = EvaluateRational(SumsCaseOf(c, codes, chosen));
    std::ranges::copy(rows.as<float>(), y.as<float>().begin() + group.first * c.N);
  }
  return y;
}

}  // namespace definition
namespace fast {

// Not inlined: else the compiler may move arithmetic in front of NearestEnvironment.
[[gnu::noinline]] AtenChoice Aten(float min, float max, bool reduce_range) {
  const int32_t steps = AtenSteps(reduce_range);
  double scale = (static_cast<double>(max) - static_cast<double>(min)) / steps;
  const auto single = static_cast<float>(scale);
  if (std::isinf(1.0f / single)) scale = 0.1;
  if (scale < static_cast<double>(kAtenLeastScale)) {
    min *= kAtenLeastScale / static_cast<float>(scale);
    scale = static_cast<double>(kAtenLeastScale);
  }
  const double zero_point = -(static_cast<double>(min) / scale);
  return {scale, static_cast<int32_t>(std::nearbyint(std::clamp<double>(zero_point, 0, steps)))};
}

[[gnu::noinline]] ChosenQParams Choose(const Case& c, ObservedRange range) {
  ChosenQParams chosen;
  switch (c.rule) {
    case QParamsRule::kObserver: chosen = FromRange(c.observer, range.min, range.max); break;
    case QParamsRule::kAten: {
      const AtenChoice choice = Aten(range.min, range.max, c.observer.reduce_range);
      chosen = {static_cast<float>(choice.scale), choice.zero_point};
      break;
    }
    case QParamsRule::kOnnx: {
      chosen.scale = range.max == range.min
                         ? 1.0f
                         : std::max((range.max - range.min) / kOnnxSteps, kOnnxLeastScale);
      const float zero_point = std::clamp<float>(0.0f - range.min / chosen.scale, 0, kOnnxSteps);
      chosen.zero_point = static_cast<int32_t>(std::nearbyint(zero_point));
      break;
    }
  }
  chosen.scale = std::min(chosen.scale, FLT_MAX);
  return chosen;
}

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

AtenChoice AtenFromRange(float min, float max, bool reduce_range) {
  const NearestEnvironment environment;
  return fast::Aten(min, max, reduce_range);
}

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

ChosenQParams ChosenFor(const Case& c, ObservedRange range) {
  const NearestEnvironment environment;
  return fast::Choose(c, range);
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
