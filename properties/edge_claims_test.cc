// SPDX-License-Identifier: Apache-2.0
// Claims with an edge: the clamp, half a step, order, symmetry, sums. A subject just outside an
// edge fails, one just inside does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/slice.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "properties/relation.h"
#include "properties/spoiled_subject.h"
#include "properties/sweep.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Exact, but its answer to run `run` holds `value` at output i.
template <class T>
TestSubject With(int64_t i, T value, int64_t run = 0) {
  return TestSubject([i, value, run, asked = int64_t{0}](const Case& c, const RunContext&) mutable {
    Tensor y = exact::Evaluate(c);
    if (asked++ != run) return TestSubject::Good(y);
    if constexpr (std::is_floating_point_v<T>) {
      y.as<float>()[static_cast<size_t>(i)] = value;
    } else {
      y.SetInt(i, value);
    }
    return TestSubject::Good(y);
  });
}

Verdict Ask(const char* claim, const Case& c, TestSubject subject,
            const std::string& convention = "") {
  if (!convention.empty()) subject.set_contract({convention});
  EXPECT_EQ(Validate(c), "");
  return Judge(*FindProperty(claim), c, subject);
}

Case QuantizeOf(const std::vector<float>& values) {
  Case c;
  c.op = Op::kQuantize;
  c.M = 1;
  c.N = static_cast<int64_t>(values.size());
  c.x = Tensor::Of<float>({1, c.N}, values);
  return c;
}

// One row, one channel for each weight, K = 1.
Case LinearOf(uint8_t x, const std::vector<int8_t>& w, DType out) {
  Case c;
  c.op = Op::kLinear;
  c.M = c.K = 1;
  c.N = static_cast<int64_t>(w.size());
  c.x = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{x});
  c.w = Tensor::Of<int8_t>({c.N, 1}, w);
  c.out_dtype = out;
  OpenClamp(&c);
  return c;
}

// --- clamp --------------------------------------------------------------------------------------

// Codes 9 to 21 around a clamp to [10, 20].
Case Clamped() {
  Case c = QuantizeOf({9, 9.4f, 10, 15, 20, 20.6f, 21});
  c.out_min = 10;
  c.out_max = 20;
  return c;
}

TEST(Clamp, AnOutputOneCodeOutsideFailsAndNamesTheRange) {
  for (const auto& [code, off] :
       std::vector<std::pair<int32_t, double>>{{21, 1}, {9, 1}, {23, 3}}) {
    for (const char* contract : {"", "fbgemm@avx2"}) {
      const Verdict verdict = Ask("clamp", Clamped(), With(3, code), contract);
      ASSERT_TRUE(verdict.failed()) << code << contract;
      EXPECT_EQ(verdict.kind, FindingKind::kClamp);
      EXPECT_NE(verdict.reason.find("outside the clamp: expected in [10,20] at output [0,3], got " +
                                    std::to_string(code)),
                std::string::npos)
          << verdict.reason;
      EXPECT_EQ(verdict.divergence->distance_lsb, off);
    }
  }
  for (const int32_t code : {10, 20, 11})
    EXPECT_EQ(Ask("clamp", Clamped(), With(3, code)).judgement, Judgement::kPassed) << code;
}

TEST(Clamp, AnOutputPastAnEndIsThatEnd) {
  // Half a code past an end is not claimed: rounding may decide it. One code is.
  for (const int64_t i : {0, 6}) {
    const int32_t end = i == 0 ? 10 : 20;
    const Verdict verdict = Ask("clamp", Clamped(), With(i, 15));
    ASSERT_TRUE(verdict.failed()) << i;
    EXPECT_EQ(verdict.kind, FindingKind::kClamp);
    EXPECT_EQ(verdict.divergence->index, i);
    EXPECT_EQ(verdict.divergence->expected, std::to_string(end));
    EXPECT_EQ(verdict.divergence->distance_lsb, 5);
    EXPECT_FALSE(Ask("clamp", Clamped(), With(i, 15), "fbgemm@avx2").failed())
        << "under a convention the exact value does not decide";
  }
  for (const int64_t i : {2, 3, 4})
    EXPECT_EQ(Ask("clamp", Clamped(), With(i, 12)).judgement, Judgement::kPassed) << i;
  Case inside = QuantizeOf({10, 15, 20});
  inside.out_min = 10;
  inside.out_max = 20;
  EXPECT_EQ(Ask("clamp", inside, TestSubject()).judgement, Judgement::kVacuous);
}

TEST(Clamp, SumsInInt32AreClampedToo) {
  Case c = LinearOf(5, {-3, -2, 0, 2, 3}, DType::kS32);  // -15 -10 0 10 15
  c.out_min = -10;
  c.out_max = 10;
  EXPECT_EQ(Ask("clamp", c, TestSubject()).judgement, Judgement::kPassed);
  EXPECT_TRUE(Ask("clamp", c, With(2, 11)).failed());
  EXPECT_TRUE(Ask("clamp", c, With(2, -11)).failed());
  EXPECT_TRUE(Ask("clamp", c, With(0, -9)).failed());
  EXPECT_TRUE(Ask("clamp", c, With(4, 9)).failed());
  EXPECT_FALSE(Ask("clamp", c, With(1, -9)).failed()) << "the sum is the end itself";
  EXPECT_FALSE(Ask("clamp", c, With(3, 9)).failed());
  EXPECT_FALSE(Ask("clamp", c, With(2, 9)).failed());
  c.relu = true;
  EXPECT_TRUE(Ask("clamp", c, With(2, -1)).failed());
  EXPECT_TRUE(Ask("clamp", c, With(1, 1)).failed());
}

TEST(Clamp, MaxPoolIsClampedByItsCodes) {
  Case c;
  c.op = Op::kMaxPool;
  c.N = 5;
  c.window = {.batch = 1, .in_h = 1, .in_w = 1, .in_c = 5};
  c.x = Tensor::Of<uint8_t>({1, 1, 1, 5}, std::vector<uint8_t>{9, 10, 15, 20, 21});
  c.out_min = 10;
  c.out_max = 20;
  DeriveSizes(&c);
  EXPECT_EQ(Ask("clamp", c, TestSubject()).judgement, Judgement::kPassed);
  EXPECT_TRUE(Ask("clamp", c, With(0, 11)).failed());
  EXPECT_TRUE(Ask("clamp", c, With(4, 19)).failed());
  EXPECT_FALSE(Ask("clamp", c, With(1, 11)).failed());
  EXPECT_FALSE(Ask("clamp", c, With(3, 19)).failed());
}

