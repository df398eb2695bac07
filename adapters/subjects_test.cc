// SPDX-License-Identifier: Apache-2.0
// The registry and the subjects made by it: names, hints, contracts, and two implementations that
// share no line (the native kernels and faulty:none, the oracle) agreeing on everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/contract.h"
#include "core/finding_kind.h"
#include "core/random_case_test_util.h"
#include "core/rng.h"
#include "core/status.h"
#include "core/subject.h"
#include "core/text_test_util.h"
#include "core/verdict.h"

namespace qualm {
namespace {

SubjectRegistry& Registry() {
  RegisterAllSubjects();
  return SubjectRegistry::Get();
}

const SubjectKind* Kind(const std::string& name) {
  for (const SubjectKind& kind : Registry().kinds()) {
    if (kind.kind == name) return &kind;
  }
  return nullptr;
}

template <class Error>
std::string ErrorOf(const std::string& name) {
  return Refusal<Error>([&] { Registry().Make(name); });
}

TEST(Registry, RegistersOnce) {
  RegisterAllSubjects();
  const size_t kinds = Registry().kinds().size();
  const size_t rows = Registry().expected().size();
  RegisterAllSubjects();
  EXPECT_EQ(Registry().kinds().size(), kinds);
  EXPECT_EQ(Registry().expected().size(), rows);
}

TEST(Registry, MakesEveryNameItLists) {
  for (const char* kind : {"native", "model", "faulty"}) {
    ASSERT_NE(Kind(kind), nullptr) << kind;
    const std::vector<std::string> names = Kind(kind)->names();
    EXPECT_FALSE(names.empty()) << kind;
    for (const std::string& name : names) {
      const std::unique_ptr<Subject> subject = Registry().Make(name);
      EXPECT_EQ(subject->name(), name);
      EXPECT_EQ(Registry().Expand(name), std::vector<std::string>{name});
    }
  }
}

TEST(Registry, NamesTheNearestForAMisspeltOne) {
  EXPECT_NE(ErrorOf<InputError>("faulty:pair-saturatoin").find("'faulty:pair-saturation'"),
            std::string::npos);
  EXPECT_NE(ErrorOf<InputError>("natve").find("'native'"), std::string::npos);
  EXPECT_NE(ErrorOf<InputError>("native@avx22").find("nearest"), std::string::npos);
  EXPECT_NE(ErrorOf<InputError>("model:fbgem@avx2").find("'model:fbgemm@avx2'"), std::string::npos);
}

TEST(Native, WeightsThatASubjectHasAloneAreOneForEachInstructionSet) {
  const auto all = Registry().Expand("native@all");
  for (const auto& [ending, contract] :
       {std::pair<std::string, std::string>{"+q4_k", "sum+offsets"},
        {"+nbits4", "sum"},
        {"+nbits8", "sum"}}) {
    const auto of_weights = Registry().Expand("native@all" + ending);
    ASSERT_EQ(of_weights.size(), all.size());
    for (const std::string& name : {of_weights.back(), "native" + ending}) {
      const auto subject = Registry().Make(name);
      EXPECT_EQ(subject->name(), name);
      EXPECT_EQ(subject->contract().text(), contract);
      EXPECT_TRUE(subject->Offers(Op::kLinear));
      EXPECT_FALSE(subject->Offers(Op::kConv2d));
      EXPECT_EQ(subject->Siblings().size(), all.size() - 1);
      for (const std::string& sibling : subject->Siblings()) EXPECT_TRUE(sibling.ends_with(ending));
    }
  }
}

TEST(Native, TellsAnAbsentInstructionSetFromAMisspeltOne) {
  // No machine has both.
  const std::string absent = std::ranges::count(Kind("native")->names(), "native@neon") != 0
                                 ? "native@avx2"
                                 : "native@neon";
  EXPECT_NE(ErrorOf<Unavailable>(absent).find("it has "), std::string::npos);
}

TEST(Native, SpellsInstructionSetsInLowerCase) {
  const std::vector<std::string> all = Registry().Expand("native@all");
  ASSERT_FALSE(all.empty());
  for (const std::string& name : all) {
    std::string upper = name;
    std::transform(name.begin() + 7, name.end(), upper.begin() + 7,
                   [](unsigned char c) { return std::toupper(c); });
    const std::unique_ptr<Subject> subject = Registry().Make(upper);
    EXPECT_EQ(subject->name(), name);
    EXPECT_EQ(upper, "native@" + subject->InstructionSet());
    // The others, and not itself.
    std::vector<std::string> family = subject->Siblings();
    EXPECT_EQ(std::ranges::count(family, name), 0);
    family.push_back(name);
    EXPECT_EQ(std::set<std::string>(family.begin(), family.end()),
              std::set<std::string>(all.begin(), all.end()));
  }
  EXPECT_EQ(Registry().Make("native")->InstructionSet(),
            Registry().Make(all.front())->InstructionSet());
}

TEST(Contracts, OfOurSubjects) {
  EXPECT_TRUE(Registry().Make("native")->contract().exact());
  EXPECT_TRUE(Registry().Make("faulty:k-tail")->contract().exact());
  for (const std::string& name : Registry().Expand("model:*")) {
    EXPECT_EQ(Registry().Make(name)->contract().text(), name);
  }
}

TEST(Contracts, DeclaredRowsNameThingsThatExist) {
  std::set<std::string> seen;
  EXPECT_FALSE(Registry().expected().empty());
  for (const ExpectedDivergence& row : Registry().expected()) {
    SCOPED_TRACE(row.subject + " " + row.property + " " + row.kind);
    EXPECT_TRUE(seen.insert(row.subject + row.op + row.property + row.kind + row.shape).second);
    EXPECT_TRUE(ParseOp(row.op));
    EXPECT_TRUE(row.kind == "*" || ParseFindingKind(row.kind));
    EXPECT_FALSE(row.reason.empty());
    const SubjectKind* const kind = Kind(row.subject.substr(0, row.subject.find_first_of(":@")));
    if (kind == nullptr) continue;  // a build without plugins has no onednn
    EXPECT_EQ(std::ranges::count(kind->names(), row.subject), 1);
  }
}

// The smallest cases for each declared kind: on one of them the subject departs from the exact
// answer.
std::vector<Case> WitnessesOf(const std::string& kind) {
  Case c;
  c.M = 1;
  c.N = 1;
  c.K = 2;
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{1, 0});
  c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{1, 0});
  if (kind == "pair-saturation") {  // 32895 / 255 = 129; saturated 32767 / 255 = 128.498
    c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{255, 255});
    c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{127, 2});
    c.out_q.scale = {255.0f};
    return {c};
  }
  if (kind == "tie") {  // 0.5 -> 0, then the zero point; 0.5 + 1 -> 2
    c.out_q = {{2.0f}, {1}};
    return {c};
  }
  if (kind == "zero-point") {  // 1*(3-1) + 0*(2-1) against (1-1)*3 + (0-1)*2
    c.w_q.zero_point = {1};
    c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{3, 2});
    return {c};
  }
  if (kind == "index") {  // -128 * -1 in the first of two blocks
    c.K = 33;
    c.x = Tensor(DType::kS8, {1, 33});
    c.w = Tensor(DType::kU4, {1, 33});
    for (int64_t k = 0; k < c.K; ++k) c.w.SetInt(k, k == 0 ? 7 : 8);
    c.x.SetInt(0, -128);
    c.per_channel = true;
    c.w_block = c.x_block = 32;
    c.x_q = {{1, 1}, {0, 0}};
    c.w_q = {{1, 1}, {8, 8}};
    c.out_dtype = DType::kF32;
    OpenClamp(&c);
    c.expected = Tensor::Of<float>({1, 1}, std::vector<float>{128});
    return {c};
  }
  if (kind == "unknown") {  // 0.25, rounded up to 0.5 and then to 1
    c.out_q.scale = {4.0f};
    return {c};
  }
  // Values 2^-47 above and below a half. A rounded multiplier makes each of them exactly a half,
  // which then goes to the even code or up.
  Case above = c;
  above.x_q.scale = {0x1.000002p0f};
  above.w_q.scale = {0x1.000002p0f};
  above.out_q.scale = {0x1.000004p1f};
  Case below = c;
  below.x_q.scale = {0x1.000002p0f};
  below.w_q.scale = {0x1.fffffcp-1f};
  below.out_q.scale = {2.0f};
  if (kind == "rounding") return {above, below};
  EXPECT_EQ(kind, "*");  // another rounding: of 0.5 before a zero point of 1, of 0.75, or of these
  Case cut = c;
  cut.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{3, 0});
  cut.out_q.scale = {4.0f};
  c.out_q = {{2.0f}, {1}};
  return {c, cut, above, below};
}

