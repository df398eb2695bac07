// SPDX-License-Identifier: Apache-2.0
// The lines of an explanation, word for word.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/slice.h"
#include "core/text_test_util.h"
#include "oracles/conventions/convention.h"
#include "triage/fault_test_util.h"
#include "triage/identify.h"
#include "triage/triaged.h"

namespace qualm::triage {
namespace {

// 2 * 3 + 4 * 5 = 26 and 2 * 1 - 4 * 2 = -6.
Case TwoOutputs() {
  Case c;
  c.M = 1, c.N = 2, c.K = 2;
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{2, 4});
  c.w = Tensor::Of<int8_t>({2, 2}, std::vector<int8_t>{3, 5, 1, -2});
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

TestSubject Called(const std::string& name, Answering answer) {
  return TestSubject(
      [answer = std::move(answer)](const Case& c, const RunContext& context) {
        return TestSubject::Good(answer(c, context));
      },
      name);
}
const Answering kExact = [](const Case& c, const RunContext&) { return Right(c); };

constexpr const char* kDerivationOf1 =
    "linear M=1 N=2 K=2 u8*s8->s32 per-tensor\n"
    "output [0, 1] (index 1), exact: -6\n"
    "    accumulate    sum of x*w over k: 2*1 + 4*-2 = -6\n"
    "    offset        both zero points are 0, nothing to take out = -6\n"
    "    clamp         clamp -6 to [-2147483648, 2147483647]: inside\n";
constexpr const char* kDerivationOf0 =
    "linear M=1 N=2 K=2 u8*s8->s32 per-tensor\n"
    "output [0, 0] (index 0), exact: 26\n"
    "    accumulate    sum of x*w over k: 2*3 + 4*5 = 26\n"
    "    offset        both zero points are 0, nothing to take out = 26\n"
    "    clamp         clamp 26 to [-2147483648, 2147483647]: inside\n";

Attribution Known(Kind kind = Kind::kTail) {
  Attribution known;
  known.kind = kind;
  known.diagnosis = "the subject does so";
  known.evidence = {"one line", "another"};
  return known;
}
constexpr const char* kKnownLines =
    "    cause: the subject does so [tail]\n    evidence: one line\n    evidence: another\n";

TEST(ExplanationText, OfSubjectsThatAreRightNamesThemTogether) {
  const Case c = TwoOutputs();
  TestSubject a = Called("a", kExact), b = Called("b", kExact);
  EXPECT_EQ(Explain(c, {&a, &b}), std::string(kDerivationOf0) + "  a, b: 26, all outputs exact\n");
  const Case one = slice::OneOutput(c, 0);
  EXPECT_TRUE(Ends(Explain(one, {&a}), "\n  a: 26, exact\n"));
  EXPECT_EQ(Explain(c, {}), kDerivationOf0);
}

TEST(ExplanationText, IsOfTheFirstOutputThatIsWrong) {
  const Case c = TwoOutputs();
  const Attribution known = Known();
  TestSubject a = Called("a", kExact);
  TestSubject wrong =
      Called("wrong", [](const Case& of, const RunContext&) { return Plus(Right(of), 1, 10); });
  EXPECT_EQ(Explain(c, {&a, &wrong}, {.attribution = &known}),
            std::string(kDerivationOf1) + "  a: -6, all outputs exact\n  wrong: 4, exact is -6\n" +
                kKnownLines);
  EXPECT_EQ(Explain(c, {&a, &wrong}, {.index = 0, .attribution = &known}),
            std::string(kDerivationOf0) +
                "  a: 26, all outputs exact\n  wrong: 26, exact here; departs first at index 1\n" +
                kKnownLines);
  // The first subject that is wrong says which output is looked at.
  TestSubject other =
      Called("other", [](const Case& of, const RunContext&) { return Plus(Right(of), 0, 10); });
  EXPECT_EQ(Explain(c, {&wrong, &other}, {.attribution = &known}),
            std::string(kDerivationOf1) + "  wrong: 4, exact is -6\n" + kKnownLines +
                "  other: -6, exact here; departs first at index 0\n" + kKnownLines);
}

// Without an attribution the subject is asked, in one row of few channels, for its cause.
TEST(ExplanationText, FindsTheCauseOfASubject) {
  Case c = TwoOutputs();
  c.w_q.zero_point = {1};
  const Hypothesis cause = Named({"weight zero point ignored"});
  TestSubject subject =
      Called("wrong", [&](const Case& of, const RunContext&) { return With(of, cause); });
  const std::string text = Explain(c, {&subject});
  EXPECT_TRUE(Has(text, "    cause: the subject ignores the weight zero point [zero-point]\n"));
  EXPECT_TRUE(Has(text, " bear it out"));
  EXPECT_GT(subject.runs, 4);
}

TEST(ExplanationText, OfARecordedAnswerSaysWhoseArithmeticItIs) {
  Case c = TwoOutputs();
  c.observed = Observed{"somebody", Plus(Right(c), 0, 9999)};
  TestSubject a = Called("a", kExact);
  EXPECT_EQ(Explain(c, {&a}), std::string(kDerivationOf0) +
                                  "  observed (somebody): 10025, exact is 26\n"
                                  "    cause: no known cause gives every output [unknown]\n"
                                  "    bit-equal to no known convention\n"
                                  "  a: 26, all outputs exact\n");
  c.observed->y = Right(c);
  const std::string who = BitEqualConventions(c, Right(c));
  EXPECT_NE(who, "");
  EXPECT_EQ(Explain(c, {&a}), std::string(kDerivationOf0) +
                                  "  observed (somebody), a: 26, all outputs exact\n"
                                  "    bit-equal to: " +
                                  who + "\n");
  // A subject that gives the recorded answer is asked for the cause of both.
  const Attribution known = Known();
  c.observed->y = Plus(Right(c), 0, 9999);
  TestSubject same =
      Called("same", [](const Case& of, const RunContext&) { return Plus(Right(of), 0, 9999); });
  EXPECT_EQ(Explain(c, {&same}, {.attribution = &known}),
            std::string(kDerivationOf0) + "  observed (somebody), same: 10025, exact is 26\n" +
                kKnownLines + "    bit-equal to no known convention\n");
}

TEST(ExplanationText, SaysWhyASubjectGaveNoAnswer) {
  const Case c = TwoOutputs();
  TestSubject refuses = Called("refuses", kExact);
  refuses.cannot_run = [](const Case&) { return "too small"; };
  TestSubject crashes(
      [](const Case&, const RunContext&) {
        return Outcome{RunStatus::kCrashed, "SIGSEGV", {}, {}};
      },
      "crashes");
  TestSubject shape =
      Called("shape", [](const Case&, const RunContext&) { return Tensor(DType::kS32, {2, 1}); });
  TestSubject right = Called("right", kExact);
  EXPECT_EQ(Explain(c, {&refuses, &crashes, &shape, &right}),
            std::string(kDerivationOf0) +
                "  right: 26, all outputs exact\n"
                "  refuses: skipped, too small\n"
                "  crashes: crashed, SIGSEGV\n"
                "  shape: the answer has the wrong type or shape\n");
  EXPECT_EQ(refuses.runs, 0);
}

TEST(ExplanationText, OfNoOutputIsShort) {
  Case c = TwoOutputs();
  c.M = 0;
  c.x = Tensor(DType::kU8, {0, 2});
  EXPECT_EQ(Explain(c, {}), "linear M=0 N=2 K=2 u8*s8->s32 per-tensor\n  the output is empty\n");
}

// ---- Pairs.

// So many pairs of products that saturate.
Case SaturatingPairs(int64_t pairs) {
  Case c;
  c.M = c.N = 1, c.K = 2 * pairs;
  c.x = Tensor(DType::kU8, {1, c.K});
  c.w = Tensor(DType::kS8, {1, c.K});
  for (int64_t k = 0; k < c.K; ++k) c.x.SetInt(k, 255), c.w.SetInt(k, 127);
  c.out_q.scale = {4096};
  EXPECT_EQ(Validate(c), "");
  return c;
}
std::string PairAt(int64_t k) {
  return "pair k=(" + std::to_string(k) + "," + std::to_string(k + 1) +
         "): 255*127 + 255*127 = 32385 + 32385 = 64770 -> 32767, lost 32003\n";
}
int64_t CountOf(const std::string& text, const std::string& what) {
  int64_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// The steps of a convention are shown, but of many pairs the first twelve.
TEST(ExplanationText, OfAConventionShowsItsSteps) {
  const Convention& model = *FindConvention("fbgemm@avx2");
  const Attribution known = Known(Kind::kPairSaturation);
  for (const int64_t pairs : {1, 12, 13, 16}) {
    const Case c = SaturatingPairs(pairs);
    TestSubject subject = Called(
        "model:fbgemm@avx2", [&](const Case& of, const RunContext&) { return model.run(of).y; });
    const std::string text = Explain(c, {&subject}, {.attribution = &known});
    std::string steps;
    int64_t left = 12;
    for (const TraceStep& step : model.trace(c, 0)) {
      const bool is_pair = step.text.starts_with("pair ");
      if (!is_pair && left < 0) steps += "    ... (" + std::to_string(-left) + " more pairs)\n";
      left = is_pair ? left - 1 : 12;
      if (left < 0) continue;
      std::string stage(Name(step.stage));
      stage.resize(11, ' ');
      steps += "    " + stage + (step.lossy ? " * " : "   ") + step.text + "\n";
    }
    const std::string exact = ElementText(Right(c), 0), given = ElementText(model.run(c).y, 0);
    EXPECT_TRUE(Has(text, "  model:fbgemm@avx2: " + given + ", exact is " + exact + "\n" + steps +
                              "    cause: the subject does so [pair-saturation]\n    evidence: one "
                              "line\n    evidence: another\n    bit-equal to: fbgemm@avx2, "))
        << text << "\n"
        << steps;
    EXPECT_EQ(CountOf(text, "lost 32003"), std::min<int64_t>(pairs, 12));
  }
}

// Where nothing shows the pairs, they are shown with the cause.
TEST(ExplanationText, OfSaturationShowsThePairs) {
  const Convention& model = *FindConvention("fbgemm@avx2");
  const Attribution known = Known(Kind::kPairSaturation);
  for (const int64_t pairs : {1, 12, 13, 16}) {
    const Case c = SaturatingPairs(pairs);
    TestSubject subject =
        Called("kernel", [&](const Case& of, const RunContext&) { return model.run(of).y; });
    const std::string text = Explain(c, {&subject}, {.attribution = &known});
    std::string lines;
    for (int64_t pair = 0; pair < std::min<int64_t>(pairs, 12); ++pair)
      lines += "    " + PairAt(2 * pair);
    if (pairs > 12) lines += "    ... (" + std::to_string(pairs - 12) + " more pairs)\n";
    EXPECT_TRUE(Has(text, "    evidence: another\n" + lines + "    bit-equal to: "));
    // Another cause has no pairs.
    const Attribution tail = Known();
    EXPECT_EQ(CountOf(Explain(c, {&subject}, {.attribution = &tail}), "lost 32003"), 0);
  }
  // Of an output in the second row and the second channel.
  Case c = SaturatingPairs(1);
  c.M = c.N = 2;
  c.x = Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{0, 0, 255, 254});
  c.w = Tensor::Of<int8_t>({2, 2}, std::vector<int8_t>{0, 1, 127, 126});
  TestSubject subject =
      Called("kernel", [&](const Case& of, const RunContext&) { return model.run(of).y; });
  const std::string text = Explain(c, {&subject}, {.attribution = &known});
  EXPECT_TRUE(Has(
      text, "    pair k=(0,1): 255*127 + 254*126 = 32385 + 32004 = 64389 -> 32767, lost 31622\n"));
  // An operation without pairs.
  Case sums = TwoOutputs();
  sums.w = Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{200, 200, 200, 200});
  sums.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{200, 200});
  ASSERT_EQ(Validate(sums), "");
  TestSubject wrong =
      Called("kernel", [](const Case& of, const RunContext&) { return Plus(Right(of), 0, 7); });
  EXPECT_EQ(CountOf(Explain(sums, {&wrong}, {.attribution = &known}), "pair k"), 0);
}

