// SPDX-License-Identifier: Apache-2.0
#include "triage/reveal_linear.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/float_text.h"
#include "core/nearest.h"
#include "core/status.h"
#include "oracles/conventions/known_trees.h"

namespace qualm::triage {
namespace {

using conventions::SumPart;
using conventions::SumTree;
using conventions::TreeContract;

// The code of x in units and masks. Each block has it where the format has a weight 0: ONNX Runtime
// makes codes of reals by the largest of a block.
constexpr int32_t kCodeOfX = 127;
// Scales, all f16. Units are 127 times powers of two from 127 * SmallOf * SmallOfW on; a mask is
// 127
// * LargeOf * LargeOfW times MaskOf, which is at least 3. Six units at a time are lost beside it in
// float64 too. q8_1 has the scale of x times 127 in f16.
constexpr float kSmall = 0x1p-14f, kLarge = 0x1p15f;
constexpr size_t kUnitsAtOnce = 6;
bool XIs(const LinearForm& form, BlockActivations x) {
  return form.format != nullptr && form.format->x == x;
}
float SmallOf(const LinearForm& form) {
  return XIs(form, BlockActivations::kQ8_1) ? 0x1p-20f : kSmall;
}
float LargeOf(const LinearForm& form) {
  return XIs(form, BlockActivations::kQ8_1) ? 0x1p8f : kLarge;
}
// The scales of w. Scale times zero point is an f16 too where each block has a minimum of its own.
bool HasOwnMinima(const LinearForm& form) { return form.minima() && form.size() == form.block; }
bool HasSmallScales(const LinearForm& form) {
  return form.format != nullptr && form.format->scales == BlockScales::kSmall;
}
float SmallOfW(const LinearForm& form) {
  return HasOwnMinima(form) ? 0x1p-18f : HasSmallScales(form) ? kSmallUnit : kSmall;
}
float LargeOfW(const LinearForm& form) {
  return HasOwnMinima(form) ? 0x1p13f : HasSmallScales(form) ? 0x1p7f : kLarge;
}

// The codes of weights that there are, but for an end that is the other one with a sign.
std::vector<int32_t> CodesOf(const LinearForm& form) {
  const WeightFormat* const format = form.format;
  std::vector<int32_t> codes;
  if (format != nullptr) codes.assign(format->values.begin(), format->values.end());
  if (format != nullptr && format->either_sign) codes.pop_back();
  if (!codes.empty()) return codes;
  const CodeRange of_w = RangeOf(form.w);
  codes.push_back(of_w.max);
  for (int32_t code = of_w.min; code < of_w.max; ++code) codes.push_back(code);
  return codes;
}

bool Has(const LinearForm& form, int32_t number) {
  if (form.format == nullptr) return true;
  return number <= RangeOf(form.w).max && form.format->Has(number);
}
// The weight of a mask: 4, or the largest that there is.
int32_t MaskOf(const LinearForm& form) {
  return Has(form, 4) ? 4 : std::ranges::max(CodesOf(form));
}
// The weight of a product that is 0. Every format has a weight 1, beside which x is 0.
int32_t IdleOf(const LinearForm& form) { return Has(form, 0) ? 0 : 1; }
std::string MaskText(const LinearForm& form) {
  const int power = std::ilogb(LargeOf(form) * LargeOfW(form));
  return MaskOf(form) == 4 ? "127*2^" + std::to_string(power + 2)
                           : "127*" + std::to_string(MaskOf(form)) + "*2^" + std::to_string(power);
}

size_t At(int64_t index) { return static_cast<size_t>(index); }

// A product, or what the minimum of its block takes out there.
struct Term {
  int64_t product = 0;
  bool minimum = false;
};
// A leaf: products of one block, or super-block, that are added as integers, or minima, as far as
// masks tell.
struct Leaf {
  int64_t block = 0;
  SumPart part;
  Term first() const { return {part.products.front(), part.minima()}; }
};

class BlockMasks {
 public:
  BlockMasks(const LinearForm& form, const AskLinear& ask, int64_t products)
      : form_(form), ask_(ask), empty_(CaseOf(form, products)), blocks_(products / form.size()) {
    for (int64_t block = 0; block < blocks_ && IdleOf(form) == 0; ++block)
      empty_.x.SetInt(block * form.size(), kCodeOfX);
  }

