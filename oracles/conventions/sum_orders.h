// SPDX-License-Identifier: Apache-2.0
// In which order libraries add products in float32. An order is a convention: the same products in
// another order have other last bits.
#ifndef QUALM_ORACLES_CONVENTIONS_SUM_ORDERS_H_
#define QUALM_ORACLES_CONVENTIONS_SUM_ORDERS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qualm::conventions {

// Product k goes to lane k % lanes, each lane adds its products one after the other, and then the
// lanes are added.
struct SumOrder {
  enum class Lanes : uint8_t {
    kInSequence,
    kHalves,           // lane i and lane i + half, again and again
    kNeighbours,       // lane 2i and lane 2i + 1, again and again
    kQuartets,         // four neighbours in sequence, then halves of these sums
    kStridedQuarters,  // lanes i and i + 2 of four neighbours, then halves
  };
  int64_t lanes = 1;  // a power of two; at least 4 of kQuartets and kStridedQuarters
  Lanes reduce = Lanes::kInSequence;
  // A fused multiply-add rounds once; else the product is rounded before it is added.
  bool fused = true;
  // So many products are a sum of their own, which is added to those before (0: all products).
  int64_t block = 0;
  // So many neighbours are added first, and their sum goes to a lane as one product does.
  int64_t group = 1;
};
inline constexpr SumOrder kFmaChain{};
// bf16 as AMX adds it: the even k and the odd k of each 32 are a chain each.
inline constexpr SumOrder kAmxBf16{.lanes = 2, .block = 32};

// `before`, if there is one, is a sum to which lanes in sequence are added; else it is added last.
float SumOfProducts(const SumOrder& order, std::span<const float> a, std::span<const float> b,
                    std::optional<float> before = std::nullopt);

// A summation tree. A node of more than two parts is a fused sum, which rounds once.
struct SumTree {
  int64_t leaf = -1;           // the index of a product
  std::vector<SumTree> parts;  // of a node
  friend bool operator==(const SumTree&, const SumTree&) = default;
};
// The tree of so many products.
SumTree TreeOf(const SumOrder& order, int64_t products);
int64_t LeavesOf(const SumTree& tree);
// "((0+1)+2)": of each node the part with the smallest leaf first.
std::string TextOf(const SumTree& tree);
// The tree of a sum that can only be asked. leaves_of_common(i, j), i < j: how many leaves has the
// smallest subtree that holds both? With a large number at i, its negative at j and units
// elsewhere, the units outside that subtree survive (Xie et al., FPRev, USENIX ATC 2025). Throws
// InputError where no tree has these counts.
SumTree RevealTree(int64_t products,
                   const std::function<int64_t(int64_t i, int64_t j)>& leaves_of_common);
// How a sum along a tree computes its nodes. A node of more than two parts is rounded once.
enum class SumSteps : uint8_t {
  kFused,    // a product that is added to a sum is not rounded first
  kRounded,  // every product is rounded to float32, then added
  kDouble,   // products and sums of float64, rounded to float32 at the end
  kWideSum,  // every product is rounded to float32, then added in float64; rounded at the end
};
float SumAlong(const SumTree& tree, SumSteps steps, std::span<const float> a,
               std::span<const float> b);
// The sum rounded once, as if no step rounded.
float ExactSum(std::span<const float> a, std::span<const float> b);
// "a chain", "16 lanes, halved", "blocks of 32, each a chain". The fused multiply-add is not named:
// it is no matter of the order.
std::string NameOf(const SumOrder& order);
// The orders that have this tree with so many products, the simplest first; none if no order has.
std::vector<SumOrder> OrdersWith(const SumTree& tree, int64_t products);
// What RevealTree asks, of a tree: counts[i][j - i - 1].
std::vector<std::vector<int64_t>> LeavesOfCommon(const SumTree& tree);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_SUM_ORDERS_H_
