// SPDX-License-Identifier: Apache-2.0
#include "campaign/investigate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/registry.h"
#include "campaign/state.h"
#include "core/io/case_json.h"
#include "core/io/text_file.h"
#include "core/own_subject.h"
#include "core/status.h"
#include "core/text_test_util.h"
#include "fuzz/collector.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "properties/test_subject.h"

namespace qualm::campaign {
namespace {

namespace fs = std::filesystem;

Case Ones(int64_t rows) {
  Case c;
  c.op = Op::kLinear;
  c.M = rows;
  c.N = c.K = 1;
  c.x = Tensor(DType::kU8, {rows, 1});
  c.w = Tensor(DType::kS8, {1, 1});
  for (int64_t m = 0; m < rows; ++m) c.x.SetInt(m, 1);
  c.w.SetInt(0, 1);
  return c;
}

// A subject that is wrong by one where `is_wrong` says so. Each instance has an `is_wrong` of its
// own.
template <class MakeIsWrong>
std::string AddSubject(const std::string& name, MakeIsWrong make_is_wrong) {
  return AddOwnSubject([=] {
    return std::make_unique<TestSubject>(
        [is_wrong = make_is_wrong()](const Case& c, const RunContext&) mutable {
          Tensor y = exact::Evaluate(c);
          if (is_wrong(c) && !y.empty()) y.bytes()[0] ^= 1;  // by one, whatever the type
          return TestSubject::Good(std::move(y));
        },
        name);
  });
}

constexpr auto kAlways = [] { return [](const Case&) { return true; }; };
constexpr auto kNever = [] { return [](const Case&) { return false; }; };

// Cases of so many rows, asked before the one that fails.
std::string Asked(const std::vector<int64_t>& rows) {
  std::string before;
  for (const int64_t each : rows) before += CaseToJsonLine(Ones(each)) + "\n";
  return before;
}
// Codes whose doubles do not fit the output.
Case Large(int64_t rows) {
  Case c = Ones(rows);
  for (int64_t m = 0; m < rows; ++m) c.x.SetInt(m, 200 + static_cast<int32_t>(m));
  c.w.SetInt(0, 2);
  return c;
}
FaultRow RowOf(const std::string& subject, FindingKind kind = FaultRow{}.kind) {
  FaultRow row;
  row.kind = kind;
  row.subject = row.identity = subject;
  row.properties = {"matches_exact"};
  return row;
}

class InvestigateTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    state_ = std::make_unique<State>("--state", folder_);
  }
  void TearDown() override {
    state_.reset();
    fs::remove_all(folder_);
  }

  // Hands a failure of matches_exact over, as a fuzz target does, and looks into it.
  void LookInto(const std::string& subject, const std::string& before = "",
                FindingKind kind = FaultRow{}.kind, Case failing = Ones(4)) const {
    failing.property = "linear.matches_exact";
    WriteFolder((state_->root() / fuzz::kInbox / "it").string(),
                {{"case.json", CaseToJson(failing)},
                 {"fault.json", FaultRowToJson(RowOf(subject, kind))},
                 {"before.cases", before}});
    Investigate(*state_, "it", "");
    EXPECT_TRUE(state_->Inbox().empty());
  }
  // The one fault that there is.
  Fault Only() const {
    const std::vector<Fault> faults = state_->Faults();
    EXPECT_EQ(faults.size(), 1u);
    return faults.empty() ? Fault() : faults[0];
  }
  // The same after its case was made smaller.
  Fault Smaller(int64_t calls = 10, const std::string& contract = "") const {
    Minimize(*state_, state_->Rows().at(0).fingerprint(), contract, calls);
    return Only();
  }
  // A fault of that row, which fails again each time.
  void Take(FaultRow row, const Case& found) const {
    Fault fault;
    row.replayed = Replayed::kReproducible;
    fault.row = row;
    fault.found = found;
    fault.found.property = "linear.matches_exact";
    state_->Take({fault});
  }
  void Anew() {
    TearDown();
    SetUp();
  }

  const fs::path folder_ =
      fs::path(testing::TempDir()) / ("qualm-investigate-" + std::to_string(::getpid()));
  std::unique_ptr<State> state_;
};

