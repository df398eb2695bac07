// SPDX-License-Identifier: Apache-2.0
// TFLite's hard-swish of codes (tflite-micro 90b983c: kernels/internal/reference/hard_swish.h; its
// multipliers: micro/kernels/hard_swish_common.cc, DownScaleInt32ToInt16Multiplier of
// kernels/internal/common.h; gemmlowp e844ffd fixedpoint/fixedpoint.h). All numbers are int16. With
// h = (code - zero point)*2^7, x*min(max(x + 3, 0), 6)/6 is the product of h on the scale of the
// output and of a factor from 0 to 1, in units of 2^-15.
#include "oracles/conventions/tflite_hard_swish.h"

#include <algorithm>
#include <string>

#include "oracles/conventions/definition.h"

namespace qualm::conventions {
namespace {

// Larger shifts to the right leave nothing of 16 bits.
constexpr int32_t kMostRight = 15;
constexpr int32_t kMostLeft = 30;

// A float32 multiplier in 16 bits: value * 2^(shift - 15).
FixedMultiplier Multiplier16(float multiplier) {
  FixedMultiplier m = QuantizeMultiplier(static_cast<double>(multiplier), false);
  constexpr int32_t kHalf = 1 << 15;
  m.value = m.value >= INT32_MAX - kHalf ? INT16_MAX : (m.value + kHalf) >> 16;
  return m;
}

float Fine(const Case& c) { return c.x_q.scale[0] * (1.0f / 128.0f); }
FixedMultiplier ToOutput(const Case& c) { return Multiplier16(Fine(c) / c.out_q.scale[0]); }
// To units in which 3 is 2^15.
FixedMultiplier ToThirds(const Case& c) { return Multiplier16(Fine(c) / (3.0f / 32768.0f)); }

// The high half of 2ab, ties away from zero (those of negative products up); or toward zero. No two
// factors are both -2^15.
int32_t HighMul(int32_t a, int32_t b) {
  const int32_t product = a * b;
  return (product + (product >= 0 ? 1 << 14 : 1 - (1 << 14))) / (1 << 15);
}
int32_t HighMulTowardZero(int32_t a, int32_t b) { return a * b / (1 << 15); }

int32_t ShiftLeft(int32_t value, int32_t amount) { return Sat16(value * (int64_t{1} << amount)); }

// h from [-3, 3] to [0, 2^15): saturates beyond.
int32_t Factor(int32_t h, FixedMultiplier m) {
  // The last of the left shifts comes after the product, so that only what it saturates matters.
  int32_t value = m.shift > 0 ? ShiftLeft(h, m.shift - 1) : h;
  value = HighMul(value, m.value);
  if (m.shift > 0) value = ShiftLeft(value, 1);
  if (m.shift < 0) value = RoundingDivideByPot(value, -m.shift);
  return (value + (1 << 15)) >> 1;
}

Value Product(const Case& c, int64_t index, Trace* trace) {
  const int32_t difference = c.x.IntAt(index) - c.x_q.zero_point[0];
  const int32_t h = difference * 128;
  const int32_t output = HighMul(h, ToOutput(c).value);
  const int32_t factor = Factor(h, ToThirds(c));
  Value value;
  value.SetInt(HighMulTowardZero(factor, output));
  if (trace == nullptr) return value;
  const auto note = [&](Stage stage, const std::string& text, int64_t result) {
    const std::string number = std::to_string(result);
    Note(trace, stage, text + " = " + number, number, stage == Stage::kScale);
  };
  note(Stage::kOffset, "(code - zero point) * 2^7: " + std::to_string(difference) + " * 128", h);
  note(Stage::kScale,
       "on the scale of the output: " + std::to_string(h) + " * " +
           std::to_string(ToOutput(c).value) + "*2^-15, rounded",
       output);
  note(Stage::kScale, "min(max(x + 3, 0), 6) / 6 in units of 2^-15", factor);
  note(
      Stage::kScale,
      "their product, cut: " + std::to_string(factor) + " * " + std::to_string(output) + " * 2^-15",
      value.integer);
  return value;
}

void ShiftRight(Value& v, const Channel& c) {
  v.SetInt(RoundingDivideByPot(static_cast<int32_t>(v.integer), -c.fixed.shift));
}
void AddZeroPoint(Value& v, const Channel& c) {
  const int64_t full = v.integer + c.zero_point;
  v.SetInt(static_cast<int16_t>(static_cast<uint16_t>(full)));
  v.lossy = v.integer != full;
}

std::string CannotRun(const Case& c) {
  if (c.function != Function::kHardSwish) return "this convention has no such table";
  const FixedMultiplier output = ToOutput(c), thirds = ToThirds(c);
  // The smallest multipliers are 0, without a shift.
  const auto is_small = [](FixedMultiplier m) { return m.value == 0 || m.shift < -kMostRight; };
  return FirstReason({
      Require(c.x.dtype() == c.out_dtype, "input and output must have one type"),
      ZeroPointsAreCodes(c),
      WholeRange(c),
      Require(output.shift <= 0, "the output scale must be above 1/128 of the input's"),
      Require(!is_small(thirds) && thirds.shift <= kMostLeft,
              "the input scale is too small or large"),
      Require(!is_small(output), "the output scale is too large"),
  });
}

}  // namespace

Convention TfliteHardSwish() {
  Definition definition;
  definition.satisfies = {"row_independence", "column_independence"};
  definition.variations = {"V35"};
  definition.ops = {Op::kTable};
  definition.cannot_run = CannotRun;
  definition.gather = [](const Case& c) { return EachAlone(c, Product); };
  definition.channel = [](const Case& c, int64_t) {
    Channel channel;
    SetClamp(channel, c);
    channel.zero_point = c.out_q.zero_point[0];
    channel.fixed = ToOutput(c);
    return channel;
  };
  definition.steps = [](const Case&) {
    return std::vector<Step>{
        {Stage::kRound, ">> {right}, ties away from zero", ShiftRight},
        {Stage::kZeroPoint, "+ zero point {zero_point}, wrapping in int16", AddZeroPoint},
        {Stage::kClamp, "clamp to {low}..{high}", step::Clamp}};
  };
  return MakeConvention(std::move(definition));
}

}  // namespace qualm::conventions
