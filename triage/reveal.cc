// SPDX-License-Identifier: Apache-2.0
#include "triage/reveal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <map>
#include <string_view>
#include <utility>

#include "core/float_text.h"
#include "core/rng.h"
#include "core/status.h"

namespace qualm::triage {
namespace {

using conventions::SumSteps;
using conventions::SumTree;

// So large that units beside it are lost in float64 too.
constexpr float kMask = 0x1p100f;
constexpr int64_t kMostProducts = 1024;

struct NoTree {
  std::string why;
};
// What the sum that is asked threw. RevealTree throws an InputError of its own.
struct Thrown {
  std::exception_ptr error;
};

// Asks with +kMask at one place, -kMask at another and units elsewhere. The units that are added to
// one of the two before the other are lost.
class Masks {
 public:
  Masks(const AskSum& ask, int64_t products)
      : ask_(ask), products_(products), ones_(static_cast<size_t>(products), 1.0f) {}

  int64_t LeavesOfCommon(int64_t i, int64_t j) {
    const auto known = known_.find({i, j});
    if (known != known_.end()) return known->second;
    std::vector<float> a = ones_;
    a[static_cast<size_t>(i)] = kMask;
    a[static_cast<size_t>(j)] = -kMask;
    const float left = Ask(a);
    const float leaves = static_cast<float>(products_) - left;
    if (!(leaves >= 2 && leaves <= static_cast<float>(products_)) || leaves != std::trunc(leaves)) {
      throw NoTree{"2^100 at " + std::to_string(i) + ", -2^100 at " + std::to_string(j) +
                   " and units elsewhere sum to " + ShortestDecimal(left) +
                   ", expected the number of units that are left"};
    }
    return known_[{i, j}] = static_cast<int64_t>(leaves);
  }
  int64_t questions() const { return std::ssize(known_); }
  // Whether no unit was ever lost.
  bool LoseNothing() const {
    return std::ranges::all_of(known_, [](const auto& one) { return one.second == 2; });
  }

 private:
  float Ask(const std::vector<float>& a) const {
    try {
      return ask_(a, ones_);
    } catch (...) {
      throw Thrown{std::current_exception()};
    }
  }

