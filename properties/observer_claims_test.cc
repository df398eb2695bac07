// SPDX-License-Identifier: Apache-2.0
// Claims about the choice of scales and zero points, at their edges: answers just outside fail,
// just inside do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "properties/property.h"
#include "properties/spoiled_subject.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

using Kind = Observer::Kind;
using Floats = std::vector<float>;

constexpr float kFloor = 0x1p-23f;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Case Observing(int64_t batches, int64_t rows, const Floats& values, bool per_channel = false) {
  Case c;
  c.op = Op::kChooseQParams;
  c.M = rows;
  c.N = static_cast<int64_t>(values.size()) / (batches * rows);
  c.x = Tensor::Of<float>({batches, c.M, c.N}, values);
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  c.per_channel = per_channel;
  return c;
}

Floats UpTo(int64_t count) {
  Floats values;
  for (int64_t i = 1; i <= count; ++i) values.push_back(static_cast<float>(i));
  return values;
}

struct Chosen {
  Floats scales, zero_points;
};
Tensor AsTensor(const Chosen& chosen) {
  Floats values = chosen.scales;
  values.insert(values.end(), chosen.zero_points.begin(), chosen.zero_points.end());
  return Tensor::Of<float>({2, static_cast<int64_t>(chosen.scales.size())}, values);
}

// The verdict on a subject that chooses so.
Verdict JudgeChoice(const char* claim, const Case& c,
                    const std::function<Chosen(const Case&)>& choose) {
  EXPECT_EQ(Validate(c), "") << claim;
  TestSubject subject([&](const Case& problem, const RunContext&) {
    return TestSubject::Good(AsTensor(choose(problem)));
  });
  return Judge(*FindProperty(claim), c, subject);
}
Verdict JudgeChoice(const char* claim, const Case& c, const Chosen& chosen) {
  return JudgeChoice(claim, c, [&](const Case&) { return chosen; });
}

std::multiset<float> Values(const Case& c, int64_t first, int64_t count) {
  std::multiset<float> values;
  for (int64_t i = first; i < first + count; ++i) values.insert(c.x.FloatAt(i));
  return values;
}

TEST(ValuePermutation, KeepsRowsPerChannelAndBatchesButThoseOfMinMax) {
  for (const Kind kind : {Kind::kMinMax, Kind::kMovingAverage, Kind::kHistogram}) {
    for (const bool per_channel : {false, true}) {
      if (per_channel && kind == Kind::kHistogram) continue;
      int batches_moved = 0, rows_mixed = 0;
      for (int64_t size = 4; size < 12; ++size) {
        Case c = Observing(3, 2, UpTo(3 * 2 * size), per_channel);
        c.observer.kind = kind;
        const std::vector<Case> asked = AskedBy("value_permutation", c).problems;
        ASSERT_EQ(asked.size(), 2u);
        EXPECT_FALSE(asked[1].x == c.x);
        for (int64_t b = 0; b < 3; ++b) {
          const std::multiset<float> batch = Values(asked[1], b * 2 * size, 2 * size);
          std::set<int64_t> from;  // batches that these values come from
          for (const float value : batch)
            from.insert((static_cast<int64_t>(value) - 1) / (2 * size));
          ASSERT_EQ(from.size(), 1u) << "batches are mixed";
          EXPECT_EQ(batch, Values(c, *from.begin() * 2 * size, 2 * size));
          batches_moved += *from.begin() != b;
          for (int64_t m = 0; m < 2; ++m) {
            const auto row = Values(asked[1], (b * 2 + m) * size, size);
            rows_mixed += row != Values(c, (*from.begin() * 2 + m) * size, size);
          }
        }
      }
      EXPECT_EQ(batches_moved > 0, kind == Kind::kMinMax) << Name(kind);
      EXPECT_EQ(rows_mixed > 0, !per_channel) << Name(kind);
    }
  }
  Spoiled subject;
  EXPECT_EQ(
      Judge(*FindProperty("value_permutation"), Observing(2, 1, Floats(8, 3.0f)), subject).reason,
      "the permutation changes nothing");
}

