// SPDX-License-Identifier: Apache-2.0
// The definition told step by step, with its numbers.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/float_text.h"
#include "core/status.h"
#include "oracles/exact/definition.h"
#include "oracles/exact/evaluate.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {
namespace {

// A float32 as people read it; the exact value of a step stands in TraceStep::value.
std::string Short(float value) { return ApproximateText(ToRational(value)); }

// Derivation of the only output of a case with M = N = 1.
class Teller {
 public:
  explicit Teller(const Case& c) : c_(c) {}

  Trace Tell() {
    switch (c_.op) {
      case Op::kQuantize: Quantize(); break;
      case Op::kDequantize: Dequantize(); break;
      case Op::kRequantize: Requantize(); break;
      case Op::kLinear: Linear(); break;
    }
    return std::move(trace_);
  }

 private:
  void Step(Stage stage, std::string text, std::string value) {
    trace_.push_back({stage, std::move(text), std::move(value), false});
  }
  void Step(Stage stage, const std::string& text, const Rational& value) {
    Step(stage, text + " = " + Readable(value), ToText(value));
  }

  static std::string Readable(const Rational& value) {
    return denominator(value) == 1 && abs(numerator(value)) < Integer(1) << 64
               ? ToText(value)
               : ApproximateText(value);
  }

  void Quantize() {
    const float x = c_.x.FloatAt(0);
    const int32_t z = c_.out_q.zero_point_at(0);
    if (std::isnan(x)) {
      Step(Stage::kZeroPoint, "x is NaN, which stands for the zero point " + std::to_string(z),
           std::to_string(z));
      ClampCode(z);
      return;
    }
    if (std::isinf(x)) {
      const std::string end = std::signbit(x) ? "lower" : "upper";
      const int64_t lo = LowerBound(c_);
      const int32_t code = exact::Clamp(std::signbit(x) ? lo : c_.out_max, lo, c_.out_max);
      Step(Stage::kClamp,
           "x is " + FloatText(x) + ", which gives the " + end + " end of the range, " +
               std::to_string(code),
           std::to_string(code));
      return;
    }
    const Rational value = *QuantizeValue(c_, 0, 0);
    Step(Stage::kScale, "x / scale: " + Short(x) + " / " + Short(c_.out_q.scale_at(0)), value);
    RoundToCode(value);
  }

  void Dequantize() {
    const int32_t q = c_.x.IntAt(0);
    const int32_t z = c_.x_q.zero_point_at(0);
    const Rational difference{Integer(Integer(q) - z)};
    Step(Stage::kOffset,
         "subtract the zero point: " + std::to_string(q) + " - " + std::to_string(z), difference);
    const Rational value = DequantizeValue(c_, 0, 0);
    Step(Stage::kScale,
         "multiply by scale: " + ToText(difference) + " * " + Short(c_.x_q.scale_at(0)), value);
    RoundToReal(value);
  }

  void Requantize() {
    const int32_t acc = c_.x.IntAt(0);
    Step(Stage::kAccumulate, "the accumulator is given", Rational(acc));
    const Rational value = RequantizeValue(c_, 0, 0);
    const std::string product = std::to_string(acc) + " * ";
    if (c_.multiplier.empty()) {
      Step(Stage::kScale, "multiply by x_scale*w_scale/out_scale: " + product + Quotient(), value);
    } else {
      Step(Stage::kScale, "multiply: " + product + Short(c_.multiplier[0]), value);
    }
    RoundToCode(value);
  }

  void Linear() {
    Integer sum = Accumulate();
    sum = Offset(sum);
    if (c_.bias_i32) {
      const int32_t bias = (*c_.bias_i32)[0];
      const std::string text = "add the int32 bias: " + sum.str() + " + " + std::to_string(bias);
      sum += bias;
      Step(Stage::kBias, text, Rational(sum));
    }
    if (c_.out_dtype == DType::kS32) {
      const int32_t code = exact::Clamp(sum, LowerBound(c_), c_.out_max);
      Step(Stage::kClamp, ClampText(sum), std::to_string(code));
      return;
    }
    const Rational unit = ToRational(c_.x_q.scale_at(0)) * ToRational(c_.w_q.scale_at(0));
    if (c_.out_dtype == DType::kF32) {
      Rational value = Rational(sum) * unit;
      Step(Stage::kScale,
           "multiply by x_scale*w_scale: " + sum.str() + " * " + Short(c_.x_q.scale_at(0)) + " * " +
               Short(c_.w_q.scale_at(0)),
           value);
      if (c_.bias) {
        const float bias = (*c_.bias)[0];
        const std::string text = "add the bias: " + Readable(value) + " + " + Short(bias);
        value += ToRational(bias);
        Step(Stage::kBias, text, value);
      }
      RoundToReal(value);
      return;
    }
    Rational accumulator(sum);
    if (c_.bias) {
      const float bias = (*c_.bias)[0];
      const Rational units = ToRational(bias) / unit;
      accumulator += units;
      Step(Stage::kBias,
           "add the bias " + Short(bias) + ", in units of x_scale*w_scale " + Readable(units) +
               ": " + sum.str() + " + " + Readable(units),
           accumulator);
    }
    const Rational value = accumulator * unit / ToRational(c_.out_q.scale_at(0));
    Step(Stage::kScale,
         "multiply by x_scale*w_scale/out_scale: " + Readable(accumulator) + " * " + Quotient(),
         value);
    RoundToCode(value);
  }

