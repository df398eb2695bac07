// SPDX-License-Identifier: Apache-2.0
// Conventions as subjects must be identified as themselves, with a short witness against each other
// convention.
#include "triage/identify.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "core/layer_test_util.h"
#include "core/status.h"
#include "core/text_test_util.h"
#include "oracles/exact/exact.h"
#include "properties/gen/library.h"
#include "properties/test_subject.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

using Names = std::set<std::string>;
using State = Comparison::State;

class IdentifyTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterAllSubjects(); }
  static Identified Of(const std::string& subject, Op op, int64_t cases = 600) {
    const auto made = SubjectRegistry::Get().Make(subject);
    return Identify(AnswererOf(*made), op, AllConventionsAndExact(), {.cases = cases});
  }
  static Names Survivors(const Identified& identified) {
    const std::vector<std::string> names = identified.bit_equal();
    return {names.begin(), names.end()};
  }
  static const Comparison& With(const Identified& identified, std::string_view name) {
    for (const Comparison& comparison : identified.conventions) {
      if (comparison.convention == name) return comparison;
    }
    ADD_FAILURE() << name;
    return identified.conventions.front();
  }
  // On every witness the two must really differ, in the element and by the numbers it says.
  static void ExpectWitnesses(const Identified& identified, const std::string& subject) {
    const auto made = SubjectRegistry::Get().Make(subject);
    for (const Comparison& comparison : identified.conventions) {
      ASSERT_EQ(comparison.witness.has_value(), comparison.state == State::kRuledOut)
          << comparison.convention;
      EXPECT_EQ(comparison.state == State::kNoVerdict, !comparison.reason.empty());
      EXPECT_EQ(comparison.state == State::kNoVerdict, comparison.cases == 0);
      if (!comparison.witness) continue;
      const Witness& witness = *comparison.witness;
      const Case problem = ProblemOf(witness.c);
      EXPECT_EQ(Validate(witness.c), "");
      const Tensor theirs = FindConventionOrExact(comparison.convention, "test").Run(problem);
      const Tensor ours = made->Run(problem, RunContext{}).y;
      EXPECT_EQ(ElementText(theirs, witness.divergence.index), witness.divergence.expected);
      EXPECT_EQ(ElementText(ours, witness.divergence.index), witness.divergence.actual);
      EXPECT_NE(witness.divergence.actual, witness.divergence.expected);
      EXPECT_EQ(*witness.c.expected, exact::Evaluate(problem));
      EXPECT_EQ(witness.c.observed->y, ours);
      EXPECT_NE(witness.c.note.find(comparison.convention), std::string::npos);
    }
  }
};

TEST_F(IdentifyTest, PairsRuleOutVnniByTwoTerms) {
  const Identified linear = Of("model:fbgemm@avx2", Op::kLinear);
  EXPECT_EQ(Survivors(linear), (Names{"fbgemm@avx2", "fbgemm@avx512"}));
  ExpectWitnesses(linear, "model:fbgemm@avx2");
  for (const char* name : {"fbgemm@vnni", "exact", "qnnpack"}) {
    const Comparison& comparison = With(linear, name);
    ASSERT_EQ(comparison.state, State::kRuledOut) << name;
    EXPECT_EQ(comparison.witness->c.M * comparison.witness->c.N, 1) << name;
    EXPECT_LE(comparison.witness->c.K, 2) << name;
  }
  // Only pairs tell these two apart.
  EXPECT_EQ(With(linear, "fbgemm@vnni").witness->c.K, 2);
  // A convention that was compared on no case says so, and is no survivor.
  EXPECT_EQ(With(linear, "aten@avx2").state, State::kNoVerdict);
  EXPECT_EQ(With(linear, "aten@avx2").reason, "this convention has no linear");
  EXPECT_EQ(With(linear, "tflite@double").reason, "activations and weights must be s8");
}

// PyTorch's engine of that name is QNNPACK, in every version.
const std::set<std::string> kQnnpack{"qnnpack", "torch-qnnpack", "torch2.11-qnnpack",
                                     "torch2.13-qnnpack"};

TEST_F(IdentifyTest, OneConventionIsLeftWhereOneIsDistinct) {
  const std::pair<const char*, Names> kLinear[] = {
      // The wheels take another bias where it leaves int32.
      {"qnnpack", {"qnnpack", "torch-qnnpack"}},
      {"onednn3@vnni", {"onednn3@vnni"}},
      {"fbgemm@vnni+nofma", {"fbgemm@vnni+nofma", "fbgemm@vnni+acc16+nofma"}},
      // XNNPACK takes x and w of one type, where no pair saturates, and no arithmetic is left to
      // tell.
      {"onnxruntime@avx2",
       {"onnxruntime@avx2", "xnnpack2024@avx2", "xnnpack2024@avx512", "xnnpack2026@avx2",
        "xnnpack2026@avx512", "xnnpack@fp32"}},
      {"tflite@single", {"tflite@single"}},
      {"xnnpack@rndnu", {"xnnpack@rndnu"}},
      {"numpy@float32", {"numpy@float32"}},
      {"numpy@float64+w_zp_from_x", {"numpy@float64+w_zp_from_x"}},
  };
  for (const auto& [name, expected] : kLinear) {
    const Identified linear = Of(std::string("model:") + name, Op::kLinear);
    EXPECT_EQ(Survivors(linear), expected) << name;
    ExpectWitnesses(linear, std::string("model:") + name);
  }
}

TEST_F(IdentifyTest, OtherOperations) {
  EXPECT_EQ(Survivors(Of("model:qnnpack", Op::kAdd)), kQnnpack);
  EXPECT_EQ(Survivors(Of("model:aten@avx512", Op::kAdd)), Names{"aten@avx512"});
  EXPECT_EQ(Survivors(Of("model:aten@avx2", Op::kAdd)),
            (Names{"aten@avx2", "aten@avx2+pt26", "aten@avx512+pt26", "torch-onednn@amx",
                   "torch-onednn@avx2", "torch-onednn@avx2vnni", "torch-onednn@avx512core",
                   "torch-onednn@vnni"}));
  EXPECT_EQ(Survivors(Of("model:numpy@float32", Op::kQuantize)),
            (Names{"numpy@float32", "onnxruntime@wasm"}));
  const Names exact = Survivors(Of("native", Op::kConv2d));
  EXPECT_TRUE(exact.contains("exact"));
  EXPECT_FALSE(exact.contains("qnnpack"));
  EXPECT_FALSE(exact.contains("fbgemm@vnni"));
}

