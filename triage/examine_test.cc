// SPDX-License-Identifier: Apache-2.0
// Which causes the further answers of a subject bear out, where they say that a cause holds, and
// how many questions that takes. The subjects here answer by a script, and the causes are made up,
// so that a test says exactly which answers were given.
#include "triage/examine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "core/text_test_util.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "properties/test_subject.h"
#include "triage/causes.h"
#include "triage/stages.h"

namespace qualm::triage {
namespace {

using Hypotheses = std::vector<Hypothesis>;
using Where = std::function<bool(const Case&)>;

bool Everywhere(const Case& /*c*/) { return true; }

// A cause that adds `by` to the codes of the output where `where` holds.
Cause Adds(int32_t by, CauseStage stage = CauseStage::kBias, const Where& where = Everywhere) {
  return {stage, FindingKind::kUnknown, "", "", Everywhere, [by, where](Stages& s) {
            if (!where(s.c)) return false;
            for (int32_t& zero : s.c.out_q.zero_point) {  // any int32, so that the sum may wrap
              zero = static_cast<int32_t>(static_cast<uint32_t>(zero) + static_cast<uint32_t>(by));
            }
            return true;
          }};
}

Tensor With(const Case& c, const Hypothesis& causes) {
  return Counterfactual(c, causes).value_or(exact::Evaluate(c));
}

class ExamineTest : public testing::Test {
 protected:
  // What the subject answers to its question number `n`; nullopt: it crashes.
  using Script = std::function<std::optional<Tensor>(const Case& c, size_t n)>;

  ExamineTest() {
    base_.M = 3;
    base_.N = 5;
    base_.K = 8;
    base_.x = Tensor(DType::kU8, {3, 8});
    base_.w = Tensor(DType::kS8, {5, 8});
    Rng rng(1);
    for (int64_t i = 0; i < base_.x.size(); ++i)
      base_.x.SetInt(i, static_cast<int32_t>(rng.Between(1, 100)));
    for (int64_t i = 0; i < base_.w.size(); ++i)
      base_.w.SetInt(i, static_cast<int32_t>(rng.Between(-60, 60)));
    base_.x_q.zero_point = {3};
    base_.out_q = {{1024}, {128}};
    // Hardly a drawn case has this mode and such sizes: so they tell which cases are near ones.
    base_.requant = Requant::kFixedRndnu;

    pool_.op = Op::kAvgPool;
    pool_.N = 2;
    pool_.window = {.batch = 1, .in_h = 7, .in_w = 5, .in_c = 2, .kernel_h = 3, .kernel_w = 2};
    pool_.x = Tensor(DType::kU8, {1, 7, 5, 2});
    DeriveSizes(&pool_);
  }

  static bool IsNear(const Case& c) {
    return c.requant == Requant::kFixedRndnu && c.M >= 3 && c.N >= 5 && c.K >= 8 && !c.bias &&
           !c.bias_i32 && !c.per_channel && TypesText(c) == "u8*s8->u8";
  }
  void AskNearCasesOnly() { AskOnly(IsNear); }
  void AskDrawnCasesOnly() {
    AskOnly([](const Case& c) { return !IsNear(c); });
  }
  void AskOnly(const Where& which) {
    subject_.cannot_run = [which](const Case& c) { return which(c) ? "" : "not asked here"; };
  }
  // Cases that differ from the base in scales and biases alone: no condition separates them.
  void AskOneShapeOnly() {
    AskOnly([this](const Case& c) {
      return IsNear(c) && c.x == base_.x && c.w == base_.w && c.relu == base_.relu &&
             c.x_q.zero_point == base_.x_q.zero_point && c.w_q.zero_point == base_.w_q.zero_point &&
             c.out_q.zero_point == base_.out_q.zero_point;
    });
  }