TEST(Clamp, FusedReluIsTheUnfusedOneCutAtTheZeroPoint) {
  Case c = QuantizeOf({-5, 0, 3, 30});
  c.relu = true;
  c.out_q.zero_point = {12};
  c.out_max = 40;
  EXPECT_EQ(Ask("clamp", c, TestSubject()).judgement, Judgement::kPassed);
  const Verdict below = Ask("clamp", c, With(0, 11));
  EXPECT_NE(below.reason.find("in [12,40]"), std::string::npos) << below.reason;
  EXPECT_TRUE(Ask("clamp", c, With(0, 13)).failed());
  const Verdict inside = Ask("clamp", c, With(2, 16));
  ASSERT_TRUE(inside.failed());
  EXPECT_EQ(inside.kind, FindingKind::kClamp);
  EXPECT_NE(inside.reason.find("fused relu is not max(unfused, zero point)"), std::string::npos);
  EXPECT_TRUE(Ask("clamp", c, With(2, 16, 1)).failed()) << "the unfused run is compared";
  EXPECT_FALSE(Ask("clamp", c, With(2, 16), "fbgemm@avx2").failed());
  c.relu = false;
  EXPECT_FALSE(Ask("clamp", c, With(2, 16)).failed()) << "nothing is fused";
}

TEST(Clamp, AZeroPointThatIsNoCodeBoundsOnlyExactSubjects) {
  for (const auto& [zero, low] : std::vector<std::pair<int32_t, int32_t>>{{255, 255}, {0, 0}}) {
    Case c = QuantizeOf({1, 2});
    c.relu = true;
    c.out_q.zero_point = {zero};
    c.x = Tensor::Of<float>({1, 2}, std::vector<float>{-1, -2});
    if (low > 0) {
      EXPECT_TRUE(Ask("clamp", c, With(0, low - 1), "fbgemm@avx2").failed()) << "a code: it bounds";
    }
  }
  Case c = QuantizeOf({-300, -301});
  c.relu = true;
  c.out_q.zero_point = {256};
  EXPECT_NE(Ask("clamp", c, With(0, 254)).reason.find("in [255,255]"), std::string::npos);
  EXPECT_FALSE(Ask("clamp", c, With(0, 254), "fbgemm@avx2").failed());
  c.out_min = 9;
  EXPECT_TRUE(Ask("clamp", c, With(0, 8), "fbgemm@avx2").failed());
  c.out_q.zero_point = {-1};
  EXPECT_TRUE(Ask("clamp", c, With(0, 8), "fbgemm@avx2").failed());
  EXPECT_FALSE(Ask("clamp", c, With(0, 9), "fbgemm@avx2").failed());
}

TEST(Clamp, FloatReluCutsBelowZeroAndKeepsTheRest) {
  Case c = LinearOf(5, {-3, 0, 3}, DType::kF32);
  c.relu = true;
  EXPECT_EQ(Ask("clamp", c, TestSubject()).judgement, Judgement::kPassed);
  for (const float value : {-15.0f, -0x1p-149f, kNan}) {
    const Verdict verdict = Ask("clamp", c, With(0, value));
    ASSERT_TRUE(verdict.failed()) << value;
    EXPECT_EQ(verdict.kind, FindingKind::kClamp);
    EXPECT_EQ(verdict.divergence->expected, "at least 0");
  }
  EXPECT_TRUE(Ask("clamp", c, With(2, 15.000001f)).failed()) << "above 0 nothing changes";
  EXPECT_EQ(Ask("clamp", c, With(2, 15.000001f)).kind, FindingKind::kClamp);
  EXPECT_TRUE(Ask("clamp", c, With(0, -1.0f), "fbgemm@avx2").failed());
  EXPECT_FALSE(Ask("clamp", c, With(0, kNan), "fbgemm@avx2").failed()) << "0 times infinity";
  EXPECT_FALSE(Ask("clamp", c, With(2, 16.0f), "fbgemm@avx2").failed());
  EXPECT_EQ(Ask("clamp", LinearOf(5, {1}, DType::kF32), TestSubject()).judgement,
            Judgement::kVacuous);
  Case none = LinearOf(5, {0, 1}, DType::kF32);
  none.relu = true;
  EXPECT_EQ(Ask("clamp", none, TestSubject()).judgement, Judgement::kVacuous);
}

TEST(Clamp, WhereARequantizationMayWrapNoEndIsClaimed) {
  // 100 * 2^25 leaves int32: fixed_q31 may come out at either end.
  Case c = CaseOver(Op::kRequantize, Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{100, -100}),
                    DType::kU8);
  c.out_min = 10;
  c.out_max = 20;
  c.x_q.scale = {0x1p25f};
  for (const auto& [requant, fails] : std::vector<std::pair<Requant, bool>>{
           {Requant::kExact, true}, {Requant::kFloat32, true}, {Requant::kFixedQ31, false}}) {
    c.requant = requant;
    EXPECT_EQ(Ask("clamp", c, With(0, 15)).failed(), fails) << Name(requant);
    EXPECT_TRUE(Ask("clamp", c, With(0, 21)).failed()) << "outside is outside";
  }
  c.x_q.scale = {1};
  EXPECT_TRUE(Ask("clamp", c, With(0, 15)).failed()) << "nothing wraps";
}

TEST(Clamp, ReluIsNotPartOfWhatLiesPastAnEnd) {
  // Exact 8, the zero point 12: relu gives 12, the clamp ends at 10.
  Case c = QuantizeOf({-4, -2, 0, 1, 7});
  c.relu = true;
  c.out_q.zero_point = {12};
  c.out_min = 10;
  c.out_max = 18;
  EXPECT_EQ(Ask("clamp", c, TestSubject()).judgement, Judgement::kPassed);
  EXPECT_EQ(Ask("clamp", c, With(0, 13)).reason.find("the exact value lies past"), 0u);
  EXPECT_EQ(Ask("clamp", c, With(4, 17)).reason.find("the exact value lies past"), 0u);
  EXPECT_EQ(Ask("clamp", c, With(2, 13)).reason.find("fused relu"), 0u) << "0 is at the end";
  EXPECT_EQ(Ask("clamp", c, With(3, 14)).reason.find("fused relu"), 0u);
  Case pool;
  pool.op = Op::kMaxPool;
  pool.N = 4;
  pool.window = {.batch = 1, .in_h = 1, .in_w = 1, .in_c = 4};
  pool.x = Tensor::Of<uint8_t>({1, 1, 1, 4}, std::vector<uint8_t>{9, 11, 12, 21});
  pool.out_min = 10;
  pool.out_max = 20;
  pool.relu = true;
  pool.x_q.zero_point = pool.out_q.zero_point = {12};
  DeriveSizes(&pool);
  EXPECT_EQ(Ask("clamp", pool, With(1, 13)).reason.find("the exact value lies past"), 0u);
  EXPECT_EQ(Ask("clamp", pool, With(2, 13)).reason.find("fused relu"), 0u);
}

