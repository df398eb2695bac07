// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/steps.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <utility>

#include "core/float_text.h"
#include "oracles/conventions/requirements.h"

namespace qualm::conventions {
namespace {

std::string Text(int64_t value) { return std::to_string(value); }

std::string Substitute(std::string_view text, const Channel& c, int32_t second) {
  const std::pair<std::string_view, std::string> names[] = {
      {"{multiplier}", FloatText(c.multiplier)},
      {"{accumulator_scale}", FloatText(c.accumulator_scale)},
      {"{reciprocal}", FloatText(c.reciprocal)},
      {"{scale}", FloatText(c.scale)},
      {"{bias}", FloatText(c.bias)},
      {"{bias_i32}", Text(c.bias_i32)},
      {"{zero_point}", Text(c.zero_point)},
      {"{low}", Text(c.low)},
      {"{high}", Text(c.high)},
      {"{fixed}", Text(c.fixed.value)},
      {"{shift}", Text(c.fixed.shift)},
      {"{left}", Text(std::max(c.fixed.shift, 0))},
      {"{right}", Text(std::max(-c.fixed.shift, 0))},
      {"{a_scale}", FloatText(c.a.scale)},
      {"{b_scale}", FloatText(c.b.scale)},
      {"{a_zp}", Text(c.a.zero_point)},
      {"{b_zp}", Text(c.b.zero_point)},
      {"{a_fixed}", Text(c.a.fixed.value)},
      {"{b_fixed}", Text(c.b.fixed.value)},
      {"{a_shift}", Text(c.a.fixed.shift)},
      {"{b_shift}", Text(c.b.fixed.shift)},
      {"{b}", Text(second)},
  };
  std::string result(text);
  for (const auto& [name, value] : names) {
    for (size_t at = result.find(name); at != std::string::npos; at = result.find(name)) {
      result.replace(at, name.size(), value);
    }
  }
  return result;
}

}  // namespace

Rise RiseOf(const Step& step) {
  struct Row {
    void (*apply)(Value&, const Channel&);
    Rise rise;
  };
  static constexpr Row kRows[] = {{step::AddBiasI32, Rise::kUnlessLossy},
                                  {step::AddBiasFloat, Rise::kAlways},
                                  {step::ToFloat, Rise::kAlways},
                                  {step::TimesMultiplier, Rise::kAlways},
                                  {step::TimesReciprocal, Rise::kAlways},
                                  {step::TimesMultiplierPlusBias, Rise::kAlways},
                                  {step::DivideByScale, Rise::kAlways},
                                  {step::Relu, Rise::kAlways},
                                  {step::AddZeroPointFloat, Rise::kAlways},
                                  {step::RoundEven, Rise::kAlways},
                                  {step::RoundX86, Rise::kUnlessLossy},
                                  {step::RoundArm, Rise::kAlways},
                                  {step::RoundAway, Rise::kUnlessLossy},
                                  {step::MinHigh, Rise::kAlways},
                                  {step::AddZeroPointSat16, Rise::kAlways},
                                  {step::AddZeroPointWrap32, Rise::kUnlessLossy},
                                  {step::Clamp, Rise::kAlways}};
  const auto* const row = std::ranges::find(kRows, step.apply, &Row::apply);
  return row == std::end(kRows) ? step.rise : row->rise;
}

std::string ValueText(const Value& v) {
  if (!v.real) return Text(v.integer);
  if (!v.is_wide) return FloatText(v.number);
  std::array<char, 32> text;
  const int length = std::snprintf(text.data(), text.size(), "%a", v.wide);
  return {text.data(), static_cast<size_t>(length)};
}

void Note(Trace* trace, Stage stage, std::string text, std::string value, bool lossy) {
  if (trace == nullptr) return;
  TraceStep entry;
  entry.stage = stage;
  entry.text = std::move(text);
  entry.value = std::move(value);
  entry.lossy = lossy;
  trace->push_back(std::move(entry));
}

void Apply(std::span<const Step> steps, const Channel& channel, Value& value, Trace* trace) {
  for (const Step& step : steps) {
    const std::string before = trace != nullptr ? ValueText(value) : "";
    value.lossy = false;
    step.apply(value, channel);
    if (trace == nullptr) continue;
    Note(trace, step.stage,
         Substitute(step.text, channel, value.second) + ": " + before + " -> " + ValueText(value),
         ValueText(value), value.lossy);
  }
}

float MultiplyInto(Value& value, float a, float b) {
  const float product = a * b;
  // The float64 product of two float32 numbers is exact.
  if (static_cast<double>(product) != static_cast<double>(a) * static_cast<double>(b)) {
    value.lossy = true;
  }
  value.SetReal(product);
  return product;
}

float AddInto(Value& value, float a, float b) {
  const float sum = a + b;
  const float b_part = sum - a;  // Knuth's two-sum: the rounding error of a + b
  const float error = (a - (sum - b_part)) + (b - b_part);
  if (error != 0.0f) value.lossy = true;
  value.SetReal(sum);
  return sum;
}

namespace step {

void AddBiasI32(Value& v, const Channel& c) {
  const int64_t sum = v.integer + c.bias_i32;
  v.SetInt(Wrap32(sum));
  v.lossy = v.integer != sum || c.bias_rounded;
}
void AddBiasFloat(Value& v, const Channel& c) { AddInto(v, v.number, c.bias); }
void ToFloat(Value& v, const Channel&) {
  if (v.real) return;  // the zero points were taken out in float32
  const int64_t integer = v.integer;
  v.SetReal(static_cast<float>(integer));
  v.lossy = static_cast<double>(v.number) != static_cast<double>(integer);
}
void TimesMultiplier(Value& v, const Channel& c) { MultiplyInto(v, v.number, c.multiplier); }
void TimesReciprocal(Value& v, const Channel& c) { MultiplyInto(v, v.number, c.reciprocal); }
void TimesScale(Value& v, const Channel& c) { MultiplyInto(v, v.number, c.scale); }
void TimesMultiplierPlusBias(Value& v, const Channel& c) {
  const float result = std::fma(v.number, c.multiplier, c.bias);
  v.lossy = static_cast<long double>(v.number) * c.multiplier + c.bias !=
            static_cast<long double>(result);
  v.SetReal(result);
}
void DivideByScale(Value& v, const Channel& c) {
  const float before = v.number;
  v.SetReal(before / c.scale);
  v.lossy =
      static_cast<double>(v.number) * static_cast<double>(c.scale) != static_cast<double>(before);
}
void Relu(Value& v, const Channel&) { v.SetReal(MaxPs(v.number, 0.0f)); }
void AddZeroPointFloat(Value& v, const Channel& c) {
  AddInto(v, v.number, static_cast<float>(c.zero_point));
}
void RoundEven(Value& v, const Channel&) { v.SetReal(RoundNearestEven(v.number)); }
void RoundX86(Value& v, const Channel&) {
  const float before = v.number;
  v.SetInt(ConvertX86(before));
  v.lossy = static_cast<double>(v.integer) != static_cast<double>(RoundNearestEven(before));
}
void RoundArm(Value& v, const Channel&) {
  const float before = v.number;
  v.SetInt(ConvertArm(before));
  v.lossy = static_cast<double>(v.integer) != static_cast<double>(RoundNearestEven(before));
}
void RoundAway(Value& v, const Channel&) {
  const float rounded = std::round(v.number);
  // A number that does not fit is undefined in C++, and INT32_MIN as compiled.
  v.lossy = !(rounded >= -0x1p31f && rounded < 0x1p31f);
  v.SetInt(v.lossy ? INT32_MIN : static_cast<int64_t>(rounded));
}
void MinHigh(Value& v, const Channel& c) {
  const bool nan = std::isnan(v.number);
  v.SetReal(MinPs(v.number, static_cast<float>(int64_t{c.high} - c.zero_point)));
  v.lossy = nan;
}
void AddZeroPointSat16(Value& v, const Channel& c) {
  // The zero point is broadcast as int16, so its high half is dropped.
  const int32_t zero_point = static_cast<int16_t>(static_cast<uint16_t>(c.zero_point));
  const int64_t full = v.integer + c.zero_point;
  v.SetInt(Sat16(int64_t{Sat16(v.integer)} + zero_point));
  // Saturation is seen only where the clamp would not have hidden it.
  v.lossy =
      std::clamp<int64_t>(full, c.low, c.high) != std::clamp<int64_t>(v.integer, c.low, c.high);
}
void AddZeroPointWrap32(Value& v, const Channel& c) {
  const int64_t full = v.integer + c.zero_point;
  v.SetInt(Wrap32(full));
  v.lossy = v.integer != full;
}
void Clamp(Value& v, const Channel& c) {
  // Lower bound last, as pmaxub after pminub: it wins where the two cross.
  v.SetInt(std::max<int64_t>(std::min<int64_t>(v.integer, c.high), c.low));
}
void TimesCodeMinusZeroPoint(Value& v, const Channel& c) {
  const int64_t full = v.integer - c.zero_point;
  const int32_t difference = Wrap32(full);
  const auto number = static_cast<float>(difference);
  MultiplyInto(v, c.scale, number);
  if (difference != full || static_cast<double>(number) != static_cast<double>(difference)) {
    v.lossy = true;
  }
}

void TimesSecond(Value& v, const Channel& c) {
  v.SetInt((v.integer - c.a.zero_point) * (int64_t{v.second} - c.b.zero_point));
}

}  // namespace step

std::vector<int32_t> CodesUnderWindow(const Case& c, int64_t index) {
  std::vector<int32_t> codes;
  for (const Tap& tap : TapsOf(c.window, index / c.N)) {
    if (tap.x_row >= 0) codes.push_back(c.x.IntAt(tap.x_row + index % c.N));
  }
  return codes;
}

ConcatElement ConcatElementAt(const Case& c, int64_t index) {
  const int64_t m = index / c.N, n = index % c.N, columns = c.x.shape()[1];
  if (n < columns) return {c.x.IntAt(m * columns + n), &c.x_q};
  return {c.w.IntAt(m * (c.N - columns) + n - columns), &c.w_q};
}

bool SetColumnScale(Channel& channel, const Case& c, int64_t n) {
  if (c.op != Op::kQuantize && c.op != Op::kDequantize) return false;
  const QParams& q = c.op == Op::kQuantize ? c.out_q : c.x_q;
  channel.scale = q.scale_at(n);
  channel.zero_point = q.zero_point_at(n);
  return true;
}

void SetClamp(Channel& channel, const Case& c) {
  channel.low = static_cast<int32_t>(std::min<int64_t>(LowerBound(c), INT32_MAX));
  channel.high = c.out_max;
}

Channel FixedPointChannel(const Case& c, int64_t n, bool single) {
  Channel channel;
  SetClamp(channel, c);
  if (c.bias_i32) channel.bias_i32 = (*c.bias_i32)[static_cast<size_t>(n)];
  channel.zero_point = c.out_q.zero_point_at(0);
  channel.fixed = QuantizeMultiplier(RealMultiplier(c, n), single);
  return channel;
}

std::vector<Step> FixedPointSteps(const Case& c, std::initializer_list<Step> scaling) {
  std::vector<Step> steps;
  if (c.bias_i32) steps.push_back({Stage::kBias, "+ int32 bias {bias_i32}", step::AddBiasI32});
  if (c.out_dtype != DType::kS32) {
    steps.insert(steps.end(), scaling);
    steps.push_back(
        {Stage::kZeroPoint, "+ zero point {zero_point}, wrapping", step::AddZeroPointWrap32});
  }
  steps.push_back({Stage::kClamp, "clamp to {low}..{high}", step::Clamp});
  return steps;
}

Channel FixedPointAddChannel(const Case& c, int32_t bits) {
  Channel channel;
  SetClamp(channel, c);
  channel.a.zero_point = c.x_q.zero_point[0];
  channel.b.zero_point = c.w_q.zero_point[0];
  channel.zero_point = c.out_q.zero_point[0];
  channel.a.scale = c.x_q.scale[0] / c.out_q.scale[0];
  channel.b.scale = c.w_q.scale[0] / c.out_q.scale[0];
  channel.fixed.shift = bits - 1 - std::ilogb(std::max(channel.a.scale, channel.b.scale));
  const auto fixed = [&](float scale) {
    return static_cast<int32_t>(RoundNearestEven(std::ldexp(scale, channel.fixed.shift)));
  };
  channel.a.fixed.value = fixed(channel.a.scale);
  channel.b.fixed.value = SignOfSecond(c.op) * fixed(channel.b.scale);
  const auto exact = [&](const Channel::Operand& operand, float scale) {
    // The product has at most 24 + 24 bits.
    return std::ldexp(static_cast<double>(std::abs(operand.fixed.value)) *
                          static_cast<double>(c.out_q.scale[0]),
                      -channel.fixed.shift) == static_cast<double>(scale);
  };
  channel.operands_rounded = !exact(channel.a, c.x_q.scale[0]) || !exact(channel.b, c.w_q.scale[0]);
  return channel;
}

}  // namespace qualm::conventions