TEST_F(InvestigateTest, AFaultThatFailsAgainIsReproducibleAndMadeSmaller) {
  LookInto(AddSubject("off-by-one", kAlways));
  EXPECT_EQ(Only().row.replayed, Replayed::kReproducible);
  EXPECT_FALSE(Only().row.minimized);
  ASSERT_TRUE(Only().found.observed.has_value());
  const Fault small = Smaller();
  EXPECT_TRUE(small.row.minimized);
  ASSERT_TRUE(small.minimized.has_value());
  EXPECT_EQ(small.minimized->M, 1);
}

TEST_F(InvestigateTest, AFaultThatComesAndGoesIsFlaky) {
  static int calls = 0;
  LookInto(
      AddSubject("every-other-call", [] { return [](const Case&) { return ++calls % 2 == 1; }; }));
  EXPECT_EQ(Only().row.replayed, Replayed::kFlaky);
  EXPECT_EQ(Only().row.kind, FindingKind::kNondeterminism);
}

TEST_F(InvestigateTest, AFaultThatNeedsTheCasesBeforeItIsStateful) {
  const std::string name = AddSubject("after-two-rows", [] {
    return [before = int64_t{0}](const Case& c) mutable { return std::exchange(before, c.M) == 2; };
  });
  LookInto(name, Asked({3, 2}));
  const Fault fault = Only();
  EXPECT_EQ(fault.row.replayed, Replayed::kStateful);
  EXPECT_FALSE(fault.before.empty());
  EXPECT_FALSE(fault.row.minimized);
  ASSERT_TRUE(fault.found.observed.has_value());
  EXPECT_NE(fault.found.observed->y, exact::Evaluate(fault.found))
      << "the answer after the earlier cases";
}

// The subject becomes wrong on two rows and more after a case of three rows or more, whatever comes
// in between.
TEST_F(InvestigateTest, AStatefulFaultKeepsTheShortestHistory) {
  const std::string name = AddSubject("remembers-three-rows", [] {
    return [seen = false](const Case& c) mutable {
      const bool before = seen;
      seen |= c.M >= 3;
      return before && c.M >= 2;
    };
  });
  LookInto(name, Asked({1, 2, 5, 1, 2, 7, 1}));
  ASSERT_EQ(Only().row.replayed, Replayed::kStateful);
  const Fault fault = Smaller(20);
  EXPECT_TRUE(fault.row.minimized);
  EXPECT_EQ(fault.row.replayed, Replayed::kStateful);
  ASSERT_EQ(std::ranges::count(fault.before, '\n'), 1);
  EXPECT_EQ(ParseCase(fault.before, "before").M, 3);
  ASSERT_TRUE(fault.minimized.has_value());
  EXPECT_EQ(fault.minimized->M, 2);
  ASSERT_TRUE(fault.minimized->observed.has_value());
  EXPECT_NE(fault.minimized->observed->y, fault.minimized->expected);
  EXPECT_EQ(fault.minimized->expected, exact::Evaluate(*fault.minimized));
  EXPECT_EQ(fault.minimized->property, "linear.matches_exact");
  EXPECT_TRUE(Has(fault.explanation, "after these cases"));
  EXPECT_TRUE(Has(fault.explanation, "\n  " + qualm::Describe(ParseCase(fault.before, "before"))));
}

TEST_F(InvestigateTest, TheSameFaultAgainIsNoOtherRowAndOnlyTheNamedOneIsMadeSmaller) {
  const std::string name = AddSubject("off-by-one-again", kAlways);
  LookInto(name);
  const Fault found = Only();
  Minimize(*state_, "no such fault", "", 10);
  EXPECT_EQ(Only(), found);
  const Fault once = Smaller();
  LookInto(name);
  EXPECT_EQ(Only(), once);
}

// The first failure of a fault may fit one cause too many. A smaller case shows that, but only if
// triage does not take the cause in the row for granted.
TEST_F(InvestigateTest, TheCauseOfARowProvesNothingForTheRow) {
  RegisterAllSubjects();
  FaultRow row = RowOf("faulty:truncating-narrow", FindingKind::kClamp);
  row.cause = "float64 multiplier + truncating narrow";
  Take(row, Large(4));
  EXPECT_EQ(Smaller().row.cause, "truncating narrow");
}

// A row may have several claims. Its case is made smaller by the claim that it fails.
TEST_F(InvestigateTest, ACaseIsMadeSmallerByTheClaimThatItFails) {
  FaultRow row = RowOf(AddSubject("off-by-one-of-two-claims", kAlways));
  row.properties = {"answer_independent_of_history", "matches_exact"};
  Take(row, Ones(4));
  const Fault fault = Smaller();
  ASSERT_TRUE(fault.minimized.has_value());
  EXPECT_EQ(fault.minimized->M, 1);
  EXPECT_EQ(fault.row.properties.size(), 2u);
}

