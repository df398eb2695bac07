// SPDX-License-Identifier: Apache-2.0
// What metamorphic properties ask about: a follow-up that is the case again, or that changes less
// than the claim says, would find nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/slice.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "properties/relation.h"
#include "properties/spoiled_subject.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

// M = 1.
Case LinearOf(const std::vector<int32_t>& x, const std::vector<int32_t>& w, int64_t n = 1) {
  Case c;
  c.op = Op::kLinear;
  c.M = 1;
  c.N = n;
  c.K = static_cast<int64_t>(x.size());
  c.x = Tensor(DType::kU8, {1, c.K});
  c.w = Tensor(DType::kS8, {n, c.K});
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, x[static_cast<size_t>(i)]);
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, w[static_cast<size_t>(i % c.K)]);
  c.out_q.scale = {64};
  c.out_q.zero_point = {128};
  return c;
}

// --- Terms --------------------------------------------------------------------------------------

// The terms of row 0 and channel 0: pairs of codes.
std::vector<std::pair<int32_t, int32_t>> TermsOf(const Case& c) {
  std::vector<std::pair<int32_t, int32_t>> terms;
  for (int64_t k = 0; k < c.K; ++k) terms.emplace_back(c.x.IntAt(k), c.w.IntAt(k));
  return terms;
}

TEST(KPermutation, MovesTermsAndKeepsPairs) {
  const Case c = LinearOf({1, 2, 3, 4, 5, 6, 7, 8}, {11, 12, 13, 14, 15, 16, 17, 18});
  const Asked asked = AskedBy("k_permutation", c);
  ASSERT_EQ(asked.problems.size(), 2u);
  auto before = TermsOf(c), after = TermsOf(asked.problems[1]);
  EXPECT_NE(before, after);
  std::ranges::sort(before);
  std::ranges::sort(after);
  EXPECT_EQ(before, after);
}

TEST(KPermutation, JudgesWhereEitherFactorMoves) {
  const std::vector<int32_t> same(8, 5), other{1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(AskedBy("k_permutation", LinearOf(same, other)).problems.size(), 2u);
  EXPECT_EQ(AskedBy("k_permutation", LinearOf(other, same)).problems.size(), 2u);
  for (const Case& c : {LinearOf(same, same), LinearOf({1}, {2}), LinearOf({}, {})})
    EXPECT_EQ(AskedBy("k_permutation", c).verdict.reason, "the permutation changes nothing");
}

TEST(KPermutation, MovesPixelsWithinTheirImage) {
  Case c;
  c.op = Op::kGlobalAvgPool;
  c.N = 2;
  c.window = {.batch = 3, .in_h = 2, .in_w = 3, .in_c = 2, .kernel_h = 2, .kernel_w = 3};
  c.x = Tensor(DType::kU8, {3, 2, 3, 2});
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(i * 7));
  DeriveSizes(&c);
  const Asked asked = AskedBy("k_permutation", c);
  ASSERT_EQ(asked.problems.size(), 2u);
  const auto pixels = [](const Case& of, int64_t image) {
    std::vector<std::pair<int32_t, int32_t>> list;
    for (int64_t p = 6 * image; p < 6 * image + 6; ++p)
      list.emplace_back(of.x.IntAt(2 * p), of.x.IntAt(2 * p + 1));
    return list;
  };
  for (int64_t image = 0; image < 3; ++image) {
    auto before = pixels(c, image), after = pixels(asked.problems[1], image);
    EXPECT_NE(before, after) << image;
    std::ranges::sort(before);
    std::ranges::sort(after);
    EXPECT_EQ(before, after) << image;
  }
}

TEST(KPermutation, MovesInputChannelsOfEachGroup) {
  std::set<int64_t> groups;
  ForCases(*FindProperty("k_permutation"), Op::kConv2d, 40, [&](const Case& c, const auto& asked) {
    const Case& after = asked[1].first;
    EXPECT_TRUE(!(after.x == c.x) || !(after.w == c.w));
    const int64_t depth = c.window.in_c / c.window.groups;
    for (int64_t pixel = 0; pixel < c.x.size() / depth; ++pixel) {
      std::vector<int32_t> a, b;
      for (int64_t i = pixel * depth; i < (pixel + 1) * depth; ++i) {
        a.push_back(c.x.IntAt(i));
        b.push_back(after.x.IntAt(i));
      }
      std::ranges::sort(a);
      std::ranges::sort(b);
      ASSERT_EQ(a, b) << Describe(c);
    }
    groups.insert(c.window.groups);
  });
  EXPECT_GT(groups.size(), 1u);
}

// One term before the others and one behind them: one factor is real 0, the other an end of its
// type.
TEST(ZeroTermAppend, StandsBeforeAndBehindAndIsLarge) {
  std::set<std::pair<int32_t, int32_t>> met;
  for (int32_t first = 0; first < 24; ++first) {
    Case c = LinearOf({first, 20, 30}, {4, 5, 6}, 2);
    c.x_q.zero_point = {3};
    c.w_q.zero_point = {7};
    const Asked asked = AskedBy("zero_term_append", c);
    ASSERT_EQ(asked.problems.size(), 2u);
    auto terms = TermsOf(asked.problems[1]);
    ASSERT_EQ(terms.size(), 5u);
    EXPECT_EQ(terms.front(), terms.back());
    met.insert(terms.front());
    EXPECT_EQ(std::vector(terms.begin() + 1, terms.end() - 1), TermsOf(c));
  }
  EXPECT_EQ(met, (std::set<std::pair<int32_t, int32_t>>{{3, 127}, {3, -128}, {255, 7}}));
}