  // Parts of a block: two products are of one part if no unit of another block is lost between
  // them.
  // The minima of one block of weights are one.
  void FindLeaves() {
    for (int64_t block = 0; block < blocks_; ++block) {
      FindLeaves(block, false);
      if (form_.minima()) FindLeaves(block, true);
    }
  }
  const std::vector<Leaf>& leaves() const { return leaves_; }
  int64_t questions() const { return questions_; }

  // As of conventions::RevealTree, of these leaves alone.
  int64_t LeavesOfCommon(const std::vector<int64_t>& among, int64_t i, int64_t j) {
    int64_t count = 2;
    for (int64_t k = 0; k < std::ssize(among); ++k)
      if (k != i && k != j) count += IsInside(among[At(i)], among[At(j)], among[At(k)]) ? 1 : 0;
    return count;
  }

 private:
  void FindLeaves(int64_t block, bool minima) {
    const auto begin = std::ssize(leaves_);
    const int64_t step = minima ? form_.block : 1;
    for (int64_t k = block * form_.size(); k < (block + 1) * form_.size(); k += step) {
      auto same = std::find_if(leaves_.begin() + begin, leaves_.end(), [&](const Leaf& leaf) {
        return LoseNothing(leaf.first(), {k, minima});
      });
      const auto of = minima ? SumPart::Of::kMinima : SumPart::Of::kProducts;
      if (same == leaves_.end()) same = leaves_.insert(same, {block, {{}, of}});
      for (int64_t i = k; i < k + step; ++i) same->part.products.push_back(i);
    }
  }

  int64_t BlockOf(int64_t leaf) const { return leaves_[At(leaf)].block; }

  // Whether leaf k is added to one of i and j before they meet.
  bool IsInside(int64_t i, int64_t j, int64_t k) {
    if (BlockOf(i) != BlockOf(k) && BlockOf(j) != BlockOf(k)) return Lost(i, j)[At(k)];
    // k has the scales of a mask, so its unit cannot be asked for. Units of other blocks can.
    if (BlockOf(i) != BlockOf(k)) std::swap(i, j);
    if (BlockOf(j) != BlockOf(k) && !Lost(i, k)[At(j)]) return true;
    const int64_t a = BlockOf(i), b = BlockOf(j);
    const auto lost = [&](int64_t one, int64_t other) {
      std::vector<bool> list = Lost(one, other);
      for (size_t l = 0; l < list.size(); ++l) {
        if (leaves_[l].block == a || leaves_[l].block == b) list[l] = false;
      }
      return list;
    };
    const std::vector<bool> of_ij = lost(i, j), of_ik = lost(i, k), of_jk = lost(j, k);
    // Of the three pairs one meets first, and then nothing is lost that the others do not lose.
    const auto within = [](const std::vector<bool>& less, const std::vector<bool>& more) {
      for (size_t l = 0; l < less.size(); ++l) {
        if (less[l] && !more[l]) return false;
      }
      return less != more;
    };
    if (within(of_ij, of_ik) && within(of_ij, of_jk)) return false;
    if (within(of_ik, of_ij) || within(of_jk, of_ij)) return true;
    const auto first = [&](int64_t leaf) {
      return std::to_string(leaves_[At(leaf)].first().product);
    };
    throw NoTree{
        "products " + first(i) + ", " + first(j) + " and " + first(k) +
        " are added in an order that the scales of their blocks hide; more products may show it"};
  }

  // Of each leaf that has not the block of i or j, whether it is added to one of them before they
  // meet.
  const std::vector<bool>& Lost(int64_t i, int64_t j) {
    if (i > j) std::swap(i, j);
    const auto known = lost_.find({i, j});
    if (known != lost_.end()) return known->second;
    std::vector<bool> lost(leaves_.size());
    // One unit of a block at a time, because units of one block have one scale.
    std::vector<std::vector<int64_t>> rounds;
    int64_t block = -1;
    size_t round = 0;
    for (int64_t k = 0; k < std::ssize(leaves_); ++k) {
      round = BlockOf(k) == block ? round + 1 : 0;
      block = BlockOf(k);
      if (block == BlockOf(i) || block == BlockOf(j)) continue;
      if (rounds.size() <= round) rounds.resize(round + 1);
      rounds[round].push_back(k);
    }
    for (const std::vector<int64_t>& all : rounds) {
      for (size_t begin = 0; begin < all.size(); begin += kUnitsAtOnce) {
        const std::span<const int64_t> leaves =
            std::span(all).subspan(begin, std::min(kUnitsAtOnce, all.size() - begin));
        std::vector<Term> units;
        for (const int64_t leaf : leaves) units.push_back(leaves_[At(leaf)].first());
        const uint32_t left = Left(leaves_[At(i)].first(), leaves_[At(j)].first(), units);
        for (size_t l = 0; l < leaves.size(); ++l) lost[At(leaves[l])] = (left >> l & 1) == 0;
      }
    }
    return lost_[{i, j}] = std::move(lost);
  }