  Integer Accumulate() {
    // Long sums are told by their ends: the middle of a thousand terms helps nobody.
    constexpr int64_t kEnds = 4;
    Integer sum = 0;
    std::string terms;
    for (int64_t k = 0; k < c_.K; ++k) {
      const int32_t x = c_.x.IntAt(k);
      const int32_t w = c_.w.IntAt(k);
      sum += int64_t{x} * w;
      if (k < kEnds || k >= c_.K - kEnds) {
        terms += (k != 0 ? " + " : "") + std::to_string(x) + "*" + std::to_string(w);
      } else if (k == kEnds) {
        terms += " + ... (" + std::to_string(c_.K - 2 * kEnds) + " more)";
      }
    }
    Step(Stage::kAccumulate,
         c_.K == 0 ? "no terms, the sum is 0" : "sum of x*w over k: " + terms + " = " + sum.str(),
         sum.str());
    return sum;
  }

  Integer Offset(const Integer& raw) {
    const Integer zx = c_.x_q.zero_point_at(0);
    const Integer zw = c_.w_q.zero_point_at(0);
    Integer x_sum = 0;
    Integer w_sum = 0;
    for (int64_t k = 0; k < c_.K; ++k) {
      x_sum += c_.x.IntAt(k);
      w_sum += c_.w.IntAt(k);
    }
    const Integer sum = raw - zx * w_sum - zw * x_sum + c_.K * zx * zw;
    std::string text = "take out the zero points: " + raw.str() + " - " + zx.str() + "*" +
                       Parenthesized(w_sum) + " (x_zp * sum of w) - " + Parenthesized(zw) + "*" +
                       Parenthesized(x_sum) + " (w_zp * sum of x) + " + std::to_string(c_.K) + "*" +
                       Parenthesized(zx) + "*" + Parenthesized(zw) + " (K * x_zp * w_zp)";
    if (zx == 0 && zw == 0) text = "both zero points are 0, nothing to take out";
    Step(Stage::kOffset, text, Rational(sum));
    return sum;
  }

  static std::string Parenthesized(const Integer& value) {
    return value < 0 ? "(" + value.str() + ")" : value.str();
  }

  std::string Quotient() const {
    return Short(c_.x_q.scale_at(0)) + " * " + Short(c_.w_q.scale_at(0)) + " / " +
           Short(c_.out_q.scale_at(0));
  }

  void RoundToCode(const Rational& value) {
    const Integer rounded = RoundHalfEven(value);
    std::string text = "round to the nearest integer: " + Readable(value);
    if (denominator(value) == 2) text += ", exactly half way, goes to the even one";
    Step(Stage::kRound, text, Rational(rounded));
    const int32_t z = c_.out_q.zero_point_at(0);
    const Integer shifted = rounded + z;
    Step(Stage::kZeroPoint, "add the zero point: " + rounded.str() + " + " + std::to_string(z),
         Rational(shifted));
    ClampCode(shifted);
  }

  void RoundToReal(const Rational& value) {
    const float rounded = RoundToFloat32(value);
    const bool exact = std::isfinite(rounded) && ToRational(rounded) == value;
    Step(Stage::kRound,
         "round once to float32: " + ApproximateText(value) + " gives " +
             (std::isfinite(rounded) ? Short(rounded) : FloatText(rounded)) +
             (exact ? ", which is exact" : ""),
         FloatText(rounded));
    if (c_.relu) {
      const float y = value < 0 ? 0.0f : rounded;
      Step(Stage::kClamp, "relu: the larger of 0 and it", FloatText(y));
    }
  }

  std::string ClampText(const Integer& value) const {
    const int64_t lo = LowerBound(c_);
    const int32_t code = exact::Clamp(value, lo, c_.out_max);
    return "clamp " + value.str() + " to [" + std::to_string(lo) + ", " +
           std::to_string(c_.out_max) + "]" + (c_.relu ? " (relu)" : "") +
           (value == code ? ": inside" : ": " + std::to_string(code));
  }

  void ClampCode(const Integer& value) {
    Step(Stage::kClamp, ClampText(value),
         std::to_string(exact::Clamp(value, LowerBound(c_), c_.out_max)));
  }

  const Case& c_;
  Trace trace_;
};

}  // namespace

Trace Derive(const Case& c, int64_t index) {
  const Case one = OneOutput(c, index);
  return Teller(one).Tell();
}

std::string RealValueText(const Case& c, int64_t index) {
  const Case one = OneOutput(c, index);
  if (const std::optional<Rational> value = RealValue(one, 0, 0)) return ToText(*value);
  const float x = one.x.FloatAt(0);
  return std::isnan(x) ? "nan" : FloatText(x);
}

}  // namespace qualm::exact