// A convention that is exact at the shown output, and one that is right, show no steps.
TEST(ExplanationText, ShowsNoStepsWhereTheOutputIsExact) {
  const Convention& model = *FindConvention("fbgemm@avx2");
  Case c = SaturatingPairs(1);
  c.N = 2;
  c.w = Tensor::Of<int8_t>({2, 2}, std::vector<int8_t>{0, 1, 127, 126});
  const Attribution known = Known(Kind::kPairSaturation);
  TestSubject subject = Called("model:fbgemm@avx2",
                               [&](const Case& of, const RunContext&) { return model.run(of).y; });
  const std::string text = Explain(c, {&subject}, {.index = 0, .attribution = &known});
  EXPECT_TRUE(Has(text, "exact here; departs first at index 1\n    cause: "));
}

// An answer that a kernel and a convention give shows the steps of the convention.
TEST(ExplanationText, StepsAreShownIfAnyWhoGaveTheAnswerIsAConvention) {
  const Convention& model = *FindConvention("fbgemm@avx2");
  const Case c = SaturatingPairs(1);
  const Attribution known = Known(Kind::kPairSaturation);
  const auto run = [&](const Case& of, const RunContext&) { return model.run(of).y; };
  TestSubject kernel = Called("kernel", run), convention = Called("model:fbgemm@avx2", run);
  const std::string text = Explain(c, {&kernel, &convention}, {.attribution = &known});
  EXPECT_TRUE(
      Has(text, "  kernel, model:fbgemm@avx2: 8, exact is 16\n    accumulate  * pair k=(0,1)"));
  const std::string turned = Explain(c, {&convention, &kernel}, {.attribution = &known});
  EXPECT_TRUE(
      Has(turned, "  model:fbgemm@avx2, kernel: 8, exact is 16\n    accumulate  * pair k=(0,1)"));
}