  const AskSum& ask_;
  int64_t products_;
  std::vector<float> ones_;
  std::map<std::pair<int64_t, int64_t>, int64_t> known_;
};

void FindTree(Masks& masks, RevealedSum& sum) {
  const int64_t n = sum.products;
  try {
    // An exact sum has no tree from three products on.
    for (int64_t j = 1; j < n; ++j) {
      masks.LeavesOfCommon(0, j);
      masks.LeavesOfCommon(j - 1, j);
    }
    if (n > 2 && masks.LoseNothing()) {
      sum.is_exact = true;
      return;
    }
    sum.tree = conventions::RevealTree(
        n, [&](int64_t i, int64_t j) { return masks.LeavesOfCommon(i, j); });
  } catch (const Thrown& thrown) {
    std::rethrow_exception(thrown.error);
  } catch (const NoTree& none) {
    sum.why_no_tree = none.why;
  } catch (const InputError& error) {
    sum.why_no_tree = error.what();
  }
}

// Mantissas of 24 bits, magnitudes that differ by a few powers of two: nearly every step rounds.
std::vector<float> Drawn(Rng& rng, int64_t count) {
  std::vector<float> list;
  for (int64_t k = 0; k < count; ++k) {
    const auto bits = static_cast<float>(rng.Between(1 << 23, (1 << 24) - 1));
    const float value = std::ldexp(bits, static_cast<int>(rng.Between(-26, -20)));
    list.push_back(rng.Chance(1, 2) ? value : -value);
  }
  return list;
}

struct Way {
  std::string_view steps;
  std::string order;  // "": the simplest that has the tree
  std::function<float(std::span<const float> a, std::span<const float> b)> sum;
  bool holds = true;
};

constexpr std::string_view kFused = "fused multiply-adds";

std::vector<Way> WaysOf(const RevealedSum& sum) {
  if (sum.is_exact) return {{"rounded once", "", conventions::ExactSum}};
  const auto along = [&](SumSteps steps) {
    return [&, steps](std::span<const float> a, std::span<const float> b) {
      return conventions::SumAlong(*sum.tree, steps, a, b);
    };
  };
  std::vector<Way> ways{{kFused, "", along(SumSteps::kFused)},
                        {"products rounded, then added", "", along(SumSteps::kRounded)},
                        {"float64, rounded to float32 at the end", "", along(SumSteps::kDouble)},
                        {"products rounded, then added in float64, rounded at the end", "",
                         along(SumSteps::kWideSum)}};
  // A lane of one product is rounded before lanes are added: only the order knows.
  for (const conventions::SumOrder& order : conventions::OrdersWith(*sum.tree, sum.products)) {
    ways.push_back({kFused, conventions::NameOf(order),
                    [order](std::span<const float> a, std::span<const float> b) {
                      return conventions::SumOfProducts(order, a, b);
                    }});
  }
  return ways;
}

void FindSteps(const AskSum& ask, const RevealOptions& options, RevealedSum& sum) {
  std::vector<Way> ways = WaysOf(sum);
  Rng rng(options.seed);
  const auto any_holds = [&] { return std::ranges::any_of(ways, &Way::holds); };
  while (sum.compared < options.cases && any_holds() && !(options.stopped && options.stopped())) {
    const std::vector<float> a = Drawn(rng, sum.products), b = Drawn(rng, sum.products);
    const float actual = ask(a, b);
    ++sum.questions;
    ++sum.compared;
    for (Way& way : ways) {
      if (!way.holds) continue;
      const float expected = way.sum(a, b);
      if (expected == actual) continue;
      way.holds = false;
      sum.witness = {a, b, expected, actual, std::string(way.steps)};
    }
  }
  const auto way = std::ranges::find_if(ways, &Way::holds);
  if (way == ways.end() || sum.compared == 0) return;
  sum.steps = way->steps;
  if (!way->order.empty()) sum.order = way->order;
  sum.witness.reset();
}

// ---- The drawing.

int64_t LeavesIn(const SumTree& tree) {
  if (tree.parts.empty()) return 1;
  int64_t leaves = 0;
  for (const SumTree& part : tree.parts) leaves += LeavesIn(part);
  return leaves;
}
int64_t FirstLeaf(const SumTree& tree) {
  if (tree.parts.empty()) return tree.leaf;
  int64_t first = INT64_MAX;
  for (const SumTree& part : tree.parts) first = std::min(first, FirstLeaf(part));
  return first;
}

std::vector<const SumTree*> PartsOf(const SumTree& tree) {
  std::vector<const SumTree*> parts;
  for (const SumTree& part : tree.parts) parts.push_back(&part);
  std::ranges::sort(parts, {}, [](const SumTree* part) { return FirstLeaf(*part); });
  return parts;
}

// What is added one after the other: of a node its two parts, or, where parts of one size are added
// again and again, all of them.
std::vector<const SumTree*> ItemsOf(const SumTree& tree) {
  std::vector<const SumTree*> parts = PartsOf(tree);
  if (parts.size() != 2) return parts;
  const SumTree *more = parts[0], *less = parts[1];
  if (LeavesIn(*more) < LeavesIn(*less)) std::swap(more, less);
  if (LeavesIn(*more) > LeavesIn(*less) && more->parts.size() == 2) {
    std::vector<const SumTree*> items = ItemsOf(*more);
    if (LeavesIn(*items.back()) == LeavesIn(*less)) {
      items.push_back(less);
      return items;
    }
  }
  return {more, less};
}

// "0 + 8 + ... + 56" where the steps are equal.
std::string LeavesText(const std::vector<int64_t>& leaves) {
  const auto all_equal = [&] {
    for (size_t i = 2; i < leaves.size(); ++i) {
      if (leaves[i] - leaves[i - 1] != leaves[1] - leaves[0]) return false;
    }
    return true;
  };
  std::string text;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const bool left_out = leaves.size() > 4 && all_equal() && i >= 2 && i + 1 < leaves.size();
    if (left_out && i > 2) continue;
    text += (text.empty() ? "" : " + ") + (left_out ? "..." : std::to_string(leaves[i]));
  }
  return text;
}

// Whether the two differ in nothing but a number that is added to every leaf of one of them.
bool HaveOneShape(const SumTree& a, const SumTree& b, int64_t apart) {
  if (a.parts.size() != b.parts.size()) return false;
  if (a.parts.empty()) return b.leaf - a.leaf == apart;
  const std::vector<const SumTree*> of_a = PartsOf(a), of_b = PartsOf(b);
  for (size_t i = 0; i < of_a.size(); ++i) {
    if (!HaveOneShape(*of_a[i], *of_b[i], apart)) return false;
  }
  return true;
}

void Draw(const SumTree& tree, const std::string& first, const std::string& rest,
          std::string& text) {
  if (tree.parts.empty()) {
    text += first + std::to_string(tree.leaf) + "\n";
    return;
  }
  const std::vector<const SumTree*> items = ItemsOf(tree);
  const bool fused = tree.parts.size() > 2;
  // The lines below this one: leaves that follow each other share one.
  std::vector<std::vector<int64_t>> leaves;
  std::vector<const SumTree*> nodes;
  for (const SumTree* item : items) {
    const bool is_leaf = item->parts.empty();
    if (!is_leaf || nodes.empty() || nodes.back() != nullptr) {
      nodes.push_back(is_leaf ? nullptr : item);
      leaves.emplace_back();
    }
    if (is_leaf) leaves.back().push_back(item->leaf);
  }
  const std::string kind = fused ? "rounded once: " : "";
  if (nodes.size() == 1 && nodes.front() == nullptr) {
    text += first + kind + LeavesText(leaves.front()) + "\n";
    return;
  }
  text += first +
          (fused              ? "+ rounded once"
           : items.size() > 2 ? "+ one after the other"
                              : "+") +
          "\n";
  for (size_t i = 0; i < nodes.size(); ++i) {
    const bool last = i + 1 == nodes.size();
    const std::string begin = rest + (last ? "`- " : "|- "), below = rest + (last ? "   " : "|  ");
    if (nodes[i] == nullptr) {
      text += begin + LeavesText(leaves[i]) + "\n";
    } else if (nodes[0] != nullptr && i > 0 && LeavesIn(*nodes[0]) > 4 &&
               HaveOneShape(*nodes[0], *nodes[i], FirstLeaf(*nodes[i]) - FirstLeaf(*nodes[0]))) {
      text += begin + "the same from " + std::to_string(FirstLeaf(*nodes[i])) + "\n";
    } else {
      Draw(*nodes[i], begin, below, text);
    }
  }
}

}  // namespace

