// SPDX-License-Identifier: Apache-2.0
// Which failures are one fault: causes that explain several, joint failures, failures without a
// cause.
#include "triage/cover.h"

#include <gtest/gtest.h>

#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"
#include "triage/causes.h"
#include "triage/stages.h"

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
  EXPECT_EQ(RowsOfKinds({kPadding, kIndex, kTail}), (Rows{1, 1, 1}));
  EXPECT_EQ(RowsOfKinds({kTail, kPadding, kUnknown}), (Rows{1, 1, 1}));
  EXPECT_EQ(RowsOfKinds({kUnknown, kIndex, kTail}), (Rows{1, 1, 1}));
  EXPECT_EQ(RowsOfKinds({kUnknown, kMemory, kIndex}), (Rows{0, 1, 2})) << "two faults";
  EXPECT_EQ(RowsOfKinds({kUnknown, kIndex, kMemory}), (Rows{0, 1, 2}));
  EXPECT_EQ(RowsOfKinds({kUnknown, kTail, kMemory}), (Rows{0, 1, 2}));
  EXPECT_EQ(RowsOfKinds({kUnknown, kMemory, kTail}), (Rows{0, 1, 2}));
  EXPECT_EQ(RowsOfKinds({kUnknown, kIndex, kCrash}), (Rows{0, 1, 2}));
}

