// SPDX-License-Identifier: Apache-2.0
// Which causes the further answers of a subject bear out, where they say that a cause holds, and
// how many questions that takes. The subjects here answer by a script, and the causes are made up,
// so that a test says exactly which answers were given.
#include "triage/examine.h"

#include <gtest/gtest.h>

#include <algorithm>
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
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "properties/test_subject.h"
#include "triage/causes.h"
#include "triage/stages.h"

namespace qualm::triage {
namespace {

using BorneOut = Examination::BorneOut;
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

// A cause of which only the outputs in these columns are touched.
Cause InColumns(Cause cause, const std::function<bool(int64_t column)>& in) {
  const auto change = cause.change;
  cause.change = [change, in](Stages& s) {
    s.only_at = [in](int64_t /*row*/, int64_t column) { return in(column); };
    return change(s);
  };
  return cause;
}

// Keeps the cases on which a cause was replayed: those that were looked at, asked or not.
Cause Watched(Cause cause, std::vector<Case>& seen) {
  cause.applies = [&seen, applies = cause.applies](const Case& c) {
    seen.push_back(c);
    return applies(c);
  };
  return cause;
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
    return Examine(base_, context_, hypotheses, subject_, established_, limits_);
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

  // Whether a sum that is often wrong in this way is told where no condition fits.
  bool IsToldInSomeCases(const Cause& cause) {
    const Hypothesis causes{&cause};
    const Examination found = Ask({causes}, InTurn(causes, 12, 12));
    if (found.borne_out.empty()) return false;
    EXPECT_EQ(found.borne_out[0].where, "in some cases");
    return true;
  }

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
  // Other causes give the last digit by chance, so that such a cause must be right always.
  const Cause rounds_ = Adds(1, CauseStage::kRound);
  const Hypothesis rounding_{&rounds_};
};

// The one cause that was borne out, and where; nothing else was.
testing::AssertionResult Names(const Examination& found, const Hypothesis& causes,
                               const std::string& where = "", int64_t rank = 0) {
  if (found.borne_out.size() != 1)
    return testing::AssertionFailure()
           << found.borne_out.size() << " borne out, " << found.open.size() << " open, "
           << found.contradicted.size() << " contradicted";
  const BorneOut& best = found.borne_out.front();
  if (best.causes != causes || best.where != where || best.rank != rank)
    return testing::AssertionFailure() << "'" << best.where << "', rank " << best.rank;
  if (!found.open.empty() || !found.contradicted.empty())
    return testing::AssertionFailure() << "and elsewhere";
  return testing::AssertionSuccess();
}
testing::AssertionResult Contradicts(const Examination& found, const Hypothesis& causes) {
  if (found.contradicted == Hypotheses{causes} && found.borne_out.empty() && found.open.empty())
    return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << found.borne_out.size() << " borne out, " << found.open.size() << " open, "
         << found.contradicted.size() << " contradicted"
         << (found.borne_out.empty() ? "" : found.borne_out[0].where);
}
testing::AssertionResult LeavesOpen(const Examination& found, const Hypothesis& causes) {
  if (found.open == Hypotheses{causes} && found.borne_out.empty() && found.contradicted.empty())
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << found.borne_out.size() << " borne out, "
                                     << found.contradicted.size() << " contradicted";
}

// --- How many answers it takes ------------------------------------------------------------------

TEST_F(ExamineTest, ThreeAnswersBearACauseOutAndTwoLeaveItOpen) {
  EXPECT_TRUE(LeavesOpen(Ask({cause_}, Answers(cause_, 2, 0)), cause_));
  EXPECT_TRUE(Names(Ask({cause_}, Answers(cause_, 3, 0)), cause_));
  EXPECT_TRUE(LeavesOpen(Ask({cause_}, Crash), cause_)) << "a crash is no answer";
}

TEST_F(ExamineTest, APlaceTakesSixAnswersThatTellOfIt) {
  const Cause first_column =
      InColumns(Adds(0, CauseStage::kPlace), [](int64_t column) { return column == 0; });
  const Hypothesis placed{&one_, &first_column};
  EXPECT_TRUE(LeavesOpen(Ask({placed}, Answers(placed, 5, 0)), placed));
  EXPECT_TRUE(Names(Ask({placed}, Answers(placed, 6, 0)), placed));
  // Where all columns are in the place, the answers say nothing of it.
  const Cause all_columns = InColumns(Adds(0, CauseStage::kPlace), [](int64_t) { return true; });
  const Hypothesis anywhere{&one_, &all_columns};
  EXPECT_TRUE(LeavesOpen(Ask({anywhere}, Always(anywhere)), anywhere));
  // The second of two causes that is no place may change nothing.
  const Cause nothing = Adds(0, CauseStage::kClamp);
  const Hypothesis pair{&one_, &nothing};
  EXPECT_TRUE(Names(Ask({pair}, Always(pair)), pair));
}

// A sum that is far off ends at a bound, whatever made it so: some pair of causes always does.
TEST_F(ExamineTest, TwoCausesTogetherTakeAnAnswerOffTheBounds) {
  AskOneShapeOnly();
  const Cause far_up = Adds(1000), nothing = Adds(0, CauseStage::kOffset);
  const Hypothesis pair{&far_up, &nothing}, one{&far_up};
  EXPECT_TRUE(LeavesOpen(Ask({pair}, Always(pair)), pair));
  EXPECT_TRUE(Names(Ask({one}, Always(one)), one)) << "one cause may give a bound everywhere";
  const Hypothesis near{&one_, &nothing};
  EXPECT_TRUE(Names(Ask({near}, Always(near)), near));
  // A place says where, and is no second reason for the number.
  const Cause first_column =
      InColumns(Adds(0, CauseStage::kPlace), [](int64_t column) { return column == 0; });
  const Hypothesis placed{&far_up, &first_column};
  EXPECT_TRUE(Names(Ask({placed}, Always(placed)), placed));
}

TEST_F(ExamineTest, ACauseOfTheLastDigitIsContradictedByOneRightAnswerOfTheSameShape) {
  AskOneShapeOnly();
  EXPECT_TRUE(Contradicts(Ask({rounding_}, Always({})), rounding_));
  EXPECT_EQ(asked_.size(), 1u);
  for (const CauseStage stage : {CauseStage::kClamp, CauseStage::kPlace}) {
    const Cause other = InColumns(Adds(1, stage), [](int64_t column) { return column == 0; });
    EXPECT_TRUE(Contradicts(Ask({{&one_, &other}}, Always({})), {&one_, &other}));
    EXPECT_EQ(asked_.size(), 1u);
  }
  // Answers of another size may mean that the cause needs a size.
  AskOnly([this](const Case& c) { return IsNear(c) && c.K > base_.K; });
  EXPECT_TRUE(Contradicts(Ask({rounding_}, Always({})), rounding_));
  EXPECT_EQ(asked_.size(), 6u);
}

TEST_F(ExamineTest, AnyOtherIsGivenUpAfterSixRightAnswersAndThreeTimesThoseThatBearItOut) {
  AskOneShapeOnly();
  const auto questions_with = [&](size_t with) {
    const Examination found = Ask({cause_}, [&](const Case& c, size_t n) {
      return With(c, n < with ? cause_ : Hypothesis{});
    });
    EXPECT_TRUE(Contradicts(found, cause_));
    EXPECT_EQ(found.asked, static_cast<int64_t>(asked_.size()));
    return asked_.size();
  };
  EXPECT_EQ(questions_with(0), 6u);
  EXPECT_EQ(questions_with(1), 1u + 6u);
  EXPECT_EQ(questions_with(2), 2u + 7u);
  EXPECT_EQ(questions_with(5), 5u + 16u);
}

TEST_F(ExamineTest, SixNearAnswersAndSixDrawnOnesSettleACause) {
  EXPECT_TRUE(Names(Ask({cause_}, Always(cause_)), cause_));
  EXPECT_LE(std::ranges::count_if(asked_, IsNear), 6);
  EXPECT_EQ(std::ranges::count_if(asked_, std::not_fn(IsNear)), 6);
  AskOneShapeOnly();
  EXPECT_TRUE(Names(Ask({cause_}, Always(cause_)), cause_));
  EXPECT_EQ(asked_.size(), 6u);
  // Where answers contradict it, 24 are asked for, to find the condition.
  EXPECT_TRUE(Names(Ask({cause_}, InTurn(cause_, 99, 99)), cause_, "in some cases", 1));
  EXPECT_EQ(asked_.size(), 24u);
}

TEST_F(ExamineTest, ADrawnCaseThatTellsNothingIsNotOneOfTheSix) {
  const Cause known = Adds(1, CauseStage::kOffset);
  established_ = {{&known}};
  const Hypothesis both{&one_, &known};
  size_t drawn = 0;
  // Near cases bear the cause out. Drawn ones show the known fault, and later that nothing is
  // wrong.
  const Examination found = Ask({cause_}, [&](const Case& c, size_t /*n*/) {
    return With(c, IsNear(c) ? both : ++drawn < 9 ? Hypothesis{&known} : Hypothesis{});
  });
  EXPECT_FALSE(Names(found, cause_)) << "everywhere";
  // A drawn case that departs in another way tells something.
  established_.clear();
  const Cause three = Adds(3);
  const Script otherwise = [&](const Case& c, size_t /*n*/) {
    return With(c, IsNear(c) ? cause_ : Hypothesis{&three});
  };
  EXPECT_TRUE(Contradicts(Ask({cause_}, otherwise), cause_));
  EXPECT_EQ(std::ranges::count_if(asked_, std::not_fn(IsNear)), 6);
  // So does one that is right.
  Ask({cause_},
      [&](const Case& c, size_t /*n*/) { return With(c, IsNear(c) ? cause_ : Hypothesis{}); });
  EXPECT_LT(asked_.size(), 40u);
}

// --- Answers that depart in another way ---------------------------------------------------------

TEST_F(ExamineTest, OneDepartureInAnotherWayIsForgivenForFourThatAreExplained) {
  AskNearCasesOnly();
  const Cause first = InColumns(one_, [](int64_t column) { return column == 0; });
  const Hypothesis causes{&first};
  const auto departs = [&](const Case& c, int64_t column, int32_t by) {
    Tensor y = With(c, causes);
    for (int64_t i = column; i < y.size(); i += c.N) y.SetInt(i, y.IntAt(i) + by);
    return y;
  };
  // The first answer departs in a column of which the cause says nothing, too.
  const auto more = [&](size_t with) -> Script {
    return [&, with](const Case& c, size_t n) -> std::optional<Tensor> {
      if (n >= with) return std::nullopt;
      return departs(c, 1, n == 0 ? 2 : 0);
    };
  };
  EXPECT_TRUE(Contradicts(Ask({causes}, more(3)), causes));
  EXPECT_TRUE(Names(Ask({causes}, more(4)), causes, "", 2));
  // The first answer departs in the column of the cause by another number, in one row or in all.
  const auto other = [&](size_t with, bool all_rows) -> Script {
    return [&, with, all_rows](const Case& c, size_t n) -> std::optional<Tensor> {
      if (n > with) return std::nullopt;
      Tensor y = With(c, causes);
      if (n == 0 && all_rows) return departs(c, 0, 2);
      if (n == 0) y.SetInt(0, y.IntAt(0) + 2);
      return y;
    };
  };
  for (const bool all_rows : {false, true}) {
    EXPECT_TRUE(Contradicts(Ask({causes}, other(3, all_rows)), causes));
    EXPECT_TRUE(Names(Ask({causes}, other(4, all_rows)), causes, "", 2));
  }
}

TEST_F(ExamineTest, ADrawnCaseMayShowAnotherFaultElsewhere) {
  AskDrawnCasesOnly();
  const Cause first = InColumns(one_, [](int64_t column) { return column == 0; });
  const Cause rest = InColumns(Adds(2), [](int64_t column) { return column != 0; });
  const Hypothesis causes{&first};
  const Script both = [&](const Case& c, size_t /*n*/) {
    Tensor y = With(c, causes);
    const Tensor more = With(c, {&rest});
    for (int64_t i = 0; i < y.size(); ++i) {
      if (i % c.N != 0) y.SetInt(i, more.IntAt(i));
    }
    return y;
  };
  EXPECT_TRUE(Names(Ask({causes}, both), causes));
}

// --- Other faults that are known ----------------------------------------------------------------

TEST_F(ExamineTest, AnAnswerOfAKnownFaultSpeaksNeitherForNorAgainstACause) {
  AskNearCasesOnly();
  const Cause known = Adds(2, CauseStage::kOffset);
  established_ = {{&known}};
  const auto shifted = [](int32_t by) -> Script {
    return [by](const Case& c, size_t /*n*/) {
      const Cause cause = Adds(by);
      return With(c, {&cause});
    };
  };
  EXPECT_TRUE(Names(Ask({cause_}, shifted(1)), cause_)) << "alone";
  EXPECT_TRUE(Names(Ask({cause_}, shifted(3)), cause_)) << "together";
  EXPECT_TRUE(Contradicts(Ask({cause_}, shifted(0)), cause_));
  EXPECT_TRUE(Contradicts(Ask({cause_}, shifted(2)), cause_));
  EXPECT_TRUE(Contradicts(Ask({cause_}, shifted(5)), cause_));
  const Cause same = Adds(1, CauseStage::kOffset);
  established_ = {{&same}};
  EXPECT_TRUE(LeavesOpen(Ask({cause_}, shifted(1)), cause_)) << "both say so";
  EXPECT_TRUE(Names(Ask({cause_}, shifted(2)), cause_));
}

TEST_F(ExamineTest, AKnownFaultOfTheSameStageDoesNotHideThatACauseIsWrong) {
  AskNearCasesOnly();
  const Cause known = Adds(1);
  established_ = {{&known}};
  EXPECT_TRUE(Contradicts(Ask({cause_}, Always({})), cause_));
}

TEST_F(ExamineTest, ACauseThatShowsOnlyWhereAnotherFaultActsIsBorneOut) {
  AskNearCasesOnly();
  // The outputs lie below 200; the known fault lifts them beyond.
  const Cause known = Adds(100, CauseStage::kOffset);
  const Cause bound{CauseStage::kClamp, FindingKind::kUnknown, "", "", Everywhere, [](Stages& s) {
                      s.c.out_max = std::min(s.c.out_max, 200);
                      return true;
                    }};
  established_ = {{&known}};
  const Hypothesis causes{&bound};
  const Examination found = Ask({causes}, Always({&bound, &known}));
  EXPECT_TRUE(Names(found, causes));
}

// --- Where a cause holds ------------------------------------------------------------------------

TEST_F(ExamineTest, ASumThatIsOftenWrongInThisWayIsSoInSomeCases) {
  AskOneShapeOnly();
  EXPECT_TRUE(Names(Ask({cause_}, InTurn(cause_, 12, 12)), cause_, "in some cases", 1));
  EXPECT_TRUE(Contradicts(Ask({cause_}, InTurn(cause_, 11, 11)), cause_));
  // Sums that are wrong in other ways too may be so by chance.
  const Script once_otherwise = [&](const Case& c, size_t n) -> std::optional<Tensor> {
    const Cause three = Adds(3);
    return With(c, n == 2 ? Hypothesis{&three} : n % 2 == 0 ? cause_ : Hypothesis{});
  };
  EXPECT_TRUE(Contradicts(Ask({cause_}, once_otherwise, {.most_calls = 30}), cause_));
  // The outputs after a relu tell as much, unless they are what the relu gives.
  base_.relu = true;
  base_.out_q.zero_point = {20};
  EXPECT_TRUE(Names(Ask({cause_}, InTurn(cause_, 12, 12)), cause_, "in some cases", 1));
}

TEST_F(ExamineTest, OutputsAtAnEndOfTheRangeDoNotTellWhichSumIsWrong) {
  AskOneShapeOnly();
  const Cause far_up = Adds(1000), far_down = Adds(-1000);
  EXPECT_FALSE(IsToldInSomeCases(far_up));
  EXPECT_FALSE(IsToldInSomeCases(far_down));
  const Cause to_zero{CauseStage::kBias, FindingKind::kUnknown, "", "", Everywhere, [](Stages& s) {
                        s.c.out_q.scale = {0x1p60f};
                        return true;
                      }};
  EXPECT_TRUE(IsToldInSomeCases(to_zero)) << "without a relu the zero point is no end";
  base_.relu = true;
  EXPECT_FALSE(IsToldInSomeCases(to_zero));
  EXPECT_FALSE(IsToldInSomeCases(far_up));
  Cause without_relu = far_down;
  without_relu.change = [change = far_down.change](Stages& s) {
    s.c.relu = false;
    return change(s);
  };
  EXPECT_FALSE(IsToldInSomeCases(without_relu)) << "the least code is an end below a relu, too";
}

TEST_F(ExamineTest, OfFloatsTheInfinitiesAreTheEnds) {
  base_.op = Op::kDequantize;
  base_.N = 8;
  base_.K = 0;
  base_.w = Tensor();
  base_.out_q = {};
  base_.out_dtype = DType::kF32;
  OpenClamp(&base_);
  base_.requant = Requant::kExact;
  ASSERT_EQ(Validate(base_), "");
  AskOnly(
      [this](const Case& c) { return c.x == base_.x && c.x_q.zero_point == base_.x_q.zero_point; });
  const auto finish = [](float (*with)(float)) -> Cause {
    return {CauseStage::kBias, FindingKind::kUnknown, "", "", Everywhere, [with](Stages& s) {
              s.finish = with;
              return true;
            }};
  };
  EXPECT_TRUE(IsToldInSomeCases(finish([](float value) { return 3 * value; })));
  EXPECT_FALSE(
      IsToldInSomeCases(finish([](float) { return std::numeric_limits<float>::infinity(); })));
}

// A condition on a case.
struct Condition {
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

const Condition kConditions[] = {
    {"where x is u8", "where x is s8", [](const Case& c) { return c.x.dtype() == DType::kU8; }},
    {"where w is s8", "where w is u8", [](const Case& c) { return c.w.dtype() == DType::kS8; }},
    {"where the output is u8", "where the output is s8",
     [](const Case& c) { return c.out_dtype == DType::kU8; }},
    {"where per_channel is true", "where per_channel is false",
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
    {"where the zero points of w are 0", "where a zero point of w is not 0",
     [](const Case& c) { return AllZero(c.w_q); }},
    {"where the output zero point is 0", "where the output zero point is not 0",
     [](const Case& c) { return AllZero(c.out_q); }},
    {"where a weight lies beyond 64", "where no weight lies beyond 64",
     [](const Case& c) {
       return AnyOf(c.w, [](int32_t code) { return code < -64 || code > 64; });
     }},
    {"where a code of x is above 127", "where no code of x is above 127",
     [](const Case& c) { return AnyOf(c.x, [](int32_t code) { return code > 127; }); }},
};

class ConditionTest : public ExamineTest, public testing::WithParamInterface<Condition> {};

TEST_P(ConditionTest, IsNamedWhereItHoldsWhereverTheAnswersDepart) {
  const Condition& condition = GetParam();
  if (condition.op == Op::kAvgPool) base_ = pool_;
  ASSERT_EQ(Validate(base_), "");
  AskOnly([this](const Case& c) { return !IsNear(c) && c.window != pool_.window; });
  const auto holds_not = [&](const Case& c) { return !condition.holds(c); };
  EXPECT_TRUE(Names(Ask({cause_}, Balanced(cause_, condition.holds), kPatient), cause_,
                    condition.where, 1));
  EXPECT_TRUE(
      Names(Ask({cause_}, Balanced(cause_, holds_not), kPatient), cause_, condition.where_not, 1));
}

INSTANTIATE_TEST_SUITE_P(All, ConditionTest, testing::ValuesIn(kConditions));

// One code of x or w, and the next one: the answer departs at the first alone.
struct Edge {
  DType x, w;
  bool of_w;
  int32_t departs, right;
  const char* where;
};

const char* const kNowhere = "in some cases";
const Edge kEdges[] = {
    {DType::kU8, DType::kS8, true, -65, -64, "where a weight lies beyond 64"},
    {DType::kU8, DType::kS8, true, -64, -65, "where no weight lies beyond 64"},
    {DType::kU8, DType::kS8, true, 65, 64, "where a weight lies beyond 64"},
    {DType::kU8, DType::kS8, true, 64, 65, "where no weight lies beyond 64"},
    {DType::kU8, DType::kS8, true, -1, 0, "where a weight is below 0"},
    {DType::kU8, DType::kS8, true, 0, -1, "where no weight is below 0"},
    {DType::kU8, DType::kS8, false, 128, 127, "where a code of x is above 127"},
    {DType::kU8, DType::kS8, false, 127, 128, "where no code of x is above 127"},
    {DType::kS8, DType::kS8, false, -1, 0, "where a code of x is below 0"},
    {DType::kS8, DType::kS8, false, 0, -1, "where no code of x is below 0"},
    // The ends of the types lie on neither side of such an edge.
    {DType::kU8, DType::kU8, true, 255, 254, kNowhere},
    {DType::kU8, DType::kS8, false, 255, 254, kNowhere},
    {DType::kS8, DType::kS8, false, -128, -127, kNowhere},
};

class EdgeTest : public ExamineTest, public testing::WithParamInterface<Edge> {};

TEST_P(EdgeTest, OfAConditionOnCodesIsExact) {
  const Edge& edge = GetParam();
  base_.M = base_.N = base_.K = 1;
  base_.x = Tensor(edge.x, {1, 1});
  base_.w = Tensor(edge.w, {1, 1});
  base_.x.SetInt(0, 5);
  base_.w.SetInt(0, 5);
  (edge.of_w ? base_.w : base_.x).SetInt(0, edge.departs);
  const auto departs = [&](const Case& c) {
    return (edge.of_w ? c.w : c.x).IntAt(0) == edge.departs;
  };
  AskOnly([&](const Case& c) {
    const Tensor &of = edge.of_w ? c.w : c.x, &before = edge.of_w ? base_.w : base_.x;
    const Tensor &other = edge.of_w ? c.x : c.w, &kept = edge.of_w ? base_.x : base_.w;
    return c.requant == base_.requant && of.shape() == before.shape() && other == kept &&
           (of.IntAt(0) == edge.departs || of.IntAt(0) == edge.right);
  });
  const Examination found = Ask({cause_}, Balanced(cause_, departs), kPatient);
  EXPECT_TRUE(Names(found, cause_, edge.where, 1)) << edge.departs << " " << edge.right;
}

INSTANTIATE_TEST_SUITE_P(All, EdgeTest, testing::ValuesIn(kEdges));

TEST_F(ExamineTest, NumbersOfFloatsAreNoCondition) {
  base_ = CaseOver(Op::kQuantize, Tensor::Of<float>({1, 3}, std::vector<float>{20, -150, 70}),
                   DType::kU8);
  AskOnly([this](const Case& c) { return c.x.shape() == base_.x.shape() && !c.per_channel; });
  const auto below = [](const Case& c) { return c.x.FloatAt(0) < c.x.FloatAt(2); };
  EXPECT_TRUE(Names(Ask({cause_}, Balanced(cause_, below), kPatient), cause_, "in some cases", 1));
}

TEST_F(ExamineTest, AConditionOnTypesTakesFourAnswersAndOneAgainst) {
  AskDrawnCasesOnly();
  const auto of_u8 = [](const Case& c) { return c.x.dtype() == DType::kU8; };
  EXPECT_TRUE(Names(Ask({cause_}, Answers(cause_, 4, 1, of_u8)), cause_, "where x is u8", 1));
  EXPECT_TRUE(Contradicts(Ask({cause_}, Answers(cause_, 3, 1, of_u8)), cause_));
}

TEST_F(ExamineTest, AConditionOnValuesTakesSixAnswersAndThreeAgainst) {
  AskOnly([this](const Case& c) {
    return IsNear(c) && c.x == base_.x && c.w == base_.w &&
           c.x_q.zero_point == base_.x_q.zero_point && c.w_q.zero_point == base_.w_q.zero_point &&
           c.out_q.zero_point == base_.out_q.zero_point;
  });
  const auto has_relu = [](const Case& c) { return c.relu; };
  const auto has_none = [](const Case& c) { return !c.relu; };
  const std::string where = "where there is a relu";
  EXPECT_TRUE(Names(Ask({cause_}, Answers(cause_, 6, 3, has_relu)), cause_, where, 1));
  EXPECT_TRUE(Contradicts(Ask({cause_}, Answers(cause_, 5, 3, has_relu)), cause_));
  EXPECT_TRUE(Contradicts(Ask({cause_}, Answers(cause_, 6, 2, has_relu)), cause_));
  // Other causes give the last digit by chance, and one value always fits.
  EXPECT_TRUE(Contradicts(Ask({rounding_}, Answers(rounding_, 9, 5, has_none)), rounding_));
  // A bias is a condition on values too. Only drawn cases differ in it.
  AskDrawnCasesOnly();
  const auto has_bias = [](const Case& c) { return c.bias || c.bias_i32; };
  EXPECT_TRUE(Contradicts(Ask({cause_}, Answers(cause_, 5, 15, has_bias)), cause_));
}

TEST_F(ExamineTest, TheLeastSizeThatTheCauseNeedsIsNamed) {
  AskNearCasesOnly();
  // The largest size that was asked and is too small belongs to what is known.
  const auto expect_least = [&](const char* name, int64_t Case::* size, int64_t least,
                                const std::string& most) {
    const Examination found =
        Ask({cause_}, Balanced(cause_, [=](const Case& c) { return c.*size >= least; }), kPatient);
    const std::string where =
        "where " + std::string(name) + " is " + std::to_string(least) + " or more" + most;
    EXPECT_TRUE(Names(found, cause_, where, 1)) << where;
  };
  expect_least("K", &Case::K, 16, ", and not where it is 8 or less");
  expect_least("N", &Case::N, 13, ", and not where it is 8 or less");
  expect_least("M", &Case::M, 7, "");
}

// Sizes for which the answers depart, and others for which they do not.
struct Sizes {
  int64_t Case::* size;
  std::set<int64_t> departs, right;
  const char* where;
};

class SizesTest : public ExamineTest, public testing::WithParamInterface<Sizes> {};

TEST_P(SizesTest, OfOneRemainderAreNamed) {
  const Sizes& of = GetParam();
  // Twelve answers of either kind, of as many as possible of these sizes.
  std::map<int64_t, size_t> answered;
  int64_t next = 0;
  AskOnly([&](const Case& c) {
    const int64_t is = c.*of.size;
    return IsNear(c) && (of.departs.contains(is) || of.right.contains(is));
  });
  const Script script = [&](const Case& c, size_t /*n*/) -> std::optional<Tensor> {
    if (next == 24) return End();
    const int64_t is = c.*of.size;
    const bool with = of.departs.contains(is);
    const Tensor departing = With(c, cause_), other = With(c, {});
    if (answered[is] >= 12 / (with ? of.departs : of.right).size() || departing == other ||
        with != (next % 2 == 0))
      return std::nullopt;
    ++answered[is];
    ++next;
    return with ? departing : other;
  };
  EXPECT_TRUE(Names(Ask({cause_}, script, kPatient), cause_, of.where, 1));
}

const Sizes kSizes[] = {
    {&Case::K, {8, 16, 24}, {9, 10}, "where K % 4 is 0"},
    {&Case::K, {8, 16, 24}, {9, 12}, "where K % 8 is 0"},
    {&Case::N, {5, 9, 13}, {6, 10}, "where N % 4 is 1"},
    {&Case::M, {3, 7, 11}, {4, 5}, "where M % 4 is 3"},
    // One size, on either side, has no remainder of its own, and two have the same by chance.
    {&Case::K, {8, 16}, {9, 10}, "in some cases"},
    {&Case::N, {5, 9}, {6, 10}, "in some cases"},
    {&Case::N, {5, 9}, {6, 7, 8, 10}, "where N % 4 is 1"},
    {&Case::K, {8}, {9, 10}, "in some cases"},
    {&Case::K, {8, 16}, {9}, "in some cases"},
    // However many sizes stand on the other side.
    {&Case::N, {5}, {6, 7, 8, 10}, "in some cases"},
    {&Case::K, {8, 16, 24}, {9}, "in some cases"},
    // Another remainder, or right answers for this one.
    {&Case::K, {8, 9}, {10, 12}, "in some cases"},
    {&Case::K, {8, 16}, {9, 24, 40}, "in some cases"},
};
INSTANTIATE_TEST_SUITE_P(All, SizesTest, testing::ValuesIn(kSizes));

// --- Several causes -----------------------------------------------------------------------------

TEST_F(ExamineTest, ACauseThatHoldsEverywhereStandsBeforeOneWithACondition) {
  AskOnly([this](const Case& c) { return IsNear(c) && c.x == base_.x && c.w == base_.w; });
  const auto has_relu = [](const Case& c) { return c.relu; };
  const Cause with_relu = Adds(1, CauseStage::kBias, has_relu);
  const Hypothesis everywhere{&with_relu};
  const Examination found = Ask({cause_, everywhere}, Balanced(cause_, has_relu), kPatient);
  ASSERT_EQ(found.borne_out.size(), 2u);
  EXPECT_EQ(found.borne_out[0].causes, everywhere);
  EXPECT_EQ(found.borne_out[0].rank, 0);
  EXPECT_EQ(found.borne_out[1].causes, cause_);
  EXPECT_EQ(found.borne_out[1].where, "where there is a relu");
  EXPECT_EQ(found.borne_out[1].rank, 1);
}

TEST_F(ExamineTest, ACauseThatExplainsAllStandsBeforeOneThatLeavesSomethingOver) {
  AskOneShapeOnly();
  const auto rarely = [this](const Case& c) { return c.x_q.scale != base_.x_q.scale; };
  const Cause first = InColumns(one_, [](int64_t column) { return column == 0; });
  Cause second = first;
  second.change = [&, change = first.change](Stages& s) {
    const bool both = rarely(s.c);
    change(s);
    s.only_at = [both](int64_t, int64_t column) { return column == 0 || (both && column == 1); };
    return true;
  };
  bool seen = false;
  const Script script = [&](const Case& c, size_t /*n*/) -> std::optional<Tensor> {
    if (rarely(c) && std::exchange(seen, true)) return std::nullopt;
    return With(c, {&second});
  };
  const Examination found = Ask({{&first}, {&second}}, script);
  ASSERT_TRUE(seen);
  ASSERT_EQ(found.borne_out.size(), 2u);
  EXPECT_EQ(found.borne_out[0].causes, Hypothesis{&second});
  EXPECT_EQ(found.borne_out[0].rank, 0);
  EXPECT_EQ(found.borne_out[1].causes, Hypothesis{&first});
  EXPECT_EQ(found.borne_out[1].rank, 2);
}

// A function of the codes that is true for one case of so many.
Where OneIn(int64_t count) {
  return [count](const Case& c) {
    int64_t sum = 0;
    for (int64_t i = 0; i < c.x.size(); ++i) sum += (i + 1) * c.x.IntAt(i);
    return sum % count == 1;
  };
}

TEST_F(ExamineTest, HalfOfTheQuestionsAreKeptForCasesThatTellCausesApart) {
  AskNearCasesOnly();
  const Where rare = OneIn(30);
  const Cause nearly = Adds(1, CauseStage::kBias, std::not_fn(rare));
  const Hypothesis truth{&nearly};
  Examination found = Ask({cause_, truth}, Always(truth), {.most_calls = 8});
  EXPECT_EQ(asked_.size(), 8u);
  EXPECT_LE(std::ranges::count_if(asked_, std::not_fn(rare)), 4);
  EXPECT_EQ(found.contradicted, Hypotheses{cause_});
  ASSERT_EQ(found.borne_out.size(), 1u);
  EXPECT_EQ(found.borne_out[0].causes, truth);
  // No case tells the same from the same.
  const Cause again = Adds(1);
  found = Ask({cause_, {&again}}, Always(cause_), {.most_calls = 6});
  EXPECT_EQ(asked_.size(), 3u);
  ASSERT_EQ(found.borne_out.size(), 2u);
  EXPECT_EQ(found.borne_out[0].causes, cause_) << "the one that was named first";
  EXPECT_EQ(found.borne_out[0].rank, found.borne_out[1].rank);
  // One cause alone has all questions.
  EXPECT_TRUE(Names(Ask({cause_}, Always(cause_), {.most_calls = 3}), cause_));
  EXPECT_EQ(asked_.size(), 3u);
}

TEST_F(ExamineTest, WhatIsContradictedIsNotAskedAboutAnyMore) {
  AskOneShapeOnly();
  const Cause first = InColumns(one_, [](int64_t column) { return column == 0; });
  const Cause second = InColumns(rounds_, [](int64_t column) { return column == 1; });
  std::vector<Case> seen;
  const Cause watched = Watched(first, seen);
  const Examination found = Ask({{&second}, {&watched}}, Always({&first}));
  EXPECT_LE(seen.size(), 600u);
  EXPECT_EQ(asked_.size(), 6u);
  EXPECT_EQ(found.contradicted, Hypotheses{{&second}});
  ASSERT_EQ(found.borne_out.size(), 1u);
  EXPECT_EQ(found.borne_out[0].causes, Hypothesis{&watched});
}

// --- How long it goes on ------------------------------------------------------------------------

TEST_F(ExamineTest, ACauseThatActsNowhereIsSoonDone) {
  std::vector<Case> seen;
  const Cause nothing = Watched(Adds(0), seen);
  EXPECT_TRUE(LeavesOpen(Ask({{&nothing}}, Crash), {&nothing}));
  EXPECT_TRUE(asked_.empty());
  EXPECT_LE(seen.size(), 2000u);
  EXPECT_GE(seen.size(), 1500u) << "a few edits give no valid case";
}

TEST_F(ExamineTest, ASettledCauseIsLookedAtOn600Cases) {
  std::vector<Case> seen;
  const Cause watched = Watched(one_, seen);
  EXPECT_TRUE(Names(Ask({{&watched}}, Always(cause_)), {&watched}));
  EXPECT_LE(seen.size(), 600u);
  EXPECT_GE(seen.size(), 400u);
  // So are two that predict the same.
  seen.clear();
  EXPECT_EQ(Ask({cause_, {&watched}}, Always(cause_)).borne_out.size(), 2u);
  EXPECT_LE(seen.size(), 600u);
  EXPECT_GE(seen.size(), 400u);
}

TEST_F(ExamineTest, CausesThatDifferNowAndThenAreToldApartLate) {
  AskNearCasesOnly();
  std::vector<Case> seen;
  const Where rare = OneIn(25);
  const Cause nearly = Watched(Adds(1, CauseStage::kBias, std::not_fn(rare)), seen);
  const Hypothesis truth{&nearly};
  const Script script = [&](const Case& c, size_t /*n*/) -> std::optional<Tensor> {
    if (rare(c) && seen.size() < 480) return std::nullopt;
    return With(c, rare(c) ? Hypothesis{} : cause_);
  };
  const Examination found = Ask({cause_, truth}, script);
  ASSERT_FALSE(found.borne_out.empty());
  EXPECT_EQ(found.borne_out.front().causes, truth);
  for (size_t i = 1; i < found.borne_out.size(); ++i) EXPECT_NE(found.borne_out[i].where, "");
}

TEST_F(ExamineTest, CausesThatAreRareAreLookedForLonger) {
  AskNearCasesOnly();
  const Cause rare = Adds(1, CauseStage::kBias, OneIn(150));
  const Examination found = Ask({{&rare}}, Always({&rare}));
  EXPECT_TRUE(Names(found, {&rare})) << found.asked;
}

TEST_F(ExamineTest, NothingIsLookedAtOnceAllIsContradicted) {
  int64_t looked_at = 0, when_contradicted = 0;
  AskOneShapeOnly();
  const auto of_one_shape = subject_.cannot_run;
  subject_.cannot_run = [&](const Case& c) {
    ++looked_at;
    return of_one_shape(c);
  };
  const Script right = [&](const Case& c, size_t /*n*/) {
    when_contradicted = looked_at;
    return exact::Evaluate(c);
  };
  EXPECT_TRUE(Contradicts(Ask({rounding_}, right), rounding_));
  EXPECT_EQ(looked_at, when_contradicted);
}

TEST_F(ExamineTest, QuestionsAndWorkAreBounded) {
  std::vector<Case> seen;
  const Cause watched = Watched(one_, seen);
  EXPECT_EQ(Ask({{&watched}}, Crash, {.most_calls = 7}).asked, 7);
  EXPECT_EQ(asked_.size(), 7u);
  // Each case is computed without the causes and with each of them.
  const auto work = [&](size_t causes) {
    int64_t sum = 0;
    for (const Case& c : seen)
      sum += (static_cast<int64_t>(causes) + 1) * (c.M * c.N * c.K + c.x.size() + c.w.size());
    return sum;
  };
  AskNearCasesOnly();
  const Cause other = Adds(2);
  for (const Hypotheses& causes : {Hypotheses{{&watched}}, Hypotheses{{&watched}, {&other}}}) {
    seen.clear();
    Ask(causes, Crash, {.most_calls = 5});
    const int64_t all = work(causes.size());
    const size_t count = seen.size();
    for (const auto& [most, expected] : {std::pair{all, count}, {all + 1, count + 1}}) {
      seen.clear();
      Ask(causes, Crash, {.most_calls = 6, .most_work = most});
      EXPECT_EQ(seen.size(), expected);
    }
  }
}

TEST_F(ExamineTest, DrawnCasesAreSmall) {
  std::vector<Case> seen;
  const Cause watched = Watched(Adds(0), seen);
  Ask({{&watched}}, Crash);
  int drawn = 0;
  for (const Case& c : seen) {
    if (IsNear(c)) continue;
    ++drawn;
    EXPECT_LE(c.x.size() + c.w.size(), 4096);
    EXPECT_LE(c.M * c.N * c.K, 16384);
  }
  EXPECT_GT(drawn, 100);
  EXPECT_LT(drawn, 550) << "three of four are near ones";
}

TEST_F(ExamineTest, HalfOfTheDrawnCasesAreTiesWhereACauseIsAboutRounding) {
  const auto tied = [&](const Cause& cause) {
    std::vector<Case> seen;
    const Cause watched = Watched(cause, seen);
    Ask({{&watched}}, Crash);
    const Cause& ties = CauseNamed("half away from zero");
    int drawn = 0, with_tie = 0;
    for (const Case& c : seen) {
      if (IsNear(c)) continue;
      ++drawn;
      with_tie += With(c, {&ties}) != With(c, {}) ? 1 : 0;
    }
    return static_cast<double>(with_tie) / drawn;
  };
  const double of_sums = tied(Adds(0)), of_rounding = tied(Adds(0, CauseStage::kRound));
  EXPECT_GT(of_rounding, 0.12);
  EXPECT_LT(of_rounding, 0.24) << "the other half is drawn as for all causes";
  EXPECT_LT(of_sums, 0.06);
}

// --- Which questions the subject is asked -------------------------------------------------------

TEST_F(ExamineTest, NothingRememberedAnswersAndTheEnvironmentOfTheFailureStays) {
  context_.align_offset = 8;
  context_.calls = 3;
  EXPECT_TRUE(Names(Ask({cause_}, Always(cause_)), cause_));
  for (const RunContext& context : contexts_) {
    EXPECT_NE(context.poison, context_.poison);
    RunContext same = context;
    same.poison = context_.poison;
    EXPECT_EQ(same, context_);
  }
}

TEST_F(ExamineTest, AnAnswerOfAnotherShapeSaysNothing) {
  const Script one_code = [](const Case&, size_t) { return Tensor(DType::kU8, {1, 1}); };
  EXPECT_TRUE(LeavesOpen(Ask({cause_}, one_code), cause_));
}

TEST_F(ExamineTest, OfAPromisedConventionOnlyItsCasesAreAsked) {
  const Convention& model = *FindConvention("onnxruntime@avx2");  // has no relu, and near cases do
  subject_.set_contract({model.name});
  base_.requant = Requant::kExact;
  base_.x_q.scale = {0x1p-6f};
  base_.out_q = {{16}, {128}};
  ASSERT_EQ(model.cannot_run(base_), "");
  const Script script = [&](const Case& c, size_t /*n*/) {
    EXPECT_EQ(model.cannot_run(c), "");
    return Counterfactual(c, cause_, &model).value_or(RightOutput(c, &model));
  };
  EXPECT_TRUE(Names(Ask({cause_}, script), cause_));
  // What the convention makes of a case without its relu says nothing of the case.
  const Cause no_relu{CauseStage::kClamp, FindingKind::kUnknown, "", "", Everywhere, [](Stages& s) {
                        return std::exchange(s.c.relu, false);
                      }};
  EXPECT_TRUE(LeavesOpen(Ask({{&no_relu}}, script), {&no_relu}));
  EXPECT_TRUE(asked_.empty());
}

}  // namespace
}  // namespace qualm::triage
