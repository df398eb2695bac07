// SPDX-License-Identifier: Apache-2.0
#include "triage/reveal_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/status.h"

namespace qualm::triage {
namespace {

// The products of block b from `begin` on, so many, `step` apart, added as integers.
float Part(const Case& c, int64_t block, int64_t begin, int64_t count, int64_t step = 1) {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t k = block * 32 + begin + i * step;
    sum += int64_t{c.x.IntAt(k)} * (c.w.IntAt(k) - c.w_q.zero_point[WEntry(c, 0, k)]);
  }
  return static_cast<float>(sum);
}
float ScaleOfX(const Case& c, int64_t block) { return c.x_q.scale[static_cast<size_t>(block)]; }
float ScaleOfW(const Case& c, int64_t block) { return c.w_q.scale[static_cast<size_t>(block)]; }
float Scale(const Case& c, int64_t block) { return ScaleOfX(c, block) * ScaleOfW(c, block); }

float Chain(const Case& c) {
  float sum = 0;
  for (int64_t b = 0; b < RowBlocks(c); ++b) sum += Part(c, b, 0, 32) * Scale(c, b);
  return sum;
}
float OneScaleAfterTheOther(const Case& c) {
  float sum = 0;
  for (int64_t b = 0; b < RowBlocks(c); ++b)
    sum = std::fma(Part(c, b, 0, 32) * ScaleOfW(c, b), ScaleOfX(c, b), sum);
  return sum;
}
// AVX2's: eight lanes of four neighbours.
float Lanes(const Case& c) {
  float lane[8] = {};
  for (int64_t b = 0; b < RowBlocks(c); ++b) {
    for (int64_t l = 0; l < 8; ++l) lane[l] = std::fma(Part(c, b, 4 * l, 4), Scale(c, b), lane[l]);
  }
  for (int half = 4; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
  }
  return lane[0];
}
// Two blocks at a time, each to a sum of its own; the last block of an odd number comes last.
float EvenAndOdd(const Case& c) {
  float sum[2][2] = {};
  const int64_t pairs = RowBlocks(c) / 2 * 2;
  for (int64_t b = 0; b < pairs; ++b) {
    for (int64_t l = 0; l < 2; ++l) sum[b % 2][l] += Part(c, b, l, 16, 2) * Scale(c, b);
  }
  float total = (sum[0][0] + sum[0][1]) + (sum[1][0] + sum[1][1]);
  for (int64_t b = pairs; b < RowBlocks(c); ++b) total += Part(c, b, 0, 32) * Scale(c, b);
  return total;
}

// Of K-quants: lanes, a quarter of each 16 codes in turn, whose products meet the factors of the
// blocks as integers; a sum for each super-block, times its scales.
float SuperLanes(const LinearForm& form, const Case& c) {
  const int64_t blocks = form.format->blocks();
  float lane[4] = {}, minima = 0;
  for (int64_t first = 0; first < RowBlocks(c); first += blocks) {
    const auto begin = static_cast<size_t>(first), count = static_cast<size_t>(blocks);
    const SuperBlock stored =
        SuperBlockOf(*form.format, std::span(c.w_q.scale).subspan(begin, count),
                     std::span(c.w_q.zero_point).subspan(begin, count))
            .value();
    int64_t sums[4] = {}, minimum = 0;
    for (int64_t k = 0; k < form.size(); ++k) {
      const int64_t at = first * form.block + k;
      sums[k % 16 / 4] += int64_t{stored.factors[static_cast<size_t>(k / form.block)]} *
                          c.x.IntAt(at) * c.w.IntAt(at);
      if (form.minima()) {
        minimum -=
            int64_t{stored.factors[static_cast<size_t>(blocks + k / form.block)]} * c.x.IntAt(at);
      }
    }
    minima = std::fma(static_cast<float>(minimum), stored.minimum * ScaleOfX(c, first), minima);
    for (int l = 0; l < 4; ++l)
      lane[l] = std::fma(static_cast<float>(sums[l]), stored.scale * ScaleOfX(c, first), lane[l]);
  }
  return (((lane[0] + lane[1]) + lane[2]) + lane[3]) + minima;
}

// One part of products and one of minima in each (super-)block, as their products with the scales.
struct Halves {
  float product, minimum;
};
std::vector<Halves> HalvesOf(const LinearForm& form, const Case& c) {
  std::vector<conventions::SumPart> parts;
  for (int64_t first = 0; first < c.K; first += form.size()) {
    for (const auto of : {conventions::SumPart::Of::kProducts, conventions::SumPart::Of::kMinima}) {
      parts.push_back({{}, of});
      for (int64_t k = first; k < first + form.size(); ++k) parts.back().products.push_back(k);
    }
  }
  const auto [a, b] = conventions::FactorsOf(form, 0, 0, c, 0, 0, parts);
  std::vector<Halves> halves;
  for (size_t i = 0; i < a.size(); i += 2) halves.push_back({a[i] * b[i], a[i + 1] * b[i + 1]});
  return halves;
}

// Every product is rounded; two lanes, or a chain of the blocks.
TEST(RevealLinear, FindsWhereMinimaGo) {
  struct Row {
    std::string place;
    float (*sum)(const std::vector<Halves>& blocks);
    std::string minima, order;
  };
  const auto lanes = [](const std::vector<Halves>& blocks, float* lane, float& minima) {
    for (size_t b = 0; b < blocks.size(); ++b) {
      lane[b % 2] += blocks[b].product;
      minima += blocks[b].minimum;
    }
  };
  static const auto kLanes = lanes;
  const std::vector<Row> rows{{"with",
                               [](const std::vector<Halves>& blocks) {
                                 float lane[2] = {};
                                 for (size_t b = 0; b < blocks.size(); ++b)
                                   lane[b % 2] += blocks[b].minimum + blocks[b].product;
                                 return lane[0] + lane[1];
                               },
                               "with", "2/sequence"},
                              {"before",
                               [](const std::vector<Halves>& blocks) {
                                 float sum = 0;
                                 for (const Halves& block : blocks)
                                   sum = (sum + block.minimum) + block.product;
                                 return sum;
                               },
                               "before", "1/sequence"},
                              {"behind",
                               [](const std::vector<Halves>& blocks) {
                                 float sum = 0;
                                 for (const Halves& block : blocks)
                                   sum = (sum + block.product) + block.minimum;
                                 return sum;
                               },
                               "behind", "1/sequence"},
                              {"first",
                               [](const std::vector<Halves>& blocks) {
                                 float lane[2] = {}, minima = 0;
                                 kLanes(blocks, lane, minima);
                                 return (minima + lane[0]) + lane[1];
                               },
                               "first/1/sequence", "2/sequence"},
                              {"last",
                               [](const std::vector<Halves>& blocks) {
                                 float lane[2] = {}, minima = 0;
                                 kLanes(blocks, lane, minima);
                                 return (lane[0] + lane[1]) + minima;
                               },
                               "last/1/sequence", "2/sequence"}};
  for (const std::string_view name : {"q4_1", "q5_1"}) {
    const LinearForm& form = FindLinearForm(name);
    const std::string size = std::to_string(form.size());
    for (const Row& row : rows) {
      // Of these random sums have so few bits that it is the same to add minima to the codes.
      if (row.place == "with" && form.size() == 32) continue;
      const RevealedSum sum =
          RevealLinear(form, [&](const Case& c) { return row.sum(HalvesOf(form, c)); },
                       {.products = 8 * form.size(), .cases = 300});
      EXPECT_TRUE(sum.is_known()) << name << " " << row.place << " " << TextOf(sum);
      ASSERT_TRUE(sum.contract.has_value()) << name << " " << row.place << " " << TextOf(sum);
      const std::string text = "tree:{form:" + std::string(name) + " parts:1x" + size +
                               " order:" + row.order + " minima:1x" + size + "/" + row.minima;
      EXPECT_TRUE(sum.contract->text().starts_with(text)) << sum.contract->text();
      EXPECT_TRUE(sum.contract->text().ends_with(" every:" + size + "}")) << sum.contract->text();
    }
  }
}

RevealedSum Revealed(std::string_view form, const AskLinear& ask, int64_t blocks) {
  return RevealLinear(FindLinearForm(form), ask, {.products = blocks * 32, .cases = 300});
}

TEST(RevealLinear, FindsPartsOrderAndSteps) {
  struct Row {
    AskLinear ask;
    int64_t blocks, parts;
    std::string order, steps, parts_text;
  };
  const std::vector<Row> rows{
      {Chain, 3, 3, "a chain",
       "products rounded, then added, each part times the product of its scales",
       "in each block: 0 + 1 + ... + 31\n"},
      {OneScaleAfterTheOther, 14, 14, "a chain",
       "fused multiply-adds, each part times the scale of w, rounded, times that of x",
       "in each block: 0 + 1 + ... + 31\n"},
      {Lanes, 4, 32, "8 lanes, halved",
       "fused multiply-adds, each part times the product of its scales",
       "in each block: 0 + 1 + 2 + 3 | 4 + 5 + 6 + 7 | 8 + 9 + 10 + 11 | 12 + 13 + 14 + 15 | ... "
       "(8 parts)\n"},
      {EvenAndOdd, 7, 13, "",
       "products rounded, then added, each part times the product of its scales",
       "in block 0 to 5: 0 + 2 + ... + 30 | 1 + 3 + ... + 31\n  added as integers, in block 6: 0 + "
       "1 + ... + 31\n"}};
  for (const Row& row : rows) {
    for (const std::string_view form :
         {"q8_0", "q4_0", "q5_0", "iq4_nl", "mxfp4", "q4_1", "q5_1"}) {
      const RevealedSum sum = Revealed(form, row.ask, row.blocks);
      EXPECT_EQ(sum.why_no_tree, "");
      EXPECT_EQ(sum.products, row.parts);
      // Part takes zero points out of the codes.
      const bool inside = FindLinearForm(form).minima() && !row.order.empty();
      EXPECT_EQ(sum.order, row.order + (inside ? "; minima are inside of their parts" : ""));
      // The sums of others have so few bits, or scales of x are powers of two, that nothing rounds.
      if (form == "q8_0" || form == "iq4_nl") EXPECT_EQ(sum.steps, row.steps);
      EXPECT_TRUE(sum.is_known());
      EXPECT_NE(TextOf(sum).find(row.parts_text), std::string::npos) << TextOf(sum);
    }
  }
  EXPECT_EQ(Revealed("q8_0", EvenAndOdd, 7).text(),
            "(((((0+4)+8)+((1+5)+9))+(((2+6)+10)+((3+7)+11)))+12)");
  EXPECT_EQ(Revealed("q8_0", EvenAndOdd, 5).text(),
            "no tree: products 0, 64 and 1 are added in an order that the scales of their blocks "
            "hide; more products may show it");
}

TEST(RevealLinear, OfSuperBlocksFactorsAreIntegers) {
  for (const std::string_view name : {"q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs"}) {
    const LinearForm& form = FindLinearForm(name);
    const RevealedSum sum = RevealLinear(form, [&](const Case& c) { return SuperLanes(form, c); },
                                         {.products = 3 * form.size(), .cases = 300});
    EXPECT_EQ(sum.why_no_tree, "") << name;
    EXPECT_EQ(sum.products, form.minima() ? 15 : 12) << name;
    const std::string minima =
        form.minima() ? "; a sum of minima, a chain, is added last" : std::string();
    EXPECT_EQ(sum.order, "4 lanes, added one after the other" + minima) << name;
    EXPECT_EQ(sum.steps, "fused multiply-adds, each part times the product of its scales") << name;
    // The right order, and sums of different scales that no steps give.
    const RevealedSum other = RevealLinear(
        form,
        [&](const Case& c) {
          return std::ranges::all_of(c.w_q.scale, [&](float s) { return s == c.w_q.scale[0]; })
                     ? SuperLanes(form, c)
                     : std::nextafter(SuperLanes(form, c), 0.0f);
        },
        {.products = 3 * form.size(), .cases = 300});
    EXPECT_FALSE(other.is_known()) << name;
  }
}

// Blocks of x have scales of their own, and several of them one scale of w, which their sum meets;
// or each block has lanes of its own, and its sums meet both scales.
TEST(RevealLinear, OfOneScaleForSeveralBlocks) {
  for (const std::string_view name : {"q1_0", "q2_0"}) {
    const LinearForm& form = FindLinearForm(name);
    const int64_t together = form.size() / 32;
    const auto summed = [](const float(&lane)[8]) {
      float sum = 0;
      for (const float one : lane) sum += one;
      return sum;
    };
    const auto chained = [&](const Case& c) {
      float lane[8] = {};
      for (int64_t b = 0; b < RowBlocks(c); b += together) {
        for (int64_t l = 0; l < 8; ++l) {
          float sum = 0;
          for (int64_t i = b; i < b + together; ++i) sum += Part(c, i, 4 * l, 4) * ScaleOfX(c, i);
          lane[l] = std::fma(sum, ScaleOfW(c, b), lane[l]);
        }
      }
      return summed(lane);
    };
    const auto apart = [&](const Case& c) {
      float lane[8] = {};
      for (int64_t b = 0; b < RowBlocks(c); ++b) {
        for (int64_t l = 0; l < 2; ++l)
          lane[b % together * 2 + l] += Part(c, b, l, 16, 2) * Scale(c, b);
      }
      return summed(lane);
    };
    const auto contract = [&](const AskLinear& ask) {
      const RevealedSum sum = RevealLinear(form, ask, {.products = 8 * form.size(), .cases = 300});
      EXPECT_TRUE(sum.is_known()) << TextOf(sum);
      return sum.contract ? sum.contract->text() : "";
    };
    const std::string begin = "tree:{form:" + std::string(name) + " parts:",
                      end = " every:" + std::to_string(form.size()) + "}";
    EXPECT_EQ(contract(chained), begin + "8x4 order:8/sequence steps:fused scales:x-chain" + end);
    EXPECT_EQ(contract(apart), begin + "2x1/32 order:" + std::to_string(2 * together) +
                                   "/sequence steps:rounded scales:product" + end);
  }
}

// Parts of one super-block that follow each other in a lane hide each other: a known tree is found.
TEST(RevealLinear, WhatMasksHideIsLookedForAmongKnownTrees) {
  const LinearForm& form = FindLinearForm("nvfp4");
  const auto lanes = [](const Case& c) {
    float lane[8] = {};
    for (int64_t k = 0; k < c.K; k += 4) {
      int64_t sum = 0;
      for (int64_t i = k; i < k + 4; ++i) sum += int64_t{c.x.IntAt(i)} * c.w.IntAt(i);
      float& of_lane = lane[k / 4 % 8];
      of_lane = std::fma(static_cast<float>(sum), Scale(c, k / 16), of_lane);
    }
    for (int half = 4; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
    }
    return lane[0];
  };
  const RevealOptions options{.products = 8 * form.size(), .cases = 300};
  const RevealedSum sum = RevealLinear(form, lanes, options);
  EXPECT_TRUE(sum.is_known());
  EXPECT_EQ(sum.order, "8 lanes, halved, as ggml@haswell+nvfp4 adds");
  EXPECT_NE(TextOf(sum).find("  (masks do not show it: products 64, 0 and "), std::string::npos);
  ASSERT_TRUE(sum.contract.has_value());
  EXPECT_EQ(sum.contract->text(),
            "tree:{form:nvfp4 parts:16x4 order:8/halves steps:fused scales:product every:64}");
  const RevealedSum other =
      RevealLinear(form, [&](const Case& c) { return std::nextafter(lanes(c), 0.0f); }, options);
  EXPECT_FALSE(other.is_known());
}

TEST(RevealLinear, OfFloatsEachProductIsALeaf) {
  const auto chain = [](bool dequantized) {
    return [dequantized](const Case& c) {
      float sum = 0;
      for (int64_t k = 0; k < c.K; ++k) {
        const auto w = static_cast<float>(c.w.IntAt(k) - c.w_q.zero_point[0]);
        const float x = c.x.FloatAt(k), scale = ScaleOfW(c, k / 32);
        sum = dequantized ? std::fma(x, w * scale, sum) : std::fma(x * scale, w, sum);
      }
      return sum;
    };
  };
  for (const std::string_view form : {"f32_u4", "f32_u8"}) {
    RevealedSum sum = Revealed(form, chain(true), 3);
    EXPECT_EQ(sum.products, 96);
    EXPECT_EQ(sum.order, "a chain");
    EXPECT_EQ(sum.steps, "fused multiply-adds, each x times its dequantized weight");
    sum = Revealed(form, chain(false), 3);
    EXPECT_EQ(sum.steps, "fused multiply-adds, each x times the scale, rounded, times its code");
  }
}

// A form is asked of whoever takes its codes, but not of those who take more.
TEST(RevealLinear, AsksACodeOfTheFormAlone) {
  for (const LinearForm& form : LinearForms()) {
    const Case probe = ProbeOf(form);
    EXPECT_EQ(Validate(probe), "");
    const LinearForm& q8_0 = FindLinearForm("q8_0");
    const WeightFormat* const format = form.format;
    EXPECT_EQ(Covers(q8_0, form),
              format != nullptr && form.block == 32 && form.x_size() == 32 && !format->minima)
        << form.name;
    EXPECT_FALSE(Covers(form, q8_0)) << form.name;
    if (format == nullptr || format->values.empty()) continue;
    std::set<int32_t> codes;
    for (int64_t k = 0; k < probe.K; ++k) codes.insert(probe.w.IntAt(k));
    std::set<int32_t> all(format->values.begin(), format->values.end());
    if (format->either_sign) all.erase(format->values.back());  // stored as the other end
    EXPECT_EQ(codes, all) << form.name;
    const Case idle = CaseOf(form, probe.K);
    for (int64_t k = 0; k < idle.K; ++k) {
      EXPECT_TRUE(codes.contains(idle.w.IntAt(k))) << form.name;
      EXPECT_EQ(idle.x.IntAt(k) * idle.w.IntAt(k), 0);
    }
  }
  EXPECT_TRUE(Covers(FindLinearForm("q5_0"), FindLinearForm("mxfp4")));
  EXPECT_FALSE(Covers(FindLinearForm("mxfp4"), FindLinearForm("iq4_nl")));
}

TEST(RevealLinear, SaysWhatItCannotSee) {
  // Rounded once: no unit is ever lost.
  RevealedSum sum = Revealed(
      "q8_0",
      [](const Case& c) {
        double total = 0;
        double compensation = 0;
        for (int64_t b = 0; b < RowBlocks(c); ++b) {
          const double term = double{Part(c, b, 0, 32)} * ScaleOfX(c, b) * ScaleOfW(c, b);
          const double next = total + term;
          compensation +=
              std::abs(total) >= std::abs(term) ? (total - next) + term : (term - next) + total;
          total = next;
        }
        return static_cast<float>(total + compensation);
      },
      4);
  EXPECT_TRUE(sum.is_exact) << sum.text();
  EXPECT_EQ(sum.steps, "rounded once, each part times the product of its scales");

  sum = Revealed("q4_0", [](const Case&) { return std::numeric_limits<float>::quiet_NaN(); }, 3);
  EXPECT_EQ(sum.text(),
            "no tree: 127*2^32 at product 0, its negative at 1 and 127 times small powers of two "
            "elsewhere sum to "
            "nan:7fc00000, "
            "expected the sum of those that are left");
  EXPECT_FALSE(sum.is_known());

  // The right order, and steps that nobody knows.
  sum = Revealed("q8_0", [](const Case& c) { return std::nextafter(Chain(c), 0.0f); }, 3);
  EXPECT_FALSE(sum.is_known());
}

TEST(RevealLinear, RefusesWhatItCannotAsk) {
  EXPECT_THROW(FindLinearForm("q8"), InputError);
  for (const int64_t products : {64, 100, 2048}) {
    EXPECT_THROW(RevealLinear(FindLinearForm("f32_u4"), Chain, {.products = products}), InputError);
  }
  EXPECT_THROW(Revealed(
                   "q8_0", [](const Case&) -> float { throw std::runtime_error("gone"); }, 3),
               std::runtime_error);
  EXPECT_THROW(
      Revealed("f32_u4", [](const Case&) -> float { throw InputError("no"); }, 3), InputError);
}

}  // namespace
}  // namespace qualm::triage