TEST(FewestCauses, WhatWasShownOfAllAnswersTakesUnknownFailuresAndItsLikes) {
  const auto failure = [](FindingKind kind, bool of_subject) {
    return Failure{kind, {}, {}, nullptr, of_subject};
  };
  EXPECT_EQ(RowsOf({failure(kUnknown, false), failure(kRounding, true), failure(kClamp, true)}),
            (Rows{1, 1, 1}));
  EXPECT_EQ(RowsOf({failure(kRounding, true), failure(kCrash, false), failure(kUnknown, false)}),
            (Rows{0, 1, 0}))
      << "a crash is another fault";
  EXPECT_EQ(RowsOf({failure(kUnknown, false), failure(kRounding, false)}), (Rows{0, 1}));
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

TEST(TwoCauses, AreNoneIfOneDoesNothing) {
  const auto act = [](Op op, const char* first, const char* second) {
    return IdleOf(gen::Draw(op, 1), {&CauseNamed(first), &CauseNamed(second)}).empty();
  };
  EXPECT_TRUE(act(Op::kLinear, "weight zero point ignored", "half away from zero"));
  EXPECT_FALSE(act(Op::kMaxPool, "padding wins", "half away from zero")) << "nothing is rounded";
  EXPECT_FALSE(act(Op::kMaxPool, "padding wins", "bias ignored"));
}

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
  EXPECT_TRUE(CausesNamed(first_->name + " + ", Op::kLinear).empty()) << "a name is missing";
  EXPECT_EQ(CausesNamed(first_->name + " + " + names, Op::kLinear),
            (Hypothesis{first_, first_, second_}));
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

// What an experiment shows of one failure may be what a cause does that another one names.
TEST_F(Causes, ACauseTakesWhatAnExperimentShowedIfItGivesThatAnswer) {
  for (const FindingKind kind : {kIndex, kTail, kInt32Overflow}) {
    Failure shown = Of(kind, {}, {first_});
    shown.of_subject = kind == kInt32Overflow;
    EXPECT_EQ(RowsOf({Of(kTie, {first_}, {first_}), shown}), (Rows{0, 0})) << Name(kind);
    EXPECT_EQ(RowsOf({shown, Of(kTie, {first_}, {first_})}), (Rows{1, 1})) << Name(kind);
    Failure other = Of(kind, {}, {second_});
    EXPECT_EQ(RowsOf({Of(kTie, {first_}, {first_}), other}), (Rows{0, 1})) << Name(kind);
  }
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

// A layer whose outputs are its biases, and causes that add to some of them.
class MadeCauses : public testing::Test {
 protected:
  using Numbers = std::vector<int32_t>;

  MadeCauses() {
    layer_.M = layer_.K = 1;
    layer_.N = 4;
    layer_.x = Tensor(DType::kU8, {1, 1});
    layer_.w = Tensor(DType::kS8, {4, 1});
    layer_.bias_i32 = {{10, 20, 30, 40}};
  }

  const Cause* Adds(CauseStage stage, const Numbers& numbers,
                    const std::function<bool(const Case&)>& where = {}) {
    const auto add = [=](Stages& s) {
      for (size_t n = 0; n < numbers.size(); ++n)
        (*s.c.bias_i32)[n] += where && !where(s.c) ? 0 : numbers[n];
      return true;
    };
    causes_.push_back({stage, kUnknown, "", "", [](const Case&) { return true; }, add});
    return &causes_.back();
  }
  Failure Of(FindingKind kind, const Hypothesis& named, const std::vector<Numbers>& answers) {
    Failure failure{kind, named, {}, nullptr};
    for (const Numbers& answer : answers) {
      cases_.push_back(layer_);
      cases_.back().observed = Observed{"test", Tensor(DType::kU8, {1, 4})};
      for (size_t n = 0; n < 4; ++n)
        cases_.back().observed->y.SetInt(static_cast<int64_t>(n), answer[n]);
      failure.cases.push_back(&cases_.back());
    }
    return failure;
  }

  Case layer_;
  std::list<Cause> causes_;
  std::list<Case> cases_;
  const Cause* const a_ = Adds(CauseStage::kBias, {1, 0, 0, 0});
  const Cause* const b_ = Adds(CauseStage::kOffset, {0, 1, 0, 0});
  const Cause* const d_ = Adds(CauseStage::kRound, {0, 0, 1, 0});
  const Cause* const e_ = Adds(CauseStage::kClamp, {0, 0, 0, 1});
};

TEST_F(MadeCauses, TwoTogetherAreARowUntilEachWasShownWithoutOthers) {
  const std::vector<Failure> one_shown{Of(kTie, {a_}, {{11, 20, 30, 40}}),
                                       Of(kTie, {a_, b_}, {{11, 21, 30, 40}}),
                                       Of(kUnknown, {}, {{11, 21, 30, 40}})};
  EXPECT_EQ(RowsOf(one_shown), (Rows{0, 1, 1}));
  // d was shown, but only where e acts too.
  const std::vector<Failure> with_another{
      Of(kTie, {d_, e_}, {{10, 20, 31, 41}}), Of(kTie, {a_}, {{11, 20, 30, 40}}),
      Of(kTie, {b_}, {{10, 21, 30, 40}}), Of(kTie, {a_, b_, d_}, {{11, 21, 31, 40}}),
      Of(kUnknown, {}, {{11, 21, 31, 40}})};
  EXPECT_EQ(RowsOf(with_another), (Rows{0, 1, 2, 3, 3}));
  EXPECT_EQ(FewestCauses(with_another)[4].causes, Hypothesis{d_});
}

TEST_F(MadeCauses, AFailureThatTwoRowsExplainStaysWithTheOneThatExplainsMore) {
  // Like a where x is 0, else something else where x is 7.
  const Cause* const like_a =
      Adds(CauseStage::kIndex, {1, 0, 0, 0}, [](const Case& c) { return c.x.IntAt(0) == 0; });
  const Cause* const of_seven =
      Adds(CauseStage::kTail, {0, 0, 0, 1}, [](const Case& c) { return c.x.IntAt(0) == 7; });
  const auto with_x = [&](int32_t x, const Hypothesis& named, const Hypothesis& real) -> Failure {
    cases_.push_back(layer_);
    cases_.back().x.SetInt(0, x);
    cases_.back().observed = Observed{"test", *Counterfactual(cases_.back(), real)};
    return {kTie, named, {&cases_.back()}, nullptr};
  };
  const std::vector<Failure> failures{with_x(0, {a_}, {a_}), with_x(0, {a_}, {a_}),
                                      with_x(9, {a_}, {a_}), with_x(5, {a_}, {a_}),
                                      with_x(7, {like_a, of_seven}, {of_seven})};
  EXPECT_EQ(RowsOf(failures), (Rows{0, 0, 0, 0, 4}));
  std::vector<int> others;
  for (const Covered& each : FewestCauses(failures)) others.push_back(each.others);
  EXPECT_EQ(others, (std::vector<int>{1, 1, 0, 0, 0}));
}

TEST_F(MadeCauses, AFailureThatNoCauseExplainsJoinsTheRowOfItsKind) {
  EXPECT_EQ(RowsOf({Of(kClamp, {b_}, {{10, 21, 30, 40}}), Of(kTie, {a_}, {{11, 20, 30, 40}}),
                    Of(kTie, {}, {{9, 9, 9, 9}})}),
            (Rows{0, 1, 1}));
}

TEST_F(MadeCauses, TheSameNamesAreOneRowWhereNoAnswerIsKept) {
  const std::vector<Failure> failures{Of(kTie, {a_}, {}), Of(kClamp, {a_}, {})};
  EXPECT_EQ(RowsOf(failures), (Rows{0, 0}));
}

TEST_F(MadeCauses, AFailureOfSeveralRowsJoinsTheFirstThatActs) {
  const Failure shows_a = Of(kTie, {a_}, {{11, 20, 30, 40}});
  const Failure shows_b = Of(kClamp, {b_}, {{10, 21, 30, 40}});
  // The same subject may have been right at times, or nobody kept its answer.
  Failure both = Of(kUnknown, {}, {{10, 20, 30, 40}, {11, 21, 30, 40}});
  both.cases.insert(both.cases.begin(), &layer_);
  EXPECT_EQ(RowsOf({shows_a, shows_b, both}), (Rows{0, 1, 0}));
  EXPECT_EQ(RowsOf({shows_b, shows_a, both}), (Rows{0, 1, 0}));
  EXPECT_EQ(RowsOf({shows_a, shows_b, Of(kUnknown, {}, {{11, 22, 30, 40}})}), (Rows{0, 1, 2}))
      << "another answer";

  // A row that stands before them, and has no part in this answer.
  const auto expect_no_part = [&](const Failure& row) {
    EXPECT_EQ(RowsOf({row, shows_a, shows_b, both}), (Rows{0, 1, 2, 1}));
  };
  const Cause column{CauseStage::kPlace,
                     kUnknown,
                     "",
                     "",
                     [](const Case&) { return true; },
                     [](Stages& s) {
                       s.only_at = [](int64_t, int64_t n) { return n == 2; };
                       return true;
                     }};
  expect_no_part(Of(kTail, {d_, &column}, {{10, 20, 31, 40}}));
  const auto is_seven = [](const Case& c) { return c.x.IntAt(0) == 7; };
  const Cause* const of_seven = Adds(CauseStage::kIndex, {0, 0, 0, 1}, is_seven);
  Case seven = layer_;
  seven.x.SetInt(0, 7);
  seven.observed = Observed{"test", *Counterfactual(seven, *of_seven)};
  expect_no_part({kTail, {of_seven}, {&seven}, nullptr});
}

TEST_F(MadeCauses, OnlyThoseThatChangeACaseActTogetherOnIt) {
  const Cause of_other_cases{CauseStage::kTail, kUnknown, "", "", [](const Case&) { return false; },
                             a_->change};
  const std::vector<Hypothesis> shown{{&of_other_cases}, {a_}};
  EXPECT_EQ(Together(layer_, shown, nullptr), Hypothesis{a_});
}

TEST_F(MadeCauses, AnUnknownFailureDoesNotJoinAnExperimentWhereARowHasACause) {
  EXPECT_EQ(RowsOf({Of(kIndex, {a_}, {{11, 20, 30, 40}}), Of(kUnknown, {}, {{9, 9, 9, 9}})}),
            (Rows{0, 1}));
}

// Two conventions give the first failure; the second tells them apart.
TEST_F(Causes, OfConventionsThatHoldAlikeThatWhichExplainsMoreIsTheRow) {
  const Hypothesis one{first_}, two{second_};
  Failure either = Of(kRounding, one, two);
  either.conventions = {one, two};
  const std::vector<Failure> failures{Of(kClamp, two, two), either};
  const std::vector<Covered> covered = FewestCauses(failures);
  EXPECT_EQ(RowsOf(failures), (Rows{0, 0}));
  EXPECT_EQ(covered[0].causes, two);
  const std::vector<Failure> reversed{either, Of(kUnknown, {}, two)};
  EXPECT_EQ(RowsOf(reversed), (Rows{0, 0}));
  EXPECT_EQ(FewestCauses(reversed)[0].causes, two);
  EXPECT_EQ(FewestCauses(reversed)[0].conventions, std::vector<Hypothesis>{two});
}

}  // namespace
}  // namespace qualm::triage
