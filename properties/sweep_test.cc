// SPDX-License-Identifier: Apache-2.0
#include "properties/sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "core/rng.h"
#include "core/slice.h"
#include "core/status.h"
#include "core/text_test_util.h"
#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"
#include "properties/test_subject.h"

namespace qualm::sweep {
namespace {

// All pairs, no cleverness: for i != j, low_i - high_j <= a (x_i - x_j); exact fractions of 64
// bits.
bool HasStabbingLineByElimination(const std::vector<int32_t>& x, const std::vector<int32_t>& y,
                                  int32_t lo, int32_t hi) {
  struct Fraction {
    int64_t p, q;  // q > 0
  };
  const auto less = [](const Fraction& a, const Fraction& b) { return a.p * b.q < b.p * a.q; };
  std::optional<Fraction> at_least, at_most;
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) {
      if (y[i] <= lo || y[j] >= hi) continue;  // no lower bound at i, or no upper bound at j
      const int64_t rise = (2 * int64_t{y[i]} - 1) - (2 * int64_t{y[j]} + 1);
      const int64_t run = int64_t{x[i]} - x[j];
      if (run == 0) {
        if (rise > 0) return false;
      } else if (run > 0) {
        const Fraction bound{rise, run};
        if (!at_least || less(*at_least, bound)) at_least = bound;
      } else {
        const Fraction bound{-rise, -run};
        if (!at_most || less(bound, *at_most)) at_most = bound;
      }
    }
  }
  return !at_least || !at_most || !less(*at_most, *at_least);
}

TEST(StabbingLine, AgreesWithEliminationOfAllPairs) {
  Rng rng(1);
  int64_t yes = 0, no = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const auto count = static_cast<size_t>(rng.Between(1, 12));
    const int32_t lo = static_cast<int32_t>(rng.Between(-6, 0));
    const int32_t hi = static_cast<int32_t>(rng.Between(1, 8));
    std::vector<int32_t> x, y;
    const int64_t slope = rng.Between(-8, 8), offset = rng.Between(-20, 20);
    for (size_t i = 0; i < count; ++i) {
      x.push_back(static_cast<int32_t>(3 * i));
      // Near a line, so that both answers are common.
      const int64_t value =
          (slope * x.back() + offset) / 8 + (rng.Chance(1, 6) ? rng.Between(-1, 1) : 0);
      y.push_back(static_cast<int32_t>(std::clamp<int64_t>(value, lo, hi)));
    }
    const bool expected = HasStabbingLineByElimination(x, y, lo, hi);
    (expected ? yes : no) += 1;
    ASSERT_EQ(HasStabbingLine(x, y, lo, hi), expected) << "trial " << trial;
  }
  EXPECT_GT(yes, 2000);
  EXPECT_GT(no, 500);
}

TEST(StabbingLine, AClampedEndConstrainsOneSideOnly) {
  EXPECT_TRUE(HasStabbingLine({0, 1, 2, 3}, {0, 0, 0, 5}, 0, 255));
  EXPECT_FALSE(HasStabbingLine({0, 1, 2, 3}, {1, 1, 1, 5}, 0, 255));
  EXPECT_TRUE(HasStabbingLine({0, 1, 2, 3}, {7, 7, 7, 7}, 7, 7));
}

TEST(StabbingLine, HasOneValueAtACode) {
  EXPECT_TRUE(HasStabbingLine({3, 3}, {1, 2}, 0, 255)) << "1.5 rounds to both";
  EXPECT_FALSE(HasStabbingLine({3, 3}, {1, 3}, 0, 255));
  EXPECT_FALSE(HasStabbingLine({3, 9, 3}, {1, 2, 9}, 0, 255));
}

TEST(StabbingLine, ASlopeThatDropsByOneIsSeenOnceItAddsUp) {
  // Slope 2 up to x = 100, 1 after: the plateau that pair saturation makes.
  std::vector<int32_t> x, y;
  for (int32_t code = 0; code < 110; ++code) {
    x.push_back(code);
    y.push_back(code <= 100 ? 2 * code : 200 + (code - 100));
  }
  EXPECT_FALSE(HasStabbingLine(x, y, -1000, 1000));
}