TEST(ZeroTermAppend, NeedsOneZeroPointThatIsACode) {
  constexpr int32_t kNone = 1000;
  const struct {
    int32_t x, w;
    bool judged;
  } rows[]{{0, kNone, true},     {255, kNone, true},  {-1, kNone, false},
           {256, kNone, false},  {kNone, -128, true}, {kNone, 127, true},
           {kNone, -129, false}, {kNone, 128, false}, {5, 5, true}};
  for (const auto& [x, w, judged] : rows) {
    Case c = LinearOf({10, 20, 30}, {4, 5, 6}, 2);
    c.x_q.zero_point = {x};
    c.w_q.zero_point = {w};
    c.out_q.scale = {4096};
    const Asked asked = AskedBy("zero_term_append", c);
    EXPECT_EQ(asked.problems.size(), judged ? 2u : 0u) << x << " " << w;
    if (!judged) {
      EXPECT_EQ(asked.verdict.reason, "no zero point is a code");
      continue;
    }
    const std::pair<int32_t, int32_t> term = TermsOf(asked.problems[1]).front();
    EXPECT_TRUE((term.first == x && w != term.second) || (term.second == w && term.first == 255))
        << term.first << " " << term.second;
  }
  // Of w all channels must have one zero point.
  Case channels = LinearOf({10, 20, 30}, {4, 5, 6}, 3);
  channels.per_channel = true;
  channels.w_q = {{1, 1, 1}, {5, 5, 5}};
  channels.x_q.zero_point = {kNone};
  channels.out_q.scale = {4096};
  EXPECT_EQ(AskedBy("zero_term_append", channels).problems.size(), 2u);
  for (const size_t other : {size_t{0}, size_t{1}, size_t{2}}) {
    Case c = channels;
    c.w_q.zero_point[other] = 6;
    EXPECT_EQ(AskedBy("zero_term_append", c).problems.size(), 0u) << other;
  }
}

// --- Shifts -------------------------------------------------------------------------------------

std::string Joined(std::string text, const char* more) {
  return text.empty() ? more : text + "+" + more;
}

// Codes and zero points moved alike.
void ExpectSameReals(const Tensor& a, const QParams& aq, const Tensor& b, const QParams& bq) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(aq.zero_point.size(), bq.zero_point.size());
  EXPECT_EQ(aq.scale, bq.scale);
  const int64_t by = int64_t{bq.zero_point[0]} - aq.zero_point[0];
  for (size_t i = 0; i < aq.zero_point.size(); ++i)
    EXPECT_EQ(bq.zero_point[i] - int64_t{aq.zero_point[i]}, by);
  for (int64_t i = 0; i < a.size(); ++i) ASSERT_EQ(b.IntAt(i) - int64_t{a.IntAt(i)}, by);
}

// Which tensors were shifted: "x" within its type, "x type" into the other type ...
std::string ShiftOf(const Case& c, const Case& moved) {
  std::string shift;
  if (c.x.dtype() != DType::kF32) ExpectSameReals(c.x, c.x_q, moved.x, moved.x_q);
  if (HasW(c.op)) ExpectSameReals(c.w, c.w_q, moved.w, moved.w_q);
  if (moved.x.dtype() != c.x.dtype()) {
    shift = Joined(shift, "x type");
  } else if (moved.x_q != c.x_q) {
    shift = Joined(shift, "x");
  }
  if (moved.w.dtype() != c.w.dtype()) {
    shift = Joined(shift, "w type");
  } else if (moved.w_q != c.w_q) {
    shift = Joined(shift, "w");
  }
  if (moved.out_dtype != c.out_dtype) {
    shift = Joined(shift, "output");
    const int32_t by = RangeOf(moved.out_dtype).min - RangeOf(c.out_dtype).min;
    EXPECT_EQ(moved.out_min, c.out_min + by);
    EXPECT_EQ(moved.out_max, c.out_max + by);
    for (size_t i = 0; i < c.out_q.zero_point.size(); ++i)
      EXPECT_EQ(moved.out_q.zero_point[i], int64_t{c.out_q.zero_point[i]} + by);
  }
  return shift;
}

std::string TextOf(const Case& c, const Case& moved, const std::string& shift) {
  if (shift == "x type+output") return "shifting both types and zero points by 128";
  if (shift == "x type+w type") return "shifting both operands and their zero points by 128";
  if (shift == "output")
    return "shifting the output type and zero point by " +
           std::to_string(std::abs(RangeOf(moved.out_dtype).min - RangeOf(c.out_dtype).min));
  const QParams Case::* const q = shift.starts_with("x") ? &Case::x_q : &Case::w_q;
  return "shifting " + shift.substr(0, 1) + " and its zero point by " +
         std::to_string(int64_t{(moved.*q).zero_point[0]} - (c.*q).zero_point[0]);
}

