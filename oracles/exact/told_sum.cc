// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "oracles/exact/sums.h"

namespace qualm::exact {
namespace {

Integer AccumulateAndOffset(Teller& t, const TermsTold& terms) {
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
    AppendTerm(&list, k, count, " + ", std::to_string(x) + "*" + std::to_string(w));
  }
  std::string text = count == 0 ? "no terms, the sum is 0"
                                : "sum of x*w over " + terms.over + ": " + list + " = " + raw.str();
  if (terms.taps_in_padding != 0) {
    text += "; " + std::to_string(terms.taps_in_padding) +
            (terms.taps_in_padding == 1 ? " tap lies in the padding and adds real 0"
                                        : " taps lie in the padding and add real 0");
  }
  t.Step(Stage::kAccumulate, text, raw.str());

  const Integer zx = t.c.x_q.zero_point_at(0);
  const Integer zw = t.c.w_q.zero_point_at(0);
  const Integer sum = raw - zx * w_sum - zw * x_sum + count * zx * zw;
  text = "take out the zero points: " + raw.str() + " - " + zx.str() + "*" + Parenthesized(w_sum) +
         " (x_zp * sum of w) - " + Parenthesized(zw) + "*" + Parenthesized(x_sum) +
         " (w_zp * sum of x) + " + std::to_string(count) + "*" + Parenthesized(zx) + "*" +
         Parenthesized(zw) + " (" + (terms.taps_in_padding == 0 ? "K" : "terms") +
         " * x_zp * w_zp)";
  if (zx == 0 && zw == 0) text = "both zero points are 0, nothing to take out";
  t.Step(Stage::kOffset, text, Rational(sum));
  return sum;
}

}  // namespace

void TellSum(Teller& t, const TermsTold& terms) {
  const Case& c = t.c;
  Integer sum = AccumulateAndOffset(t, terms);
  if (c.bias_i32) {
    const int32_t bias = (*c.bias_i32)[0];
    const std::string text = "add the int32 bias: " + sum.str() + " + " + std::to_string(bias);
    sum += bias;
    t.Step(Stage::kBias, text, Rational(sum));
  }
  if (c.out_dtype == DType::kS32) return t.ClampCode(sum);
  if (c.requant != Requant::kExact) return t.RoundAs(sum);
  const Rational unit = ToRational(c.x_q.scale_at(0)) * ToRational(c.w_q.scale_at(0));
  if (c.out_dtype == DType::kF32) {
    Rational value = Rational(sum) * unit;
    t.Step(Stage::kScale,
           "multiply by x_scale*w_scale: " + sum.str() + " * " + Short(c.x_q.scale_at(0)) + " * " +
               Short(c.w_q.scale_at(0)),
           value);
    if (c.bias) {
      const float bias = (*c.bias)[0];
      const std::string text = "add the bias: " + Readable(value) + " + " + Short(bias);
      value += ToRational(bias);
      t.Step(Stage::kBias, text, value);
    }
    t.RoundToReal(value);
    return;
  }
  Rational accumulator(sum);
  if (c.bias) {
    const float bias = (*c.bias)[0];
    const Rational units = ToRational(bias) / unit;
    accumulator += units;
    t.Step(Stage::kBias,
           "add the bias " + Short(bias) + ", in units of x_scale*w_scale " + Readable(units) +
               ": " + sum.str() + " + " + Readable(units),
           accumulator);
  }
  const Rational value = accumulator * unit / ToRational(c.out_q.scale_at(0));
  t.Step(Stage::kScale,
         "multiply by x_scale*w_scale/out_scale: " + Readable(accumulator) + " * " + ScalesText(c),
         value);
  t.RoundToCode(value);
}

}  // namespace qualm::exact
