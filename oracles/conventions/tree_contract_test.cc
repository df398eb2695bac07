// SPDX-License-Identifier: Apache-2.0
// Summation trees as contracts: what is written is read again as the same sums, of every tree that
// was recorded too; what is none is refused; cases are judged by them.
#include "oracles/conventions/tree_contract.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/io/golden.h"
#include "core/io/text_file.h"
#include "core/rng.h"
#include "core/status.h"
#include "oracles/accepted.h"

namespace qualm::conventions {
namespace {

constexpr const char* kHaswell =
    "tree:{form:q8_0 parts:8x4 order:8/halves steps:fused scales:product every:32}";

std::vector<float> Drawn(Rng& rng, int64_t count) {
  std::vector<float> values;
  for (int64_t k = 0; k < count; ++k)
    values.push_back(std::ldexp(static_cast<float>(rng.Between(-(1 << 24), 1 << 24)),
                                static_cast<int>(rng.Between(-26, -20))));
  return values;
}

TEST(TreeContract, IsReadAgainAsTheSameText) {
  for (const std::string text :
       {kHaswell,
        "tree:{form:q4_0 parts:1x32 order:4/sequence steps:rounded scales:x-first every:64}",
        "tree:{form:q3_k parts:8x4 order:2/sequence/32 steps:double scales:w-first every:256}",
        "tree:{form:f32_u4 parts:32x1 order:1/sequence/32 steps:wide scales:weight every:32}",
        "tree:{form:q8_0 parts:1x32 order:(((0+4)+1)+2+3) steps:fused scales:product}",
        "tree:{form:q4_1 parts:8x4 order:8/halves minima:1x32/last/1/sequence/x-first steps:fused "
        "scales:product every:32}",
        "tree:{form:q2_k parts:8x4 order:8/halves minima:8x32/before/product steps:fused "
        "scales:product every:256}",
        "tree:{form:q4_k parts:1x256 order:4/sequence minima:1x256/with/product steps:rounded "
        "scales:product every:256}",
        "tree:{form:q4_k parts:1x256 order:((0+1)+(2+3)) minima:1x256/behind/w-first steps:double "
        "scales:product}",
        "tree:{form:q5_1 parts:1x32 order:1/sequence minima:inside steps:fused scales:product "
        "every:32}",
        "tree:{form:q1_0 parts:8x4 order:8/halves steps:fused scales:x-chain every:128}",
        "tree:{form:q1_0 parts:4x4/32 order:16/neighbours steps:rounded scales:product every:128}",
        "tree:{form:nvfp4 parts:16x4 order:8/halves steps:fused scales:product every:64}",
        "tree:{order:8/quartets steps:fused}", "tree:{order:4/quarters steps:fused}",
        "tree:{order:2/neighbours steps:fused}", "tree:{order:0 steps:wide}"})
    EXPECT_EQ(ParseTreeContract(text).text(), text);
}

TEST(TreeContract, WhatIsNoneIsRefused) {
  const std::string deep(2000, '(');
  std::string chain = "0";
  for (int k = 1; k < 1025; ++k) chain = "(" + chain + "+" + std::to_string(k) + ")";
  const std::string q8_0 = "tree:{form:q8_0 parts:8x4 order:8/halves steps:fused ";
  const std::string q4_1 =
      "tree:{form:q4_1 parts:8x4 order:8/halves steps:fused scales:product every:32";
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "is no tree, expected tree:{order:... steps:...}"},
           {std::string(kHaswell).substr(0, 60), "is no tree"},
           {"tree:{order:1/sequence\nsteps:fused}", "has a character that no tree has"},
           {"tree:{}", "field '' of a tree"},
           {"tree:{order:1/sequence  steps:fused}", "field '' of a tree"},
           {"tree:{order:1/sequence order:1/sequence}", "each key once"},
           {"tree:{steps:fused}", "a tree needs order:"},
           {"tree:{order:1/sequence}", "a tree needs steps:"},
           {"tree:{order:1/sequence steps:some}", "steps of a tree: is 'some', expected one of "},
           {"tree:{order:3/sequence steps:fused}", "order of a tree: is '3/sequence'"},
           {"tree:{order:2/quartets steps:fused}", "expected at least 4 lanes"},
           {"tree:{order:8/halfs steps:fused}", "expected one of sequence, halves"},
           {"tree:{order:1/sequence/0 steps:fused}", "order of a tree: is '1/sequence/0'"},
           {"tree:{order:1/sequence/2/2 steps:fused}", "expected LANES/HOW or LANES/HOW/BLOCK"},
           {"tree:{order:(0+1 steps:fused}", "order of a tree: is '', expected a tree as"},
           {"tree:{order:(0+1)) steps:fused}", "order of a tree: is ')'"},
           {"tree:{order:(0) steps:fused}", "expected a tree as ((0+1)+2)"},
           {"tree:{order:(0+0) steps:fused}", "order of a tree: is '0)'"},
           {"tree:{order:(0+2) steps:fused}", "each part from 0 on once: 1 is missing"},
           {"tree:{order:(0+1024) steps:fused}", "order of a tree: is '1024)'"},
           {"tree:{order:" + deep + " steps:fused}", "of at most 1024 parts"},
           {"tree:{order:" + chain + " steps:fused}", "of at most 1024 parts"},
           {"tree:{form:q8_0 order:1/sequence steps:fused}", "a tree needs parts: beside form:"},
           {"tree:{form:q9 parts:8x4 order:1/sequence steps:fused}", "form of a tree: is 'q9'"},
           {"tree:{form:q8_0 parts:8x5 order:1/sequence steps:fused}", "COUNTxRUN of which 32 is"},
           {"tree:{form:f32_u4 parts:1x32 order:1/sequence steps:fused}", "expected 32x1"},
           {"tree:{form:q1_0 parts:8x4 order:8/halves steps:fused scales:product every:128}",
            "expected x-chain, since a part has several scales of x"},
           {"tree:{form:q1_0 parts:4x4/48 order:1/sequence steps:fused}", "expected COUNTxRUN or"},
           {"tree:{form:q1_0 parts:4x4/8 order:1/sequence steps:fused}", "expected COUNTxRUN or"},
           {"tree:{form:q1_0 parts:4x4/32/2 order:1/sequence steps:fused}", "COUNTxRUN/SPAN"},
           {q8_0 + "scales:x-chain every:32}", "expected one of those of q8_0"},
           {q8_0 + "every:32}", "a tree needs scales: beside form:"},
           {q8_0 + "scales:weight every:32}", "scales of a tree: is 'weight'"},
           {q8_0 + "scales:product}", "a tree needs every: beside form:"},
           {q8_0 + "scales:product every:40}", "expected a multiple of 32"},
           {q8_0 + "scales:product every:32 bias:1}", "a tree has no bias:"},
           {q4_1 + "}", "a tree needs minima: beside form:"},
           {q4_1 + " minima:1x32}", "expected inside, COUNTxRUN/PLACE/SCALES or"},
           {q4_1 + " minima:3x32/behind/product}", "minima of a tree: is '3x32'"},
           {q4_1 + " minima:1x32/nowhere/product}", "expected one of inside, with, before"},
           {q4_1 + " minima:1x32/behind/weight}", "expected one of those of q4_1"},
           {q4_1 + " minima:1x32/inside/product}", "expected inside alone"},
           {q4_1 + " minima:1x32/last/product}", "an order behind first and last alone"},
           {q4_1 + " minima:1x32/behind/1/sequence/product}", "an order behind first and last"},
           {q4_1 + " minima:1x32/with/product}", "as many parts as products have"},
           {q4_1 + " minima:1x32/last/3/halves/product}", "order of a tree: is '3/halves'"},
           {q8_0 + "scales:product every:32 minima:inside}", "a tree has no minima:"},
           {"tree:{form:q4_1 parts:8x4 order:8/halves steps:wide scales:product every:32 "
            "minima:1x32/behind/product}",
            "expected fused or rounded with minima"},
           {"tree:{order:1/sequence steps:fused every:32}", "a tree needs form: beside form:"},
           {"tree:{form:q8_0 parts:8x4 order:(0+1) steps:fused scales:product}",
            "has no whole blocks of 8 parts"}}) {
    try {
      ParseTreeContract(text);
      ADD_FAILURE() << text << ": was read";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos)
          << text.substr(0, 90) << ": " << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

// A tree that somebody else's program read off a library, by the counts that the library showed.
TEST(TreeContract, EveryRecordedTreeIsWrittenAndReadAgain) {
  Rng rng(1);
  int64_t trees = 0, fit = 0;
  ForEachGoldenRecord(
      QUALM_SOURCE_DIR "/corpus/golden/trees.jsonl", [&](const GoldenRecord& record) {
        if (!record.Has("tree")) return;
        ++trees;
        const std::vector<int64_t> counts = record.Ints("leaves_of_common_subtree");
        const int64_t n = record.Int("n");
        const SumTree tree =
            ParseTreeContract("tree:{order:" + record.Text("tree") + " steps:fused}").tree;
        ASSERT_EQ(LeavesOf(tree), n);
        std::vector<int64_t> of_text;
        for (const std::vector<int64_t>& row : LeavesOfCommon(tree))
          of_text.insert(of_text.end(), row.begin(), row.end());
        fit += of_text == counts ? 1 : 0;
        const std::vector<float> a = Drawn(rng, n), b = Drawn(rng, n);
        for (const SumSteps steps :
             {SumSteps::kFused, SumSteps::kRounded, SumSteps::kDouble, SumSteps::kWideSum}) {
          const std::string text = TreeContract{.tree = tree, .steps = steps}.text();
          const TreeContract again = ParseTreeContract(text);
          EXPECT_EQ(TextOf(again.tree), record.Text("tree"));
          EXPECT_EQ(SumBy(again, a, b), SumAlong(tree, steps, a, b)) << text;
        }
      });
  EXPECT_GT(trees, 80);
  // The others lost a unit for another reason than the order.
  EXPECT_GT(fit, 2 * trees / 3);
}

TEST(TreeContract, AnOrderAndItsTreeGiveTheSameSums) {
  Rng rng(1);
  for (const std::string order : {"1/sequence", "8/halves", "4/quartets", "2/neighbours/16"}) {
    for (const std::string steps : {"fused", "rounded", "double", "wide"}) {
      const TreeContract contract =
          ParseTreeContract("tree:{order:" + order + " steps:" + steps + "}");
      for (int64_t n = 32; n <= 48; n += 16) {
        const std::vector<float> a = Drawn(rng, n), b = Drawn(rng, n);
        EXPECT_EQ(SumBy(contract, a, b),
                  SumAlong(TreeOf(*contract.order, n), contract.steps, a, b));
      }
      EXPECT_EQ(SumBy(contract, {}, {}), 0.0f);
    }
  }
}

// Two rows, two channels, 40 products: of the second block eight.
Case BlocksOf40() {
  Rng rng(1);
  Case c;
  c.M = c.N = 2;
  c.K = 40;
  c.x = Tensor(DType::kS8, {2, 40});
  c.w = Tensor(DType::kS8, {2, 40});
  for (int64_t i = 0; i < 80; ++i) {
    c.x.SetInt(i, static_cast<int32_t>(rng.Between(-128, 127)));
    c.w.SetInt(i, static_cast<int32_t>(rng.Between(-128, 127)));
  }
  c.per_channel = true;
  c.w_block = c.x_block = 32;
  c.w_q = {{0x1.8p-3f, 0x1.01p-7f, 0x1.45p-5f, 0x1.7p-4f}, std::vector<int32_t>(4)};
  c.x_q = {{0x1.23p-3f, 0x1.11p-6f, 0x1.35p-5f, 0x1.8p-4f}, std::vector<int32_t>(4)};
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  return c;
}

TEST(TreeContract, JudgesALinearByEightLanes) {
  const Case c = BlocksOf40();
  ASSERT_EQ(Validate(c), "");
  const Contract contract = ParseContract(kHaswell);
  EXPECT_TRUE(contract.is_tree());
  ASSERT_EQ(WhyNotJudged(contract, c), "");
  Tensor expected(DType::kF32, {2, 2});
  for (int64_t i = 0; i < 4; ++i) {
    float lane[8] = {};
    for (int64_t k = 0; k < 40; k += 4) {
      int32_t sum = 0;
      for (int64_t j = k; j < k + 4; ++j)
        sum += c.x.IntAt(i / 2 * 40 + j) * c.w.IntAt(i % 2 * 40 + j);
      const auto block = static_cast<size_t>(k / 32);
      float& of = lane[k % 32 / 4];
      of = std::fma(static_cast<float>(sum),
                    c.x_q.scale[static_cast<size_t>(i / 2 * 2) + block] *
                        c.w_q.scale[static_cast<size_t>(i % 2 * 2) + block],
                    of);
    }
    expected.as<float>()[static_cast<size_t>(i)] =
        ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  }
  const Accepted right = AcceptedBy(contract, c);
  EXPECT_EQ(right.nominal(), expected);
  ASSERT_TRUE(right.grades().has_value());
  EXPECT_EQ(right.grades()->text(), "tree 4");
  EXPECT_FALSE(right.First(expected).has_value());
  Tensor other = expected;
  other.as<float>()[3] = std::nextafter(other.as<float>()[3], 0.0f);
  EXPECT_EQ(right.First(other)->index, 3);
  EXPECT_EQ(right.What(contract, 3), "sums along the tree of the contract");
  const Trace trace = FindConvention(kHaswell)->trace(c, 0);
  EXPECT_EQ(trace.size(), 17u);
  EXPECT_NE(trace.back().text.find("16 parts are added: 8 lanes, halved, fused"), std::string::npos)
      << trace.back().text;
}

TEST(TreeContract, SaysWhatItDoesNotJudge) {
  using Change = void (*)(Case& c);
  const std::string every = kHaswell, fused = " steps:fused scales:product}";
  for (const auto& [text, change, why] : std::vector<std::tuple<std::string, Change, std::string>>{
           {every, [](Case& c) { c.bias.emplace(2, 1.0f); }, "a tree has no bias"},
           {every, [](Case& c) { c.relu = true; }, "a tree gives plain f32"},
           {every, [](Case& c) { c.w_q.zero_point[1] = 1; },
            "the tree of q8_0 has weight zero points 0"},
           {every, [](Case& c) { c.x_q.zero_point[1] = 1; }, "a tree has no zero points of x"},
           {every, [](Case& c) { c.x_block = 0, c.x_q = {{1}, {0}}; },
            "the tree is of q8_0: x s8, w s8 in blocks of 32"},
           {every, [](Case& c) { c = Case(); }, "the tree is of q8_0: x s8, w s8 in blocks of 32"},
           {every, [](Case& c) { c.op = Op::kAdd; }, "a tree has linear alone"},
           {every.substr(0, every.size() - 3) + "96}", [](Case&) {},
            "the tree is of multiples of 96 products"},
           {"tree:{form:q8_0 parts:1x32 order:((0+1)+2)" + fused, [](Case&) {},
            "the tree has 96 products"},
           {"tree:{form:q8_0 parts:1x32 order:(0+1)" + fused, [](Case&) {}, ""},
           {"tree:{order:1/sequence steps:fused}", [](Case&) {},
            "it is a tree of products of two lists of floats, by which no case is judged"}}) {
    Case c = BlocksOf40();
    change(c);
    EXPECT_EQ(WhyNotJudged(ParseContract(text), c), why) << text;
  }
  EXPECT_EQ(WhyNotJudged(ParseContract("tree:{}"), BlocksOf40()),
            "field '' of a tree: expected KEY:VALUE, each key once, a space between them");
}

// Six bits of a scale for each 32 codes, that of x for 256: what no super-block has is refused.
TEST(TreeContract, KnowsTheScalesOfSuperBlocks) {
  const std::string text =
      "tree:{form:q4_k parts:8x4 order:8/halves minima:inside steps:fused scales:product "
      "every:256}";
  Case c = BlocksOf40();
  c.w = Tensor(DType::kU4, {2, 40});
  for (int64_t i = 0; i < 80; ++i) c.w.SetInt(i, static_cast<int32_t>(i % 16));
  c.w_q.scale = {63 * 0x1p-9f, 5 * 0x1p-9f, 0x1p-6f, 0x1p-7f};
  c.x_q.scale = {0x1.1p-3f, 0x1.1p-3f, 0x1.3p-4f, 0x1.3p-4f};
  EXPECT_EQ(WhyNotJudged(ParseContract(text), c), "");
  // Four neighbours in each 32 codes are one part, and the factor of the block is an integer.
  int64_t sum = 0;
  for (int64_t k : {0, 1, 2, 3, 32, 33, 34, 35})
    sum += c.x.IntAt(k) * c.w.IntAt(k) * (k < 32 ? 63 : 5);
  const TreeContract contract = ParseTreeContract(text);
  const auto [a, b] = FactorsOf(*contract.form, 0, 0, c, 0, 0, PartsOf(contract, 1));
  EXPECT_EQ(a.size(), 8u);  // no minima beside them
  EXPECT_EQ(a[0], static_cast<float>(sum));
  EXPECT_EQ(b[0], 0x1p-9f * 0x1.1p-3f);
  c.x_q.scale[1] = 1;
  EXPECT_EQ(WhyNotJudged(ParseContract(text), c), "the scales are none of q4_k");
  c.x_q.scale[1] = c.x_q.scale[0];
  c.w_q.scale[1] = 1 + 0x1p-20f;
  EXPECT_EQ(WhyNotJudged(ParseContract(text), c), "the scales are none of q4_k");
}

TEST(TreeContract, StandsInAFile) {
  const std::string path = testing::TempDir() + "/tree.txt";
  WriteTextFile(path, std::string(kHaswell) + "\n");
  EXPECT_EQ(WithTreesOfFiles("add=exact,linear=tree:" + path + ",model:a"),
            "add=exact,linear=" + std::string(kHaswell) + ",model:a");
  EXPECT_EQ(WithTreesOfFiles(kHaswell), kHaswell);
  EXPECT_EQ(WithTreesOfFiles(""), "");
  const auto refused = [&](const std::string& text) -> std::string {
    WriteTextFile(path, text);
    try {
      return WithTreesOfFiles("tree:" + path);
    } catch (const InputError& error) {
      return error.what();
    }
  };
  EXPECT_TRUE(refused("{\"a\": 1}\n").starts_with(path + ": is no tree"));
  EXPECT_TRUE(refused("").starts_with(path + ": is no tree"));
  EXPECT_TRUE(refused(std::string(100'000, '(')).starts_with(path));
  EXPECT_THROW(WithTreesOfFiles("tree:" + path + ".none"), InputError);
}

}  // namespace
}  // namespace qualm::conventions