TEST(ZeroPointShift, ShiftsEachTensorWithinItsTypeAndIntoTheOther) {
  const std::set<std::string> sums{"x", "x type", "w", "w type", "output"},
      two{"x", "w", "x type+w type", "output"}, one{"x", "x type", "output"};
  const std::map<Op, std::set<std::string>> expected{
      {Op::kQuantize, {"output"}},
      {Op::kDequantize, {"x", "x type"}},
      {Op::kRequantize, {"output"}},
      {Op::kLinear, sums},
      {Op::kConv2d, sums},
      {Op::kDepthwise, sums},
      {Op::kAdd, two},
      {Op::kSub, two},
      {Op::kMul, two},
      {Op::kConcat, two},
      {Op::kRescale, one},
      {Op::kTable, one},
      {Op::kAvgPool, one},
      {Op::kGlobalAvgPool, one},
      {Op::kDynamicLinear, {"w", "w type"}},
      {Op::kMaxPool, {"x type+output"}},
      {Op::kSoftmax, {"x", "x type+output"}},
  };
  const Property& property = *FindProperty("zero_point_shift");
  for (const Op op : property.ops) {
    std::set<std::string> met;
    ForCases(property, op, 20, [&](const Case& c, const auto& asked) {
      std::set<std::string> shifts;
      for (size_t run = 1; run < asked.size(); ++run) {
        const Case& moved = asked[run].first;
        const std::string shift = ShiftOf(c, moved);
        EXPECT_TRUE(shifts.insert(shift).second) << shift << " twice: " << Describe(c);
        Spoiled subject([&](size_t at, const Case&, const RunContext&, Outcome& outcome) {
          if (at == run) Spoil(outcome.y, 0);
        });
        const std::string reason = Judge(property, c, subject).reason;
        EXPECT_EQ(reason.find(TextOf(c, moved, shift) + " changes the result"), 0u) << reason;
      }
      met.insert(shifts.begin(), shifts.end());
      // What is not asked about has no room in its type, or no codes.
      const auto moves = [&](const Tensor& codes, const char* name) {
        if (!expected.at(op).contains(name)) return;
        EXPECT_EQ(shifts.contains(name), !codes.empty() && relation::ShiftWithin(codes) != 0)
            << name << " " << Describe(c);
      };
      moves(c.x, "x");
      moves(c.w, "w");
      if (expected.at(op).contains("x type")) {
        EXPECT_EQ(shifts.contains("x type"), !c.x.empty());
      }
      if (expected.at(op).contains("w type")) {
        EXPECT_EQ(shifts.contains("w type"), !c.w.empty());
      }
    });
    EXPECT_EQ(met, expected.at(op)) << Name(op);
  }
}

std::set<std::string> ShiftsOf(const Case& c) {
  const Asked asked = AskedBy("zero_point_shift", c);
  std::set<std::string> shifts;
  for (size_t run = 1; run < asked.problems.size(); ++run)
    shifts.insert(ShiftOf(c, asked.problems[run]));
  if (asked.problems.empty()) {
    EXPECT_EQ(asked.verdict.reason, "no shift keeps all codes in their type");
  }
  return shifts;
}

TEST(ZeroPointShift, KeepsZeroPointsInInt32) {
  using Shifts = std::set<std::string>;
  Case linear = LinearOf({0, 10}, {-128, 10});
  EXPECT_EQ(ShiftsOf(linear), (Shifts{"x", "x type", "w", "w type", "output"}));
  Case c = linear;
  c.x_q.zero_point = {INT32_MAX};  // x would go up within its type, down into the other
  EXPECT_EQ(ShiftsOf(c), (Shifts{"x type", "w", "w type", "output"}));
  c.x_q.zero_point = {INT32_MIN};
  EXPECT_EQ(ShiftsOf(c), (Shifts{"x", "w", "w type", "output"}));
  c = linear;
  c.w_q.zero_point = {INT32_MAX};
  EXPECT_EQ(ShiftsOf(c), (Shifts{"x", "x type", "output"}));
  c = linear;
  c.out_q.zero_point = {INT32_MIN + 127};
  EXPECT_EQ(ShiftsOf(c), (Shifts{"x", "x type", "w", "w type"}));
  c.out_q.zero_point = {INT32_MIN + 128};
  EXPECT_TRUE(ShiftsOf(c).contains("output"));

  Case add = CaseOver(Op::kAdd, Tensor(DType::kU8, {1, 2}), DType::kU8);
  add.w = add.x;
  EXPECT_EQ(ShiftsOf(add), (Shifts{"x", "w", "x type+w type", "output"}));
  for (QParams Case::* const q : {&Case::x_q, &Case::w_q}) {
    c = add;
    (c.*q).zero_point = {INT32_MIN};
    EXPECT_EQ(ShiftsOf(c), (Shifts{"x", "w", "output"}));
  }

  Case pool;
  pool.op = Op::kMaxPool;
  pool.N = 2;
  pool.window = {.batch = 1, .in_h = 1, .in_w = 1, .in_c = 2};
  pool.x = Tensor(DType::kU8, {1, 1, 1, 2});
  DeriveSizes(&pool);
  EXPECT_EQ(ShiftsOf(pool), (Shifts{"x type+output"}));
  pool.x_q.zero_point = pool.out_q.zero_point = {INT32_MIN};
  EXPECT_EQ(ShiftsOf(pool), Shifts{});
}