TEST_F(IdentifyTest, SameSeedSameAnswer) {
  const Identified once = Of("model:qnnpack", Op::kLinear, 200);
  const Identified again = Of("model:qnnpack", Op::kLinear, 200);
  ASSERT_EQ(once.conventions.size(), again.conventions.size());
  for (size_t i = 0; i < once.conventions.size(); ++i) {
    const auto &a = once.conventions[i], &b = again.conventions[i];
    EXPECT_EQ(a.cases, b.cases);
    ASSERT_EQ(a.witness.has_value(), b.witness.has_value());
    if (a.witness) {
      EXPECT_EQ(a.witness->c, b.witness->c);
    }
  }
}

// A subject that no convention describes, one that breaks, and one that answers nothing.
TEST_F(IdentifyTest, StrangersHaveNoName) {
  TestSubject off([](const Case& c, const RunContext&) {
    Tensor y = exact::Evaluate(c);
    for (int64_t i = 0; i < y.size(); ++i) y.SetInt(i, y.IntAt(i) == 3 ? 4 : 3);
    return TestSubject::Good(std::move(y));
  });
  off.cannot_run = [](const Case& c) { return IsCode(c.out_dtype) ? "" : "codes only"; };
  const Identified stranger =
      Identify(AnswererOf(off), Op::kLinear, AllConventionsAndExact(), {.cases = 50});
  EXPECT_EQ(stranger.bit_equal(), std::vector<std::string>{});
  EXPECT_EQ(stranger.unanswered.front().first, "codes only");
  EXPECT_EQ(stranger.answered + stranger.unanswered.front().second, stranger.drawn);

  TestSubject broken([](const Case&, const RunContext&) {
    return Outcome{RunStatus::kCrashed, "SIGSEGV", {}, {}};
  });
  const Identified crash =
      Identify(AnswererOf(broken), Op::kLinear, AllConventionsAndExact(), {.cases = 5});
  EXPECT_EQ(crash.answered, 0);
  EXPECT_EQ(crash.broken, crash.drawn);
  EXPECT_EQ(crash.drawn, 40);
  EXPECT_EQ(crash.breakage, "crashed: SIGSEGV");
  EXPECT_EQ(With(crash, "exact").state, State::kNoVerdict);
}

TEST_F(IdentifyTest, BetweenTwoConventionsOneInputOrTheSearchedDomain) {
  const auto between = [](const char* a, const char* b, Op op) {
    const std::vector<ConventionOrExact> other{FindConventionOrExact(b, "test")};
    return Identify(AnswererOf(FindConventionOrExact(a, "test")), op, other, {.cases = 1500});
  };
  const Identified fma = between("fbgemm@avx2", "fbgemm@avx2+nofma", Op::kLinear);
  ASSERT_EQ(fma.conventions.front().state, State::kRuledOut);
  EXPECT_TRUE(fma.conventions.front().witness->c.bias.has_value());
  EXPECT_EQ(fma.conventions.front().witness->c.M * fma.conventions.front().witness->c.N, 1);
  EXPECT_LE(fma.conventions.front().witness->c.K, 2);

  const Identified same = between("fbgemm@avx2", "fbgemm@avx512", Op::kLinear);
  ASSERT_EQ(same.conventions.front().state, State::kBitEqual);
  EXPECT_EQ(same.conventions.front().cases, 1500);
  const Domain& domain = same.conventions.front().domain;
  EXPECT_TRUE(domain.types.contains("u8*s8->u8"));
  for (const char* feature : {"bias", "bias_i32", "relu", "per channel"}) {
    EXPECT_TRUE(std::ranges::count(domain.features, std::pair<std::string, bool>(feature, true)))
        << feature;
  }
  EXPECT_TRUE(std::ranges::count(domain.features, std::pair<std::string, bool>("clamps", false)));
  EXPECT_NE(domain.Text().find("never with clamps"), std::string::npos) << domain.Text();
}

TEST_F(IdentifyTest, ForumCasesAreNamed) {
  const auto named = [](const std::string& file) {
    const std::string path = QUALM_SOURCE_DIR "/corpus/forum/" + file + ".case.json";
    const std::vector<ObservedCase> cases{{path, ReadCaseFile(path)}};
    const std::vector<Identified> results = IdentifyObserved(cases, AllConventionsAndExact());
    EXPECT_EQ(results.size(), 1u);
    for (const Comparison& comparison : results.front().conventions) {
      if (comparison.witness) {
        EXPECT_EQ(comparison.witness->file, path);
      }
    }
    return Survivors(results.front());
  };
  EXPECT_EQ(named("002-linear-by-hand"), Names{"numpy@float64+w_zp_from_x"});
  const Names thread2 = named("002-linear-2x2");
  for (const char* name : {"exact", "fbgemm@avx2", "fbgemm@vnni", "qnnpack", "numpy@float64"}) {
    EXPECT_TRUE(thread2.contains(name)) << name;
  }
  EXPECT_FALSE(thread2.contains("numpy@float64+w_zp_from_x"));
  const Names thread4 = named("004-add");
  for (const char* name : {"aten@avx2", "aten@default", "qnnpack"}) {
    EXPECT_TRUE(thread4.contains(name)) << name;
  }
  const Names thread1 = named("001-quantize");
  EXPECT_TRUE(thread1.contains("aten@default"));
  EXPECT_TRUE(named("003-conv1").contains("fbgemm@avx2"));
  EXPECT_FALSE(named("003-conv1").contains("fbgemm@vnni"));
}

// PyTorch's engine onednn keeps the zero points of the first problem of a shape and scale.
Answerer Remembering() {
  auto zero_points = std::make_shared<std::map<std::string, int32_t>>();
  Answerer answerer{"remembering", [](const Case&) { return ""; }, {}, {}};
  answerer.run = [zero_points](const Case& c) {
    Case stale = ProblemOf(c);
    const std::string key =
        fmt::format("{} {} {} {} {}", c.M, c.N, c.x_q.scale[0], c.w_q.scale[0], c.out_q.scale[0]);
    int32_t& kept = zero_points->try_emplace(key, c.out_q.zero_point_at(0)).first->second;
    stale.out_q.zero_point = {kept};
    Outcome outcome;
    outcome.y = exact::Evaluate(Validate(stale).empty() ? stale : c);
    return outcome;
  };
  answerer.anew = [] { return std::make_shared<Answerer>(Remembering()); };
  return answerer;
}