// The same with s8 in place of u8.
Case Signed(Case c) {
  Tensor x(DType::kS8, c.x.shape());
  for (int64_t i = 0; i < x.size(); ++i) x.SetInt(i, c.x.IntAt(i));
  c.x = std::move(x);
  c.out_dtype = DType::kS8;
  OpenClamp(&c);
  return c;
}

// A float32 output. For this scale, 3 divided by the rounded reciprocal of the scale is not 3 times
// the scale.
Case Real() {
  Case c = Signed(WitnessesOf("unknown").front());
  c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{3, 0});
  c.w_q.scale = {0x1.48p0f};
  c.out_dtype = DType::kF32;
  c.out_q = {};
  OpenClamp(&c);
  return c;
}

TEST(Contracts, DeclaredDeparturesFromExactHappen) {
  const std::unique_ptr<Subject> exact = Registry().Make("faulty:none");
  int shown = 0;
  for (const ExpectedDivergence& row : Registry().expected()) {
    if (row.property != "matches_exact" || row.op != "linear") continue;
    SCOPED_TRACE(row.subject + " " + row.kind);
    const SubjectKind* const kind = Kind(row.subject.substr(0, row.subject.find_first_of(":@")));
    if (kind == nullptr || !kind->why_absent.empty()) continue;
    bool departs = false;
    std::unique_ptr<Subject> subject;
    try {
      subject = Registry().Make(row.subject);
    } catch (const Unavailable&) {
      continue;  // of another processor
    }
    for (const Case& witness : WitnessesOf(row.kind)) {
      // Of a subject that takes weights of some codes alone, or other types.
      Case c = subject->CannotRun(witness).empty() ? witness : subject->Inside(witness);
      if (!subject->CannotRun(c).empty()) c = Signed(witness);
      if (!subject->CannotRun(c).empty()) c = Real();
      ASSERT_EQ(Validate(c), "");
      const Outcome outcome = subject->Run(c, {});
      ASSERT_EQ(outcome.status, RunStatus::kOk) << outcome.detail;
      departs |= outcome.y != (c.expected ? *c.expected : exact->Run(c, {}).y);
    }
    EXPECT_TRUE(departs);
    ++shown;
  }
  EXPECT_GE(shown, 13);  // the conventions' rows
}