// One input of a concat may have no columns, a linear no terms.
TEST(ZeroPointShift, ShiftsWhatThereIs) {
  using Shifts = std::set<std::string>;
  Case concat = CaseOver(Op::kConcat, Tensor(DType::kU8, {1, 2}), DType::kU8);
  concat.w = Tensor(DType::kU8, {1, 0});
  EXPECT_EQ(ShiftsOf(concat), (Shifts{"x", "x type+w type", "output"}));
  std::swap(concat.x, concat.w);
  EXPECT_EQ(ShiftsOf(concat), (Shifts{"w", "x type+w type", "output"}));
  EXPECT_EQ(ShiftsOf(LinearOf({}, {})), Shifts{"output"});
  EXPECT_EQ(ShiftsOf(LinearOf({0, 255}, {-128, 127})), (Shifts{"x type", "w type", "output"}));
  Case real = LinearOf({1}, {1});
  real.out_dtype = DType::kF32;
  real.out_q = {};
  OpenClamp(&real);
  EXPECT_EQ(ShiftsOf(real), (Shifts{"x", "x type", "w", "w type"}));
}

TEST(ZeroPointShift, LeavesTheOutputWhereARequantizationWraps) {
  Case c = CaseOver(Op::kRequantize, Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{100, -100}),
                    DType::kU8);
  for (const bool wraps : {true, false}) {
    c.x_q.scale = {wraps ? 0x1p25f : 1.0f};
    for (const Requant requant : {Requant::kExact, Requant::kFloat32, Requant::kFixedQ31}) {
      c.requant = requant;
      EXPECT_EQ(ShiftsOf(c).empty(), wraps && requant == Requant::kFixedQ31) << Name(requant);
    }
  }
}

TEST(ZeroPointShift, OneShiftThatTheSubjectTakesIsEnough) {
  const Case c = LinearOf({0, 10}, {-128, 10});
  const Asked all = AskedBy("zero_point_shift", c);
  ASSERT_EQ(all.problems.size(), 6u);
  for (size_t taken = 0; taken < 6; ++taken) {
    Spoiled subject;
    subject.refuses = [&](const Case& problem) {
      return !(problem == c) && !(problem == all.problems[taken]);
    };
    const Verdict verdict = Judge(*FindProperty("zero_point_shift"), c, subject);
    EXPECT_EQ(verdict.judgement, taken == 0 ? Judgement::kSkipped : Judgement::kPassed) << taken;
    if (taken == 0) {
      EXPECT_EQ(verdict.reason, "no");
    }
  }
}

// --- Gauge --------------------------------------------------------------------------------------

// What has twice the scales means the same.
Case Doubled(Case c) {
  if (c.op == Op::kQuantize) {
    for (float& x : c.x.as<float>()) x = std::isfinite(x) ? 2 * x : x;
  } else {
    c.x_q.scale[0] *= 2;
    if (HasTwoInputs(c.op) && c.op != Op::kMul) c.w_q.scale[0] *= 2;
  }
  if (c.out_dtype == DType::kF32) {
    for (float& scale : c.w_q.scale) scale /= 2;
    return c;
  }
  for (float& scale : c.out_q.scale) scale *= 2;
  if (c.bias) {
    for (float& bias : *c.bias) bias *= 2;
  }
  return c;
}

TEST(Gauge, DoublesTheScalesOfInputsAndOutput) {
  const Property& property = *FindProperty("gauge");
  for (const Op op : property.ops) {
    std::set<DType> outputs;
    ForCases(property, op, 12, [&](const Case& c, const auto& asked) {
      ASSERT_EQ(asked.size(), 2u);
      EXPECT_EQ(asked[1].first, Doubled(ProblemOf(c))) << Describe(c);
      outputs.insert(c.out_dtype);
    });
    EXPECT_EQ(outputs.contains(DType::kF32), HasSums(op)) << Name(op);
  }
}

std::string WhyNotGauged(const Case& c) {
  const Asked asked = AskedBy("gauge", c);
  EXPECT_EQ(asked.problems.size(), asked.verdict.judgement == Judgement::kPassed ? 2u : 0u);
  return asked.verdict.reason;
}

TEST(Gauge, DoublesNothingBeyondTheLargestFloat) {
  const std::string overflows = "a doubled value overflows";
  const auto linear = [](float x, float w, float y) {
    Case c = LinearOf({1, 2}, {3, 4}, 2);
    c.x_q.scale = {x};
    c.w_q.scale = {w};
    c.out_q.scale = {y};
    return c;
  };
  EXPECT_EQ(WhyNotGauged(linear(1, 1, 64)), "");
  EXPECT_EQ(WhyNotGauged(linear(0x1p126f, 1, 0x1p126f)), "");
  EXPECT_EQ(WhyNotGauged(linear(0x1p127f, 1, 0x1p126f)), overflows);
  EXPECT_EQ(WhyNotGauged(linear(0x1p126f, 1, 0x1p127f)), overflows);
  EXPECT_EQ(WhyNotGauged(linear(1, 0x1p127f, 1)), "") << "the weights' scale stays";
  for (const size_t large : {size_t{0}, size_t{1}}) {
    Case c = linear(1, 1, 64);
    c.bias = std::vector<float>{1, 1};
    EXPECT_EQ(WhyNotGauged(c), "");
    c.bias->at(large) = 0x1p127f;
    EXPECT_EQ(WhyNotGauged(c), overflows) << large;
    Case quantize = CaseOver(Op::kQuantize, Tensor(DType::kF32, {1, 2}), DType::kU8);
    quantize.x.as<float>()[large] = 0x1p127f;
    EXPECT_EQ(WhyNotGauged(quantize), overflows) << large;
    quantize.x.as<float>()[large] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(WhyNotGauged(quantize), "") << "infinity stays what it is";
    quantize.x.as<float>()[large] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(WhyNotGauged(quantize), "");
  }
}