TEST(Doubling, ClaimsTwiceTheScaleAndTheSameZeroPoint) {
  const Case c = Observing(1, 3, UpTo(12), true);
  const auto judge = [&](const Floats& scales, const Floats& zero_points) {
    return JudgeChoice("doubling", c, [&](const Case& problem) {
      return problem == c ? Chosen{{1, 2, 3}, {4, 5, 6}} : Chosen{scales, zero_points};
    });
  };
  EXPECT_EQ(judge({2, 4, 6}, {4, 5, 6}).judgement, Judgement::kPassed);
  for (size_t m = 0; m < 3; ++m) {
    for (const bool scale : {true, false}) {
      Floats scales{2, 4, 6}, zero_points{4, 5, 6};
      (scale ? scales : zero_points)[m] += 1;
      const Verdict verdict = judge(scales, zero_points);
      ASSERT_TRUE(verdict.failed()) << m << scale;
      EXPECT_EQ(verdict.divergence->index, static_cast<int64_t>(m) + (scale ? 0 : 3));
    }
  }
}

TEST(Doubling, ClaimsNothingAtTheFloorOrBeyondTheLargestFloat) {
  // Channel 0 or 1 is special, the other one is not.
  for (const size_t special : {size_t{0}, size_t{1}}) {
    const auto judge = [&](const Floats& row, float scale, size_t wrong) {
      Floats values(2 * row.size(), 1.0f);
      std::ranges::copy(row, values.begin() + static_cast<std::ptrdiff_t>(special * row.size()));
      const Case c = Observing(1, 2, values, true);
      return JudgeChoice("doubling", c, [&](const Case& problem) {
        Chosen chosen{{1, 1}, {0, 0}};
        chosen.scales[special] = scale;
        if (problem == c) return chosen;
        for (float& one : chosen.scales) one *= 2;
        chosen.scales[wrong] *= 3;
        return chosen;
      });
    };
    EXPECT_TRUE(judge({1, 1}, 1, special).failed());
    EXPECT_FALSE(judge({1, 1}, kFloor, special).failed()) << "the floor stays where it is";
    EXPECT_TRUE(judge({1, 1}, std::nextafter(kFloor, 1.0f), special).failed());
    // Doubled, the values do not overflow, but their range does.
    for (const Floats& wide : {Floats{-0x1p126f, 0x1p126f}, Floats{0x1p126f, -0x1p126f}}) {
      EXPECT_FALSE(judge(wide, 1, special).failed());
      EXPECT_TRUE(judge(wide, 1, 1 - special).failed()) << "the other channel is judged";
    }
    EXPECT_TRUE(judge({-0x1p125f, 0x1p126f}, 1, special).failed());
    EXPECT_TRUE(judge({0x1p126f, 0x1p126f}, 1, special).failed()) << "a range begins at 0";
    EXPECT_TRUE(judge({-0x1p126f, -0x1p126f}, 1, special).failed());
    EXPECT_EQ(judge({1, 0x1p127f}, 1, special).reason, "a doubled value overflows");
    EXPECT_EQ(judge({-0x1p127f, 1}, 1, special).reason, "a doubled value overflows");
  }
  // A row does not reach into the next one.
  const Case apart = Observing(1, 2, {-0x1p126f, 1, 0x1p126f, 1}, true);
  for (const size_t wrong : {size_t{0}, size_t{1}}) {
    EXPECT_TRUE(JudgeChoice("doubling", apart,
                            [&](const Case& problem) {
                              Chosen chosen{{1, 1}, {0, 0}};
                              if (problem == apart) return chosen;
                              chosen.scales = {2, 2};
                              chosen.scales[wrong] = 3;
                              return chosen;
                            })
                    .failed())
        << wrong;
  }
  // Per tensor all batches and rows make up one range.
  for (size_t low = 0; low < 8; ++low) {
    for (size_t high = 0; high < 8; ++high) {
      if (low == high) continue;
      Floats values(8, 1.0f);
      values[low] = -0x1p126f;
      values[high] = 0x1p126f;
      const Verdict verdict = JudgeChoice("doubling", Observing(2, 2, values), {{1}, {0}});
      EXPECT_EQ(verdict.reason, "all scales are at the floor") << low << high;
    }
  }
  EXPECT_EQ(JudgeChoice("doubling", Observing(1, 1, {0, 0}), {{kFloor}, {0}}).judgement,
            Judgement::kVacuous);
}

