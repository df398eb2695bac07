// SPDX-License-Identifier: Apache-2.0
// The minimum that is found, and the cause that is named, for each planted fault.
#include "triage/triage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "core/rng.h"
#include "oracles/exact/exact.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "properties/test_subject.h"
#include "triage/causes.h"
#include "triage/complexity.h"
#include "triage/cover.h"
#include "triage/fault_test_util.h"
#include "triage/identify.h"
#include "triage/passes.h"
#include "triage/reduce.h"
#include "triage/simpler_test_util.h"
#include "triage/triaged.h"

namespace qualm::triage {
namespace {

constexpr FindingKind kPairs = FindingKind::kPairSaturation;
constexpr FindingKind kZeroPoint = FindingKind::kZeroPoint;

class Triage : public testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterAllSubjects(); }
  static std::unique_ptr<Subject> Make(const std::string& name) {
    return SubjectRegistry::Get().Make(name);
  }
  // The first drawn case on which the property fails.
  static std::optional<Case> FirstFailure(Op op, Subject& subject, const Property& property) {
    for (uint64_t seed = 0; seed < 20000; ++seed) {
      Case c = gen::Draw(op, seed);
      if (Judge(property, c, subject).failed()) return c;
    }
    return std::nullopt;
  }
};

TEST_F(Triage, ForumSweepEndsAtTwoTerms) {
  const Case c = ReadCaseFile(QUALM_SOURCE_DIR "/corpus/forum/000-linear-sweep.case.json");
  const auto subject = Make("model:fbgemm@avx2");
  subject->set_contract({});
  const MinimizeResult result = Minimize(c, *subject, *FindProperty("matches_exact"));
  ASSERT_TRUE(result.reproduced);
  EXPECT_EQ(result.minimized.M, 1);
  EXPECT_EQ(result.minimized.N, 1);
  EXPECT_EQ(result.minimized.K, 2);
  EXPECT_LE(result.calls, 2000);
  EXPECT_EQ(result.attribution.kind, FindingKind::kPairSaturation);
  EXPECT_EQ(result.minimized.x_q.zero_point, std::vector<int32_t>{0});
  EXPECT_EQ(result.minimized.x_q.scale, std::vector<float>{1.0f});

  EXPECT_EQ(result.minimized.w_q.zero_point, std::vector<int32_t>{0});
  EXPECT_EQ(result.minimized.out_q.zero_point, std::vector<int32_t>{0});
  EXPECT_EQ(result.minimized.out_q.scale, std::vector<float>{256.0f});
  EXPECT_FALSE(result.attribution.ambiguous);

  const std::string text = Explain(result.minimized, {subject.get()});
  EXPECT_NE(text.find("-> 32767, lost"), std::string::npos) << text;
  EXPECT_NE(text.find("bit-equal to: fbgemm@avx2, "), std::string::npos) << text;
}

// Each cause of a kernel with three faults is borne out where the other two are known, though many
// answers show several faults.
TEST_F(Triage, KnownFaultsOfAKernelDoNotContradictItsOthers) {
  const auto subject = Make("faulty:pair-saturation+k-tail+relu-clamp-zero");
  const Property& exact = *FindProperty("matches_exact");
  const std::vector<std::string> names{"pair saturation", "last product dropped", "relu at code 0"};
  for (const std::string& name : names) {
    const Hypothesis wanted = CausesNamed(name, Op::kLinear);
    std::vector<Hypothesis> known;
    for (const std::string& other : names) {
      if (other != name) known.push_back(CausesNamed(other, Op::kLinear));
    }
    int seen = 0, right = 0;
    for (uint64_t seed = 0; seen < 10; ++seed) {
      const Case c = gen::Draw(Op::kLinear, seed);
      const auto y = Counterfactual(c, wanted);
      if (!y || *y == exact::Evaluate(c) || !subject->CannotRun(c).empty()) continue;
      if (subject->Run(c, {}).y != *y || Counterfactual(c, known[0]) == *y ||
          Counterfactual(c, known[1]) == *y)
        continue;
      ++seen;
      const Judged judged = JudgeAndAttribute(
          exact, c, *subject, {.established = AllNamed(Op::kLinear, known), .examine = true});
      right += judged.attribution.causes == wanted;
      for (const Cause* cause : judged.attribution.causes) {
        EXPECT_EQ(std::ranges::count(names, cause->name), 1) << cause->name << Describe(c);
      }
    }
    EXPECT_GE(right, 5) << name;
  }
}

TEST_F(Triage, KnownFaultsTogetherAreNamed) {
  const auto subject = Make("faulty:pair-saturation+k-tail+relu-clamp-zero");
  const std::vector<Hypothesis> known{CausesNamed("relu at code 0", Op::kLinear),
                                      CausesNamed("pair saturation", Op::kLinear),
                                      CausesNamed("last product dropped", Op::kLinear)};
  const Hypothesis wanted{known[1].front(), known[2].front()};
  for (uint64_t seed = 0;; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    const auto y = Counterfactual(c, wanted);
    if (c.relu || !y || *y == Counterfactual(c, known[1]) || *y == Counterfactual(c, known[2]))
      continue;
    if (subject->Run(c, {}).y != *y) continue;
    const Judged judged =
        JudgeAndAttribute(*FindProperty("matches_exact"), c, *subject,
                          {.established = AllNamed(Op::kLinear, known), .examine = true});
    ASSERT_TRUE(judged.verdict.failed());
    EXPECT_EQ(NamesOf(judged.attribution.causes, Op::kLinear), NamesOf(wanted, Op::kLinear))
        << Describe(c);
    return;
  }
}

// A product of scales below the least float32 is 0 there: the bias alone is left.
TEST_F(Triage, AFloat32ScaleProductMayBeZero) {
  Case c = ReadCaseFile(QUALM_SOURCE_DIR "/corpus/forum/002-linear-by-hand.case.json");
  c.x_q.scale = {0x1p-149f};
  c.w_q.scale.assign(c.w_q.scale.size(), 0x1p-3f);
  c.out_q.scale = {0x1p-149f};
  const auto y = Counterfactual(c, std::vector{&CauseNamed("float32 scale product")});
  ASSERT_TRUE(y);
  for (int64_t i = 0; i < y->size(); ++i) EXPECT_EQ(y->IntAt(i), c.out_q.zero_point[0]);
  EXPECT_NE(*y, exact::Evaluate(c));
}