TEST(Gauge, HalvesWeightsOfFloatOutputsWhereNoBitIsLost) {
  Case c = LinearOf({1, 2}, {3, 4}, 2);
  c.out_dtype = DType::kF32;
  c.out_q = {};
  OpenClamp(&c);
  c.per_channel = true;
  for (const auto& [scale, halved] : std::vector<std::pair<float, bool>>{
           {1.0f, true}, {0x1p-148f, true}, {0x1p-149f, false}, {0x3p-149f, false}}) {
    for (const size_t at : {size_t{0}, size_t{1}}) {
      c.w_q = {{1, 1}, {0, 0}};
      c.w_q.scale[at] = scale;
      EXPECT_EQ(WhyNotGauged(c), halved ? "" : "a scale cannot be halved") << scale;
    }
  }
}

TEST(Gauge, FloatMultipliersNeedAProductWithAllItsBits) {
  const std::string none = "a product of scales is no normal float32";
  for (const Requant requant :
       {Requant::kExact, Requant::kFloat32, Requant::kFixedQ31, Requant::kFixedRndnu}) {
    const bool as_float = requant == Requant::kFloat32 || requant == Requant::kFixedRndnu;
    const auto why_not = [&](float x, float w, size_t at) {
      Case c = LinearOf({1, 2}, {3, 4}, 2);
      c.per_channel = true;
      c.x_q.scale = {x};
      c.w_q = {{1, 1}, {0, 0}};
      c.w_q.scale[at] = w;
      c.out_q.scale = {x};
      c.requant = requant;
      if (!Validate(c).empty()) return std::string("invalid");
      return WhyNotGauged(c);
    };
    for (const size_t at : {size_t{0}, size_t{1}}) {
      EXPECT_EQ(why_not(0x1p-63f, 0x1p-63f, at), "") << Name(requant);
      EXPECT_EQ(why_not(0x1p-63f, 0x1p-64f, at), as_float ? none : "") << Name(requant);
      EXPECT_EQ(why_not(0x1p100f, 0x1p26f, at), "") << Name(requant);
      EXPECT_EQ(why_not(0x1p100f, 0x1p27f, at), as_float ? none : "") << Name(requant);
    }
  }
}

TEST(Gauge, NeedsAQuotientOfScales) {
  Case given = CaseOver(Op::kRequantize, Tensor(DType::kS32, {1, 2}), DType::kU8);
  EXPECT_EQ(WhyNotGauged(given), "");
  given.multiplier = {0.5f};
  EXPECT_EQ(WhyNotGauged(given), "the multiplier is given, not a quotient");
  Case table = CaseOver(Op::kTable, Tensor(DType::kU8, {1, 2}), DType::kU8);
  for (size_t i = 0; i < CountOf<Function>(); ++i) {
    const auto function = static_cast<Function>(i);
    table.function = function;
    const bool scales = function == Function::kRelu || function == Function::kLeakyRelu;
    EXPECT_EQ(WhyNotGauged(table), scales ? "" : "the function has a scale of its own")
        << Name(function);
  }
}

// --- Parts --------------------------------------------------------------------------------------

Case Quantizing(int64_t rows, int64_t columns) {
  Case c = CaseOver(Op::kQuantize, Tensor(DType::kF32, {rows, columns}), DType::kU8);
  for (int64_t i = 0; i < c.x.size(); ++i)
    c.x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(i + 1);
  return c;
}

Case PoolOf(int64_t batch, int64_t height) {
  Case c;
  c.op = Op::kMaxPool;
  c.N = 2;
  c.window = {.batch = batch, .in_h = height, .in_w = 1, .in_c = 2};
  c.x = Tensor(DType::kU8, {batch, height, 1, 2});
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(i));
  DeriveSizes(&c);
  return c;
}

TEST(Parts, TwoAreEnoughAndOneIsNot) {
  EXPECT_EQ(AskedBy("row_independence", Quantizing(1, 3)).verdict.reason, "fewer than 2 rows");
  EXPECT_EQ(AskedBy("row_independence", Quantizing(2, 3)).verdict.judgement, Judgement::kPassed);
  EXPECT_EQ(AskedBy("column_independence", Quantizing(3, 1)).verdict.reason,
            "fewer than 2 columns");
  EXPECT_EQ(AskedBy("column_independence", Quantizing(3, 2)).verdict.judgement, Judgement::kPassed);
  EXPECT_EQ(AskedBy("batch_independence", PoolOf(1, 3)).verdict.reason, "fewer than 2 images");
  EXPECT_EQ(AskedBy("batch_independence", PoolOf(2, 3)).verdict.judgement, Judgement::kPassed);
  EXPECT_EQ(AskedBy("batch_independence", PoolOf(2, 0)).verdict.judgement, Judgement::kVacuous);
}

