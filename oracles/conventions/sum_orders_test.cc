// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/sum_orders.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/status.h"

namespace qualm::conventions {
namespace {

using Lanes = SumOrder::Lanes;

struct Named {
  SumOrder order;
  int64_t products;
  std::string text;
};
const std::vector<Named>& Orders() {
  static const std::vector<Named> orders{
      {kFmaChain, 4, "(((0+1)+2)+3)"},
      {{.block = 2}, 5, "(((0+1)+(2+3))+4)"},
      {{.lanes = 4}, 6, "((((0+4)+(1+5))+2)+3)"},
      {{.lanes = 4, .reduce = Lanes::kHalves}, 5, "(((0+4)+2)+(1+3))"},
      {{.lanes = 4, .reduce = Lanes::kNeighbours}, 8, "(((0+4)+(1+5))+((2+6)+(3+7)))"},
      {{.lanes = 8, .reduce = Lanes::kQuartets}, 8, "((((0+1)+2)+3)+(((4+5)+6)+7))"},
      {{.lanes = 8, .reduce = Lanes::kStridedQuarters}, 8, "(((0+2)+(4+6))+((1+3)+(5+7)))"},
      {{.lanes = 8, .reduce = Lanes::kHalves}, 2, "(0+1)"},  // lanes without a product
      {{.lanes = 2, .block = 4}, 8, "(((0+2)+(1+3))+((4+6)+(5+7)))"},
  };
  return orders;
}

TEST(SumOrders, EachIsATree) {
  for (const Named& each : Orders())
    EXPECT_EQ(TextOf(TreeOf(each.order, each.products)), each.text);
}

// The library whose tree is revealed is a sum of floats that nothing but its answers tells.
TEST(SumOrders, NumbersThatCancelRevealTheTree) {
  for (const Named& each : Orders()) {
    const std::vector<float> ones(static_cast<size_t>(each.products), 1.0f);
    const SumTree tree = RevealTree(each.products, [&](int64_t i, int64_t j) {
      std::vector<float> a = ones;
      a[static_cast<size_t>(i)] = 0x1p40f;
      a[static_cast<size_t>(j)] = -0x1p40f;
      return each.products - std::lround(SumOfProducts(each.order, a, ones));
    });
    EXPECT_EQ(TextOf(tree), each.text);
    const auto counts = LeavesOfCommon(tree);
    EXPECT_EQ(
        TextOf(RevealTree(each.products,
                          [&](int64_t i, int64_t j) {
                            return counts[static_cast<size_t>(i)][static_cast<size_t>(j - i - 1)];
                          })),
        each.text);
  }
}

TEST(SumOrders, AFusedSumIsANodeOfSeveralParts) {
  const auto met = [](int64_t i, int64_t j) -> int64_t { return j < 3 ? 3 : i < 3 ? 5 : 2; };
  EXPECT_EQ(TextOf(RevealTree(5, met)), "((0+1+2)+(3+4))");
}

TEST(SumOrders, CountsOfNoTreeAreRefused) {
  EXPECT_THROW(RevealTree(3, [](int64_t, int64_t) { return 2; }), InputError);
  EXPECT_THROW(RevealTree(0, [](int64_t, int64_t) { return 2; }), InputError);
}

// The square of 1 + 2^-12 loses its last bit in float32.
TEST(SumOrders, AProductIsRoundedUnlessItIsFused) {
  const std::vector<float> x{-1, 1 + 0x1p-12f}, y{1, 1 + 0x1p-12f};
  EXPECT_EQ(SumOfProducts(kFmaChain, x, y), 0x1p-11f + 0x1p-24f);
  EXPECT_EQ(SumOfProducts({.fused = false}, x, y), 0x1p-11f);
  EXPECT_EQ(SumOfProducts(kFmaChain, {}, {}), 0.0f);
}

}  // namespace
}  // namespace qualm::conventions