// Answers as `inner` does, but output 9 is wrong for the codes from `first` to 20, long before any
// pair saturates.
class Wrong : public BasicSubject {
 public:
  Wrong(Subject& inner, int64_t first) : inner_(inner), first_(first) {}
  std::string_view name() const override { return "foreign"; }
  std::string CannotRun(const Case&) const override { return ""; }
  Outcome Run(const Case& c, const RunContext& context) override {
    Outcome outcome = inner_.Run(c, context);
    for (int64_t i = 10 * first_ + 9; i <= 10 * 20 + 9; i += 10)
      outcome.y.SetInt(i, outcome.y.IntAt(i) == 255 ? 251 : outcome.y.IntAt(i) + 4);
    return outcome;
  }

 private:
  Subject& inner_;
  int64_t first_;
};

class ForumSweep : public testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterAllSubjects(); }

  Result RunOn(const std::string& name) {
    const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make(name);
    return sweep::Run(base_, *subject, Codes(base_, 0, 255, 1));
  }
  template <class Predicate>
  std::set<int64_t> Which(const Result& result, const Predicate& predicate) {
    std::set<int64_t> outputs;
    for (const Curve& curve : result.curves) {
      if (predicate(curve)) outputs.insert(curve.n);
    }
    return outputs;
  }
  static bool Bent(const Curve& c) { return !c.monotone; }
  static bool Kinked(const Curve& c) { return !c.linear; }

  Case base_ = ReadCaseFile(QUALM_SOURCE_DIR "/corpus/forum/000-linear-sweep.case.json");
};

TEST_F(ForumSweep, TheConventionOfFbgemmIsTheRecordedSweep) {
  const Result result = RunOn("model:fbgemm@avx2");
  ASSERT_EQ(result.curves.size(), 10u);
  ASSERT_TRUE(base_.observed);
  for (int64_t i = 0; i < base_.observed->y.size(); ++i) {
    const Curve& curve = result.curves[static_cast<size_t>(i % 10)];
    ASSERT_EQ(curve.y[static_cast<size_t>(i / 10)], base_.observed->y.IntAt(i)) << i;
  }
}

TEST_F(ForumSweep, FbgemmBendsExactlyWhereTheThreadSaw) {
  const Result result = RunOn("model:fbgemm@avx2");
  EXPECT_EQ(Which(result, Bent), (std::set<int64_t>{0, 3, 7, 8}));
  EXPECT_EQ(Which(result, Kinked), (std::set<int64_t>{0, 1, 3, 5, 6, 7, 8}));
  const auto latent_only = [](const Curve& curve) {
    for (const KinkReport& report : curve.kinks) {
      if (report.visible) return false;
    }
    return !curve.kinks.empty();
  };
  EXPECT_EQ(Which(result, latent_only), (std::set<int64_t>{2, 4, 9}));
  EXPECT_TRUE(Which(result, [](const Curve& c) { return !c.unexplained.empty(); }).empty());

  std::set<int32_t> last_exact;
  for (const KinkReport& report : result.curves[0].kinks) {
    last_exact.insert(report.kink.last_exact_code);
  }
  EXPECT_EQ(last_exact, (std::set<int32_t>{181, 186}));
}

TEST_F(ForumSweep, ExactSubjectsAreStraight) {
  for (const std::string& name : SubjectRegistry::Get().Expand("native@all")) {
    const Result result = RunOn(name);
    EXPECT_TRUE(Which(result, Bent).empty()) << name;
    EXPECT_TRUE(Which(result, Kinked).empty()) << name;
    EXPECT_TRUE(Which(result, [](const Curve& c) { return c.y != c.exact; }).empty()) << name;
  }
  const Result qnnpack = RunOn("model:qnnpack");
  EXPECT_TRUE(Which(qnnpack, Kinked).empty());
}

TEST_F(ForumSweep, AKinkThatNothingPredictsIsReported) {
  // The same curve without the weights that would explain it: every departure is unexplained.
  const std::unique_ptr<Subject> inner = SubjectRegistry::Get().Make("model:fbgemm@vnni");
  Wrong foreign(*inner, 0);
  const Result result = sweep::Run(base_, foreign, Codes(base_, 0, 255, 1));
  EXPECT_EQ(result.curves[9].unexplained.size(), 21u);
  EXPECT_TRUE(result.curves[8].unexplained.empty());
}