  Examination Ask(const Hypotheses& hypotheses, const Script& script,
                  const ExamineLimits& limits = {}) {
    script_ = script;
    asked_.clear();
    limits_ = limits;
    return Examine(base_, With(base_, hypotheses.front()), context_, hypotheses, subject_,
                   established_, limits_);
  }
  // A script that has no more answers ends the examination, which would go on for the asking.
  std::optional<Tensor> End() {
    limits_.most_calls = 0;
    return std::nullopt;
  }

  // The first answers have the cause where `where` holds, and the others are right: `with` of the
  // former, `right` of the latter. Of further ones the subject crashes.
  Script Answers(const Hypothesis& causes, size_t with, size_t right,
                 const Where& where = Everywhere) {
    auto left = std::make_shared<std::pair<size_t, size_t>>(with, right);
    return [=, this](const Case& c, size_t /*n*/) -> std::optional<Tensor> {
      if (left->first + left->second == 0) return End();
      size_t& count = where(c) ? left->first : left->second;
      if (count == 0) return std::nullopt;
      --count;
      return With(c, where(c) ? causes : Hypothesis{});
    };
  }
  // Twelve answers that depart and twelve right ones, in turn: else the cause would soon be
  // settled.
  Script Balanced(const Hypothesis& causes, const Where& where) {
    auto next = std::make_shared<int64_t>(0);
    return [=, this](const Case& c, size_t /*n*/) -> std::optional<Tensor> {
      if (*next == 24) return End();
      const bool with = where(c);
      const Tensor departs = With(c, causes), right = With(c, {});
      if (with != (*next % 2 == 0) || departs == right) return std::nullopt;
      ++*next;
      return with ? departs : right;
    };
  }
  static constexpr ExamineLimits kPatient{.most_calls = 2000};  // a crash is a question too
  // One with the cause and one without, in turn.
  Script InTurn(const Hypothesis& causes, size_t with, size_t right) {
    return [=, this](const Case& c, size_t n) -> std::optional<Tensor> {
      if (n / 2 >= (n % 2 == 0 ? with : right)) return End();
      return With(c, n % 2 == 0 ? causes : Hypothesis{});
    };
  }
  static Script Always(const Hypothesis& causes) {
    return [=](const Case& c, size_t /*n*/) { return With(c, causes); };
  }
  static std::optional<Tensor> Crash(const Case& /*c*/, size_t /*n*/) { return std::nullopt; }

