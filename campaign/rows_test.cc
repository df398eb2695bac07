// SPDX-License-Identifier: Apache-2.0
#include "campaign/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/io/case_json.h"
#include "core/rng.h"
#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"
#include "triage/causes.h"
#include "triage/cover.h"

namespace qualm::campaign {
namespace {

// A drawn linear case with the answer of a subject that has these causes. Each cause changes the
// answer.
Case Spoiled(const std::string& names, uint64_t seed) {
  const triage::Hypothesis causes = triage::CausesNamed(names, Op::kLinear);
  for (uint64_t i = 0;; ++i) {
    Case c = gen::Draw(Op::kLinear, MixSeed(seed, i));
    auto y = triage::Counterfactual(c, causes);
    if (!y || *y == exact::Evaluate(c)) continue;
    const auto is_alone = [&](const triage::Cause* cause) {
      return causes.size() > 1 && triage::Counterfactual(c, *cause) == *y;
    };
    if (std::ranges::any_of(causes, is_alone)) continue;
    c.observed = Observed{"test", *std::move(y)};
    return c;
  }
}

Fault Failure(const std::string& cause, uint64_t seed, const std::string& claim = "matches_exact") {
  Fault fault;
  fault.row.subject = fault.row.identity = "test";
  fault.row.op = Op::kLinear;
  fault.row.kind = triage::CausesNamed(cause, Op::kLinear).front()->kind;
  fault.row.cause = cause;
  fault.row.properties = {claim};
  fault.row.replayed = Replayed::kReproducible;
  fault.row.found = "2026-11-2" + std::to_string(seed % 10) + "T00:00:00Z";
  fault.found = Spoiled(cause, seed);
  fault.explanation = cause + " " + std::to_string(seed) + "\n";
  return fault;
}

TEST(Rows, ManyClaimsOfOneCauseAreOneRow) {
  const std::vector<Fault> rows = OnePerFault({Failure("bias ignored", 1, "matches_exact"),
                                               Failure("bias ignored", 2, "additive_in_x"),
                                               Failure("bias ignored", 3, "clamp")});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].row.properties,
            (std::set<std::string>{"additive_in_x", "clamp", "matches_exact"}));
  EXPECT_EQ(rows[0].row.found, "2026-11-21T00:00:00Z");
}

// A row takes the lesser name and the earlier date of its failures, whichever failure is its
// evidence. An empty name or date does not count.
TEST(Rows, NamesAndDatesAreTheLeastOfThoseGiven) {
  Fault best = Failure("bias ignored", 1), other = Failure("bias ignored", 2);
  other.row.replayed = Replayed::kFlaky;  // so that `best` is the evidence
  for (const std::string mine : {"", "a", "b"}) {
    for (const std::string theirs : {"", "a", "b"}) {
      best.row.subject = best.row.found = mine;
      other.row.subject = other.row.found = theirs;
      const std::string least = mine.empty()     ? theirs
                                : theirs.empty() ? mine
                                                 : std::min(mine, theirs);
      const std::vector<Fault> rows = OnePerFault({best, other});
      ASSERT_EQ(rows.size(), 1u);
      EXPECT_EQ(rows[0].found, best.found);
      EXPECT_EQ(rows[0].row.subject, least) << mine << " and " << theirs;
      EXPECT_EQ(rows[0].row.found, least) << mine << " and " << theirs;
    }
  }
}

// The state of a later version may name a cause that this version does not know.
TEST(Rows, AnUnknownCauseKeepsItsName) {
  Fault fault = Failure("bias ignored", 1);
  fault.row.cause = "a cause of a later version";
  const std::vector<Fault> rows = OnePerFault({fault});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0], fault);
}

TEST(Rows, OtherSubjectsOperationsKindsAndCausesStayApart) {
  const Fault fault = Failure("bias ignored", 1);
  Fault subject = fault, kind = fault;
  subject.row.identity = "other";
  kind.row.kind = FindingKind::kCrash;
  kind.row.cause = "";
  // A cause of the same kind as "bias ignored"; neither gives the output of the other.
  const Fault cause = Failure("channel 0 for all", 2);
  ASSERT_EQ(cause.row.kind, fault.row.kind);
  for (const Fault& other : {subject, kind, cause}) {
    EXPECT_EQ(OnePerFault({fault, other}).size(), 2u) << other.row.fingerprint();
  }
}