TEST(RowsAreTensors, AsksAboutTheLastRowAndAnotherPerTensor) {
  int judged = 0;
  for (int64_t size = 1; size < 12; ++size) {
    const Case c = Observing(2, 3, UpTo(6 * size), true);
    const std::vector<Case> asked = AskedBy("rows_are_tensors", c).problems;
    ASSERT_EQ(asked.size(), 3u);
    for (const size_t run : {size_t{1}, size_t{2}}) {
      EXPECT_FALSE(asked[run].per_channel);
      EXPECT_EQ(asked[run].M, 1);
      Spoiled wrong([&](size_t at, const Case&, const RunContext&, Outcome& outcome) {
        if (at == run) Spoil(outcome.y, 0);
      });
      EXPECT_TRUE(Judge(*FindProperty("rows_are_tensors"), c, wrong).failed()) << run;
    }
    EXPECT_EQ(asked[1].x.FloatAt(0), static_cast<float>(2 * size + 1)) << "the last row";
    judged += !(asked[1] == asked[2]);
  }
  EXPECT_GT(judged, 3);
}

TEST(ZeroIsRepresentable, ByACodeAndAScaleNotBelowTheFloor) {
  const struct {
    float scale, zero_point;
    const char* wrong;
  } rows[]{{1, 0, ""},
           {1, -128, ""},
           {1, 127, ""},
           {kFloor, 0, ""},
           {kInf, 0, ""},
           {std::nextafter(kFloor, 0.0f), 0, "a scale lies below its floor"},
           {0, 0, "a scale lies below its floor"},
           {-1, 0, "a scale lies below its floor"},
           {kNan, 0, "a scale lies below its floor"},
           {1, -129, "no code stands for 0"},
           {1, 128, "no code stands for 0"},
           {1, 0.5f, "no code stands for 0"},
           {1, -0.5f, "no code stands for 0"},
           {1, -0.0f, "no code stands for 0"},
           {1, kNan, "no code stands for 0"}};
  for (const auto& [scale, zero_point, wrong] : rows) {
    for (const size_t at : {size_t{0}, size_t{2}}) {
      Case c = Observing(1, 3, UpTo(12), true);
      c.observer.dtype = DType::kS8;
      c.observer.quant_min = -128;
      c.observer.quant_max = 127;
      Chosen chosen{{1, 1, 1}, {5, 5, 5}};
      chosen.scales[at] = scale;
      chosen.zero_points[at] = zero_point;
      const Verdict verdict = JudgeChoice("zero_is_representable", c, chosen);
      const std::string what = wrong;
      ASSERT_EQ(verdict.failed(), !what.empty()) << scale << " " << zero_point;
      if (what.empty()) continue;
      EXPECT_EQ(verdict.reason.find(what), 0u) << verdict.reason;
      const bool of_scale = what.starts_with("a scale");
      const size_t index = at + (of_scale ? 0 : 3);
      EXPECT_EQ(verdict.divergence->index, static_cast<int64_t>(index));
      EXPECT_EQ(verdict.divergence->actual,
                ElementText(AsTensor(chosen), static_cast<int64_t>(index)));
      EXPECT_EQ(verdict.divergence->expected, of_scale ? ">= 0x1p-23" : "a code of [-128, 127]");
    }
  }
  Case reduced = Observing(1, 1, {1, 2});
  reduced.observer.reduce_range = true;
  EXPECT_FALSE(JudgeChoice("zero_is_representable", reduced, {{1}, {127}}).failed());
  EXPECT_TRUE(JudgeChoice("zero_is_representable", reduced, {{1}, {128}}).failed());
}