  Case base_, pool_;
  RunContext context_;
  ExamineLimits limits_;
  Hypotheses established_;
  std::vector<Case> asked_;
  std::vector<RunContext> contexts_;
  Script script_;
  TestSubject subject_{[this](const Case& c, const RunContext& context) {
    asked_.push_back(c);
    contexts_.push_back(context);
    const std::optional<Tensor> y = script_(c, asked_.size() - 1);
    Outcome outcome = TestSubject::Good(y.value_or(exact::Evaluate(c)));
    if (!y) outcome.status = RunStatus::kCrashed;
    return outcome;
  }};
  const Cause one_ = Adds(1);
  const Hypothesis cause_{&one_};
};

// ---- What answers are worth.

TEST_F(ExamineTest, EachAnswerThatBearsACauseOutIsWorthMore) {
  AskOneShapeOnly();
  const Cause three = Adds(3);
  const Hypothesis cause{&three};
  double before = 0;
  for (const size_t answers : {0, 1, 3, 6}) {
    const auto weighed = Ask({cause}, Answers(cause, answers, 0)).weighed.front();
    EXPECT_EQ(weighed.bearing_out, static_cast<int64_t>(answers));
    EXPECT_GT(weighed.bits, before) << answers;
    before = weighed.bits;
  }
}

TEST_F(ExamineTest, RightAnswersSpeakAgainstACause) {
  AskOneShapeOnly();
  const auto weighed = Ask({cause_}, InTurn(cause_, 4, 4)).weighed.front();
  EXPECT_EQ(weighed.bearing_out, 4);
  EXPECT_EQ(weighed.against, 4);
  EXPECT_LT(weighed.bits, Ask({cause_}, Answers(cause_, 4, 0)).weighed.front().bits);
  EXPECT_LT(Ask({cause_}, Always({})).weighed.front().bits, 0) << "right but for the case found";
}

TEST_F(ExamineTest, WhatAnswersTellIsWhatChoosingCosts) {
  AskOneShapeOnly();
  Cause dear = Adds(1);
  dear.bits = one_.bits + 5;
  const Hypothesis rare{&dear};
  const double cheap = Ask({cause_}, Answers(cause_, 3, 0)).weighed.front().bits;
  EXPECT_DOUBLE_EQ(Ask({rare}, Answers(rare, 3, 0)).weighed.front().bits, cheap - 5);
  // Of two that predict the same the cheaper one is worth more.
  const Examination both = Ask({rare, cause_}, Answers(cause_, 3, 0));
  EXPECT_EQ(both.weighed.front().causes, cause_);
}

TEST_F(ExamineTest, ADepartureInAnotherWayIsCounted) {
  AskNearCasesOnly();
  const Cause three = Adds(3);
  const auto weighed = Ask({cause_}, [&](const Case& c, size_t n) {
                         return With(c, n == 0 ? Hypothesis{&three} : cause_);
                       }).weighed.front();
  EXPECT_EQ(weighed.otherwise, 1);
  EXPECT_EQ(weighed.against, 0);
}

// Elsewhere another fault might act, but not where the same cause gives the whole answer.
TEST_F(ExamineTest, AnAnswerThatIsWrongEverywhereSpeaksAgainstAPlace) {
  AskDrawnCasesOnly();
  const Cause adds = Adds(3);
  const auto place = std::ranges::find(AllPlaces(), "only in the last N % 4 columns", &Cause::name);
  ASSERT_NE(place, AllPlaces().end());
  const Hypothesis everywhere{&adds}, there{&adds, &*place};
  const auto weighed = [&](const Hypothesis& subject) {
    return Ask({there}, [&](const Case& c, size_t) { return With(c, subject); }).weighed.front();
  };
  EXPECT_EQ(weighed(everywhere).bearing_out, 0);
  EXPECT_GT(weighed(everywhere).otherwise, 5);
  EXPECT_GT(weighed(there).bearing_out, 5);
  EXPECT_EQ(weighed(there).otherwise, 0);
}

TEST_F(ExamineTest, AnAnswerOfAKnownFaultSpeaksNeitherForNorAgainstACause) {
  AskOneShapeOnly();
  const Cause known = Adds(2, CauseStage::kOffset);
  established_ = {{&known}};
  const auto weighed = Ask({cause_}, [&](const Case& c, size_t n) -> std::optional<Tensor> {
                         if (n == 6) return End();
                         return With(c, n % 2 == 0 ? Hypothesis{&known} : cause_);
                       }).weighed.front();
  EXPECT_EQ(weighed.otherwise, 0);
}

// A crash is no answer, and neither is an answer of another shape.
TEST_F(ExamineTest, WhatIsNoAnswerSaysNothing) {
  EXPECT_EQ(Ask({cause_}, Crash).weighed.front().bearing_out, 0);
  const Tensor other(base_.out_dtype, {1, 1});
  EXPECT_EQ(Ask({cause_}, [&](const Case&, size_t) { return other; }).weighed.front().bearing_out,
            0);
}

// ---- Where a cause holds.

// A condition on a case.
struct ConditionOf {
  const char* where;      // as it is named where the answers that depart hold it
  const char* where_not;  // where the others do
  Where holds;
  Op op = Op::kLinear;
};

bool AnyOf(const Tensor& tensor, const std::function<bool(int32_t code)>& is) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (IsCode(tensor.dtype()) && is(tensor.IntAt(i))) return true;
  }
  return false;
}
bool AllZero(const QParams& q) {
  return std::ranges::all_of(q.zero_point, [](int32_t zero) { return zero == 0; });
}

