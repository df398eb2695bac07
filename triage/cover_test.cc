// SPDX-License-Identifier: Apache-2.0
// Which failures are one fault: causes that explain several, joint failures, failures without a
// cause.
#include "triage/cover.h"

#include <gtest/gtest.h>

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"
#include "triage/causes.h"

namespace qualm::triage {
namespace {

using enum FindingKind;
using Rows = std::vector<size_t>;

Rows RowsOf(const std::vector<Failure>& failures) {
  Rows rows;
  for (const Covered& each : FewestCauses(failures)) rows.push_back(each.by);
  return rows;
}

Rows RowsOfKinds(const std::vector<FindingKind>& kinds) {
  std::vector<Failure> failures;
  for (const FindingKind kind : kinds) failures.push_back({kind, {}, {}, nullptr});
  return RowsOf(failures);
}

TEST(FewestCauses, WithoutACauseTheFirstOfEachKindIsTheRow) {
  EXPECT_EQ(RowsOfKinds({}), Rows{});
  EXPECT_EQ(RowsOfKinds({kTie, kClamp, kTie, kClamp}), (Rows{0, 1, 0, 1}));
  EXPECT_EQ(RowsOfKinds({kUnknown, kUnknown}), (Rows{0, 0}));
  EXPECT_EQ(RowsOfKinds({kCrash, kUnknown}), (Rows{0, 1})) << "a crash is no arithmetic";
  EXPECT_EQ(RowsOfKinds({kUnknown, kTie}), (Rows{0, 1}));
}

TEST(FewestCauses, UnknownFailuresJoinTheOneFaultThatAnExperimentShowed) {
  for (const FindingKind kind : {kIndex, kTail, kMemory, kNondeterminism}) {
    EXPECT_EQ(RowsOfKinds({kUnknown, kind}), (Rows{1, 1}));
    EXPECT_EQ(RowsOfKinds({kind, kUnknown}), (Rows{0, 0}));
    EXPECT_EQ(RowsOfKinds({kUnknown, kind, kUnknown, kind}), (Rows{1, 1, 1, 1}));
  }
  EXPECT_EQ(RowsOfKinds({kUnknown, kTail, kIndex}), (Rows{2, 2, 2})) << "one fault: the index";
  EXPECT_EQ(RowsOfKinds({kUnknown, kIndex, kTail}), (Rows{1, 1, 1}));
  EXPECT_EQ(RowsOfKinds({kUnknown, kMemory, kIndex}), (Rows{0, 1, 2})) << "two faults";
  EXPECT_EQ(RowsOfKinds({kUnknown, kIndex, kMemory}), (Rows{0, 1, 2}));
  EXPECT_EQ(RowsOfKinds({kUnknown, kTail, kMemory}), (Rows{0, 1, 2}));
  EXPECT_EQ(RowsOfKinds({kUnknown, kMemory, kTail}), (Rows{0, 1, 2}));
  EXPECT_EQ(RowsOfKinds({kUnknown, kIndex, kCrash}), (Rows{0, 1, 2}));
}

// A drawn case, two causes of different stages that change it, each in its own way, and answers.
class Causes : public testing::Test {
 protected:
  Causes() {
    for (uint64_t seed = 0; seed < 400 && second_ == nullptr; ++seed) {
      c_ = gen::Draw(Op::kLinear, seed);
      if (c_.M * c_.N < 8 || c_.M * c_.N > 300 || c_.K > 60) continue;
      const Tensor right = exact::Evaluate(c_);
      first_ = nullptr;
      for (const Cause& cause : AllCauses()) {
        const std::optional<Tensor> y = Counterfactual(c_, cause);
        if (!y || *y == right) continue;
        if (first_ == nullptr) {
          first_ = &cause;
        } else if (cause.stage != first_->stage && *y != *Counterfactual(c_, *first_)) {
          const std::optional<Tensor> both = Counterfactual(c_, Hypothesis{first_, &cause});
          if (!both || *both == *y || *both == *Counterfactual(c_, *first_)) continue;
          second_ = &cause;
          break;
        }
      }
    }
  }
  void SetUp() override { ASSERT_NE(second_, nullptr); }

  // The case with what a subject with these causes answers.
  const Case* Answered(const Hypothesis& causes) {
    cases_.push_back(c_);
    cases_.back().observed =
        Observed{"test", causes.empty() ? exact::Evaluate(c_) : *Counterfactual(c_, causes)};
    return &cases_.back();
  }
  Failure Of(FindingKind kind, const Hypothesis& named, const Hypothesis& real) {
    return {kind, named, {Answered(real)}, nullptr};
  }