TEST(Parts, NoneIsAskedAboutTwice) {
  std::set<size_t> met;
  for (int64_t parts = 2; parts < 8; ++parts) {
    for (int64_t others = 1; others < 4; ++others) {
      for (const Asked& asked : {AskedBy("row_independence", Quantizing(parts, others)),
                                 AskedBy("column_independence", Quantizing(others, parts)),
                                 AskedBy("batch_independence", PoolOf(parts, others))}) {
        ASSERT_GE(asked.problems.size(), 2u);
        ASSERT_LE(asked.problems.size(), 3u);
        met.insert(asked.problems.size());
        if (asked.problems.size() == 3) {
          EXPECT_FALSE(asked.problems[1] == asked.problems[2]);
        }
      }
    }
  }
  EXPECT_EQ(met.size(), 2u) << "the last part alone, or another one too";
}

// --- Operands -----------------------------------------------------------------------------------

Case AddOf(Op op, const std::vector<int32_t>& x, const std::vector<int32_t>& w) {
  Case c = CaseOver(op, Tensor(DType::kU8, {1, 3}), DType::kU8);
  c.w = c.x;
  for (int64_t i = 0; i < 3; ++i) {
    c.x.SetInt(i, x[static_cast<size_t>(i)]);
    c.w.SetInt(i, w[static_cast<size_t>(i)]);
  }
  return c;
}

TEST(Commutes, SwapsOperandsThatDifferInAnything) {
  Case same = AddOf(Op::kAdd, {1, 2, 3}, {1, 2, 3});
  EXPECT_EQ(AskedBy("commutes", same).verdict.reason, "both operands are the same");
  Case scale = same, zero = same;
  scale.w_q.scale = {2};
  zero.w_q.zero_point = {2};
  for (const Case& c : {scale, zero, AddOf(Op::kMul, {1, 2, 3}, {1, 2, 4})}) {
    const Asked asked = AskedBy("commutes", c);
    ASSERT_EQ(asked.problems.size(), 2u);
    const Case& swapped = asked.problems[1];
    EXPECT_TRUE(swapped.x == c.w && swapped.w == c.x && swapped.x_q == c.w_q &&
                swapped.w_q == c.x_q);
  }
  for (const Op op : {Op::kSub, Op::kConcat, Op::kRescale})
    EXPECT_FALSE(FindProperty("commutes")->about(op)) << Name(op);
}

TEST(NeutralOperand, IsReal0InItsOwnScaleOrReal1) {
  for (const Op op : {Op::kAdd, Op::kSub, Op::kMul}) {
    for (const auto& [zero, code] : std::vector<std::pair<int32_t, int32_t>>{
             {0, 0}, {100, 100}, {255, 255}, {-5, 0}, {300, 255}}) {
      Case c = AddOf(op, {1, 2, 3}, {4, 5, 6});
      c.w_q = {{0.375f}, {zero}};
      const Asked asked = AskedBy("neutral_operand_is_rescale", c);
      ASSERT_EQ(asked.problems.size(), 2u);
      EXPECT_EQ(asked.problems[0].op, Op::kRescale);
      EXPECT_EQ(asked.problems[0].w_q, QParams{}) << "it has one operand";
      const Case& neutral = asked.problems[1];
      EXPECT_EQ(neutral.op, op);
      EXPECT_EQ(neutral.x, c.x);
      EXPECT_EQ(neutral.w_q.scale[0], op == Op::kMul ? 1.0f : 0.375f);
      for (int64_t i = 0; i < 3; ++i)
        EXPECT_EQ(neutral.w.IntAt(i) - neutral.w_q.zero_point[0], op == Op::kMul ? 1 : 0);
      if (op != Op::kMul) {
        EXPECT_EQ(neutral.w.IntAt(0), code) << "the nearest code";
      }
    }
  }
}

TEST(EqualQParams, KeepTheClampOfTheType) {
  Case c = CaseOver(Op::kRescale, Tensor(DType::kU8, {1, 3}), DType::kU8);
  c.x_q = {{0.5f}, {7}};
  c.out_min = 10;
  c.out_max = 20;
  const Case same = AskedBy("equal_qparams_is_identity", c).problems[0];
  EXPECT_EQ(same.out_q, c.x_q);
  EXPECT_EQ(same.out_min, 10);
  EXPECT_EQ(same.out_max, 20);
  c.out_dtype = DType::kS8;
  const Case other = AskedBy("equal_qparams_is_identity", c).problems[0];
  EXPECT_EQ(other.out_dtype, DType::kU8);
  EXPECT_EQ(other.out_min, 0);
  EXPECT_EQ(other.out_max, 255);
}

// --- Tables, concat and softmax -----------------------------------------------------------------

Case ConcatOf(int64_t first, int64_t second) {
  Case c = CaseOver(Op::kConcat, Tensor(DType::kU8, {2, first}), DType::kU8);
  c.w = Tensor(DType::kU8, {2, second});
  c.N = first + second;
  c.x_q = {{1}, {3}};
  c.w_q = {{2}, {5}};
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(10 + i));
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, static_cast<int32_t>(20 + i));
  return c;
}