TEST(Clamp, AnUnfusedRunThatIsRefusedOrFailsIsTold) {
  for (Case c : {QuantizeOf({-5, 0, 3, 30}), LinearOf(5, {-3, 0, 3}, DType::kF32)}) {
    c.relu = true;
    TestSubject refuses;
    refuses.cannot_run = [](const Case& asked) { return asked.relu ? "" : "no"; };
    EXPECT_EQ(Ask("clamp", c, refuses).judgement,
              c.op == Op::kLinear ? Judgement::kPassed : Judgement::kPassed);
    TestSubject crashes([](const Case& asked, const RunContext& context) {
      Outcome outcome = TestSubject::Exact(asked, context);
      if (!asked.relu) outcome.status = RunStatus::kCrashed;
      return outcome;
    });
    EXPECT_EQ(Ask("clamp", c, crashes).kind, FindingKind::kCrash);
  }
  Case none = QuantizeOf({});
  EXPECT_EQ(Ask("clamp", none, TestSubject()).reason, "the output is empty");
}

TEST(Clamp, ANegativeZeroBecomesZero) {
  Case c = LinearOf(5, {-3, 0, 3}, DType::kF32);
  c.relu = true;
  // Unfused -0: max(-0, 0) is 0, as the fused run says.
  EXPECT_FALSE(Ask("clamp", c, With(1, -0.0f, 1)).failed());
  EXPECT_TRUE(Ask("clamp", c, With(1, -0.0f)).failed());
}

// --- round trips --------------------------------------------------------------------------------

TEST(RoundTrip, HalfAStepIsGoodAndMoreIsNot) {
  // 10.5 is a tie: 10 and 11 are both half a step away. 10.75 is 11 alone.
  const Case c = QuantizeOf({10.5f, 10.75f});
  EXPECT_EQ(Ask("round_trip", c, TestSubject()).judgement, Judgement::kPassed);
  EXPECT_FALSE(Ask("round_trip", c, With(0, 11)).failed());
  const Verdict off = Ask("round_trip", c, With(1, 10));
  ASSERT_TRUE(off.failed()) << "three quarters of a step";
  EXPECT_EQ(off.divergence->index, 1);
  EXPECT_EQ(off.divergence->actual, "10");
  EXPECT_TRUE(Ask("round_trip", c, With(1, 12)).failed());
  EXPECT_TRUE(Ask("round_trip", c, With(0, 9)).failed());
  EXPECT_TRUE(Ask("round_trip", c, With(0, 12)).failed());
}

TEST(RoundTrip, GoesBackToo) {
  const Case c = QuantizeOf({10});
  const Verdict back = Ask("round_trip", c, With(0, 11, 2));  // the code of the value
  ASSERT_TRUE(back.failed());
  EXPECT_NE(back.reason.find("quantize(dequantize(q)) is not q"), std::string::npos);
  EXPECT_EQ(back.divergence->expected, "10");
  EXPECT_EQ(back.divergence->actual, "11");
  EXPECT_EQ(back.divergence->distance_lsb, 1);
  EXPECT_TRUE(Ask("round_trip", c, With(0, 11.0f, 1)).failed());  // the value of the code
  EXPECT_TRUE(Ask("round_trip", c, With(0, 9.0f, 1)).failed());
  Case dequantize =
      CaseOver(Op::kDequantize, Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{7}), DType::kF32);
  dequantize.M = dequantize.N = 1;
  EXPECT_EQ(Ask("round_trip", dequantize, TestSubject()).judgement, Judgement::kPassed);
  EXPECT_TRUE(Ask("round_trip", dequantize, With(0, 8.0f)).failed());
  EXPECT_TRUE(Ask("round_trip", dequantize, With(0, 6, 1)).failed());
}

TEST(RoundTrip, ClaimsNothingBeyondHalfAStepOfTheRange) {
  // Codes 10 to 20: 9.5 and 20.5 are the ends of what is claimed.
  for (const auto& [x, good, bad] : std::vector<std::tuple<float, int32_t, int32_t>>{
           {9.5f, 10, 11}, {20.5f, 20, 19}, {9.75f, 10, 11}, {20.25f, 20, 19}}) {
    Case c = QuantizeOf({x});
    c.out_min = 10;
    c.out_max = 20;
    EXPECT_FALSE(Ask("round_trip", c, With(0, good)).failed()) << x;
    EXPECT_TRUE(Ask("round_trip", c, With(0, bad)).failed()) << x;
  }
  for (const float x : {9.25f, 20.75f, -1e30f, 1e30f, kInf, -kInf, kNan}) {
    Case c = QuantizeOf({x});
    c.out_min = 10;
    c.out_max = 20;
    EXPECT_FALSE(Ask("round_trip", c, With(0, 15)).failed()) << x;
  }
}

TEST(RoundTrip, TinyValuesAndDenormalsAreExactlyJudged) {
  Case c = QuantizeOf({0x1p-140f, -0x1p-149f, 0.0f});
  c.out_q.zero_point = {7};
  EXPECT_EQ(Ask("round_trip", c, TestSubject()).judgement, Judgement::kPassed);
  for (const int64_t i : {0, 1, 2}) {
    EXPECT_TRUE(Ask("round_trip", c, With(i, 8)).failed()) << i;
    EXPECT_TRUE(Ask("round_trip", c, With(i, 6)).failed()) << i;
  }
  // Steps of the smallest float: 3 of them are code 3, whatever the exponents of the two are.
  Case steps = QuantizeOf({3 * 0x1p-149f, -0x1p-149f, 0x1.8p-148f});
  steps.out_q.scale = {0x1p-149f};
  steps.out_q.zero_point = {100};
  EXPECT_EQ(Ask("round_trip", steps, TestSubject()).judgement, Judgement::kPassed);
  EXPECT_TRUE(Ask("round_trip", steps, With(0, 102)).failed());
  EXPECT_TRUE(Ask("round_trip", steps, With(0, 104)).failed());
  EXPECT_TRUE(Ask("round_trip", steps, With(1, 100)).failed());
  // The zero point is no code: x near 0 lies outside the range.
  Case outside = QuantizeOf({0.0f, 0x1p-140f});
  outside.out_q.zero_point = {-3};
  EXPECT_FALSE(Ask("round_trip", outside, With(0, 9)).failed());
  outside.out_q.zero_point = {300};
  EXPECT_FALSE(Ask("round_trip", outside, With(1, 9)).failed());
  for (const int32_t end : {0, 255}) {
    outside.out_q.zero_point = {end};
    EXPECT_TRUE(Ask("round_trip", outside, With(0, 9)).failed()) << end;
  }
}