TEST_F(IdentifyTest, WhatWasAskedBeforeRulesNothingOut) {
  const Identified identified =
      Identify(Remembering(), Op::kMul, AllConventionsAndExact(), {.cases = 200});
  EXPECT_TRUE(Survivors(identified).contains("exact"));
  ASSERT_TRUE(identified.remembered.has_value());
  const Remembered& remembered = *identified.remembered;
  const Tensor anew = exact::Evaluate(remembered.c);
  EXPECT_EQ(ElementText(anew, remembered.divergence.index), remembered.divergence.expected);
  EXPECT_NE(remembered.divergence.actual, remembered.divergence.expected);
  for (const Comparison& comparison : identified.conventions) {
    if (comparison.witness) {
      EXPECT_EQ(comparison.witness->c.observed->y,
                exact::Evaluate(ProblemOf(comparison.witness->c)))
          << comparison.convention;
    }
  }
}

// An instance that is asked only the doubtful cases would remember among those.
TEST_F(IdentifyTest, NeitherDoesWhatWasConfirmedBefore) {
  for (const Op op : {Op::kMul, Op::kAdd, Op::kRescale, Op::kQuantize, Op::kLinear}) {
    const Identified identified =
        Identify(Remembering(), op, AllConventionsAndExact(), {.cases = 1000});
    EXPECT_TRUE(Survivors(identified).contains("exact")) << Name(op);
  }
}

// A fault that only short cases have: a shortened witness that shows it counts for all conventions.
TEST_F(IdentifyTest, WitnessesRuleOutWhatDrawnCasesDidNot) {
  const ConventionOrExact& vnni = FindConventionOrExact("fbgemm@vnni", "test");
  Answerer answerer = AnswererOf(vnni);
  answerer.run = [&vnni](const Case& c) {
    Outcome outcome;
    outcome.y = vnni.Run(c);
    if (c.M * c.N == 1 && c.K <= 3 && IsCode(c.out_dtype))
      outcome.y.SetInt(0, outcome.y.IntAt(0) == 7 ? 8 : 7);
    return outcome;
  };
  const std::vector<ConventionOrExact> two{FindConventionOrExact("exact", "test"), vnni};
  // Finds a seed whose drawn cases are all too long to show the fault.
  IdentifyOptions options{.cases = 30, .shorten = 0};
  while (Survivors(Identify(answerer, Op::kLinear, two, options)) != Names{"fbgemm@vnni"})
    ASSERT_LT(++options.seed, 1000u);
  options.shorten = 500;
  const Identified identified = Identify(answerer, Op::kLinear, two, options);
  EXPECT_EQ(Survivors(identified), Names{});
  EXPECT_EQ(With(identified, "fbgemm@vnni").witness->c.M, 1);
}

TEST_F(IdentifyTest, UnknownConventionsNameTheNearest) {
  EXPECT_EQ(Refusal([&] { FindConventionOrExact("model:qnnpak", "--between"); }),
            "--between: unknown convention 'model:qnnpak', nearest is 'qnnpack'");
  EXPECT_EQ(FindConventionOrExact("model:exact", "x").name, "exact");
}

// --- Conventions made for a test ----------------------------------------------------------------

using Where = std::function<bool(const Case&)>;
using Cases = std::vector<Case>;
using std::ranges::count;
using std::ranges::count_if;

bool Everywhere(const Case& /*c*/) { return true; }

// The exact output with its first code `by` away.
Tensor Off(const Case& c, int32_t by) {
  Tensor y = exact::Evaluate(c);
  if (!y.empty()) y.SetInt(0, y.IntAt(0) + (y.IntAt(0) > 60 ? -by : by));
  return y;
}

// The answerer is exact; the conventions depart from it as the test says. So a test knows which
// cases tell them apart.
class MadeConventions : public testing::Test {
 protected:
  MadeConventions() {
    exact_.name = "subject";
    exact_.cannot_run = [this](const Case& c) { return cannot_run_ ? cannot_run_(c) : ""; };
    exact_.run = [this](const Case& c) {
      EXPECT_EQ(exact_.cannot_run(c), "");
      asked_.push_back(c);
      return TestSubject::Good(exact::Evaluate(c));
    };
  }

  const ConventionOrExact& Made(const std::string& name,
                                const std::function<Tensor(const Case&)>& run,
                                const std::function<std::string(const Case&)>& cannot_run = {}) {
    Convention& made = made_.emplace_back();
    made.name = name;
    made.cannot_run = [cannot_run](const Case& c) -> std::string {
      if (!IsCode(c.out_dtype) || c.M * c.N == 0) return "codes only";
      return cannot_run ? cannot_run(c) : "";
    };
    made.run = [run](const Case& c) { return ConventionOutput{run(c), std::nullopt}; };
    return named_.emplace_back(ConventionOrExact{name, &made});
  }
  // Departs by one code where `where` says so.
  const ConventionOrExact& Departs(const std::string& name, const Where& where) {
    return Made(name, [where](const Case& c) { return Off(c, where(c) ? 1 : 0); });
  }
  Identified Compared(const std::vector<ConventionOrExact>& conventions,
                      const IdentifyOptions& options, Op op = Op::kAdd) {
    asked_.clear();
    return Identify(exact_, op, conventions, options);
  }
  // The options with the first seed whose drawn cases do what a test needs.
  IdentifyOptions Drawing(IdentifyOptions options,
                          const std::vector<ConventionOrExact>& conventions, Op op,
                          const std::function<bool(const Identified&)>& is_wanted) {
    const int64_t shorten = std::exchange(options.shorten, 0);
    while (!is_wanted(Compared(conventions, options, op))) {
      if (++options.seed > 3000) {
        ADD_FAILURE() << "no seed draws such cases";
        break;
      }
    }
    options.shorten = shorten;
    return options;
  }

  std::function<std::string(const Case&)> cannot_run_;
  Answerer exact_;
  Cases asked_;
  std::list<Convention> made_;
  std::list<ConventionOrExact> named_;
  const ConventionOrExact& same_ = Departs("same", [](const Case&) { return false; });
  const ConventionOrExact& other_ = Departs("other", Everywhere);
};

