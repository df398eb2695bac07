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

using conventions::LeavesOf;
using conventions::SumSteps;
using conventions::SumTree;

// So large that units beside it are lost in float64 too.
constexpr float kMask = 0x1p100f;
constexpr int64_t kMostProducts = 1024;

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

 private:
  float Ask(const std::vector<float>& a) const {
    return LetPass([&] { return ask_(a, ones_); });
  }

  const AskSum& ask_;
  int64_t products_;
  std::vector<float> ones_;
  std::map<std::pair<int64_t, int64_t>, int64_t> known_;
};

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
  std::optional<conventions::SumOrder> order;  // none: the simplest that has the tree
  SumSteps kind = SumSteps::kFused;
  std::function<float(std::span<const float> a, std::span<const float> b)> sum;
};

constexpr std::string_view kFused = "fused multiply-adds";

std::vector<Way> WaysOf(const RevealedSum& sum) {
  if (sum.is_exact) return {{"rounded once", std::nullopt, {}, conventions::ExactSum}};
  const auto along = [&](std::string_view name, SumSteps steps) {
    return Way{name, std::nullopt, steps,
               [&, steps](std::span<const float> a, std::span<const float> b) {
                 return conventions::SumAlong(*sum.tree, steps, a, b);
               }};
  };
  std::vector<Way> ways{
      along(kFused, SumSteps::kFused), along("products rounded, then added", SumSteps::kRounded),
      along("float64, rounded to float32 at the end", SumSteps::kDouble),
      along("products rounded, then added in float64, rounded at the end", SumSteps::kWideSum)};
  // A lane of one product is rounded before lanes are added: only the order knows.
  for (const conventions::SumOrder& order : conventions::OrdersWith(*sum.tree, sum.products)) {
    ways.push_back({kFused, order, SumSteps::kFused,
                    [order](std::span<const float> a, std::span<const float> b) {
                      return conventions::SumOfProducts(order, a, b);
                    }});
  }
  return ways;
}

// ---- The drawing.

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
  if (LeavesOf(*more) < LeavesOf(*less)) std::swap(more, less);
  if (LeavesOf(*more) > LeavesOf(*less) && more->parts.size() == 2) {
    std::vector<const SumTree*> items = ItemsOf(*more);
    if (LeavesOf(*items.back()) == LeavesOf(*less)) {
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
    } else if (nodes[0] != nullptr && i > 0 && LeavesOf(*nodes[0]) > 4 &&
               HaveOneShape(*nodes[0], *nodes[i], FirstLeaf(*nodes[i]) - FirstLeaf(*nodes[0]))) {
      text += begin + "the same from " + std::to_string(FirstLeaf(*nodes[i])) + "\n";
    } else {
      Draw(*nodes[i], begin, below, text);
    }
  }
}

// Of each block the products of its parts, counted from the first of the block.
std::vector<std::vector<conventions::SumPart>> PartsOfBlocks(const RevealedSum& sum) {
  std::vector<std::vector<conventions::SumPart>> blocks;
  for (conventions::SumPart part : sum.parts) {
    const int64_t block = part.products.front() / sum.block;
    blocks.resize(static_cast<size_t>(block) + 1);
    for (int64_t& k : part.products) k -= block * sum.block;
    blocks.back().push_back(std::move(part));
  }
  return blocks;
}

// "0 + 1 + 2 + 3 | 4 + 5 + 6 + 7 | ...", of products or of minima; "" if there are none.
std::string PartsText(const std::vector<conventions::SumPart>& parts, bool minima) {
  constexpr size_t kShown = 4;
  std::string text;
  size_t count = 0;
  for (const conventions::SumPart& part : parts) {
    if (part.minima() == minima && count++ < kShown)
      text += (text.empty() ? "" : " | ") + LeavesText(part.products);
  }
  if (count > kShown) text += " | ... (" + std::to_string(count) + " parts)";
  return text;
}

// What the leaves are, where they are no products: a line for each kind of block.
std::string TextOfParts(const RevealedSum& sum) {
  if (!sum.tree && !sum.is_exact) return "";
  const auto blocks = PartsOfBlocks(sum);
  std::string text;
  for (size_t begin = 0, end = 0; begin < blocks.size(); begin = end) {
    while (end < blocks.size() && blocks[end] == blocks[begin]) ++end;
    const bool all = end - begin == blocks.size();
    text += "  added as integers, in " +
            (all ? "each block"
                 : "block " + std::to_string(begin) +
                       (end == begin + 1 ? "" : " to " + std::to_string(end - 1))) +
            ": " + PartsText(blocks[begin], false) + "\n";
    const std::string minima = PartsText(blocks[begin], true);
    if (!minima.empty()) text += "    and the minima there: " + minima + "\n";
  }
  return text;
}

}  // namespace

void OrWhyNoTree(RevealedSum& sum, const std::function<void()>& find) {
  try {
    find();
  } catch (const ThrownBySum& thrown) {
    std::rethrow_exception(thrown.error);
  } catch (const NoTree& none) {
    sum.why_no_tree = none.why;
  } catch (const InputError& error) {
    sum.why_no_tree = error.what();
  }
}