TEST(RoundTrip, CodesComeBackAsFarAsFloatsCount) {
  constexpr int32_t kCountable = 1 << 22;
  for (const auto& [zero, judged] :
       std::vector<std::pair<int32_t, bool>>{{0, true},
                                             {10 - kCountable, true},
                                             {10 - kCountable - 1, false},
                                             {10 + kCountable, true},
                                             {10 + kCountable + 1, false}}) {
    for (const int64_t at : {0, 2}) {
      Case c = CaseOver(Op::kDequantize,
                        Tensor::Of<uint8_t>({1, 3}, std::vector<uint8_t>{10, 10, 10}), DType::kF32);
      c.x_q.zero_point = {zero};
      EXPECT_EQ(Ask("round_trip", c, With(at, 11, 1)).failed(), judged) << zero;
      EXPECT_EQ(Ask("round_trip", c, TestSubject()).judgement,
                judged ? Judgement::kPassed : Judgement::kVacuous);
    }
  }
}

// Half steps are judged of whoever only quantizes; the way back of whatever is quantized.
TEST(RoundTrip, EitherHalfIsAJudgement) {
  TestSubject quantizes;
  quantizes.cannot_run = [](const Case& c) { return c.op == Op::kDequantize ? "no" : ""; };
  Case inside = QuantizeOf({10, 11}), outside = QuantizeOf({9, 30});
  for (Case* c : {&inside, &outside}) {
    c->out_min = 10;
    c->out_max = 20;
  }
  EXPECT_EQ(Ask("round_trip", inside, quantizes).judgement, Judgement::kPassed);
  EXPECT_EQ(Ask("round_trip", outside, quantizes).reason,
            "no x lies within half a step of the range");
  EXPECT_EQ(Ask("round_trip", outside, TestSubject()).judgement, Judgement::kPassed);
  EXPECT_TRUE(Ask("round_trip", outside, With(1, 19, 2)).failed());
}

TEST(ZeroMapsToZeroPoint, OfBothZerosWhereItIsACodeInsideTheClamp) {
  Case c = QuantizeOf({3, 4});
  c.out_q.zero_point = {9};
  for (const int64_t i : {0, 1}) {
    const Verdict verdict = Ask("zero_maps_to_zero_point", c, With(i, 11));
    ASSERT_TRUE(verdict.failed());
    EXPECT_EQ(verdict.divergence->index, i);
    EXPECT_EQ(verdict.divergence->expected, "9");
    EXPECT_EQ(verdict.divergence->distance_lsb, 2);
  }
  bool minus = false, plus = false;
  TestSubject looks([&](const Case& asked, const RunContext& context) {
    for (const float x : asked.x.as<float>()) {
      EXPECT_EQ(x, 0.0f);
      (std::signbit(x) ? minus : plus) = true;
    }
    return TestSubject::Exact(asked, context);
  });
  EXPECT_EQ(Judge(*FindProperty("zero_maps_to_zero_point"), c, looks).judgement,
            Judgement::kPassed);
  EXPECT_TRUE(minus && plus);
  for (const auto& [low, high] : std::vector<std::pair<int32_t, int32_t>>{{9, 20}, {0, 9}}) {
    c.out_min = low;
    c.out_max = high;
    EXPECT_TRUE(Ask("zero_maps_to_zero_point", c, With(0, 8 + (low == 9) * 2)).failed());
  }
  for (const auto& [low, high] : std::vector<std::pair<int32_t, int32_t>>{{10, 20}, {0, 8}}) {
    c.out_min = low;
    c.out_max = high;
    EXPECT_EQ(Ask("zero_maps_to_zero_point", c, With(0, 8 + (low == 10) * 3)).judgement,
              Judgement::kVacuous);
  }
}

// --- order, symmetry, sums ----------------------------------------------------------------------

TEST(IsMonotone, OneCodeLowerFails) {
  const Case c = QuantizeOf({30, 10, 20, 10});  // sorted: 10 10 20 30
  EXPECT_EQ(Ask("is_monotone", c, TestSubject()).judgement, Judgement::kPassed);
  for (const auto& [i, code, fails] : std::vector<std::tuple<int64_t, int32_t, bool>>{
           {3, 19, true}, {3, 20, false}, {1, 9, true}, {0, 11, true}, {2, 10, false}}) {
    const Verdict verdict = Ask("is_monotone", c, With(i, code));
    EXPECT_EQ(verdict.failed(), fails) << i << " " << code;
  }
  const Verdict verdict = Ask("is_monotone", c, With(3, 18));
  EXPECT_EQ(verdict.divergence->expected, "at least 20");
  EXPECT_EQ(verdict.divergence->actual, "18");
  EXPECT_EQ(verdict.divergence->distance_lsb, 2);
  EXPECT_EQ(Ask("is_monotone", QuantizeOf({5, 5}), TestSubject()).judgement, Judgement::kVacuous);
}

TEST(IsMonotone, ComparesWithinAChannelWhereParametersAre) {
  Case c = QuantizeOf({4, 100, 3, 90});
  c.M = c.N = 2;
  c.x = Tensor::Of<float>({2, 2}, std::vector<float>{4, 100, 3, 90});
  c.per_channel = true;
  c.out_q.scale = {1, 1};
  c.out_q.zero_point = {0, 0};
  // Sorted: 3 90 / 4 100.
  EXPECT_EQ(Ask("is_monotone", c, TestSubject()).judgement, Judgement::kPassed);
  EXPECT_TRUE(Ask("is_monotone", c, With(3, 89)).failed());
  EXPECT_TRUE(Ask("is_monotone", c, With(2, 2)).failed());
  EXPECT_FALSE(Ask("is_monotone", c, With(2, 3)).failed());
}

