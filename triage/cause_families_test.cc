// SPDX-License-Identifier: Apache-2.0
// What a kernel with each cause of a family answers, computed by hand, and the cases that are
// asked.
#include "triage/cause_families.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "oracles/exact/exact.h"
#include "triage/causes_test_util.h"

namespace qualm::triage {
namespace {

bool Exists(std::string_view name) {
  return std::ranges::find(AllCauses(), name, &Cause::name) != AllCauses().end();
}

Values Ones(int64_t count) { return Values(static_cast<size_t>(count), 1); }

// `count` codes: first, first + 1, ...
Values From(int32_t first, int64_t count) {
  Values values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

// A layer of one output with both zero points.
Case WithZeroPoints(const Values& x, const Values& w, int32_t zx, int32_t zw, DType x_dtype = kU8,
                    DType w_dtype = kS8) {
  Case c = Layer(x_dtype, x, w_dtype, w);
  c.x_q.zero_point = {zx};
  c.w_q.zero_point = {zw};
  return c;
}

// ---- Zero-point terms.

TEST(FamilyOfZeroPoints, TermsLeftOutDoubledOrExchanged) {
  const Case c = WithZeroPoints({10}, {5}, 3, 2);
  ASSERT_EQ(exact::Evaluate(c).IntAt(0), 50 - 15 - 20 + 6);
  EXPECT_EQ(Answer(c, "K*zx*zw ignored"), Values{50 - 15 - 20});
  EXPECT_EQ(Answer(c, "K*zx*zw subtracted"), Values{50 - 15 - 20 - 6});
  EXPECT_EQ(Answer(c, "K*zx*zw twice"), Values{50 - 15 - 20 + 12});
  EXPECT_EQ(Answer(c, "zero points exchanged"), Values{50 - 2 * 5 - 3 * 10 + 6});
  EXPECT_EQ(Answer(c, "input zero point added"), Values{50 + 15 - 20 - 6});
  EXPECT_EQ(Answer(c, "weight zero point added"), Values{50 - 15 + 20 - 6});
  EXPECT_EQ(Answer(c, "column-sum term ignored"), Values{50 - 20 + 6});
  EXPECT_EQ(Answer(c, "row-sum term ignored"), Values{50 - 15 + 6});
  EXPECT_EQ(Answer(c, "column-sum term twice"), Values{50 - 30 - 20 + 6});
  EXPECT_EQ(Answer(c, "row-sum term twice"), Values{50 - 15 - 40 + 6});
}

// u8 codes are lowered by 128 and s8 codes raised, for instructions that want the other sign.
TEST(FamilyOfZeroPoints, AnOperandMovedBy128) {
  const auto layer = [](DType x, DType w) { return Layer(x, {10, 20}, w, {5, 2}); };
  const int32_t right = 90, x_sum = 30, w_sum = 7;
  const auto moved = [](const char* text, const char* what) {
    return std::string(text) + " by 128, " + what;
  };
  constexpr auto* kKept = "not taken out";
  constexpr auto* kTwice = "taken out twice";
  EXPECT_EQ(Answer(layer(kS8, kU8), moved("input raised", kKept)), Values{right + 128 * w_sum});
  EXPECT_EQ(Answer(layer(kS8, kU8), moved("input raised", kTwice)), Values{right - 128 * w_sum});
  EXPECT_EQ(Answer(layer(kU8, kS8), moved("input lowered", kKept)), Values{right - 128 * w_sum});
  EXPECT_EQ(Answer(layer(kU8, kS8), moved("input lowered", kTwice)), Values{right + 128 * w_sum});
  EXPECT_EQ(Answer(layer(kU8, kS8), moved("weights raised", kKept)), Values{right + 128 * x_sum});
  EXPECT_EQ(Answer(layer(kU8, kS8), moved("weights raised", kTwice)), Values{right - 128 * x_sum});
  EXPECT_EQ(Answer(layer(kS8, kU8), moved("weights lowered", kKept)), Values{right - 128 * x_sum});
  EXPECT_EQ(Answer(layer(kS8, kU8), moved("weights lowered", kTwice)), Values{right + 128 * x_sum});
  for (const char* const what : {kKept, kTwice}) {
    EXPECT_FALSE(IsAsked(layer(kU8, kS8), moved("input raised", what)));
    EXPECT_FALSE(IsAsked(layer(kS8, kU8), moved("input lowered", what)));
    EXPECT_FALSE(IsAsked(layer(kS8, kU8), moved("weights raised", what)));
    EXPECT_FALSE(IsAsked(layer(kU8, kS8), moved("weights lowered", what)));
  }
  // The codes of a dynamic layer are not those of its x.
  EXPECT_TRUE(IsAsked(Dynamic({1, 2}, {3, 4}), moved("input raised", kKept)));
  EXPECT_FALSE(Exists("weights raised by 128, but not in the padding"));
}

TEST(FamilyOfZeroPoints, AnInputMovedBy128WithoutItsPadding) {
  Window v{.batch = 1, .in_h = 1, .in_w = 2, .in_c = 1, .kernel_h = 1, .kernel_w = 2};
  v.pad_left = 1;
  const Case u8 = Windowed(Op::kConv2d, v, kU8, {5, 9}, {3, 1});
  ASSERT_EQ(exact::Evaluate(u8).IntAt(0), 5);
  // The weight 3 meets the padding in the first output.
  EXPECT_EQ(Answer(u8, "input lowered by 128, but not in the padding"), (Values{5 + 384, 24}));
  EXPECT_EQ(Answer(u8, "input lowered by 128, taken out of the image alone"),
            (Values{5 - 384, 24}));
  const Case s8 = Windowed(Op::kConv2d, v, kS8, {5, 9}, {3, 1});
  EXPECT_EQ(Answer(s8, "input raised by 128, but not in the padding"), (Values{5 - 384, 24}));
  EXPECT_EQ(Answer(s8, "input raised by 128, taken out of the image alone"), (Values{5 + 384, 24}));
  for (const char* const what : {"but not in the padding", "taken out of the image alone"}) {
    EXPECT_FALSE(IsAsked(u8, std::string("input raised by 128, ") + what));
    EXPECT_FALSE(IsAsked(Layer(kU8, {1}, kS8, {1}), std::string("input lowered by 128, ") + what));
  }
}

// Codes of 0 and zero points of 1: the sum is the K that the kernel keeps.
TEST(FamilyOfZeroPoints, TheNumberOfTermsInANarrowType) {
  const auto kept = [](int64_t terms, std::string_view width) {
    const Values zeros(static_cast<size_t>(terms), 0);
    return Answer(WithZeroPoints(zeros, zeros, 1, 1), fmt::format("K in {}", width));
  };
  EXPECT_EQ(kept(255, "8 bits"), std::nullopt);
  EXPECT_EQ(kept(256, "8 bits"), Values{0});
  EXPECT_EQ(kept(127, "an int8"), std::nullopt);
  EXPECT_EQ(kept(129, "an int8"), Values{-127});
  EXPECT_EQ(kept(32767, "an int16"), std::nullopt);
  EXPECT_EQ(kept(32768, "an int16"), Values{-32768});
  EXPECT_EQ(kept(65535, "16 bits"), std::nullopt);
  EXPECT_EQ(kept(65537, "16 bits"), Values{1});
}

TEST(FamilyOfZeroPoints, SumsOfCodesInNarrowTypes) {
  const auto columns = [](size_t terms, int32_t w, std::string_view how) {
    return Answer(WithZeroPoints(Values(terms, 0), Values(terms, w), 1, 0),
                  fmt::format("column sum in {}", how));
  };
  const auto rows = [](size_t terms, int32_t x, std::string_view how) {
    return Answer(WithZeroPoints(Values(terms, x), Values(terms, 0), 0, 1, kS8),
                  fmt::format("row sum in {}", how));
  };
  // 300 * 127 is 38100, 300 * -128 is -38400.
  EXPECT_EQ(columns(300, 127, "an int16 that wraps"), Values{65536 - 38100});
  EXPECT_EQ(columns(300, 127, "an int16 that saturates"), Values{-32767});
  EXPECT_EQ(columns(300, -128, "an int16 that saturates"), Values{32768});
  EXPECT_EQ(columns(300, -1, "a uint16 that wraps"), Values{300 - 65536});
  EXPECT_EQ(rows(300, 127, "an int16 that wraps"), Values{65536 - 38100});
  EXPECT_EQ(rows(300, -128, "an int16 that saturates"), Values{32768});
  EXPECT_EQ(rows(300, -1, "a uint16 that wraps"), Values{300 - 65536});
}

// 256 codes of -128 are the most that an int16 holds: -32768. One more wraps.
TEST(FamilyOfZeroPoints, SumsOfCodesInLanes) {
  const auto name = [](const char* sum, int lanes, int every) {
    return fmt::format("{} sum in {} int16 lanes that wrap{}", sum, lanes,
                       every == 0 ? "" : fmt::format(", emptied every {} additions", every));
  };
  for (const int lanes : {8, 16, 32}) {
    const auto all = static_cast<size_t>(lanes) * 257;
    const int32_t right = 128 * 257 * lanes;
    const Case columns = WithZeroPoints(Values(all, 0), Values(all, -128), 1, 0);
    const Case rows = WithZeroPoints(Values(all, -128), Values(all, 0), 0, 1, kS8);
    for (const int every : {0, 257}) {
      EXPECT_EQ(Answer(columns, name("column", lanes, every)), Values{right - 65536 * lanes});
      EXPECT_EQ(Answer(rows, name("row", lanes, every)), Values{right - 65536 * lanes});
    }
    EXPECT_EQ(Answer(columns, name("column", lanes, 256)), Values{right});
    EXPECT_EQ(Answer(rows, name("row", lanes, 256)), Values{right});
    // 129 codes of 255 are 32895, 256 of them 65280.
    const auto few = static_cast<size_t>(lanes) * 129;
    const Case u8 = WithZeroPoints(Values(few, 255), Values(few, 0), 0, 1);
    EXPECT_EQ(Answer(u8, name("row", lanes, 256)), Values{(65536 - 32895) * lanes});
    const Case full = WithZeroPoints(Values(few - static_cast<size_t>(lanes), 255),
                                     Values(few - static_cast<size_t>(lanes), 0), 0, 1);
    EXPECT_FALSE(IsAsked(full, name("row", lanes, 256))) << "no lane is full";
    EXPECT_FALSE(IsAsked(full, name("column", lanes, 0)));
  }
}

TEST(FamilyOfZeroPoints, TermsInAnInt16) {
  constexpr auto* kName = "zero-point terms in int16";
  EXPECT_EQ(Answer(WithZeroPoints({0}, {127}, 300, 0), kName), Values{65536 - 38100});
  EXPECT_EQ(Answer(WithZeroPoints({255}, {0}, 0, 200), kName), Values{65536 - 51000});
  EXPECT_EQ(Answer(WithZeroPoints({10}, {5}, 3, 2), kName), Values{21}) << "nothing wraps";
}

TEST(FamilyOfZeroPoints, SumsWithoutTheirTails) {
  for (const int64_t lanes : {4, 8, 16, 32, 64}) {
    const std::string of = fmt::format(" sum without the tail of {}", lanes);
    const Values codes = From(1, lanes + 2);
    const auto body = static_cast<int32_t>(lanes * (lanes + 1) / 2);
    const Values zeros(codes.size(), 0);
    EXPECT_EQ(Answer(WithZeroPoints(zeros, codes, 1, 0), "column" + of), Values{-body});
    EXPECT_EQ(Answer(WithZeroPoints(codes, zeros, 0, 1), "row" + of), Values{-body});
    const Case whole = Layer(kU8, Ones(2 * lanes), kS8, Ones(2 * lanes));
    EXPECT_FALSE(IsAsked(whole, "column" + of));
    EXPECT_FALSE(IsAsked(whole, "row" + of));
    // Two more terms than lanes: lanes - 2 are missing to a multiple.
    const std::string filled = fmt::format(" sum of K filled up to {}", lanes);
    const auto missing = static_cast<int32_t>(lanes - 2);
    EXPECT_EQ(Answer(WithZeroPoints(zeros, zeros, 3, 5), "column" + filled),
              Values{15 * (static_cast<int32_t>(lanes) + 2) - 15 * missing});
    EXPECT_EQ(Answer(WithZeroPoints(zeros, zeros, 3, 5), "row" + filled),
              Values{15 * (static_cast<int32_t>(lanes) + 2) - 15 * missing});
    EXPECT_EQ(Answer(WithZeroPoints(zeros, zeros, 3, 0), "column" + filled), Values{0});
    EXPECT_FALSE(IsAsked(whole, "column" + filled));
    const std::string rounded = fmt::format("K rounded up to {} in K*zx*zw", lanes);
    EXPECT_EQ(Exists(rounded), lanes != 4) << "padded K in K*zx*zw";
    if (lanes == 4) continue;
    EXPECT_EQ(Answer(WithZeroPoints(zeros, zeros, 1, 1), rounded), Values(1, 2 * lanes));
    EXPECT_FALSE(IsAsked(whole, rounded));
  }
}

TEST(FamilyOfZeroPoints, TermsOfEachBlock) {
  for (const int32_t block : {32, 64, 128, 256, 512}) {
    const std::string once = fmt::format(" once per block of {}", block);
    for (const int32_t terms : {block + 1, 2 * block, 2 * block + 1}) {
      const int32_t blocks = terms <= 2 * block ? 2 : 3;
      const Case c = WithZeroPoints(Ones(terms), Ones(terms), 3, 2);
      const int32_t columns = 3 * terms, rows = 2 * terms, both = 6 * terms;
      EXPECT_EQ(Answer(c, "column-sum term" + once),
                Values{terms - blocks * columns - rows + both});
      EXPECT_EQ(Answer(c, "row-sum term" + once), Values{terms - columns - blocks * rows + both});
      EXPECT_EQ(Answer(c, "K*zx*zw" + once), Values{terms - columns - rows + blocks * both});
      EXPECT_EQ(Answer(c, "zero-point terms" + once),
                Values{terms - blocks * (columns + rows - both)});
      const int32_t last = terms == 2 * block ? block : 1;
      const auto alone = [&](const char* sum, const char* which) {
        return Answer(c, fmt::format("{} sum of the {} block of {} alone", sum, which, block));
      };
      EXPECT_EQ(alone("column", "first"), Values{terms - 3 * block - rows + both});
      EXPECT_EQ(alone("row", "first"), Values{terms - columns - 2 * block + both});
      EXPECT_EQ(alone("column", "last"), Values{terms - 3 * last - rows + both});
      EXPECT_EQ(alone("row", "last"), Values{terms - columns - 2 * last + both});
    }
    const Case one = Layer(kU8, Ones(block), kS8, Ones(block));
    EXPECT_FALSE(IsAsked(one, "column-sum term" + once));
    EXPECT_FALSE(IsAsked(one, "bias" + once));
  }
}

TEST(FamilyOfZeroPoints, TheSumOfAnotherRow) {
  for (const int32_t modulo : {4, 8, 256}) {
    const std::string name = fmt::format("row sum modulo {}", modulo);
    Tensor x(DType::kU8, {modulo + 2, 1});
    Case c = Layer(kU8, Values(static_cast<size_t>(modulo) + 2, 1), kS8, {0}, modulo + 2);
    c.w_q.zero_point = {1};
    c.x.SetInt(0, 100), c.x.SetInt(1, 50), c.x.SetInt(modulo - 1, 7);
    Values expected(static_cast<size_t>(modulo) + 2, -1);
    const auto row = [&](int32_t m) -> int32_t& { return expected[static_cast<size_t>(m)]; };
    row(0) = row(modulo) = -100, row(1) = row(modulo + 1) = -50, row(modulo - 1) = -7;
    EXPECT_EQ(Answer(c, name), expected);
    EXPECT_FALSE(IsAsked(Layer(kU8, Ones(modulo), kS8, {0}, modulo), name));
  }
}

// ---- Sums.

TEST(FamilyOfSums, InFloat32) {
  // 519 products of 32385 are 16807815, which is 16807816 in float32; there 1 more changes nothing.
  Values x(519, 255), w(519, 127);
  x.insert(x.end(), 8, 1), w.insert(w.end(), 8, 1);
  const Case c = Layer(kU8, x, kS8, w);
  EXPECT_EQ(Answer(c, "float32 sum, one product after another"), Values{16807816});
  for (const int lanes : {4, 8, 16}) {
    EXPECT_EQ(Answer(c, fmt::format("float32 sum, in {} lanes", lanes)), Values{16807824})
        << "16807823, rounded once";
  }
  EXPECT_EQ(Answer(Layer(kU8, {3, 5}, kS8, {-7, 11}), "float32 sum, in 4 lanes"), Values{34});
}

// Sixteen blocks whose products add up to 2^24 - 1 and `more`, and one of these last products.
Case AfterSixteenBlocks(int32_t block, int32_t more, const Values& last) {
  Values x(static_cast<size_t>(16 * block), 0), w(x.size(), 0);
  std::fill_n(x.begin(), 258, 255), std::fill_n(w.begin(), 258, 255);
  x[258] = 255, w[258] = 3;
  x[259] = more, w[259] = 1;
  x.insert(x.end(), last.begin(), last.end());
  w.insert(w.end(), last.size(), 1);
  const Case c = Layer(kU8, x, kU8, w);
  EXPECT_EQ(exact::Evaluate(c).IntAt(0),
            (1 << 24) - 1 + more + std::accumulate(last.begin(), last.end(), 0));
  return c;
}

// Behind 2^24 a float32 holds even numbers alone.
TEST(FamilyOfSums, InFloat32FromBlockToBlock) {
  for (const int32_t block : {32, 64, 128, 256, 512}) {
    const auto between = fmt::format("float32 sum between blocks of {}", block);
    EXPECT_EQ(Answer(AfterSixteenBlocks(block, 2, {1, 1, 1}), between), Values{(1 << 24) + 3})
        << "2^24, and then 3 times 1";
    const auto of = fmt::format("float32 sum of blocks of {}", block);
    EXPECT_EQ(Answer(AfterSixteenBlocks(block, 1, {0, 1, 1}), of), Values{(1 << 24) + 2})
        << "2 at once";
    EXPECT_EQ(Answer(AfterSixteenBlocks(block, 1, {0, 0, 1}), of), Values{1 << 24});
    for (const std::string& name : {between, of})
      EXPECT_FALSE(IsAsked(Layer(kU8, Ones(block), kS8, Ones(block)), name)) << "one block";
  }
}

std::string Lanes(const char* what, int lanes, const char* end, int every) {
  return fmt::format("{} in {} int16 {} that {}{}", what, lanes, lanes == 1 ? "lane" : "lanes", end,
                     every == 0 ? "" : fmt::format(", emptied every {} additions", every));
}

TEST(FamilyOfSums, LanesThatAreEmptiedAtTheEnd) {
  // Products of 20000, or -20000.
  const auto layer = [](int64_t terms, int32_t sign) {
    return Layer(kU8, Values(static_cast<size_t>(terms), 200), kS8,
                 Values(static_cast<size_t>(terms), 100 * sign));
  };
  for (const int lanes : {1, 4, 8, 16, 32}) {
    const std::string saturate = Lanes("products", lanes, "saturate", 0);
    EXPECT_EQ(Answer(layer(2 * lanes + 2, 1), saturate),
              Values{lanes == 1 ? 32767 : 32767 * lanes + (0)});
    EXPECT_EQ(Answer(layer(2 * lanes + 2, -1), saturate), Values{-32768 * lanes});
    const std::string wrap = Lanes("products", lanes, "wrap", 0);
    EXPECT_EQ(Answer(layer(2 * lanes, 1), wrap),
              lanes == 1 ? std::nullopt : std::optional(Values{(40000 - 65536) * lanes}));
    EXPECT_EQ(Answer(layer(3 * lanes, 1), wrap), Values{(60000 - 65536) * lanes});
  }
  EXPECT_FALSE(IsAsked(layer(2, 1), Lanes("products", 4, "saturate", 0)));
  EXPECT_TRUE(IsAsked(layer(3, 1), Lanes("products", 4, "saturate", 0)));
  EXPECT_FALSE(IsAsked(layer(3, 1), Lanes("saturated pairs", 4, "saturate", 0)));
  EXPECT_TRUE(IsAsked(layer(4, 1), Lanes("saturated pairs", 4, "saturate", 0)));
}

TEST(FamilyOfSums, LanesThatAreEmptiedNowAndThen) {
  for (const int lanes : {1, 4, 32}) {
    for (const int every : {4, 8, 128, 256}) {
      // Each lane gets products of 100 * 120, three of which are more than an int16 holds, once
      // before it is emptied and once behind that.
      const auto terms = static_cast<size_t>(lanes) * static_cast<size_t>(2 * every);
      Values x(terms, 0);
      const auto full = static_cast<size_t>(3 * lanes);
      std::fill_n(x.begin(), full, 100);
      std::fill_n(x.begin() + lanes * every, full, 100);
      const Case c = Layer(kU8, x, kS8, Values(terms, 120));
      EXPECT_EQ(Answer(c, Lanes("products", lanes, "saturate", every)), Values{2 * lanes * 32767});
      EXPECT_EQ(Answer(c, Lanes("products", lanes, "wrap", every)),
                Values{2 * lanes * (36000 - 65536)});
    }
  }
}

TEST(FamilyOfSums, PairsInLanes) {
  // Pairs of 255 * 127 * 2, which saturate, and then lanes that saturate or wrap.
  const Case c = Layer(kU8, Values(9, 255), kS8, {127, 127, 1, 1, 127, 127, 127, 127, 3});
  // Two lanes of a pair and a half each: 32767 + 32767, and 510 + 32767; the last product starts
  // the first lane again.
  EXPECT_EQ(Answer(c, Lanes("saturated pairs", 1, "saturate", 0)), Values{32767});
  EXPECT_EQ(Answer(c, Lanes("saturated pairs", 1, "saturate", 4)), Values{32767 + 765});
  EXPECT_EQ(Answer(c, Lanes("saturated pairs", 4, "saturate", 0)),
            Values{32767 + 510 + 32767 + 32767});
  EXPECT_EQ(Answer(c, Lanes("saturated pairs", 4, "wrap", 0)),
            Values{32767 + 765 - 65536 + 510 + 32767 + 32767});
  // s8 codes are raised by 128, which is taken out again.
  const Case s8 = Layer(kS8, {127, 127, 1, 2}, kS8, {127, 127, 3, 4});
  EXPECT_EQ(Answer(s8, Lanes("saturated pairs", 4, "saturate", 0)),
            Values{32767 + 129 * 3 + 130 * 4 - 128 * 261});
  EXPECT_EQ(Answer(s8, Lanes("products", 1, "saturate", 0)), Values{16129 * 2 + 3 + 8})
      << "products are those of the codes themselves";
  // A product of u8 codes may not fit an int16 alone.
  const Case u8 = Layer(kU8, {255, 0, 0}, kU8, {255, 0, 0});
  EXPECT_EQ(Answer(u8, Lanes("products", 1, "wrap", 0)), Values{65025 - 65536});
  EXPECT_FALSE(Exists(Lanes("saturated pairs", 1, "saturate", 128))) << "16-bit accumulation";
  EXPECT_TRUE(Exists(Lanes("products", 1, "saturate", 128)));
  EXPECT_TRUE(Exists(Lanes("saturated pairs", 1, "wrap", 128)));
  EXPECT_TRUE(Exists(Lanes("saturated pairs", 4, "saturate", 128)));
  EXPECT_TRUE(Exists(Lanes("saturated pairs", 1, "saturate", 64)));
}

TEST(FamilyOfSums, TermsCountedInNarrowTypes) {
  const auto layer = [](int64_t terms) { return Layer(kU8, Ones(terms), kS8, Ones(terms)); };
  EXPECT_FALSE(IsAsked(layer(255), "terms counted in 8 bits"));
  EXPECT_EQ(Answer(layer(256), "terms counted in 8 bits"), Values{0});
  EXPECT_EQ(Answer(layer(515), "terms counted in 8 bits"), Values{3});
  EXPECT_FALSE(IsAsked(layer(65535), "terms counted in 16 bits"));
  EXPECT_EQ(Answer(layer(65537), "terms counted in 16 bits"), Values{1});
}

TEST(FamilyOfSums, BlocksThatAreDropped) {
  for (const int32_t block : {32, 64, 128, 256, 512}) {
    const auto answer = [&](int32_t terms, const char* text) {
      Case c = Layer(kU8, Ones(terms), kS8, Ones(terms));
      c.x.SetInt(0, 100), c.x.SetInt(terms - 1, 200);
      return Answer(c, fmt::format(fmt::runtime(text), block));
    };
    constexpr auto* kLast = "last block of {} alone";
    constexpr auto* kFirst = "first block of {} alone";
    constexpr auto* kPartial = "last partial block of {} dropped";
    EXPECT_EQ(answer(block, kLast), std::nullopt);
    EXPECT_EQ(answer(block, kFirst), std::nullopt);
    EXPECT_EQ(answer(block, kPartial), std::nullopt);
    EXPECT_EQ(answer(block + 3, kLast), Values{202});
    EXPECT_EQ(answer(2 * block, kLast), Values{199 + block});
    EXPECT_EQ(answer(2 * block, kFirst), Values{99 + block});
    EXPECT_EQ(answer(block + 1, kPartial), std::nullopt) << "the last product dropped";
    EXPECT_EQ(answer(block + 2, kPartial), Values{99 + block});
    EXPECT_EQ(answer(2 * block, kPartial), std::nullopt);
    EXPECT_EQ(answer(block - 1, kPartial), std::nullopt) << "no block stands before it";
  }
}

// 130 products of 65025 are 8453250, 2^23 is 8388608.
TEST(FamilyOfSums, InNarrowIntegers) {
  const Case c = Layer(kU8, Values(130, 255), kU8, Values(130, 255));
  EXPECT_EQ(Answer(c, "sum in 24 bits that wrap"), Values{8453250 - (1 << 24)});
  EXPECT_EQ(Answer(c, "sum in 24 bits that saturate"), Values{(1 << 23) - 1});
  EXPECT_EQ(Answer(c, "sum in an int32 that saturates"), Values{8453250});
  Case negative = Layer(kU8, {1}, kS8, {-1});
  negative.x_q.zero_point = {(1 << 23) + 2};
  EXPECT_EQ(Answer(negative, "sum in 24 bits that wrap"), Values{1 - (1 << 23)});
  negative.w.SetInt(0, 1);
  EXPECT_EQ(Answer(negative, "sum in 24 bits that wrap"), Values{(1 << 23) - 1});
  EXPECT_EQ(Answer(negative, "sum in 24 bits that saturate"), Values{-(1 << 23)});
  // An f32 output tells an int32 that saturates from the sum.
  Case wide = ToFloats(Layer(kU8, {0}, kS8, {-128}));
  wide.x_q.zero_point = {1 << 30};
  EXPECT_EQ(RealAnswer(wide, "sum in an int32 that saturates"), Reals{0x1p31f});
  ASSERT_EQ(exact::Evaluate(wide).FloatAt(0), 0x1p37f);
}

TEST(FamilyOfSums, WeightsThatLoseABit) {
  const Case c = Layer(kU8, {1, 10, 100}, kS8, {3, -3, 4});
  EXPECT_EQ(Answer(c, "weights halved and doubled"), Values{2 - 20 + 400});
  EXPECT_EQ(Answer(c, "lowest bit of the weights lost"), Values{2 - 40 + 400});
}

TEST(FamilyOfSums, TheLastProductOfAnOddSumTwice) {
  constexpr auto* kName = "last product of an odd sum twice";
  EXPECT_EQ(Answer(Layer(kU8, {1, 2, 3}, kS8, {10, 10, 10}), kName), Values{90});
  EXPECT_EQ(Answer(Layer(kU8, {7}, kS8, {3}), kName), Values{42});
  EXPECT_FALSE(IsAsked(Layer(kU8, {1, 2}, kS8, {10, 10}), kName));
}

TEST(FamilyOfSums, TheLastWholeBlockIsDropped) {
  for (const int32_t block : {4, 8, 16, 32, 64}) {
    const auto name = fmt::format("last whole block of {} dropped", block);
    const auto layer = [](int64_t terms) { return Layer(kU8, Ones(terms), kS8, Ones(terms)); };
    EXPECT_EQ(Answer(layer(block), name), Values{0});
    EXPECT_EQ(Answer(layer(3 * block), name), Values{2 * block});
    EXPECT_FALSE(IsAsked(layer(3 * block + 1), name));
    EXPECT_FALSE(IsAsked(layer(0), name));
  }
}

TEST(FamilyOfSums, TheLastPassOfADepthwiseKernelIsDropped) {
  constexpr auto* kName = "last pass of 8 taps dropped";
  const auto line = [](Op op, int64_t taps) {
    Window v{.batch = 1, .in_h = 1, .in_w = taps, .in_c = 1, .kernel_h = 1, .kernel_w = taps};
    return Windowed(op, v, kU8, Ones(taps), Ones(taps));
  };
  EXPECT_EQ(Answer(line(Op::kDepthwise, 17), kName), Values{9});
  EXPECT_EQ(Answer(line(Op::kDepthwise, 25), kName), Values{17});
  EXPECT_FALSE(IsAsked(line(Op::kDepthwise, 9), kName)) << "one pass";
  EXPECT_FALSE(IsAsked(line(Op::kDepthwise, 16), kName)) << "a tail";
  EXPECT_FALSE(IsAsked(line(Op::kConv2d, 17), kName));
  constexpr auto* kFirst = "first pass of 9 taps lost";
  EXPECT_EQ(Answer(line(Op::kDepthwise, 12), kFirst), Values{3});
  EXPECT_FALSE(IsAsked(line(Op::kDepthwise, 9), kFirst)) << "one pass";
  EXPECT_FALSE(IsAsked(line(Op::kConv2d, 12), kFirst));
}

// ---- Lines of an image.

TEST(FamilyOfLines, AsWideAsTheOutputs) {
  constexpr auto* kName = "lines as wide as the outputs";
  Window v{.batch = 2, .in_h = 2, .in_w = 3, .in_c = 1};
  v.stride_w = 2;
  const Values images{1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16};
  const Case c = Windowed(Op::kConv2d, v, kU8, images, {1});
  ASSERT_EQ(exact::Evaluate(c).IntAt(2), 4);
  EXPECT_EQ(Answer(c, kName), (Values{1, 3, 5, 6, 11, 13, 15, 16}))
      << "line 1 begins 4 pixels behind line 0, and the image ends at its sixth";
  v.in_w = 4;
  EXPECT_FALSE(IsAsked(Windowed(Op::kConv2d, v, kU8, Ones(16), {1}), kName));
  v.in_w = 3, v.in_h = 1;
  EXPECT_FALSE(IsAsked(Windowed(Op::kConv2d, v, kU8, Ones(6), {1}), kName)) << "one line";
  // A tap in the padding stays there.
  Window padded{.batch = 1, .in_h = 2, .in_w = 2, .in_c = 1, .kernel_h = 1, .kernel_w = 2};
  padded.pad_left = 1, padded.stride_w = 3;
  const Case left = Windowed(Op::kConv2d, padded, kU8, {1, 2, 3, 4}, {10, 1});
  ASSERT_EQ(exact::Evaluate(left).IntAt(1), 3);
  EXPECT_EQ(Answer(left, kName), (Values{1, 4}));
}

TEST(FamilyOfLines, ReadOnBeyondAnEdge) {
  Window v{.batch = 1, .in_h = 2, .in_w = 2, .in_c = 1, .kernel_h = 2, .kernel_w = 2};
  v.pad_left = v.pad_right = v.pad_top = v.pad_bottom = 1;
  Case c = Windowed(Op::kDepthwise, v, kU8, {1, 2, 3, 4}, {1, 10, 100, -50});
  c.x_q.zero_point = {7};
  const auto codes = [&](const char* name) {
    const std::optional<Values> y = Answer(c, name);
    EXPECT_TRUE(y) << name;
    return y.value_or(Values{});
  };
  const Tensor right = exact::Evaluate(c);
  // Row 1: taps (0,-1) (0,0) over (1,-1) (1,0); then columns 0 and 1; then 1 and 2.
  Values past, before;
  for (int32_t i = 0; i < 9; ++i) past.push_back(right.IntAt(i)), before.push_back(right.IntAt(i));
  past[2] -= 50 * (3 - 7);                 // behind (0,1) lies 3
  past[5] += 10 * (3 - 7) - 50 * (4 - 7);  // behind (1,1) the image ends: its last pixel
  before[0] += 100 * (1 - 7);              // before (0,0) the image begins
  before[3] += 1 * (1 - 7) + 100 * (2 - 7);
  past[8] += 10 * (4 - 7);
  before[6] += 1 * (2 - 7);
  EXPECT_EQ(codes("past the right edge"), past);
  EXPECT_EQ(codes("before the left edge"), before);
  EXPECT_FALSE(IsAsked(c, "inside without dilation"));
  Window none = v;
  none.pad_left = none.pad_right = 0;
  const Case inside = Windowed(Op::kDepthwise, none, kU8, {1, 2, 3, 4}, {1, 10, 100, -50});
  EXPECT_FALSE(IsAsked(inside, "past the right edge"));
  EXPECT_FALSE(IsAsked(inside, "before the left edge"));
}

TEST(FamilyOfLines, ADilatedWindowTakenForAnUndilatedOne) {
  constexpr auto* kName = "inside without dilation";
  Window v{.batch = 1, .in_h = 2, .in_w = 3, .in_c = 1, .kernel_h = 1, .kernel_w = 2};
  v.dilation_w = 2, v.pad_right = 2;
  const Case c = Windowed(Op::kConv2d, v, kU8, {1, 2, 3, 4, 5, 6}, {1, 10});
  ASSERT_EQ(exact::Evaluate(c).IntAt(1), 2);
  EXPECT_EQ(Answer(c, kName), (Values{31, 42, 3, 64, 65, 6}))
      << "columns 1 and 2 lie inside, columns 2 and 3 do not";
  EXPECT_EQ(Answer(c, "past the right edge"), (Values{31, 42, 53, 64, 65, 66}));
  v.pad_left = 1;
  EXPECT_EQ(Answer(Windowed(Op::kConv2d, v, kU8, {1, 2, 3, 4, 5, 6}, {1, 10}), kName),
            (Values{20, 31, 42, 3, 50, 64, 65, 6}))
      << "the padding moves the columns under the outputs";
  v.pad_right = 0;
  EXPECT_FALSE(IsAsked(Windowed(Op::kConv2d, v, kU8, {1, 2, 3, 4, 5, 6}, {1, 10}), kName));
}

// Column 32 k + 1 of each line is column 1.
TEST(FamilyOfLines, ABufferOfColumns) {
  for (const int32_t columns : {32, 64, 128, 256}) {
    const auto name = fmt::format("pixels of a buffer of {} columns", columns);
    for (const Op op : {Op::kConv2d, Op::kMaxPool}) {
      const int32_t wide = 2 * columns + 1;
      Window v{.batch = 1, .in_h = 2, .in_w = wide, .in_c = 1};
      Values x(static_cast<size_t>(2 * wide), 0);
      x[0] = 1, x[1] = 2, x[static_cast<size_t>(wide)] = 3, x.back() = 9;
      const std::optional<Values> y =
          Answer(Windowed(op, v, kU8, x, op == Op::kConv2d ? Values{1} : Values{}), name);
      ASSERT_TRUE(y) << name;
      const auto at = [&](int32_t line, int32_t column) {
        return (*y)[static_cast<size_t>(line * wide + column)];
      };
      EXPECT_EQ(at(0, 1), 2);
      EXPECT_EQ(at(0, columns - 1), 0);
      EXPECT_EQ(at(0, columns), 1);
      EXPECT_EQ(at(0, columns + 1), 2);
      EXPECT_EQ(at(0, 2 * columns), 1);
      EXPECT_EQ(at(1, columns), 3);
      EXPECT_EQ(at(1, 2 * columns), 3) << "not 9";
      v.in_w = columns;
      EXPECT_FALSE(IsAsked(Windowed(op, v, kU8, Ones(2 * columns), {1}), name));
    }
    // Two channels of a pixel move together.
    Window two{.batch = 1, .in_h = 1, .in_w = columns + 1, .in_c = 2};
    Values codes(static_cast<size_t>(2 * columns + 2), 0);
    codes[0] = 5, codes[1] = 6;
    const std::optional<Values> y = Answer(Windowed(Op::kMaxPool, two, kU8, codes), name);
    ASSERT_TRUE(y);
    EXPECT_EQ(Values(y->end() - 2, y->end()), (Values{5, 6}));
    EXPECT_FALSE(IsAsked(Elements(Op::kAdd, kU8, Ones(300), Ones(300)), name));
  }
}

// ---- Rows in blocks.

TEST(FamilyOfRows, ASoftmaxOfTheLastBlock) {
  for (const int32_t block : {256, 512, 1024, 2048, 4096, 8192}) {
    const auto name = fmt::format("softmax of the last block of {}", block);
    // Two codes behind the block share what all should: 256 / 2.
    const std::optional<Values> y =
        Answer(Elements(Op::kSoftmax, kU8, Values(static_cast<size_t>(block) + 2, 9)), name);
    ASSERT_TRUE(y);
    EXPECT_EQ(y->front(), 128);
    EXPECT_EQ(y->back(), 128);
    EXPECT_FALSE(IsAsked(Elements(Op::kSoftmax, kU8, Values(static_cast<size_t>(block), 9)), name));
    EXPECT_FALSE(
        IsAsked(Elements(Op::kTable, kU8, Values(static_cast<size_t>(block) + 2, 9)), name));
  }
}

TEST(FamilyOfRows, ARangeOfTheFirstBlock) {
  for (const int32_t block : {256, 512, 1024, 2048, 4096, 8192}) {
    const auto name = fmt::format("range of the first block of {}", block);
    Reals values(static_cast<size_t>(3 * block), 255);
    values[1] = 510, values[static_cast<size_t>(block)] = values.back() = 2550;
    Case c;
    c.op = Op::kChooseQParams;
    c.M = 1, c.N = std::ssize(values);
    c.x = Tensor::Of<float>({1, 1, c.N}, std::span<const float>(values));
    c.out_dtype = DType::kF32;
    OpenClamp(&c);
    EXPECT_EQ(RealAnswer(c, name), (Reals{2, 0})) << "510 / 255";
    // Rows of their own are that long, all rows together, or each batch.
    c.M = 2, c.N = (block + 1) / 2 + 1;
    c.x = Tensor(DType::kF32, {1, c.M, c.N});
    c.x.as<float>()[0] = 255, c.x.as<float>().back() = 2550;
    EXPECT_EQ(RealAnswer(c, name), (Reals{1, 0})) << "the last value lies behind the block";
    c.per_channel = true;
    EXPECT_FALSE(IsAsked(c, name)) << "no row is that long";
    values.resize(static_cast<size_t>(block));
    values.back() = 2550;
    c.per_channel = false;
    c.M = 1, c.N = std::ssize(values);
    c.x = Tensor::Of<float>({1, 1, c.N}, std::span<const float>(values));
    EXPECT_FALSE(IsAsked(c, name)) << "one block";
    Reals rising(static_cast<size_t>(block) + 1);
    std::iota(rising.begin(), rising.end(), 0.0f);
    EXPECT_FALSE(IsAsked(Quantized(rising), name)) << "no range is looked for";
  }
}

TEST(FamilyOfSums, CodesFromTheWrongPlace) {
  // Rows 0 to 2 and terms 0 and 1 of codes 1 to 6; the other operand is 1, then 10.
  const Case w = Layer(kU8, {1, 10}, kS8, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Answer(w, "weights one code on"), (Values{32, 54, 6}));
  EXPECT_EQ(Answer(w, "weights one row on"), (Values{43, 65, 0}));
  const Case x = Layer(kU8, {1, 2, 3, 4, 5, 6}, kS8, {1, 10}, 3);
  EXPECT_EQ(Answer(x, "input one code on"), (Values{32, 54, 6}));
  EXPECT_EQ(Answer(x, "input one row on"), (Values{43, 65, 0}));
  EXPECT_FALSE(IsAsked(w, "input one row on")) << "there is one row";
  EXPECT_FALSE(IsAsked(x, "weights one row on"));
  EXPECT_FALSE(IsAsked(Layer(kU8, {1}, kS8, {1, 2}), "weights one code on"));
  EXPECT_FALSE(IsAsked(Layer(kU8, {1}, kS8, {1, 2}), "input one code on"));
}

TEST(FamilyOfSums, OffsetsAndRowsThatWrap) {
  for (const int64_t modulo : {32768, 65536}) {
    // The last two codes are read from the first two, which are 5 and 7.
    Values codes = Ones(modulo + 2);
    codes[0] = 5, codes[1] = 7;
    const auto sum = static_cast<int32_t>(2 * (5 + 7) + modulo - 2);
    const Values ones = Ones(modulo + 2);
    EXPECT_EQ(Answer(Layer(kU8, ones, kS8, codes), fmt::format("weights offset modulo {}", modulo)),
              Values{sum});
    EXPECT_EQ(Answer(Layer(kU8, codes, kS8, ones), fmt::format("input offset modulo {}", modulo)),
              Values{sum});
    const Case fits = Layer(kU8, Ones(modulo), kS8, Ones(modulo));
    EXPECT_FALSE(IsAsked(fits, fmt::format("weights offset modulo {}", modulo)));
    EXPECT_FALSE(IsAsked(fits, fmt::format("input offset modulo {}", modulo)));
  }
  // Two rows: offsets count from the first.
  Values rows = Ones(40000);
  rows[0] = 9, rows[32767] = 3, rows[39999] = 4;
  EXPECT_EQ(Answer(Layer(kU8, Ones(20000), kS8, rows), "weights offset modulo 32768"),
            (Values{20008, 20000 + 2 + 8}));
  rows = Ones(40000);
  rows[0] = 9, rows[32767] = 3, rows[39999] = 4;
  const Case input = Layer(kU8, rows, kS8, Ones(20000), 2);
  EXPECT_EQ(Answer(input, "input offset modulo 32768"), (Values{20008, 20000 + 2 + 8}));
  EXPECT_FALSE(IsAsked(input, "weights offset modulo 32768"));
  // 258 rows of two codes.
  Values codes = Ones(516);
  codes[0] = 11, codes[2] = 12, codes[3] = 13, codes[512] = 14;
  Values expected(258, 2);
  expected[0] = expected[256] = 12, expected[1] = expected[257] = 25;
  EXPECT_EQ(Answer(Layer(kU8, {1, 1}, kS8, codes), "weights row in 8 bits"), expected);
  EXPECT_EQ(Answer(Layer(kU8, codes, kS8, {1, 1}, 258), "input row in 8 bits"), expected);
  EXPECT_FALSE(IsAsked(Layer(kU8, {1}, kS8, Ones(256)), "weights row in 8 bits"));
  EXPECT_FALSE(IsAsked(Layer(kU8, Ones(256), kS8, {1}, 256), "input row in 8 bits"));
  EXPECT_FALSE(IsAsked(Layer(kU8, Ones(300), kS8, {1}, 300), "weights row in 8 bits"));
}

TEST(FamilyOfSums, EveryBlockReadsTheFirst) {
  for (const int32_t block : {32, 64, 128, 256, 512}) {
    // Two rows of w: 1s and 2s, with a 10 at the begin of each.
    const auto terms = static_cast<size_t>(block) + 2;
    Values w(terms, 1);
    w.insert(w.end(), terms, 2);
    w[0] = w[terms] = 10;
    const std::string of = fmt::format(" of the first block of {}", block);
    EXPECT_EQ(Answer(Layer(kU8, Values(terms, 1), kS8, w), "weights" + of),
              (Values{20 + block, 20 + 2 * block}));
    EXPECT_EQ(Answer(Layer(kU8, w, kS8, Values(terms, 1), 2), "input" + of),
              (Values{20 + block, 20 + 2 * block}));
    const Case one = Layer(kU8, Ones(block), kS8, Ones(block));
    EXPECT_FALSE(IsAsked(one, "weights" + of));
    EXPECT_FALSE(IsAsked(one, "input" + of));
  }
}

// The last blocks of the rows of a panel are packed one behind the other, with one stride, and read
// with another. What is read from beyond the panel, or between its rows, is 0.
TEST(FamilyOfSums, TheStrideOfTheLastBlock) {
  for (const int64_t panel : {4, 8}) {
    for (const int64_t block : {32, 64, 128, 256, 512}) {
      for (const bool dense : {true, false}) {
        const std::string name = fmt::format("stride of the last block, panels of {} by {}{}",
                                             panel, block, dense ? "" : ", padded");
        const int64_t length = block * 3 / 4, terms = block + length, rows = panel + 2;
        Values w;
        for (int64_t i = 0; i < rows * terms; ++i) w.push_back(static_cast<int32_t>(i * 7 % 101));
        const auto code = [&](int64_t row, int64_t term) {
          return w[static_cast<size_t>(row * terms + term)];
        };
        const int64_t packed = dense ? length : block, read = dense ? block : length;
        Values expected;
        for (int64_t row = 0; row < rows; ++row) {
          int32_t sum = 0;
          for (int64_t term = 0; term < block; ++term) sum += code(row, term);
          // The panel of this row; rows behind the last one are 0.
          Values memory(static_cast<size_t>(panel * block * 2), 0);
          for (int64_t i = 0; i < panel && row / panel * panel + i < rows; ++i) {
            for (int64_t t = 0; t < length; ++t)
              memory[static_cast<size_t>(i * packed + t)] =
                  code(row / panel * panel + i, block + t);
          }
          for (int64_t t = 0; t < length; ++t)
            sum += memory[static_cast<size_t>(row % panel * read + t)];
          expected.push_back(sum);
        }
        EXPECT_EQ(Answer(Layer(kU8, Ones(terms), kS8, w), name), expected) << name;
        EXPECT_FALSE(IsAsked(Layer(kU8, Ones(2 * block), kS8, Ones(2 * block)), name));
        EXPECT_FALSE(IsAsked(Layer(kU8, Ones(block - 1), kS8, Ones(block - 1)), name));
      }
    }
  }
}

TEST(FamilyOfSums, ActTogetherWithCausesOfOtherStages) {
  Case c = Layer(kU8, {255, 255}, kS8, {127, 127});
  c.bias_i32 = {{5}};
  const std::optional<Tensor> y = AnswerOf(c, {"pair saturation", "bias twice"});
  ASSERT_TRUE(y);
  EXPECT_EQ(y->IntAt(0), 32767 + 10);
}

// ---- Elements, bias and parameters of channels.

TEST(FamilyOfElements, ANegatedOperandSaturates) {
  constexpr auto* kName = "negated operand saturates";
  EXPECT_EQ(Answer(Elements(Op::kSub, kS8, {-5, -5}, {-128, -127}), kName), (Values{122, 122}));
  EXPECT_FALSE(IsAsked(Elements(Op::kSub, kS8, {0}, {-127}), kName));
  EXPECT_FALSE(IsAsked(Elements(Op::kSub, kU8, {0}, {0}), kName));
  EXPECT_FALSE(IsAsked(Elements(Op::kAdd, kS8, {0}, {-128}), kName));
}

TEST(FamilyOfElements, ANegatedOperandWraps) {
  constexpr auto* kName = "negated operand wraps";
  Case c = Elements(Op::kSub, kS8, {-5, -5, 100}, {-128, -127, -128});
  ASSERT_EQ(exact::Evaluate(c).IntAt(0), 123);
  EXPECT_EQ(Answer(c, kName), (Values{-128, 122, -28})) << "-5 - 128, and 100 - 128";
  c.w_q.scale = {0.5f};
  c.w_q.zero_point = {-28};
  EXPECT_EQ(Answer(c, kName), (Values{-83, 44, 22})) << "-5 - 156 / 2, and 100 - 78";
  EXPECT_FALSE(CauseNamed(kName).applies(Elements(Op::kAdd, kS8, {0}, {-128})));
  const Case u8 = Elements(Op::kSub, kU8, {200}, {128});
  EXPECT_EQ(Answer(u8, kName), Values{72}) << "no byte of u8 is -128";
}

TEST(FamilyOfElements, CopiedWhereScalesAreEqual) {
  constexpr auto* kName = "copied where scales are equal";
  Case c = Elements(Op::kConcat, kS8, {10}, {20});
  c.x_q = {{2}, {3}}, c.w_q = {{1}, {5}}, c.out_q = {{2}, {7}};
  ASSERT_EQ(exact::Evaluate(c).IntAt(0), 14);
  EXPECT_EQ(Answer(c, kName), (Values{10, 15})) << "8 + 7";
  c.w_q.scale = {2};
  EXPECT_EQ(Answer(c, kName), (Values{10, 20}));
  c.x_q.scale = c.w_q.scale = {1};
  EXPECT_FALSE(IsAsked(c, kName));
  Case one = Elements(Op::kRescale, kS8, {10});
  one.x_q.zero_point = {3};
  EXPECT_EQ(Answer(one, kName), Values{10});
  one.x_q.zero_point = {0};
  EXPECT_FALSE(IsAsked(one, kName)) << "a copy is right";
  Case add = Elements(Op::kAdd, kS8, {10}, {20});
  add.x_q.zero_point = {3};
  EXPECT_FALSE(IsAsked(add, kName));
}

TEST(FamilyOfElements, SumsOfCodesSaturate) {
  constexpr auto* kName = "saturating sum of codes";
  const auto add = [](DType dtype, const Values& a, const Values& b, int32_t zero) {
    Case c = Elements(Op::kAdd, dtype, a, b);
    c.x_q.zero_point = c.w_q.zero_point = {zero};
    return c;
  };
  // 200 + 100 is 255, less both zero points of 100.
  EXPECT_EQ(Answer(add(kU8, {200, 10, 120}, {100, 20, 100}, 100), kName), (Values{55, -128, 20}));
  EXPECT_EQ(Answer(add(kS8, {-100, 100, 1}, {-90, 90, 2}, -50), kName), (Values{-28, 127, 103}));
  EXPECT_FALSE(IsAsked(add(kU8, {1}, {2}, 0), kName)) << "nothing saturates";
  for (QParams Case::* const q : {&Case::x_q, &Case::w_q, &Case::out_q}) {
    Case other = add(kU8, {200}, {100}, 0);
    (other.*q).scale = {2};
    EXPECT_FALSE(IsAsked(other, kName)) << "scales differ";
  }
  EXPECT_FALSE(IsAsked(Elements(Op::kSub, kU8, {0}, {255}), kName));
}

TEST(FamilyOfElements, AnOperandOfAnotherElement) {
  for (const int32_t modulo : {256, 65536}) {
    const auto size = static_cast<size_t>(modulo) + 2;
    // Two rows, in which elements 0 and 1 are 30 and 40, the others 1.
    Values codes(2 * size, 1);
    codes[0] = codes[size] = 30, codes[1] = codes[size + 1] = 40;
    const Values ones(2 * size, 1);
    Values expected(2 * size, 2);
    for (const size_t row : {size_t{0}, size}) {
      expected[row] = expected[row + size - 2] = 31;
      expected[row + 1] = expected[row + size - 1] = 41;
    }
    EXPECT_EQ(Answer(Elements(Op::kAdd, kU8, codes, ones, 2),
                     fmt::format("first operand of element n % {}", modulo)),
              expected);
    EXPECT_EQ(Answer(Elements(Op::kAdd, kU8, ones, codes, 2),
                     fmt::format("second operand of element n % {}", modulo)),
              expected);
    EXPECT_FALSE(IsAsked(Elements(Op::kAdd, kU8, ones, ones, 2),
                         fmt::format("first operand of element n % {}", modulo)))
        << "all elements are equal";
    const Values fits(static_cast<size_t>(modulo), 3);
    EXPECT_FALSE(CauseNamed(fmt::format("first operand of element n % {}", modulo))
                     .applies(Elements(Op::kAdd, kU8, fits, fits)));
    EXPECT_FALSE(CauseNamed(fmt::format("first operand of element n % {}", modulo))
                     .applies(Elements(Op::kConcat, kU8, ones, ones)));
  }
}

// The channels from which each cause of a family takes what belongs to a channel: 10 channels.
struct Source {
  const char* name;
  Values from;
};
const std::vector<Source>& Sources() {
  static const std::vector<Source> sources{
      {"channel n % 1", Values(10, 0)},
      {"channel n % 4", {0, 1, 2, 3, 0, 1, 2, 3, 0, 1}},
      {"channel n % 8", {0, 1, 2, 3, 4, 5, 6, 7, 0, 1}},
      {"the next channel", {1, 2, 3, 4, 5, 6, 7, 8, 9, 0}},
      {"the channel before", {9, 0, 1, 2, 3, 4, 5, 6, 7, 8}},
      {"the opposite channel", {9, 8, 7, 6, 5, 4, 3, 2, 1, 0}}};
  return sources;
}

TEST(FamilyOfChannels, TakeTheBiasOrTheParametersOfAnother) {
  Case c = Layer(kU8, {1}, kS8, Values(10, 1));
  c.bias_i32 = From(100, 10);
  Case real = ToFloats(Layer(kU8, {1}, kS8, Values(10, 0)));
  real.bias = Reals{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  Case zeros = Layer(kU8, {1}, kS8, Values(10, 1));
  zeros.per_channel = true;
  zeros.w_q = {Reals(10, 1), From(-9, 10)};  // 1 - zero point is 10, 9, ... 1
  Case both = Elements(Op::kDequantize, kU8, Values(10, 10));
  both.per_channel = true;
  both.x_q = {Reals{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, From(0, 10)};
  Case requantized = CaseOver(Op::kRequantize, Tensor::Of<int32_t>({1, 10}, Values(10, 1)), kS8);
  requantized.per_channel = true;
  requantized.multiplier = Reals{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  for (const auto& [name, from] : Sources()) {
    Values bias, zero, codes;
    Reals reals, parameters, scales;
    for (int32_t n = 0; n < 10; ++n) {
      const int32_t at = from[static_cast<size_t>(n)];
      bias.push_back(101 + at);
      reals.push_back(static_cast<float>(at));
      zero.push_back(10 - at);
      codes.push_back(1 + at);
      parameters.push_back(static_cast<float>((10 - at) * (1 + at)));
      scales.push_back(static_cast<float>((10 - n) * (1 + at)));
    }
    const std::string of = std::string(" of ") + name;
    EXPECT_EQ(Answer(c, "bias" + of), bias) << name;
    EXPECT_EQ(RealAnswer(real, "bias" + of), reals) << name;
    EXPECT_EQ(Answer(zeros, "weight zero point" + of), zero) << name;
    EXPECT_EQ(Answer(zeros, "parameters" + of), zero) << name;
    EXPECT_EQ(RealAnswer(both, "parameters" + of), parameters) << name;
    EXPECT_EQ(Answer(requantized, "parameters" + of), codes) << name;
    // Some have a row of their own: "channel 0 for all", "channel modulo 8".
    const bool exists = from[1] != 0 || from[0] != 0;
    if (std::string_view(name) == "channel n % 8" || !exists) {
      EXPECT_FALSE(Exists("scale" + of)) << name;
      continue;
    }
    EXPECT_EQ(RealAnswer(both, "scale" + of), scales) << name;
    EXPECT_EQ(Answer(requantized, "scale" + of), codes) << name;
  }
}

TEST(FamilyOfChannels, WithinTheirGroup) {
  // Two groups of two channels over pixels of 1 and 1.
  Window v{.batch = 1, .in_h = 1, .in_w = 1, .in_c = 2, .groups = 2};
  Case c = Windowed(Op::kConv2d, v, kU8, {1, 1}, {0, 0, 0, 0});
  c.per_channel = true;
  c.w_q = {{1, 1, 1, 1}, {1, 2, 3, 4}};
  c.bias_i32 = {{10, 20, 30, 40}};
  ASSERT_EQ(Validate(c), "");
  ASSERT_EQ(exact::Evaluate(c).IntAt(3), 40 - 4);
  EXPECT_EQ(Answer(c, "weight zero point within group"), (Values{9, 18, 29, 38}));
  EXPECT_EQ(Answer(c, "bias within group"), (Values{9, 18, 10 - 3, 20 - 4}));
  c.bias_i32.reset();
  EXPECT_FALSE(IsAsked(c, "bias within group"));
  c = ToFloats(c);
  c.bias = {{10, 20, 30, 40}};
  EXPECT_EQ(RealAnswer(c, "bias within group"), (Reals{9, 18, 10 - 3, 20 - 4}));
  v.groups = 1;
  Case one = Windowed(Op::kConv2d, v, kU8, {1, 1}, {0, 0, 0, 0});
  one.per_channel = true;
  one.w_q = {{1, 1}, {1, 2}};
  one.bias_i32 = {{10, 20}};
  EXPECT_FALSE(IsAsked(one, "weight zero point within group"));
  EXPECT_FALSE(IsAsked(one, "bias within group"));
}

TEST(FamilyOfChannels, AreAskedWhereChannelsDiffer) {
  for (const int64_t modulo : {1, 4, 8, 16, 32, 64, 128, 256}) {
    const auto layer = [](int64_t channels) {
      Case c = Layer(kU8, {1}, kS8, Ones(channels));
      c.per_channel = true;
      c.bias_i32 = From(1, channels);
      c.w_q = {Reals(static_cast<size_t>(channels), 1), From(1, channels)};
      return Checked(c);
    };
    for (const char* const what : {"bias", "weight zero point", "parameters"}) {
      const std::string name = fmt::format("{} of channel n % {}", what, modulo);
      EXPECT_FALSE(IsAsked(layer(modulo), name)) << name;
      EXPECT_TRUE(IsAsked(layer(modulo + 1), name)) << name;
    }
    EXPECT_EQ(Exists(fmt::format("scale of channel n % {}", modulo)), modulo == 4 || modulo > 16);
  }
  // Lists of one entry, equal entries, and no bias at all.
  const Case plain = Layer(kU8, {1}, kS8, Ones(10));
  Case equal = plain;
  equal.per_channel = true;
  equal.w_q = {Reals(10, 2), Values(10, 3)};
  equal.bias_i32 = Values(10, 4);
  for (const Source& source : Sources()) {
    for (const char* const what : {"bias", "weight zero point", "parameters", "scale"}) {
      const std::string name = std::string(what) + " of " + source.name;
      if (!Exists(name)) continue;
      EXPECT_FALSE(IsAsked(plain, name)) << name;
      EXPECT_FALSE(IsAsked(equal, name)) << name;
    }
  }
  EXPECT_FALSE(IsAsked(Layer(kU8, {1}, kS8, {1}), "parameters of the next channel"));
}

TEST(FamilyOfBias, TwiceNegatedOrForEachBlock) {
  Case c = Layer(kU8, {2}, kS8, {3, 3});
  EXPECT_FALSE(IsAsked(c, "bias twice"));
  c.bias_i32 = {{100, INT32_MAX - 7}};
  EXPECT_EQ(Answer(c, "bias twice"), (Values{206, INT32_MAX}));
  EXPECT_EQ(Answer(c, "bias subtracted"), (Values{-94, 13 - INT32_MAX}));
  c = ToFloats(Layer(kU8, {2}, kS8, {3, 3}));
  c.bias = {{0.5f, -1}};
  EXPECT_EQ(RealAnswer(c, "bias twice"), (Reals{7, 4}));
  EXPECT_EQ(RealAnswer(c, "bias subtracted"), (Reals{5.5f, 7}));
  c.bias = {{0.5f, 0x1p127f}};
  EXPECT_FALSE(IsAsked(c, "bias twice")) << "infinite";
  EXPECT_TRUE(IsAsked(c, "bias subtracted"));
  for (const int32_t block : {32, 64, 128, 256, 512}) {
    const std::string name = fmt::format("bias once per block of {}", block);
    c = Layer(kU8, Ones(2 * block + 1), kS8, Ones(2 * block + 1));
    c.bias_i32 = {{1000}};
    EXPECT_EQ(Answer(c, name), Values{2 * block + 1 + 3000});
    c = Layer(kU8, Ones(2 * block), kS8, Ones(2 * block));
    EXPECT_FALSE(IsAsked(c, name)) << "there is no bias";
    c.bias_i32 = {{1000}};
    EXPECT_EQ(Answer(c, name), Values{2 * block + 2000});
    c = Layer(kU8, Ones(block), kS8, Ones(block));
    c.bias_i32 = {{1000}};
    EXPECT_FALSE(IsAsked(c, name));
  }
}

TEST(FamilyOfBias, InNarrowTypes) {
  Case c = Layer(kU8, {0}, kS8, {0, 0, 0, 0});
  c.bias_i32 = {{40000, -40000, 200, 5}};
  EXPECT_EQ(Answer(c, "int32 bias in an int16 that wraps"),
            (Values{40000 - 65536, 65536 - 40000, 200, 5}));
  EXPECT_EQ(Answer(c, "int32 bias in an int16 that saturates"), (Values{32767, -32768, 200, 5}));
  EXPECT_EQ(Answer(c, "int32 bias in an int8 that wraps"), (Values{64, -64, -56, 5}));
  EXPECT_FALSE(IsAsked(c, "int32 bias as a float32"));
  c.bias_i32 = {{(1 << 24) + 1, INT32_MAX - 100, INT32_MAX, INT32_MIN}};
  EXPECT_EQ(Answer(c, "int32 bias as a float32"),
            (Values{1 << 24, INT32_MAX - 127, INT32_MAX, INT32_MIN}));
  c.bias_i32 = {{127, -128, 0, 1}};
  for (const char* const how :
       {"in an int16 that wraps", "in an int16 that saturates", "in an int8 that wraps"}) {
    EXPECT_FALSE(IsAsked(c, std::string("int32 bias ") + how));
  }
  c.bias_i32.reset();
  EXPECT_FALSE(IsAsked(c, "int32 bias in an int8 that wraps"));
}

// ---- Rounding and clamp.

Case Requantized(const Values& x, float multiplier, int32_t zero_point = 0) {
  Case c = CaseOver(Op::kRequantize, Tensor::Of<int32_t>({1, std::ssize(x)}, x), kS8);
  c.multiplier = {multiplier};
  c.out_q.zero_point = {zero_point};
  return Checked(c);
}

TEST(FamilyOfRounding, HalvesAndQuarters) {
  const Case c = Requantized({1, 2, 3, 5, 6, 7, -1, -2, -3, -5, -6, -7, 0, 4, -4}, 0.25f);
  EXPECT_EQ(Answer(c, "floor"), (Values{0, 0, 0, 1, 1, 1, -1, -1, -1, -2, -2, -2, 0, 1, -1}));
  EXPECT_EQ(Answer(c, "ceiling"), (Values{1, 1, 1, 2, 2, 2, 0, 0, 0, -1, -1, -1, 0, 1, -1}));
  EXPECT_EQ(Answer(c, "half down"), (Values{0, 0, 1, 1, 1, 2, 0, -1, -1, -1, -2, -2, 0, 1, -1}));
  EXPECT_EQ(Answer(c, "half towards zero"),
            (Values{0, 0, 1, 1, 1, 2, 0, 0, -1, -1, -1, -2, 0, 1, -1}));
  EXPECT_EQ(Answer(c, "half added and cut"),
            (Values{0, 1, 1, 1, 2, 2, 0, 0, 0, 0, -1, -1, 0, 1, 0}));
}

// INT32_MAX - 1 and a half of 2 are one too many.
TEST(FamilyOfRounding, AHalfThatWraps) {
  constexpr auto* kName = "half that wraps";
  Case c = Requantized({INT32_MAX - 1, INT32_MAX - 2, 5, -7}, 0.25f);
  EXPECT_EQ(Answer(c, kName), (Values{-128, 127, 1, -2}));
  c.multiplier = {0.375f};
  EXPECT_EQ(Answer(c, kName), (Values{127, 127, 2, -3})) << "is no shift alone";
  c.multiplier = {2};
  EXPECT_EQ(Answer(c, kName), (Values{127, 127, 10, -14})) << "a shift to the left";
  c.multiplier = {0.5f};
  EXPECT_EQ(Answer(c, kName), (Values{127, 127, 2, -4})) << "half of 2 is 1";
  c.x.SetInt(0, INT32_MAX);
  EXPECT_EQ(Answer(c, kName)->front(), -128);
  c.multiplier = {2};
  EXPECT_EQ(Answer(c, kName)->front(), 127) << "no half is added";
  c.requant = Requant::kFixedQ31;
  EXPECT_FALSE(CauseNamed(kName).applies(c)) << "has steps of its own";
  c.requant = Requant::kExact;
  c.multiplier.clear();
  EXPECT_FALSE(CauseNamed(kName).applies(c)) << "a quotient of scales";
}

// Bounds of -3 and 3: the ties -2.5 and 2.5 are rounded to -2 and 2, and are half a code from them.
TEST(FamilyOfRounding, HalvesNextToTheBounds) {
  constexpr auto* kName = "half to the bound";
  Case c = Requantized({-13, -10, -6, -9, 9, 6, 10, 13}, 0.25f);
  c.out_min = -3, c.out_max = 3;
  EXPECT_EQ(Answer(c, kName), (Values{-3, -3, -2, -2, 2, 2, 3, 3}));
  c.out_min = -2, c.out_max = 2;
  EXPECT_EQ(Answer(c, kName), (Values{-2, -2, -2, -2, 2, 2, 2, 2}));
  c.relu = true, c.out_q.zero_point = {-1};  // the lower bound is -1, 0.5 becomes -1
  c.out_min = -128;
  c.x.SetInt(0, 2);
  EXPECT_EQ(Answer(c, kName)->front(), -1);
}

TEST(FamilyOfRounding, NarrowIntegersBehindTheRounding) {
  const Values x{40000, -40000, 65536 + 5, 100, -65536 - 5, 32765};
  EXPECT_EQ(Answer(Requantized(x, 1, 10), "int16 that wraps"),
            (Values{-128, 127, 15, 110, 5, 127}));
  EXPECT_EQ(Answer(Requantized(x, 1, 10), "zero point added in int16"),
            (Values{-128, -128, -128, 110, -128, -128}));
  EXPECT_EQ(Answer(Requantized(x, 1, -10), "zero point added in int16"),
            (Values{127, 127, 127, 90, 127, 127}));
  // A rounded value that no int64 holds.
  EXPECT_TRUE(IsAsked(Requantized({INT32_MAX}, 0x1p100f), "int16 that wraps"));
}

TEST(FamilyOfRounding, RequantizationModesOfLibraries) {
  // 0.25 is rounded to 0.5 and then to 1 in fixed point; halves go up in another.
  EXPECT_EQ(Answer(Requantized({1, -2, 2}, 0.25f), "rounded twice in fixed point"),
            (Values{1, -1, 1}));
  EXPECT_EQ(Answer(Requantized({1, -2, 2}, 0.25f), "rounded half up in fixed point"),
            (Values{0, 0, 1}));
  Case c = ToCodes(Layer(kU8, {0}, kS8, {0}), kS8, 0x1p25f);
  c.bias_i32 = {{(1 << 24) + 1}};
  EXPECT_EQ(Answer(c, "float32 requantization"), Values{0});
  c.bias_i32.reset();
  c.bias = {{1}};
  for (const char* const name : {"rounded twice in fixed point", "rounded half up in fixed point",
                                 "float32 requantization"}) {
    EXPECT_FALSE(IsAsked(c, name)) << "a mode takes no float bias";
    EXPECT_FALSE(IsAsked(Elements(Op::kRescale, kS8, {1}), name)) << "has no modes";
  }
}

TEST(FamilyOfRounding, ShortMultipliers) {
  // 255/256 is 127.5/128.
  EXPECT_EQ(Answer(Requantized({127, -128}, 255.0f / 256), "multiplier cut to 7 bits"),
            (Values{126, -127}));
  EXPECT_EQ(Answer(Requantized({127, -128}, 255.0f / 256), "multiplier rounded to 7 bits"),
            (Values{127, -128}));
  EXPECT_EQ(Answer(Requantized({127, -128}, 255.0f / 256), "multiplier cut to 8 bits"),
            (Values{127, -128}));
  // A bit behind the first 11, and 1 bit less.
  const float fine = 1.0f + 0x1p-11f;
  EXPECT_EQ(Answer(Requantized({2048 * 16}, fine * 0x1p-15f), "multiplier cut to 11 bits"),
            Values{1});
  for (int bits = 7; bits <= 28; ++bits) {
    const float multiplier = std::ldexp(1.0f + 0x1p-6f, -10);  // 7 bits
    EXPECT_EQ(Answer(Requantized({64 * 1024}, multiplier),
                     fmt::format("multiplier cut to {} bits", bits)),
              Values{65})
        << bits;
  }
  for (const int bits : {7, 8, 11, 12, 14, 15, 16, 20, 23, 24, 30, 31}) {
    EXPECT_EQ(Answer(Requantized({64}, 1.0f + 0x1p-6f),
                     fmt::format("multiplier rounded to {} bits", bits)),
              Values{65})
        << bits;
  }
  // The bias is not multiplied.
  Case c = ToCodes(Layer(kU8, {128}, kS8, {-1}), kS8, 256.0f / 255);
  c.bias = {{100}};
  EXPECT_EQ(exact::Evaluate(c).IntAt(0), -28);
  EXPECT_EQ(Answer(c, "multiplier cut to 7 bits"), Values{-27}) << "-127 + 99.6";
  c = Elements(Op::kAdd, kS8, {127}, {-126});
  c.x_q.scale = {255.0f / 256}, c.w_q.scale = {255.0f / 256};
  EXPECT_EQ(exact::Evaluate(c).IntAt(0), 1);
  EXPECT_EQ(Answer(c, "multiplier cut to 7 bits"), Values{1}) << "126.008 - 125.016";
  c.x_q.scale = {0.5f}, c.w_q.scale = {2};
  c.w.SetInt(0, 10);
  EXPECT_EQ(Answer(c, "multiplier cut to 7 bits"), Values{84}) << "63.5 + 20, a tie";
  Window v{.batch = 1, .in_h = 1, .in_w = 2, .in_c = 1, .kernel_h = 1, .kernel_w = 2};
  c = Windowed(Op::kAvgPool, v, kU8, {100, 21});
  EXPECT_EQ(Answer(c, "multiplier cut to 7 bits"), Values{60}) << "121 / 2, a tie";
}

TEST(FamilyOfClamps, BoundsThatAreIgnoredOrMoved) {
  Case c = Requantized({-200, -128, -127, 0, 127, 200}, 1);
  EXPECT_FALSE(IsAsked(c, "lower clamp ignored"));
  EXPECT_FALSE(IsAsked(c, "upper clamp ignored"));
  EXPECT_EQ(Answer(c, "lower bound -127"), (Values{-127, -127, -127, 0, 127, 127}));
  EXPECT_EQ(Answer(c, "highest code never given"), (Values{-128, -128, -127, 0, 126, 126}));
  EXPECT_FALSE(IsAsked(c, "upper bound 127"));
  c.out_min = -5, c.out_max = 5;
  EXPECT_EQ(Answer(c, "lower clamp ignored"), (Values{-128, -128, -127, 0, 5, 5}));
  EXPECT_EQ(Answer(c, "upper clamp ignored"), (Values{-5, -5, -5, 0, 127, 127}));
  EXPECT_FALSE(IsAsked(c, "lower bound -127")) << "lies outside";
  EXPECT_FALSE(IsAsked(c, "highest code never given"));
  c.out_min = -128, c.out_max = -127;
  EXPECT_EQ(Answer(c, "lower bound -127"), Values(6, -127));
  c.out_max = -128;
  EXPECT_FALSE(IsAsked(c, "lower bound -127")) << "no code is left";
  c.out_min = c.out_max = 127;
  EXPECT_FALSE(IsAsked(c, "highest code never given")) << "no code is left";
  c = Requantized({-200, 0, 127, 128, 300}, 1);
  c.out_dtype = kU8;
  OpenClamp(&c);
  EXPECT_EQ(Answer(c, "upper bound 127"), (Values{0, 0, 127, 127, 127}));
  EXPECT_FALSE(IsAsked(c, "lower bound -127"));
  c.out_min = 127;
  EXPECT_EQ(Answer(c, "upper bound 127"), Values(5, 127));
  c.out_min = 128;
  EXPECT_FALSE(IsAsked(c, "upper bound 127")) << "no code is left";
  Case sums = Layer(kU8, {100}, kS8, {100});
  sums.out_max = 7;
  EXPECT_EQ(Answer(sums, "upper clamp ignored"), Values{10000});
  sums.out_max = INT32_MAX;
  EXPECT_FALSE(IsAsked(sums, "highest code never given")) << "is no code";
  EXPECT_FALSE(IsAsked(sums, "lower bound -127"));
  EXPECT_FALSE(IsAsked(sums, "upper bound 127"));
  EXPECT_FALSE(CauseNamed("upper clamp ignored").applies(ToFloats(sums)));
}

// ---- Which causes are asked.

TEST(FamiliesAsked, AreThoseOfTheStepsOfAnOperation) {
  const Case linear = ToCodes(Layer(kU8, Ones(33), kS8, Ones(33)), kU8);
  const Case add = Elements(Op::kAdd, kU8, Ones(300), Ones(300));
  const Case dynamic = Dynamic(Reals(33, 1), Ones(33));
  // Long windows of many pixels and channels are no sums of products either. Nothing is computed.
  std::vector<Case> others{add};
  for (const DType dtype : {kU8, kS8}) {
    Case pool;
    pool.op = Op::kAvgPool;
    pool.M = pool.N = 300;
    pool.K = 70001;
    pool.x = pool.w = Tensor(dtype, {0});
    pool.window = {.batch = 1, .in_h = 2, .in_w = 3, .in_c = 1};
    pool.window.pad_left = pool.window.pad_right = pool.window.dilation_w = 2;
    others.push_back(pool);
    pool.K = 65536;
    others.push_back(pool);
  }
  for (const Cause& cause : CausesOfFamilies()) {
    const bool of_sums =
        (cause.stage == CauseStage::kTail || cause.stage == CauseStage::kAccumulate ||
         cause.stage == CauseStage::kOffset || cause.stage == CauseStage::kGeometry);
    for (const Case& c : others) EXPECT_FALSE(of_sums && cause.applies(c)) << cause.name;
  }
  for (const char* const name : {"floor", "ceiling", "half down", "half to the bound",
                                 "int16 that wraps", "multiplier cut to 8 bits",
                                 "multiplier rounded to 8 bits", "rounded twice in fixed point"}) {
    const Cause& cause = CauseNamed(name);
    EXPECT_TRUE(cause.applies(linear)) << name;
    EXPECT_TRUE(cause.applies(add)) << name;
    EXPECT_FALSE(cause.applies(dynamic)) << name;
    EXPECT_FALSE(cause.applies(ToFloats(linear))) << name;
    EXPECT_FALSE(cause.applies(Layer(kU8, {1}, kS8, {1}))) << name;
    EXPECT_FALSE(cause.applies(Quantized({1}))) << name;
    EXPECT_FALSE(cause.applies(Elements(Op::kTable, kS8, {1}))) << name;
    EXPECT_FALSE(cause.applies(Elements(Op::kSoftmax, kS8, {1}))) << name;
    Case mode = linear;
    mode.requant = Requant::kFloat32;
    EXPECT_FALSE(cause.applies(mode)) << name;
  }
  for (const char* const name :
       {"K*zx*zw ignored", "column-sum term twice", "float32 sum, in 8 lanes",
        "last block of 32 alone", "weights one code on"}) {
    EXPECT_TRUE(CauseNamed(name).applies(linear)) << name;
    EXPECT_TRUE(CauseNamed(name).applies(dynamic)) << name;
  }
}

// ---- Names, sentences and stages.

// A report names a cause, and reads the name back.
TEST(FamiliesSay, EachNameOnce) {
  std::vector<std::string> names;
  for (const Cause& cause : AllCauses()) names.push_back(cause.name);
  for (const Cause& place : AllPlaces()) names.push_back(place.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  EXPECT_EQ(twice, names.end()) << *twice;
}

TEST(FamiliesSay, WhatTheSubjectDoes) {
  const auto sentence = [](std::string_view name) {
    return CauseNamed(name).SentenceFor(Op::kLinear);
  };
  EXPECT_EQ(sentence("multiplier cut to 8 bits"), "cuts the multiplier to 8 bits");
  EXPECT_EQ(sentence("multiplier rounded to 8 bits"), "rounds the multiplier to 8 bits");
  EXPECT_EQ(sentence("bias of channel n % 1"), "takes the bias of channel n from channel 0");
  EXPECT_EQ(sentence("bias of channel n % 4"), "takes the bias of channel n from channel n % 4");
  EXPECT_EQ(sentence("row sum in 8 int16 lanes that wrap, emptied every 257 additions"),
            "adds the codes of the input in 8 int16 lanes that wrap, emptied every 257 additions, "
            "for the zero point of the weights");
  EXPECT_EQ(sentence("column sum in 8 int16 lanes that wrap"),
            "adds the weights in 8 int16 lanes that wrap, for the zero point of the input");
  const std::string stride =
      "reads the last, shorter block of a panel of 4 rows by 32 terms with the stride of ";
  EXPECT_EQ(sentence("stride of the last block, panels of 4 by 32"), stride + "a whole block");
  EXPECT_EQ(sentence("stride of the last block, panels of 4 by 32, padded"),
            stride + "a short block");
}

// Causes of one stage are never tried together, so a wrong stage hides a pair of faults.
TEST(FamiliesSay, TheStageInWhichTheyAct) {
  EXPECT_EQ(CauseNamed("first block of 32 alone").stage, CauseStage::kTail);
  EXPECT_EQ(CauseNamed("last block of 32 alone").stage, CauseStage::kAccumulate);
  EXPECT_EQ(CauseNamed("float32 sum, in 4 lanes").stage, CauseStage::kAccumulate);
  EXPECT_EQ(CauseNamed("int16 that wraps").stage, CauseStage::kClamp);
  EXPECT_EQ(CauseNamed("half down").stage, CauseStage::kRound);
}

// ---- Places.

// The rows, or the columns, in which a place lets a cause act, of `size` of them.
std::optional<Values> Within(std::string_view name, bool of_columns, int64_t size) {
  Case c = of_columns ? Layer(kU8, {1}, kS8, Ones(size)) : Layer(kU8, Ones(size), kS8, {1}, size);
  const auto place = std::ranges::find(AllPlaces(), name, &Cause::name);
  EXPECT_NE(place, AllPlaces().end()) << name;
  if (place == AllPlaces().end()) return std::nullopt;
  const auto is_at = PlaceIn(c, *place);
  if (!is_at) return std::nullopt;
  Values within;
  for (int64_t i = 0; i < size; ++i) {
    if (of_columns ? is_at(0, i) : is_at(i, 0)) within.push_back(static_cast<int32_t>(i));
  }
  return within;
}

TEST(Places, AreColumnsOrRows) {
  for (const bool of_columns : {true, false}) {
    const std::string one = of_columns ? "column" : "row", all = of_columns ? "N" : "M";
    for (const int32_t from : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
      const std::string name = fmt::format("only from {} {} on", one, from);
      EXPECT_EQ(Within(name, of_columns, from), std::nullopt);
      EXPECT_EQ(Within(name, of_columns, from + 3), From(from, 3));
      EXPECT_EQ(Within(name, !of_columns, from + 3), std::nullopt);
    }
    for (const int32_t lanes : {4, 8, 16, 32, 64}) {
      const std::string last = fmt::format("only in the last {} % {} {}s", all, lanes, one);
      const std::string before = fmt::format("only before the last {} % {} {}s", all, lanes, one);
      EXPECT_EQ(Within(last, of_columns, 2 * lanes), std::nullopt);
      EXPECT_EQ(Within(last, of_columns, 2 * lanes + 3), From(2 * lanes, 3));
      EXPECT_EQ(Within(last, of_columns, 3), From(0, 3));
      EXPECT_EQ(Within(before, of_columns, 2 * lanes), std::nullopt);
      EXPECT_EQ(Within(before, of_columns, 2 * lanes + 3), From(0, 2 * lanes));
      EXPECT_EQ(Within(before, of_columns, 3), std::nullopt);
      EXPECT_EQ(Within(before, of_columns, lanes + 1), From(0, lanes));
    }
    for (const int32_t lanes : {2, 4, 8}) {
      for (int32_t lane = 0; lane < lanes; ++lane) {
        const std::string name =
            fmt::format("only in {}s whose number modulo {} is {}", one, lanes, lane);
        EXPECT_EQ(Within(name, of_columns, lanes), std::nullopt);
        EXPECT_EQ(Within(name, of_columns, 2 * lanes), (Values{lane, lanes + lane}));
      }
      const std::string none =
          fmt::format("only in {}s whose number modulo {} is {}", one, lanes, lanes);
      EXPECT_EQ(std::ranges::count(AllPlaces(), none, &Cause::name), 0);
    }
    const std::string last = fmt::format("only in the last {}", one);
    EXPECT_EQ(Within(last, of_columns, 1), std::nullopt);
    EXPECT_EQ(Within(last, of_columns, 2), Values{1});
    EXPECT_EQ(Within(last, of_columns, 5), Values{4});
  }
}

}  // namespace
}  // namespace qualm::triage