  bool LoseNothing(Term p, Term q) {
    std::vector<Term> units;
    bool nothing = true;
    const auto ask = [&] {
      if (!units.empty()) nothing &= Left(p, q, units) == (1u << units.size()) - 1;
      units.clear();
    };
    for (const auto& [at, minimum] : {p, q}) {
      for (int64_t block = 0; block < blocks_; ++block) {
        if (block == p.product / form_.size()) continue;
        units.push_back({block * form_.size() + at % form_.size(), minimum});
        if (units.size() == kUnitsAtOnce) ask();
      }
      ask();
    }
    return nothing;
  }

  void ClearBefore(Term term, Case& c) const {
    if (term.minimum) c.x.SetInt(term.product / form_.size() * form_.size(), 0);
  }
  // The mask at p, its negative at q and a unit at each of these, of different (super-)blocks.
  // Bit l: unit l is in the sum.
  uint32_t Left(Term p, Term q, std::span<const Term> units) {
    Case c = empty_;
    // A minimum is a zero point where x meets a weight 0, and its sign is the other one. No other x
    // of its block may meet it.
    for (const Term& term : units) ClearBefore(term, c);
    for (const Term& term : {p, q}) ClearBefore(term, c);
    const auto set = [&](Term term, int32_t x, int32_t w, float x_scale, float w_scale) {
      const int64_t k = term.product;
      c.x.SetInt(k, term.minimum ? -x : x);
      c.w.SetInt(k, term.minimum ? 0 : w + form_.w_zero_point);
      if (term.minimum) c.w_q.zero_point[At(k / form_.block)] = w;
      const int64_t together = form_.size() / form_.block, first = k / form_.size() * together;
      std::fill_n(c.x_q.scale.begin() + first, together, x_scale);
      std::fill_n(c.w_q.scale.begin() + first, together, w_scale);
    };
    const float small = SmallOf(form_), large = LargeOf(form_);
    const float small_w = SmallOfW(form_), large_w = LargeOfW(form_);
    for (size_t l = 0; l < units.size(); ++l)
      set(units[l], kCodeOfX, 1, small, std::ldexp(small_w, static_cast<int>(l)));
    // In one block both are at the place of the product: x times a weight less a zero point.
    if (p.product / form_.block == q.product / form_.block && p.minimum != q.minimum)
      (p.minimum ? p : q).product = (p.minimum ? q : p).product;
    set(p, kCodeOfX, MaskOf(form_), large, large_w);
    set(q, -kCodeOfX, MaskOf(form_), large, large_w);
    if (p.product == q.product) {
      c.x.SetInt(p.product, p.minimum ? -kCodeOfX : kCodeOfX);
      c.w.SetInt(p.product, MaskOf(form_) + form_.w_zero_point);
    }
    ++questions_;
    const float answer = LetPass([&] { return ask_(c); });
    const float left = answer / (kCodeOfX * small * small_w);
    if (!(left >= 0 && left < static_cast<float>(1u << units.size())) || left != std::trunc(left)) {
      const auto text = [](Term term) {
        return (term.minimum ? "minimum " : "") + std::to_string(term.product);
      };
      throw NoTree{MaskText(form_) + " at product " + text(p) + ", its negative at " + text(q) +
                   " and 127 times small powers of two elsewhere sum to " +
                   ShortestDecimal(answer) + ", expected the sum of those that are left"};
    }
    return static_cast<uint32_t>(left);
  }