  Case c_;
  const Cause* first_ = nullptr;
  const Cause* second_ = nullptr;
  std::list<Case> cases_;
};

TEST_F(Causes, CoverAnswersThatTheyGiveAndNoOthers) {
  const Hypothesis one{first_}, two{second_};
  const Case* const by_one = Answered(one);
  const Case* const by_two = Answered(two);
  const Case* const right = Answered({});
  const std::vector<const Case*> ones{by_one}, both{by_one, by_two}, rights{right};
  EXPECT_TRUE(Covers(one, ones));
  EXPECT_FALSE(Covers(two, ones));
  EXPECT_FALSE(Covers(one, both));
  EXPECT_FALSE(Covers(one, rights)) << "it would change a right answer";
  const std::vector<const Case*> right_first{right, by_one};
  EXPECT_FALSE(Covers(one, right_first));
  Case unseen = c_;
  const std::vector<const Case*> none{&unseen}, with{&unseen, by_one};
  EXPECT_FALSE(Covers(one, none)) << "there is no answer";
  EXPECT_TRUE(Covers(one, with));
  EXPECT_FALSE(Covers(one, {}));
}

TEST_F(Causes, HaveNamesThatAreReadBack) {
  const Hypothesis both{first_, second_};
  const std::string names = NamesOf(both, Op::kLinear);
  EXPECT_EQ(names, first_->NameFor(Op::kLinear) + " + " + second_->NameFor(Op::kLinear));
  EXPECT_EQ(CausesNamed(names, Op::kLinear), both);
  EXPECT_EQ(CausesNamed(first_->name + " + " + second_->name, Op::kLinear), both);
  EXPECT_EQ(CausesNamed(first_->name, Op::kLinear), Hypothesis{first_});
  EXPECT_TRUE(CausesNamed(first_->name + " + nothing known", Op::kLinear).empty());
  EXPECT_TRUE(CausesNamed("", Op::kLinear).empty());
  EXPECT_EQ(NamesOf({}, Op::kLinear), "");
  const Cause& place = AllPlaces().front();
  EXPECT_EQ(CausesNamed(place.NameFor(Op::kLinear), Op::kLinear), Hypothesis{&place});
}

TEST_F(Causes, OneCauseThatExplainsAllIsOneRow) {
  // The second failure was given a wrong cause, the third none.
  const std::vector<Failure> failures{Of(kTie, {first_}, {first_}), Of(kClamp, {second_}, {first_}),
                                      Of(kUnknown, {}, {first_})};
  EXPECT_EQ(RowsOf(failures), (Rows{0, 0, 0}));
  for (const Covered& each : FewestCauses(failures)) EXPECT_EQ(each.causes, Hypothesis{first_});
  const std::vector<Failure> turned{failures[2], failures[1], failures[0]};
  EXPECT_EQ(RowsOf(turned), (Rows{2, 2, 2})) << "whatever the order";
}

TEST_F(Causes, TwoFaultsAreTwoRows) {
  const std::vector<Failure> failures{
      Of(kTie, {first_}, {first_}), Of(kClamp, {second_}, {second_}),
      Of(kClamp, {second_}, {second_}), Of(kUnknown, {}, {second_})};
  EXPECT_EQ(RowsOf(failures), (Rows{0, 1, 1, 1}));
  const std::vector<Covered> covered = FewestCauses(failures);
  EXPECT_EQ(covered[0].causes, Hypothesis{first_});
  EXPECT_EQ(covered[3].causes, Hypothesis{second_});
  for (const Covered& each : covered) EXPECT_EQ(each.others, 0);
}

TEST_F(Causes, AFailureOfBothIsNoRowOfItsOwn) {
  const std::vector<Failure> failures{
      Of(kTie, {first_}, {first_}), Of(kClamp, {second_}, {second_}),
      Of(kIndex, {first_, second_}, {first_, second_}), Of(kUnknown, {}, {first_, second_})};
  const Rows rows = RowsOf(failures);
  EXPECT_EQ(rows[0], 0u);
  EXPECT_EQ(rows[1], 1u);
  EXPECT_LT(rows[2], 2u);
  EXPECT_EQ(rows[3], rows[2]) << "named or not, the same causes explain it";
  // Without the parts the joint failure is a row, with both causes.
  const std::vector<Failure> alone{failures[2]};
  EXPECT_EQ(RowsOf(alone), Rows{0});
  EXPECT_EQ(FewestCauses(alone)[0].causes, (Hypothesis{first_, second_}));
  // With one of the parts, it is a row of the other.
  const std::vector<Failure> part{failures[0], failures[2]};
  EXPECT_EQ(RowsOf(part), (Rows{0, 1}));
  EXPECT_EQ(FewestCauses(part)[1].causes, Hypothesis{second_});
}

TEST_F(Causes, AnAnswerThatIsNoArithmeticIsNotExplained) {
  // Wrong as the cause would have it, but a run that comes and goes was shown.
  const std::vector<Failure> failures{Of(kTie, {first_}, {first_}),
                                      Of(kNondeterminism, {}, {first_})};
  EXPECT_EQ(RowsOf(failures), (Rows{0, 1}));
  const std::vector<Failure> crash{Of(kTie, {first_}, {first_}), Of(kCrash, {}, {})};
  EXPECT_EQ(RowsOf(crash), (Rows{0, 1}));
}

TEST_F(Causes, ActTogetherOnlyAtDifferentStages) {
  const std::vector<Hypothesis> both{{first_}, {second_}};
  EXPECT_EQ(Together(c_, both, nullptr), (Hypothesis{first_, second_}));
  EXPECT_EQ(Together(c_, both, nullptr, {second_}), (Hypothesis{second_, first_}));
  const std::vector<Hypothesis> twice{{first_}, {first_}};
  EXPECT_EQ(Together(c_, twice, nullptr), Hypothesis{first_});
  const std::vector<Hypothesis> placed{{&AllPlaces().front()}, {second_}};
  EXPECT_EQ(Together(c_, placed, nullptr), Hypothesis{second_}) << "a place alone is no cause";
  EXPECT_TRUE(Together(c_, {}, nullptr).empty());
}

}  // namespace
}  // namespace qualm::triage