TEST_F(MadeConventions, TheSearchEndsWhenItIsToldTo) {
  const auto stop = [] { return true; };
  const auto go_on = [] { return false; };
  for (const double seconds : {0.0, 1e9}) {
    const Identified stopped = Compared({same_}, {.seconds = seconds, .stopped = stop});
    EXPECT_EQ(stopped.drawn, 0);
    EXPECT_TRUE(stopped.out_of_time);
  }
  const Identified all = Compared({same_}, {.cases = 10, .stopped = go_on});
  EXPECT_EQ(all.answered, 10);
  EXPECT_FALSE(all.out_of_time);
  EXPECT_TRUE(Compared({same_}, {.seconds = 0.02}).out_of_time);
  const auto twenty = [this] { return asked_.size() == 20; };
  EXPECT_EQ(Compared({same_}, {.cases = 1, .seconds = 1e9, .stopped = twenty}).drawn, 20)
      << "where time is set it counts, not cases";
  // Nothing is left to be found, or nothing is answered.
  const Identified ruled_out = Compared({other_}, {.seconds = 1e9, .shorten = 0});
  EXPECT_EQ(ruled_out.conventions[0].state, State::kRuledOut);
  EXPECT_FALSE(ruled_out.out_of_time);
  cannot_run_ = [](const Case&) { return "nothing"; };
  const Identified nothing = Compared({same_}, {.cases = 10, .seconds = 1e9});
  EXPECT_EQ(nothing.drawn, 80);
  EXPECT_FALSE(nothing.out_of_time);
}

TEST_F(MadeConventions, AWitnessStaysAsItWasDrawnOnceThereIsNoTime) {
  const auto witness = [&](const IdentifyOptions& options) {
    return ProblemOf(Compared({other_}, options).conventions[0].witness->c);
  };
  const Case drawn = witness({.shorten = 0});
  EXPECT_EQ(witness({.stopped = [this] { return !asked_.empty(); }}), drawn);
  EXPECT_NE(witness({}), drawn);
}

TEST_F(MadeConventions, ReasonsAreTheMostFrequentFirstThenByName) {
  int64_t asked = 0;
  const std::vector<std::string> reasons{"c", "b", "a", "d", "d", "b", "d", ""};
  cannot_run_ = [&](const Case&) { return reasons[static_cast<size_t>(asked++ % 8)]; };
  const auto refuse = [](const char* often, const char* seldom) {
    return [=, n = 0](const Case&) mutable -> std::string { return n++ % 3 == 1 ? seldom : often; };
  };
  exact_.run = [](const Case& c) { return TestSubject::Good(exact::Evaluate(c)); };
  const ConventionOrExact& first = Made("first", exact::Evaluate, refuse("z", "y"));
  const ConventionOrExact& second = Made("second", exact::Evaluate, refuse("w", "v"));
  const Identified found = Compared({first, same_, second}, {.cases = 4, .shorten = 0});
  using Count = std::pair<std::string, int64_t>;
  EXPECT_EQ(found.drawn, 32);
  EXPECT_EQ(found.unanswered, (std::vector<Count>{{"d", 12}, {"b", 8}, {"a", 4}, {"c", 4}}));
  EXPECT_EQ(found.conventions[0].reason, "z");
  EXPECT_EQ(found.conventions[1].reason, "");
  EXPECT_EQ(found.conventions[2].reason, "w");
}

TEST_F(MadeConventions, AConventionIsComparedUntilItIsRuledOut) {
  size_t met = 0;
  const ConventionOrExact& third =
      Made("third", [&](const Case& c) { return Off(c, ++met == 3 ? 1 : 0); });
  const Identified found = Compared({third, same_}, {.cases = 20, .shorten = 0});
  EXPECT_EQ(found.conventions[0].state, State::kRuledOut);
  EXPECT_EQ(found.conventions[0].cases, 3);
  EXPECT_GE(found.conventions[1].cases, 15);
  EXPECT_EQ(found.drawn, 20);
}

TEST_F(MadeConventions, TheWorstWitnessIsTheFirstWithTheLargestDifference) {
  // Distances 1, 5, 5 and 2, then none, as a convention that is off in one code of each case.
  const std::vector<int32_t> distances{1, 5, 5, 2};
  Cases seen;
  const ConventionOrExact& drifts = Made("drifts", [&](const Case& c) {
    seen.push_back(c);
    return Off(c, seen.size() <= distances.size() ? distances[seen.size() - 1] : 0);
  });
  const Identified worst = Compared({drifts}, {.cases = 30, .shorten = 0, .worst = true});
  EXPECT_EQ(worst.answered, 30);
  EXPECT_EQ(worst.conventions[0].state, State::kRuledOut) << "the last cases are equal";
  EXPECT_EQ(worst.conventions[0].cases, static_cast<int64_t>(seen.size()));
  ASSERT_GE(seen.size(), 5u);
  EXPECT_EQ(ProblemOf(worst.conventions[0].witness->c), seen[1]);
  EXPECT_EQ(worst.conventions[0].witness->divergence.distance_lsb, 5);
}

TEST_F(MadeConventions, OfOneCaseTheFirstDifferenceIsShownAndInTheWorstCaseTheLargest) {
  const ConventionOrExact& codes = Made(
      "codes",
      [](const Case& c) {
        Tensor y = exact::Evaluate(c);
        for (const auto& [at, by] : {std::pair{1, 1}, {2, 3}, {3, 3}, {4, 2}})
          y.SetInt(at, y.IntAt(at) > 60 ? y.IntAt(at) - by : y.IntAt(at) + by);
        return y;
      },
      [](const Case& c) { return c.M * c.N < 5 ? "too short" : ""; });
  const auto witness = [&](bool worst) {
    return Compared({codes}, {.cases = 8, .shorten = 0, .worst = worst})
        .conventions[0]
        .witness->divergence;
  };
  EXPECT_EQ(witness(false).index, 1);
  EXPECT_EQ(witness(false).distance_lsb, 1);
  EXPECT_EQ(witness(true).index, 2);
  EXPECT_EQ(witness(true).distance_lsb, 3);
}

TEST_F(MadeConventions, ANewInstanceIsAskedOnlyWhereAnAnswerWouldRuleAConventionOut) {
  int64_t made = 0;
  const Outcome crash{RunStatus::kCrashed, "SIGSEGV", {}, {}};
  exact_.anew = [&] {
    ++made;
    return std::make_shared<Answerer>(
        Answerer{"anew", [](const Case&) { return ""; }, [&](const Case&) { return crash; }, {}});
  };
  EXPECT_EQ(Compared({same_}, {.cases = 20}).conventions[0].state, State::kBitEqual);
  EXPECT_EQ(made, 0);
  // A new instance that crashes confirms nothing: the first answer counts.
  const Identified found = Compared({other_}, {.cases = 20, .shorten = 0});
  EXPECT_EQ(made, 1);
  EXPECT_EQ(found.conventions[0].state, State::kRuledOut);
  EXPECT_FALSE(found.remembered.has_value());
}