// Thread 002: the poster's NumPy code subtracted the weight zero point from x. Reading x with the
// other sign happens to give the same two numbers; it is not named, as NumPy with his formula gives
// them too.
TEST_F(Triage, HandComputationOfTheThreadIsNamed) {
  const Case c = ReadCaseFile(QUALM_SOURCE_DIR "/corpus/forum/002-linear-by-hand.case.json");
  ASSERT_TRUE(c.observed);
  const Attribution attribution = Attribute(c, c.observed->y);
  EXPECT_EQ(attribution.kind, FindingKind::kZeroPoint);
  EXPECT_EQ(attribution.causes, std::vector{&CauseNamed("weight zero point taken from the input")});
  EXPECT_TRUE(attribution.complete);
  EXPECT_NE(Explain(c, {}).find("subtracts the weight zero point from the input"),
            std::string::npos);
}

struct FaultCase {
  const char* subject;
  Op op;
  FindingKind kind;
  int64_t most_terms;  // K of the minimum, at most
};

class MinimumOfFault : public Triage, public testing::WithParamInterface<FaultCase> {};

TEST_P(MinimumOfFault, IsSmallAndNamed) {
  const FaultCase& fault = GetParam();
  const auto subject = Make(fault.subject);
  const Property& property = *FindProperty("matches_exact");
  const std::optional<Case> failing = FirstFailure(fault.op, *subject, property);
  ASSERT_TRUE(failing) << "no drawn case fails";
  const MinimizeResult result = Minimize(*failing, *subject, property);
  ASSERT_TRUE(result.reproduced);
  EXPECT_EQ(result.attribution.kind, fault.kind) << result.attribution.diagnosis;
  EXPECT_EQ(result.minimized.M * result.minimized.N, 1);
  EXPECT_LE(result.minimized.K, fault.most_terms) << CaseToJson(result.minimized);
  EXPECT_LE(result.calls, 2000);
  // The reproducer replays alone and is not more complex than the original case.
  EXPECT_TRUE(
      Judge(property, ParseCase(CaseToJson(result.minimized), "minimized"), *subject).failed());
  EXPECT_LE(Complexity(result.minimized), Complexity(*failing));
}