// The steps of a convention without pairs show none, even where it loses something later.
TEST(ExplanationText, OfSaturationShowsThePairsUnlessStepsDo) {
  const Convention& model = *FindConvention("fbgemm@vnni");
  const Attribution known = Known(Kind::kPairSaturation);
  Case c = SaturatingPairs(1);
  c.bias_i32 = {{(1 << 24) + 1}};
  ASSERT_EQ(model.cannot_run(c), "");
  const Trace steps = model.trace(c, 0);
  ASSERT_TRUE(std::ranges::any_of(
      steps, [](const TraceStep& step) { return step.stage != Stage::kAccumulate && step.lossy; }));
  ASSERT_TRUE(std::ranges::any_of(steps, [](const TraceStep& step) {
    return step.stage == Stage::kAccumulate && !step.lossy;
  }));
  TestSubject subject = Called("model:fbgemm@vnni", [](const Case& of, const RunContext&) {
    Tensor y = Right(of);
    y.SetInt(0, y.IntAt(0) ^ 1);
    return y;
  });
  EXPECT_EQ(CountOf(Explain(c, {&subject}, {.attribution = &known}), PairAt(0)), 1);
}

// The subject that gave an answer first is asked for its cause.
TEST(ExplanationText, AsksTheFirstSubjectThatGaveTheAnswer) {
  Case c = TwoOutputs();
  c.w_q.zero_point = {1};
  const Hypothesis cause = Named({"weight zero point ignored"});
  const auto run = [&](const Case& of, const RunContext&) { return With(of, cause); };
  TestSubject first = Called("first", run), second = Called("second", run);
  const std::string text = Explain(c, {&first, &second});
  EXPECT_TRUE(Has(text, "  first, second: "));
  EXPECT_GT(first.runs, 1);
  EXPECT_EQ(second.runs, 1);
}