TEST_F(ForumSweep, TheLastExactCodeIsTheOneBeforeTheFirstDeparture) {
  const std::unique_ptr<Subject> inner = SubjectRegistry::Get().Make("model:fbgemm@vnni");
  const auto last_exact = [&](int64_t first) {
    Wrong foreign(*inner, first);
    return sweep::Run(base_, foreign, Codes(base_, 0, 255, 1)).curves[9].last_exact_code;
  };
  EXPECT_EQ(last_exact(5), 4);
  EXPECT_EQ(last_exact(1), 0);
  EXPECT_EQ(last_exact(0), std::nullopt) << "no code before the first one is exact";
  EXPECT_EQ(last_exact(21), std::nullopt) << "no code departs";
}

TEST(SweepCodes, RefusesWhatTheTypeDoesNotHold) {
  Case c;
  c.x = Tensor(DType::kU8, {1, 0});
  EXPECT_EQ(Codes(c, 0, 10, 5), (std::vector<int32_t>{0, 5, 10}));
  EXPECT_THROW(Codes(c, -1, 10, 1), InputError);
  EXPECT_THROW(Codes(c, 0, 256, 1), InputError);
  EXPECT_THROW(Codes(c, 9, 3, 1), InputError);
  EXPECT_THROW(Codes(c, 0, 10, 0), InputError);
  EXPECT_EQ(Codes(c, 0, 2, 1).size(), 3u);
  EXPECT_EQ(Codes(c, 0, 255, 127), (std::vector<int32_t>{0, 127, 254}));
}

TEST(SweepCodes, RefusesFewerThanThree) {
  Case c;
  c.x = Tensor(DType::kS8, {1, 0});
  EXPECT_EQ(Refusal([&] { Codes(c, 5, 6, 1); }),
            "--from/--to/--step: leave 2 codes, expected at least 3: fewer never bend");
  EXPECT_NE(Refusal([&] { Codes(c, 5, 5, 1); }).find("leave 1 codes"), std::string::npos);
  EXPECT_NE(Refusal([&] { Codes(c, 9, 3, 1); }).find("from <= to"), std::string::npos);
  EXPECT_EQ(Refusal([&] { Codes(c, -128, 128, 1); }),
            "--from/--to/--step: expected -128 <= from <= to <= 127 and step >= 1");
}

TEST(Sweep, StartsFromThePixelThatSeesMostOfTheImage) {
  const auto inside = [](const Case& c, int64_t m) {
    const std::vector<Tap> taps = TapsOf(c.window, m);
    return std::ranges::count_if(taps, [](const Tap& tap) { return tap.x_row >= 0; });
  };
  int more_than_the_first = 0;
  for (const Op op : {Op::kConv2d, Op::kDepthwise}) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const Case c = gen::Draw(op, seed);
      if (c.M == 0) {
        EXPECT_EQ(OneRow(c), ProblemOf(c)) << "there is none";
        continue;
      }
      int64_t most = 0;
      for (int64_t m = 0; m < c.M; ++m) most = std::max<int64_t>(most, inside(c, m));
      more_than_the_first += most > inside(c, 0);
      const Case one = OneRow(c);
      EXPECT_EQ(one.M, 1) << Describe(c);
      EXPECT_EQ(inside(one, 0), most) << Describe(c);
    }
  }
  EXPECT_GT(more_than_the_first, 10);
  const Case linear = gen::Draw(Op::kLinear, 1);
  EXPECT_EQ(OneRow(linear), ProblemOf(linear));
}

TEST(Sweep, OfNoCodesHasNoRows) {
  for (const Op op : {Op::kLinear, Op::kConv2d}) {
    const Case base = OneRow(gen::Draw(op, gen::Theme::kUniform, 1));
    const Case none = Expand(base, {});
    EXPECT_EQ(none.M, 0);
    EXPECT_EQ(Validate(none), "");
  }
}

TEST(Sweep, RefusesWhatHasNoCurve) {
  TestSubject subject;
  const auto refusal = [&](const Case& c) {
    return Refusal([&] { sweep::Run(c, subject, {1, 2, 3}); });
  };
  EXPECT_EQ(refusal(gen::Draw(Op::kAdd, 1)), "op: a sweep needs linear or a convolution");
  Case conv = gen::Draw(Op::kConv2d, gen::Theme::kUniform, 1);
  conv = slice::Batches(conv, {});
  ASSERT_EQ(conv.M, 0);
  EXPECT_EQ(refusal(conv), "M: a sweep needs an output pixel");
  Case real = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  real.out_dtype = DType::kF32;
  EXPECT_EQ(refusal(real), "out_dtype: a sweep needs an integer output");
  EXPECT_EQ(subject.runs, 0);
}