TEST(Conventions, RunAndShowTheirAccumulators) {
  Case c;
  c.M = 1;
  c.N = 1;
  c.K = 2;
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{255, 255});
  c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{127, 2});
  c.out_q.scale = {256.0f};
  const std::unique_ptr<Subject> saturating = Registry().Make("model:fbgemm@avx2");
  const Outcome outcome = saturating->Run(c, {.rounding = Rounding::kUp, .want_acc = true});
  ASSERT_EQ(outcome.status, RunStatus::kOk) << outcome.detail;
  ASSERT_TRUE(outcome.acc);
  EXPECT_EQ(outcome.acc->IntAt(0), 32767);
  EXPECT_EQ(outcome.y.IntAt(0), 128);
  EXPECT_FALSE(saturating->Run(c, {}).acc);
}

// Any place in memory, any environment.
RunContext AnyContext(Rng& rng, Op op) {
  return {.align_offset = static_cast<int>(rng.Below(64)),
          .end_at_guard = rng.Chance(1, 2),
          .poison = static_cast<uint8_t>(rng.Next()),
          .x_row_gap = rng.Between(0, 3),
          .y_row_gap = rng.Between(0, 3),
          .in_place = CanRunInPlace(op) && rng.Chance(1, 3),
          .threads = HasSums(op) && rng.Chance(1, 40) ? 3 : 1,
          .rounding = static_cast<Rounding>(rng.Below(4)),
          .flush_denormals = rng.Chance(1, 2),
          .want_acc = rng.Chance(1, 4)};
}