// ---- Windows.

TEST(ExplanationText, OfAnImageNamesThePlace) {
  Case c;
  c.op = Op::kConv2d;
  c.N = 4;
  c.window = {.batch = 2, .in_h = 3, .in_w = 4, .in_c = 4, .kernel_h = 2, .kernel_w = 2};
  c.window.groups = 2;
  c.window.pad_left = 1;
  DeriveSizes(&c);
  c.x = Tensor(DType::kU8, {2, 3, 4, 4});
  c.w = Tensor(DType::kS8, {4, 2, 2, 2});
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  ASSERT_EQ(Validate(c), "");
  // Two rows and four columns of outputs: image 1, row 1, column 2, channel 3 is in group 1.
  const int64_t index = ((1 * 2 + 1) * 4 + 2) * 4 + 3;
  const std::string text = Explain(c, {}, {.index = index});
  EXPECT_TRUE(
      Has(text, "\noutput [image 1, row 1, column 2, channel 3] (index " + std::to_string(index) +
                    "), exact: 0\n"
                    "    window        4 of 4 taps (r,s) lie in the image: (0,0) at [1,1] (0,1) at "
                    "[1,2] (1,0) at [2,1] (1,1) at [2,2]\n"
                    "                  input channels 2..3\n"));
  const std::string edge = Explain(c, {}, {.index = 0});
  EXPECT_TRUE(
      Has(edge,
          "    window        2 of 4 taps (r,s) lie in the image: (0,1) at [0,0] (1,1) at [1,0]\n"
          "                  in the padding: (0,0) (1,0)\n"
          "                  input channels 0..1\n"));
}

