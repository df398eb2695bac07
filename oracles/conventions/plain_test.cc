// SPDX-License-Identifier: Apache-2.0
// The conventions plain@*: by hand, and against their rule on the rational value of drawn cases.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/random_case_test_util.h"
#include "core/verdict.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/test_util.h"
#include "oracles/exact/arithmetic/rational.h"
#include "oracles/exact/exact.h"

namespace qualm {
namespace {

using exact::Floor;
using exact::Integer;
using exact::Rational;

constexpr float kInf = std::numeric_limits<float>::infinity();

// The code of a real value and a zero point, before the clamp.
using Rule = Integer (*)(const Rational& value, int32_t zero_point);

Integer Away(const Rational& value) {
  const Integer magnitude = Floor(abs(value) + Rational(1, 2));
  return value < 0 ? Integer(-magnitude) : magnitude;
}
Integer Truncated(const Rational& value) {
  const Integer magnitude = Floor(abs(value));
  return value < 0 ? Integer(-magnitude) : magnitude;
}

const std::map<std::string, Rule> kRules{
    {"plain@away", [](const Rational& v, int32_t z) { return Integer(Away(v) + z); }},
    {"plain@away+zp_first", [](const Rational& v, int32_t z) { return Away(v + z); }},
    {"plain@even+zp_first",
     [](const Rational& v, int32_t z) { return exact::RoundHalfEven(v + z); }},
    {"plain@floor", [](const Rational& v, int32_t z) { return Integer(Floor(v) + z); }},
    {"plain@truncate", [](const Rational& v, int32_t z) { return Integer(Truncated(v) + z); }},
    {"plain@truncate+zp_first", [](const Rational& v, int32_t z) { return Truncated(v + z); }},
    {"plain@up",
     [](const Rational& v, int32_t z) { return Integer(Floor(v + Rational(1, 2)) + z); }}};

// The values in units of the output scale, or none if they are not rational.
std::optional<Rational> ValueOf(const Case& c, int64_t index) {
  const std::string text = exact::RealValueText(c, index);
  if (text.find_first_not_of("-0123456789/") != std::string::npos) return std::nullopt;
  return Rational(text);
}

// The same case with small numbers, of which many are ties over 2.
Case Small(Case c) {
  for (QParams* q : {&c.x_q, &c.w_q}) {
    std::ranges::fill(q->scale, 1.0f);
    std::ranges::fill(q->zero_point, 0);
  }
  std::ranges::fill(c.out_q.scale, 2.0f);
  std::ranges::fill(c.out_q.zero_point, 3);
  if (!c.multiplier.empty()) c.multiplier = {0.5f};
  c.per_channel = c.per_channel && c.multiplier.empty();
  c.bias.reset();
  c.bias_i32.reset();
  for (Tensor* codes : {&c.x, &c.w}) {
    for (int64_t i = 0; i < codes->size(); ++i) {
      const auto number = static_cast<int32_t>((codes == &c.x ? i : 3 * i + 1) % 7);
      if (codes->dtype() == DType::kF32) {
        codes->as<float>()[static_cast<size_t>(i)] = static_cast<float>(number - 3);
      } else {
        codes->SetInt(i, RangeOf(codes->dtype()).min == 0 ? number : number - 3);
      }
    }
  }
  OpenClamp(&c);
  return c;
}

TEST(PlainTest, EveryOperationRoundsTheRealValueByTheRule) {
  for (const Op op : OpsWhere(HasOutQParams)) {
    int64_t ties = 0, outputs = 0;
    std::map<std::string, int64_t> departed;
    test::RandomCase draw(MixSeed(41, static_cast<uint64_t>(op)));
    for (int round = 0; round < 200; ++round) {
      Case c = draw.Draw(op);
      c.w = InBytes(c.w);
      if (round % 2 == 0) c = Small(c);
      ASSERT_EQ(Validate(c), "");
      if (!IsCode(c.out_dtype) || c.M * c.N > 40) continue;
      const Tensor exact = exact::Evaluate(c);
      for (const auto& [name, rule] : kRules) {
        ASSERT_EQ(Get(name).cannot_run(c), "") << name << " " << Describe(c);
        const Tensor y = Get(name).run(c).y;
        for (int64_t i = 0; i < y.size(); ++i) {
          const std::optional<Rational> value = ValueOf(c, i);
          if (!value) continue;
          const Integer low = std::min<int64_t>(LowerBound(c, i % c.N), c.out_max);
          const Integer code = rule(*value, c.out_q.zero_point_at(i % c.N));
          const Integer clamped = std::min(std::max(code, low), Integer(c.out_max));
          ASSERT_EQ(y.IntAt(i), static_cast<int32_t>(clamped))
              << name << " of " << exact::ToText(*value) << ", " << Describe(c);
          departed[name] += y.BitsAt(i) != exact.BitsAt(i) ? 1 : 0;
          if (name != "plain@up") continue;
          ++outputs;
          ties += denominator(*value) == 2 ? 1 : 0;
        }
      }
    }
    EXPECT_GT(outputs, 500) << Name(op);
    EXPECT_GT(ties, 10) << Name(op);
    for (const auto& [name, rule] : kRules) EXPECT_GT(departed[name], 0) << name << " " << Name(op);
  }
}

Case Quantize(const std::vector<float>& x, float scale, int32_t zero_point) {
  Case c;
  c.op = Op::kQuantize;
  c.M = 1;
  c.N = static_cast<int64_t>(x.size());
  c.x = Tensor::Of<float>({1, c.N}, x);
  c.out_q = {{scale}, {zero_point}};
  return Into(c, DType::kS8);
}

std::vector<int32_t> Codes(const std::string& name, const Case& c) {
  EXPECT_EQ(Validate(c), "");
  EXPECT_EQ(Get(name).cannot_run(c), "") << name;
  const Tensor y = Get(name).run(c).y;
  std::vector<int32_t> codes;
  for (int64_t i = 0; i < y.size(); ++i) {
    codes.push_back(y.IntAt(i));
    EXPECT_EQ(Get(name).trace(c, i).back().value, ElementText(y, i)) << name;
  }
  return codes;
}

TEST(PlainTest, HalvesAndQuartersByHand) {
  const std::vector<float> x{-2.5f, -1.5f, -1.25f, -0.75f, -0.5f, 0.5f, 0.75f, 1.25f, 1.5f, 2.5f};
  using List = std::vector<int32_t>;
  for (const auto& [name, codes, with_one] : std::vector<std::tuple<const char*, List, List>>{
           {"away", {-3, -2, -1, -1, -1, 1, 1, 1, 2, 3}, {-2, -1, 0, 0, 0, 2, 2, 2, 3, 4}},
           {"away+zp_first", {-3, -2, -1, -1, -1, 1, 1, 1, 2, 3}, {-2, -1, 0, 0, 1, 2, 2, 2, 3, 4}},
           {"even+zp_first", {-2, -2, -1, -1, 0, 0, 1, 1, 2, 2}, {-2, 0, 0, 0, 0, 2, 2, 2, 2, 4}},
           {"floor", {-3, -2, -2, -1, -1, 0, 0, 1, 1, 2}, {-2, -1, -1, 0, 0, 1, 1, 2, 2, 3}},
           {"truncate", {-2, -1, -1, 0, 0, 0, 0, 1, 1, 2}, {-1, 0, 0, 1, 1, 1, 1, 2, 2, 3}},
           {"truncate+zp_first",
            {-2, -1, -1, 0, 0, 0, 0, 1, 1, 2},
            {-1, 0, 0, 0, 0, 1, 1, 2, 2, 3}},
           {"up", {-2, -1, -1, -1, 0, 1, 1, 1, 2, 3}, {-1, 0, 0, 0, 1, 2, 2, 2, 3, 4}},
           {"float32+away",
            {-3, -2, -1, -1, -1, 1, 1, 1, 2, 3},
            {-2, -1, 0, 0, 0, 2, 2, 2, 3, 4}}}) {
    EXPECT_EQ(Codes(std::string("plain@") + name, Quantize(x, 1, 0)), codes) << name;
    EXPECT_EQ(Codes(std::string("plain@") + name, Quantize(x, 1, 1)), with_one) << name;
  }
}

// sigmoid and tanh have no rational value but at 0, and no tie.
TEST(PlainTest, RealFunctionsAreCutOnTheRightSide) {
  Case c;
  c.op = Op::kTable;
  c.function = Function::kTanh;
  c.M = 1;
  c.N = 256;
  c.x = Tensor(DType::kS8, {1, 256});
  for (int32_t i = 0; i < 256; ++i) c.x.SetInt(i, i - 128);
  c.x_q.scale = {0x1p-5f};
  c.out_q = {{0.01f}, {0}};
  c = Into(c, DType::kS8);
  const std::vector<int32_t> floor = Codes("plain@floor", c), cut = Codes("plain@truncate", c);
  for (int32_t i = 0; i < 256; ++i) {
    const double value = std::tanh(std::ldexp(i - 128, -5)) / static_cast<double>(0.01f);
    EXPECT_EQ(floor[static_cast<size_t>(i)], std::floor(value)) << i;
    EXPECT_EQ(cut[static_cast<size_t>(i)], std::trunc(value)) << i;
  }
  EXPECT_EQ(Get("plain@away").run(c).y, exact::Evaluate(c));
}

// What is no number, and what no zero point brings back, is as exact has it.
TEST(PlainTest, FarValuesGoToTheEnds) {
  const Case c = Quantize({NAN, kInf, -kInf, 0x1p40f, -0x1p40f, 0x1p127f}, 1, 5);
  for (const auto& [name, rule] : kRules)
    EXPECT_EQ(Codes(name, c), (std::vector<int32_t>{5, 127, -128, 127, -128, 127})) << name;
  Case far = Quantize({0x1p31f, -0x1p31f - 512}, 1, INT32_MIN);
  for (const auto& [name, rule] : kRules) EXPECT_EQ(Codes(name, far).front(), 0) << name;
}

TEST(PlainTest, TheTraceTellsTheRoundingAndWhetherItDeparts) {
  const auto round = [](const char* name, float x, int32_t zero_point) {
    for (TraceStep& step : Get(name).trace(Quantize({x}, 1, zero_point), 0)) {
      if (step.stage == Stage::kRound) return step.text + (step.lossy ? " *" : "");
    }
    return std::string();
  };
  EXPECT_EQ(round("plain@away", 2.5f, 7), "round ties away from zero: 3 *");
  EXPECT_EQ(round("plain@away", 2.25f, 7), "round ties away from zero: 2");
  EXPECT_EQ(round("plain@truncate+zp_first", -8.75f, 7),
            "+ zero point 7, then round towards zero: -1 *");
  EXPECT_EQ(Get("plain@floor").trace(Quantize({0.75f}, 1, 0), 0).front().text,
            exact::Derive(Quantize({0.75f}, 1, 0), 0).front().text);
}

Case Requantize(int32_t sum, float multiplier) {
  Case c;
  c.op = Op::kRequantize;
  c.M = c.N = 1;
  c.x = Tensor::Of<int32_t>({1, 1}, std::vector<int32_t>{sum});
  c.multiplier = {multiplier};
  return Into(c, DType::kS8);
}

TEST(PlainTest, Float32RoundsTheSumAndItsProduct) {
  // 33554433 * 2^-24 = 2 + 2^-24; half of it lies above a tie only before it is a float32.
  EXPECT_EQ(Codes("plain@float32+away", Requantize(41943041, 0x1p-24f)).front(), 3);
  EXPECT_EQ(Codes("plain@away", Requantize(-41943039, 0x1p-24f)).front(), -2);
  EXPECT_EQ(Codes("plain@float32+away", Requantize(-41943039, 0x1p-24f)).front(), -3);
  // A product beyond int32 becomes INT32_MIN.
  EXPECT_EQ(Codes("plain@float32+away", Requantize(1 << 30, 2)).front(), -128);
  EXPECT_EQ(Codes("plain@away", Requantize(1 << 30, 2)).front(), 127);
}

Case Operands(Op op, int32_t a, int32_t b, float a_scale, float b_scale, float out_scale) {
  Case c;
  c.op = op;
  c.M = c.N = 1;
  c.x = Tensor(DType::kU8, {1, 1});
  c.w = Tensor(DType::kU8, {1, 1});
  c.x.SetInt(0, a);
  c.w.SetInt(0, b);
  c.x_q = {{a_scale}, {1}};
  c.w_q = {{b_scale}, {2}};
  c.out_q.scale = {out_scale};
  return Into(c, DType::kU8);
}

TEST(PlainTest, Float32AddsRealsAndMultipliesIntegers) {
  const char* const name = "plain@float32+away";
  EXPECT_EQ(Codes(name, Operands(Op::kAdd, 4, 4, 1, 1, 2)).front(), 3);  // 5 / 2
  EXPECT_EQ(Codes(name, Operands(Op::kSub, 12, 8, 1, 1, 2)).front(), 3);
  EXPECT_EQ(Codes(name, Operands(Op::kMul, 6, 3, 1, 1, 2)).front(), 3);
  // 2^25 * 127 + 1 over 2^26: the 1 is lost, and 63.5 a tie.
  EXPECT_EQ(Codes(name, Operands(Op::kSub, 128, 3, 0x1p25f, 1, 0x1p26f)).front(), 64);
  EXPECT_EQ(Codes("plain@away", Operands(Op::kSub, 128, 3, 0x1p25f, 1, 0x1p26f)).front(), 63);
  // The product of the scales is rounded, not that of the reals.
  const float odd = 1 + 0x1p-12f;
  const Case c = Operands(Op::kMul, 2, 3, odd, odd, 2.0f);
  EXPECT_EQ(Get(name).trace(c, 0)[2].text,
            "times 0x1.002p-1: 0x1p+0 -> 0x1.002p-1");  // 1 + 2^-11 + 2^-24 over 2
}

TEST(PlainTest, RefusesWhatItDoesNotDefine) {
  Case c = Requantize(1, 1);
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  for (const char* name : {"plain@away", "plain@float32+away"})
    EXPECT_EQ(Get(name).cannot_run(c), "output must be codes");
  c = Operands(Op::kMul, 1, 1, 0x1p100f, 0x1p100f, 1);
  EXPECT_EQ(Get("plain@float32+away").cannot_run(c), "the multiplier must be finite");
  EXPECT_EQ(Get("plain@away").cannot_run(c), "");
  c.op = Op::kMaxPool;
  EXPECT_EQ(Get("plain@away").cannot_run(c), "this convention has no max_pool");
}

}  // namespace
}  // namespace qualm