TEST(IsMonotone, RaisedInputsLowerNoOutput) {
  Case c = CaseOver(Op::kAdd, Tensor(DType::kU8, {1, 64}), DType::kU8);
  c.M = 1;
  c.N = 64;
  c.w = c.x;
  for (int64_t i = 0; i < 64; ++i) c.x.SetInt(i, 50);
  EXPECT_EQ(Ask("is_monotone", c, TestSubject()).judgement, Judgement::kPassed);
  for (int64_t i = 0; i < 64; ++i) {
    const Verdict verdict = Ask("is_monotone", c, With(i, 49, 1));
    ASSERT_TRUE(verdict.failed()) << i;
    EXPECT_EQ(verdict.divergence->index, i);
    EXPECT_EQ(verdict.divergence->expected, "at least 50");
    EXPECT_EQ(verdict.divergence->distance_lsb, 1);
    EXPECT_FALSE(Ask("is_monotone", c, With(i, 50, 1)).failed());
  }
  // Of half of the codes, a half rises by one and a half by any number: of all places.
  std::set<int64_t> risen;
  int64_t stay = 0, by_one = 0, more = 0;
  for (int32_t of_w = 0; of_w < 20; ++of_w) {  // which makes another draw
    c.w.SetInt(0, of_w);
    TestSubject looks([&](const Case& asked, const RunContext& context) {
      for (int64_t i = 0; asked.x != c.x && i < 64; ++i) {
        const int32_t code = asked.x.IntAt(i);
        EXPECT_GE(code, 50);
        EXPECT_LE(code, 255);
        ++(code == 50 ? stay : code == 51 ? by_one : more);
        if (code > 50) risen.insert(i);
      }
      return TestSubject::Exact(asked, context);
    });
    EXPECT_FALSE(Judge(*FindProperty("is_monotone"), c, looks).failed());
  }
  EXPECT_EQ(risen.size(), 64u);
  EXPECT_NEAR(static_cast<double>(stay), 640, 120);
  EXPECT_NEAR(static_cast<double>(by_one), 320, 90);
  EXPECT_NEAR(static_cast<double>(more), 320, 90);
  c.w.SetInt(0, 0);
  for (int64_t i = 0; i < 64; ++i) c.x.SetInt(i, 255);
  EXPECT_EQ(Ask("is_monotone", c, TestSubject()).judgement, Judgement::kVacuous);
}

TEST(Negation, MirrorsStrictlyInsideTheClampAndNowhereElse) {
  Case c = QuantizeOf({3, -4, 0, 200});
  c.out_q.zero_point = {100};
  c.out_min = 60;
  c.out_max = 140;
  EXPECT_EQ(Ask("negation", c, TestSubject()).judgement, Judgement::kPassed);
  for (const int64_t i : {0, 1, 2}) {
    const Verdict verdict = Ask("negation", c, With(i, 105, 1));
    ASSERT_TRUE(verdict.failed()) << i;
    EXPECT_EQ(verdict.divergence->index, i);
    EXPECT_EQ(verdict.divergence->expected, std::to_string(100 - (i == 0 ? 3 : i == 1 ? -4 : 0)));
    EXPECT_EQ(verdict.divergence->actual, "105");
    EXPECT_EQ(verdict.divergence->distance_lsb, i == 0 ? 8 : i == 1 ? 1 : 5);
    EXPECT_TRUE(Ask("negation", c, With(i, 106, 0)).failed());
  }
  for (const int32_t end : {60, 140}) EXPECT_FALSE(Ask("negation", c, With(0, end, 1)).failed());
  EXPECT_TRUE(Ask("negation", c, With(0, 61, 1)).failed());
  EXPECT_TRUE(Ask("negation", c, With(0, 139, 1)).failed());
}

Case AddOf(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b, int32_t zero) {
  const auto n = static_cast<int64_t>(a.size());
  Case c = CaseOver(Op::kAdd, Tensor::Of<uint8_t>({1, n}, a), DType::kU8);
  c.w = Tensor::Of<uint8_t>({1, n}, b);
  c.x_q.zero_point = c.w_q.zero_point = c.out_q.zero_point = {zero};
  return c;
}

TEST(Negation, MirrorsBothOperandsAndCodesThatHaveAMirrorImage) {
  // 100 +- 100 and 155 +- 100 are the last codes with a mirror image; other codes become real 0.
  for (const auto& [zero, code, image] : std::vector<std::tuple<int32_t, uint8_t, int32_t>>{
           {100, 200, 0}, {155, 55, 255}, {100, 201, 100}, {155, 54, 155}, {100, 90, 110}}) {
    const Case c = AddOf({code, 120}, {120, 110}, zero);
    std::vector<Case> asked;
    TestSubject looks([&](const Case& problem, const RunContext& context) {
      asked.push_back(problem);
      return TestSubject::Exact(problem, context);
    });
    EXPECT_FALSE(Judge(*FindProperty("negation"), c, looks).failed());
    ASSERT_EQ(asked.size(), 2u);
    EXPECT_EQ(asked[1].x.IntAt(0), image) << zero << " " << int{code};
    EXPECT_EQ(asked[0].x.IntAt(0), image == zero ? zero : code);
    EXPECT_EQ(asked[0].x.IntAt(1), 120);
    EXPECT_EQ(asked[0].w, c.w);
    EXPECT_EQ(asked[1].w.IntAt(0), 2 * zero - 120);
    EXPECT_EQ(asked[1].w.IntAt(1), 2 * zero - 110);
    EXPECT_EQ(asked[1].x_q, c.x_q);
    EXPECT_EQ(asked[1].w_q, c.w_q);
  }
}

TEST(Negation, IsVacuousWhereNothingIsMirrored) {
  EXPECT_EQ(Ask("negation", AddOf({7, 7}, {7, 7}, 7), TestSubject()).judgement,
            Judgement::kVacuous);
  EXPECT_EQ(Ask("negation", AddOf({7, 7}, {7, 8}, 7), TestSubject()).judgement, Judgement::kPassed);
  EXPECT_EQ(Ask("negation", AddOf({8, 7}, {7, 7}, 7), TestSubject()).judgement, Judgement::kPassed);
  for (const int32_t zero : {-1, 256}) {
    Case off = AddOf({8, 7}, {7, 7}, 7);
    off.x_q.zero_point = {zero};
    EXPECT_EQ(Ask("negation", off, TestSubject()).judgement, Judgement::kVacuous);
    off = AddOf({8, 7}, {7, 7}, 7);
    off.w_q.zero_point = {zero};
    EXPECT_EQ(Ask("negation", off, TestSubject()).judgement, Judgement::kVacuous);
  }
  for (const int32_t zero : {0, 255}) {
    EXPECT_EQ(Ask("negation", AddOf({5, 9}, {250, 9}, zero), TestSubject()).reason,
              "every input is real 0");
  }
  Case cut = QuantizeOf({5, 6});
  cut.out_q.zero_point = {100};
  cut.out_min = cut.out_max = 100;
  EXPECT_EQ(Ask("negation", cut, TestSubject()).judgement, Judgement::kVacuous);
}