TEST(RangeIsCovered, WithinHalfAStepOfTheCodes) {
  constexpr float kSlack = 0.5f + 0x1p-10f;
  const struct {
    float value;
    bool covered;
  } rows[]{{0, true},
           {255, true},
           {255 + kSlack, true},
           {std::nextafter(255 + kSlack, kInf), false},
           {-kSlack, true},
           {std::nextafter(-kSlack, -kInf), false}};
  for (const auto& [value, covered] : rows) {
    for (const size_t at : {size_t{0}, size_t{7}}) {
      Floats values(8, 100.0f);
      values[at] = value;
      for (const bool per_channel : {false, true}) {
        const Case c = Observing(2, 2, values, per_channel);
        const Verdict verdict = JudgeChoice(
            "range_is_covered", c, per_channel ? Chosen{{1, 1}, {0, 0}} : Chosen{{1}, {0}});
        EXPECT_EQ(verdict.failed(), !covered) << value << " at " << at;
        if (!covered) {
          EXPECT_EQ(verdict.divergence->index, per_channel && at == 7 ? 1 : 0);
        }
      }
    }
  }
  // An infinite scale holds everything and says nothing.
  const Case c = Observing(1, 2, {1, 2, 3, 4}, true);
  EXPECT_EQ(JudgeChoice("range_is_covered", c, {{kInf, kInf}, {0, 0}}).reason,
            "the scale is infinite or denormal");
  EXPECT_EQ(JudgeChoice("range_is_covered", c, {{kInf, 1}, {0, 0}}).judgement, Judgement::kPassed);
  EXPECT_TRUE(JudgeChoice("range_is_covered", c, {{kInf, 1}, {0, 255}}).failed());
}

TEST(RangeIsCovered, SymmetricallyByAllCodesAlone) {
  for (const bool symmetric : {false, true}) {
    for (const bool whole : {false, true}) {
      Case c = Observing(1, 1, {-1, 1});
      c.observer.dtype = DType::kS8;
      c.observer.symmetric = symmetric;
      c.observer.quant_min = whole ? -128 : -127;
      c.observer.quant_max = 127;
      EXPECT_EQ(JudgeChoice("range_is_covered", c, {{1}, {0}}).judgement,
                symmetric && !whole ? Judgement::kVacuous : Judgement::kPassed)
          << symmetric << whole;
    }
  }
}

TEST(ReduceRangeHalves, KeepsTheRangeButForOneRoundingOfEachScale) {
  // Codes 0 to 2, reduced 0 to 1: half the steps, so twice the scale.
  for (const bool reduced : {false, true}) {
    const auto judge = [&](const Floats& full, const Floats& half) {
      Case c = Observing(1, 2, {1, 2, 3, 4}, true);
      c.observer.quant_max = 2;
      c.observer.reduce_range = reduced;
      return JudgeChoice("reduce_range_halves", c, [&](const Case& problem) {
        return Chosen{problem.observer.reduce_range ? half : full, {0, 0}};
      });
    };
    EXPECT_EQ(judge({1, 3}, {2, 6}).judgement, Judgement::kPassed);
    for (const size_t m : {size_t{0}, size_t{1}}) {
      const auto with = [&](float full, float half) {
        Floats fulls{1, 1}, halves{2, 2};
        fulls[m] = full;
        halves[m] = half;
        return judge(fulls, halves);
      };
      EXPECT_FALSE(with(1, 2 + 0x1p-21f).failed()) << "2^-22 of it";
      EXPECT_TRUE(with(1, 2 + 0x1p-21f + 0x1p-22f).failed());
      EXPECT_FALSE(with(1, 2 - 0x1p-21f).failed());
      EXPECT_TRUE(with(1, 2 - 0x1p-21f - 0x1p-22f).failed());
      EXPECT_TRUE(with(2, 1).failed()) << "which of the two is halved";
      const Verdict off = with(1, 3);
      ASSERT_TRUE(off.failed());
      EXPECT_EQ(off.divergence->index, static_cast<int64_t>(m));
      EXPECT_FALSE(with(kFloor, 7).failed()) << "at the floor nothing is claimed";
      EXPECT_TRUE(with(std::nextafter(kFloor, 1.0f), 7).failed());
      EXPECT_FALSE(with(1, kInf).failed());
    }
    EXPECT_EQ(judge({kFloor, kFloor}, {1, 1}).reason, "all scales are at the floor");
    EXPECT_EQ(judge({1, 1}, {kInf, kInf}).judgement, Judgement::kVacuous);
  }
  Case histogram = Observing(1, 1, {1, 2, 3, 4});
  histogram.observer.kind = Kind::kHistogram;
  EXPECT_EQ(JudgeChoice("reduce_range_halves", histogram, {{1}, {0}}).reason,
            "a histogram need not keep its range");
  Case symmetric = Observing(1, 1, {1, 2, 3, 4});
  symmetric.observer.symmetric = true;
  EXPECT_EQ(JudgeChoice("reduce_range_halves", symmetric, {{1}, {128}}).reason,
            "reduce_range is not possible here");
}

}  // namespace
}  // namespace qualm