RevealedSum RevealSum(const AskSum& ask, const RevealOptions& options) {
  if (options.products < 2 || options.products > kMostProducts)
    throw InputError("products: is " + std::to_string(options.products) + ", expected 2 to " +
                     std::to_string(kMostProducts));
  RevealedSum sum;
  sum.products = options.products;
  Masks masks(ask, options.products);
  FindTree(masks, sum);
  sum.questions = masks.questions();
  if (sum.tree) {
    const auto orders = conventions::OrdersWith(*sum.tree, sum.products);
    if (!orders.empty()) sum.order = conventions::NameOf(orders.front());
  }
  if (sum.tree || sum.is_exact) FindSteps(ask, options, sum);
  return sum;
}

std::string RevealedSum::text() const {
  if (tree) return conventions::TextOf(*tree);
  return is_exact ? "exact: no order can be seen" : "no tree: " + why_no_tree;
}

std::string DrawingOf(const SumTree& tree) {
  std::string text;
  Draw(tree, "", "", text);
  return text;
}

std::string TextOf(const RevealedSum& sum) {
  std::string text = "sum of " + std::to_string(sum.products) + " products, " +
                     std::to_string(sum.questions) + " questions\n";
  if (sum.tree) {
    text += "  order: " + (sum.order.empty() ? std::string("none of the named ones") : sum.order) +
            "\n";
  } else {
    text += "  order: " + sum.text() + "\n";
  }
  if (!sum.steps.empty()) {
    text += "  steps: " + sum.steps + " (bit-equal on " + std::to_string(sum.compared) +
            " random sums)\n";
  } else if (sum.witness) {
    text += "  steps: none of the known ones; after " + std::to_string(sum.compared - 1) +
            " random sums " + sum.witness->steps + " gives " + FloatText(sum.witness->expected) +
            ", the answer is " + FloatText(sum.witness->actual) + "\n";
  }
  if (sum.tree) text += "  tree: " + sum.text() + "\n" + DrawingOf(*sum.tree);
  return text;
}

}  // namespace qualm::triage