TEST(Negation, IsNoTheoremWhereHalvesOfOneSignRoundOtherwise) {
  Case c =
      CaseOver(Op::kRequantize, Tensor::Of<int32_t>({1, 1}, std::vector<int32_t>{5}), DType::kS8);
  for (const auto& [requant, scale, judged] : std::vector<std::tuple<Requant, float, Judgement>>{
           {Requant::kExact, 0.5f, Judgement::kPassed},
           {Requant::kFloat32, 0.5f, Judgement::kPassed},
           {Requant::kFixedQ31, 0.5f, Judgement::kNotApplicable},
           {Requant::kFixedRndnu, 0.5f, Judgement::kNotApplicable},
           {Requant::kFloat32, 0x1p40f, Judgement::kNotApplicable}}) {
    c.requant = requant;
    c.x_q.scale = {scale};
    for (const char* claim : {"negation", "is_monotone"}) {
      if (claim == std::string("is_monotone") && scale == 0.5f) continue;
      const Verdict verdict = Ask(claim, c, TestSubject());
      EXPECT_EQ(verdict.judgement, judged) << Name(requant) << scale << claim;
      EXPECT_EQ(verdict.reason.empty(), judged == Judgement::kPassed);
    }
  }
  c.x = Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{INT32_MIN, 5});
  c.N = 2;
  c.requant = Requant::kExact;
  c.x_q.scale = {0.5f};
  EXPECT_EQ(Ask("negation", c, TestSubject()).judgement, Judgement::kPassed);
  EXPECT_FALSE(Ask("negation", c, With(0, 7, 1)).failed()) << "which has no negative";
}

TEST(SplitK, TheTwoPartsMakeUpTheWhole) {
  Case conv;  // one channel for each group: taps are split
  conv.op = Op::kDepthwise;
  conv.N = 2;
  conv.window = {.batch = 1, .in_h = 3, .in_w = 3, .in_c = 2, .kernel_h = 3, .kernel_w = 3};
  conv.window.groups = 2;
  conv.x = Tensor(DType::kU8, {1, 3, 3, 2});
  conv.w = Tensor(DType::kS8, {2, 3, 3, 1});
  for (int64_t i = 0; i < 18; ++i) conv.x.SetInt(i, static_cast<int32_t>(200 + i));
  DeriveSizes(&conv);
  Case linear = LinearOf(5, {3}, DType::kS32);
  linear.K = 5;
  linear.x = Tensor::Of<uint8_t>({1, 5}, std::vector<uint8_t>{200, 201, 202, 203, 204});
  linear.w = Tensor(DType::kS8, {1, 5});
  std::set<int64_t> cuts, zeroed;
  int64_t in_first = 0, in_second = 0;
  for (int32_t draw = 0; draw < 40; ++draw) {
    for (int64_t i = 0; i < 18; ++i) conv.w.SetInt(i, static_cast<int32_t>(10 + i + draw));
    conv.w_q.zero_point = {draw - 20};
    for (int64_t i = 0; i < 5; ++i) linear.w.SetInt(i, static_cast<int32_t>(10 + i + draw));
    for (const Case* c : {&conv, &linear}) {
      std::vector<Case> asked;
      TestSubject looks([&](const Case& problem, const RunContext& context) {
        asked.push_back(problem);
        return TestSubject::Exact(problem, context);
      });
      EXPECT_EQ(Judge(*FindProperty("split_k"), *c, looks).judgement, Judgement::kPassed);
      ASSERT_EQ(asked.size(), 3u);
      EXPECT_EQ(asked[0].x, c->x);
      EXPECT_EQ(asked[0].w, c->w);
      if (c == &linear) {
        const int64_t cut = asked[1].K;
        cuts.insert(cut);
        EXPECT_EQ(asked[2].K, 5 - cut);
        for (int64_t k = 0; k < 5; ++k) {
          const Case& part = asked[k < cut ? 1 : 2];
          EXPECT_EQ(part.x.IntAt(k < cut ? k : k - cut), c->x.IntAt(k));
          EXPECT_EQ(part.w.IntAt(k < cut ? k : k - cut), c->w.IntAt(k));
        }
        continue;
      }
      const int32_t zero = c->w_q.zero_point[0];
      for (int64_t i = 0; i < 18; ++i) {
        const int32_t first = asked[1].w.IntAt(i), second = asked[2].w.IntAt(i);
        EXPECT_TRUE((first == zero && second == c->w.IntAt(i)) ||
                    (second == zero && first == c->w.IntAt(i)));
        if (c->w.IntAt(i) == zero) continue;
        ++(second == zero ? in_first : in_second);
        if (first == zero) zeroed.insert(i);
      }
    }
  }
  EXPECT_EQ(cuts, (std::set<int64_t>{1, 3})) << "odd: pairs are torn too";
  EXPECT_EQ(zeroed.size(), 18u);
  EXPECT_NEAR(static_cast<double>(in_first), static_cast<double>(in_second), 120);
  for (const auto& [zero, judged] :
       std::vector<std::pair<int32_t, Judgement>>{{-128, Judgement::kPassed},
                                                  {127, Judgement::kPassed},
                                                  {-129, Judgement::kVacuous},
                                                  {128, Judgement::kVacuous}}) {
    conv.w_q.zero_point = {zero};
    EXPECT_EQ(Ask("split_k", conv, TestSubject()).judgement, judged) << zero;
  }
  EXPECT_EQ(Ask("split_k", LinearOf(5, {3}, DType::kS32), TestSubject()).judgement,
            Judgement::kVacuous)
      << "one term";
  linear.K = 2;
  linear.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{200, 201});
  linear.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{1, 2});
  EXPECT_EQ(Ask("split_k", linear, TestSubject()).judgement, Judgement::kPassed);
  linear.w_q.zero_point = {300};
  EXPECT_EQ(Ask("split_k", linear, TestSubject()).judgement, Judgement::kPassed)
      << "two terms are split, whatever their zero point is";
  linear.w_q.zero_point = {0};
  for (const int64_t run : {0, 1, 2}) {
    EXPECT_TRUE(Ask("split_k", linear, With(0, 77, run)).failed()) << run;
    for (const int32_t end : {INT32_MIN, INT32_MAX}) {
      EXPECT_EQ(Ask("split_k", linear, With(0, end, run)).judgement, Judgement::kVacuous);
      EXPECT_TRUE(Ask("split_k", linear, With(0, end + (end < 0 ? 1 : -1), run)).failed());
    }
  }
}

