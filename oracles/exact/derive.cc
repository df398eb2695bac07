// SPDX-License-Identifier: Apache-2.0
// The definition told step by step, with its numbers.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/float_text.h"
#include "core/status.h"
#include "oracles/exact/definition.h"
#include "oracles/exact/evaluate.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/observer.h"

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
      case Op::kLinear:
      case Op::kConv2d:
      case Op::kDepthwise: Sums(); break;
      case Op::kAdd:
      case Op::kMul: TwoOperands(); break;
      case Op::kRescale: Rescale(); break;
      case Op::kMaxPool: MaxPool(); break;
      case Op::kAvgPool:
      case Op::kGlobalAvgPool: AvgPool(); break;
      case Op::kConcat:
      case Op::kTable:
      case Op::kSoftmax:
      case Op::kChooseQParams: break;
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
    const Rational difference = Difference("", c_.x, c_.x_q);
    const Rational value = DequantizeValue(c_, 0, 0);
    Step(Stage::kScale,
         "multiply by scale: " + ToText(difference) + " * " + Short(c_.x_q.scale_at(0)), value);
    RoundToReal(value);
  }

  void Requantize() {
    const int32_t acc = c_.x.IntAt(0);
    Step(Stage::kAccumulate, "the accumulator is given", Rational(acc));
    if (c_.requant != Requant::kExact) return RoundAs(acc);
    const Rational value = RequantizeValue(c_, 0, 0);
    const std::string product = std::to_string(acc) + " * ";
    if (c_.multiplier.empty()) {
      Step(Stage::kScale, "multiply by x_scale*w_scale/out_scale: " + product + Quotient(), value);
    } else {
      Step(Stage::kScale, "multiply: " + product + Short(c_.multiplier[0]), value);
    }
    RoundToCode(value);
  }

  void TwoOperands() {
    const Rational a = Difference("operand a, ", c_.x, c_.x_q);
    const Rational b = Difference("operand b, ", c_.w, c_.w_q);
    const std::string sa = Short(c_.x_q.scale_at(0));
    const std::string sb = Short(c_.w_q.scale_at(0));
    const std::string sy = Short(c_.out_q.scale_at(0));
    const Rational value = *RealValue(c_, 0, 0);
    if (c_.op == Op::kAdd) {
      Step(Stage::kScale,
           "(a_scale*a + b_scale*b) / out_scale: (" + sa + " * " + Parenthesized(a) + " + " + sb +
               " * " + Parenthesized(b) + ") / " + sy,
           value);
    } else {
      Step(Stage::kScale,
           "a_scale*b_scale/out_scale * a*b: " + sa + " * " + sb + " / " + sy + " * " +
               Parenthesized(a) + " * " + Parenthesized(b),
           value);
    }
    RoundToCode(value);
  }

  void Rescale() {
    const Rational difference = Difference("", c_.x, c_.x_q);
    const Rational value = RescaleValue(c_, 0, 0);
    Step(Stage::kScale,
         "multiply by x_scale/out_scale: " + Readable(difference) + " * " +
             Short(c_.x_q.scale_at(0)) + " / " + Short(c_.out_q.scale_at(0)),
         value);
    RoundToCode(value);
  }

  Rational Difference(const std::string& of, const Tensor& codes, const QParams& q) {
    const int32_t code = codes.IntAt(0);
    const Rational difference{Integer(Integer(code) - q.zero_point_at(0))};
    Step(Stage::kOffset,
         of + "subtract the zero point: " + std::to_string(code) + " - " +
             Parenthesized(q.zero_point_at(0)),
         difference);
    return difference;
  }

  void MaxPool() {
    Integer largest = INT32_MIN;
    std::string codes;
    const int64_t count = ForEachInWindow([&](int64_t i, int64_t of, int32_t code) {
      largest = std::max<Integer>(largest, code);
      Append(&codes, i, of, ", ", std::to_string(code));
    });
    Step(Stage::kAccumulate,
         "the largest of the " + std::to_string(count) + " codes in the window: " + codes,
         Rational(largest));
    ClampCode(largest);
  }

  void AvgPool() {
    Integer sum = 0;
    std::string codes;
    const int64_t inside = ForEachInWindow([&](int64_t i, int64_t of, int32_t code) {
      sum += code;
      Append(&codes, i, of, " + ", std::to_string(code));
    });
    const std::string terms = std::to_string(inside);
    Step(Stage::kAccumulate,
         inside == 0 ? "the window lies in the padding, the sum is 0"
                     : "sum of the " + terms + " codes in the window: " + codes + " = " + sum.str(),
         sum.str());
    const Integer zx = c_.x_q.zero_point_at(0);
    const Integer difference = sum - inside * zx;
    Step(Stage::kOffset,
         "take out the zero point: " + sum.str() + " - " + terms + "*" + Parenthesized(zx),
         Rational(difference));
    // The single window of OneOutput does not reach beyond the padding.
    const int64_t count = c_.window.count_include_pad ? c_.K : inside;
    const Rational value = AvgPoolValue(c_, 0, 0);
    Step(Stage::kScale,
         "multiply by x_scale/(count*out_scale): " + difference.str() + " * " +
             Short(c_.x_q.scale_at(0)) + " / (" + std::to_string(count) + " * " +
             Short(c_.out_q.scale_at(0)) + ")" + (count != inside ? ", padding counted" : ""),
         value);
    RoundToCode(value);
  }

  // Calls visit(i, number of codes, code) for the codes of the window; returns their number.
  template <class Visit>
  int64_t ForEachInWindow(const Visit& visit) {
    std::vector<Tap> taps = TapsOf(c_.window, 0);
    std::erase_if(taps, [](const Tap& tap) { return tap.x_row < 0; });
    const auto count = static_cast<int64_t>(taps.size());
    for (int64_t i = 0; i < count; ++i) {
      visit(i, count, c_.x.IntAt(taps[static_cast<size_t>(i)].x_row));
    }
    return count;
  }

  // Long lists are told by their ends: the middle of a thousand terms helps nobody.
  static void Append(std::string* list, int64_t i, int64_t count, const std::string& between,
                     const std::string& term) {
    constexpr int64_t kEnds = 4;
    if (i < kEnds || i >= count - kEnds) {
      *list += (i != 0 ? between : "") + term;
    } else if (i == kEnds) {
      *list += between + "... (" + std::to_string(count - 2 * kEnds) + " more)";
    }
  }

  void Sums() {
    Integer sum = AccumulateAndOffset();
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
    if (c_.requant != Requant::kExact) return RoundAs(sum);
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

  // The terms of the sum: those of linear, or of the taps of a convolution inside the image.
  struct Terms {
    std::vector<std::pair<int32_t, int32_t>> xw;
    int64_t in_padding = 0;  // taps
  };
  Terms CollectTerms() const {
    Terms terms;
    const auto add = [&](int64_t x, int64_t w, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        terms.xw.emplace_back(c_.x.IntAt(x + i), c_.w.IntAt(w + i));
      }
    };
    if (c_.op == Op::kLinear) {
      add(0, 0, c_.K);
      return terms;
    }
    const Window& v = c_.window;
    for (const Tap& tap : TapsOf(v, 0)) {
      if (tap.x_row < 0) {
        ++terms.in_padding;
      } else {
        add(tap.x_row, (tap.r * v.kernel_w + tap.s) * v.in_c, v.in_c);
      }
    }
    return terms;
  }

  Integer AccumulateAndOffset() {
    const Terms terms = CollectTerms();
    const auto count = static_cast<int64_t>(terms.xw.size());
    Integer raw = 0;
    Integer x_sum = 0;
    Integer w_sum = 0;
    std::string list;
    for (int64_t k = 0; k < count; ++k) {
      const auto [x, w] = terms.xw[static_cast<size_t>(k)];
      raw += int64_t{x} * w;
      x_sum += x;
      w_sum += w;
      Append(&list, k, count, " + ", std::to_string(x) + "*" + std::to_string(w));
    }
    std::string text = count == 0 ? "no terms, the sum is 0"
                                  : "sum of x*w over " +
                                        std::string(c_.op == Op::kLinear ? "k" : "(r,s,c)") + ": " +
                                        list + " = " + raw.str();
    if (terms.in_padding != 0) {
      text += "; " + std::to_string(terms.in_padding) +
              (terms.in_padding == 1 ? " tap lies" : " taps lie") +
              " in the padding and add real 0";
    }
    Step(Stage::kAccumulate, text, raw.str());

    const Integer zx = c_.x_q.zero_point_at(0);
    const Integer zw = c_.w_q.zero_point_at(0);
    const Integer sum = raw - zx * w_sum - zw * x_sum + count * zx * zw;
    text = "take out the zero points: " + raw.str() + " - " + zx.str() + "*" +
           Parenthesized(w_sum) + " (x_zp * sum of w) - " + Parenthesized(zw) + "*" +
           Parenthesized(x_sum) + " (w_zp * sum of x) + " + std::to_string(count) + "*" +
           Parenthesized(zx) + "*" + Parenthesized(zw) + " (" +
           (terms.in_padding == 0 ? "K" : "terms") + " * x_zp * w_zp)";
    if (zx == 0 && zw == 0) text = "both zero points are 0, nothing to take out";
    Step(Stage::kOffset, text, Rational(sum));
    return sum;
  }

  static std::string Parenthesized(const Rational& value) {
    return value < 0 ? "(" + ToText(value) + ")" : ToText(value);
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

  // In the arithmetic that the case asks for.
  void RoundAs(const Integer& accumulator) {
    Requantized as = RequantizeAs(c_, 0, accumulator);
    for (TraceStep& step : as.steps) trace_.push_back(std::move(step));
    ClampCode(as.code);
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
  if (c.op == Op::kChooseQParams) return DeriveQParams(c, index);
  const Case one = OneOutput(c, index);
  return Teller(one).Tell();
}

std::string RealValueText(const Case& c, int64_t index) {
  if (c.op == Op::kChooseQParams) {  // no other than what the steps end in
    const float y = Evaluate(c).FloatAt(index);
    return std::isinf(y) ? FloatText(y) : ToText(ToRational(y));
  }
  const Case one = OneOutput(c, index);
  if (const std::optional<Rational> value = RealValue(one, 0, 0)) return ToText(*value);
  const float x = one.x.FloatAt(0);
  return std::isnan(x) ? "nan" : FloatText(x);
}

}  // namespace qualm::exact
