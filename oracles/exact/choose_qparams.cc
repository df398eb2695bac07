// SPDX-License-Identifier: Apache-2.0
// The definition is in observer_rational.cc, the fast form in observer.cc. Here a scale or a zero
// point is told step by step. Every value is a float32 that a step has rounded. Codes are
// those of a quantize by these numbers, elements of MX those of a cast: their meanings are in
// quantize.cc and cast.cc.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/float_format.h"
#include "core/float_text.h"
#include "oracles/exact/arithmetic/rational.h"
#include "oracles/exact/meanings.h"
#include "oracles/exact/observer.h"

namespace qualm::exact {
namespace {

constexpr int64_t kEnds = 4;  // batches told at either end of a long list

std::string RangeText(const ObservedRange& range) {
  return "[" + ShortestDecimal(range.min) + ", " + ShortestDecimal(range.max) + "]";
}

// Of a quotient that is rounded.
std::string TieText(float quotient) {
  const bool tie = std::abs(quotient - std::trunc(quotient)) == 0.5f;
  return tie ? ", a tie, exactly half way, goes to the even one" : "";
}

// How a rule of MX chooses the scale for the largest magnitude of a block.
std::string MxScaleText(const Case& c, float magnitude) {
  const DType element = c.observer.dtype;
  const double largest = DecodeFloat(element, LargestCode(element));
  const std::string a = ShortestDecimal(magnitude),
                    v = ShortestDecimal(static_cast<float>(largest));
  const std::string highest = std::to_string(std::ilogb(largest));
  const std::string rule = "the rule " + std::string(Name(c.rule)) + ": ";
  if (magnitude == 0) return rule + "the least scale, where all values are 0,";
  switch (c.rule) {
    case QParamsRule::kMxFloor: return rule + "2^(floor(log2 " + a + ") - " + highest + ")";
    case QParamsRule::kMxCeil: return rule + "2^(ceil(log2 " + a + ") - " + highest + ")";
    case QParamsRule::kMxEven:
      return rule + "2^(floor(log2 r) - " + highest + "), r = " + a + " rounded to " +
             std::to_string(InfoOf(element).floating.fraction_bits + 1) + " significant bits,";
    case QParamsRule::kMxRceil:
      return rule + "the least power of two that is " + a + " / " + v + " at least";
    default: return rule + "the power of two that is nearest to " + a + " / " + v;
  }
}

// How a rule that is not the observers' chooses the scale.
std::string ScaleText(const Case& c, const ObservedRange& range) {
  if (IsMx(c.rule)) return MxScaleText(c, std::max(-range.min, range.max));
  const std::string width =
      "(" + ShortestDecimal(range.max) + " - " + ShortestDecimal(range.min) + ") / ";
  if (c.rule == QParamsRule::kAten) {
    return "the rule aten: " + width + (c.observer.reduce_range ? "127" : "255") +
           " in float64, 0.1 where its reciprocal is infinite, but not less than 6.1e-05";
  }
  if (range.min == range.max) return "the rule onnx: 1, where all values are 0,";
  return "the rule onnx: " + width + "255, but not 0";
}

// The case with its first `count` batches only.
Case Batches(const Case& c, int64_t count) {
  Case some = ProblemOf(c);
  const int64_t size = c.M * c.N;
  some.x = Tensor::Of<float>({count, c.M, c.N},
                             c.x.as<float>().subspan(0, static_cast<size_t>(count * size)));
  return some;
}

// Column `m` of the answer: its scale or its zero point, which is `index` then.
Trace StepsOfChoice(const Case& c, const Tensor& y, int64_t m, int64_t index) {
  const Observer& o = c.observer;
  const int64_t columns = y.shape()[1];
  const float scale = y.FloatAt(m);
  Trace trace;
  const auto step = [&](Stage stage, std::string text, float value) {
    trace.push_back({stage, std::move(text), FloatText(value), false});
  };

  const int64_t batches = c.x.shape()[0];
  ObservedRange range;
  for (int64_t b = 0; b < batches; ++b) {
    if (b >= kEnds && b < batches - kEnds) continue;
    const auto values = observer::Values(c, b, m);
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    range = ObservedRanges(Batches(c, b + 1))[static_cast<size_t>(m)];
    std::string text = "batch " + std::to_string(b) + " spans " + RangeText({*low, *high});
    if (b != 0 || o.kind == Observer::Kind::kHistogram) {
      text += o.kind == Observer::Kind::kMinMax          ? ", with those before "
              : o.kind == Observer::Kind::kMovingAverage ? ", the moving average is "
                                                         : ", the histogram ";
      text += RangeText(range);
    }
    step(Stage::kAccumulate, std::move(text), o.symmetric ? range.max : range.min);
  }
  if (o.kind == Observer::Kind::kHistogram) {
    range = SearchedRange(c);
    step(Stage::kAccumulate, "the search for the smallest error leaves " + RangeText(range),
         o.symmetric ? range.max : range.min);
  }
  range = WithZero(range);
  if (c.rule != QParamsRule::kObserver) {
    step(Stage::kScale, ScaleText(c, range) + " = " + ShortestDecimal(scale), scale);
    if (index < columns) return trace;
    if (IsMx(c.rule)) {
      step(Stage::kZeroPoint, "MX has no zero point: 0", 0);
      return trace;
    }
    const float quotient = 0 - range.min / scale;
    const bool by_onnx = c.rule == QParamsRule::kOnnx;
    step(Stage::kZeroPoint,
         "round(0 - min / scale" +
             (by_onnx ? " = " + ShortestDecimal(quotient) + TieText(quotient) : "") +
             "), within the codes, = " + std::to_string(static_cast<int32_t>(y.FloatAt(index))),
         y.FloatAt(index));
    return trace;
  }
  const CodeRange codes = observer::Codes(o);
  const std::string between =
      "[" + std::to_string(codes.min) + ", " + std::to_string(codes.max) + "]";
  const std::string reduced = o.reduce_range ? " (reduced)" : "";
  const std::string floor =
      scale == observer::kEps ? ", but not less than " + ShortestDecimal(observer::kEps) : "";
  if (o.symmetric) {
    step(Stage::kScale,
         "larger of -min and max, over half of the codes " + between + reduced + ": max(" +
             ShortestDecimal(0 - range.min) + ", " + ShortestDecimal(range.max) + ") / " +
             ShortestDecimal(static_cast<float>(codes.max - codes.min) / 2) + floor + " = " +
             ShortestDecimal(scale),
         scale);
  } else {
    step(Stage::kScale,
         "max - min with 0 between them, over the codes " + between + reduced + ": (" +
             ShortestDecimal(range.max) + " - " + ShortestDecimal(range.min) + ") / " +
             std::to_string(codes.max - codes.min) + floor + " = " + ShortestDecimal(scale),
         scale);
  }
  if (index < columns) return trace;
  const float zero_point = y.FloatAt(index);
  const std::string code = std::to_string(static_cast<int32_t>(zero_point));
  const float quotient = range.min / scale;
  const std::string tie = TieText(quotient);
  step(Stage::kZeroPoint,
       o.symmetric
           ? "the zero point of symmetric quantization is " + code
           : "lowest code - round(min / scale), within the codes: " + std::to_string(codes.min) +
                 " - round(" + ShortestDecimal(range.min) + " / " + ShortestDecimal(scale) + " = " +
                 ShortestDecimal(quotient) + ")" + (tie.empty() ? "" : tie + ",") + " = " + code,
       zero_point);
  return trace;
}

Trace Steps(const Case& c, int64_t index) {
  const Tensor chosen = ChooseQParams(c);
  const int64_t columns = chosen.shape()[1];
  if (index < chosen.size()) return StepsOfChoice(c, chosen, index % columns, index);
  const int64_t at = index - chosen.size();
  const int64_t m = ColumnOfValue(c, at);
  Trace trace = StepsOfChoice(c, chosen, m, IsMx(c.rule) ? m : columns + m);
  for (TraceStep& step : Derive(ExactCodesCaseOf(c, chosen), at)) trace.push_back(std::move(step));
  trace.back().value = FloatText(std::stof(trace.back().value));  // the answer is of float32
  return trace;
}

// The value of a scale or zero point is the result of its steps; there is no other real value.
std::string Value(const Case& c, int64_t index) {
  const Tensor chosen = ChooseQParams(c);
  if (index >= chosen.size())
    return RealValueText(ExactCodesCaseOf(c, chosen), index - chosen.size());
  const float y = chosen.FloatAt(index);
  return std::isinf(y) ? FloatText(y) : ToText(ToRational(y));
}

Tensor All(const Case& c) {
  const Tensor chosen = ChooseQParamsRational(c);
  if (!c.codes) return chosen;
  return WithCodes(c, chosen, EvaluateRational(ExactCodesCaseOf(c, chosen)));
}

Tensor AllFast(const Case& c) {
  const Tensor chosen = ChooseQParams(c);
  if (!c.codes) return chosen;
  return WithCodes(c, chosen, Evaluate(ExactCodesCaseOf(c, chosen)));
}

}  // namespace

Case CodesCaseOf(const Case& c, const Tensor& chosen) {
  const auto numbers = chosen.as<float>();
  const auto count = static_cast<size_t>(ChosenCount(c));
  const int64_t batches = c.x.shape()[0], rows = batches * c.M;
  Case codes = CaseOver(IsMx(c.rule) ? Op::kCast : Op::kQuantize,
                        Tensor::Of<float>({rows, c.N}, c.x.as<float>()), c.observer.dtype);
  codes.out_q = {{}, {}};
  // A choice for each row is one for each block that is a row.
  const int64_t choices = c.per_channel ? rows : 1;
  if (c.per_channel) codes.x_block = static_cast<int32_t>(c.N);
  for (int64_t i = 0; i < choices; ++i) {
    const size_t m = static_cast<size_t>(i) % count;
    codes.out_q.scale.push_back(numbers[m]);
    codes.out_q.zero_point.push_back(static_cast<int32_t>(numbers[count + m]));
  }
  if (!IsMx(c.rule)) return codes;
  codes.x_q = {std::vector<float>(static_cast<size_t>(choices), 1.0f), codes.out_q.zero_point};
  codes.overflow = FloatOverflow::kSaturate;
  codes.rounding = c.rounding;
  return codes;
}

Case ExactCodesCaseOf(const Case& c, const Tensor& chosen) {
  Case quantize = CodesCaseOf(c, chosen);
  const auto values = quantize.x.as<float>();
  const size_t each = values.size() / quantize.out_q.scale.size();
  for (size_t i = 0; i < quantize.out_q.scale.size(); ++i) {
    if (std::isfinite(quantize.out_q.scale[i])) continue;
    quantize.out_q.scale[i] = 1;
    std::ranges::fill(values.subspan(i * each, each), 0.0f);
  }
  return quantize;
}

Tensor WithCodes(const Case& c, const Tensor& chosen, const Tensor& codes) {
  Tensor y(DType::kF32, c.output_shape());
  y.CopyFrom(chosen, 0, chosen.size(), 0);
  const auto behind = y.as<float>().subspan(static_cast<size_t>(chosen.size()));
  for (size_t i = 0; i < behind.size(); ++i)
    behind[i] = static_cast<float>(codes.ValueAt(static_cast<int64_t>(i)));
  return y;
}

extern constexpr Meaning kChooseQParams{.op = Op::kChooseQParams,
                                        .definition = {.outputs = All},
                                        .fast = {.outputs = AllFast},
                                        .told = {.steps = Steps, .value = Value}};

}  // namespace qualm::exact
