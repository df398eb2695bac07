// SPDX-License-Identifier: Apache-2.0
#include "oracles/accepted.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "core/random_case_test_util.h"
#include "oracles/conventions/test_util.h"
#include "oracles/exact/exact.h"

namespace qualm {
namespace {

Tensor Codes(std::vector<uint8_t> codes) {
  return Tensor::Of<uint8_t>({1, static_cast<int64_t>(codes.size())}, codes);
}

TEST(Accepted, OneBitPattern) {
  const Accepted only = Accepted::Only(Codes({1, 2}));
  EXPECT_FALSE(only.First(Codes({1, 2})));
  EXPECT_EQ(only.First(Codes({1, 3}))->index, 1);
  EXPECT_EQ(only.undecided(), 0);
}

TEST(Accepted, AnIntervalHoldsItsEnds) {
  const Accepted within = Accepted::Within(Codes({9, 9}), {{8, 10}, {0, 255}});
  for (const uint8_t code : {8, 9, 10}) EXPECT_FALSE(within.First(Codes({code, 77})));
  EXPECT_EQ(within.undecided(), 1) << "all that a u8 holds";
  const auto below = within.First(Codes({6, 9}));
  ASSERT_TRUE(below);
  EXPECT_EQ(below->expected, "[8, 10]");
  EXPECT_EQ(below->actual, "6");
  EXPECT_EQ(below->distance_lsb, 2);
  EXPECT_TRUE(within.First(Codes({11, 9})));
}

TEST(Accepted, NoIntervalHoldsNaN) {
  const auto one = [](float value) {
    return Tensor::Of<float>({1, 1}, std::array<float, 1>{value});
  };
  const Accepted within = Accepted::Within(one(1), {{0.5, 2}});
  EXPECT_FALSE(within.First(one(2)));
  EXPECT_TRUE(within.First(one(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(within.First(one(3))->expected, "[0x1p-1, 0x1p+1]");
}

// What a convention answers lies where its own variations permit; a wrong zero point does not.
TEST(AcceptedBy, JudgesByVariations) {
  int judged = 0, moved = 0, refused = 0;
  for (const char* const name : {"qnnpack", "onednn2@vnni", "gemmlowp"}) {
    const Convention& convention = Get(name);
    const Contract contract{.variations = convention.variations};
    for (const Op op : convention.ops) {
      for (uint64_t seed = 0; seed < 300; ++seed) {
        const Case c = test::RandomCase(seed).Draw(op);
        if (!convention.cannot_run(c).empty()) continue;
        const Accepted right = AcceptedBy(contract, c);
        const Tensor y = convention.run(c).y;
        if (right.undecided() == y.size()) continue;
        ++judged;
        EXPECT_FALSE(right.First(y)) << Describe(c);
        moved += y == exact::Evaluate(c) ? 0 : 1;
        Case other = c;
        other.out_q.zero_point[0] += 3;
        if (!HasOutQParams(op) || !convention.cannot_run(other).empty()) continue;
        refused += right.First(convention.run(other).y) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(judged, 300);
  EXPECT_GT(moved, 10) << "or the intervals are not needed";
  EXPECT_GT(refused, 100);
}

TEST(WhyNotJudged, NamesWhatIsMissing) {
  const Case c = test::RandomCase(1).Draw(Op::kLinear);
  EXPECT_EQ(WhyNotJudged(ParseContract("within:V99"), c), "there is no variation V99");
  EXPECT_EQ(WhyNotJudged(ParseContract("model:none"), c), "there is no convention none");
  EXPECT_EQ(WhyNotJudged(ParseContract("within:V1"), c), "");
  EXPECT_EQ(WhyNotJudged({}, c), "");
}

}  // namespace
}  // namespace qualm
