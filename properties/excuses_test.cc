// SPDX-License-Identifier: Apache-2.0
// A row of adapters/contracts.cc about a library excuses that library, in the versions that the row
// names and for that fault. It excuses nobody else who promises the same numbers.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "adapters/registry.h"
#include "core/contract.h"
#include "core/rng.h"
#include "core/subject.h"
#include "oracles/conventions/convention.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

// Answers as a convention does, after `fault` has changed the outcome.
class Follower : public TestSubject {
 public:
  using Fault = std::function<void(Outcome&)>;

  Follower(const std::string& convention, std::string name, std::string version, Fault fault)
      : TestSubject(
            [=](const Case& c, const RunContext&) {
              Outcome outcome = Good(FindConvention(convention)->run(c).y);
              fault(outcome);
              return outcome;
            },
            std::move(name)),
        version_(std::move(version)) {
    set_contract({convention});
    cannot_run = [=](const Case& c) { return FindConvention(convention)->cannot_run(c); };
  }
  std::string Version() const override { return version_; }

 private:
  std::string version_;
};

Judging WithoutAttribution() {
  Judging judging;
  judging.attribute = [](const Case&, const Verdict& verdict, Subject&) {
    return verdict.kind.value_or(FindingKind::kUnknown);
  };
  return judging;
}

CheckResult Judged(Subject& subject, Op op, const std::string& glob, int cases) {
  const Judging judging = WithoutAttribution();
  CheckResult result;
  for (int i = 0; i < cases; ++i) {
    Case c = gen::Draw(op, static_cast<uint64_t>(i));
    if (op == Op::kMaxPool) {  // the shapes that the library takes
      c.relu = false;
      c.out_min = RangeOf(c.out_dtype).min;
      c.out_max = RangeOf(c.out_dtype).max;
    }
    CheckCase(c, {&subject}, glob, result, judging);
  }
  return result;
}

TEST(Excuses, OfStrayAccessesAreForTheLibraryItsVersionsAndTheFault) {
  RegisterAllSubjects();
  struct Stray {
    const char* name;
    const char* version;
    const char* detail;
    bool excused;
  };
  for (const Stray& stray :
       {Stray{"onednn", "oneDNN 2.6.3", "wrote 1 byte before the start of y (SIGSEGV)", true},
        Stray{"onednn", "oneDNN 2.6.3", "wrote 63 bytes past the end of y (SIGSEGV)", false},
        Stray{"onednn", "oneDNN 2.7.0", "wrote 1 byte before the start of y (SIGSEGV)", false},
        Stray{"plugin:mine.so", "oneDNN 2.6.3", "wrote 1 byte before the start of y", false},
        Stray{"plugin:mine.so", "mine 1", "wrote 63 bytes past the end of y (SIGSEGV)", false}}) {
    Follower subject("onednn2@avx2", stray.name, stray.version, [&](Outcome& outcome) {
      outcome.status = RunStatus::kTouchedOutside;
      outcome.detail = stray.detail;
    });
    for (const char* claim : {"no_stray_access", "alignment_and_stride"}) {
      const CheckResult result = Judged(subject, Op::kMaxPool, claim, 60);
      const int64_t failed = result.totals.of(Judgement::kFailed);
      const int64_t expected = result.totals.of(Judgement::kExpected);
      EXPECT_GT(failed + expected, 0);
      EXPECT_EQ(stray.excused ? failed : expected, 0)
          << stray.name << " " << stray.version << ": " << stray.detail << " " << claim;
    }
  }
}

// A cache in PyTorch is declared. An answer that is wrong at random is no cache.
TEST(Excuses, OfMemoryAreForTheLibraryAlone) {
  RegisterAllSubjects();
  const std::string convention = "torch-onednn@vnni";
  const auto make = [&](const std::string& name, int one_in) {
    auto rng = std::make_shared<Rng>(7);
    return std::make_unique<Follower>(convention, name, "PyTorch 1.13.1", [=](Outcome& outcome) {
      if (outcome.y.empty() || one_in == 0 || !rng->Chance(1, one_in)) return;
      const int32_t code = outcome.y.IntAt(0);
      outcome.y.SetInt(0, code == RangeOf(outcome.y.dtype()).max ? code - 1 : code + 1);
    });
  };
  // A new instance is right, as with a subject that remembers; the row must still not excuse it.
  SubjectKind kind;
  kind.kind = "stranger";
  kind.names = [] { return std::vector<std::string>{}; };
  kind.make = [=](const std::string& name) { return make(name, 0); };
  SubjectRegistry::Get().Add(kind);
  const auto child = make("stranger:child", 50);
  const CheckResult result = Judged(*child, Op::kLinear, "*", 400);
  EXPECT_GT(result.totals.of(Judgement::kPassed), 100);
  EXPECT_GT(result.totals.of(Judgement::kFailed), 0);
  EXPECT_EQ(result.totals.of(Judgement::kExpected), 0);

  int rows = 0;
  const auto library = make("torch@onednn+vnni", 0);
  for (const ExpectedDivergence& row : SubjectRegistry::Get().expected()) {
    if (row.kind != Name(FindingKind::kNondeterminism)) continue;
    const auto concerns = [&](const Subject& subject) {
      return Concerns(row, subject, subject.contract(), "linear", row.property);
    };
    rows += concerns(*library) ? 1 : 0;
    EXPECT_FALSE(concerns(*child));
  }
  EXPECT_EQ(rows, 2);  // answer_independent_of_history, one_thing_changed
}