// Conventions, plugins and planted faults compute in one arithmetic only, so they skip cases with
// another requantization mode.
TEST(Registry, OnlyNativeHasRequantizationModes) {
  Case c;
  c.op = Op::kRequantize;
  c.M = c.N = 1;
  c.x = Tensor::Of<int32_t>({1, 1}, std::vector<int32_t>{5});
  c.multiplier = {0.5f};
  int refused = 0;
  for (const char* kind : {"native", "model", "faulty"}) {
    for (const std::string& name : Kind(kind)->names()) {
      const std::unique_ptr<Subject> subject = Registry().Make(name);
      c.requant = Requant::kExact;
      if (!subject->CannotRun(c).empty()) continue;
      c.requant = Requant::kFixedQ31;
      const Outcome outcome = subject->Run(c, {});
      if (std::string_view(kind) == "native") {
        ASSERT_TRUE(outcome.ok()) << outcome.detail;
        EXPECT_EQ(outcome.y.IntAt(0), 3) << name;
        continue;
      }
      EXPECT_EQ(outcome.status, RunStatus::kSkipped) << name;
      EXPECT_NE(outcome.detail.find("requantization"), std::string::npos) << outcome.detail;
      ++refused;
    }
  }
  EXPECT_GT(refused, 5);
}

// Whoever does not know blocks of weights says so, instead of reading the lists of w as those of
// channels.
TEST(Registry, OnlyFaultsOfBlocksHaveWeightsInBlocks) {
  int refused = 0, for_another_reason = 0;  // torch-onednn asks for u8 first
  for (const Op op : {Op::kLinear, Op::kDynamicLinear}) {
    test::RandomCase draw(7);
    Case c = draw.DrawInBlocks(op);
    while (HasWideCodes(c)) c = draw.DrawInBlocks(op);  // which most refuse first
    ASSERT_EQ(Validate(c), "");
    for (const char* kind : {"native", "model", "faulty"}) {
      for (const std::string& name : Kind(kind)->names()) {
        const std::unique_ptr<Subject> subject = Registry().Make(name);
        if (!subject->Offers(op)) continue;
        const std::string why = subject->CannotRun(c);
        const bool knows = name.starts_with("faulty:block-");
        EXPECT_EQ(why.empty(), knows) << name << ": " << why;
        refused += knows ? 0 : 1;
        for_another_reason += !knows && why.find(kInBlocks) == std::string::npos ? 1 : 0;
      }
    }
  }
  EXPECT_GT(refused, 50);
  EXPECT_LT(for_another_reason, 10);
}

// And whoever takes no f32 x.
TEST(Registry, FewFaultsHaveFloatX) {
  test::RandomCase draw(8);
  Case c = draw.DrawFloatX();
  while (c.w_block == 0 || BitsOf(c.w.dtype()) != 8) c = draw.DrawFloatX();
  int known = 0;
  for (const char* kind : {"native", "model", "faulty"}) {
    for (const std::string& name : Kind(kind)->names()) {
      const std::unique_ptr<Subject> subject = Registry().Make(name);
      if (!subject->Offers(c.op)) continue;
      const std::string why = subject->CannotRun(c);
      known += why.empty() ? 1 : 0;
      EXPECT_TRUE(!why.empty() || std::string_view(kind) == "faulty") << name;
    }
  }
  EXPECT_EQ(known, 6);
}

