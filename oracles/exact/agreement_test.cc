// SPDX-License-Identifier: Apache-2.0
// The two exact forms, which share no arithmetic, against each other over the whole domain.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "core/float_format.h"
#include "core/float_text.h"
#include "core/random_case_test_util.h"
#include "core/rng.h"
#include "core/scaled_cast.h"
#include "core/slice.h"
#include "oracles/exact/arithmetic/real.h"
#include "oracles/exact/definition.h"
#include "oracles/exact/dynamic_linear.h"
#include "oracles/exact/evaluate.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/meanings.h"

namespace qualm::exact {
namespace {

using test::RandomCase;

std::string Print(const Case& c, int64_t index) {
  std::string text = Describe(c) + " clamp [" + std::to_string(c.out_min) + "," +
                     std::to_string(c.out_max) + "] real " + RealValueText(c, index) + "\n";
  for (const TraceStep& step : Derive(c, index)) {
    text += std::string(Name(step.stage)) + ": " + step.text + "\n";
  }
  return text;
}

// Counts of the outputs that a batch of cases reached. They make the test fail if a generator stops
// drawing interesting cases.
struct Reached {
  int outputs = 0;
  int ties = 0;
  int near_ties = 0;
  int inside = 0;  // codes strictly inside the clamp
  int far = 0;
  int denormal = 0;
  int infinite = 0;
  int differ = 0;  // from the exact mode
};

// The stages agree with the fast form, and `rest` says on which side of its integer a value is.
void CompareStages(const Case& c) {
  const Integers integers = IntegersOf(c);
  EXPECT_EQ(EvaluateFrom(c, integers), Evaluate(c)) << Describe(c);
  if (!IsCode(c.out_dtype) || c.requant != Requant::kExact) return;
  const Outputs outputs(c, integers);
  for (int64_t at = 0; at < c.M * c.N; ++at) {
    const Code code = outputs.CodeAt(at / c.N, at % c.N);
    const std::optional<Rational> value = RealValue(c, at / c.N, at % c.N);
    if (!value || !code.tie_distance) continue;
    const auto rounded = static_cast<int64_t>(code.value - c.out_q.zero_point_at(at % c.N));
    EXPECT_EQ(code.rest, value->compare(Rational(rounded))) << Print(c, at);
  }
}

Reached Compare(Op op, int cases, uint64_t seed, Requant requant = Requant::kExact,
                Case (RandomCase::*draws)(Op) = &RandomCase::Draw) {
  RandomCase draw(seed);
  Reached reached;
  for (int i = 0; i < cases; ++i) {
    Case c = (draw.*draws)(op);
    if (requant != Requant::kExact) {
      if (!IsCode(c.out_dtype) || c.bias) continue;
      c.requant = requant;
    }
    EXPECT_EQ("", Validate(c)) << Describe(c);
    const Tensor fast = Evaluate(c);
    const Tensor naive = EvaluateRational(c);
    EXPECT_EQ(fast.shape(), c.output_shape());
    EXPECT_EQ(fast.dtype(), c.out_dtype);
    if (i % 4 == 0 && c.op != Op::kChooseQParams && c.op != Op::kCast) CompareStages(c);
    for (int64_t at = 0; at < naive.size(); ++at) {
      EXPECT_EQ(naive.BitsAt(at), fast.BitsAt(at)) << "case " << i << " at " << at << "\n"
                                                   << Print(c, at);
      if (testing::Test::HasFailure()) return reached;
      ++reached.outputs;
      if (c.out_dtype == DType::kF32) {
        const float y = naive.FloatAt(at);
        reached.denormal += y != 0 && std::fpclassify(y) == FP_SUBNORMAL ? 1 : 0;
        reached.infinite += std::isinf(y) ? 1 : 0;
        continue;
      }
      const int32_t y = naive.IntAt(at);
      reached.inside += y > LowerBound(c, at % c.N) && y < c.out_max ? 1 : 0;
      const std::optional<double> tie = TieDistance(c, at);
      reached.ties += tie == 0.0 ? 1 : 0;
      reached.near_ties += tie && *tie > 0 && *tie < 1e-5 ? 1 : 0;
      if (requant != Requant::kExact) {
        EXPECT_EQ(std::to_string(y), Derive(c, at).back().value) << Print(c, at);
        Case exact = c;
        exact.requant = Requant::kExact;
        reached.differ += y != Evaluate(slice::OneOutput(exact, at)).IntAt(0) ? 1 : 0;
      }
      reached.far += IsCode(c.out_dtype) && !tie ? 1 : 0;
    }
  }
  return reached;
}

TEST(Agreement, Quantize) {
  const Reached reached = Compare(Op::kQuantize, 6000, 1);
  EXPECT_GT(reached.ties, 500);
  EXPECT_GT(reached.near_ties, 100);
  EXPECT_GT(reached.inside, 2000);
  EXPECT_GT(reached.far, 200);
}

TEST(Agreement, Dequantize) {
  const Reached reached = Compare(Op::kDequantize, 6000, 2);
  EXPECT_GT(reached.outputs, 10000);
  EXPECT_GT(reached.denormal, 100);
  EXPECT_GT(reached.infinite, 100);
}

TEST(Agreement, Requantize) {
  const Reached reached = Compare(Op::kRequantize, 10000, 3);
  EXPECT_GT(reached.ties, 500);
  EXPECT_GT(reached.inside, 2000);
  EXPECT_GT(reached.far, 200);
}

TEST(Agreement, Linear) {
  const Reached reached = Compare(Op::kLinear, 30000, 4);
  EXPECT_GT(reached.ties, 300);
  EXPECT_GT(reached.near_ties, 20);
  EXPECT_GT(reached.inside, 2000);
  EXPECT_GT(reached.far, 500);
  EXPECT_GT(reached.denormal, 20);
  EXPECT_GT(reached.infinite, 100);
}

TEST(Agreement, ScaledCasts) {
  RandomCase draw(49);
  int64_t outputs = 0, inexact = 0, exact = 0, subnormal = 0;
  for (int i = 0; i < 20000; ++i) {
    const Case c = draw.DrawScaledCast();
    ASSERT_EQ(Validate(c), "") << Describe(c);
    const Tensor fast = Evaluate(c), naive = EvaluateRational(c);
    for (int64_t at = 0; at < fast.size(); ++at, ++outputs) {
      ASSERT_EQ(fast.BitsAt(at), naive.BitsAt(at)) << Print(c, at);
      (QuotientOf(c, at).exact ? exact : inexact) += 1;
      const uint32_t code = fast.BitsAt(at) & ~SignOf(c.out_dtype);
      subnormal += code != 0 && code < 1u << InfoOf(c.out_dtype).floating.fraction_bits ? 1 : 0;
    }
  }
  EXPECT_GT(outputs, 50000);
  EXPECT_GT(inexact, 20000);
  EXPECT_GT(exact, 10000);
  EXPECT_GT(subnormal, 500);
}

TEST(Agreement, WeightsInBlocks) {
  const Reached linear =
      Compare(Op::kLinear, 20000, 44, Requant::kExact, &RandomCase::DrawInBlocks);
  EXPECT_GT(linear.ties, 100);
  EXPECT_GT(linear.near_ties, 20);
  EXPECT_GT(linear.inside, 2000);
  EXPECT_GT(linear.far, 500);
  EXPECT_GT(linear.denormal, 20);
  EXPECT_GT(linear.infinite, 100);
  const Reached dynamic =
      Compare(Op::kDynamicLinear, 4000, 45, Requant::kExact, &RandomCase::DrawInBlocks);
  EXPECT_GT(dynamic.outputs, 4000);
}

TEST(Agreement, LinearOfFloats) {
  RandomCase draw(47);
  int64_t outputs = 0, denormal = 0, infinite = 0;
  for (int i = 0; i < 20000; ++i) {
    const Case c = draw.DrawFloatX();
    ASSERT_EQ(Validate(c), "") << Describe(c);
    const Tensor y = Evaluate(c);
    ASSERT_EQ(y, EvaluateRational(c)) << Describe(c);
    for (const float value : y.as<float>()) {
      ++outputs;
      denormal += value != 0 && !std::isnormal(value) && std::isfinite(value) ? 1 : 0;
      infinite += std::isinf(value) ? 1 : 0;
    }
  }
  EXPECT_GT(outputs, 20000);
  EXPECT_GT(denormal, 20);
  EXPECT_GT(infinite, 100);
}

// Codes that stand for their real numbers are the same as these numbers.
TEST(Agreement, CodesAreTheirRealNumbers) {
  RandomCase draw(48);
  int same = 0;
  for (int i = 0; i < 4000; ++i) {
    Case c = i % 2 == 0 ? draw.Draw(Op::kLinear) : draw.DrawInBlocks(Op::kLinear);
    c.bias_i32.reset();
    c.x_block = 0;
    c.out_dtype = DType::kF32;
    OpenClamp(&c);
    c.x_q = {{0x1p-7f}, {c.x_q.zero_point[0] % 4096}};
    if (!Validate(c).empty()) continue;
    Case floats = c;
    floats.x_q = QParams{};
    floats.x = Tensor(DType::kF32, c.x.shape());
    for (int64_t at = 0; at < c.x.size(); ++at)
      floats.x.as<float>()[static_cast<size_t>(at)] =
          static_cast<float>(c.x.IntAt(at) - c.x_q.zero_point[0]) * 0x1p-7f;
    ASSERT_EQ(Validate(floats), "");
    ASSERT_EQ(Evaluate(floats), Evaluate(c)) << Describe(c);
    for (int64_t at = 0; at < c.M * c.N; ++at)
      ASSERT_EQ(RealValueText(floats, at), RealValueText(c, at)) << Describe(c);
    ++same;
  }
  EXPECT_GT(same, 3000);
}

// Blocks with the scale and zero point of their channel, and of x, are no blocks.
TEST(Agreement, EqualBlocksAreNone) {
  RandomCase draw(46);
  for (int i = 0; i < 2000; ++i) {
    Case c = draw.DrawInBlocks(Op::kLinear);
    const Case plain = slice::WithoutBlocks(c);
    const int64_t blocks = RowBlocks(c);
    for (int64_t j = 0; j < c.N * blocks; ++j) {
      c.w_q.scale[static_cast<size_t>(j)] = plain.w_q.scale_at(j / blocks);
      c.w_q.zero_point[static_cast<size_t>(j)] = plain.w_q.zero_point_at(j / blocks);
    }
    std::ranges::fill(c.x_q.scale, plain.x_q.scale[0]);
    std::ranges::fill(c.x_q.zero_point, plain.x_q.zero_point[0]);
    ASSERT_EQ(Evaluate(c), Evaluate(plain)) << Describe(c);
    for (int64_t at = 0; at < c.M * c.N; ++at) {
      ASSERT_EQ(RealValueText(c, at), RealValueText(plain, at)) << Describe(c);
      const std::optional<double> tie = TieDistance(c, at), wanted = TieDistance(plain, at);
      ASSERT_EQ(tie.has_value(), wanted.has_value()) << Describe(c);
      ASSERT_EQ(tie == 0.0, wanted == 0.0) << Describe(c);
      ASSERT_NEAR(tie.value_or(0), wanted.value_or(0), 1e-9) << Describe(c);
    }
  }
}

TEST(Agreement, RequantizationModes) {
  for (const Requant requant : {Requant::kFloat32, Requant::kFixedQ31, Requant::kFixedRndnu}) {
    SCOPED_TRACE(Name(requant));
    for (const Op op : {Op::kRequantize, Op::kLinear, Op::kConv2d, Op::kDepthwise}) {
      SCOPED_TRACE(Name(op));
      const Reached reached = Compare(op, 1500, 50, requant);
      EXPECT_GT(reached.ties, 20);
      EXPECT_GT(reached.inside, 150);
      EXPECT_GT(reached.far, 15);
      EXPECT_GT(reached.differ, 5);
    }
  }
}

TEST(Agreement, Conv2d) {
  const Reached reached = Compare(Op::kConv2d, 6000, 7);
  EXPECT_GT(reached.ties, 300);
  EXPECT_GT(reached.inside, 2000);
  EXPECT_GT(reached.far, 500);
  EXPECT_GT(reached.denormal, 20);
  EXPECT_GT(reached.infinite, 100);
}

TEST(Agreement, Depthwise) {
  const Reached reached = Compare(Op::kDepthwise, 6000, 8);
  EXPECT_GT(reached.ties, 300);
  EXPECT_GT(reached.inside, 2000);
  EXPECT_GT(reached.far, 500);
  EXPECT_GT(reached.denormal, 20);
  EXPECT_GT(reached.infinite, 100);
}

TEST(Agreement, Add) {
  const Reached reached = Compare(Op::kAdd, 10000, 9);
  EXPECT_GT(reached.ties, 500);
  EXPECT_GT(reached.near_ties, 20);
  EXPECT_GT(reached.inside, 2000);
  EXPECT_GT(reached.far, 200);
}

TEST(Agreement, Mul) {
  const Reached reached = Compare(Op::kMul, 10000, 10);
  EXPECT_GT(reached.ties, 500);
  EXPECT_GT(reached.inside, 2000);
  EXPECT_GT(reached.far, 200);
}

TEST(Agreement, Rescale) {
  const Reached reached = Compare(Op::kRescale, 10000, 11);
  EXPECT_GT(reached.ties, 500);
  EXPECT_GT(reached.inside, 2000);
  EXPECT_GT(reached.far, 200);
}

TEST(Agreement, Concat) {
  const Reached reached = Compare(Op::kConcat, 10000, 16);
  EXPECT_GT(reached.ties, 500);
  EXPECT_GT(reached.inside, 2000);
  EXPECT_GT(reached.far, 200);
}

TEST(Agreement, Table) {
  const Reached reached = Compare(Op::kTable, 10000, 17);
  EXPECT_GT(reached.ties, 150);
  EXPECT_GT(reached.near_ties, 50);
  EXPECT_GT(reached.inside, 2000);
  EXPECT_GT(reached.far, 200);
}

TEST(Agreement, Softmax) {
  const Reached reached = Compare(Op::kSoftmax, 3000, 18);
  EXPECT_GT(reached.inside, 2000);
  EXPECT_EQ(reached.far, 0);
  // Rows so long that their numerators share 2^32.
  RandomCase draw(19);
  Rng rng(20);
  for (int i = 0; i < 200; ++i) {
    Case c = draw.Draw(Op::kSoftmax);
    c.M = 1;
    c.N = rng.Between(505, 530);
    c.x = Tensor(c.x.dtype(), {1, c.N});
    const int64_t width = rng.Between(0, 255);
    for (int64_t at = 0; at < c.N; ++at) {
      c.x.SetInt(at, RangeOf(c.x.dtype()).min + static_cast<int32_t>(rng.Between(0, width)));
    }
    ASSERT_EQ(Validate(c), "");
    ASSERT_EQ(Evaluate(c), EvaluateRational(c)) << Describe(c);
  }
}

TEST(Agreement, AvgPool) {
  const Reached reached = Compare(Op::kAvgPool, 6000, 12);
  EXPECT_GT(reached.ties, 500);
  EXPECT_GT(reached.inside, 2000);
  EXPECT_GT(reached.far, 200);
}

TEST(Agreement, GlobalAvgPool) {
  const Reached reached = Compare(Op::kGlobalAvgPool, 6000, 13);
  EXPECT_GT(reached.ties, 100);
  EXPECT_GT(reached.inside, 1000);
  EXPECT_GT(reached.far, 200);
}

TEST(Agreement, MaxPool) {
  const Reached reached = Compare(Op::kMaxPool, 6000, 14);
  EXPECT_GT(reached.inside, 2000);
  EXPECT_EQ(reached.ties, 0);
}

TEST(Agreement, ChooseQParams) {
  const Reached reached = Compare(Op::kChooseQParams, 3000, 16);
  EXPECT_GT(reached.outputs, 6000);
}

TEST(Agreement, DynamicLinear) {
  const Reached reached = Compare(Op::kDynamicLinear, 1500, 17);
  EXPECT_GT(reached.outputs, 6000);
  EXPECT_GT(reached.infinite, 10);
  EXPECT_GT(reached.denormal, 10);
}

// The real value; if it is not rational, a rational that differs from it in the 500th bit.
std::optional<Rational> ValueOf(const Case& c, int64_t at) {
  if (!IsCode(c.out_dtype)) return std::nullopt;
  const std::optional<Rational> value = RealValue(c, at / c.N, at % c.N);
  if (value || c.op != Op::kTable) return value;
  const Rational v = RealOperand(c.x, c.x_q, at);
  return Enclose(c.function == Function::kTanh ? RealFunction::kTanh : RealFunction::kSigmoid, v,
                 500)
             .lo /
         ToRational(c.out_q.scale_at(0));
}

// The stages before the code against the definition in rationals.
TEST(Agreement, Stages) {
  RandomCase draw(6);
  int exact = 0, inexact = 0;
  for (int i = 0; i < 6000; ++i) {
    const Case c = draw.Draw(AllOps()[static_cast<size_t>(i) % AllOps().size()]);
    if (c.op == Op::kChooseQParams || c.op == Op::kCast) continue;  // have no stages
    const Outputs outputs(c);
    for (int64_t at = 0; at < c.M * c.N; ++at) {
      const int64_t m = at / c.N, n = at % c.N;
      const Real real = outputs.RealAt(m, n);
      const std::optional<Rational> value =
          IsCode(c.out_dtype) ? ValueOf(c, at) : RealValue(c, m, n);
      if (!value) {
        EXPECT_FALSE(std::isfinite(real.value)) << Print(c, at);
        continue;
      }
      const Rational error = abs(Rational(real.value) - *value);
      (real.is_exact ? exact : inexact) += 1;
      if (real.is_exact) {
        EXPECT_EQ(error, 0) << Print(c, at);
      }
      Rational terms = abs(*value) + PowerOfTwo(-40);  // e^-1000 is 0
      if (c.op != Op::kTable) {
        const Scaled scaled = outputs.ScaledAt(m, n);
        terms = abs(Rational(MultiplierOf(scaled.line)) * Rational(Integer(scaled.integer))) +
                abs(Rational(OffsetOf(scaled.line)));
      }
      EXPECT_LE(error, abs(*value) * PowerOfTwo(-51) + terms * PowerOfTwo(-60)) << Print(c, at);
      if (!IsCode(c.out_dtype)) continue;
      const Rounded rounded = outputs.RoundedAt(m, n);
      if (!rounded.tie_distance) continue;
      // Near an integer the rational of ValueOf may be the integer itself.
      if (!RealValue(c, m, n) && denominator(*value) == 1) continue;
      EXPECT_EQ(rounded.rest, value->compare(Rational(rounded.integer))) << Print(c, at);
    }
  }
  EXPECT_GT(exact, 1000);
  EXPECT_GT(inexact, 1000);
}

// TieDistance against its definition in rationals.
TEST(Agreement, TieDistance) {
  RandomCase draw(5);
  int compared = 0;
  int none = 0;
  for (int i = 0; i < 6000; ++i) {
    const Case drawn = draw.Draw(AllOps()[static_cast<size_t>(i) % AllOps().size()]);
    // The codes behind what is chosen are those of a quantize.
    const Case whole = drawn.codes ? ExactCodesCaseOf(drawn, ChooseQParams(drawn)) : drawn;
    const Case c = HasElementBlocks(whole) ? slice::BlocksAsChannels(whole) : whole;
    std::vector<std::optional<double>> all;
    if (IsCode(c.out_dtype)) all = TieDistances(c);
    for (int64_t at = 0; at < c.M * c.N; ++at) {
      const std::optional<double> distance = TieDistance(c, at);
      if (!all.empty()) EXPECT_EQ(all[static_cast<size_t>(at)], distance) << Print(c, at);
      if (drawn.codes) EXPECT_EQ(TieDistance(drawn, 2 * ChosenCount(drawn) + at), distance);
      const std::optional<Rational> value = ValueOf(c, at);
      if (!value || abs(RoundHalfEven(*value)) >= Integer(1) << 33) {
        EXPECT_FALSE(distance.has_value()) << Print(c, at);
        ++none;
        continue;
      }
      ASSERT_TRUE(distance.has_value()) << Print(c, at);
      const Rational off = *value - Rational(RoundHalfEven(*value));
      const Rational expected = 1 - 2 * abs(off);
      EXPECT_EQ(*distance == 0.0, expected == 0) << Print(c, at);
      const auto close = static_cast<double>(expected);
      EXPECT_NEAR(*distance, close, 1e-15 + 1e-9 * close) << Print(c, at);
      if (expected != 0) {
        EXPECT_GT(*distance, 0.0) << Print(c, at);
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 5000);
  EXPECT_GT(none, 5000);
}

// CorrectedSums takes the zero points out of the raw sum; the definition never puts them in.
TEST(Agreement, Sums) {
  RandomCase draw(6);
  int beyond_64_bits = 0;
  for (int i = 0; i < 3000; ++i) {
    Case c = draw.Draw(i % 2 == 0 ? Op::kLinear : i % 4 == 1 ? Op::kConv2d : Op::kDepthwise);
    c.out_dtype = DType::kS32;  // the real value of which is the sum
    c.bias.reset();
    Case plain = c;
    plain.x_q.zero_point = {0};
    for (int32_t& zero_point : plain.w_q.zero_point) zero_point = 0;
    plain.bias_i32.reset();
    const std::vector<int64_t> raw = RawSums(c);
    const std::vector<__int128> sums = CorrectedSums(c);
    const Outputs outputs(c);
    ASSERT_EQ(raw.size(), static_cast<size_t>(c.M * c.N));
    ASSERT_EQ(sums.size(), raw.size());
    for (int64_t at = 0; at < c.M * c.N; ++at) {
      const __int128 sum = sums[static_cast<size_t>(at)];
      EXPECT_EQ(Rational(raw[static_cast<size_t>(at)]), RealValue(plain, at / c.N, at % c.N));
      EXPECT_EQ(Rational(Integer(sum)), RealValue(c, at / c.N, at % c.N)) << Describe(c);
      if (sum > INT64_MAX || sum < INT64_MIN) ++beyond_64_bits;
      const Code code = outputs.CodeAt(at / c.N, at % c.N);
      EXPECT_TRUE(code.value == sum) << "nothing is clamped yet";
      EXPECT_FALSE(code.tie_distance);
      const Real real = outputs.RealAt(at / c.N, at % c.N);
      if (real.is_exact) {
        EXPECT_EQ(Rational(real.value), Rational(Integer(sum))) << "the scales are not asked";
      }
    }
  }
  EXPECT_GT(beyond_64_bits, 20);
}

// Its two stages are cases of their own, which give its outputs.
TEST(Agreement, DynamicLinearIsAQuantizeAndALinear) {
  RandomCase draw(22);
  int compared = 0;
  for (int i = 0; i < 1000; ++i) {
    const Case c = draw.Draw(Op::kDynamicLinear);
    if (c.x_gran != Granularity::kTensor) continue;
    const ChosenQParams chosen = ChosenFor(c, FiniteRange(c.x.as<float>()));
    const Case quantize = QuantizeOf(c, 0, c.M, chosen);
    ASSERT_EQ(Validate(quantize), "") << Describe(c);
    const Case linear = SumsCaseOf(c, Evaluate(quantize), chosen);
    ASSERT_EQ(Validate(linear), "") << Describe(c);
    EXPECT_EQ(Evaluate(linear), Evaluate(c)) << Describe(c);
    ++compared;
  }
  EXPECT_GT(compared, 300);
}

// What a rule of dynamic_linear chooses for values from lo to hi, as both forms show it: an
// infinite x has the last code of its side, and a weight alone shows the code.
struct Choice {
  QParamsRule rule;
  bool reduce_range;
  float lo, hi;
  float scale;
  int32_t zero_point;
};

void ExpectChoice(const Choice& choice) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Case c;
  c.op = Op::kDynamicLinear;
  c.M = 1;
  c.N = 2;
  c.K = 4;
  c.rule = choice.rule;
  c.observer.reduce_range = choice.reduce_range;
  c.x = Tensor::Of<float>({1, 4}, std::vector<float>{choice.lo, choice.hi, kInf, -kInf});
  c.w = Tensor::Of<int8_t>({2, 4}, std::vector<int8_t>{0, 0, 1, 0, 0, 0, 0, 1});
  c.w_q = {{0x1p-20f}, {0}};
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  ASSERT_EQ(Validate(c), "");
  const double unit = double{choice.scale} * 0x1p-20;
  for (const Tensor& y : {Evaluate(c), EvaluateRational(c)}) {
    EXPECT_EQ(y.FloatAt(0), static_cast<float>((255 - choice.zero_point) * unit)) << Print(c, 0);
    EXPECT_EQ(y.FloatAt(1), static_cast<float>(-choice.zero_point * unit)) << Print(c, 1);
  }
}

TEST(Agreement, RulesOfDynamicLinearChooseAtTheEdges) {
  constexpr QParamsRule kAten = QParamsRule::kAten, kOnnx = QParamsRule::kOnnx;
  constexpr float kLeast = 6.1e-5f;
  for (const Choice& choice : {Choice{kAten, false, 0, 255, 1, 0},
                               {kAten, false, -255, 0, 1, 255},
                               {kAten, false, -1, 254, 1, 1},
                               {kAten, false, -0.5f, 254.5f, 1, 0},  // half to even
                               {kAten, false, -1.5f, 253.5f, 1, 2},
                               {kAten, true, -127, 0, 1, 127},
                               {kAten, true, -27, 100, 1, 27},
                               // From 6.1e-5 on the range is wide enough.
                               {kAten, false, -3, 253.5f, 256.5f / 255, 3},
                               {kAten, false, -0x1p-6f, 0, 0x1p-6f / 255, 255},
                               {kAten, false, -0x1p-7f, 0, kLeast, 255},
                               {kAten, false, 0, 0x1p-7f, kLeast, 0},
                               {kAten, true, -0x1p-7f, 0, 0x1p-7f / 127, 127},
                               {kAten, true, -0x1p-8f, 0, kLeast, 127},
                               {kAten, false, -1e-3f, 3e-3f, kLeast, 64},  // 63.75
                               {kAten, false, -0x1p-100f, 0x1p-100f * 3, kLeast, 64},
                               // A scale of 0 in float32, or with an infinite reciprocal.
                               {kAten, false, 0, 0, 0.1f, 0},
                               {kAten, false, 0, 0x1p-149f, 0.1f, 0},
                               {kAten, false, -0x1p-122f, 0, 0.1f, 0},
                               {kAten, false, -0x1p-119f, 0, kLeast, 255},
                               {kAten, false, -FLT_MAX, FLT_MAX, FLT_MAX / 127.5f, 128},
                               // In float64 the width is 255 * (2^24 + 253), with 54 bits a bit
                               // more: the scale is a tie of float32 and goes to even.
                               {kAten, false, -0x1.800002p1f, 4278254592.0f, 0x1.0000fcp24f, 0},
                               {kOnnx, false, 0, 0, 1, 0},
                               {kOnnx, false, 0, 0x1p-149f, 0x1p-149f, 0},
                               {kOnnx, false, -0x1p-149f, 0, 0x1p-149f, 1},
                               {kOnnx, false, -255, 0, 1, 255},
                               {kOnnx, false, -1e-3f, 3e-3f, (3e-3f + 1e-3f) / 255, 64},
                               {kOnnx, false, -0.5f, 254.5f, 1, 0},
                               // An infinite scale, and what becomes of it.
                               {kOnnx, false, -FLT_MAX, FLT_MAX, FLT_MAX, 0},
                               {QParamsRule::kObserver, false, -FLT_MAX, FLT_MAX, FLT_MAX, 0}}) {
    ExpectChoice(choice);
  }
}

// Unless RequantMayOverflow says yes, each code of a mode lies next to the real value of its
// accumulator, as in the modes that saturate.
TEST(Agreement, OnlyAModeThatMayOverflowIsFarFromTheRealValue) {
  RandomCase draw(21);
  int far = 0;
  int near = 0;
  for (int i = 0; i < 12000; ++i) {
    Case c = draw.Draw(i % 2 == 0 ? Op::kRequantize : Op::kLinear);
    if (!IsCode(c.out_dtype) || c.bias) continue;
    c.requant = i % 4 < 2 ? Requant::kFloat32 : Requant::kFixedQ31;
    const bool may_overflow = RequantMayOverflow(c);
    for (int64_t at = 0; at < c.M * c.N; ++at) {
      const int64_t n = at % c.N;
      const Rational unit = c.multiplier.empty()
                                ? ToRational(c.x_q.scale_at(0)) * ToRational(c.w_q.scale_at(n))
                                : Rational(1);
      if (unit < PowerOfTwo(-126)) continue;  // float32 rounds it to a denormal, or to 0
      const Integer sum = std::clamp<Integer>(
          MeaningOf(c.op).definition.accumulator(c, at / c.N, n), INT32_MIN, INT32_MAX);
      const Rational real = Rational(sum) * RealMultiplier(c, n);
      const Rational code(Integer(RequantizeAs(c, n, sum).code - c.out_q.zero_point_at(0)));
      if (abs(Rational(code - real)) <= 1 + abs(real) * PowerOfTwo(-20)) {
        ++near;
      } else {
        EXPECT_TRUE(may_overflow) << Print(c, at);
        ++far;
      }
    }
  }
  EXPECT_GT(far, 500);
  EXPECT_GT(near, 500);
}

// RequantMayOverflow says yes from a quarter of the size on that overflows, not earlier.
TEST(Agreement, AModeMayOverflowFromAQuarterOfTheSizeOn) {
  struct Row {
    int32_t accumulator;
    float x_scale, w_scale, out_scale;
    int32_t zero_point;
    bool may_overflow;
  };
  constexpr float kBelow = 0x1.fffffep-1f;
  for (const Row& row : {Row{1 << 29, 1, 1, 1, 0, true},
                         {(1 << 29) - 1, 1, 1, 1, 0, false},
                         {-(1 << 29), 1, 1, 1, 0, true},
                         {1 - (1 << 29), 1, 1, 1, 0, false},
                         {1 << 19, 0x1p12f, 0x1p-3f, 0x1p-1f, 0, true},
                         {1 << 19, 0x1p12f, 0x1p-3f, 0x1p0f, 0, false},
                         // The zero point is added.
                         {1, 1, 1, 1, (1 << 29) + 1, true},
                         {1, 1, 1, 1, -(1 << 29) - 1, true},
                         {1, 1, 1, 1, 1 << 29, false},
                         {1, 1, 1, 1, -(1 << 29), false},
                         // A multiplier that is infinite in float32 makes NaN of 0, and so does a
                         // product of scales where the quotient is small.
                         {0, 0x1p63f, 0x1p64f, 1, 0, true},
                         {0, kBelow * 0x1p63f, 0x1p64f, 1, 0, false},
                         {0, 0x1p63f, 0x1p64f, 0x1p100f, 0, true},
                         {0, 1, 1, 0x1p-127f, 0, true},
                         {0, 1, kBelow, 0x1p-127f, 0, false}}) {
    Case c;
    c.op = Op::kRequantize;
    c.M = 1;
    c.N = 2;
    c.x = Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{0, row.accumulator});
    c.x_q.scale = {row.x_scale};
    c.w_q.scale = {row.w_scale};
    c.out_q = {{row.out_scale}, {row.zero_point}};
    for (const Requant requant :
         {Requant::kExact, Requant::kFloat32, Requant::kFixedQ31, Requant::kFixedRndnu}) {
      c.requant = requant;
      EXPECT_EQ(Validate(c), "");
      const bool overflows = requant == Requant::kFloat32 || requant == Requant::kFixedQ31;
      EXPECT_EQ(RequantMayOverflow(c), overflows && row.may_overflow)
          << Name(requant) << ": " << Print(c, 1);
    }
  }
  // A multiplier of each channel, of the accumulators of that channel.
  Case c;
  c.op = Op::kRequantize;
  c.M = 2;
  c.N = 2;
  c.per_channel = true;
  c.requant = Requant::kFixedQ31;
  c.multiplier = {1, 0x1p-10f};
  for (size_t large = 0; large < 4; ++large) {
    std::vector<int32_t> x(4, 1000);
    x[large] = 1 << 30;
    c.x = Tensor::Of<int32_t>({2, 2}, x);
    EXPECT_EQ(RequantMayOverflow(c), large % 2 == 0) << large;
  }
}

// One output alone is a valid case of the same operation and has the same value.
TEST(Agreement, OneOutput) {
  RandomCase draw(15);
  int padded = 0;
  for (int i = 0; i < 6000; ++i) {
    const Case c = draw.Draw(AllOps()[static_cast<size_t>(i) % AllOps().size()]);
    if (c.op == Op::kChooseQParams) continue;  // an output is about many inputs
    const Tensor y = Evaluate(c);
    for (int64_t at = 0; at < y.size(); ++at) {
      const Case one = slice::OneOutput(c, at);
      ASSERT_EQ(Validate(one), "") << Describe(c) << " gives " << Describe(one);
      if (c.op == Op::kSoftmax) {
        ASSERT_EQ(one.M, 1);
      } else if (RowsShareQParams(c)) {
        ASSERT_EQ(one.N, 1);
      } else {
        ASSERT_EQ(one.M * one.N, 1);
      }
      ASSERT_EQ(RealValue(one, 0, 0), RealValue(c, at / c.N, at % c.N)) << Describe(c);
      ASSERT_EQ(Evaluate(one).BitsAt(0), y.BitsAt(at)) << Describe(c);
      if (HasWindow(c.op)) padded += one.window.pad_left + one.window.pad_bottom != 0 ? 1 : 0;
    }
  }
  EXPECT_GT(padded, 2000);
}

// Zero points and terms whose product leaves 64 bits, though few of them are large.
TEST(Agreement, SumsBeyond64Bits) {
  struct Row {
    int64_t k;
    int32_t zx, zw;
  };
  constexpr int32_t kNarrow = (1 << 20) - 1;
  for (const Row& row : {Row{8193, INT32_MIN, kNarrow},
                         {8193, -kNarrow, INT32_MAX},
                         {1 << 23, -kNarrow, -kNarrow}}) {
    Case c;
    c.M = c.N = 1;
    c.K = row.k;
    c.x = Tensor(DType::kU8, {1, c.K});
    c.w = Tensor(DType::kU8, {1, c.K});
    for (int64_t k = 0; k < c.K; ++k) {
      c.x.SetInt(k, 255);
      c.w.SetInt(k, 255);
    }
    c.x_q.zero_point = {row.zx};
    c.w_q.zero_point = {row.zw};
    const __int128 expected = __int128{row.k} * (255 - int64_t{row.zx}) * (255 - int64_t{row.zw});
    EXPECT_TRUE(expected > INT64_MAX || expected < INT64_MIN);
    EXPECT_TRUE(CorrectedSums(c)[0] == expected) << row.k;
  }
}

// Past 32768 terms the inner int32 block is emptied into int64; past 65793 int32 would overflow.
TEST(Agreement, LongSum) {
  Case c;
  c.M = 1;
  c.N = 1;
  c.K = 70001;
  c.x = Tensor(DType::kU8, {1, c.K});
  c.w = Tensor(DType::kU8, {1, c.K});
  for (int64_t k = 0; k < c.K; ++k) {
    c.x.SetInt(k, 255);
    c.w.SetInt(k, 255);
  }
  EXPECT_EQ(RawSums(c)[0], 70001LL * 65025);
  EXPECT_TRUE(CorrectedSums(c)[0] == __int128{70001} * 65025);
  c.out_q.scale[0] = 0x1p25f;  // 135.65...
  EXPECT_EQ(Evaluate(c).IntAt(0), 136);
  EXPECT_EQ(EvaluateRational(c).IntAt(0), 136);
  c.out_dtype = DType::kS32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  EXPECT_EQ(Evaluate(c).IntAt(0), INT32_MAX);  // clamped, never wrapped
}

}  // namespace
}  // namespace qualm::exact
