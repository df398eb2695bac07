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

namespace qualm::triage {
namespace {

constexpr LinearForm kForms[] = {
    {"q8_0", "s8 x times s8 weights", DType::kS8, DType::kS8, 0},
    {"q4_0", "s8 x times u4 weights", DType::kS8, DType::kU4, 8},
    {"q5_0", "s8 x times weights of 5 bits", DType::kS8, DType::kS8, 0, 32, &kQ5_0},
    {"iq4_nl", "s8 x times 16 weights of s8", DType::kS8, DType::kS8, 0, 32, &kIq4Nl},
    {"mxfp4", "s8 x times doubled e2m1 weights", DType::kS8, DType::kS8, 0, 32, &kMxfp4},
    {"q4_1", "s8 x times u4 weights without minima", DType::kS8, DType::kU4, 0, 32, &kQ4_1},
    {"q5_1", "s8 x times weights of 5 bits without minima", DType::kS8, DType::kU8, 0, 32, &kQ5_1},
    {"q2_k", "s8 x times u2 weights without minima", DType::kS8, DType::kU2, 0, 16, &kQ2K},
    {"q3_k", "s8 x times weights of 3 bits", DType::kS8, DType::kS8, 0, 16, &kQ3K},
    {"q4_k", "s8 x times u4 weights without minima", DType::kS8, DType::kU4, 0, 32, &kQ4K},
    {"q5_k", "s8 x times weights of 5 bits without minima", DType::kS8, DType::kU8, 0, 32, &kQ5K},
    {"q6_k", "s8 x times weights of 6 bits", DType::kS8, DType::kS8, 0, 16, &kQ6K},
    {"f32_u4", "f32 x times u4 weights", DType::kF32, DType::kU4, 8},
    {"f32_u8", "f32 x times u8 weights", DType::kF32, DType::kU8, 128},
};

// The code of x in units and masks. Each block has it where the format has a weight 0: ONNX Runtime
// makes codes of reals by the largest of a block.
constexpr int32_t kCodeOfX = 127;
// Scales, all f16. Units are 127 times powers of two from 127 * SmallOf * kSmall on; a mask is 127
// * LargeOf * kLarge times MaskOf, which is at least 3. Six units at a time are lost beside it in
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
  const int power = std::ilogb(LargeOf(form) * kLarge);
  return MaskOf(form) == 4 ? "127*2^" + std::to_string(power + 2)
                           : "127*" + std::to_string(MaskOf(form)) + "*2^" + std::to_string(power);
}

size_t At(int64_t index) { return static_cast<size_t>(index); }

// A leaf: products of one block, or super-block, that are added as integers, as far as masks tell.
struct Leaf {
  int64_t block = 0;
  std::vector<int64_t> products;
  int64_t first() const { return products.front(); }
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
  void FindLeaves() {
    for (int64_t block = 0; block < blocks_; ++block) {
      const size_t begin = leaves_.size();
      for (int64_t k = block * form_.size(); k < (block + 1) * form_.size(); ++k) {
        const auto same =
            std::find_if(leaves_.begin() + static_cast<std::ptrdiff_t>(begin), leaves_.end(),
                         [&](const Leaf& leaf) { return LoseNothing(leaf.first(), k); });
        if (same == leaves_.end()) {
          leaves_.push_back({block, {k}});
        } else {
          same->products.push_back(k);
        }
      }
    }
  }
  const std::vector<Leaf>& leaves() const { return leaves_; }
  int64_t questions() const { return questions_; }

  // As of conventions::RevealTree.
  int64_t LeavesOfCommon(int64_t i, int64_t j) {
    int64_t count = 2;
    for (int64_t k = 0; k < std::ssize(leaves_); ++k) {
      if (k != i && k != j) count += IsInside(i, j, k) ? 1 : 0;
    }
    return count;
  }