INSTANTIATE_TEST_SUITE_P(
    Canaries, MinimumOfFault,
    testing::Values(
        FaultCase{"faulty:pair-saturation", Op::kLinear, FindingKind::kPairSaturation, 2},
        FaultCase{"faulty:relu-clamp-zero", Op::kLinear, FindingKind::kClamp, 1},
        FaultCase{"faulty:k-tail", Op::kLinear, FindingKind::kTail, 1},
        FaultCase{"faulty:pair-saturation", Op::kConv2d, kPairs, 3},
        FaultCase{"faulty:padding-is-code-zero", Op::kConv2d, FindingKind::kPadding, 2},
        FaultCase{"faulty:padding-is-code-zero", Op::kDepthwise, FindingKind::kPadding, 2},
        FaultCase{"faulty:kernel-width-bound", Op::kConv2d, FindingKind::kIndex, 2},
        FaultCase{"faulty:taps-int16", Op::kDepthwise, kPairs, 3},
        FaultCase{"faulty:max-pool-start", Op::kMaxPool, FindingKind::kClamp, 1},
        FaultCase{"faulty:divisor-unclipped", Op::kAvgPool, FindingKind::kPadding, 2},
        FaultCase{"faulty:product-int16", Op::kMul, FindingKind::kInt32Overflow, 0},
        FaultCase{"faulty:left-shift-dropped", Op::kMul, FindingKind::kRounding, 0},
        FaultCase{"faulty:left-shift-dropped", Op::kAdd, FindingKind::kRounding, 0}),
    [](const auto& param) {
      std::string name =
          std::string(param.param.subject + 7) + "_" + std::string(Name(param.param.op));
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// No parameter that the failure does not need is left: the simplest value in its place cures it, or
// makes another failure. (The key of tried cases once left parameters out, and candidates that
// differed only there were never tried.)
TEST_F(Triage, MinimizedParametersAreNeeded) {
  const auto subject = Make("faulty:averaging-in-double");
  const Property& property = *FindProperty("matches_exact");
  for (const uint64_t seed : {1, 3, 4}) {
    std::optional<Case> failing;
    for (int64_t i = 0; i < 150 && !failing; ++i) {
      Case c = gen::Draw(Op::kChooseQParams, CaseSeed(seed, Op::kChooseQParams, i));
      if (Judge(property, c, *subject).failed()) failing = std::move(c);
    }
    ASSERT_TRUE(failing) << seed;
    const Case least = Minimize(*failing, *subject, property).minimized;
    EXPECT_FALSE(least.observer.symmetric) << seed;
    EXPECT_FALSE(least.observer.reduce_range) << seed;
    const Case simplest = SimplestParameters(least);
    size_t count = 0;
    ForEachParameter(least, [&](const Field&, const auto&) { ++count; });
    for (size_t wanted = 0; wanted < count; ++wanted) {
      Case simpler = ProblemOf(least);
      std::string_view name;
      size_t at = 0;
      ForEachParameter(simpler, simplest, [&](const Field& field, auto& value, const auto& simple) {
        if (at++ != wanted || value == simple) return;
        value = simple;
        name = field.name;
      });
      if (name.empty() || !Validate(simpler).empty()) continue;
      EXPECT_FALSE(Judge(property, simpler, *subject).failed()) << seed << ": " << name;
    }
  }
}

// A tie is a tie of the whole sum. It remains a tie if the bias takes over the terms that are
// dropped; without that, dropping a term, or making a zero point smaller, loses the tie.
TEST_F(Triage, TheBiasTakesOverTheSumOfATie) {
  const auto subject = Make("faulty:multiplier-in-double");
  const Property& property = *FindProperty("matches_exact");
  int minimized = 0;
  for (int64_t i = 0; i < 40000 && minimized < 3; ++i) {
    const Case c = gen::Draw(Op::kLinear, CaseSeed(1, Op::kLinear, i));
    if (!c.bias_i32 || c.K < 2 || !Judge(property, c, *subject).failed()) continue;
    const Case least = Minimize(c, *subject, property).minimized;
    if (!least.bias_i32) continue;
    ++minimized;
    EXPECT_EQ(least.K, 1) << i;
    EXPECT_EQ(least.x.IntAt(0), 0) << i;
    EXPECT_EQ(least.w.IntAt(0), 0) << i;
    EXPECT_EQ(least.x_q.zero_point[0], 0) << i;
    EXPECT_EQ(least.w_q.zero_point[0], 0) << i;
  }
  EXPECT_EQ(minimized, 3);
}

struct StartCase {
  const char* subject;
  Op op;
  DType x, w;
  int starts;  // drawn cases
  int64_t terms;
  std::vector<int32_t> x_codes, w_codes;  // no x_codes: not compared
};

class MinimumFromAnywhere : public Triage, public testing::WithParamInterface<StartCase> {};

// Drawn cases that have nothing in common but the fault end in the same numbers.
TEST_P(MinimumFromAnywhere, IsTheSame) {
  const StartCase& wanted = GetParam();
  const auto subject = Make(wanted.subject);
  const Property& property = *FindProperty("matches_exact");
  int found = 0;
  for (int64_t i = 0; i < 60000 && found < wanted.starts; ++i) {
    const Case c = gen::Draw(wanted.op, CaseSeed(1, wanted.op, i));
    if (c.x.dtype() != wanted.x || c.w.dtype() != wanted.w || c.out_dtype != DType::kU8) continue;
    if (!Judge(property, c, *subject).failed()) continue;
    ++found;
    const Case least = Minimize(c, *subject, property).minimized;
    EXPECT_EQ(least.M * least.N, 1) << i;
    EXPECT_EQ(least.K, wanted.terms) << i;
    const auto codes = [](const Tensor& tensor) {
      std::vector<int32_t> list;
      for (int64_t k = 0; k < tensor.size(); ++k) list.push_back(tensor.IntAt(k));
      return list;
    };
    if (!wanted.x_codes.empty()) {
      EXPECT_EQ(codes(least.x), wanted.x_codes) << CaseToJson(least);
    }
    EXPECT_EQ(codes(least.w), wanted.w_codes) << CaseToJson(least);
    EXPECT_FALSE(least.bias || least.bias_i32) << i;
  }
  EXPECT_EQ(found, wanted.starts);
}

// 257 codes of 255 are 65,535: an average over 258 pixels is the first that does not fit 16 bits.
INSTANTIATE_TEST_SUITE_P(
    Starts, MinimumFromAnywhere,
    testing::Values(
        StartCase{"faulty:taps-int16",
                  Op::kDepthwise,
                  DType::kS8,
                  DType::kS8,
                  4,
                  2,
                  {-128, -128},
                  {-128, -128}},
        StartCase{"faulty:ties-away", Op::kLinear, DType::kU8, DType::kS8, 4, 1, {1}, {1}},
        StartCase{
            "faulty:average-sums-u16", Op::kAvgPool, DType::kU8, Case().w.dtype(), 2, 258, {}, {}}),
    [](const auto& param) {
      std::string name = std::string(param.param.subject).substr(7);
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

struct KindCase {
  const char* subject;
  Op op;
  const char* property;
  FindingKind kind;
};

class KindOfFault : public Triage, public testing::WithParamInterface<KindCase> {};

// The first drawn failure of each planted fault, minimized.
TEST_P(KindOfFault, IsTheOneThatWasPlanted) {
  const KindCase& fault = GetParam();
  const auto subject = Make(fault.subject);
  const Property& property = *FindProperty(fault.property);
  const std::optional<Case> failing = FirstFailure(fault.op, *subject, property);
  ASSERT_TRUE(failing) << "no drawn case fails";
  const MinimizeResult result = Minimize(*failing, *subject, property);
  ASSERT_TRUE(result.reproduced);
  EXPECT_EQ(result.attribution.kind, fault.kind) << result.attribution.diagnosis;
  EXPECT_TRUE(result.attribution.complete) << result.attribution.diagnosis;
}

INSTANTIATE_TEST_SUITE_P(
    Faults, KindOfFault,
    testing::Values(
        KindCase{"faulty:pair-saturation", Op::kLinear, "split_k", kPairs},
        KindCase{"faulty:s8-pair-wraps", Op::kLinear, "matches_exact", kPairs},
        KindCase{"faulty:int32-wraps", Op::kLinear, "matches_exact", FindingKind::kInt32Overflow},
        KindCase{"faulty:u8-as-s8", Op::kLinear, "matches_exact", FindingKind::kIndex},
        KindCase{"faulty:k-tail", Op::kLinear, "zero_point_shift", FindingKind::kTail},
        KindCase{"faulty:padded-k-zero-points", Op::kLinear, "split_k", kZeroPoint},
        KindCase{"faulty:negated-zp-int8", Op::kLinear, "matches_exact", kZeroPoint},
        KindCase{"faulty:weight-zp-int8", Op::kLinear, "matches_exact", kZeroPoint},
        KindCase{"faulty:row-sum-of-row-0", Op::kLinear, "row_independence", FindingKind::kIndex},
        KindCase{"faulty:stale-column-sums", Op::kLinear, "split_k", FindingKind::kNondeterminism},
        KindCase{"faulty:bias-wraps", Op::kLinear, "matches_exact", FindingKind::kInt32Overflow},
        KindCase{"faulty:scale-in-float", Op::kLinear, "matches_exact", FindingKind::kRounding},
        KindCase{"faulty:multiplier-in-double", Op::kRescale, "matches_exact",
                 FindingKind::kRounding},
        KindCase{"faulty:scale-index", Op::kLinear, "matches_exact", FindingKind::kIndex},
        KindCase{"faulty:zp-before-rounding", Op::kRequantize, "matches_exact", FindingKind::kTie},
        KindCase{"faulty:ties-away", Op::kRequantize, "matches_exact", FindingKind::kTie},
        KindCase{"faulty:reciprocal", Op::kQuantize, "matches_exact", FindingKind::kRounding},
        KindCase{"faulty:caller-rounding", Op::kQuantize, "environment", FindingKind::kRounding},
        KindCase{"faulty:clamp-after-conversion", Op::kQuantize, "round_trip", FindingKind::kClamp},
        KindCase{"faulty:nan-order", Op::kQuantize, "matches_exact", FindingKind::kClamp},
        KindCase{"faulty:difference-int8", Op::kDequantize, "zero_point_shift", kZeroPoint},
        KindCase{"faulty:truncating-narrow", Op::kRequantize, "matches_exact", FindingKind::kClamp},
        KindCase{"faulty:relu-clamp-zero", Op::kLinear, "zero_point_shift", FindingKind::kClamp},
        KindCase{"faulty:half-tail", Op::kLinear, "matches_exact", FindingKind::kTail},
        KindCase{"faulty:output-not-cleared", Op::kLinear, "matches_exact", FindingKind::kMemory},
        KindCase{"faulty:stride-ignored", Op::kLinear, "alignment_and_stride",
                 FindingKind::kMemory},
        KindCase{"faulty:k-over-read", Op::kLinear, "matches_exact", FindingKind::kMemory},
        KindCase{"faulty:pair-saturation", Op::kConv2d, "matches_exact", kPairs},
        KindCase{"faulty:taps-int16", Op::kDepthwise, "matches_exact", kPairs},
        KindCase{"faulty:group-scale-index", Op::kConv2d, "matches_exact", FindingKind::kIndex},
        KindCase{"faulty:group-scale-index", Op::kDepthwise, "matches_exact", FindingKind::kIndex},
        KindCase{"faulty:kernel-width-bound", Op::kConv2d, "matches_exact", FindingKind::kIndex},
        KindCase{"faulty:row-bound", Op::kDepthwise, "matches_exact", FindingKind::kMemory},
        KindCase{"faulty:padding-is-code-zero", Op::kConv2d, "zero_point_shift",
                 FindingKind::kPadding},
        KindCase{"faulty:padding-is-code-zero", Op::kConv2d, "padding_is_explicit",
                 FindingKind::kPadding},
        KindCase{"faulty:max-pool-start", Op::kMaxPool, "matches_exact", FindingKind::kClamp},
        KindCase{"faulty:average-sums-u16", Op::kGlobalAvgPool, "matches_exact",
                 FindingKind::kInt32Overflow},
        KindCase{"faulty:divisor-unclipped", Op::kAvgPool, "counts_only_padding_that_is",
                 FindingKind::kPadding},
        KindCase{"faulty:product-int16", Op::kMul, "matches_exact", FindingKind::kInt32Overflow},
        KindCase{"faulty:left-shift-dropped", Op::kAdd, "matches_exact", FindingKind::kRounding},
        KindCase{"faulty:overlapped-tail-in-place", Op::kRescale, "in_place", FindingKind::kMemory},
        KindCase{"faulty:concat-first-params", Op::kConcat, "matches_exact", FindingKind::kIndex},
        KindCase{"faulty:table-ties-away", Op::kTable, "matches_exact", FindingKind::kTie},
        KindCase{"faulty:table-index-offset", Op::kTable, "is_monotone", FindingKind::kIndex},
        KindCase{"faulty:softmax-no-half", Op::kSoftmax, "matches_exact", FindingKind::kRounding},
        KindCase{"faulty:softmax-max-not-subtracted", Op::kSoftmax, "added_constant", kZeroPoint},
        KindCase{"faulty:softmax-distance-int8", Op::kSoftmax, "matches_exact",
                 FindingKind::kClamp},
        KindCase{"faulty:reduce-range-ignored", Op::kChooseQParams, "reduce_range_halves",
                 FindingKind::kClamp},
        KindCase{"faulty:no-scale-floor", Op::kChooseQParams, "matches_exact", FindingKind::kClamp},
        KindCase{"faulty:range-without-zero", Op::kChooseQParams, "zero_append", kZeroPoint},
        KindCase{"faulty:averaging-in-double", Op::kChooseQParams, "matches_exact",
                 FindingKind::kRounding},
        KindCase{"faulty:reduce-range-ignored", Op::kDynamicLinear, "matches_exact",
                 FindingKind::kClamp},
        KindCase{"faulty:range-without-zero", Op::kDynamicLinear, "matches_exact", kZeroPoint},
        KindCase{"faulty:scale-of-row-0", Op::kDynamicLinear, "row_order", FindingKind::kIndex},
        KindCase{"faulty:zero-point-of-row-0", Op::kDynamicLinear, "row_independence",
                 FindingKind::kIndex}),
    [](const auto& param) {
      std::string name = std::string(param.param.subject + 7) + "_" + param.param.property + "_" +
                         std::string(Name(param.param.op));
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// A subject that is exact, except for sums of 60000 terms and more.
class WrongFrom60000 : public BasicSubject {
 public:
  std::string_view name() const override { return "wrong-from-60000"; }
  std::string CannotRun(const Case&) const override { return ""; }
  Outcome Run(const Case& c, const RunContext&) override {
    Tensor y = exact::Evaluate(c);
    if (c.K >= 60000) y.SetInt(0, y.IntAt(0) ^ 1);
    return {RunStatus::kOk, "", std::move(y), {}};
  }
};

int64_t offered_the_same = 0;
void OfferTheSame(const Case& c, const triage::Visit& visit) {
  for (int64_t i = 0; i < c.K; ++i) {
    ++offered_the_same;
    if (visit(c)) return;
  }
}

// Dropping any block of a long constant row gives the same candidate, which costs no run: it must
// not be built tens of thousands of times over.
TEST_F(Triage, LongConstantRowsAreNotOfferedForEver) {
  Case c = gen::Draw(Op::kLinear, 1);
  c = ProblemOf(c);
  c.M = c.N = 1;
  c.K = 60000;
  c.x = Tensor(DType::kU8, {1, c.K});
  c.w = Tensor(DType::kS8, {1, c.K});
  std::fill(c.x.bytes().begin(), c.x.bytes().end(), uint8_t{231});
  std::fill(c.w.bytes().begin(), c.w.bytes().end(), uint8_t{126});
  c.x_q = c.w_q = c.out_q = QParams{};
  c.per_channel = false;
  c.bias.reset();
  c.bias_i32.reset();
  c.relu = false;
  c.out_dtype = DType::kS32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  ASSERT_EQ(Validate(c), "");
  triage::Reduction reduction;
  const auto never = [] { return false; };
  const auto holds = [](const Case&) { return true; };
  EXPECT_FALSE(reduction.Step(OfferTheSame, c, holds, never));
  EXPECT_LT(offered_the_same, 1000);
  WrongFrom60000 subject;
  const MinimizeResult result = Minimize(c, subject, *FindProperty("matches_exact"));
  EXPECT_TRUE(result.reproduced);
  EXPECT_EQ(result.minimized.K, 60000);
  EXPECT_LE(result.calls, 2000);
}

// A long layer of random codes.
Case LongLayer(int64_t terms) {
  Case c;
  c.M = 2, c.N = 3, c.K = terms;
  c.x = Tensor(DType::kU8, {c.M, terms});
  c.w = Tensor(DType::kS8, {c.N, terms});
  Rng rng(7);
  for (uint8_t& byte : c.x.bytes()) byte = static_cast<uint8_t>(rng.Below(256));
  for (uint8_t& byte : c.w.bytes()) byte = static_cast<uint8_t>(rng.Below(128));
  c.bias_i32 = {{1000, -3, 12}};
  c.x_q.zero_point = {3};
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  return c;
}

MinimizeResult MinimizedWith(std::string_view cause, const Case& c) {
  TestSubject subject([&](const Case& problem, const RunContext&) {
    return TestSubject::Good(
        Counterfactual(problem, CauseNamed(cause)).value_or(exact::Evaluate(problem)));
  });
  return Minimize(c, subject, *FindProperty("matches_exact"));
}

// 519 products of 255 and 127, and one that makes the sum odd, are the fewest that pass 2^24.
TEST_F(Triage, AFloatSumEndsAtTheFewestTermsThatAreTooLarge) {
  const MinimizeResult result =
      MinimizedWith("float32 sum, one product after another", LongLayer(5000));
  ASSERT_TRUE(result.reproduced);
  EXPECT_EQ(result.minimized.K, 519) << CaseToJson(result.minimized);
  EXPECT_EQ(result.minimized.M * result.minimized.N, 1);
  EXPECT_EQ(result.needs, std::vector<std::string>{"K >= 519"});
  EXPECT_EQ(result.attribution.kind, FindingKind::kRounding);
}

TEST_F(Triage, AFaultOfBlocksEndsAtTheFirstTermOfTheSecond) {
  const MinimizeResult result = MinimizedWith("bias once per block of 256", LongLayer(5000));
  ASSERT_TRUE(result.reproduced);
  EXPECT_EQ(result.minimized.K, 257);
  EXPECT_EQ(result.minimized.M * result.minimized.N, 1);
  EXPECT_EQ(result.needs, std::vector<std::string>{"K >= 257"});
  ASSERT_TRUE(result.minimized.bias_i32);
  EXPECT_EQ(*result.minimized.bias_i32, std::vector<int32_t>{1})
      << result.attribution.diagnosis << result.calls << CaseToJson(result.minimized);
}

TEST_F(Triage, WhatDoesNotFailIsSaidToBeSo) {
  const auto subject = Make("native");
  const Case c = gen::Draw(Op::kLinear, 3);
  const MinimizeResult result = Minimize(c, *subject, *FindProperty("matches_exact"));
  EXPECT_FALSE(result.reproduced);
  EXPECT_EQ(result.minimized, c);
}

// The first output is one off in one of five answers.
Outcome WrongByChance(const Case& c, Rng& rng) {
  Tensor y = exact::Evaluate(c);
  const bool wrong = rng.Chance(1, 5);
  if (wrong && !y.empty() && y.dtype() != DType::kF32)
    y.SetInt(0, y.IntAt(0) == c.out_max ? c.out_min : y.IntAt(0) + 1);
  return TestSubject::Good(std::move(y));
}

TEST_F(Triage, ASubjectThatIsWrongByChanceIsAskedAgain) {
  const Property& property = *FindProperty("matches_exact");
  for (uint64_t seed = 1; seed < 9; ++seed) {
    Rng rng(seed);
    TestSubject subject([&](const Case& c, const RunContext&) { return WrongByChance(c, rng); });
    Case c;
    for (uint64_t i = seed; c.M * c.N < 4 || c.K < 4 || c.out_dtype != DType::kU8; i += 10)
      c = gen::Draw(Op::kLinear, i);
    const MinimizeResult result = Minimize(c, subject, property);
    ASSERT_TRUE(result.reproduced) << seed;
    EXPECT_EQ(result.attribution.kind, FindingKind::kNondeterminism)
        << seed << ": " << result.attribution.diagnosis;
    EXPECT_NE(result.attribution.diagnosis.find("answered differently"), std::string::npos)
        << result.attribution.diagnosis;
    EXPECT_EQ(result.minimized.M * result.minimized.N, 1) << seed;
    EXPECT_LE(result.minimized.K, 1) << seed;
    ASSERT_TRUE(result.minimized.observed) << seed;
    EXPECT_NE(result.minimized.observed->y, result.minimized.expected) << seed;
    EXPECT_LE(result.calls, 2000) << seed;
  }
}

// The finding was seen once; most often the next answer is right.
TEST_F(Triage, AFindingOfChanceIsMinimized) {
  Rng rng(3);
  TestSubject subject([&](const Case& c, const RunContext&) { return WrongByChance(c, rng); });
  Case c;
  for (uint64_t i = 1; c.M * c.N < 4 || c.K < 4 || c.out_dtype != DType::kU8; ++i)
    c = gen::Draw(Op::kLinear, i);
  int small = 0;
  for (int i = 0; i < 10; ++i) {
    Triaged triaged(Finding(c, "matches_exact", "test", {}), subject);
    EXPECT_EQ(triaged.finding().kind, FindingKind::kNondeterminism)
        << triaged.finding().explanation;
    triaged.Minimize({.max_calls = 2000});
    small += triaged.small() && triaged.small()->minimized.M * triaged.small()->minimized.N == 1;
  }
  EXPECT_GE(small, 8);
}

TEST_F(Triage, TheBudgetOfCallsIsKept) {
  const Case c = ReadCaseFile(QUALM_SOURCE_DIR "/corpus/forum/000-linear-sweep.case.json");
  const auto subject = Make("model:fbgemm@avx2");
  subject->set_contract({});
  const MinimizeResult result =
      Minimize(c, *subject, *FindProperty("matches_exact"), {.max_calls = 10});
  EXPECT_TRUE(result.reproduced);
  EXPECT_LE(result.calls, 10);
}

// Minimize exchanges a case for a clearer one of the same size, never for a larger one: the first
// numbers of Complexity must stay those that SameSize compares.
TEST(SameSize, SeesRowsChannelsTermsAndParametersOnly) {
  const Case c = gen::Draw(Op::kLinear, 1);
  const auto with = [&c](auto change) {
    Case d = c;
    change(d);
    return d;
  };
  EXPECT_TRUE(SameSize(c, c));
  EXPECT_TRUE(SameSize(c, with([](Case& d) { d.x.SetInt(0, d.x.IntAt(0) == 7 ? 8 : 7); })));
  EXPECT_TRUE(SameSize(c, with([](Case& d) { ++d.out_q.zero_point[0]; })));
  EXPECT_TRUE(SameSize(c, with([](Case& d) { d.x_q.scale[0] *= 0.75f; })));
  EXPECT_FALSE(SameSize(c, with([](Case& d) { ++d.M; })));
  EXPECT_FALSE(SameSize(c, with([](Case& d) { --d.N; })));
  EXPECT_FALSE(SameSize(c, with([](Case& d) { ++d.K; })));
  EXPECT_FALSE(SameSize(c, with([](Case& d) { d.per_channel = !d.per_channel; })));
  EXPECT_FALSE(SameSize(c, with([](Case& d) { ++d.out_min; })));
}

TEST(Passes, OnlyOfferSimplerValidCases) {
  for (Op op : AllOps()) {
    int64_t offered = 0;
    for (uint64_t seed = 0; seed < 150; ++seed) {
      const Case c = gen::Draw(op, seed);
      const std::vector<int64_t> here = Complexity(c);
      int64_t left = 200;
      ForEachSimpler(c, [&](const Case& candidate) {
        EXPECT_LT(Complexity(candidate), here);
        EXPECT_EQ(Validate(candidate), "");
        ++offered;
        return --left == 0;
      });
    }
    EXPECT_GT(offered, 2000) << Name(op);
  }
}

TEST(Passes, DescentAlwaysEnds) {
  // Taking every candidate that is offered comes to an end: the order has no infinite descent.
  Case c = gen::Draw(Op::kLinear, 11);
  int64_t steps = 0;
  bool moved = true;
  while (moved) {
    moved = false;
    ForEachSimpler(c, [&](const Case& candidate) {
      c = candidate;
      moved = true;
      return true;
    });
    ASSERT_LT(++steps, 10000);
  }
  EXPECT_LE(c.M * c.N * c.K, 1);
}

TEST(Counterfactuals, NoCauseIsTheExactResult) {
  for (Op op : AllOps()) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const Case c = gen::Draw(op, seed);
      const std::optional<Tensor> y = Counterfactual(c, std::span<const Cause* const>{});
      ASSERT_TRUE(y);
      ASSERT_EQ(*y, exact::Evaluate(c));
    }
  }
}

// A reciprocal or product of such scales is infinite, and 0 times infinity is NaN.
TEST(Counterfactuals, AreDefinedForExtremeScales) {
  constexpr std::array kScales{0x1p-149f, 0x1.08p-56f, 1.0f, 0x1.fffffep+127f};
  int64_t defined = 0;
  for (const Op op : AllOps()) {
    for (uint64_t seed = 0; seed < 64; ++seed) {
      Case c = gen::Draw(op, seed);
      if (c.M * c.N * (c.K + 1) > 4096) continue;
      const auto set = [&](QParams& q, float scale) {
        for (float& s : q.scale) s = scale;
      };
      set(c.x_q, kScales[seed % 4]);
      set(c.w_q, kScales[seed / 4 % 4]);
      set(c.out_q, kScales[seed / 16]);
      if (op == Op::kQuantize && !c.x.empty()) c.x.as<float>()[0] = 0;
      if (!Validate(c).empty()) continue;
      for (const Cause& cause : AllCauses()) defined += Counterfactual(c, cause) ? 1 : 0;
    }
  }
  EXPECT_GT(defined, 1000);
}

// fault.json and reports name causes; each name must lead back to its cause.
TEST(Counterfactuals, NamesLeadBackToTheirCauses) {
  for (const Op op : AllOps()) {
    for (const Cause& cause : AllCauses()) {
      const std::vector<const Cause*> one{&cause};
      const std::string name = NamesOf(one, op);
      EXPECT_EQ(name.find_first_of("{}"), std::string::npos) << name;
      EXPECT_EQ(CausesNamed(name, op), one) << name;
      EXPECT_EQ(CausesNamed(cause.name, op), one) << "as older campaigns wrote it: " << cause.name;
    }
    for (const Cause& place : AllPlaces()) {
      const std::vector<const Cause*> both{&AllCauses().front(), &place};
      EXPECT_EQ(CausesNamed(NamesOf(both, op), op), both) << place.name;
    }
  }
}

struct CauseCase {
  const char* cause;
  Op op;
};

class CauseOf : public testing::TestWithParam<CauseCase> {};

// An answer with one cause is said to have it, or the cause is among those that fit; one in three
// at most is named with another kind. What a known arithmetic gives too is told as that.
TEST_P(CauseOf, IsNamed) {
  const auto [name, op] = GetParam();
  const Cause& cause = CauseNamed(name);
  const Hypothesis alone{&cause};
  int64_t wrong = 0, tried = 0;
  std::string others;
  for (uint64_t seed = 0; seed < 6000 && tried < 12; ++seed) {
    const Case c = gen::Draw(op, seed);
    if (c.x.size() + c.w.size() > 3000) continue;
    const std::optional<Tensor> y = Counterfactual(c, cause);
    if (!y || *y == exact::Evaluate(c)) continue;
    ++tried;
    const Attribution attribution = Attribute(c, *y);
    const bool known = !BitEqualConventions(c, *y).empty();
    EXPECT_TRUE(known || attribution.causes == alone ||
                std::ranges::count(attribution.open, alone) > 0)
        << Describe(c) << ": " << attribution.diagnosis;
    if (!attribution.complete || attribution.kind == cause.kind || known) continue;
    ++wrong;
    others += Describe(c) + ": " + attribution.diagnosis + "\n";
  }
  EXPECT_GE(tried, 3);
  EXPECT_LE(3 * wrong, tried) << others;
}

INSTANTIATE_TEST_SUITE_P(
    Causes, CauseOf,
    testing::Values(
        CauseCase{"last product dropped", Op::kLinear},
        CauseCase{"term tail of 8 dropped", Op::kLinear},
        CauseCase{"product tail of 16 dropped", Op::kLinear},
        CauseCase{"term tail of 32 dropped", Op::kLinear},
        CauseCase{"pair saturation", Op::kConv2d}, CauseCase{"int32 wrap", Op::kConv2d},
        CauseCase{"padding of code 0", Op::kConv2d},
        CauseCase{"padding on other side", Op::kConv2d},
        CauseCase{"padding of other axis", Op::kDepthwise},
        CauseCase{"strides swapped", Op::kConv2d}, CauseCase{"dilations swapped", Op::kConv2d},
        CauseCase{"dilation ignored", Op::kMaxPool}, CauseCase{"group modulo", Op::kConv2d},
        CauseCase{"channel within group", Op::kConv2d},
        CauseCase{"half away from zero", Op::kConv2d}, CauseCase{"half away from zero", Op::kAdd},
        CauseCase{"half up", Op::kAvgPool}, CauseCase{"float64 multiplier", Op::kLinear},
        CauseCase{"float64 multiplier", Op::kDepthwise},
        CauseCase{"float64 multiplier", Op::kRescale}, CauseCase{"float64 multiplier", Op::kAdd},
        CauseCase{"float64 multiplier", Op::kMul}, CauseCase{"float64 multiplier", Op::kConcat},
        CauseCase{"float64 multiplier", Op::kAvgPool},
        CauseCase{"denormals are zero", Op::kQuantize},
        CauseCase{"denormals are zero", Op::kDequantize},
        CauseCase{"half away from zero", Op::kRescale}, CauseCase{"ratio in 256ths", Op::kRescale},
        CauseCase{"zero point before rounding", Op::kMul},
        CauseCase{"truncation", Op::kGlobalAvgPool}, CauseCase{"relu at code 0", Op::kAdd},
        CauseCase{"clamp ignored", Op::kMaxPool}, CauseCase{"input sign", Op::kAvgPool},
        CauseCase{"sign of both operands", Op::kMul}, CauseCase{"operands swapped", Op::kAdd},
        CauseCase{"padding of code 0", Op::kMaxPool}, CauseCase{"padding wins", Op::kMaxPool},
        CauseCase{"padding in the divisor", Op::kAvgPool},
        CauseCase{"padding not in the divisor", Op::kAvgPool},
        CauseCase{"kernel as divisor", Op::kAvgPool},
        CauseCase{"first operand for all", Op::kConcat},
        CauseCase{"half away from zero", Op::kConcat}, CauseCase{"relu at code 0", Op::kConcat},
        CauseCase{"half away from zero", Op::kTable}, CauseCase{"table index offset", Op::kTable},
        CauseCase{"truncation", Op::kSoftmax}, CauseCase{"maximum not subtracted", Op::kSoftmax},
        CauseCase{"int8 distance", Op::kSoftmax},
        CauseCase{"reduce_range ignored", Op::kChooseQParams},
        CauseCase{"no scale floor", Op::kChooseQParams},
        CauseCase{"range without zero", Op::kChooseQParams},
        CauseCase{"double average", Op::kChooseQParams},
        CauseCase{"reduce_range added", Op::kChooseQParams},
        CauseCase{"reduce_range added", Op::kDynamicLinear},
        CauseCase{"reduce_range ignored", Op::kDynamicLinear},
        CauseCase{"range without zero", Op::kDynamicLinear},
        CauseCase{"one choice for all rows", Op::kDynamicLinear},
        CauseCase{"a choice for each row", Op::kDynamicLinear},
        CauseCase{"choice of row 0", Op::kDynamicLinear},
        CauseCase{"scale of row 0", Op::kDynamicLinear},
        CauseCase{"zero point of row 0", Op::kDynamicLinear},
        CauseCase{"rule of observers", Op::kDynamicLinear},
        CauseCase{"rule of ATen", Op::kDynamicLinear},
        CauseCase{"rule of ONNX", Op::kDynamicLinear},
        CauseCase{"pair saturation", Op::kDynamicLinear},
        CauseCase{"half away from zero", Op::kDynamicLinear},
        CauseCase{"float32 multiplier", Op::kDynamicLinear}),
    [](const auto& param) {
      std::string name = std::string(Name(param.param.op)) + "_" + param.param.cause;
      std::ranges::replace_if(name, [](char c) { return std::isalnum(c) == 0; }, '_');
      return name;
    });

// Every stage from the codes to the output, of an output whose window meets the padding.
TEST(Explanation, IsACompleteDerivationOfEveryOp) {
  for (Op op : AllOps()) {
    std::optional<Case> shown;
    for (uint64_t seed = 0; seed < 2000 && !shown; ++seed) {
      const Case c = gen::Draw(op, seed);
      if (c.M == 0 || c.N == 0) continue;
      const bool windowed = HasWindow(op) && op != Op::kGlobalAvgPool;
      if (windowed &&
          std::ranges::none_of(TapsOf(c.window, 0), [](const Tap& tap) { return tap.x_row < 0; }))
        continue;
      shown = c;
    }
    ASSERT_TRUE(shown) << Name(op);
    const std::string text = Explain(*shown, {}, {.index = 0});
    for (const TraceStep& step : exact::Derive(*shown, 0)) {
      EXPECT_NE(text.find(step.text), std::string::npos) << text;
    }
    EXPECT_NE(text.find("exact: " + ElementText(exact::Evaluate(*shown), 0)), std::string::npos);
    EXPECT_EQ(text.find("window ") != std::string::npos, HasWindow(op)) << text;
    EXPECT_EQ(text.find("in the padding: (0,0)") != std::string::npos,
              HasWindow(op) && op != Op::kGlobalAvgPool)
        << text;
  }
}

TEST(Explanation, NamesTheTapsOfAWindow) {
  Case c;
  c.op = Op::kConv2d;
  c.N = 1;
  c.window = {.batch = 1, .in_h = 2, .in_w = 2, .in_c = 1, .kernel_h = 2, .kernel_w = 2};
  c.window.pad_top = 1;
  DeriveSizes(&c);
  c.x = Tensor(DType::kU8, {1, 2, 2, 1});
  c.w = Tensor(DType::kS8, {1, 2, 2, 1});
  for (int i = 0; i < 4; ++i) c.x.SetInt(i, 10 + i), c.w.SetInt(i, i + 1);
  ASSERT_EQ(Validate(c), "");
  const std::string text = Explain(c, {}, {.index = 0});
  EXPECT_NE(text.find("output [image 0, row 0, column 0, channel 0] (index 0), exact: 74"),
            std::string::npos)
      << text;  // 3*10 + 4*11 = 74
  EXPECT_NE(text.find("2 of 4 taps (r,s) lie in the image: (1,0) at [0,0] (1,1) at [0,1]"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("in the padding: (0,0) (0,1)"), std::string::npos) << text;
  // Without channels there is nothing to look at.
  c.window.in_c = 0;
  DeriveSizes(&c);
  c.x = Tensor(DType::kU8, {1, 2, 2, 0});
  c.w = Tensor(DType::kS8, {1, 2, 2, 0});
  ASSERT_EQ(Validate(c), "");
  EXPECT_NE(Explain(c, {}, {.index = 0}).find("exact: 0"), std::string::npos);
}

TEST(Attribution, SpeaksOfOperandsWhereThereAreNoWeights) {
  const auto said = [](Op op, std::string_view name) {
    const Cause& cause = CauseNamed(name);
    for (uint64_t seed = 0; seed < 2000; ++seed) {
      const Case c = gen::Draw(op, seed);
      const std::optional<Tensor> y = Counterfactual(c, cause);
      if (!y || *y == exact::Evaluate(c)) continue;
      const Attribution attribution = Attribute(c, *y);
      if (attribution.causes == std::vector{&cause}) return attribution.diagnosis;
    }
    return std::string();
  };
  EXPECT_EQ(said(Op::kAdd, "weight zero point ignored"), "the subject ignores the zero point of b");
  EXPECT_EQ(said(Op::kLinear, "weight zero point ignored"),
            "the subject ignores the weight zero point");
  constexpr std::string_view kBefore = " to float32 before the result";
  const std::string rounds = "the subject rounds the sum and the ";
  // Whose arithmetic it is too stands behind it.
  for (const auto& [op, words] : {std::pair{Op::kAdd, "multipliers fl(sa/sy) and fl(sb/sy)"},
                                  {Op::kMul, "multiplier fl(fl(sa*sb)/sy)"},
                                  {Op::kRescale, "multiplier fl(sx/sy)"}}) {
    const std::string sentence = said(op, "float32 multiplier");
    EXPECT_TRUE(sentence.starts_with(rounds + words + std::string(kBefore))) << sentence;
  }
}

// A tail that loses its second operand fits many causes on one answer.
TEST(Attribution, ATailOfElementsIsOne) {
  TestSubject subject([](const Case& c, const RunContext&) {
    Tensor y = exact::Evaluate(c);
    if (y.size() % 4 == 1) {
      Case without = ProblemOf(c);
      for (int64_t i = 0; i < c.w.size(); ++i) without.w.SetInt(i, 0);
      const int64_t last = y.size() - 1;
      y.SetInt(last, exact::Evaluate(without).IntAt(last));
    }
    return TestSubject::Good(std::move(y));
  });
  const Property& property = *FindProperty("matches_exact");
  int64_t failed = 0, tail = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    const Case c = gen::Draw(Op::kAdd, seed);
    if (c.x.size() < 5 || c.x.size() > 2000) continue;
    const Judged judged =
        JudgeAndAttribute(property, c, subject, {.hint = {}, .probe_state = true});
    if (!judged.verdict.failed()) continue;
    ++failed;
    tail += judged.attribution.kind == FindingKind::kTail ? 1 : 0;
  }
  EXPECT_GT(failed, 20);
  EXPECT_GE(tail * 10, failed * 9) << tail << " of " << failed;
}

// Rows from the third on are wrong: a cause that fits one of their codes alone is not named.
TEST(Attribution, OfASmallCaseHasToBeBornOutByTheLargeOne) {
  TestSubject subject([](const Case& c, const RunContext&) {
    Tensor y = exact::Evaluate(c);
    if (!IsCode(c.out_dtype)) return TestSubject::Good(y);
    for (int64_t i = 2 * c.N; i < y.size(); ++i) y.SetInt(i, c.out_max - y.IntAt(i) + c.out_min);
    return TestSubject::Good(y);
  });
  int64_t judged = 0, believed = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    if (!IsCode(c.out_dtype) || c.M < 4 || c.N < 4 || c.M * c.N * c.K > 4000) continue;
    Triaged triaged(Finding(c, "matches_exact", "test", {}), subject);
    if (triaged.finding().kind == FindingKind::kNondeterminism) continue;
    triaged.Minimize({.max_calls = 300});
    ++judged;
    const FindingKind kind = triaged.finding().kind;
    believed += kind != FindingKind::kUnknown && kind != FindingKind::kIndex ? 1 : 0;
  }
  EXPECT_GE(judged, 10);
  EXPECT_LE(8 * believed, judged) << believed << " of " << judged;
}

// Under a convention a cause changes the convention's steps, not the exact ones.
TEST_F(Triage, TheStepsOfAPromisedConventionAreChanged) {
  const Convention& model = *FindConvention("fbgemm@avx2");
  struct Wrong {
    const char* cause;
    FindingKind kind;
  };
  for (const auto& [name, kind] :
       {Wrong{"row-sum term ignored", FindingKind::kZeroPoint},
        Wrong{"bias ignored", FindingKind::kIndex}, Wrong{"relu ignored", FindingKind::kClamp}}) {
    const Cause& cause = CauseNamed(name);
    TestSubject subject([&](const Case& c, const RunContext&) {
      return TestSubject::Good(Counterfactual(c, cause, &model).value_or(model.run(c).y));
    });
    subject.cannot_run = model.cannot_run;
    subject.set_contract({model.name});
    const Property& property = *FindProperty("matches_model");
    int found = 0, right = 0;
    for (int64_t i = 0; i < 4000 && found < 4; ++i) {
      const Case c = gen::Draw(Op::kLinear, CaseSeed(1, Op::kLinear, i));
      if (c.M * c.N * c.K > 20000 || !model.cannot_run(c).empty()) continue;
      // The convention departs from exact on this case too.
      if (model.run(c).y == exact::Evaluate(c) || !Judge(property, c, subject).failed()) continue;
      ++found;
      Triaged triaged(Finding(c, property.claim, "test", {}), subject);
      EXPECT_TRUE(triaged.finding().kind == kind || triaged.finding().kind == FindingKind::kUnknown)
          << name << ": " << triaged.finding().explanation;
      right += triaged.finding().kind == kind ? 1 : 0;
      triaged.Minimize({.max_calls = 400});
      ASSERT_TRUE(triaged.small());
      const Case& small = triaged.small()->minimized;
      ASSERT_TRUE(small.expected && small.observed);
      EXPECT_EQ(*small.expected, model.run(ProblemOf(small)).y);
      EXPECT_NE(*small.expected, small.observed->y);
    }
    EXPECT_GE(found, 2) << name;
    EXPECT_GE(right, 1) << name;
  }
}

// Faults that no cause explains: an output changes with channels, rows or images not its own.
TEST(Attribution, ReadingWhatBelongsElsewhereIsSeenByExperiment) {
  // Every third row repeats the one before, backwards.
  TestSubject subject([](const Case& c, const RunContext&) {
    Tensor y = exact::Evaluate(c);
    for (int64_t m = 2; m < c.M; m += 3) {
      for (int64_t n = 0; n < c.N; ++n) y.SetInt(m * c.N + n, y.IntAt(m * c.N - 1 - n));
    }
    return TestSubject::Good(std::move(y));
  });
  subject.cannot_run = [](const Case& c) { return IsCode(c.out_dtype) ? "" : "codes alone"; };
  int found = 0, index = 0;
  for (uint64_t seed = 0; seed < 4000 && found < 6; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    if (!IsCode(c.out_dtype) || c.M < 3 || c.M * c.N * c.K > 4000 || c.K < 2) continue;
    if (!Judge(*FindProperty("matches_exact"), c, subject).failed()) continue;
    ++found;
    Triaged triaged(Finding(c, "matches_exact", "test", {}), subject);
    EXPECT_TRUE(triaged.finding().kind == FindingKind::kIndex ||
                triaged.finding().kind == FindingKind::kUnknown)
        << triaged.finding().explanation;
    index += triaged.finding().kind == FindingKind::kIndex ? 1 : 0;
  }
  EXPECT_GE(found, 4);
  EXPECT_GE(2 * index, found);
}

TEST(Attribution, NamesASingleCause) {
  int64_t named = 0, tried = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    if (c.x.size() + c.w.size() > 4000) continue;
    const std::optional<Tensor> y = Counterfactual(c, CauseNamed("pair saturation"));
    if (!y || *y == exact::Evaluate(c)) continue;
    ++tried;
    named += Attribute(c, *y).kind == FindingKind::kPairSaturation ? 1 : 0;
  }
  EXPECT_GT(tried, 20);
  // One code that is off by one may have another cause, or none.
  EXPECT_GE(100 * named, 95 * tried) << named << " of " << tried;
}

}  // namespace
}  // namespace qualm::triage
