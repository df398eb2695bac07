// SPDX-License-Identifier: Apache-2.0
#include "fuzz/mutator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "fuzz/case_codec.h"
#include "fuzz/fit.h"
#include "fuzz/test_util.h"
#include "oracles/headroom/headroom.h"

namespace qualm::fuzz {
namespace {

class Mutator : public testing::TestWithParam<Op> {};

TEST_P(Mutator, CasesStayValidAndWithinTheLimits) {
  Rng rng(1);
  Case c = DecodeCase(GetParam(), {});
  int changed = 0;
  for (int i = 0; i < 20000; ++i) {
    const Case mutated = MutateCase(c, rng);
    ASSERT_EQ(mutated.op, c.op);
    ASSERT_EQ(Validate(mutated), "") << Text(c) << Text(mutated);
    ASSERT_TRUE(EncodeCase(mutated).has_value()) << Text(mutated);
    changed += mutated == c ? 0 : 1;
    c = mutated;
  }
  EXPECT_GT(changed, 18000);
}

TEST_P(Mutator, CrossedCasesStayValid) {
  Rng rng(2);
  Case a = DecodeCase(GetParam(), {});
  Case b = a;
  int mixed = 0;
  for (int i = 0; i < 8000; ++i) {
    for (int j = 0; j < 3; ++j) a = MutateCase(a, rng), b = MutateCase(b, rng);
    const Case child = CrossCases(a, b, rng);
    ASSERT_EQ(Validate(child), "") << Text(a) << Text(b) << Text(child);
    ASSERT_TRUE(EncodeCase(child).has_value()) << Text(child);
    mixed += child == a || child == b ? 0 : 1;
  }
  EXPECT_GT(mixed, 4000);
}

TEST_P(Mutator, SameSeedSameBytes) {
  std::vector<uint8_t> a(4096), b(4096);
  const size_t a_size = MutateBytes(GetParam(), a.data(), 0, a.size(), 7);
  const size_t b_size = MutateBytes(GetParam(), b.data(), 0, b.size(), 7);
  EXPECT_EQ(a_size, b_size);
  EXPECT_EQ(a, b);
  // Bytes for which the engine has no room are cut, never written.
  std::vector<uint8_t> small(20, 0xEE);
  EXPECT_EQ(MutateBytes(GetParam(), small.data(), 0, 10, 7), 10u);
  for (size_t i = 10; i < small.size(); ++i) EXPECT_EQ(small[i], 0xEE);
}

// How many of 1000 mutations of `from` give x three different elements. Mutations of an x of one
// element give it none: a drawn case has them.
int DrawnOf1000(Op op, const std::vector<uint8_t>& from) {
  int drawn = 0;
  for (unsigned seed = 0; seed < 1000; ++seed) {
    const Case c = DecodeCase(op, MutatedBytes(op, from, 4096, seed));
    std::set<uint32_t> elements;
    for (int64_t i = 0; i < c.x.size(); ++i) elements.insert(c.x.BitsAt(i));
    drawn += elements.size() >= 3 ? 1 : 0;
  }
  return drawn;
}

// An input without a header has nothing to keep, and neither has a seed: the mutation draws a new
// case. Of other inputs half become a drawn case or take a part of one.
TEST_P(Mutator, SomeMutationsDraw) {
  EXPECT_GT(DrawnOf1000(GetParam(), {}), 400);
  EXPECT_GT(DrawnOf1000(GetParam(), EncodeDraw(7, 100)), 400);
  const std::vector<uint8_t> header = EncodeFitted(DecodeCase(GetParam(), {}));
  const int drawn = DrawnOf1000(GetParam(), header);
  EXPECT_GT(drawn, 120);
  EXPECT_LT(drawn, 500);
}

TEST_P(Mutator, SomeDrawnCasesAreLarge) {
  const std::vector<uint8_t> header = EncodeFitted(DecodeCase(GetParam(), {}));
  int seeds = 0, large = 0;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    const std::vector<uint8_t> bytes = MutatedBytes(GetParam(), header, 4096, seed);
    if (!SeedIn(bytes)) continue;
    EXPECT_EQ(bytes.size(), 4096u);
    ++seeds;
    large += IsSmall(DecodeCase(GetParam(), bytes)) ? 0 : 1;
  }
  EXPECT_GT(seeds, 180);
  EXPECT_LT(seeds, 320);
  EXPECT_GT(large, 5);
}

INSTANTIATE_TEST_SUITE_P(Ops, Mutator, testing::ValuesIn(EveryOp()),
                         [](const auto& op) { return std::string(Name(op.param)); });

// A walk of mutations reaches saturation, ties and every form of a case.
TEST(MutatorReach, SaturationTiesAndEveryForm) {
  Rng rng(3);
  Case c = DecodeCase(Op::kLinear, {});
  std::set<std::string> described, of_fewer_bits, of_more_bits;
  int saturating = 0, ties = 0;
  for (int i = 0; i < 50000; ++i) {
    c = MutateCase(c, rng);
    const headroom::Headroom measures = headroom::Measure(c);
    saturating += measures.pairs_saturating > 0 ? 1 : 0;
    ties += measures.ties > 0 ? 1 : 0;
    std::set<std::string>& forms = BitsOf(c.w.dtype()) < 8 ? of_fewer_bits
                                   : HasWideCodes(c)       ? of_more_bits
                                                           : described;
    forms.insert(std::string(Name(c.x.dtype())) + std::string(Name(c.w.dtype())) +
                 std::string(Name(c.out_dtype)) + (c.per_channel ? "c" : "t") +
                 (c.relu ? "r" : "") + (c.bias ? "b" : "") + (c.bias_i32 ? "i" : ""));
  }
  EXPECT_GT(saturating, 2500);
  EXPECT_GT(ties, 100);
  // 2*2 types of x and w, 2 forms, relu or not, times output types with their biases (3+3+2+3). And
  // f32 x: 2 types of w, 2 forms, relu or not, bias or not.
  EXPECT_EQ(described.size(), 16u * 11u + 16u);
  EXPECT_GT(of_fewer_bits.size(), 16u * 11u);  // of several times as many
  EXPECT_GT(of_more_bits.size(), 100u);
}

// The first mutations of nothing reach saturation within a few cases, as drawn cases do.
TEST(MutatorReach, SaturationFromNothing) {
  std::vector<int> cases;
  for (unsigned seed = 1; seed <= 101; ++seed) {
    Rng rng(seed);
    int count = 0;
    for (bool saturates = false; !saturates && count < 1000; ++count) {
      const auto bytes = MutatedBytes(Op::kLinear, {}, 4096, static_cast<unsigned>(rng.Next()));
      saturates = headroom::Measure(DecodeCase(Op::kLinear, bytes)).pairs_saturating > 0;
    }
    cases.push_back(count);
  }
  std::ranges::sort(cases);
  EXPECT_LE(cases[cases.size() / 2], 10);
  EXPECT_LE(cases.back(), 200);
}

TEST(MutatorReach, EveryFieldOfACase) {
  Rng rng(5);
  FieldsSeen mutated, crossed;
  for (const Op op : EveryOp()) {
    Case a = DecodeCase(op, {});
    Case b = a;
    for (int i = 0; i < 30000; ++i) {
      const Case changed = MutateCase(a, rng);
      mutated.See(a, changed);
      a = changed;
      b = MutateCase(b, rng);
      crossed.See(a, CrossCases(a, b, rng), &b);
    }
  }
  EXPECT_EQ(mutated.unseen(), std::set<std::string>{});
  EXPECT_EQ(crossed.unseen(), std::set<std::string>{});
}

// A walk of mutations of every operation meets its hazards: ties, clamps, tails, padding.
TEST(MutatorReach, TiesClampsAndWindowsOfEveryOp) {
  for (const Op op : AllOps()) {
    if (op == Op::kChooseQParams) continue;  // has no codes to measure
    Rng rng(4);
    Case c = DecodeCase(op, {});
    int ties = 0, inside = 0, saturating = 0, padded = 0, wide = 0;
    for (int i = 0; i < 20000; ++i) {
      c = MutateCase(c, rng);
      const headroom::Headroom measures = headroom::Measure(c);
      ties += measures.ties > 0;
      saturating += measures.pairs_saturating > 0;
      inside += measures.clamped_low + measures.clamped_high < measures.outputs;
      wide += (HasWeights(op) ? c.K : c.N) > 32;
      for (int64_t m = 0; HasWindow(op) && m < c.M; ++m) {
        const std::vector<Tap> taps = TapsOf(c.window, m);
        if (std::ranges::none_of(taps, [](const Tap& tap) { return tap.x_row < 0; })) continue;
        ++padded;
        break;
      }
    }
    EXPECT_GT(inside, 1500) << Name(op);
    // Float outputs and max_pool have no ties. The aim computes ties of sums, not of the functions
    // of table and softmax.
    if (RowOf(op).out_types.front() != DType::kF32 && op != Op::kMaxPool && op != Op::kTable &&
        op != Op::kSoftmax) {
      EXPECT_GT(ties, 100) << Name(op);
    }
    if (HasSums(op)) {
      EXPECT_GT(saturating, 200) << Name(op);
    }
    if (HasWindow(op) && op != Op::kGlobalAvgPool) {
      EXPECT_GT(padded, 2000) << Name(op);
    }
    if (LimitsOf(op).n > 32 || LimitsOf(op).k > 32) {
      EXPECT_GT(wide, 2000) << Name(op);
    }
  }
}

}  // namespace
}  // namespace qualm::fuzz