const ConditionOf kConditions[] = {
    {"where x is u8", "where x is s8", [](const Case& c) { return c.x.dtype() == DType::kU8; }},
    {"where w is s8", "where w is u8", [](const Case& c) { return c.w.dtype() == DType::kS8; }},
    {"where the output is u8", "where the output is s8",
     [](const Case& c) { return c.out_dtype == DType::kU8; }},
    {"where parameters are per channel", "where parameters are per tensor",
     [](const Case& c) { return c.per_channel; }},
    {"where ceil_mode is true", "where ceil_mode is false",
     [](const Case& c) { return c.window.ceil_mode; }, Op::kAvgPool},
    {"where count_include_pad is true", "where count_include_pad is false",
     [](const Case& c) { return c.window.count_include_pad; }, Op::kAvgPool},
    {"where there is a bias", "where there is no bias",
     [](const Case& c) { return c.bias || c.bias_i32; }},
    {"where there is a relu", "where there is no relu", [](const Case& c) { return c.relu; }},
    {"where the zero point of x is 0", "where the zero point of x is not 0",
     [](const Case& c) { return AllZero(c.x_q); }},
    {"where the zero point of x is below 0", "where the zero point of x is not below 0",
     [](const Case& c) { return c.x_q.zero_point[0] < 0; }},
    {"where the zero points of w are 0", "where a zero point of w is not 0",
     [](const Case& c) { return AllZero(c.w_q); }},
    {"where the output zero point is 0", "where the output zero point is not 0",
     [](const Case& c) { return AllZero(c.out_q); }},
    {"where the multiplier is below 1", "where a multiplier is 1 or more",
     [](const Case& c) {
       return std::ranges::all_of(c.w_q.scale, [&](float scale) {
         return double{c.x_q.scale[0]} * scale < c.out_q.scale[0];
       });
     }},
    {"where a weight lies beyond 64", "where no weight lies beyond 64",
     [](const Case& c) {
       return AnyOf(c.w, [](int32_t code) { return code < -64 || code > 64; });
     }},
    {"where a code of x is above 127", "where no code of x is above 127",
     [](const Case& c) { return AnyOf(c.x, [](int32_t code) { return code > 127; }); }},
};

class ConditionTest : public ExamineTest, public testing::WithParamInterface<ConditionOf> {};

TEST_P(ConditionTest, IsNamedWhereItHoldsWhereverTheAnswersDepart) {
  const ConditionOf& condition = GetParam();
  if (condition.op == Op::kAvgPool) base_ = pool_;
  AskOnly([this](const Case& c) { return !IsNear(c) && c.window != pool_.window; });
  // The case found departs, so the condition that is named is the one that it meets.
  const bool holds = condition.holds(base_);
  const auto where = [&](const Case& c) { return condition.holds(c) == holds; };
  const auto weighed = Ask({cause_}, Balanced(cause_, where), kPatient).weighed.front();
  EXPECT_EQ(weighed.where.text, holds ? condition.where : condition.where_not);
  EXPECT_TRUE(weighed.where.holds(base_));
}

INSTANTIATE_TEST_SUITE_P(All, ConditionTest, testing::ValuesIn(kConditions), [](const auto& of) {
  std::string name = of.param.where;
  std::ranges::replace_if(name, [](unsigned char letter) { return !std::isalnum(letter); }, '_');
  return name + "_" + std::to_string(of.index);
});

TEST_F(ExamineTest, TwoConditionsAreNamedWhereNoneSeparatesAllAnswers) {
  AskOnly([this](const Case& c) { return !IsNear(c) && c.window != pool_.window; });
  const auto both = [this](const Case& c) {
    return c.x.dtype() == base_.x.dtype() && c.w.dtype() == base_.w.dtype();
  };
  const auto weighed = Ask({cause_}, Balanced(cause_, both), kPatient).weighed.front();
  const std::string& text = weighed.where.text;
  EXPECT_TRUE(Has(text, " and ") && Has(text, "x is ") && Has(text, "w is ")) << text;
  EXPECT_TRUE(weighed.where.holds(base_));
  EXPECT_FALSE(weighed.where.of_size);
}