// At a tie above zero rounding up and rounding away from zero give the same: triage gives such a
// failure one name, and a failure at a tie below zero the other name.
TEST(Rows, TwoNamesOfOneCauseAreOneRow) {
  const auto gives = [](const char* cause, const Case& c) {
    const auto y = triage::Counterfactual(ProblemOf(c), triage::CauseNamed(cause));
    return y && *y == c.observed->y;
  };
  // The first failure of `cause` that the other cause gives too, or that it does not.
  const auto failure = [&](const char* cause, const char* other, bool given) {
    uint64_t seed = 1;
    while (gives(other, Failure(cause, seed).found) != given) ++seed;
    return Failure(cause, seed);
  };
  const char* const up = "half up";
  const char* const away = "half away from zero";
  const Fault below_zero = failure(up, away, false);
  const Fault above_zero = failure(away, up, true);
  const std::vector<Fault> rows = OnePerFault({below_zero, above_zero});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].row.cause, up) << "the cause that explains both";
  EXPECT_EQ(OnePerFault({below_zero, failure(away, up, false)}).size(), 2u);
}

// One code fits many causes, of other kinds too. The cause that explains every failure is right.
TEST(Rows, ACauseThatExplainsAllAbsorbsAnotherKind) {
  const Fault right = Failure("truncation", 1);
  Fault wrong = Failure("truncation", 2);
  wrong.row.cause = "last product dropped";
  wrong.row.kind = FindingKind::kTail;
  Fault unexplained = Failure("truncation", 3);
  unexplained.row.cause = "";
  unexplained.row.kind = FindingKind::kUnknown;
  const std::vector<Fault> rows = OnePerFault({wrong, right, unexplained});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].row.cause, "truncation");
  EXPECT_EQ(rows[0].row.kind, FindingKind::kRounding);
  EXPECT_EQ(rows[0].found, right.found);
  // The kind is that of the cause, also where the better evidence was taken for another kind.
  Fault flaky = right;
  flaky.row.replayed = Replayed::kFlaky;
  const std::vector<Fault> told = OnePerFault({wrong, flaky});
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].row.cause, "truncation");
  EXPECT_EQ(told[0].row.kind, FindingKind::kRounding);
  EXPECT_EQ(told[0].found, wrong.found);
  // The cause must explain the minimized case too.
  Fault minimized = unexplained;
  minimized.minimized = Failure("truncation", 4).found;
  EXPECT_EQ(OnePerFault({right, minimized}).size(), 1u);
  minimized.minimized = Failure("bias ignored", 4).found;
  EXPECT_EQ(OnePerFault({right, minimized}).size(), 2u);
  // A failure that no cause explains keeps its row: it may be another fault.
  Fault other = unexplained;
  other.found.observed->y.bytes()[0] ^= 1;
  EXPECT_EQ(OnePerFault({right, other}).size(), 2u);
  // An exact answer is no evidence: the failure was about another question.
  other.found.observed->y = exact::Evaluate(other.found);
  EXPECT_EQ(OnePerFault({right, other}).size(), 2u);
}

// Where a convention is promised, what departs from exact as the convention does is no part of the
// fault.
TEST(Rows, ACauseIsTriedOnThePromisedArithmetic) {
  const Convention& model = *FindConvention("fbgemm@avx2");
  const triage::Cause& cause = triage::CauseNamed("bias ignored");
  const auto failure = [&](uint64_t seed) {
    Fault fault = Failure("bias ignored", seed, "matches_model");
    for (uint64_t i = 0;; ++i) {
      Case c = gen::Draw(Op::kLinear, MixSeed(seed, i));
      const Tensor right = triage::RightOutput(c, &model);
      const auto y = triage::Counterfactual(c, cause, &model);
      if (!y || *y == right || right == exact::Evaluate(c)) continue;
      c.observed = Observed{"test", *y};
      c.contract = "model:fbgemm@avx2";
      fault.found = std::move(c);
      return fault;
    }
  };
  Fault unexplained = failure(2);
  unexplained.row.cause = "";
  unexplained.row.kind = FindingKind::kUnknown;
  EXPECT_EQ(OnePerFault({failure(1), unexplained}).size(), 1u);
  unexplained.found.contract = "exact";
  EXPECT_EQ(OnePerFault({failure(1), unexplained}).size(), 2u);
}