TEST_F(MadeConventions, TheFirstAnswerThatDependsOnEarlierCasesIsKept) {
  // New instances answer as the convention does.
  exact_.anew = [] {
    return std::make_shared<Answerer>(
        Answerer{"anew",
                 [](const Case&) { return ""; },
                 [](const Case& c) { return TestSubject::Good(Off(c, 1)); },
                 {}});
  };
  const Identified found = Compared({other_}, {.cases = 20});
  EXPECT_EQ(found.conventions[0].state, State::kBitEqual);
  ASSERT_TRUE(found.remembered.has_value());
  const auto defined = [&](const Case& c) { return other_.CannotRun(c).empty(); };
  EXPECT_EQ(found.remembered->c, *std::ranges::find_if(asked_, defined));
}

TEST_F(MadeConventions, CasesThatASeldomComparedConventionDefinesAreDrawnLonger) {
  const Identified often = Compared({same_}, {.cases = 40});
  EXPECT_EQ(often.drawn, 40) << "no convention is compared seldom";
  const Cases first = asked_;
  const auto defined = [&](const Case& c) { return same_.CannotRun(c).empty(); };
  Cases known;
  std::ranges::copy_if(first, std::back_inserter(known), defined);
  const auto some = [&](int64_t most, const Where& more) -> const ConventionOrExact& {
    const Cases few(known.begin(), known.begin() + most);
    return Made("some", exact::Evaluate, [few, more](const Case& c) {
      return std::ranges::count(few, c) > 0 || more(c) ? "" : "not this one";
    });
  };
  const auto is_long = [](const Case& c) { return c.M * c.N > 40; };
  const Where not_known = [&](const Case& c) { return count(first, c) == 0 && is_long(c); };
  // Two of forty: it is asked about more cases, which it defines, until it defines a quarter of all
  // or twice as many are drawn.
  const ConventionOrExact& seldom = some(2, not_known);
  const Identified found = Compared({seldom, same_}, {.cases = 40});
  ASSERT_GT(asked_.size(), 40u);
  EXPECT_EQ(Cases(asked_.begin(), asked_.begin() + 40), first);
  for (size_t i = 40; i < asked_.size(); ++i) EXPECT_EQ(seldom.CannotRun(asked_[i]), "");
  EXPECT_EQ(found.conventions[0].cases, static_cast<int64_t>(asked_.size()) - 40 + 2);
  EXPECT_EQ(found.answered, static_cast<int64_t>(asked_.size()));
  EXPECT_GT(Compared({seldom}, {.cases = 40}).drawn, 40) << "no other is compared";
  // A quarter is enough.
  EXPECT_EQ(Compared({some(10, not_known), same_}, {.cases = 40}).drawn, 40);
  EXPECT_GT(Compared({same_, some(9, not_known)}, {.cases = 40}).drawn, 40);
  EXPECT_EQ(Compared({some(9, Everywhere), same_}, {.cases = 40}).drawn, 40);
  EXPECT_EQ(Compared({some(2, [](const Case&) { return false; }), same_}, {.cases = 40}).drawn, 40)
      << "no other case is defined";
  EXPECT_EQ(Compared({seldom, same_}, {.cases = 40, .stopped = [&] { return asked_.size() >= 40; }})
                .drawn,
            40)
      << "there is no time";
  // One that is never compared, or ruled out, wants nothing.
  const ConventionOrExact& never = Made("never", exact::Evaluate, [](const Case&) { return "no"; });
  EXPECT_EQ(Compared({never, same_}, {.cases = 40}).drawn, 40);
}

// --- Short witnesses ----------------------------------------------------------------------------

bool IsOfType(const Case& c, DType dtype) { return c.x.dtype() == dtype; }

TEST_F(MadeConventions, AWitnessIsShortenedAmongCasesThatTheSubjectAnswers) {
  cannot_run_ = [](const Case& c) { return c.M * c.N < 4 ? "too short" : ""; };
  const auto answer = exact_.run;
  const auto crashes = [](const Case& c) { return c.M * c.N < 6; };
  exact_.run = [&](const Case& c) {
    Outcome outcome = answer(c);
    if (crashes(c)) outcome.status = RunStatus::kCrashed;
    return outcome;
  };
  const Identified found = Compared({other_}, {});
  const Case& c = found.conventions[0].witness->c;
  EXPECT_EQ(c.M * c.N, 6);
}

TEST_F(MadeConventions, OfManyShortWitnessesTheSimplestSpeaksForAll) {
  // Types stay, so that the first witness ends at three codes.
  const ConventionOrExact& first =
      Departs("first", [](const Case& c) { return IsOfType(c, DType::kS8) || c.M * c.N >= 3; });
  const ConventionOrExact& second =
      Departs("second", [](const Case& c) { return IsOfType(c, DType::kS8); });
  const IdentifyOptions options =
      Drawing({.cases = 50}, {first, second}, Op::kAdd, [](const Identified& found) {
        return found.conventions[0].witness && found.conventions[1].witness &&
               IsOfType(found.conventions[0].witness->c, DType::kU8);
      });
  int64_t made = 0;
  exact_.anew = [&] {
    ++made;
    return std::make_shared<Answerer>(
        Answerer{"anew",
                 [](const Case&) { return ""; },
                 [](const Case& c) { return TestSubject::Good(exact::Evaluate(c)); },
                 {}});
  };
  const Identified found = Compared({first, second}, options);
  for (const Comparison& comparison : found.conventions) {
    EXPECT_EQ(comparison.witness->c.M * comparison.witness->c.N, 1);
    EXPECT_TRUE(IsOfType(comparison.witness->c, DType::kS8));
    EXPECT_EQ(comparison.witness->c.property, "");
  }
  // One for the witness of each convention, as drawn and as shortened.
  EXPECT_EQ(made, 4);
  made = 0;
  Compared({other_, Departs("as other", Everywhere)}, {});
  EXPECT_EQ(made, 2) << "one case rules both out, and so does what it is shortened to";
}