TEST(PartsAreRescaled, EachInputByItself) {
  const Property& property = *FindProperty("parts_are_rescaled");
  for (const auto& [first, second] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 3}, {0, 3}, {2, 0}}) {
    const Case c = ConcatOf(first, second);
    const Asked asked = AskedBy("parts_are_rescaled", c);
    ASSERT_EQ(asked.problems.size(), 1u + (first > 0) + (second > 0));
    for (size_t part = 1; part < asked.problems.size(); ++part) {
      const bool of_x = part == 1 && first > 0;
      Case expected = CaseOver(Op::kRescale, of_x ? c.x : c.w, DType::kU8);
      expected.x_q = of_x ? c.x_q : c.w_q;
      EXPECT_EQ(asked.problems[part], expected);
    }
    for (int64_t i = 0; i < c.M * c.N; ++i) {
      Spoiled subject([&](size_t at, const Case&, const RunContext&, Outcome& outcome) {
        if (at == 0) Spoil(outcome.y, i);
      });
      const Verdict verdict = Judge(property, c, subject);
      ASSERT_TRUE(verdict.failed()) << i;
      EXPECT_EQ(verdict.divergence->index, i);
      EXPECT_EQ(verdict.reason.find(i % c.N < first ? "the first input is not rescaled alone"
                                                    : "the second input is not rescaled alone"),
                0u)
          << verdict.reason;
    }
  }
}

TEST(ReluIsRescale, OfReluAndOfALeakyOneOfSlope1) {
  for (const Function function : {Function::kRelu, Function::kLeakyRelu, Function::kTanh}) {
    Case c = CaseOver(Op::kTable, Tensor(DType::kU8, {1, 3}), DType::kU8);
    c.function = function;
    if (function == Function::kLeakyRelu) c.negative_slope = 0.5f;
    const Asked asked = AskedBy("relu_is_rescale", c);
    ASSERT_EQ(asked.problems.size(), 4u);
    for (const size_t pair : {size_t{0}, size_t{1}}) {
      const Case& rescale = asked.problems[2 * pair];
      const Case& table = asked.problems[2 * pair + 1];
      EXPECT_EQ(rescale.op, Op::kRescale);
      EXPECT_EQ(rescale.relu, pair == 0);
      EXPECT_EQ(rescale.function, Case().function);
      EXPECT_EQ(rescale.negative_slope, Case().negative_slope);
      EXPECT_EQ(table.op, Op::kTable);
      EXPECT_EQ(table.function, pair == 0 ? Function::kRelu : Function::kLeakyRelu);
      EXPECT_EQ(table.negative_slope, pair == 0 ? Case().negative_slope : 1.0f);
      Spoiled wrong([&](size_t at, const Case&, const RunContext&, Outcome& outcome) {
        if (at == 2 * pair) Spoil(outcome.y, 2);
      });
      EXPECT_EQ(Judge(*FindProperty("relu_is_rescale"), c, wrong)
                    .reason.find(pair == 0 ? "relu is not rescale with relu"
                                           : "leaky_relu of slope 1 is not rescale"),
                0u);
      Spoiled refuses;
      refuses.refuses = [&](const Case& problem) { return problem == table; };
      EXPECT_EQ(Judge(*FindProperty("relu_is_rescale"), c, refuses).judgement, Judgement::kSkipped);
    }
  }
}

Case SoftmaxOf(const std::vector<int32_t>& codes, int64_t rows) {
  const auto size = static_cast<int64_t>(codes.size());
  Case c = CaseOver(Op::kSoftmax, Tensor(DType::kU8, {rows, size / rows}), DType::kU8);
  c.out_q.scale = {0x1p-8f};
  for (int64_t i = 0; i < size; ++i) c.x.SetInt(i, codes[static_cast<size_t>(i)]);
  return c;
}

TEST(RowPermutation, MovesCodesWithinTheirRow) {
  const char* const claim = "row_permutation";
  EXPECT_EQ(AskedBy(claim, SoftmaxOf({1, 2, 3}, 3)).verdict.reason, "nothing to permute");
  EXPECT_EQ(AskedBy(claim, SoftmaxOf({5, 5, 5, 5, 9, 9, 9, 9}, 2)).verdict.reason,
            "the permutation changes nothing");
  int judged = 0;
  for (int32_t i = 0; i < 20; ++i)
    judged += AskedBy(claim, SoftmaxOf({i, 100}, 1)).problems.size() == 2;
  EXPECT_GT(judged, 3);
  EXPECT_LT(judged, 17) << "half of the permutations of two move nothing";
  const Case c = SoftmaxOf({1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16}, 2);
  const Asked asked = AskedBy(claim, c);
  ASSERT_EQ(asked.problems.size(), 2u);
  std::set<int32_t> first;
  for (int64_t i = 0; i < 6; ++i) {
    first.insert(asked.problems[1].x.IntAt(i));
    EXPECT_EQ(asked.problems[1].x.IntAt(i) + 10, asked.problems[1].x.IntAt(6 + i));
  }
  EXPECT_EQ(first, (std::set<int32_t>{1, 2, 3, 4, 5, 6}));
}

TEST(AddedConstant, MovesAllCodesAndNothingElse) {
  const Case c = SoftmaxOf({10, 20, 30, 40}, 2);
  const Asked asked = AskedBy("added_constant", c);
  ASSERT_EQ(asked.problems.size(), 2u);
  Case expected = c;
  for (int64_t i = 0; i < 4; ++i) expected.x.SetInt(i, c.x.IntAt(i) + 215);
  EXPECT_EQ(asked.problems[1], expected) << "as far as there is room";
  EXPECT_EQ(AskedBy("added_constant", SoftmaxOf({0, 255}, 1)).verdict.reason,
            "the codes fill their type");
}

