// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/sum_orders.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <utility>

#include "core/status.h"
#include "oracles/exact/arithmetic/rational.h"

namespace qualm::conventions {
namespace {

// The lanes of a sum, some of which may have no product. T is a number or a tree.
template <class T, class Join>
class LaneSums {
 public:
  using Sum = std::optional<T>;
  LaneSums(const SumOrder& order, const Join& join)
      : order_(order), join_(join), lanes_(static_cast<size_t>(order.lanes)) {}
  Sum& operator[](size_t lane) { return lanes_[lane]; }

  // `before` is the sum to which lanes in sequence are added; other lanes are summed first.
  Sum Total(Sum before) const {
    if (order_.reduce != SumOrder::Lanes::kInSequence) return Both(before, OfLanes());
    for (const Sum& lane : lanes_) before = Both(before, lane);
    return before;
  }
  Sum Both(const Sum& a, const Sum& b) const { return a && b ? Sum(join_(*a, *b)) : a ? a : b; }

 private:
  Sum OfLanes() const {
    std::vector<Sum> next, odd;
    switch (order_.reduce) {
      case SumOrder::Lanes::kInSequence: break;
      case SumOrder::Lanes::kHalves: return Halves(lanes_);
      case SumOrder::Lanes::kNeighbours:
        next = lanes_;
        while (next.size() > 1) {
          for (size_t i = 0; i < next.size() / 2; ++i) next[i] = Both(next[2 * i], next[2 * i + 1]);
          next.resize(next.size() / 2);
        }
        return next.front();
      case SumOrder::Lanes::kQuartets:
        for (size_t i = 0; i < lanes_.size(); i += 4) {
          const Sum two = Both(lanes_[i], lanes_[i + 1]);
          next.push_back(Both(Both(two, lanes_[i + 2]), lanes_[i + 3]));
        }
        return Halves(next);
      case SumOrder::Lanes::kStridedQuarters:
        for (size_t i = 0; i < lanes_.size(); i += 4) {
          next.push_back(Both(lanes_[i], lanes_[i + 2]));
          odd.push_back(Both(lanes_[i + 1], lanes_[i + 3]));
        }
        return Both(Halves(next), Halves(odd));
    }
    return std::nullopt;
  }
  Sum Halves(std::vector<Sum> sums) const {
    while (sums.size() > 1) {
      const size_t half = sums.size() / 2;
      for (size_t i = 0; i < half; ++i) sums[i] = Both(sums[i], sums[i + half]);
      sums.resize(half);
    }
    return sums.front();
  }

