// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/told.h"

#include <cmath>
#include <optional>
#include <utility>

#include "core/float_text.h"
#include "core/slice.h"
#include "oracles/exact/definition.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/meanings.h"

namespace qualm::exact {

std::string Short(float value) { return ApproximateText(ToRational(value)); }

std::string Readable(const Rational& value) {
  return denominator(value) == 1 && abs(numerator(value)) < Integer(1) << 64
             ? ToText(value)
             : ApproximateText(value);
}

std::string Parenthesized(const Rational& value) {
  return value < 0 ? "(" + ToText(value) + ")" : ToText(value);
}

std::string ScalesText(const Case& c) {
  return Short(c.x_q.scale_at(0)) + " * " + Short(c.w_q.scale_at(0)) + " / " +
         Short(c.out_q.scale_at(0));
}

void AppendTerm(std::string* list, int64_t i, int64_t count, const std::string& between,
                const std::string& term) {
  constexpr int64_t kEnds = 4;
  if (i < kEnds || i >= count - kEnds) {
    *list += (i != 0 ? between : "") + term;
  } else if (i == kEnds) {
    *list += between + "... (" + std::to_string(count - 2 * kEnds) + " more)";
  }
}

void Teller::Step(Stage stage, std::string text, std::string value) {
  trace.push_back({stage, std::move(text), std::move(value), false});
}

void Teller::Step(Stage stage, const std::string& text, const Rational& value) {
  Step(stage, text + " = " + Readable(value), ToText(value));
}

Rational Teller::Difference(const std::string& of, const Tensor& codes, const QParams& q) {
  const int32_t code = codes.IntAt(0);
  const Rational difference{Integer(Integer(code) - q.zero_point_at(0))};
  Step(Stage::kOffset,
       of + "subtract the zero point: " + std::to_string(code) + " - " +
           Parenthesized(q.zero_point_at(0)),
       difference);
  return difference;
}

void Teller::RescaleOperand(const std::string& of, const std::string& scale, const Tensor& codes,
                            const QParams& q) {
  const Rational difference = Difference(of, codes, q);
  const Rational value = *RealValue(c, 0, 0);
  Step(Stage::kScale,
       "multiply by " + scale + "/out_scale: " + Readable(difference) + " * " +
           Short(q.scale_at(0)) + " / " + Short(c.out_q.scale_at(0)),
       value);
  RoundToCode(value);
}

void Teller::RoundToCode(const Rational& value) {
  const Integer rounded = RoundHalfEven(value);
  std::string text = "round to the nearest integer: " + Readable(value);
  if (denominator(value) == 2) text += ", exactly half way, goes to the even one";
  Step(Stage::kRound, text, Rational(rounded));
  AddZeroPoint(rounded);
}

void Teller::AddZeroPoint(const Integer& rounded) {
  const int32_t z = c.out_q.zero_point_at(0);
  const Integer shifted = rounded + z;
  Step(Stage::kZeroPoint, "add the zero point: " + rounded.str() + " + " + std::to_string(z),
       Rational(shifted));
  ClampCode(shifted);
}

void Teller::RoundAs(const Integer& accumulator) {
  Requantized as = RequantizeAs(c, 0, accumulator);
  for (TraceStep& step : as.steps) trace.push_back(std::move(step));
  ClampCode(as.code);
}

void Teller::RoundToReal(const Rational& value) {
  const float rounded = RoundToFloat32(value);
  const bool exact = std::isfinite(rounded) && ToRational(rounded) == value;
  Step(Stage::kRound,
       "round once to float32: " + ApproximateText(value) + " gives " +
           (std::isfinite(rounded) ? Short(rounded) : FloatText(rounded)) +
           (exact ? ", which is exact" : ""),
       FloatText(rounded));
  if (c.relu) {
    const float y = value < 0 ? 0.0f : rounded;
    Step(Stage::kClamp, "relu: the larger of 0 and it", FloatText(y));
  }
}

void Teller::ClampCode(const Integer& value) {
  const int64_t lo = LowerBound(c);
  const int32_t code = Clamp(value, lo, c.out_max);
  Step(Stage::kClamp,
       "clamp " + value.str() + " to [" + std::to_string(lo) + ", " + std::to_string(c.out_max) +
           "]" + (c.relu ? " (relu)" : "") +
           (value == code ? ": inside" : ": " + std::to_string(code)),
       std::to_string(code));
}

Trace Derive(const Case& c, int64_t index) { return MeaningOf(c.op).told.steps(c, index); }

std::string RealValueText(const Case& c, int64_t index) {
  const Meaning& meaning = MeaningOf(c.op);
  if (meaning.definition.value != nullptr) {
    const Case one = slice::OneOutput(c, index);
    if (const std::optional<Rational> value = meaning.definition.value(one, 0, 0)) {
      return ToText(*value);
    }
  }
  return meaning.told.value(c, index);
}

}  // namespace qualm::exact