// Kernels choose a loop by several things at once.
TEST_F(ExamineTest, TwoOfTheConditionsByWhichKernelsChooseALoopAreNamedTogether) {
  AskOnly(Everywhere);
  const auto both = [](const Case& c) { return !c.relu && !c.bias && !c.bias_i32; };
  const auto answers = [&](const Case& c, size_t) {
    return With(c, both(c) ? cause_ : Hypothesis{});
  };
  const auto weighed = Ask({cause_}, answers).weighed.front();
  const std::string& text = weighed.where.text;
  EXPECT_TRUE(Has(text, " and ") && Has(text, "there is no relu") && Has(text, "there is no bias"))
      << text;
  EXPECT_TRUE(weighed.where.of_two) << "drawn cases have to bear it out";
  EXPECT_GE(weighed.drawn, 2);
}

TEST_F(ExamineTest, ThreeConditionsAreNamedWhereNoTwoSeparateAllAnswers) {
  const auto broken = [this](const Case& c) {
    return int{c.relu} + int{c.bias || c.bias_i32} + int{c.x.dtype() != base_.x.dtype()};
  };
  AskOnly([broken](const Case& c) { return broken(c) <= 1; });
  const auto answers = [&](const Case& c, size_t) {
    return With(c, broken(c) == 0 ? cause_ : Hypothesis{});
  };
  const auto weighed = Ask({cause_}, answers, kPatient).weighed.front();
  const std::string& text = weighed.where.text;
  EXPECT_TRUE(Has(text, ", ") && Has(text, " and ") && Has(text, "there is no relu") &&
              Has(text, "there is no bias") && Has(text, "x is u8"))
      << text;
  EXPECT_TRUE(weighed.where.holds(base_));
  EXPECT_TRUE(weighed.where.of_two) << "drawn cases have to bear it out";
}

TEST_F(ExamineTest, AWindowIsMovedSoThatItsStridesAreConditionsToo) {
  pool_.window.stride_h = 2;  // else "the stride is 1" says as much
  DeriveSizes(&pool_);
  base_ = pool_;
  AskOnly([this](const Case& c) {
    return c.window.in_h == pool_.window.in_h && c.window.in_w == pool_.window.in_w &&
           c.window.kernel_h == pool_.window.kernel_h && c.window.kernel_w == pool_.window.kernel_w;
  });
  const auto where = [](const Case& c) { return c.window.stride_w == 1; };
  const auto weighed = Ask({cause_}, Balanced(cause_, where), kPatient).weighed.front();
  EXPECT_EQ(weighed.where.text, "where the stride of columns is 1");
}

// A rule of rounding has to say of each answer how it is rounded, also where it predicts no
// departure. Any other cause may stand beside another fault.
TEST_F(ExamineTest, ARuleOfRoundingIsHeldToDrawnCasesInWhichItDoesNotAct) {
  const Cause more = Adds(1);
  const auto held = [&](CauseStage stage) {
    const Cause rule = Adds(1, stage, IsNear);
    return Ask({{&rule}}, [&](const Case& c, size_t) { return With(c, {&more}); }).weighed.front();
  };
  const Examination::Weighed rounds = held(CauseStage::kRound), biased = held(CauseStage::kBias);
  EXPECT_GT(rounds.stray, 0);
  EXPECT_LT(rounds.given, rounds.telling);
  EXPECT_TRUE(Has(rounds.exception, " instead of ")) << rounds.exception;
  EXPECT_EQ(biased.stray, 0);
  EXPECT_EQ(biased.exception, "");
}

TEST_F(ExamineTest, AFewAnswersDoNotTellACondition) {
  AskDrawnCasesOnly();
  const auto of_u8 = [](const Case& c) { return c.x.dtype() == DType::kU8; };
  EXPECT_EQ(Ask({cause_}, Answers(cause_, 3, 1, of_u8)).weighed.front().where.text, "");
  EXPECT_EQ(Ask({cause_}, Answers(cause_, 9, 9, of_u8)).weighed.front().where.text,
            "where x is u8");
}