  const SumOrder& order_;
  const Join& join_;
  std::vector<Sum> lanes_;
};

// `make(k)` is product k alone, `add(sum, k)` adds it to a sum, `join(a, b)` adds two sums.
template <class T, class Make, class Add, class Join>
T Walk(const SumOrder& order, int64_t products, const Make& make, const Add& add, const Join& join,
       std::optional<T> total = std::nullopt) {
  const int64_t block = order.block > 0 ? order.block : std::max<int64_t>(products, 1);
  for (int64_t first = 0; first < products; first += block) {
    LaneSums<T, Join> lanes(order, join);
    const int64_t end = std::min(products, first + block);
    for (int64_t k = first; k < end; k += order.group) {
      std::optional<T>& lane = lanes[static_cast<size_t>((k - first) / order.group % order.lanes)];
      if (order.group == 1) {
        lane = lane ? add(*std::move(lane), k) : make(k);
        continue;
      }
      T group = make(k);
      for (int64_t of = k + 1; of < std::min(end, k + order.group); ++of)
        group = add(std::move(group), of);
      lane = lanes.Both(lane, std::move(group));
    }
    total = order.block > 0 ? lanes.Both(total, lanes.Total({})) : lanes.Total(std::move(total));
  }
  return total.value_or(T{});
}

int64_t SmallestLeaf(const SumTree& tree) {
  if (tree.parts.empty()) return tree.leaf;
  int64_t smallest = INT64_MAX;
  for (const SumTree& part : tree.parts) smallest = std::min(smallest, SmallestLeaf(part));
  return smallest;
}

// Writes the counts of the pairs that meet in this node, and returns its leaves.
std::vector<int64_t> Meet(const SumTree& tree, std::vector<std::vector<int64_t>>& counts) {
  if (tree.parts.empty()) return {tree.leaf};
  std::vector<int64_t> leaves;
  std::vector<size_t> ends;
  for (const SumTree& part : tree.parts) {
    const std::vector<int64_t> more = Meet(part, counts);
    leaves.insert(leaves.end(), more.begin(), more.end());
    ends.push_back(leaves.size());
  }
  size_t begin = 0;
  for (const size_t end : ends) {
    for (size_t a = begin; a < end; ++a) {
      for (size_t b = end; b < leaves.size(); ++b) {
        const auto [i, j] = std::minmax(leaves[a], leaves[b]);
        counts[static_cast<size_t>(i)][static_cast<size_t>(j - i - 1)] =
            static_cast<int64_t>(leaves.size());
      }
    }
    begin = end;
  }
  return leaves;
}

}  // namespace

float SumOfProducts(const SumOrder& order, std::span<const float> a, std::span<const float> b,
                    std::optional<float> before) {
  const auto product = [&](int64_t k) {
    return std::pair(a[static_cast<size_t>(k)], b[static_cast<size_t>(k)]);
  };
  // A lane begins at 0, which a first product of -0 turns into +0.
  const auto add = [&](float sum, int64_t k) {
    const auto [x, y] = product(k);
    return order.fused ? std::fma(x, y, sum) : sum + x * y;
  };
  return Walk<float>(
      order, std::ssize(a), [&](int64_t k) { return add(0.0f, k); }, add,
      [](float x, float y) { return x + y; }, before);
}

SumTree TreeOf(const SumOrder& order, int64_t products) {
  const auto leaf = [](int64_t k) { return SumTree{.leaf = k, .parts = {}}; };
  const auto join = [](SumTree a, SumTree b) {
    SumTree node;
    node.parts.push_back(std::move(a));
    node.parts.push_back(std::move(b));
    return node;
  };
  return Walk<SumTree>(
      order, products, leaf, [&](SumTree sum, int64_t k) { return join(std::move(sum), leaf(k)); },
      join);
}

std::string TextOf(const SumTree& tree) {
  if (tree.parts.empty()) return std::to_string(tree.leaf);
  std::map<int64_t, std::string> texts;
  for (const SumTree& part : tree.parts) texts[SmallestLeaf(part)] = TextOf(part);
  std::string text;
  for (const auto& [leaf, part] : texts) text += (text.empty() ? "(" : "+") + part;
  return text + ")";
}

SumTree RevealTree(int64_t products,
                   const std::function<int64_t(int64_t i, int64_t j)>& leaves_of_common) {
  const auto common = [&](int64_t i, int64_t j) {
    return i < j ? leaves_of_common(i, j) : leaves_of_common(j, i);
  };
  // The tree of the leaves, of which the first grows by what it meets next.
  const std::function<SumTree(const std::vector<int64_t>&)> reveal =
      [&](const std::vector<int64_t>& leaves) {
        SumTree tree{.leaf = leaves.front(), .parts = {}};
        std::map<int64_t, std::vector<int64_t>> met;  // by the size of the subtree
        for (const int64_t leaf : leaves | std::views::drop(1))
          met[common(leaves.front(), leaf)].push_back(leaf);
        int64_t below = 1;
        for (auto& [size, group] : met) {
          below += std::ssize(group);
          if (size != below)
            throw InputError("no summation tree has these counts: leaf " +
                             std::to_string(leaves.front()) + " meets " +
                             std::to_string(below - 1) + " others below a node of " +
                             std::to_string(size));
          SumTree node;
          node.parts.push_back(std::move(tree));
          while (!group.empty()) {
            const int64_t first = group.front();
            std::vector<int64_t> part, rest;
            for (const int64_t leaf : group)
              (leaf == first || common(first, leaf) < size ? part : rest).push_back(leaf);
            node.parts.push_back(reveal(part));
            group = std::move(rest);
          }
          tree = std::move(node);
        }
        return tree;
      };
  if (products < 1) throw InputError("a summation tree has at least one product");
  std::vector<int64_t> leaves(static_cast<size_t>(products));
  for (size_t k = 0; k < leaves.size(); ++k) leaves[k] = static_cast<int64_t>(k);
  return reveal(leaves);
}

namespace {

// T is float or double. A product of two float32 is exact in float64.
template <class T>
T ValueAlong(const SumTree& tree, SumSteps steps, std::span<const float> a,
             std::span<const float> b) {
  const auto factor = [](std::span<const float> list, const SumTree& leaf) {
    return static_cast<T>(list[static_cast<size_t>(leaf.leaf)]);
  };
  if (tree.parts.empty()) {
    const T product = factor(a, tree) * factor(b, tree);
    return steps == SumSteps::kWideSum ? static_cast<T>(static_cast<float>(product)) : product;
  }
  if (tree.parts.size() > 2) {
    exact::Rational sum = 0;
    for (const SumTree& part : tree.parts) {
      sum += part.parts.empty()
                 ? exact::ToRational(a[static_cast<size_t>(part.leaf)]) *
                       exact::ToRational(b[static_cast<size_t>(part.leaf)])
                 : exact::ToRational(static_cast<float>(ValueAlong<T>(part, steps, a, b)));
    }
    return static_cast<T>(exact::RoundToFloat32(sum));
  }
  // A product joins the sum that is there; of two products the later one.
  const bool swap = tree.parts[0].parts.empty() &&
                    (!tree.parts[1].parts.empty() || tree.parts[0].leaf > tree.parts[1].leaf);
  const SumTree &sum = tree.parts[swap ? 1 : 0], &added = tree.parts[swap ? 0 : 1];
  const T so_far = ValueAlong<T>(sum, steps, a, b);
  if (steps == SumSteps::kFused && added.parts.empty())
    return std::fma(factor(a, added), factor(b, added), so_far);
  return so_far + ValueAlong<T>(added, steps, a, b);
}

}  // namespace

int64_t LeavesOf(const SumTree& tree) {
  if (tree.parts.empty()) return 1;
  int64_t leaves = 0;
  for (const SumTree& part : tree.parts) leaves += LeavesOf(part);
  return leaves;
}

float SumAlong(const SumTree& tree, SumSteps steps, std::span<const float> a,
               std::span<const float> b) {
  if (steps == SumSteps::kDouble || steps == SumSteps::kWideSum)
    return static_cast<float>(ValueAlong<double>(tree, steps, a, b));
  return ValueAlong<float>(tree, steps, a, b);
}

float ExactSum(std::span<const float> a, std::span<const float> b) {
  exact::Rational sum = 0;
  for (size_t k = 0; k < a.size(); ++k) sum += exact::ToRational(a[k]) * exact::ToRational(b[k]);
  return exact::RoundToFloat32(sum);
}

std::string NameOf(const SumOrder& order) {
  const auto reduced = [&]() -> std::string {
    switch (order.reduce) {
      case SumOrder::Lanes::kInSequence: return "added one after the other";
      case SumOrder::Lanes::kHalves: return "halved";
      case SumOrder::Lanes::kNeighbours: return "added by neighbours";
      case SumOrder::Lanes::kQuartets: return "four neighbours in sequence, then halved";
      case SumOrder::Lanes::kStridedQuarters: return "every other of four neighbours, then halved";
    }
    return "";
  };
  std::string name =
      order.lanes == 1 ? "a chain" : std::to_string(order.lanes) + " lanes, " + reduced();
  if (order.group > 1) name += ", of groups of " + std::to_string(order.group);
  if (order.block > 0) name = "blocks of " + std::to_string(order.block) + ", each " + name;
  return name;
}

std::vector<SumOrder> OrdersWith(const SumTree& tree, int64_t products) {
  using Lanes = SumOrder::Lanes;
  const std::string text = TextOf(tree);
  std::vector<SumOrder> orders;
  std::vector<int64_t> blocks{0};
  for (int64_t block = 2; block < products; block *= 2) blocks.push_back(block);
  for (const int64_t block : blocks) {
    for (int64_t lanes = 1; lanes < (block > 0 ? block : products); lanes *= 2) {
      for (const Lanes reduce : {Lanes::kInSequence, Lanes::kHalves, Lanes::kNeighbours,
                                 Lanes::kQuartets, Lanes::kStridedQuarters}) {
        // With two lanes, or one, there is one way to add them.
        if (lanes < 4 && reduce != Lanes::kInSequence) continue;
        const SumOrder order{.lanes = lanes, .reduce = reduce, .block = block};
        if (TextOf(TreeOf(order, products)) == text) orders.push_back(order);
      }
    }
  }
  return orders;
}

std::vector<std::vector<int64_t>> LeavesOfCommon(const SumTree& tree) {
  const int64_t products = LeavesOf(tree);
  std::vector<std::vector<int64_t>> counts;
  for (int64_t i = 0; i < products; ++i) counts.emplace_back(static_cast<size_t>(products - i - 1));
  Meet(tree, counts);
  return counts;
}

}  // namespace qualm::conventions