TEST(SplitK, AllBitsOfTheSumsCount) {
  Case c = LinearOf(5, {3}, DType::kS32);
  c.K = 4;
  c.x = Tensor::Of<uint8_t>({1, 4}, std::vector<uint8_t>{200, 201, 202, 203});
  c.w = Tensor::Of<int8_t>({1, 4}, std::vector<int8_t>{100, 101, 102, 103});
  const int32_t sum = exact::Evaluate(c).IntAt(0);
  EXPECT_EQ(Ask("split_k", c, TestSubject()).judgement, Judgement::kPassed);
  for (const int64_t off : {1, -1, 1 << 8, 1 << 16, -(1 << 16), 1 << 24, 1 << 30}) {
    const Verdict verdict = Ask("split_k", c, With(0, static_cast<int32_t>(sum + off)));
    ASSERT_TRUE(verdict.failed()) << off;
    EXPECT_EQ(verdict.divergence->expected, std::to_string(sum));
    EXPECT_EQ(verdict.divergence->distance_lsb, std::abs(static_cast<double>(off)));
  }
  for (const int32_t end : {INT32_MIN, INT32_MAX})
    EXPECT_EQ(Ask("split_k", c, With(0, end)).judgement, Judgement::kVacuous)
        << "may have saturated";
}

// --- sweeps -------------------------------------------------------------------------------------

// Channel n has the weight w[n].
Case SweepBase(const std::vector<int8_t>& w, DType out) {
  Case c = LinearOf(0, w, out);
  c.out_q.zero_point = {out == DType::kU8 ? 128 : 0};
  return c;
}

TEST(Sweeps, OneCodeBackFailsInTheDirectionOfTheWeights) {
  const Case base = SweepBase({1, -1, 0}, DType::kU8);
  const std::vector<int32_t> codes{10, 11, 12, 13};
  const auto judge = [&](int64_t n, const std::vector<int32_t>& y) {
    return sweep::JudgeMonotone(base, n, codes, y);
  };
  EXPECT_FALSE(judge(0, {5, 5, 6, 9}).failed());
  EXPECT_FALSE(judge(1, {9, 6, 5, 5}).failed());
  EXPECT_FALSE(judge(2, {7, 7, 7, 7}).failed());
  const Verdict up = judge(0, {5, 4, 6, 9});
  ASSERT_TRUE(up.failed());
  EXPECT_NE(up.reason.find("turns back at x = 11, channel 0: got 4, expected at least 5"),
            std::string::npos)
      << up.reason;
  const Verdict down = judge(1, {9, 6, 5, 6});
  ASSERT_TRUE(down.failed());
  EXPECT_NE(down.reason.find("at x = 13, channel 1: got 6, expected at most 5"), std::string::npos)
      << down.reason;
  for (const auto& y : {std::vector<int32_t>{7, 8, 8, 8}, std::vector<int32_t>{7, 7, 7, 6}}) {
    const Verdict flat = judge(2, y);
    ASSERT_TRUE(flat.failed());
    EXPECT_NE(flat.reason.find("expected 7"), std::string::npos) << flat.reason;
  }
}

TEST(Sweeps, AccumulatorsKeepTheirSlopeInsideTheClamp) {
  Case base = SweepBase({2}, DType::kS32);
  base.out_min = -50;
  base.out_max = 50;
  const std::vector<int32_t> codes{0, 1, 2, 3, 4};
  const auto judge = [&](const std::vector<int32_t>& y) {
    return sweep::JudgeLinear(base, 0, codes, y);
  };
  EXPECT_FALSE(judge({0, 2, 4, 6, 8}).failed());
  const Verdict bent = judge({0, 2, 4, 7, 10});
  ASSERT_TRUE(bent.failed());
  EXPECT_NE(bent.reason.find("changes slope at x = 3, channel 0: got 7, expected 6"),
            std::string::npos)
      << bent.reason;
  EXPECT_TRUE(judge({0, 3, 4, 6, 8}).failed()) << "the first three are looked at";
  EXPECT_TRUE(judge({0, 2, 4, 6, 9}).failed()) << "and the last three";
  EXPECT_FALSE(judge({44, 46, 48, 50, 50}).failed()) << "at an end of the clamp nothing is claimed";
  EXPECT_FALSE(judge({-50, -50, -48, -46, -44}).failed());
  EXPECT_FALSE(judge({0, 50, 4, 6, 8}).failed());
  EXPECT_TRUE(judge({43, 45, 47, 48, 49}).failed()) << "49 is inside";
}

TEST(Sweeps, CodesLieOnARoundedLine) {
  const Case base = SweepBase({1}, DType::kU8);
  const std::vector<int32_t> codes{0, 1, 2, 3, 4};
  EXPECT_FALSE(sweep::JudgeLinear(base, 0, codes, {0, 1, 1, 2, 2}).failed());
  const Verdict verdict = sweep::JudgeLinear(base, 3, codes, {0, 3, 3, 3, 9});
  ASSERT_TRUE(verdict.failed());
  EXPECT_NE(verdict.reason.find("channel 3"), std::string::npos);
  Case shut = base;
  shut.out_min = shut.out_max = 3;
  EXPECT_FALSE(sweep::JudgeLinear(shut, 0, codes, {3, 3, 3, 3, 3}).failed());
}

TEST(Sweeps, EveryChannelIsJudged) {
  for (const DType out : {DType::kU8, DType::kS32}) {
    const Case c = SweepBase({1, 1, -1, 1, 2}, out);
    for (const char* claim : {"sweep_is_monotone", "sweep_is_linear"}) {
      EXPECT_EQ(Ask(claim, c, TestSubject()).judgement, Judgement::kPassed) << claim;
      for (int64_t n = 0; n < c.N; ++n) {
        // Code 64 of the sweep jumps against the direction of its channel.
        const int32_t end = (c.w.IntAt(n) > 0) == (out == DType::kU8) ? 1 : -1;
        const int32_t value = out == DType::kU8 ? (end > 0 ? 2 : 250) : 20'000 * end;
        const Verdict verdict = Ask(claim, c, With(64 * c.N + n, value));
        ASSERT_TRUE(verdict.failed()) << claim << " channel " << n;
        EXPECT_NE(verdict.reason.find("channel " + std::to_string(n)), std::string::npos)
            << verdict.reason;
      }
    }
  }
}