TEST_F(MadeConventions, ShorteningStartsFromAShortWitnessOfAnotherConvention) {
  const ConventionOrExact& first =
      Departs("first", [](const Case& c) { return IsOfType(c, DType::kU8) && c.M * c.N >= 3; });
  // Its own witness is one of s8, which ends at two codes.
  const ConventionOrExact& second = Departs("second", [](const Case& c) {
    return IsOfType(c, DType::kU8) ? c.M * c.N <= 3 : c.M * c.N >= 2;
  });
  const IdentifyOptions options =
      Drawing({.cases = 50}, {first, second}, Op::kAdd, [](const Identified& found) {
        return found.conventions[0].witness && found.conventions[1].witness &&
               IsOfType(found.conventions[1].witness->c, DType::kS8);
      });
  const Identified found = Compared({first, second}, options);
  EXPECT_EQ(found.conventions[0].witness->c.M * found.conventions[0].witness->c.N, 3);
  EXPECT_EQ(found.conventions[1].witness->c.M * found.conventions[1].witness->c.N, 1);
}

TEST_F(MadeConventions, AnAnswerThatDoesNotComeAgainLeavesTheWitnessAsItWasDrawn) {
  const auto answer = exact_.run;
  exact_.run = [&](const Case& c) {
    const bool again = count(asked_, c) > 0;
    return again ? Outcome{RunStatus::kCrashed, "SIGSEGV", {}, {}} : answer(c);
  };
  const Identified drawn = Compared({other_}, {.shorten = 0});
  const Identified found = Compared({other_}, {});
  EXPECT_EQ(ProblemOf(found.conventions[0].witness->c), ProblemOf(drawn.conventions[0].witness->c));
}

TEST_F(MadeConventions, TheWorstWitnessStaysAsBadAsItWas) {
  const auto is_large = [](const Case& c) { return c.M * c.N >= 4; };
  const ConventionOrExact& drifts =
      Made("drifts", [&](const Case& c) { return Off(c, is_large(c) ? 5 : 1); });
  const Identified worst = Compared({drifts, same_}, {.cases = 20, .worst = true});
  EXPECT_EQ(worst.conventions[0].witness->divergence.distance_lsb, 5);
  EXPECT_EQ(worst.conventions[0].witness->c.M * worst.conventions[0].witness->c.N, 4);
  EXPECT_EQ(worst.conventions[1].state, State::kBitEqual);
  const Identified any = Compared({drifts}, {.cases = 20});
  EXPECT_EQ(any.conventions[0].witness->c.M * any.conventions[0].witness->c.N, 1);
  // The short witness of another convention is not as bad.
  const Identified both = Compared({drifts, other_}, {.cases = 20, .worst = true});
  EXPECT_EQ(both.conventions[0].witness->divergence.distance_lsb, 5);
  EXPECT_EQ(both.conventions[1].witness->c.M * both.conventions[1].witness->c.N, 1);
}

// What is drawn where shortening got stuck. The witness that is shortened is of u8, and what is
// drawn is of s8.
class DrawnShort : public MadeConventions {
 protected:
  // Departs for cases of u8 where `stuck` says so, and for those of s8 where `drawn` does.
  Case Shortened(const Where& stuck, const Where& drawn) {
    const ConventionOrExact& one = Departs(
        "one", [=](const Case& c) { return IsOfType(c, DType::kU8) ? stuck(c) : drawn(c); });
    const IdentifyOptions options =
        Drawing({.cases = 2000}, {one}, Op::kLinear, [](const Identified& found) {
          return found.conventions[0].witness &&
                 IsOfType(found.conventions[0].witness->c, DType::kU8);
        });
    return ProblemOf(Compared({one}, options, Op::kLinear).conventions[0].witness->c);
  }
  static bool IsShort(const Case& c) { return c.M * c.N == 1 && c.K <= 2; }
};

TEST_F(DrawnShort, ACaseOfOneOutputAndTwoTermsIsDrawnAndShortened) {
  const auto is_long = [](const Case& c) { return c.M * c.N * c.K > 20; };
  const Case any = Shortened(is_long, IsShort);
  EXPECT_TRUE(IsOfType(any, DType::kS8));
  EXPECT_LE(any.K, 1) << "it is shortened, too";
  const Case two = Shortened(is_long, [](const Case& c) { return c.M * c.N == 1 && c.K == 2; });
  EXPECT_TRUE(IsOfType(two, DType::kS8));
  EXPECT_EQ(two.M * two.N * two.K, 2);
  // Two outputs of few terms are not short.
  const Case outputs = Shortened([](const Case& c) { return c.M * c.N >= 2 && c.K <= 2; }, IsShort);
  EXPECT_EQ(outputs.M * outputs.N, 1);
  // What has more outputs or terms would get stuck, too. No step of shortening adds a relu or
  // a bias.
  const auto stuck_or = [](const Where& lure) {
    return [=](const Case& c) { return c.relu && c.bias_i32 ? IsShort(c) : lure(c); };
  };
  const Case one_output =
      Shortened(is_long, stuck_or([](const Case& c) { return c.M * c.N >= 2 && c.K <= 2; }));
  EXPECT_EQ(one_output.M * one_output.N, 1);
  const Case two_terms =
      Shortened(is_long, stuck_or([](const Case& c) { return c.M * c.N == 1 && c.K >= 3; }));
  EXPECT_LE(two_terms.K, 2);
}

TEST_F(DrawnShort, WhatIsDrawnIsTakenWhereItIsSimplerOrComputesLess) {
  const auto with_relu = [](const Case& c) { return c.M * c.N == 1 && c.K == 2 && c.relu; };
  const auto two_outputs = [](const Case& c) { return c.M * c.N >= 2 && c.K >= 1; };
  const auto long_sums = [](const Case& c) { return c.M * c.N * c.K > 20; };
  const Case less = Shortened(long_sums, with_relu);
  EXPECT_TRUE(IsOfType(less, DType::kS8)) << "less is computed, though there is a relu";
  const Case same_size = Shortened(two_outputs, with_relu);
  EXPECT_TRUE(IsOfType(same_size, DType::kU8)) << "two products either way, and a relu";
  EXPECT_EQ(same_size.M * same_size.N * same_size.K, 2);
  const Case simpler =
      Shortened(two_outputs, [](const Case& c) { return c.M * c.N == 1 && c.K == 2; });
  EXPECT_TRUE(IsOfType(simpler, DType::kS8)) << "two products either way, of one output";
}