// If the convention itself departs from exact, every subject that keeps it departs too.
TEST(Excuses, OfConventionsAreForAllWhoKeepThem) {
  RegisterAllSubjects();
  const Follower plugin("fbgemm@avx2", "plugin:mine.so", "mine 1", [](Outcome&) {});
  int rows = 0;
  for (const ExpectedDivergence& row : SubjectRegistry::Get().expected()) {
    if (!Concerns(row, plugin, plugin.contract(), "linear", row.property)) continue;
    EXPECT_NE(row.property, "environment");
    ++rows;
  }
  EXPECT_GT(rows, 1);
}

// NaN has no place between the ends of a clamp: where a convention makes a code of it that lies
// outside, that is declared. It was reported as a fault of the convention.
TEST(Excuses, OfNanOutsideTheClampBelongToTheConvention) {
  RegisterAllSubjects();
  for (const char* convention : {"numpy@float32", "numpy@float64"}) {
    Follower plugin(convention, "plugin:mine.so", "mine 1", [](Outcome&) {});
    const CheckResult result = Judged(plugin, Op::kQuantize, "clamp", 400);
    EXPECT_GT(result.totals.of(Judgement::kExpected), 0) << convention;
    EXPECT_EQ(result.totals.of(Judgement::kFailed), 0) << convention;
  }
}

// A convolution of one pixel without clamp, zero points or bias.
Case PointConvolution(int64_t pixels, int64_t groups, int64_t in, int64_t out) {
  Case c;
  c.op = Op::kConv2d;
  c.window.batch = c.window.in_h = 1;
  c.window.in_w = pixels;
  c.window.in_c = groups * in;
  c.window.groups = groups;
  c.N = groups * out;
  DeriveSizes(&c);
  c.x = Tensor(DType::kU8, {1, 1, pixels, groups * in});
  c.w = Tensor(DType::kS8, {groups * out, 1, 1, in});
  c.w.SetInt(0, 1);
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  return c;
}

// Where oneDNN overwrites its weights any output is excused, whatever the claim. One pixel or one
// block of channels less, another library, or a crash is no such case.
TEST(Excuses, OfCasesAreForTheseCasesAlone) {
  RegisterAllSubjects();
  struct Asked {
    int64_t pixels, groups, in, out;
    const char* name;
    const char* version;
    bool crashes, excused;
  };
  for (const Asked& asked : {Asked{5, 1, 3, 65, "onednn@avx512core", "oneDNN 2.6.3", false, true},
                             Asked{5, 2, 4, 20, "onednn@avx512core", "oneDNN 2.6.3", false, true},
                             Asked{5, 2, 8, 40, "onednn@avx512core", "oneDNN 2.6.3", false, true},
                             Asked{5, 2, 16, 80, "onednn@avx512core", "oneDNN 2.6.3", false, true},
                             Asked{5, 1, 3, 64, "onednn@avx512core", "oneDNN 2.6.3", false, false},
                             Asked{5, 2, 4, 16, "onednn@avx512core", "oneDNN 2.6.3", false, false},
                             Asked{5, 2, 8, 32, "onednn@avx512core", "oneDNN 2.6.3", false, false},
                             Asked{5, 2, 16, 64, "onednn@avx512core", "oneDNN 2.6.3", false, false},
                             Asked{6, 1, 3, 65, "onednn@avx512core", "oneDNN 2.6.3", false, false},
                             Asked{5, 1, 3, 65, "onednn@avx512core", "oneDNN 2.6.3", true, false},
                             Asked{5, 1, 3, 65, "onednn@avx512core", "oneDNN 2.7.0", false, false},
                             Asked{5, 1, 3, 65, "plugin:mine.so", "oneDNN 2.6.3", false, false}}) {
    Follower subject("onednn2@avx512core", asked.name, asked.version, [&](Outcome& outcome) {
      if (asked.crashes) outcome.status = RunStatus::kCrashed;
      outcome.y.SetInt(0, outcome.y.IntAt(0) + 7);
    });
    const Case c = PointConvolution(asked.pixels, asked.groups, asked.in, asked.out);
    ASSERT_EQ(Validate(c), "");
    CheckResult result;
    CheckCase(c, {&subject}, "matches_model", result, WithoutAttribution());
    EXPECT_EQ(result.totals.of(Judgement::kExpected), asked.excused ? 1 : 0)
        << asked.name << " " << asked.version << ": " << asked.pixels << " pixels, " << asked.groups
        << " groups of " << asked.in << " to " << asked.out;
    EXPECT_EQ(result.totals.of(Judgement::kFailed), asked.excused ? 0 : 1);
  }
}

}  // namespace
}  // namespace qualm