TEST(Sweeps, AskAboutEveryCodeOfAsManyChannelsAsTheyHaveTimeFor) {
  const struct {
    int64_t k, n, swept;
  } rows[]{{1, 7, 7}, {256, 7, 4}, {1024, 7, 1}, {2000, 7, 1}, {512, 1, 1}};
  for (const auto& [k, n, swept] : rows) {
    Case c;
    c.op = Op::kLinear;
    c.M = 2;
    c.N = n;
    c.K = k;
    c.x = Tensor(DType::kS8, {2, k});
    c.w = Tensor(DType::kS8, {n, k});
    for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, static_cast<int32_t>(i % 3));
    c.out_dtype = DType::kS32;
    OpenClamp(&c);
    const Case asked = AskedBy("sweep_is_linear", c).problems.at(0);
    EXPECT_EQ(asked.M, 256);
    EXPECT_EQ(asked.N, swept) << k;
    for (int64_t row = 0; row < 256; ++row) {
      EXPECT_EQ(asked.x.IntAt(row * k), row - 128);
      EXPECT_EQ(asked.x.IntAt(row * k + k - 1), row - 128);
    }
  }
}

TEST(Sweeps, OfAnImageSeeTheMiddleAndAnyPixel) {
  std::set<std::pair<int64_t, int64_t>> paddings;
  int middle = 0;
  for (int32_t i = 0; i < 60; ++i) {
    Case c;
    c.op = Op::kConv2d;
    c.N = 1;
    c.window = {.batch = 1,
                .in_h = 3,
                .in_w = 3,
                .in_c = 1,
                .kernel_h = 3,
                .kernel_w = 3,
                .pad_top = 1,
                .pad_bottom = 1,
                .pad_left = 1,
                .pad_right = 1};
    c.x = Tensor(DType::kU8, {1, 3, 3, 1});
    c.x.SetInt(0, i);
    c.w = Tensor(DType::kS8, {1, 3, 3, 1});
    for (int64_t k = 0; k < 9; ++k) c.w.SetInt(k, 1);
    c.out_dtype = DType::kS32;
    DeriveSizes(&c);
    OpenClamp(&c);
    const Window& v = AskedBy("sweep_is_monotone", c).problems.at(0).window;
    EXPECT_EQ(v.batch, 256);
    paddings.insert({v.pad_top - v.pad_bottom, v.pad_left - v.pad_right});
    middle += !v.has_padding();
  }
  EXPECT_EQ(paddings.size(), 9u) << "each pixel has its turn";
  EXPECT_GT(middle, 20) << "half of the time the pixel that sees most";
  EXPECT_LT(middle, 45);
}

TEST(Sweeps, SayWhyTheyAreNoTheorem) {
  Case c = SweepBase({1, -1}, DType::kU8);
  for (const Requant requant : {Requant::kFloat32, Requant::kFixedQ31, Requant::kFixedRndnu}) {
    c.requant = requant;
    ASSERT_EQ(Validate(c), "");
    EXPECT_EQ(Ask("sweep_is_linear", c, TestSubject()).judgement, Judgement::kNotApplicable);
    EXPECT_EQ(Ask("sweep_is_linear", c, TestSubject()).reason,
              std::string(Name(requant)) + " rounds more than once");
    EXPECT_EQ(Ask("sweep_is_monotone", c, TestSubject()).judgement, Judgement::kPassed);
  }
  c.requant = Requant::kFixedQ31;
  c.x_q.scale = {0x1p30f};
  const Verdict overflows = Ask("sweep_is_monotone", c, TestSubject());
  EXPECT_EQ(overflows.judgement, Judgement::kNotApplicable);
  EXPECT_EQ(overflows.reason, relation::kRequantOverflows);
}

// Both claims are judged on one sweep.
TEST(Sweeps, AreRunOnceForACase) {
  TestSubject subject;
  MemoSubject memo(subject);
  for (const char* claim : {"sweep_is_monotone", "sweep_is_linear"}) {
    for (const DType dtype : {DType::kU8, DType::kS32}) {
      EXPECT_EQ(Judge(*FindProperty(claim), SweepBase({1, 2}, dtype), memo).judgement,
                Judgement::kPassed);
    }
  }
  EXPECT_EQ(memo.runs(), 2) << "of two cases";
}

TEST(Sweeps, OfNothingAreVacuous) {
  for (const char* claim : {"sweep_is_monotone", "sweep_is_linear"}) {
    Case no_terms = SweepBase({1}, DType::kU8);
    no_terms.K = 0;
    no_terms.x = Tensor(DType::kU8, {1, 0});
    no_terms.w = Tensor(DType::kS8, {1, 0});
    Case no_pixels;
    no_pixels.op = Op::kConv2d;
    no_pixels.N = 1;
    no_pixels.window = {.batch = 0, .in_h = 1, .in_w = 1, .in_c = 1};
    no_pixels.x = Tensor(DType::kU8, {0, 1, 1, 1});
    no_pixels.w = Tensor(DType::kS8, {1, 1, 1, 1});
    DeriveSizes(&no_pixels);
    for (const Case& c : {no_terms, no_pixels, SweepBase({}, DType::kU8)})
      EXPECT_EQ(Ask(claim, c, TestSubject()).reason, "the output is empty or does not depend on x");
    Case no_rows = SweepBase({3}, DType::kU8);
    no_rows.M = 0;
    no_rows.x = Tensor(DType::kU8, {0, 1});
    EXPECT_EQ(Ask(claim, no_rows, TestSubject()).judgement, Judgement::kPassed)
        << "a sweep has rows of its own";
  }
}

TEST(Sweeps, FewerThanThreeValuesAndFloatsAreVacuous) {
  for (const char* claim : {"sweep_is_monotone", "sweep_is_linear"}) {
    Case c = SweepBase({1, 0}, DType::kU8);
    c.out_max = c.out_min + 1;
    EXPECT_EQ(Ask(claim, c, TestSubject()).judgement, Judgement::kVacuous) << claim;
    c.out_max = c.out_min + 2;
    c.out_q.zero_point = {0};
    EXPECT_EQ(Ask(claim, c, TestSubject()).judgement, Judgement::kPassed) << claim;
    EXPECT_EQ(Ask(claim, SweepBase({1}, DType::kF32), TestSubject()).reason,
              "an f32 output has no codes to compare");
    Case last = SweepBase({0, 1}, DType::kU8);  // only the last channel moves
    EXPECT_EQ(Ask(claim, last, TestSubject()).judgement, Judgement::kPassed) << claim;
  }
}

}  // namespace
}  // namespace qualm