TEST(InputZeroPoint, IsAnyOtherCode) {
  std::set<int32_t> met;
  for (int32_t zero = 0; zero < 256; zero += 5) {
    for (const DType dtype : {DType::kU8, DType::kS8}) {
      Case c = SoftmaxOf({zero, 20, 30, 40}, 1);
      if (dtype == DType::kS8) {
        c.x = Tensor(DType::kS8, {1, 4});
        c.out_dtype = DType::kS8;
        c.out_q.zero_point = {-128};
        OpenClamp(&c);
        c.x.SetInt(1, zero - 128);
      }
      const CodeRange range = RangeOf(dtype);
      c.x_q.zero_point = {zero + range.min};
      const Asked asked = AskedBy("input_zero_point_is_irrelevant", c);
      ASSERT_EQ(asked.problems.size(), 2u);
      const int32_t other = asked.problems[1].x_q.zero_point[0];
      EXPECT_NE(other, c.x_q.zero_point[0]);
      EXPECT_GE(other, range.min);
      EXPECT_LE(other, range.max);
      met.insert(other - range.min);
    }
  }
  EXPECT_GT(met.size(), 40u);
  // The code that the case chooses may be the zero point that it has, or its mirror image.
  Case c = SoftmaxOf({10, 20, 30, 40}, 1);
  for (int32_t zero = 0; zero < 256; ++zero) {
    c.x_q.zero_point = {zero};
    const int32_t other =
        AskedBy("input_zero_point_is_irrelevant", c).problems.at(1).x_q.zero_point[0];
    EXPECT_NE(other, zero);
    EXPECT_GE(other, 0);
    EXPECT_LE(other, 255);
  }
}

// --- Dynamic linear -----------------------------------------------------------------------------

Case Dynamic(const std::vector<float>& x, int64_t rows) {
  Case c;
  c.op = Op::kDynamicLinear;
  c.M = rows;
  c.N = 2;
  c.K = static_cast<int64_t>(x.size());
  c.x = Tensor(DType::kF32, {rows, c.K});
  for (int64_t i = 0; i < c.x.size(); ++i)
    c.x.as<float>()[static_cast<size_t>(i)] = x[static_cast<size_t>(i % c.K)];
  c.w = Tensor(DType::kS8, {2, c.K});
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, 1);
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  return c;
}

TEST(RowOrder, MovesRowsThatDiffer) {
  EXPECT_EQ(AskedBy("row_order", Dynamic({1, 2, 3}, 8)).verdict.reason,
            "the permutation changes nothing");
  int judged = 0;
  for (int i = 0; i < 16; ++i) {
    Case c = Dynamic({1, 2, 3}, 2);
    c.x.as<float>()[0] = static_cast<float>(5 + i);
    const Asked asked = AskedBy("row_order", c);
    if (asked.problems.empty()) continue;
    ++judged;
    EXPECT_EQ(asked.problems[1].x.FloatAt(3), c.x.FloatAt(0));
    EXPECT_EQ(asked.problems[1].x.FloatAt(0), c.x.FloatAt(3));
  }
  EXPECT_GT(judged, 2);
  EXPECT_LT(judged, 16) << "half of the permutations of two rows move nothing";
}

TEST(WeightScaleDoubling, LeavesRoomForProductsAndRoundings) {
  const std::string number = "a number is beyond 2^60 or below 2^-60",
                    output = "an output is beyond 2^60 or below 2^-60";
  const auto reason = [](const Case& c) {
    return AskedBy("weight_scale_doubling", c).verdict.reason;
  };
  const struct {
    float value;
    bool moderate;
  } rows[]{{0.0f, true},
           {0x1p60f, true},
           {-0x1p60f, true},
           {0x1.000002p60f, false},
           {-0x1.000002p60f, false},
           {0x1p-60f, true},
           {-0x1p-60f, true},
           {0x0.ffffffp-60f, false},
           {-0x0.ffffffp-60f, false}};
  for (const auto& [value, moderate] : rows) {
    for (const size_t at : {size_t{0}, size_t{2}}) {
      Case c = Dynamic({1, 2, 3}, 1);
      c.x.as<float>()[at] = value;
      // Others are 0 where the number is small, so that outputs are as small.
      c.w_q.scale = {1.0f / std::max(1.0f, std::fabs(value))};
      EXPECT_EQ(reason(c), moderate ? "" : number) << value << " in x";
    }
    for (const size_t at : {size_t{0}, size_t{1}}) {
      Case c = Dynamic({1, 2, 3}, 1);
      c.bias = std::vector<float>{1, 1};
      c.bias->at(at) = value;
      EXPECT_EQ(reason(c), moderate ? "" : number) << value << " as bias";
      if (!(value > 0)) continue;
      c.bias = std::vector<float>{1, 1};
      c.per_channel = true;
      c.w_q = {{1, 1}, {0, 0}};
      c.w_q.scale[at] = value;
      if (value > 1) c.x = Dynamic({0, 0, 0}, 1).x;
      EXPECT_EQ(reason(c), moderate ? "" : number) << value << " as a scale";
    }
  }
  Case large = Dynamic({0x1p40f, 0, 0}, 1);
  large.w_q.scale = {0x1p10f};
  EXPECT_EQ(reason(large), "");
  large.w_q.scale = {0x1p40f};
  EXPECT_EQ(reason(large), output);
}

}  // namespace
}  // namespace qualm
