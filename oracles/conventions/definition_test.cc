// SPDX-License-Identifier: Apache-2.0
// Conventions made of steps for this test alone: what a definition makes of its parts, and when the
// ends of a range of inputs enclose the codes between them. Real steps meet few of these edges; a
// new family's steps may.
#include "oracles/conventions/definition.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/steps.h"

namespace qualm::conventions {
namespace {

template <class T>
Tensor Rows(int64_t rows, const std::vector<T>& values) {
  return Tensor::Of<T>({rows, static_cast<int64_t>(values.size()) / rows}, values);
}
Tensor Bytes(int64_t rows, const std::vector<uint8_t>& codes) { return Rows(rows, codes); }

Case Row(Op op, Tensor x) {
  Case c = CaseOver(op, std::move(x), DType::kU8);
  if (op == Op::kRequantize) c.multiplier = {1.0f};
  return c;
}
Case Reals(const std::vector<float>& x) { return Row(Op::kQuantize, Rows(1, x)); }
Case Sums32(const std::vector<int32_t>& x) { return Row(Op::kRequantize, Rows(1, x)); }

Definition Of(const std::vector<Step>& steps) {
  Definition definition;
  definition.name = "made up";
  definition.ops = {Op::kQuantize, Op::kRequantize};
  definition.cannot_run = [](const Case&) { return std::string(); };
  definition.channel = [](const Case&, int64_t) { return Channel(); };
  definition.steps = [steps](const Case&) { return steps; };
  return definition;
}

// The codes between the ends, {-1, -1} where nothing is known.
std::pair<int32_t, int32_t> Between(const Definition& definition, const Case& ends) {
  const std::optional<CodeRange> codes = MakeConvention(definition).enclose(ends);
  return codes ? std::pair(codes->min, codes->max) : std::pair(-1, -1);
}
std::pair<int32_t, int32_t> Between(const std::vector<Step>& steps, const Case& ends) {
  return Between(Of(steps), ends);
}
constexpr std::pair<int32_t, int32_t> kNothing{-1, -1};
std::pair<int32_t, int32_t> Codes(int32_t min, int32_t max) { return {min, max}; }

// Steps from reals to codes. The number is under 256 in each test.
void ToCode(Value& v, const Channel&) { v.SetInt(static_cast<int64_t>(v.number)); }
constexpr Step kToCode{Stage::kRound, "to a code", ToCode, Rise::kAlways};
// Departs from the exact value, and rises all the same.
constexpr Step kFloor{Stage::kRound, "floor",
                      [](Value& v, const Channel&) {
                        v.SetReal(std::floor(v.number));
                        v.lossy = true;
                      },
                      Rise::kAlways};
constexpr Step kKeepsLossy{Stage::kRound, "never lossy", [](Value&, const Channel&) {},
                           Rise::kUnlessLossy};
// A conversion as cvttps2dq has it for bytes: what does not fit, and NaN, gives one number.
constexpr Step kToByte{Stage::kRound, "to a byte, else 0",
                       [](Value& v, const Channel&) {
                         v.lossy = !(v.number >= -128 && v.number < 128);
                         v.SetInt(v.lossy ? 0 : 100 + static_cast<int64_t>(v.number));
                       },
                       Rise::kUnlessLossy};
constexpr Step kWrapToByte{Stage::kRound, "modulo 256",
                           [](Value& v, const Channel&) {
                             v.lossy = v.integer < 0 || v.integer > 255;
                             v.SetInt(v.integer & 255);
                           },
                           Rise::kUnlessLossy};

TEST(Enclose, TakesTheResultsOfTheEnds) {
  EXPECT_EQ(Between({kFloor, kToCode}, Reals({1.5f, 7.5f})), Codes(1, 7));
  // The ends of one code are that code.
  EXPECT_EQ(Between({kFloor, kToCode}, Reals({1.5f, 1.5f})), Codes(1, 1));
  EXPECT_EQ(Between({kWrapToByte}, Sums32({3, 255})), Codes(3, 255));
}

TEST(Enclose, NothingIsKnownOfAStepThatMayFall) {
  constexpr Step kUnknown{Stage::kRound, "as it likes", [](Value&, const Channel&) {}};
  EXPECT_EQ(Between({kFloor, kUnknown, kToCode}, Reals({1.5f, 7.5f})), kNothing);
  // Not even of one input: the step might tell the zeros apart.
  EXPECT_EQ(Between({kUnknown, kToCode}, Reals({1.5f, 1.5f})), kNothing);
}

// Products with these rise if they are positive and finite.
TEST(Enclose, NothingIsKnownOfAFactorThatTurnsTheOrder) {
  for (float Channel::* const factor :
       {&Channel::multiplier, &Channel::reciprocal, &Channel::scale}) {
    for (const float value : {0.0f, -1.0f, INFINITY, std::nanf("")}) {
      Definition definition = Of({kToCode});
      definition.channel = [=](const Case&, int64_t) {
        Channel channel;
        channel.*factor = value;
        return channel;
      };
      EXPECT_EQ(Between(definition, Reals({1.0f, 2.0f})), kNothing) << value;
    }
  }
}

// A lossy conversion gives one number for all that does not fit, on both sides.
TEST(Enclose, BothEndsOnOneSideOfALossyStep) {
  EXPECT_EQ(Between({kToByte}, Reals({-5.0f, 5.0f})), Codes(95, 105));
  EXPECT_EQ(Between({kToByte}, Reals({200.0f, 300.0f})), Codes(0, 0));
  EXPECT_EQ(Between({kToByte}, Reals({-300.0f, -200.0f})), Codes(0, 0));
  EXPECT_EQ(Between({kToByte}, Reals({-300.0f, 300.0f})), kNothing) << "100 lies between";
  EXPECT_EQ(Between({kToByte}, Reals({5.0f, 300.0f})), kNothing);
  EXPECT_EQ(Between({kToByte}, Reals({-300.0f, 5.0f})), kNothing);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Between({kToByte}, Reals({nan, -std::nanf("7")})), Codes(0, 0)) << "every NaN is one";
}

TEST(Enclose, ZeroIsNeverTooLarge) {
  // Lossy but for numbers near 1 in size: an end at 0 says nothing of the numbers beside it.
  constexpr Step kNearOne{Stage::kRound, "1 near 1",
                          [](Value& v, const Channel&) {
                            const float size = std::fabs(v.number);
                            v.lossy = !(size >= 1 && size < 2);
                            v.SetInt(v.lossy ? 0 : 1);
                          },
                          Rise::kUnlessLossy};
  EXPECT_EQ(Between({kNearOne}, Reals({0.0f, 5.0f})), kNothing);
  EXPECT_EQ(Between({kNearOne}, Reals({-5.0f, 0.0f})), kNothing);
  EXPECT_EQ(Between({kNearOne}, Reals({5.0f, 9.0f})), Codes(0, 0));
}

TEST(Enclose, LossyEndsOfTwoResults) {
  // Saturates, and says so: 128 and 129 are no one result.
  constexpr Step kTwoResults{Stage::kRound, "128, 129 from 1000",
                             [](Value& v, const Channel&) {
                               v.lossy = v.number >= 128;
                               v.SetInt(v.number >= 1000 ? 129 : v.lossy ? 128 : 0);
                             },
                             Rise::kUnlessLossy};
  EXPECT_EQ(Between({kTwoResults}, Reals({200.0f, 2000.0f})), kNothing);
  EXPECT_EQ(Between({kTwoResults}, Reals({200.0f, 300.0f})), Codes(128, 128));
  // The lower end fits, and gives what numbers that do not fit give.
  constexpr Step kFive{Stage::kRound, "5 for all that does not fit",
                       [](Value& v, const Channel&) {
                         v.lossy = v.number >= 128;
                         v.SetInt(v.lossy ? 5 : static_cast<int64_t>(v.number));
                       },
                       Rise::kUnlessLossy};
  EXPECT_EQ(Between({kFive}, Reals({5.0f, 300.0f})), kNothing) << "100 lies between";
}

// An integer keeps the number that it was made of: that number says nothing of its sign.
TEST(Enclose, WrappedIntegersAreOnNoSide) {
  EXPECT_EQ(Between({kWrapToByte}, Sums32({300, 556})), kNothing) << "both are 44 modulo 256";
  constexpr Step kToInteger{
      Stage::kRound, "to an integer",
      [](Value& v, const Channel&) { v.SetInt(static_cast<int64_t>(v.number)); }, Rise::kAlways};
  EXPECT_EQ(Between({kToInteger, kWrapToByte}, Reals({300.0f, 556.0f})), kNothing);
  EXPECT_EQ(Between({kToInteger, kWrapToByte}, Reals({-556.0f, -300.0f})), kNothing);
}

// Only the step itself counts: what a step before it lost does not.
TEST(Enclose, EachStepIsLossyForItself) {
  EXPECT_EQ(Between({kFloor, kKeepsLossy, kToCode}, Reals({1.5f, 7.5f})), Codes(1, 7));
}

TEST(Enclose, EndsAreOneOnlyIfAllBitsAre) {
  constexpr Step kLossy{Stage::kRound, "0, lossy",
                        [](Value& v, const Channel&) {
                          v.SetInt(0);
                          v.lossy = true;
                        },
                        Rise::kUnlessLossy};
  EXPECT_EQ(Between({kLossy}, Reals({0.0f, 0.0f})), Codes(0, 0));
  EXPECT_EQ(Between({kLossy}, Reals({-0.0f, 0.0f})), kNothing);
  EXPECT_EQ(Between({kLossy}, Sums32({4, 4})), Codes(0, 0));
  EXPECT_EQ(Between({kLossy}, Sums32({4, 5})), kNothing);
  // inf - inf
  constexpr Step kMinusItself{Stage::kScale, "x - x",
                              [](Value& v, const Channel&) { v.SetReal(v.number - v.number); },
                              Rise::kAlways};
  EXPECT_EQ(Between({kMinusItself, kLossy}, Reals({1.0f, INFINITY})), kNothing)
      << "NaN and a number";
  EXPECT_EQ(Between({kMinusItself, kLossy}, Reals({-INFINITY, 1.0f})), kNothing)
      << "NaN and a number";
  // Where is_wide is set, `number` must not be compared.
  constexpr Step kWiden{Stage::kScale, "to float64",
                        [](Value& v, const Channel&) { v.SetWide(static_cast<double>(v.integer)); },
                        Rise::kAlways};
  EXPECT_EQ(Between({kWiden, kLossy}, Sums32({4, 5})), kNothing);
  // One end wide, or one end real: these never are one.
  constexpr Step kWidenOne{Stage::kScale, "5 and more to float64",
                           [](Value& v, const Channel&) {
                             if (v.integer >= 5) return v.SetWide(5);
                             v.SetReal(0);
                           },
                           Rise::kAlways};
  EXPECT_EQ(Between({kWidenOne, kLossy}, Sums32({4, 5})), kNothing);
  EXPECT_EQ(Between({kWidenOne, kLossy}, Sums32({4, 4})), Codes(0, 0));
  constexpr Step kWidenOther{Stage::kScale, "4 and less to float64",
                             [](Value& v, const Channel&) {
                               if (v.integer <= 4) return v.SetWide(4);
                               v.SetReal(0);
                             },
                             Rise::kAlways};
  EXPECT_EQ(Between({kWidenOther, kLossy}, Sums32({4, 5})), kNothing);
  constexpr Step kRealFromFive{Stage::kScale, "5 and more to float32",
                               [](Value& v, const Channel&) {
                                 if (v.integer >= 5) v.SetReal(0);
                                 v.integer = 0;
                               },
                               Rise::kAlways};
  EXPECT_EQ(Between({kRealFromFive, kLossy}, Sums32({4, 5})), kNothing);
  constexpr Step kRealToFour{Stage::kScale, "4 and less to float32",
                             [](Value& v, const Channel&) {
                               if (v.integer <= 4) v.SetReal(0);
                               v.integer = 0;
                             },
                             Rise::kAlways};
  EXPECT_EQ(Between({kRealToFour, kLossy}, Sums32({4, 5})), kNothing);
}

TEST(Enclose, OnlyCodes) {
  EXPECT_EQ(Between({kFloor}, Reals({1.5f, 7.5f})), kNothing) << "both ends are real";
  constexpr Step kLowerToCode{Stage::kRound, "under 4 to a code",
                              [](Value& v, const Channel& channel) {
                                if (v.number < 4) ToCode(v, channel);
                              },
                              Rise::kAlways};
  EXPECT_EQ(Between({kLowerToCode}, Reals({1.5f, 7.5f})), kNothing) << "the last is real";
  constexpr Step kUpperToCode{Stage::kRound, "from 4 to a code",
                              [](Value& v, const Channel& channel) {
                                if (v.number >= 4) ToCode(v, channel);
                              },
                              Rise::kAlways};
  EXPECT_EQ(Between({kUpperToCode}, Reals({1.5f, 7.5f})), kNothing) << "the first is real";
  Case ends = Reals({1.5f, 7.5f});
  ends.out_dtype = DType::kF32;
  EXPECT_EQ(Between({kToCode}, ends), kNothing);
  ends = Reals({1.5f, 7.5f});
  ends.per_channel = true;
  ends.out_q = {{1.0f, 1.0f}, {0, 0}};
  EXPECT_EQ(Between({kToCode}, ends), kNothing);
  ends = Row(Op::kRescale, Bytes(1, {1, 7}));
  EXPECT_EQ(Between({kWrapToByte}, ends), kNothing);
}

constexpr Step kAdd100{Stage::kZeroPoint, "+ 100",
                       [](Value& v, const Channel&) { v.SetInt(v.integer + 100); }, Rise::kAlways};

// An input may be one of the tail of a vector loop as well.
TEST(Enclose, TheTailCountsToo) {
  Definition definition = Of({kWrapToByte});
  definition.body = [](const Case&) { return int64_t{1}; };
  definition.tail_steps = [](const Case&) { return std::vector<Step>{kWrapToByte, kAdd100}; };
  EXPECT_EQ(Between(definition, Sums32({3, 9})), Codes(3, 109));
  definition.body = [](const Case& c) { return c.M * c.N; };
  definition.tail_steps = nullptr;
  EXPECT_EQ(Between(definition, Sums32({3, 9})), Codes(3, 9)) << "there is no tail";
}

TEST(Definition, TheTailHasStepsOfItsOwn) {
  Definition definition = Of({kWrapToByte});
  definition.body = [](const Case&) { return int64_t{3}; };
  definition.tail_steps = [](const Case&) { return std::vector<Step>{kWrapToByte, kAdd100}; };
  const Convention convention = MakeConvention(definition);
  Case c = Sums32({1, 2, 3, 4, 5, 6});
  c.M = 2;
  c.N = 3;
  c.x = Rows<int32_t>(2, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(convention.run(c).y, Bytes(2, {1, 2, 3, 104, 105, 106}));
  EXPECT_EQ(convention.trace(c, 2).size(), 1u);
  ASSERT_EQ(convention.trace(c, 3).size(), 2u);
  EXPECT_EQ(convention.trace(c, 3)[1].text, "+ 100: 4 -> 104");
  EXPECT_EQ(convention.trace(c, 3)[1].value, "104");
}

// Steps know which element they work on: kernels whose tail differs ask.
TEST(Definition, StepsKnowTheirElement) {
  constexpr Step kWhere{Stage::kAccumulate, "where", [](Value& v, const Channel& channel) {
                          const Channel::Element& e = channel.element;
                          v.SetInt(e.count * 10 + e.columns + e.index * 20);
                        }};
  const Convention convention = MakeConvention(Of({kWhere}));
  Case c = Sums32({0});
  c.M = 2;
  c.N = 2;
  c.x = Tensor(DType::kS32, {2, 2});
  // 4 elements in rows of 2
  EXPECT_EQ(convention.run(c).y, Bytes(2, {42, 62, 82, 102}));
  EXPECT_EQ(convention.trace(c, 3)[0].value, "102");
}

// A convention that does not say how it adds may have operations with sums too: its gatherer brings
// what the steps begin with.
TEST(Definition, AGathererWithoutSums) {
  Definition definition = Of({kWrapToByte});
  definition.ops = {Op::kLinear};
  definition.gather = [](const Case& c) {
    return EachAlone(c, [](const Case&, int64_t index, Trace* trace) {
      Value value;
      value.SetInt(40 + index);
      Note(trace, Stage::kAccumulate, "40 and its index", ValueText(value), false);
      return value;
    });
  };
  const Convention convention = MakeConvention(definition);
  Case c = Row(Op::kLinear, Bytes(1, {9}));
  c.K = 1;
  c.N = 2;
  c.w = Rows<int8_t>(2, {1, 2});
  const ConventionOutput output = convention.run(c);
  EXPECT_EQ(output.y, Bytes(1, {40, 41}));
  EXPECT_FALSE(output.acc) << "there are no accumulators";
  ASSERT_EQ(convention.trace(c, 1).size(), 2u);
  EXPECT_EQ(convention.trace(c, 1)[0].value, "41");
}

TEST(Definition, RefusesWhatItHasNot) {
  const Convention convention = MakeConvention(Of({kToCode}));
  EXPECT_EQ(convention.cannot_run(Reals({1.0f})), "");
  EXPECT_EQ(convention.cannot_run(Row(Op::kRescale, Bytes(1, {1}))),
            "this convention has no rescale");
  Case c = Sums32({1});
  c.requant = Requant::kFloat32;
  EXPECT_EQ(convention.cannot_run(c), "a model has no requantization mode, the case asks for " +
                                          std::string(Name(c.requant)));
}

// One convention for two operations, each with its own claims and its own answers.
TEST(Definition, AddedOperationsAnswerForThemselves) {
  Definition first = Of({kWrapToByte});
  first.ops = {Op::kRequantize};
  first.satisfies = {"row_independence"};
  first.variations = {"V10", "V2"};
  Definition second = Of({kFloor, kToCode});
  second.ops = {Op::kQuantize};
  second.satisfies = {"monotone"};
  second.variations = {"V3", "V2"};
  Convention both = MakeConvention(first);
  AddOperation(both, MakeConvention(second));
  EXPECT_EQ(both.ops, (std::vector<Op>{Op::kRequantize, Op::kQuantize}));
  EXPECT_EQ(both.satisfies, (std::vector<std::string>{"row_independence", "quantize.monotone"}));
  EXPECT_EQ(both.variations, (std::vector<std::string>{"V2", "V3", "V10"}));
  EXPECT_EQ(both.run(Reals({2.5f})).y, Bytes(1, {2}));
  EXPECT_EQ(both.run(Sums32({4})).y, Bytes(1, {4}));
  EXPECT_EQ(both.trace(Reals({2.5f}), 0).size(), 2u);
  EXPECT_EQ(both.trace(Sums32({4}), 0).size(), 1u);
  EXPECT_EQ(both.cannot_run(Reals({2.5f})), "");
  ASSERT_TRUE(both.enclose(Reals({2.5f, 3.5f})));
  EXPECT_EQ(both.enclose(Reals({2.5f, 3.5f}))->max, 3);
  ASSERT_TRUE(both.enclose(Sums32({4, 6})));
  EXPECT_EQ(both.enclose(Sums32({4, 6}))->max, 6);
}

}  // namespace
}  // namespace qualm::conventions