// What is unexplained joins what experiments have shown of the subject, beside rows of other
// causes.
TEST(Rows, TheUnexplainedJoinsWhatWasShownOfTheSubject) {
  const Fault other = Failure("bias ignored", 1);
  Fault shown = Failure("channel 0 for all", 2), unexplained = Failure("channel 0 for all", 3);
  shown.row.cause = unexplained.row.cause = "";
  shown.row.kind = FindingKind::kPadding;  // which no row with a cause has
  unexplained.row.kind = FindingKind::kUnknown;
  EXPECT_EQ(OnePerFault({other, shown, unexplained}).size(), 3u);
  shown.row.of_subject = true;
  const std::vector<Fault> rows = OnePerFault({other, shown, unexplained});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0].row.of_subject != rows[1].row.of_subject);
  EXPECT_EQ(OnePerFault(rows), rows);
}

// A kernel with two faults fails by both on some cases. That is no third fault.
TEST(Rows, TwoFaultsTogetherAreNoThirdRow) {
  const Fault bias = Failure("bias ignored", 1), half_up = Failure("half up", 2);
  const Fault both = Failure("bias ignored + half up", 3);
  Fault unexplained = both;
  unexplained.row.cause = "";
  unexplained.row.kind = FindingKind::kUnknown;
  for (const Fault& third : {both, unexplained}) {
    const std::vector<Fault> rows = OnePerFault({third, half_up, bias});
    ASSERT_EQ(rows.size(), 2u) << third.row.cause;
    EXPECT_EQ(rows[0].row.cause, "bias ignored");
    EXPECT_EQ(rows[1].row.cause, "half up");
  }
  // A fault that was never seen without another one is told by its own name.
  const std::vector<Fault> rows = OnePerFault({both, half_up});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].row.cause, "bias ignored");
  EXPECT_EQ(rows[0].found, both.found);
  EXPECT_EQ(rows[1].row.cause, "half up");
  // No failure shows one of the two causes alone, so the two count as one fault.
  EXPECT_EQ(OnePerFault({both}).front().row.cause, "bias ignored + half up");
}

TEST(Rows, WhatHasNoCauseJoinsTheFirstOfItsKindAndNoBridge) {
  Fault unexplained = Failure("bias ignored", 5);
  unexplained.row.cause = "";
  std::vector<Fault> faults{Failure("bias ignored", 1), Failure("channel 0 for all", 2),
                            unexplained};
  EXPECT_EQ(OnePerFault(faults).size(), 2u);
  EXPECT_EQ(OnePerFault({unexplained}).size(), 1u);
}

TEST(Rows, TheOrderDoesNotMatter) {
  std::vector<Fault> faults;
  for (const char* cause : {"bias ignored", "channel 0 for all", "half up", "int32 wrap"}) {
    for (uint64_t seed = 1; seed <= 3; ++seed) faults.push_back(Failure(cause, seed));
  }
  faults[1].row.cause = "";
  faults[4].row.replayed = Replayed::kFlaky;
  faults[7].row.minimized = true;
  const std::vector<Fault> rows = OnePerFault(faults);
  Rng rng(1);
  for (int times = 0; times < 20; ++times) {
    for (size_t i = faults.size(); i > 1; --i) std::swap(faults[i - 1], faults[rng.Below(i)]);
    EXPECT_EQ(OnePerFault(faults), rows);
  }
  EXPECT_EQ(OnePerFault(rows), rows);
  std::vector<Fault> twice = faults;
  twice.insert(twice.end(), faults.begin(), faults.end());
  EXPECT_EQ(OnePerFault(twice), rows);
}

// Triage may have named a wrong cause for a failure. A cause of some failures may explain other
// rows wholly, so rows are joined until no row explains another one.
TEST(Rows, OfRowsAreTheSameRows) {
  const std::vector<std::string> names{"bias ignored",
                                       "channel 0 for all",
                                       "half up",
                                       "half away from zero",
                                       "truncation",
                                       "last product dropped",
                                       "bias ignored + half up",
                                       "truncation + bias ignored"};
  Rng rng(7);
  const auto any = [&] { return names[rng.Below(names.size())]; };
  for (int set = 0; set < 60; ++set) {
    std::vector<Fault> faults;
    for (uint64_t count = 2 + rng.Below(4); count > 0; --count) {
      Fault& fault = faults.emplace_back(Failure(any(), 1 + rng.Below(9)));
      if (rng.Below(2) == 0) continue;
      fault.row.cause = any();
      fault.row.kind = triage::CausesNamed(fault.row.cause, Op::kLinear).front()->kind;
    }
    const std::vector<Fault> rows = OnePerFault(faults);
    EXPECT_EQ(OnePerFault(rows), rows) << "set " << set;
  }
}

}  // namespace
}  // namespace qualm::campaign