TEST_F(InvestigateTest, WhatDoesNotFailAgainHasNoSmallerCase) {
  Take(RowOf(AddSubject("right-again", kNever)), Ones(4));
  const Fault fault = Smaller();
  EXPECT_FALSE(fault.minimized.has_value());
  EXPECT_TRUE(fault.row.minimized) << "it is not tried again";
}

// What fails without the earlier cases too is another fault: it must not become the smallest case.
TEST_F(InvestigateTest, AStatefulFaultDoesNotShrinkIntoAnother) {
  const std::string name = AddSubject("wrong-on-one-row-too", [] {
    return [seen = false](const Case& c) mutable {
      const bool before = seen;
      seen |= c.M >= 3;
      return c.M == 1 || (before && c.M >= 2);
    };
  });
  LookInto(name, Asked({3}));
  ASSERT_EQ(Only().row.replayed, Replayed::kStateful);
  const Fault fault = Smaller(20);
  ASSERT_TRUE(fault.minimized.has_value());
  EXPECT_EQ(fault.minimized->M, 2);
}

// The subject fails after a case of two rows once, by chance. That case is not the history that the
// fault needs.
TEST_F(InvestigateTest, AStatefulFaultKeepsACaseAfterWhichItFailsTwice) {
  static int chance = 0;
  const std::string name = AddSubject("after-three-rows-and-once-after-two", [] {
    return [two = false, three = false](const Case& c) mutable {
      const bool after_three = three, after_two = two && !three;
      two |= c.M == 2;
      three |= c.M == 3;
      return c.M == 4 && (after_three || (after_two && ++chance == 1));
    };
  });
  LookInto(name, Asked({2, 3}));
  ASSERT_EQ(Only().row.replayed, Replayed::kStateful);
  EXPECT_EQ(ParseCase(Smaller(20).before, "before").M, 3);
  EXPECT_GE(chance, 1) << "it was tried";
}

TEST_F(InvestigateTest, ARowHasItsKindItsCauseAndItsExplanation) {
  RegisterAllSubjects();
  LookInto("faulty:truncating-narrow", "", FindingKind::kUnknown, Large(4));
  const Fault fault = Only();
  EXPECT_EQ(fault.row.kind, FindingKind::kClamp);
  EXPECT_NE(fault.row.cause, "");
  EXPECT_NE(fault.row.explanation, "");
  EXPECT_TRUE(Has(fault.explanation, "linear.matches_exact"));
}

// A subject that answers two cases as if it narrowed without clamping, and is right elsewhere. No
// further answer confirms a cause, so triage names one only if another row already has it.
class NarrowTwice : public InvestigateTest {
 protected:
  NarrowTwice() { RegisterAllSubjects(); }

  static Tensor Answer(const Case& c) {
    Tensor y = exact::Evaluate(c);
    for (const int64_t rows : {3, 6}) {
      if (!(ProblemOf(c) == Large(rows))) continue;
      for (int64_t m = 0; m < rows; ++m) y.SetInt(m, 2 * c.x.IntAt(m) - 256);
    }
    return y;
  }
  // The row that the failure of six rows is in.
  FaultRow Known() const {
    FaultRow row = RowOf(subject_, FindingKind::kClamp);
    row.cause = "truncating narrow";
    row.replayed = Replayed::kReproducible;
    return row;
  }
  // Looks into the failure of three rows beside a row that is there already.
  std::vector<Fault> Beside(const FaultRow& row) {
    Anew();
    Fault known;
    known.row = row;
    known.found =
        row.op == Op::kLinear ? Large(6) : CaseOver(row.op, Tensor(DType::kU8, {1, 1}), DType::kU8);
    known.found.observed = Observed{row.subject, Answer(known.found)};
    state_->Take({known});
    LookInto(subject_, "", FindingKind::kUnknown, Large(3));
    return state_->Faults();
  }
  // The row of the failure of three rows if its subject and operation have no other row.
  Fault Alone() {
    FaultRow of_another = Known();
    of_another.identity = "somebody else's";
    for (const Fault& fault : Beside(of_another)) {
      if (fault.row.identity == subject_) return fault;
    }
    ADD_FAILURE() << "no row";
    return {};
  }