TEST_F(ExamineTest, ACauseThatHoldsHereAndThereHasNoCondition) {
  AskOneShapeOnly();
  const auto weighed = Ask({cause_}, InTurn(cause_, 12, 12)).weighed.front();
  EXPECT_EQ(weighed.where.text, "");
  EXPECT_EQ(weighed.against, 12);
}

TEST_F(ExamineTest, ASizeIsToldWhereManySizesTellIt) {
  AskNearCasesOnly();
  const auto at_least = [](int64_t least) { return [=](const Case& c) { return c.K >= least; }; };
  base_ = [this] {
    Case c = base_;
    c.K = 16;
    Tensor x(DType::kU8, {3, 16}), w(DType::kS8, {5, 16});
    for (int64_t i = 0; i < x.size(); ++i) x.SetInt(i, base_.x.IntAt(i % base_.x.size()));
    for (int64_t i = 0; i < w.size(); ++i) w.SetInt(i, base_.w.IntAt(i % base_.w.size()));
    c.x = x, c.w = w;
    return c;
  }();
  AskOnly([](const Case& c) { return !IsNear(c) && c.K > 0; });
  const auto weighed = Ask({cause_}, Balanced(cause_, at_least(16)), kPatient).weighed.front();
  EXPECT_TRUE(Begins(weighed.where.text, "where K is 1"));
  EXPECT_TRUE(Ends(weighed.where.text, " or more"));
  // One size on either side is one answer, however often it is given.
  AskOnly([](const Case& c) { return c.K == 16 || c.K == 17; });
  const auto two =
      Ask({cause_}, Balanced(cause_, [](const Case& c) { return c.K == 16; }), kPatient);
  EXPECT_FALSE(Has(two.weighed.front().where.text, "K"));
}

// ---- Which questions are asked.

TEST_F(ExamineTest, TheEnvironmentOfTheFailureStaysAndNothingRememberedAnswers) {
  context_.rounding = Rounding::kDown;
  Ask({cause_}, Always(cause_));
  ASSERT_FALSE(contexts_.empty());
  for (const RunContext& context : contexts_) {
    EXPECT_EQ(context.rounding, Rounding::kDown);
    EXPECT_NE(context.poison, RunContext{}.poison);
  }
}

TEST_F(ExamineTest, QuestionsAreBoundedAndASettledCauseIsNotAskedAboutAnyMore) {
  EXPECT_LE(Ask({cause_}, InTurn(cause_, 999, 999)).asked, ExamineLimits{}.most_calls);
  EXPECT_LE(Ask({cause_}, Always(cause_)).asked, 48);
  EXPECT_EQ(Ask({cause_}, Always(cause_), {.most_calls = 2}).asked, 2);
  const Cause nowhere = Adds(1, CauseStage::kBias, [](const Case&) { return false; });
  EXPECT_EQ(Ask({{&nowhere}}, Always({})).asked, 0);
}

TEST_F(ExamineTest, CasesThatTellCausesApartAreAsked) {
  const Cause with_relu = Adds(1, CauseStage::kBias, [](const Case& c) { return !c.relu; });
  const Hypothesis other{&with_relu};
  const Examination found = Ask({cause_, other}, Always(cause_));
  EXPECT_EQ(found.weighed.front().causes, cause_);
  EXPECT_GT(std::ranges::count_if(asked_, &Case::relu), 0);
}

TEST_F(ExamineTest, DrawnCasesAreSmall) {
  AskDrawnCasesOnly();
  Ask({cause_}, Always(cause_));
  for (const Case& c : asked_) EXPECT_LE(c.M * c.N * std::max<int64_t>(c.K, 1), 16384);
}

}  // namespace
}  // namespace qualm::triage