TEST(Sweep, SaysWhyASubjectWasNotSwept) {
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  TestSubject subject([](const Case&, const RunContext&) {
    Outcome outcome;
    outcome.status = RunStatus::kCrashed;
    outcome.detail = "signal 11";
    return outcome;
  });
  EXPECT_EQ(sweep::Run(c, subject, {1, 2, 3}).skipped, "crashed: signal 11");
  subject.cannot_run = [](const Case& asked) { return asked.M == 3 ? "three rows" : ""; };
  EXPECT_EQ(sweep::Run(c, subject, {1, 2, 3}).skipped, "three rows");
  EXPECT_EQ(subject.runs, 1) << "what it refuses is not asked";
  TestSubject exact;
  const Result result = sweep::Run(c, exact, {1, 2, 3});
  EXPECT_EQ(result.skipped, "");
  EXPECT_EQ(std::ssize(result.curves), c.N);
}

TEST(Sweep, TellsWhoWasSweptAndWhere) {
  Case linear = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  linear = slice::Rows(linear, {});  // a sweep has rows of its own
  const Case conv = gen::Draw(Op::kConv2d, gen::Theme::kUniform, 1);
  for (const Case& c : {linear, conv}) {
    ASSERT_NE(c.out_dtype, DType::kF32);
    TestSubject subject;
    const std::vector<int32_t> codes{1, 50, 100};
    const Result result = sweep::Run(c, subject, codes);
    EXPECT_EQ(result.subject, "test");
    EXPECT_EQ(result.codes, codes);
    ASSERT_EQ(std::ssize(result.curves), c.N);
    const Tensor exact = exact::Evaluate(Expand(OneRow(c), codes));
    for (int64_t n = 0; n < c.N; ++n) {
      const Curve& curve = result.curves[static_cast<size_t>(n)];
      EXPECT_EQ(curve.n, n);
      EXPECT_EQ(curve.y, curve.exact);
      EXPECT_EQ(curve.last_exact_code, std::nullopt);
      for (int64_t row = 0; row < 3; ++row)
        EXPECT_EQ(curve.y[static_cast<size_t>(row)], exact.IntAt(row * c.N + n));
    }
  }
}

// Products of two neighbours in a saturating int16, of u8 codes: what FBGEMM makes of s8 too.
Outcome InPairs(const Case& c, const RunContext&) {
  std::vector<__int128> sums = exact::CorrectedSums(c);
  for (int64_t i = 0; i < c.M * c.N; ++i) {
    for (const headroom::Pair& pair : headroom::SaturatingPairs(c, i / c.N, i % c.N))
      sums[static_cast<size_t>(i)] -= pair.lost();
  }
  return TestSubject::Good(exact::EvaluateFromSums(c, sums));
}

// Channel 0 leaves int16 behind u8 code 163 (201 * 163 = 32763), channel 1 behind 218 downwards
// (-150 * 218 = -32700), channel 2 never.
Case Paired(DType dtype) {
  Case c;
  c.op = Op::kLinear;
  c.M = 1;
  c.N = 3;
  c.K = 2;
  c.x = Tensor(dtype, {1, 2});
  c.w = Tensor::Of<int8_t>({3, 2}, std::vector<int8_t>{101, 100, -75, -75, 64, 64});
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  return c;
}