  const std::string subject_ = AddOwnSubject([] {
    return std::make_unique<TestSubject>(
        [](const Case& c, const RunContext&) { return TestSubject::Good(Answer(c)); },
        "narrows-twice");
  });
};

// The row must show the smaller of the two failures.
TEST_F(NarrowTwice, AFailureThatTheCauseOfARowExplainsIsTheBetterEvidenceWhereItIsSmaller) {
  const std::vector<Fault> faults = Beside(Known());
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].row.cause, "truncating narrow");
  EXPECT_EQ(faults[0].found.M, 3);
}

// Two libraries that share a fault have a row each, and so have two operations of one library. The
// cause in one row proves nothing for the other row.
TEST_F(NarrowTwice, TheCauseOfAnotherSubjectOrOperationExplainsNothing) {
  EXPECT_EQ(Alone().row.cause, "");
  FaultRow of_rescale = Known();
  of_rescale.op = Op::kRescale;
  const std::vector<Fault> faults = Beside(of_rescale);
  ASSERT_EQ(faults.size(), 2u);
  for (const Fault& fault : faults)
    EXPECT_EQ(fault.row.cause, fault.row.op == Op::kLinear ? "" : "truncating narrow");
}

// The arithmetic of a library departs from exact in several ways. The row keeps the kind of the
// departure that it was found by, whatever kind the next failure shows.
TEST_F(InvestigateTest, AFailureThatALibrarysArithmeticExplainsKeepsTheKindOfItsRow) {
  const std::string library = "onednn3.10@avx2";
  const std::string subject = AddOwnSubject([&] {
    return std::make_unique<TestSubject>(
        [&](const Case& c, const RunContext&) {
          return TestSubject::Good(FindConvention(library)->run(c).y);
        },
        "computes-as-onednn");
  });
  Case pairs = Ones(4);
  pairs.K = 2;
  pairs.x = Tensor(DType::kU8, {4, 2});
  pairs.w = Tensor(DType::kS8, {1, 2});
  for (int64_t i = 0; i < 8; ++i) pairs.x.SetInt(i, 255);
  for (int64_t k = 0; k < 2; ++k) pairs.w.SetInt(k, 127);
  pairs.out_q.scale = {512};
  FaultRow known = RowOf(subject, FindingKind::kPairSaturation);
  known.cause = library;
  Take(known, pairs);
  pairs.M = 1;
  pairs.x = Tensor(DType::kU8, {1, 2});
  for (int64_t k = 0; k < 2; ++k) pairs.x.SetInt(k, 254);
  LookInto(subject, "", FindingKind::kUnknown, pairs);
  EXPECT_EQ(Only().found.M, 1) << "the smaller case is shown";
  EXPECT_EQ(Only().row.kind, FindingKind::kPairSaturation);
  EXPECT_NE(Only().row.explanation.find("in pairs"), std::string::npos);
}

// A row without a cause must not change the search: the explanation, with its number of asked
// cases, is that of a failure alone.
TEST_F(NarrowTwice, ARowWithoutACauseExplainsNothing) {
  const Fault alone = Alone();
  FaultRow crash = Known();
  crash.kind = FindingKind::kCrash;
  crash.cause = "";
  const std::vector<Fault> faults = Beside(crash);
  ASSERT_EQ(faults.size(), 2u);
  for (const Fault& fault : faults) {
    if (fault.found.M == 3) {
      EXPECT_EQ(fault.explanation, alone.explanation);
    }
  }
}

// What crashed and now gives wrong numbers has two faults. The crash is the rare one, and would be
// lost under the name of the other.
TEST_F(InvestigateTest, ACrashThatIsAWrongAnswerNowHasNotFailedLikeThisAgain) {
  LookInto(AddSubject("crashed-once", kAlways), "", FindingKind::kCrash);
  EXPECT_TRUE(Has(Only().row.explanation, "did not fail like this when it was run again"));
  EXPECT_EQ(Only().row.cause, "");
}