TEST(ExplanationText, OfALargeKernelNamesTheFirstTaps) {
  Case c;
  c.op = Op::kAvgPool;
  c.N = 1;
  for (const int64_t columns : {32, 33, 40}) {
    c.window = {
        .batch = 1, .in_h = 1, .in_w = columns, .in_c = 1, .kernel_h = 1, .kernel_w = columns};
    DeriveSizes(&c);
    c.x = Tensor(DType::kU8, {1, 1, columns, 1});
    ASSERT_EQ(Validate(c), "");
    const std::string text = Explain(c, {}, {.index = 0});
    const std::string count = std::to_string(columns);
    EXPECT_TRUE(Has(text, "    window        " + count + " of " + count +
                              " taps (r,s) lie in the image: (0,0) at [0,0] "));
    EXPECT_TRUE(Has(text, "(0,31) at [0,31]" +
                              (columns > 32 ? " ... (" + std::to_string(columns - 32) + " more)\n"
                                            : std::string("\n"))));
    EXPECT_EQ(CountOf(text, "(0,32)"), 0);
    EXPECT_EQ(CountOf(text, "input channels"), 0) << "a pool takes one channel";
    EXPECT_EQ(CountOf(text, "padding"), 0);
  }
}

TEST(ExplanationText, OfAWindowInThePaddingAlone) {
  Case c;
  c.op = Op::kConv2d;
  c.N = 1;
  c.window = {.batch = 1, .in_h = 1, .in_w = 1, .in_c = 1};
  c.window.pad_left = 1;
  DeriveSizes(&c);
  c.x = Tensor(DType::kU8, {1, 1, 1, 1});
  c.w = Tensor(DType::kS8, {1, 1, 1, 1});
  ASSERT_EQ(Validate(c), "");
  EXPECT_TRUE(Has(Explain(c, {}, {.index = 0}),
                  "    window        0 of 1 taps (r,s) lie in the image: -\n                  "
                  "in the padding: (0,0)\n"));
}

// ---- A finding that is completed.

TEST(CompletedFinding, HoldsKindDivergenceAndEachSentenceOnce) {
  Finding finding(TwoOutputs(), "matches_exact", "test", {});
  Verdict verdict = Verdict::Failed("departs", Divergence{1, "-6", "4", 10});
  Attribution attribution = Known();
  attribution.evidence = {"departs", "", "one line"};
  Complete(finding, verdict, attribution);
  EXPECT_EQ(finding.kind, Kind::kTail);
  EXPECT_EQ(finding.first_divergence, verdict.divergence);
  EXPECT_EQ(finding.explanation, "departs; the subject does so; one line");
}

TEST(CompletedFinding, IsJudgedOnceMoreByItsProperty) {
  const Hypothesis cause = Named({"weight zero point ignored"});
  TestSubject subject = Kernel(cause);
  Case c = TwoOutputs();
  c.w_q.zero_point = {1};
  Finding finding(c, "matches_exact", "test", {});
  Complete(finding, subject, Verdict::Failed("departs"));
  EXPECT_EQ(finding.kind, Kind::kZeroPoint);
  EXPECT_TRUE(Begins(finding.explanation, "departs; the subject ignores the weight zero point; "));
  // The property asks once; then memory and earlier questions are looked at.
  EXPECT_EQ(subject.runs, 4);
  // A claim that is no property, such as that of a recording: the case and its sweep are asked.
  subject.runs = 0;
  Finding other(c, "named_arithmetic", "test", {});
  Complete(other, subject, Verdict::Failed("departs"));
  EXPECT_EQ(other.kind, Kind::kZeroPoint);
  EXPECT_EQ(subject.runs, 2);
}

}  // namespace
}  // namespace qualm::triage