void FindTree(const std::function<int64_t(int64_t i, int64_t j)>& leaves_of_common,
              RevealedSum& sum) {
  const int64_t n = sum.products;
  OrWhyNoTree(sum, [&] {
    // An exact sum has no tree from three products on.
    bool loses = false;
    for (int64_t j = 1; j < n; ++j)
      loses |= leaves_of_common(0, j) != 2 || leaves_of_common(j - 1, j) != 2;
    if (n > 2 && !loses) {
      sum.is_exact = true;
      return;
    }
    sum.tree = conventions::RevealTree(n, leaves_of_common);
    const auto orders = conventions::OrdersWith(*sum.tree, n);
    if (!orders.empty()) sum.order = conventions::NameOf(orders.front());
  });
}

void FindSteps(const std::function<DrawnSum(Rng&)>& draw, const RevealOptions& options,
               RevealedSum& sum) {
  if (!sum.tree && !sum.is_exact) return;
  const std::vector<Way> ways = WaysOf(sum);
  struct Candidate {
    const Way* way;
    size_t factors;
    std::string steps;
  };
  std::vector<Candidate> candidates;
  Rng rng(options.seed);
  while (sum.compared < options.cases && !(options.stopped && options.stopped())) {
    const DrawnSum drawn = draw(rng);
    ++sum.questions;
    if (sum.compared++ == 0) {
      for (const Way& way : ways) {
        for (size_t f = 0; f < drawn.ways.size(); ++f) {
          const std::string_view of = drawn.ways[f].name;
          candidates.push_back(
              {&way, f, std::string(way.steps) + (of.empty() ? "" : ", ") + std::string(of)});
        }
      }
    }
    std::erase_if(candidates, [&](const Candidate& one) {
      const auto& [name, a, b] = drawn.ways[one.factors];
      const float expected = one.way->sum(a, b);
      if (expected == drawn.actual) return false;
      sum.witness = {a, b, expected, drawn.actual, one.steps};
      return true;
    });
    if (candidates.empty()) return;
  }
  if (candidates.empty()) return;
  const Candidate& found = candidates.front();
  sum.steps = found.steps;
  if (found.way->order) sum.order = conventions::NameOf(*found.way->order);
  sum.witness.reset();
  if (!sum.tree) return;
  sum.contract = conventions::TreeContract{
      .tree = *sum.tree, .steps = found.way->kind, .scales = found.factors};
  // An order says the same of fused steps only where it is a candidate itself.
  for (const Candidate& one : candidates) {
    if (!sum.contract->order && one.factors == found.factors) sum.contract->order = one.way->order;
  }
  const auto orders = conventions::OrdersWith(*sum.tree, sum.products);
  if (found.way->kind != SumSteps::kFused && !orders.empty()) {
    sum.contract->order = orders.front();
    sum.contract->order->fused = false;
  }
}

RevealedSum RevealSum(const AskSum& ask, const RevealOptions& options) {
  if (options.products < 2 || options.products > kMostProducts)
    throw InputError("products: is " + std::to_string(options.products) + ", expected 2 to " +
                     std::to_string(kMostProducts));
  RevealedSum sum;
  sum.products = options.products;
  Masks masks(ask, options.products);
  FindTree([&](int64_t i, int64_t j) { return masks.LeavesOfCommon(i, j); }, sum);
  sum.questions = masks.questions();
  FindSteps(
      [&](Rng& rng) {
        DrawnSum drawn;
        drawn.ways.push_back({"", Drawn(rng, sum.products), Drawn(rng, sum.products)});
        drawn.actual = ask(drawn.ways.front().a, drawn.ways.front().b);
        return drawn;
      },
      options, sum);
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
  std::string text = "sum of " + std::to_string(sum.products) +
                     (sum.parts.empty() ? " products, " : " parts, ") +
                     std::to_string(sum.questions) + " questions\n" + TextOfParts(sum);
  if (sum.tree) {
    text += "  order: " + (sum.order.empty() ? std::string("none of the named ones") : sum.order) +
            "\n";
  } else if (!sum.order.empty()) {
    text += "  order: " + sum.order + "\n  (masks do not show it: " + sum.why_no_tree + ")\n";
  } else {
    text += "  order: " + sum.text() + "\n";
  }
  if (!sum.steps.empty()) {
    text += "  steps: " + sum.steps + " (bit-equal on " + std::to_string(sum.compared) +
            " random sums)\n";
    if (sum.contract) text += "  contract: " + sum.contract->text() + "\n";
  } else if (sum.witness) {
    text += "  steps: none of the known ones; after " + std::to_string(sum.compared - 1) +
            " random sums " + sum.witness->steps + " gives " + FloatText(sum.witness->expected) +
            ", the answer is " + FloatText(sum.witness->actual) + "\n";
  }
  if (sum.tree) text += "  tree: " + sum.text() + "\n" + DrawingOf(*sum.tree);
  return text;
}

}  // namespace qualm::triage