// The smallest case says what would be right: of a promised convention what the convention gives,
// of the exact meaning the exact output, whatever the subject promises.
TEST_F(InvestigateTest, TheSmallestStatefulCaseSaysWhatIsRightByItsClaim) {
  RegisterAllSubjects();
  const Convention& model = *FindConvention("numpy@float64+w_zp_from_x");
  const auto differ = [&model](const Case& c) { return model.run(c).y != exact::Evaluate(c); };
  // After a case of three rows the subject changes from the convention to exact, or from exact to
  // the convention.
  const auto changes = [&model](bool to_exact, const char* name) {
    return AddOwnSubject([=, &model] {
      return std::make_unique<TestSubject>(
          [=, &model, seen = false](const Case& c, const RunContext&) mutable {
            const bool before = std::exchange(seen, seen || c.M == 3);
            return TestSubject::Good(before == to_exact ? exact::Evaluate(c) : model.run(c).y);
          },
          name);
    });
  };
  const std::string forgets = changes(true, "forgets-its-convention");
  const std::string learns = changes(false, "learns-a-convention");
  for (const bool of_model : {true, false}) {
    Anew();
    Fault fault;
    fault.row = RowOf(of_model ? forgets : learns);
    fault.row.properties = {of_model ? "matches_model" : "matches_exact"};
    fault.row.replayed = Replayed::kStateful;
    fault.found = Ones(2);
    fault.found.property = "linear." + *fault.row.properties.begin();
    for (const int64_t m : {0, 1}) fault.found.x.SetInt(m, 20);
    fault.found.w_q.zero_point = {-1};
    ASSERT_EQ(model.cannot_run(fault.found), "");
    ASSERT_TRUE(differ(fault.found));
    fault.before = Asked({3});
    state_->Take({fault});
    const Fault after = Smaller(20, "model:" + model.name);
    ASSERT_TRUE(after.minimized.has_value());
    const Case small = *after.minimized;
    ASSERT_TRUE(small.expected && small.observed);
    EXPECT_TRUE(differ(ProblemOf(small)));
    EXPECT_EQ(*small.expected,
              of_model ? model.run(ProblemOf(small)).y : exact::Evaluate(ProblemOf(small)));
    EXPECT_NE(*small.expected, small.observed->y);
  }
}

// Of a subject that is declared to depart, only other faults are rows.
TEST_F(InvestigateTest, WhatIsDeclaredIsNoRow) {
  const auto declare = [](const std::string& subject, const char* claim, FindingKind kind) {
    SubjectRegistry::Get().AddExpectedDivergence(
        {subject, "linear", claim, std::string(Name(kind)), "upstream says so"});
  };
  const auto rows_of = [&](const std::string& subject, const std::string& before,
                           FindingKind kind = FaultRow{}.kind) {
    Anew();
    LookInto(subject, before, kind);
    return state_->Rows().size();
  };
  const std::string three = Asked({3});
  const auto after_three = [] {
    return [seen = false](const Case& c) mutable { return std::exchange(seen, c.M == 3); };
  };
  const std::string wrong = AddSubject("declared-wrong", kAlways);
  EXPECT_EQ(rows_of(wrong, ""), 1u);
  declare(wrong, "matches_exact", FindingKind::kUnknown);
  EXPECT_EQ(rows_of(wrong, ""), 0u);

  // Declared is that earlier cases change the answer. A failure that the same earlier cases always
  // cause is declared; a random failure is not.
  for (const char* claim : {"matches_exact", "answer_independent_of_history"}) {
    const std::string remembers = AddSubject(std::string("remembers-") + claim, after_three);
    EXPECT_EQ(rows_of(remembers, three), 1u);
    declare(remembers, claim, FindingKind::kNondeterminism);
    EXPECT_EQ(rows_of(remembers, three), 0u) << claim;
    const std::string random = AddSubject(std::string("random-") + claim, kNever);
    declare(random, claim, FindingKind::kNondeterminism);
    EXPECT_EQ(rows_of(random, three), 1u) << claim;
  }
  const std::string crashes = AddSubject("declared-crash", kNever);
  EXPECT_EQ(rows_of(crashes, "", FindingKind::kCrash), 1u);
  declare(crashes, "matches_exact", FindingKind::kCrash);
  EXPECT_EQ(rows_of(crashes, "", FindingKind::kCrash), 0u) << "however often it happens";
  // The declaration covers that the subject remembers earlier cases. It does not cover that the
  // subject is wrong without them.
  const std::string both = AddSubject("remembers-and-wrong", kAlways);
  declare(both, "answer_independent_of_history", FindingKind::kNondeterminism);
  EXPECT_EQ(rows_of(both, ""), 1u);
}

