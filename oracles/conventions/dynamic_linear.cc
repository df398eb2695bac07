// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/dynamic_linear.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/float_text.h"
#include "core/slice.h"
#include "oracles/conventions/definition.h"
#include "oracles/exact/observer.h"

namespace qualm::conventions {
namespace {

// One case on its way through a library.
struct Stages {
  exact::AtenChoice choice;
  Case linear;
  Convention convention;  // of that linear
};

Stages StagesOf(const DynamicLinear& library, const Case& c) {
  Stages stages;
  stages.choice = library.choose(c, EndsOfX(c));
  const exact::ChosenQParams chosen{static_cast<float>(stages.choice.scale),
                                    stages.choice.zero_point};
  const Case quantize = exact::QuantizeOf(c, 0, c.M, chosen);
  stages.linear = exact::SumsCaseOf(c, library.quantize(stages.choice).run(quantize).y, chosen);
  stages.convention = library.linear(stages.choice);
  return stages;
}

Trace TraceOf(const DynamicLinear& library, const Case& c, int64_t index) {
  const Stages stages = StagesOf(library, c);
  const exact::ObservedRange range = EndsOfX(c);
  const std::string scale = FloatText(stages.linear.x_q.scale[0]);
  const std::string zero_point = std::to_string(stages.choice.zero_point);
  Trace trace;
  Note(&trace, Stage::kAccumulate,
       "x spans, with 0, [" + FloatText(range.min) + ", " + FloatText(range.max) + "]",
       FloatText(range.max), false);
  Note(&trace, Stage::kScale, "the scale is " + scale, scale, false);
  Note(&trace, Stage::kZeroPoint, "the zero point is " + zero_point, zero_point, false);
  const int64_t first = index / c.N * c.K;
  for (int64_t i = first; i < first + std::min<int64_t>(c.K, 4); ++i) {
    const std::string code = std::to_string(stages.linear.x.IntAt(i));
    Note(&trace, Stage::kRound, "x " + FloatText(c.x.FloatAt(i)) + " has the code " + code, code,
         false);
  }
  for (TraceStep& step : stages.convention.trace(stages.linear, index))
    trace.push_back(std::move(step));
  return trace;
}

std::string CannotRun(const DynamicLinear& library, const Case& c) {
  const CodeRange codes = RangeOf(c.w.dtype());
  return FirstReason({
      WeightsArePlain(c),
      Require(c.rule == library.rule, "the rule must be " + std::string(Name(library.rule))),
      Require(RowsShareQParams(c), "all rows share one scale and zero point"),
      Require(std::ranges::none_of(c.x.as<float>(), [](float x) { return std::isnan(x); }),
              "x must not hold NaN"),
      Require(std::ranges::all_of(c.w_q.zero_point,
                                  [&](int32_t z) { return z >= codes.min && z <= codes.max; }),
              "weight zero point must be a code of the weight type"),
      library.cannot_run(c),
  });
}

}  // namespace

exact::ObservedRange EndsOfX(const Case& c) {
  exact::ObservedRange range;
  for (const float x : c.x.as<float>()) {
    range.min = std::min(range.min, x);
    range.max = std::max(range.max, x);
  }
  return range;
}

Convention MakeDynamicLinear(DynamicLinear library) {
  Convention convention;
  convention.ops = {Op::kDynamicLinear};
  convention.satisfies = std::move(library.satisfies);
  convention.variations = std::move(library.variations);
  const auto shared = std::make_shared<const DynamicLinear>(std::move(library));
  convention.cannot_run = [shared](const Case& c) { return CannotRun(*shared, c); };
  convention.run = [shared](const Case& c) {
    const Stages stages = StagesOf(*shared, c);
    return ConventionOutput{stages.convention.run(stages.linear).y, std::nullopt};
  };
  convention.trace = [shared](const Case& c, int64_t index) { return TraceOf(*shared, c, index); };
  return convention;
}

// A row is a case of its own, all of which shares a scale.
Convention RowByRow(Convention row) {
  const auto shared = std::make_shared<const Convention>(row);
  const auto row_of = [](const Case& c, int64_t m) {
    Case one = slice::Rows(c, {{m}});
    one.x_gran = Granularity::kTensor;
    return one;
  };
  row.cannot_run = [=](const Case& c) {
    if (RowsShareQParams(c)) return shared->cannot_run(c);
    for (int64_t m = 0; m < c.M; ++m) {
      if (std::string reason = shared->cannot_run(row_of(c, m)); !reason.empty()) return reason;
    }
    return std::string();
  };
  row.run = [=](const Case& c) {
    if (RowsShareQParams(c)) return shared->run(c);
    Tensor y(DType::kF32, c.output_shape());
    for (int64_t m = 0; m < c.M; ++m)
      std::ranges::copy(shared->run(row_of(c, m)).y.as<float>(), y.as<float>().begin() + m * c.N);
    return ConventionOutput{std::move(y), std::nullopt};
  };
  row.trace = [=](const Case& c, int64_t index) {
    if (RowsShareQParams(c)) return shared->trace(c, index);
    return shared->trace(row_of(c, index / c.N), index % c.N);
  };
  return row;
}

Convention WithCodesOf(Convention choosing, Convention quantize) {
  const auto chosen = std::make_shared<const Convention>(choosing);
  const auto codes = std::make_shared<const Convention>(std::move(quantize));
  const auto without = [](Case c) {
    c.codes = false;
    c.expected.reset();
    c.observed.reset();
    return c;
  };
  Convention both = std::move(choosing);
  both.cannot_run = [=](const Case& c) {
    const std::string why = chosen->cannot_run(without(c));
    if (!c.codes || !why.empty()) return why;
    if (c.per_channel) return std::string("codes of one scale and zero point only");
    return codes->cannot_run(exact::CodesCaseOf(c, chosen->run(without(c)).y));
  };
  both.run = [=](const Case& c) {
    Tensor y = chosen->run(without(c)).y;
    if (c.codes) y = exact::WithCodes(c, y, codes->run(exact::CodesCaseOf(c, y)).y);
    return ConventionOutput{std::move(y), std::nullopt};
  };
  both.trace = [=](const Case& c, int64_t index) {
    const Case plain = without(c);
    const int64_t numbers = 2 * ChosenCount(c);
    Trace trace = chosen->trace(plain, std::min(index, numbers - 1));
    if (index < numbers) return trace;
    const Case one = exact::CodesCaseOf(c, chosen->run(plain).y);
    for (TraceStep& step : codes->trace(one, index - numbers)) trace.push_back(std::move(step));
    return trace;
  };
  both.satisfies.emplace_back("codes_are_near");
  return both;
}

}  // namespace qualm::conventions