TEST_F(DrawnShort, NothingIsDrawnWhereTheWitnessIsShortOrHasNoSum) {
  const auto looked_for = [&](Op op, const Where& where) {
    bool seen = false;
    const ConventionOrExact& one = Made(
        "one", [=](const Case& c) { return Off(c, where(c) ? 1 : 0); },
        [&](const Case& c) {
          seen |= IsOfType(c, DType::kS8);
          return "";
        });
    const IdentifyOptions options = Drawing({}, {one}, op, [&](const Identified& found) {
      return !std::exchange(seen, false) && found.conventions[0].witness;
    });
    const Identified found = Compared({one}, options, op);
    EXPECT_TRUE(found.conventions[0].witness);
    return seen;
  };
  EXPECT_FALSE(looked_for(Op::kAdd, Everywhere));
  EXPECT_FALSE(looked_for(Op::kAdd, [](const Case& c) { return c.M * c.N >= 2; }));
  EXPECT_FALSE(looked_for(Op::kLinear, Everywhere));
  EXPECT_FALSE(looked_for(Op::kLinear, [](const Case& c) { return c.K >= 2; }));
  EXPECT_TRUE(looked_for(Op::kLinear, [](const Case& c) { return c.K >= 3; }));
}

// --- What is said -------------------------------------------------------------------------------

TEST_F(IdentifyTest, ANewInstanceOfASubjectRefusesAndAnswersAsTheSubject) {
  const auto subject = SubjectRegistry::Get().Make("model:qnnpack");
  const std::shared_ptr<Answerer> anew = AnswererOf(*subject).anew();
  ASSERT_NE(anew, nullptr);
  EXPECT_EQ(anew->name, subject->name());
  bool answered = false, refused = false;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Case c = gen::DrawForLibraries(Op::kAdd, seed);
    const std::string reason = subject->CannotRun(c);
    EXPECT_EQ(anew->cannot_run(c), reason);
    (reason.empty() ? answered : refused) = true;
    if (reason.empty()) {
      EXPECT_EQ(anew->run(c).y, subject->Run(c, RunContext{}).y);
    }
  }
  EXPECT_TRUE(answered && refused);
  TestSubject nobody;
  EXPECT_EQ(AnswererOf(nobody).anew(), nullptr) << "the registry does not make such subjects";
}

TEST_F(MadeConventions, HowTheFirstBrokenCaseEndedIsSaid) {
  int64_t asked = 0;
  const std::vector<Outcome> outcomes{{RunStatus::kSkipped, "not today", {}, {}},
                                      {RunStatus::kHung, "10 s", {}, {}},
                                      {RunStatus::kCrashed, "SIGSEGV", {}, {}},
                                      {RunStatus::kCrashed, "SIGSEGV", {}, {}}};
  exact_.run = [&](const Case&) { return outcomes[static_cast<size_t>(asked++ % 4)]; };
  const Identified found = Compared({same_}, {.cases = 1}, Op::kMul);
  EXPECT_EQ(found.op, Op::kMul);
  EXPECT_EQ(found.drawn, 8);
  EXPECT_EQ(found.broken, 6);
  EXPECT_EQ(found.breakage, "hung: 10 s");
  using Count = std::pair<std::string, int64_t>;
  EXPECT_EQ(
      found.unanswered,
      (std::vector<Count>{{"crashed: SIGSEGV", 4}, {"hung: 10 s", 2}, {"skipped: not today", 2}}));
  EXPECT_FALSE(found.any_compared());
  exact_.run = [](const Case& c) { return TestSubject::Good(exact::Evaluate(c)); };
  EXPECT_TRUE(Compared({same_}, {.cases = 4}).any_compared());
}

std::string TextOf(const Cases& cases) {
  Domain domain;
  for (const Case& c : cases) domain.Add(c);
  return domain.Text();
}

TEST(Domain, SaysWhichTypesSizesAndFeaturesWereCompared) {
  const Case plain = ZeroLayer(2, 3, 4);
  EXPECT_EQ(TextOf({plain}),
            "u8*s8->u8 (1), sums of up to 4 terms; never with clamps, bias, bias_i32, relu, "
            "requant, per channel, zero points of x, zero points of w, zero points of the output");
  Case rich = ZeroLayer(1, 1, 9);
  rich.x = Tensor(DType::kS8, {1, 9});
  rich.relu = true;
  rich.bias = {{1}};
  rich.per_channel = true;
  rich.x_q.zero_point = {3};
  EXPECT_EQ(
      TextOf({rich, plain, plain}),
      "s8*s8->u8 (1), u8*s8->u8 (2), sums of up to 9 terms; with and without bias, relu, per "
      "channel, zero points of x; never with clamps, bias_i32, requant, zero points of w, zero "
      "points of the output");
  rich.out_max = 100;
  rich.w_q.zero_point = {-1};
  rich.out_q.zero_point = {7};
  rich.requant = Requant::kFloat32;
  Case integers = plain;
  integers.bias_i32 = {{1, 2, 3}};
  EXPECT_EQ(TextOf({plain, rich, integers}),
            "s8*s8->u8 (1), u8*s8->u8 (2), sums of up to 9 terms; with and without clamps, bias, "
            "bias_i32, relu, requant, per channel, zero points of x, zero points of w, zero points "
            "of the output");
  Domain domain;
  domain.Add(plain);
  domain.Add(rich);
  EXPECT_EQ(domain.outputs, 2 * 3 + 1);
}

TEST(Domain, NamesOperandsAndChoicesAsTheOperationHasThem) {
  Case add = CaseOver(Op::kAdd, Tensor(DType::kU8, {1, 2}), DType::kU8);
  add.w = Tensor(DType::kU8, {1, 2});
  add.w_q.zero_point = {0, 5};
  EXPECT_EQ(TextOf({add}),
            "u8*u8->u8 (1); with and without zero points of b; never with clamps, "
            "relu, zero points of a, zero points of the output");
  Case table = CaseOver(Op::kTable, Tensor(DType::kU8, {1, 2}), DType::kU8);
  table.function = Function::kSigmoid;
  EXPECT_EQ(TextOf({table}),
            "u8->u8 sigmoid (1); never with clamps, negative_slope, zero points of "
            "x, zero points of the output");
  const Case dequantize = CaseOver(Op::kDequantize, Tensor(DType::kU8, {1, 2}), DType::kF32);
  EXPECT_EQ(TextOf({dequantize}), "u8->f32 (1); never with per channel, zero points of x");
  const Case quantize = CaseOver(Op::kQuantize, Tensor(DType::kF32, {1, 2}), DType::kU8);
  EXPECT_EQ(TextOf({quantize}),
            "f32->u8 (1); never with clamps, relu, per channel, zero points of the output");
  EXPECT_EQ(TextOf({}), "");
}