TEST(Sweep, PairsThatSaturateExplainTheirKinksAndNothingElse) {
  for (const DType dtype : {DType::kU8, DType::kS8}) {
    const Case base = Paired(dtype);
    ASSERT_EQ(Validate(base), "");
    const CodeRange range = RangeOf(dtype);
    const std::vector<int32_t> codes = Codes(base, range.min, range.max, 1);
    const auto sweep = [&](int64_t n, int32_t u8_code, int32_t off) {
      TestSubject subject([&](const Case& c, const RunContext& context) {
        Outcome outcome = InPairs(c, context);
        const int64_t at = u8_code * c.N + n;
        outcome.y.SetInt(at, outcome.y.IntAt(at) + off);
        return outcome;
      });
      return sweep::Run(base, subject, codes);
    };
    const Result kinked = sweep(0, 0, 0);
    const int32_t last[]{163, 218};
    for (size_t n = 0; n < 3; ++n) {
      const Curve& curve = kinked.curves[n];
      EXPECT_TRUE(curve.unexplained.empty()) << Name(dtype) << n;
      EXPECT_EQ(curve.direction, n == 1 ? -1 : 1);
      EXPECT_EQ(curve.linear, n == 2) << Name(dtype) << n;
      ASSERT_EQ(curve.kinks.size(), n == 2 ? 0u : 1u) << Name(dtype) << n;
      if (n == 2) continue;
      EXPECT_EQ(curve.kinks[0].kink.last_exact_code, last[n]);
      EXPECT_TRUE(curve.kinks[0].visible);
      EXPECT_EQ(curve.kinks[0].state(), "visible");
      EXPECT_EQ(curve.last_exact_code, last[n] + range.min);
      const auto unexplained = [&](int32_t u8_code, int32_t off) {
        return sweep(static_cast<int64_t>(n), u8_code, off).curves[n].unexplained;
      };
      // Behind the kink a convention may round otherwise by one.
      const std::vector<int32_t> none;
      for (const int32_t off : {1, -1}) {
        EXPECT_EQ(unexplained(last[n] + 1, off), none) << Name(dtype) << n;
        EXPECT_EQ(unexplained(255, off), none);
        EXPECT_EQ(unexplained(last[n] + 1, 2 * off),
                  (std::vector<int32_t>{last[n] + 1 + range.min}));
        EXPECT_EQ(unexplained(255, 2 * off), (std::vector<int32_t>{255 + range.min}));
        EXPECT_EQ(unexplained(last[n], off), (std::vector<int32_t>{last[n] + range.min}));
        EXPECT_EQ(unexplained(0, off), (std::vector<int32_t>{range.min}));
      }
    }
  }
  // Behind the kink from the first code on.
  const Case late = Paired(DType::kU8);
  TestSubject pairs(InPairs);
  const Result behind = sweep::Run(late, pairs, Codes(late, 230, 255, 1));
  for (const size_t n : {size_t{0}, size_t{1}}) {
    EXPECT_TRUE(behind.curves[n].unexplained.empty()) << n;
    EXPECT_TRUE(behind.curves[n].kinks[0].visible);
    EXPECT_NE(behind.curves[n].y[0], behind.curves[n].exact[0]);
    EXPECT_EQ(behind.curves[n].last_exact_code, std::nullopt);
  }
  // Only s8 weights are multiplied in pairs.
  Case unsigned_weights = Paired(DType::kU8);
  unsigned_weights.w = Tensor(DType::kU8, {3, 2});
  for (int64_t i = 0; i < 6; ++i) unsigned_weights.w.SetInt(i, 200);
  ASSERT_EQ(Validate(unsigned_weights), "");
  TestSubject exact;
  const std::vector<int32_t> codes = Codes(unsigned_weights, 0, 255, 1);
  for (const Curve& curve : sweep::Run(unsigned_weights, exact, codes).curves)
    EXPECT_TRUE(curve.kinks.empty());
  // A clamp below the kink hides it.
  Case hidden = Paired(DType::kU8);
  hidden.out_max = 30'000;
  TestSubject subject(InPairs);
  const Result result = sweep::Run(hidden, subject, Codes(hidden, 0, 255, 1));
  ASSERT_EQ(result.curves[0].kinks.size(), 1u);
  EXPECT_EQ(result.curves[0].kinks[0].state(), "latent");
  EXPECT_TRUE(result.curves[0].unexplained.empty());
}

TEST(Sweep, ExactCurvesAreThoseOfTheExpandedCase) {
  int64_t compared = 0;
  for (const Op op : {Op::kLinear, Op::kConv2d, Op::kDepthwise}) {
    for (uint64_t seed = 0; seed < 150; ++seed) {
      const Case c = gen::Draw(op, seed);
      if (c.M == 0 || c.N == 0 || c.K == 0 || c.K > 2000) continue;
      const Case base = sweep::OneRow(c);
      const CodeRange range = RangeOf(base.x.dtype());
      const std::vector<int32_t> codes = sweep::Codes(base, range.min, range.max, 17);
      const Tensor y = exact::Evaluate(sweep::Expand(base, codes));
      for (int64_t n = 0; n < base.N; n += 5) {
        const Tensor curve = sweep::ExactCurve(base, n, codes);
        for (size_t i = 0; i < codes.size(); ++i, ++compared) {
          const auto row = static_cast<int64_t>(i);
          ASSERT_EQ(curve.BitsAt(row), y.BitsAt(row * base.N + n)) << Describe(c) << " n=" << n;
        }
      }
    }
  }
  EXPECT_GT(compared, 10000);
}

}  // namespace
}  // namespace qualm::sweep