// Denormal scales are valid, also for a caller whose processor takes denormals for zero: the
// preconditions have to be checked after the environment is set, not before.
TEST(Native, AcceptsDenormalScalesUnderFlushToZero) {
  constexpr float kTiny = 0x1p-140f;
  Case quantize;
  quantize.op = Op::kQuantize;
  quantize.M = quantize.N = 1;
  quantize.x = Tensor::Of<float>({1, 1}, std::vector<float>{3 * kTiny});
  quantize.out_q.scale = {kTiny};
  Case requantize;
  requantize.op = Op::kRequantize;
  requantize.M = requantize.N = 1;
  requantize.x = Tensor::Of<int32_t>({1, 1}, std::vector<int32_t>{3});
  requantize.x_q.scale = requantize.out_q.scale = {kTiny};
  Case linear;
  linear.M = linear.N = linear.K = 1;
  linear.x = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{3});
  linear.w = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{1});
  linear.x_q.scale = linear.out_q.scale = {kTiny};
  Case dequantize;
  dequantize.op = Op::kDequantize;
  dequantize.M = dequantize.N = 1;
  dequantize.x = linear.x;
  dequantize.x_q.scale = {kTiny};
  dequantize.out_dtype = DType::kF32;
  dequantize.out_min = INT32_MIN;
  dequantize.out_max = INT32_MAX;
  for (const Case& c : {quantize, dequantize, requantize, linear}) {
    ASSERT_EQ(Validate(c), "");
    for (const std::string& name : Registry().Expand("native@all")) {
      const Outcome outcome = Registry().Make(name)->Run(c, {.flush_denormals = true});
      ASSERT_EQ(outcome.status, RunStatus::kOk) << outcome.detail << " " << Describe(c);
      if (c.op == Op::kDequantize) {
        EXPECT_EQ(outcome.y.FloatAt(0), 3 * kTiny);
      } else {
        EXPECT_EQ(outcome.y.IntAt(0), 3);
      }
    }
  }
}

TEST(Native, AgreesWithTheUnharmedReferenceOnEveryInstructionSet) {
  const std::unique_ptr<Subject> reference = Registry().Make("faulty:none");
  std::vector<std::unique_ptr<Subject>> natives;
  for (const std::string& name : Registry().Expand("native@all")) {
    natives.push_back(Registry().Make(name));
  }
  test::RandomCase draw(20240607, 19);
  Rng rng(20240607);
  int compared = 0;
  int accumulators = 0;
  size_t undecided = 0;
  for (int i = 0; i < 20000; ++i) {
    const Op op = rng.Pick(AllOps());
    Case c = draw.Draw(op);
    while (HasWideCodes(c)) c = draw.Draw(op);  // the kernels have none
    ASSERT_EQ(Validate(c), "");
    RunContext first = AnyContext(rng, c.op);
    first.threads = 1;  // it has no others
    const Outcome want = reference->Run(c, first);
    if (want.status == RunStatus::kSkipped) continue;
    ASSERT_EQ(want.status, RunStatus::kOk) << want.detail;
    for (const std::unique_ptr<Subject>& native : natives) {
      RunContext context = AnyContext(rng, c.op);
      if (BitsOf(c.x.dtype()) % 8 != 0 || BitsOf(c.out_dtype) % 8 != 0)
        context.x_row_gap = context.y_row_gap = 0;  // elements share bytes
      const Outcome got = native->Run(c, context);
      if (got.status == RunStatus::kSkipped && IsMx(c.rule)) continue;
      if (got.status == RunStatus::kSkipped && (c.op == Op::kTable || c.op == Op::kSoftmax)) {
        ++undecided;  // a real function of some code, maybe one that the case does not have
        continue;
      }
      ASSERT_EQ(got.status, RunStatus::kOk)
          << got.detail << " " << native->name() << " " << Describe(c);
      const auto divergence = FirstDivergence(want.y, got.y);
      ASSERT_FALSE(divergence) << native->name() << " " << Describe(c) << " at "
                               << divergence->index << ": " << divergence->expected << " vs "
                               << divergence->actual << " (case " << i << ")";
      EXPECT_TRUE(!got.acc || context.want_acc);
      if (got.acc && !got.acc->empty()) {
        ASSERT_EQ(got.acc->shape(), c.output_shape());
        ++accumulators;
        int64_t sum = 0;
        if (IsConv(c.op)) continue;
        for (int64_t k = 0; k < c.K; ++k) sum += int64_t{c.x.IntAt(k)} * c.w.IntAt(k);
        ASSERT_EQ(got.acc->IntAt(0), sum) << native->name();
      }
    }
    ++compared;
  }
  EXPECT_GT(compared, 17000);
  EXPECT_GT(static_cast<size_t>(accumulators), 400 * natives.size());
  EXPECT_LE(undecided, 100 * natives.size());
}

}  // namespace
}  // namespace qualm
