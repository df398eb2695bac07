// SPDX-License-Identifier: Apache-2.0
#include "triage/reveal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/io/golden.h"
#include "core/status.h"
#include "oracles/conventions/sum_orders.h"

namespace qualm::triage {
namespace {

using conventions::SumOrder;
using conventions::SumSteps;
using conventions::SumTree;
using Lanes = SumOrder::Lanes;
using Numbers = std::span<const float>;

RevealedSum Revealed(const AskSum& ask, int64_t products) {
  return RevealSum(ask, {.products = products, .cases = 100});
}

// The sum is asked like a stranger's; what it answers names its order and its steps.
TEST(RevealSum, NamesEveryOrder) {
  const std::vector<std::pair<SumOrder, std::string>> orders{
      {{}, "a chain"},
      {{.block = 16}, "blocks of 16, each a chain"},
      {{.lanes = 2, .block = 32}, "blocks of 32, each 2 lanes, added one after the other"},
      {{.lanes = 8}, "8 lanes, added one after the other"},
      {{.lanes = 16, .reduce = Lanes::kHalves}, "16 lanes, halved"},
      {{.lanes = 16, .reduce = Lanes::kNeighbours}, "16 lanes, added by neighbours"},
      {{.lanes = 16, .reduce = Lanes::kQuartets},
       "16 lanes, four neighbours in sequence, then halved"},
      {{.lanes = 8, .reduce = Lanes::kStridedQuarters},
       "8 lanes, every other of four neighbours, then halved"}};
  for (auto [order, name] : orders) {
    for (const bool fused : {true, false}) {
      order.fused = fused;
      const RevealedSum sum =
          Revealed([&](Numbers a, Numbers b) { return SumOfProducts(order, a, b); }, 70);
      EXPECT_EQ(sum.text(), conventions::TextOf(conventions::TreeOf(order, 70)));
      EXPECT_EQ(sum.order, name);
      EXPECT_EQ(sum.steps, fused ? "fused multiply-adds" : "products rounded, then added") << name;
      EXPECT_EQ(sum.compared, 100);
      EXPECT_TRUE(sum.is_known());
    }
  }
}

// Every tree that was recorded from a library, revealed again from a sum along it; those of a named
// order from the order.
TEST(RevealSum, FindsTheRecordedTrees) {
  int trees = 0, named = 0, others = 0;
  ForEachGoldenRecord(
      QUALM_SOURCE_DIR "/corpus/golden/trees.jsonl", [&](const GoldenRecord& record) {
        if (!record.Has("tree") || !record.Has("n")) return;
        const int64_t products = record.Int("n");
        const std::vector<int64_t> counts = record.Ints("leaves_of_common_subtree");
        ASSERT_EQ(std::ssize(counts), products * (products - 1) / 2) << record.where;
        SumTree tree;
        try {
          tree = conventions::RevealTree(products, [&](int64_t i, int64_t j) {
            return counts[static_cast<size_t>(i * (2 * products - i - 1) / 2 + j - i - 1)];
          });
        } catch (const InputError&) {  // of float16, of float64, of numbers that were quantized
          ++others;
          return;
        }
        ++trees;
        for (const SumSteps steps :
             {SumSteps::kFused, SumSteps::kRounded, SumSteps::kDouble, SumSteps::kWideSum}) {
          const RevealedSum again =
              Revealed([&](Numbers a, Numbers b) { return SumAlong(tree, steps, a, b); }, products);
          EXPECT_EQ(again.text(), record.Text("tree")) << record.where;
          EXPECT_TRUE(again.is_known()) << record.where;
        }
        for (const SumOrder& order : OrdersWith(tree, products)) {
          ++named;
          const RevealedSum again =
              Revealed([&](Numbers a, Numbers b) { return SumOfProducts(order, a, b); }, products);
          EXPECT_EQ(again.text(), record.Text("tree")) << record.where;
          EXPECT_EQ(again.steps, "fused multiply-adds") << record.where << NameOf(order);
        }
      });
  EXPECT_EQ(trees, 70);
  EXPECT_EQ(others, 12);
  EXPECT_GT(named, 40);
}

TEST(RevealSum, ASumThatRoundsOnceHasNoOrder) {
  const RevealedSum sum = Revealed(conventions::ExactSum, 40);
  EXPECT_TRUE(sum.is_exact);
  EXPECT_FALSE(sum.tree);
  EXPECT_EQ(sum.steps, "rounded once");
  EXPECT_TRUE(sum.is_known());
}

TEST(RevealSum, SumsOfFloat64AreChainsOfWiderSteps) {
  const RevealedSum sum = Revealed(
      [](Numbers a, Numbers b) {
        double total = 0;
        for (size_t k = 0; k < a.size(); ++k) total += static_cast<double>(a[k]) * b[k];
        return static_cast<float>(total);
      },
      40);
  EXPECT_EQ(sum.order, "a chain");
  EXPECT_EQ(sum.steps, "float64, rounded to float32 at the end");
}

// A short dot product of OpenBLAS.
TEST(RevealSum, RoundedProductsInAWideSumAreTold) {
  const RevealedSum sum = Revealed(
      [](Numbers a, Numbers b) {
        double total = 0;
        for (size_t k = 0; k < a.size(); ++k) {
          const float product = a[k] * b[k];
          total += product;
        }
        return static_cast<float>(total);
      },
      16);
  EXPECT_EQ(sum.order, "a chain");
  EXPECT_EQ(sum.steps, "products rounded, then added in float64, rounded at the end");
}

TEST(RevealSum, AFusedNodeIsRoundedOnce) {
  // Eight products at a time, and a number that is lost beside 2^100 is lost in all of them.
  const SumTree eight = conventions::RevealTree(16, [](int64_t i, int64_t j) {
    return j < 8 ? 8 : i < 8 ? 16 : 8;
  });
  const RevealedSum sum = Revealed(
      [&](Numbers a, Numbers b) {
        for (size_t k = 0; k < 16; k += 8) {
          for (size_t l = k; l < k + 8; ++l) {
            if (std::abs(a[l]) < 0x1p99f) continue;
            // Units beside the mask.
            std::vector<float> masked(a.begin(), a.end());
            for (size_t m = k; m < k + 8; ++m) masked[m] = std::abs(a[m]) < 0x1p99f ? 0 : a[m];
            return SumAlong(eight, SumSteps::kRounded, masked, b);
          }
        }
        return SumAlong(eight, SumSteps::kRounded, a, b);
      },
      16);
  EXPECT_EQ(sum.text(), "((0+1+2+3+4+5+6+7)+(8+9+10+11+12+13+14+15))");
  EXPECT_EQ(DrawingOf(*sum.tree), "+\n|- rounded once: 0 + 1 + ... + 7\n`- the same from 8\n");
}

TEST(RevealSum, SaysWhatFitsNothing) {
  // The right order, and the ninetieth sum a little too large.
  int64_t asked = 0;
  RevealedSum sum = Revealed(
      [&](Numbers a, Numbers b) {
        const float value = SumOfProducts(conventions::kFmaChain, a, b);
        const bool is_mask = std::abs(a[0]) == 0x1p100f || b[0] == 1.0f;
        return !is_mask && ++asked == 90 ? std::nextafter(value, 1e9f) : value;
      },
      20);
  EXPECT_EQ(sum.order, "a chain");
  EXPECT_EQ(sum.steps, "");
  EXPECT_FALSE(sum.is_known());
  ASSERT_TRUE(sum.witness);
  EXPECT_EQ(sum.compared, 90);
  EXPECT_EQ(sum.witness->actual, std::nextafter(sum.witness->expected, 1e9f));
  EXPECT_EQ(SumOfProducts(conventions::kFmaChain, sum.witness->a, sum.witness->b),
            sum.witness->expected);

  sum = Revealed([](Numbers, Numbers) { return 0.0f; }, 20);
  EXPECT_FALSE(sum.is_known()) << "zeros are one node of all products, and no sum of them";
  sum = Revealed([](Numbers, Numbers) { return std::numeric_limits<float>::quiet_NaN(); }, 20);
  EXPECT_FALSE(sum.is_known());
  EXPECT_NE(sum.text().find("no tree: 2^100 at 0, -2^100 at 1 and units elsewhere sum to nan"),
            std::string::npos)
      << sum.text();
  // An order that changes from call to call.
  int64_t calls = 0;
  sum = Revealed(
      [&](Numbers a, Numbers b) {
        const SumOrder order{.lanes = int64_t{1} << (++calls % 3)};
        return SumOfProducts(order, a, b);
      },
      20);
  EXPECT_FALSE(sum.is_known());
}

TEST(RevealSum, LetsExceptionsPass) {
  EXPECT_THROW(Revealed([](Numbers, Numbers) -> float { throw std::runtime_error("gone"); }, 4),
               std::runtime_error);
  EXPECT_THROW(Revealed([](Numbers, Numbers) -> float { throw InputError("no number"); }, 4),
               InputError);
  const AskSum chain = [](Numbers a, Numbers b) {
    return SumOfProducts(conventions::kFmaChain, a, b);
  };
  EXPECT_THROW(Revealed(chain, 1), InputError);
  EXPECT_THROW(Revealed(chain, 1025), InputError);
  EXPECT_EQ(Revealed(chain, 2).text(), "(0+1)");
}

TEST(DrawingOf, LeavesInARowShareALine) {
  const auto drawing = [](const SumOrder& order, int64_t products) {
    return DrawingOf(conventions::TreeOf(order, products));
  };
  EXPECT_EQ(drawing({}, 3), "0 + 1 + 2\n");
  EXPECT_EQ(drawing({}, 64), "0 + 1 + ... + 63\n");
  EXPECT_EQ(drawing({.lanes = 2}, 16), "+\n|- 0 + 2 + ... + 14\n`- the same from 1\n");
  EXPECT_EQ(drawing({.block = 4}, 14),
            "+\n"
            "|- + one after the other\n"
            "|  |- 0 + 1 + 2 + 3\n"
            "|  |- 4 + 5 + 6 + 7\n"
            "|  `- 8 + 9 + 10 + 11\n"
            "`- 12 + 13\n");
}

TEST(TextOf, TellsOrderStepsAndTree) {
  const RevealedSum sum =
      RevealSum([](Numbers a, Numbers b) { return SumOfProducts(conventions::kFmaChain, a, b); },
                {.products = 3, .cases = 10});
  EXPECT_EQ(TextOf(sum),
            "sum of 3 products, 12 questions\n"
            "  order: a chain\n"
            "  steps: fused multiply-adds (bit-equal on 10 random sums)\n"
            "  contract: tree:{order:1/sequence steps:fused}\n"
            "  tree: ((0+1)+2)\n"
            "0 + 1 + 2\n");
}

}  // namespace
}  // namespace qualm::triage