  const LinearForm& form_;
  const AskLinear& ask_;
  Case empty_;  // all products 0
  const int64_t blocks_;
  std::vector<Leaf> leaves_;
  std::map<std::pair<int64_t, int64_t>, std::vector<bool>> lost_;
  int64_t questions_ = 0;
};

// A scale of f16, of which the products of two nearly always round: from 2^-7 to 2^-1.
float DrawnScale(Rng& rng) {
  return std::ldexp(static_cast<float>(rng.Between(1 << 10, (1 << 11) - 1)),
                    static_cast<int>(rng.Between(-17, -12)));
}
float DrawnFloat(Rng& rng) {
  const float value = std::ldexp(static_cast<float>(rng.Between(1 << 23, (1 << 24) - 1)),
                                 static_cast<int>(rng.Between(-26, -20)));
  return rng.Chance(1, 2) ? value : -value;
}

Case DrawnCase(const LinearForm& form, int64_t products, Rng& rng) {
  Case c = CaseOf(form, products);
  const std::vector<int32_t> codes = CodesOf(form);
  // q8_1 has the sum of a block times its scale, in 11 bits.
  const bool short_sums = XIs(form, BlockActivations::kQ8_1);
  const int32_t most = short_sums ? 60 : 127;
  for (int64_t k = 0; k < products; ++k) {
    if (form.x == DType::kF32) {
      c.x.as<float>()[At(k)] = DrawnFloat(rng);
    } else {
      c.x.SetInt(k,
                 k % form.block == 0 ? kCodeOfX : static_cast<int32_t>(rng.Between(-most, most)));
    }
    c.w.SetInt(k, rng.Pick(std::span(codes)));
  }
  const bool powers = form.format != nullptr && form.format->scales == BlockScales::kPowers;
  for (float& scale : c.w_q.scale)
    scale = powers ? std::ldexp(1.0f, std::ilogb(DrawnScale(rng))) : DrawnScale(rng);
  if (c.x_block != 0) {
    for (float& scale : c.x_q.scale)
      scale = short_sums ? std::ldexp(1.0f, std::ilogb(DrawnScale(rng))) : DrawnScale(rng);
  }
  // Minima of a block of its own are f16, as the scale: powers of two of it.
  for (int32_t& zero_point : c.w_q.zero_point)
    if (HasOwnMinima(form)) zero_point = rng.Chance(1, 4) ? 0 : 1 << rng.Between(0, 4);
  const int64_t together = form.size() / form.block;
  for (int64_t block = 0; together > 1 && block < RowBlocks(c); ++block) {
    const int64_t first = block - block % together;
    if (block == first) {
      if (XIs(form, BlockActivations::kQ8K)) c.x_q.scale[At(block)] = std::abs(DrawnFloat(rng));
      c.w_q.scale[At(block)] *= 0x1p-6f;  // the unit, until the others have theirs
    }
    c.x_q.scale[At(block)] = c.x_q.scale[At(block - block % (form.x_size() / form.block))];
    if (HasSmallScales(form)) {
      constexpr int kFrom = 20, kTo = 60;  // codes of scales far from the ends
      const auto code = static_cast<int>(rng.Between(kFrom, kTo));
      c.w_q.scale[At(block)] = kSmallUnit * static_cast<float>(SmallFactor(code));
      continue;
    }
    const int32_t most_factor = form.format->most_factor;
    const auto factor = block == first ? 1 : static_cast<int32_t>(rng.Between(1, most_factor));
    c.w_q.scale[At(block)] = c.w_q.scale[At(first)] * static_cast<float>(factor);
    if (form.minima()) {
      c.w_q.zero_point[At(block)] = static_cast<int32_t>(rng.Between(0, most_factor / factor));
    }
  }
  return c;
}

// The ways in which a leaf of the case may be the product of two float32.
std::vector<DrawnSum::Factors> WaysOf(const LinearForm& form, const Case& c,
                                      const std::vector<Leaf>& leaves) {
  std::vector<SumPart> parts;
  for (const Leaf& leaf : leaves) parts.push_back(leaf.part);
  std::vector<DrawnSum::Factors> ways;
  const size_t count = ScaleWaysOf(form).size();
  for (size_t way = 0; way < (form.minima() ? count * count : count); ++way) {
    auto [a, b] = conventions::FactorsOf(form, way % count, way / count, c, 0, 0, parts);
    ways.push_back({ScaleWaysOf(form)[way % count].text, std::move(a), std::move(b)});
  }
  return ways;
}

// The tree of the leaves that `number` gives a new number; -1 leaves one out.
SumTree Renumbered(const SumTree& tree, const std::function<int64_t(int64_t)>& number) {
  if (tree.parts.empty()) return {.leaf = number(tree.leaf), .parts = {}};
  SumTree node;
  for (const SumTree& part : tree.parts) {
    SumTree one = Renumbered(part, number);
    if (one.leaf >= 0 || !one.parts.empty()) node.parts.push_back(std::move(one));
  }
  if (node.parts.size() > 1) return node;
  return node.parts.empty() ? SumTree{} : std::move(node.parts.front());
}

// The contract with each named order that fits its tree.
std::vector<TreeContract> NamedOrders(const TreeContract& contract) {
  std::vector<TreeContract> all;
  const bool fused = contract.steps == conventions::SumSteps::kFused;
  const auto orders = [&](const SumTree& tree) {
    std::vector<conventions::SumOrder> list = conventions::OrdersWith(tree, LeavesOf(tree));
    for (conventions::SumOrder& order : list) order.fused = fused;
    return list;
  };
  TreeContract one = contract;
  if (!contract.minima || contract.minima->place == conventions::TreeMinima::Place::kInside) {
    for (const auto& order : orders(contract.tree)) {
      one.order = order;
      all.push_back(one);
    }
    return all;
  }
  using Place = conventions::TreeMinima::Place;
  const int64_t parts = contract.parts, minima = contract.minima->parts, both = parts + minima;
  const auto apart = [&](bool of_minima) {
    return orders(Renumbered(contract.tree, [&](int64_t leaf) {
      const int64_t block = leaf / both, at = leaf % both;
      if ((at >= parts) != of_minima) return int64_t{-1};
      return of_minima ? block * minima + at - parts : block * parts + at;
    }));
  };
  const auto before = Renumbered(contract.tree, [&](int64_t leaf) {
    const int64_t block = leaf / both, at = leaf % both;
    return block * both + (at < parts ? at + minima : at - parts);
  });
  const auto add = [&](Place place, const conventions::SumOrder& order) {
    one.minima->place = place;
    one.order = order;
    all.push_back(one);
  };
  for (const auto& order : orders(contract.tree)) add(Place::kBehind, order);
  for (const auto& order : orders(before)) add(Place::kBefore, order);
  for (const auto& order : apart(false)) {
    if (parts == minima) {
      one.order = order;
      one.order->group = 2;
      one.minima->place = Place::kWith;
      all.push_back(one);
    }
    for (const auto& own : apart(true)) {
      one.minima->own = own;
      add(Place::kLast, order);
      if (order.reduce == conventions::SumOrder::Lanes::kInSequence) add(Place::kFirst, order);
    }
  }
  return all;
}

// The sum without the leaves of minima, the others being both.
RevealedSum WithMinimaInside(const RevealedSum& sum, std::vector<Leaf>& leaves) {
  std::map<int64_t, int64_t> number;  // of the leaves that stay
  RevealedSum inside = sum;
  inside.parts.clear();
  for (int64_t leaf = 0; leaf < std::ssize(sum.parts); ++leaf)
    if (!sum.parts[At(leaf)].minima()) number.emplace(leaf, std::ssize(number));
  for (Leaf& leaf : leaves) {
    leaf.part.of = SumPart::Of::kBoth;
    inside.parts.push_back(leaf.part);
  }
  inside.products = std::ssize(leaves);
  inside.tree = Renumbered(*sum.tree, [&](int64_t leaf) {
    const auto at = number.find(leaf);
    return at == number.end() ? -1 : at->second;
  });
  const auto orders = conventions::OrdersWith(*inside.tree, inside.products);
  inside.order = orders.empty() ? "" : conventions::NameOf(orders.front());
  return inside;
}

// Products that follow one another in the first of these leaves.
int64_t RunOf(const std::vector<int64_t>& products) {
  int64_t run = 1;
  while (run < std::ssize(products) && products[At(run)] == products[0] + run) ++run;
  return run;
}

// Whether the subject gives the sums of the contract, of so many random lengths up to 12
// (super-)blocks.
bool KeepsTo(const LinearForm& form, const AskLinear& ask, const TreeContract& one, int64_t cases,
             const RevealOptions& options, RevealedSum& sum) {
  constexpr int64_t kMostBlocks = 12;
  Rng rng(options.seed);
  for (int64_t i = 0; i < cases; ++i) {
    if (options.stopped && options.stopped()) return false;
    const int64_t most = std::max<int64_t>(kMostBlocks * form.size() / one.every, 1);
    const Case c = DrawnCase(form, one.every * rng.Between(1, most), rng);
    if (options.takes && !options.takes(c)) continue;
    ++sum.questions;
    const auto [a, b] = FactorsOf(form, one.scales, one.minima ? one.minima->scales : 0, c, 0, 0,
                                  PartsOf(one, c.K / form.size()));
    if (SumBy(one, a, b) != ask(c)) return false;
  }
  return true;
}

// Gives the contract of the sum its parts, and, if the subject keeps to a named order in sums of
// other lengths too, that order. There is no contract where the parts are no pattern.
void CompleteContract(const LinearForm& form, const AskLinear& ask, const std::vector<Leaf>& leaves,
                      const RevealOptions& options, RevealedSum& sum) {
  TreeContract& contract = sum.contract.value();
  const int64_t blocks = options.products / form.size(), ways = std::ssize(ScaleWaysOf(form));
  contract.form = &form;
  contract.order.reset();
  const auto of_minima =
      std::ranges::count_if(leaves, [](const Leaf& leaf) { return leaf.part.minima(); });
  const bool inside = leaves.front().part.of == SumPart::Of::kBoth;
  contract.parts = (sum.products - of_minima) / blocks;
  contract.run = RunOf(leaves.front().part.products);
  if (form.minima()) {
    contract.minima.emplace();
    if (inside) contract.minima->place = conventions::TreeMinima::Place::kInside;
    contract.minima->parts = std::max<int64_t>(of_minima / blocks, 1);
    if (of_minima > 0) contract.minima->run = RunOf(leaves[At(contract.parts)].part.products);
    contract.minima->scales = contract.scales / At(ways);
    contract.scales %= At(ways);
  }
  const auto is_pattern = [&] {
    return std::ranges::equal(PartsOf(contract, blocks), leaves, {}, {}, &Leaf::part);
  };
  bool found = is_pattern();
  for (int64_t span = form.size() / 2; !found && span % contract.run == 0 && span > 0; span /= 2) {
    contract.span = span;
    found = contract.parts * span % form.size() == 0 && is_pattern();
  }
  if (!found) return sum.contract.reset();
  constexpr int64_t kMostCases = 1000;
  std::vector<TreeContract> named = NamedOrders(contract);
  for (int64_t every = 1; every <= 8; every *= 2) {
    for (TreeContract& one : named) {
      one.every = every * form.size();
      if (!KeepsTo(form, ask, one, std::min(options.cases, kMostCases), options, sum)) continue;
      contract = one;
      if (contract.minima) sum.order = NameOfOrder(contract);
      return;
    }
  }
}

// Where minima go among products whose order is known, while masks hide how the two meet: the
// first place that gives the bits of every random sum.
void FindPlaceOfMinima(const LinearForm& form, const AskLinear& ask,
                       const std::vector<Leaf>& products, const std::vector<Leaf>& minima,
                       const SumTree& of_minima, const RevealOptions& options, RevealedSum& sum) {
  using Place = conventions::TreeMinima::Place;
  const int64_t blocks = options.products / form.size();
  const std::span<const conventions::ScaleWay> ways = ScaleWaysOf(form);
  TreeContract one{.form = &form, .every = form.size()};
  one.parts = std::ssize(products) / blocks;
  one.run = RunOf(products.front().part.products);
  one.minima.emplace();
  one.minima->parts = std::ssize(minima) / blocks;
  one.minima->run = RunOf(minima.front().part.products);
  const auto is_found = [&] {
    if (!KeepsTo(form, ask, one, options.cases, options, sum)) return false;
    sum.order = NameOfOrder(one);
    sum.steps =
        std::string(one.order->fused ? "fused multiply-adds" : "products rounded, then added") +
        ", " + std::string(ways[one.scales].text);
    sum.compared = options.cases;
    sum.contract = one;
    return true;
  };
  for (const bool fused : {true, false}) {
    one.steps = fused ? conventions::SumSteps::kFused : conventions::SumSteps::kRounded;
    for (size_t way = 0; way < ways.size() * ways.size(); ++way) {
      one.scales = way % ways.size();
      one.minima->scales = way / ways.size();
      for (conventions::SumOrder order : conventions::OrdersWith(*sum.tree, sum.products)) {
        order.fused = fused;
        for (const Place place : {Place::kBefore, Place::kBehind, Place::kWith}) {
          if (place == Place::kWith && one.parts != one.minima->parts) continue;
          one.order = order;
          one.order->group = place == Place::kWith ? 2 : 1;
          one.minima->place = place;
          if (is_found()) return;
        }
        one.order = order;
        for (conventions::SumOrder own : conventions::OrdersWith(of_minima, LeavesOf(of_minima))) {
          own.fused = fused;
          one.minima->own = own;
          for (const Place place : {Place::kLast, Place::kFirst}) {
            one.minima->place = place;
            if (is_found()) return;
          }
        }
      }
    }
  }
}

// Where masks hide the order: the first known tree whose bits every random sum has.
void TryKnownTrees(const LinearForm& form, const AskLinear& ask, const RevealOptions& options,
                   RevealedSum& sum) {
  for (const conventions::KnownTree& known : conventions::KnownTrees()) {
    const TreeContract one = conventions::ParseTreeContract(known.tree);
    if (one.form != &form || !one.order) continue;
    if (!KeepsTo(form, ask, one, options.cases, options, sum)) continue;
    sum.parts = PartsOf(one, options.products / form.size());
    sum.products = std::ssize(sum.parts);
    sum.order = NameOfOrder(one) + ", as " + std::string(known.subject) + " adds";
    sum.steps =
        std::string(one.order->fused ? "fused multiply-adds" : "products rounded, then added") +
        ", " + std::string(ScaleWaysOf(form)[one.scales].text);
    sum.compared = options.cases;
    sum.contract = one;
    return;
  }
}

}  // namespace

const LinearForm& FindLinearForm(std::string_view name) {
  std::vector<std::string_view> names;
  for (const LinearForm& form : LinearForms()) {
    if (form.name == name) return form;
    names.push_back(form.name);
  }
  throw InputError("--tree: '" + std::string(name) + "' is no form of a linear, nearest is '" +
                   std::string(NearestName(name, names)) + "'");
}

Case CaseOf(const LinearForm& form, int64_t products) {
  Case c;
  c.M = c.N = 1;
  c.K = products;
  c.x = Tensor(form.x, {1, products});
  c.w = Tensor(form.w, {1, products});
  for (int64_t k = 0; k < products; ++k) c.w.SetInt(k, form.w_zero_point + IdleOf(form));
  c.per_channel = true;
  c.w_block = form.block;
  const size_t blocks = At(RowBlocks(c));
  c.w_q = {std::vector(blocks, 1.0f), std::vector(blocks, form.w_zero_point)};
  if (form.x != DType::kF32) {
    c.x_block = form.block;
    c.x_q = {std::vector(blocks, 1.0f), std::vector<int32_t>(blocks)};
  }
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  return c;
}

Case ProbeOf(const LinearForm& form) {
  Case c = CaseOf(form, 3 * form.size());
  const std::vector<int32_t> codes = CodesOf(form);
  // Scales that other activations have not: q8_K one of 24 bits for all blocks, q8_0 and q8_1
  // several, and q8_0 with sums of codes that make more than 11 bits of them.
  const bool of_super = XIs(form, BlockActivations::kQ8K);
  const bool any_sum = !of_super && !XIs(form, BlockActivations::kQ8_1);
  for (size_t b = 0; b < c.x_q.scale.size() && c.x_block != 0; ++b) {
    const auto of_x = static_cast<int>(static_cast<int64_t>(b) * form.block / form.x_size());
    c.x_q.scale[b] = of_super ? 1 + 0x1p-23f : std::ldexp(1 + 0x1p-10f, of_x);
    if (any_sum) {
      c.x.SetInt(static_cast<int64_t>(b) * form.block, kCodeOfX);
      c.x.SetInt(static_cast<int64_t>(b) * form.block + 1, kCodeOfX - 1);
    }
  }
  for (int64_t k = 0; k < c.K; ++k) c.w.SetInt(k, codes[At(k) % codes.size()]);
  return c;
}

bool Covers(const LinearForm& wide, const LinearForm& narrow) {
  if (wide.x != narrow.x || wide.w != narrow.w || wide.block != narrow.block) return false;
  if (narrow.format == nullptr || narrow.format->minima || wide.size() != narrow.x_size())
    return false;
  const auto has = [&](int8_t code) { return Has(wide, code); };
  return std::ranges::all_of(narrow.format->values, has) &&
         (wide.format == nullptr || wide.format->values.size() > narrow.format->values.size());
}

void RequireBlocks(const LinearForm& form, int64_t products) {
  if (products % form.size() == 0 && products >= 3 * form.size()) return;
  throw InputError("--products: is " + std::to_string(products) +
                   ", expected three or more blocks of " + std::to_string(form.size()));
}

RevealedSum RevealLinear(const LinearForm& form, const AskLinear& ask,
                         const RevealOptions& options) {
  RequireBlocks(form, options.products);
  RevealedSum sum;
  std::vector<Leaf> leaves;
  const auto find_steps = [&](RevealedSum& of) {
    FindSteps(
        [&](Rng& rng) {
          const Case c = DrawnCase(form, options.products, rng);
          return DrawnSum{WaysOf(form, c, leaves), ask(c)};
        },
        options, of);
  };
  if (form.x == DType::kF32) {
    const Case ones = [&] {
      Case c = CaseOf(form, options.products);
      for (int64_t k = 0; k < c.K; ++k) c.w.SetInt(k, form.w_zero_point + 1);
      return c;
    }();
    RevealOptions masks = options;
    masks.cases = 0;
    sum = RevealSum(
        [&](std::span<const float> a, std::span<const float>) {
          Case c = ones;
          std::ranges::copy(a, c.x.as<float>().begin());
          return ask(c);
        },
        masks);
    for (int64_t k = 0; k < options.products; ++k) leaves.push_back({k / form.size(), {{k}}});
  } else {
    BlockMasks masks(form, ask, options.products);
    sum.products = options.products;
    sum.block = form.size();
    OrWhyNoTree(sum, [&] { masks.FindLeaves(); });
    leaves = masks.leaves();
    std::vector<int64_t> all, of[2];
    for (int64_t leaf = 0; leaf < std::ssize(leaves); ++leaf) {
      all.push_back(leaf);
      of[leaves[At(leaf)].part.minima() ? 1 : 0].push_back(leaf);
      sum.parts.push_back(leaves[At(leaf)].part);
    }
    const auto find_tree = [&](const std::vector<int64_t>& among, RevealedSum& to) {
      to.products = std::ssize(among);
      FindTree([&](int64_t i, int64_t j) { return masks.LeavesOfCommon(among, i, j); }, to);
    };
    if (sum.why_no_tree.empty()) find_tree(all, sum);
    if (form.minima() && !sum.tree && !sum.is_exact && !of[1].empty()) {
      // Products and minima of the first blocks hide each other: the tree of products alone.
      RevealedSum apart, minima;
      apart.block = form.size();
      find_tree(of[0], apart);
      if (of[1].size() > 1) find_tree(of[1], minima);
      std::vector<Leaf> products, others;
      for (const int64_t leaf : of[0]) {
        products.push_back(leaves[At(leaf)]);
        apart.parts.push_back(products.back().part);
      }
      for (const int64_t leaf : of[1]) others.push_back(leaves[At(leaf)]);
      if (apart.tree) {
        const std::vector<Leaf> both = std::exchange(leaves, products);
        RevealedSum inside = WithMinimaInside(apart, leaves);
        find_steps(inside);
        if (inside.contract) CompleteContract(form, ask, leaves, options, inside);
        if (inside.is_known()) return inside;
        leaves = both;
        FindPlaceOfMinima(form, ask, products, others, minima.tree.value_or(SumTree{}), options,
                          apart);
      }
      apart.questions += masks.questions();
      if (apart.is_known()) return apart;
    }
    sum.questions = masks.questions();
  }
  sum.block = form.size();
  // Minima may be taken out of products as integers. Then no masks tell them apart.
  const std::vector<Leaf> all = leaves;
  std::erase_if(leaves, [](const Leaf& leaf) { return leaf.part.minima(); });
  if (form.minima() && sum.tree) {
    RevealedSum inside = WithMinimaInside(sum, leaves);
    find_steps(inside);
    if (inside.is_known()) sum = std::move(inside);
  }
  if (sum.steps.empty()) {
    leaves = all;
    find_steps(sum);
  }
  if (sum.contract) CompleteContract(form, ask, leaves, options, sum);
  if (!sum.is_known() && !sum.tree) TryKnownTrees(form, ask, options, sum);
  return sum;
}

}  // namespace qualm::triage