TEST(Observed, ComparesEachOperationInItsOrderAndSaysHowFarItIs) {
  Case linear = ZeroLayer(1, 1, 1),
       rescale =
           CaseOver(Op::kRescale, Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{5}), DType::kU8);
  linear.observed = Observed{"a library", Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{9})};
  rescale.observed = Observed{"a library", exact::Evaluate(rescale)};
  const std::vector<ObservedCase> cases{{"l", linear}, {"r1", rescale}, {"r2", rescale}};
  std::vector<size_t> done;
  const std::vector<Identified> results = IdentifyObserved(cases, AllConventionsAndExact().first(1),
                                                           [&](size_t n) { done.push_back(n); });
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(done, (std::vector<size_t>{1, 2, 3}));
  EXPECT_EQ(results[0].op, Op::kRescale);
  EXPECT_EQ(results[0].drawn, 2);
  EXPECT_EQ(results[0].answered, 2);
  EXPECT_EQ(results[0].bit_equal(), std::vector<std::string>{"exact"});
  EXPECT_EQ(results[1].op, Op::kLinear);
  EXPECT_EQ(results[1].drawn, 1);
  EXPECT_EQ(results[1].answered, 1);
  ASSERT_TRUE(results[1].conventions[0].witness);
  const Witness& witness = *results[1].conventions[0].witness;
  EXPECT_EQ(witness.file, "l");
  EXPECT_EQ(witness.divergence.actual, "9");
  EXPECT_EQ(witness.c.observed->by, "a library");
}

// The contract that is proposed says in how many answers it was compared.
TEST(Fitting, SaysInHowManyAnswers) {
  Identified result;
  result.answered = 100;
  const auto add = [&](const char* name, State state, int64_t cases) {
    Comparison& one = result.conventions.emplace_back();
    one.convention = name, one.state = state, one.cases = cases;
  };
  add("ruled-out", State::kRuledOut, 90);
  add("few", State::kBitEqual, 11);
  EXPECT_EQ(FittingOf(result).names, std::vector<std::string>{}) << "chance gives so many";
  add("some", State::kBitEqual, 69);
  EXPECT_EQ(FittingOf(result).text, "equal in all 69 of 100 answers that it defines");
  add("all", State::kBitEqual, 100);
  EXPECT_EQ(FittingOf(result).names, (std::vector<std::string>{"all", "some"}));
  EXPECT_EQ(FittingOf(result).text,
            "equal in all 69 to 100 of 100 answers that each of them defines");
  result.conventions.erase(result.conventions.begin() + 2);
  EXPECT_EQ(FittingOf(result).text, "equal in all 100 answers");
}

TEST(BitEqual, CountsVariantsBesideTheConventionThatIsListed) {
  const Case by_hand = ReadCaseFile(QUALM_SOURCE_DIR "/corpus/forum/002-linear-by-hand.case.json");
  EXPECT_EQ(BitEqualConventions(by_hand, by_hand.observed->y), "numpy@float64+w_zp_from_x")
      << "a variant whose convention gives something else is named";
  const Case plain = ReadCaseFile(QUALM_SOURCE_DIR "/corpus/forum/002-linear-2x2.case.json");
  const Tensor y = exact::Evaluate(plain);
  const std::vector<std::string> names = BitEqual(plain, y, AllConventionsAndExact().subspan(1));
  std::string listed;
  int variants = 0;
  for (const std::string& name : names) {
    const size_t plus = name.find('+');
    if (plus != std::string::npos && count(names, name.substr(0, plus)) > 0) {
      ++variants;
    } else {
      listed += (listed.empty() ? "" : ", ") + name;
    }
  }
  ASSERT_GT(variants, 0);
  EXPECT_EQ(BitEqualConventions(plain, y), listed + fmt::format(" ({} variants too)", variants));
  Tensor nobodys = y;
  for (int64_t i = 0; i < y.size(); ++i) nobodys.SetInt(i, 255 - y.IntAt(i));
  EXPECT_EQ(BitEqualConventions(plain, nobodys), "");
}

TEST(Brief, NamesCodesAndListsThatAreNotTheDefault) {
  Case c = ZeroLayer(1, 1, 2);
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{129, 132});
  c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{127, -127});
  EXPECT_EQ(Brief(c), "x 129 132, w 127 -127");
  c.out_q.scale = {256};
  c.x_q.zero_point = {3};
  c.w_q = {{0.5f, 1}, {0, -1}};
  c.bias = {{0}};
  EXPECT_EQ(Brief(c),
            "x 129 132, w 127 -127, x_zp 3, w_scale 0x1p-1 0x1p+0, w_zp 0 -1, out_scale 0x1p+8");
  c.bias = {{1.5f, 0}};
  EXPECT_TRUE(Brief(c).ends_with(", out_scale 0x1p+8, bias 0x1.8p+0 0x0p+0"));
  c.bias.reset();
  c.bias_i32 = {{0, -7}};
  EXPECT_TRUE(Brief(c).ends_with(", out_scale 0x1p+8, bias_i32 0 -7"));

  Case add =
      CaseOver(Op::kAdd, Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{1, 2}), DType::kU8);
  add.w = add.x;
  add.x_q.scale = {2};
  add.w_q.zero_point = {9};
  add.out_q.zero_point = {1};
  EXPECT_EQ(Brief(add), "a 1 2, b 1 2, a_scale 0x1p+1, b_zp 9, out_zp 1");

  Case requantize = CaseOver(Op::kRequantize,
                             Tensor::Of<int32_t>({1, 1}, std::vector<int32_t>{-70000}), DType::kU8);
  requantize.multiplier = {0.25f};
  EXPECT_EQ(Brief(requantize), "x -70000, multiplier 0x1p-2");

  EXPECT_EQ(Brief(CaseOver(Op::kQuantize, Tensor(DType::kF32, {0, 3}), DType::kU8)), "");
  const auto ones = [](int64_t size) {
    Case many = CaseOver(Op::kRescale, Tensor(DType::kU8, {1, size}), DType::kU8);
    for (int64_t i = 0; i < size; ++i) many.x.SetInt(i, 1);
    return Brief(many);
  };
  EXPECT_EQ(ones(12), "x 1 1 1 1 1 1 1 1 1 1 1 1");
  EXPECT_EQ(ones(13), "x 1 1 1 1 1 1 1 1 1 1 1 1 ... (13)");
}

}  // namespace
}  // namespace qualm::triage