 private:
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
    throw NoTree{
        "products " + std::to_string(leaves_[At(i)].first()) + ", " +
        std::to_string(leaves_[At(j)].first()) + " and " + std::to_string(leaves_[At(k)].first()) +
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
        std::vector<int64_t> units;
        for (const int64_t leaf : leaves) units.push_back(leaves_[At(leaf)].first());
        const uint32_t left = Left(leaves_[At(i)].first(), leaves_[At(j)].first(), units);
        for (size_t l = 0; l < leaves.size(); ++l) lost[At(leaves[l])] = (left >> l & 1) == 0;
      }
    }
    return lost_[{i, j}] = std::move(lost);
  }

  bool LoseNothing(int64_t p, int64_t q) {
    std::vector<int64_t> units;
    bool nothing = true;
    const auto ask = [&] {
      if (!units.empty()) nothing &= Left(p, q, units) == (1u << units.size()) - 1;
      units.clear();
    };
    for (const int64_t at : {p, q}) {
      for (int64_t block = 0; block < blocks_; ++block) {
        if (block == p / form_.size()) continue;
        units.push_back(block * form_.size() + at % form_.size());
        if (units.size() == kUnitsAtOnce) ask();
      }
      ask();
    }
    return nothing;
  }

  // The mask at product p, its negative at q and a unit at each of these, of different blocks.
  // Bit l: unit l is in the sum.
  uint32_t Left(int64_t p, int64_t q, std::span<const int64_t> units) {
    Case c = empty_;
    const auto set = [&](int64_t k, int32_t x, int32_t w, float x_scale, float w_scale) {
      c.x.SetInt(k, x);
      c.w.SetInt(k, w + form_.w_zero_point);
      const int64_t together = form_.size() / form_.block, first = k / form_.size() * together;
      std::fill_n(c.x_q.scale.begin() + first, together, x_scale);
      std::fill_n(c.w_q.scale.begin() + first, together, w_scale);
    };
    const float small = SmallOf(form_), large = LargeOf(form_);
    for (size_t l = 0; l < units.size(); ++l)
      set(units[l], kCodeOfX, 1, small, std::ldexp(kSmall, static_cast<int>(l)));
    set(p, kCodeOfX, MaskOf(form_), large, kLarge);
    set(q, -kCodeOfX, MaskOf(form_), large, kLarge);
    ++questions_;
    const float answer = LetPass([&] { return ask_(c); });
    const float left = answer / (kCodeOfX * small * kSmall);
    if (!(left >= 0 && left < static_cast<float>(1u << units.size())) || left != std::trunc(left)) {
      throw NoTree{MaskText(form_) + " at product " + std::to_string(p) + ", its negative at " +
                   std::to_string(q) + " and 127 times small powers of two elsewhere sum to " +
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
  const int64_t together = form.size() / form.block;
  for (int64_t block = 0; together > 1 && block < RowBlocks(c); ++block) {
    const int64_t first = block - block % together;
    if (block == first) {
      c.x_q.scale[At(block)] = std::abs(DrawnFloat(rng));
      c.w_q.scale[At(block)] *= 0x1p-6f;  // the unit, until the others have theirs
    }
    c.x_q.scale[At(block)] = c.x_q.scale[At(first)];
    if (block != first) {
      c.w_q.scale[At(block)] =
          c.w_q.scale[At(first)] * static_cast<float>(rng.Between(1, form.format->most_factor));
    }
  }
  return c;
}

// The ways in which a leaf of the case may be the product of two float32.
std::vector<DrawnSum::Factors> WaysOf(const LinearForm& form, const Case& c,
                                      const std::vector<Leaf>& leaves) {
  std::vector<DrawnSum::Factors> ways;
  const auto add = [&](std::string_view name, const auto& factors) {
    DrawnSum::Factors way{name, {}, {}};
    for (const Leaf& leaf : leaves) {
      const auto [a, b] = factors(leaf);
      way.a.push_back(a);
      way.b.push_back(b);
    }
    ways.push_back(std::move(way));
  };
  // As they are stored: of a super-block one scale, of its blocks integers.
  const int64_t together = form.size() / form.block;
  std::vector<float> scales;
  std::vector<int32_t> factors;
  for (int64_t block = 0; block < RowBlocks(c); block += together) {
    const auto of_block = std::span(c.w_q.scale).subspan(At(block), At(together));
    const auto zero_points = std::span(c.w_q.zero_point).subspan(At(block), At(together));
    SuperBlock stored{of_block[0], 0, {1}};
    if (together > 1) stored = SuperBlockOf(*form.format, of_block, zero_points).value();
    scales.push_back(stored.scale);
    factors.insert(factors.end(), stored.factors.begin(), stored.factors.begin() + together);
  }
  const auto weight = [&](int64_t k) {
    return (c.w.IntAt(k) - form.w_zero_point) * factors[At(k / form.block)];
  };
  const auto dw = [&](const Leaf& leaf) { return scales[At(leaf.block)]; };
  if (form.x == DType::kF32) {
    const auto x = [&](const Leaf& leaf) { return c.x.FloatAt(leaf.first()); };
    const auto w = [&](const Leaf& leaf) { return static_cast<float>(weight(leaf.first())); };
    add("each x times its dequantized weight",
        [&](const Leaf& leaf) { return std::pair(x(leaf), w(leaf) * dw(leaf)); });
    add("each x times the scale, rounded, times its code",
        [&](const Leaf& leaf) { return std::pair(x(leaf) * dw(leaf), w(leaf)); });
    add("each x times its code, rounded, times the scale",
        [&](const Leaf& leaf) { return std::pair(x(leaf) * w(leaf), dw(leaf)); });
    return ways;
  }
  const auto sum = [&](const Leaf& leaf) {
    int64_t total = 0;
    for (const int64_t k : leaf.products) total += int64_t{c.x.IntAt(k)} * weight(k);
    return static_cast<float>(total);
  };
  const auto dx = [&](const Leaf& leaf) { return c.x_q.scale[At(leaf.block * together)]; };
  add("each part times the product of its scales",
      [&](const Leaf& leaf) { return std::pair(sum(leaf), dx(leaf) * dw(leaf)); });
  add("each part times the scale of x, rounded, times that of w",
      [&](const Leaf& leaf) { return std::pair(sum(leaf) * dx(leaf), dw(leaf)); });
  add("each part times the scale of w, rounded, times that of x",
      [&](const Leaf& leaf) { return std::pair(sum(leaf) * dw(leaf), dx(leaf)); });
  return ways;
}

}  // namespace

std::span<const LinearForm> LinearForms() { return kForms; }

const LinearForm& FindLinearForm(std::string_view name) {
  std::vector<std::string_view> names;
  for (const LinearForm& form : kForms) {
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
    c.x_q.scale[b] = of_super ? 1 + 0x1p-23f : std::ldexp(1 + 0x1p-10f, static_cast<int>(b));
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
  if (narrow.format == nullptr || narrow.format->minima || wide.size() != narrow.size())
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
    for (int64_t k = 0; k < options.products; ++k) leaves.push_back({k / form.size(), {k}});
  } else {
    BlockMasks masks(form, ask, options.products);
    sum.products = options.products;
    OrWhyNoTree(sum, [&] {
      masks.FindLeaves();
      sum.products = std::ssize(masks.leaves());
    });
    if (sum.why_no_tree.empty())
      FindTree([&](int64_t i, int64_t j) { return masks.LeavesOfCommon(i, j); }, sum);
    sum.questions = masks.questions();
    leaves = masks.leaves();
    for (const Leaf& leaf : leaves) sum.parts.push_back(leaf.products);
  }
  sum.block = form.size();
  FindSteps(
      [&](Rng& rng) {
        const Case c = DrawnCase(form, options.products, rng);
        return DrawnSum{WaysOf(form, c, leaves), ask(c)};
      },
      options, sum);
  return sum;
}

}  // namespace qualm::triage
