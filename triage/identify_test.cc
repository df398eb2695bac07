// SPDX-License-Identifier: Apache-2.0
// Conventions as subjects must be identified as themselves, with a short witness against each other
// convention.
#include "triage/identify.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "core/status.h"
#include "oracles/exact/exact.h"
#include "properties/test_subject.h"

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

TEST_F(IdentifyTest, OneConventionIsLeftWhereOneIsDistinct) {
  const std::pair<const char*, Names> kLinear[] = {
      {"qnnpack", {"qnnpack", "torch-qnnpack"}},  // PyTorch's engine is QNNPACK
      {"onednn3@vnni", {"onednn3@vnni"}},
      {"fbgemm@vnni+nofma", {"fbgemm@vnni+nofma", "fbgemm@vnni+acc16+nofma"}},
      // XNNPACK takes x and w of one type, where no pair saturates, and no arithmetic is left to
      // tell.
      {"onnxruntime@avx2", {"onnxruntime@avx2", "xnnpack@fp32"}},
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
  EXPECT_EQ(Survivors(Of("model:qnnpack", Op::kAdd)), (Names{"qnnpack", "torch-qnnpack"}));
  EXPECT_EQ(Survivors(Of("model:aten@avx512", Op::kAdd)), Names{"aten@avx512"});
  EXPECT_EQ(Survivors(Of("model:aten@avx2", Op::kAdd)),
            (Names{"aten@avx2", "aten@avx2+pt26", "aten@avx512+pt26", "torch-onednn@amx",
                   "torch-onednn@avx2", "torch-onednn@avx2vnni", "torch-onednn@avx512core",
                   "torch-onednn@vnni"}));
  EXPECT_EQ(Survivors(Of("model:numpy@float32", Op::kQuantize)), Names{"numpy@float32"});
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
  try {
    FindConventionOrExact("model:qnnpak", "--between");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "--between: unknown convention 'model:qnnpak', nearest is 'qnnpack'");
  }
  EXPECT_EQ(FindConventionOrExact("model:exact", "x").name, "exact");
}

}  // namespace
}  // namespace qualm::triage