// Only an answer is something that was observed.
TEST_F(InvestigateTest, ACrashIsNoAnswer) {
  const std::string name = AddOwnSubject([] {
    return std::make_unique<TestSubject>(
        [](const Case& c, const RunContext&) {
          Outcome outcome = TestSubject::Good(exact::Evaluate(c));
          outcome.status = RunStatus::kCrashed;
          outcome.detail = "SIGSEGV";
          return outcome;
        },
        "crashes");
  });
  LookInto(name, "", FindingKind::kCrash);
  EXPECT_FALSE(Only().found.observed.has_value());
}

// A campaign of another version may have claims that this one lacks.
TEST_F(InvestigateTest, AClaimThatNobodyKnowsIsSaid) {
  RegisterAllSubjects();
  FaultRow row = RowOf("native");
  row.properties = {"is_pretty"};
  HandOverDeath(*state_, row, Ones(1));
  EXPECT_TRUE(Has(Refusal([&] { Investigate(*state_, state_->Inbox().front(), ""); }),
                  "fault.json: properties: is no list of claims"));
}

// The new instances of a replay: two without the earlier cases, then, if neither failed, two after
// them. Only what fails in each of two is reproducible or stateful.
TEST_F(InvestigateTest, EachOfTwoNewInstancesHasToFail) {
  static int instances = 0;
  static std::set<int> wrong;
  const std::string name = AddSubject("some-instances", [] {
    return [is_wrong = wrong.contains(++instances)](const Case&) { return is_wrong; };
  });
  const std::string before = Asked({3});
  struct Replay {
    std::set<int> wrong;
    std::string before;
    Replayed replayed;
  };
  for (const Replay& replay :
       {Replay{{1}, before, Replayed::kFlaky}, Replay{{2}, before, Replayed::kFlaky},
        Replay{{3}, before, Replayed::kFlaky}, Replay{{4}, before, Replayed::kFlaky},
        Replay{{1, 3, 4}, before, Replayed::kFlaky}, Replay{{2, 3, 4}, before, Replayed::kFlaky},
        Replay{{3, 4}, "", Replayed::kFlaky}, Replay{{3, 4}, before, Replayed::kStateful},
        Replay{{1, 2}, before, Replayed::kReproducible}}) {
    SCOPED_TRACE(testing::PrintToString(replay.wrong) + replay.before);
    Anew();
    instances = 0;
    wrong = replay.wrong;
    LookInto(name, replay.before);
    const Fault fault = Only();
    EXPECT_EQ(fault.row.replayed, replay.replayed);
    EXPECT_EQ(fault.before.empty(), replay.replayed != Replayed::kStateful)
        << "cases that it does not need";
    EXPECT_EQ(fault.row.minimized, replay.replayed == Replayed::kFlaky) << "nothing to hold on to";
    if (replay.replayed != Replayed::kReproducible) {
      EXPECT_EQ(fault.row.kind, FindingKind::kNondeterminism);
    }
  }
}

TEST_F(InvestigateTest, ACrashIsACrashHoweverOftenItHappens) {
  for (const FindingKind kind : {FindingKind::kCrash, FindingKind::kHang}) {
    Anew();
    LookInto(AddSubject("never-again", kNever), "", kind);
    EXPECT_EQ(Only().row.kind, kind);
    EXPECT_EQ(Only().row.replayed, Replayed::kFlaky);
  }
}

TEST_F(InvestigateTest, AFailureThatEndsItsProcessIsARow) {
  HandOverDeath(*state_, RowOf("native", FindingKind::kCrash), Ones(1));
  TakeUnexplained(*state_, state_->Inbox().front(), FindingKind::kCrash, "SIGSEGV");
  EXPECT_TRUE(state_->Inbox().empty());
  EXPECT_EQ(Only().row.replayed, Replayed::kReproducible);
  EXPECT_TRUE(Has(Only().explanation, "SIGSEGV"));
  EXPECT_TRUE(Only().row.minimized) << "there is nothing to make smaller";
  // A machine that was busy may let a case hang that does not: it need not happen again.
  Anew();
  HandOverDeath(*state_, RowOf("native"), Ones(1));
  TakeUnexplained(*state_, state_->Inbox().front(), FindingKind::kHang, "no end");
  EXPECT_EQ(Only().row.kind, FindingKind::kHang);
  EXPECT_EQ(Only().row.replayed, Replayed::kFlaky);
}

}  // namespace
}  // namespace qualm::campaign
