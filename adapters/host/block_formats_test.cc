// SPDX-License-Identifier: Apache-2.0
// Which cases the formats of ggml have, and what a drawn case becomes. Needs nothing of ggml.
#include "adapters/host/block_formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/host/element_formats.h"
#include "core/float_format.h"
#include "core/rng.h"

namespace qualm {
namespace {

// Two rows by two columns of three blocks, the last of them short.
Case DrawnCase(DType weights, int32_t zero_point, Rng& rng) {
  Case c;
  c.op = Op::kLinear;
  c.M = c.N = 2;
  c.K = 70;
  c.x = Tensor(DType::kS8, {2, 70});
  c.w = Tensor(weights, {2, 70});
  const CodeRange codes = RangeOf(weights);
  for (int64_t i = 0; i < c.w.size(); ++i)
    c.w.SetInt(i, static_cast<int32_t>(rng.Between(codes.min, codes.max)));
  c.per_channel = true;
  c.w_block = c.x_block = 32;
  c.x_q = {std::vector(6, 0.5f), std::vector(6, 0)};
  c.w_q = {std::vector(6, 0.75f), std::vector(6, zero_point)};
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  return c;
}

std::set<int32_t> CodesOf(const WeightFormat& format) {
  std::set<int32_t> codes(format.values.begin(), format.values.end());
  if (codes.empty()) {
    for (int32_t code = 0; code <= RangeOf(format.dtype).max; ++code) codes.insert(code);
  }
  return codes;
}

TEST(BlockFormats, DrawnCasesAreBroughtAmongTheirCodes) {
  Rng rng(1);
  for (const WeightFormat* format : kNamedFormats) {
    SCOPED_TRACE(format->name);
    std::set<int32_t> met, zero_points;
    std::set<float> ratios;  // of scales that are neighbours
    int64_t longest = 0;
    for (int i = 0; i < 40; ++i) {
      const Case drawn = DrawnCase(DType::kS8, 0, rng);
      ASSERT_EQ(Validate(drawn), "");
      ASSERT_NE(WhyNotInFormat(*format, drawn), "");
      const Case c = InsideFormat(*format, drawn);
      EXPECT_EQ(Validate(c), "");
      EXPECT_EQ(WhyNotInFormat(*format, c), "");
      EXPECT_EQ(InsideFormat(*format, c), c) << "a case of the format stays as it is";
      EXPECT_TRUE(format->x != BlockActivations::kQ8_0 || format->blocks() > 1 || c.x == drawn.x);
      for (int64_t k = 0; k < c.w.size(); ++k) met.insert(c.w.IntAt(k));
      zero_points.insert(c.w_q.zero_point.begin(), c.w_q.zero_point.end());
      if (RowBlocks(c) > 1) ratios.insert(c.w_q.scale[0] / c.w_q.scale[1]);
      longest = std::max(longest, c.K);
    }
    EXPECT_EQ(met, CodesOf(*format));
    EXPECT_EQ(zero_points.size() > 4, format->minima);
    EXPECT_EQ(ratios.size() > 4, format->most_factor > 1);
    EXPECT_EQ(longest > 256, format->super_block > 64);
  }
}

TEST(BlockFormats, ScalesAreMultiplesOfOneHalf) {
  const auto times = [](const std::vector<double>& numbers, int32_t most) {
    return MultiplesOf(numbers, most).value_or(Multiples{-1, {}});
  };
  EXPECT_EQ(times({0.375, 0.125, 0}, 31).unit, 0x1p-6f) << "24 and 8: 30 would need 0.0125";
  EXPECT_EQ(times({0.375, 0.125, 0}, 31).factors, (std::vector{24, 8, 0}));
  EXPECT_EQ(times({0, 0}, 31).factors, (std::vector{0, 0}));
  EXPECT_EQ(times({2039 * 0x1p-24}, 31).unit, 2039 * 0x1p-24f) << "the least f16 is 2^-24";
  EXPECT_EQ(times({2053 * 3}, 31).unit, -1) << "2053 has 12 bits";
  EXPECT_EQ(times({683 * 3}, 31).unit, 683 * 0x1p-3f) << "3 times 8";
  EXPECT_EQ(times({0x1p16}, 1).unit, -1) << "the largest f16 is less";
  EXPECT_EQ(times({0x1p16}, 2).factors, std::vector{2});
  EXPECT_EQ(times({63, 1}, 63).factors, (std::vector{63, 1}));
  EXPECT_EQ(times({64, 1}, 63).unit, -1);
  EXPECT_EQ(times({1, 0x1p-80}, 63).unit, -1);
  EXPECT_EQ(times({1, 1 + 0x1p-20}, 63).unit, -1);
}

TEST(BlockFormats, OfSuperBlocksSaysWhatItCannotStore) {
  Rng rng(4);
  Case c = InsideFormat(kQ4K, DrawnCase(DType::kU4, 8, rng));
  c.w_q = {std::vector(c.w_q.scale.size(), 1.0f), std::vector(c.w_q.scale.size(), 63)};
  c.x_q.scale = std::vector(c.x_q.scale.size(), 0x1.234568p-10f);
  const auto why = [&](const WeightFormat& format) { return WhyNotInFormat(format, c); };
  EXPECT_EQ(why(kQ4K), "");
  c.w_q.scale[0] = 63;
  EXPECT_EQ(why(kQ4K), "") << "minima are 63 times 63 and 63";
  c.w_q.zero_point[0] = 64;
  EXPECT_NE(why(kQ4K).find("up to 63 of each 256 weights"), std::string::npos);
  c.w_q.zero_point[0] = 1;
  EXPECT_EQ(why(kQ4K), "");
  c.w_q.zero_point[0] = -1;
  EXPECT_NE(why(kQ4K).find("up to 63 of each 256 weights"), std::string::npos);
  c.w_q.zero_point[0] = 0;
  c.x_q.scale.front() = 0x1p-9f;
  EXPECT_EQ(why(kQ4K), "ggml's q8_K has one scale for 256 codes");
  c.x_q.scale = std::vector(c.x_q.scale.size(), 0x1p-101f);
  EXPECT_EQ(why(kQ4K), "ggml's q8_K is asked with scales from 2^-100");
  EXPECT_EQ(why(kQ4_1), "ggml's scales of x are f16");
  c = InsideFormat(kQ3K, DrawnCase(DType::kS8, 0, rng));
  c.w.SetInt(0, 4);
  c.w.SetInt(15, 3);
  EXPECT_EQ(why(kQ3K), "");
  c.w.SetInt(15, -4);
  EXPECT_EQ(why(kQ3K), "ggml's q3_k has no block with -4 and 4");
  c.w.SetInt(15, 5);
  EXPECT_EQ(why(kQ3K), "ggml's q3_k has 9 codes of s8, from -4 to 4");
  EXPECT_EQ(why(kQ4K), "ggml multiplies blocks of 32 by blocks of 32");
  c = InsideFormat(kQ4_1, DrawnCase(DType::kU4, 8, rng));
  for (int64_t k = 0; k < 32; ++k) c.x.SetInt(k, 127);
  c.x_q.scale.front() = 0x1.44p0f;
  EXPECT_EQ(why(kQ4_1), "ggml's q8_1 has a scale times the sum of the codes that an f16 holds");
}

TEST(BlockFormats, NumbersThatAFormatHasStay) {
  Rng rng(2);
  const Case nibbles = DrawnCase(DType::kU4, 8, rng);
  const Case c = InsideFormat(kQ5_0, nibbles);
  EXPECT_EQ(c.w.dtype(), DType::kS8);
  for (int64_t i = 0; i < c.w.size(); ++i) EXPECT_EQ(c.w.IntAt(i), nibbles.w.IntAt(i) - 8);
  // 0.75 is no power of two.
  EXPECT_EQ(c.w_q.scale, nibbles.w_q.scale);
  EXPECT_EQ(InsideFormat(kMxfp4, nibbles).w_q.scale, std::vector(6, 0.5f));
}

TEST(BlockFormats, SaysWhatItCannotStore) {
  Rng rng(3);
  const Case nibbles = DrawnCase(DType::kU4, 8, rng);
  Case c = InsideFormat(kMxfp4, nibbles);
  const auto why = [&](const WeightFormat& format) { return WhyNotInFormat(format, c); };
  for (const float scale : {0x1p-128f, 0x1p126f}) {
    c.w_q.scale[1] = scale;
    EXPECT_EQ(why(kMxfp4), "");
    EXPECT_EQ(why(kQ5_0), "ggml's scales are f16");
  }
  for (const float scale : {0x1p-129f, 0x1p127f, 0.75f}) {
    c.w_q.scale[1] = scale;
    EXPECT_EQ(why(kMxfp4), "ggml's scales of mxfp4 are powers of two from 2^-128 to 2^126");
  }
  c.w.SetInt(3, 5);
  EXPECT_EQ(why(kMxfp4), "ggml's mxfp4 has 16 codes of s8, from -12 to 12");
  c.w_q.zero_point[2] = 1;
  EXPECT_EQ(why(kQ8_0), "ggml's zero point of q8_0 is 0");
  c = nibbles;
  EXPECT_EQ(why(kQ4_0), "");
  EXPECT_EQ(why(kIq4Nl), "ggml's iq4_nl is asked with s8 weights");
  c.x_block = 16;
  EXPECT_EQ(why(kIq4Nl), "ggml multiplies blocks of 32 by blocks of 32");
}

// The structs of ggml-common.h by hand.
TEST(BlockFormats, RowsLieAsLlamaCppHasThem) {
  Rng rng(5);
  Case c = DrawnCase(DType::kU4, 8, rng);
  const PackedRows w = PackedWeights(kQ4_0, c), x = PackedActivations(kQ4_0, c);
  ASSERT_EQ(w.row_bytes, 3 * (2 + 16));
  ASSERT_EQ(x.row_bytes, 3 * (2 + 32));
  const auto code = [&](int64_t k) { return k < 70 ? c.w.IntAt(70 + k) : 8; };
  for (int64_t block = 0; block < 3; ++block) {
    const uint8_t* const of_w = w.bytes.data() + w.row_bytes + 18 * block;
    EXPECT_EQ(of_w[0] | of_w[1] << 8, 0x3A00) << "0.75";
    for (int64_t i = 0; i < 16; ++i)
      EXPECT_EQ(of_w[2 + i], code(32 * block + i) | code(32 * block + i + 16) << 4);
    EXPECT_EQ(x.bytes[static_cast<size_t>(34 * block) + 1], 0x38) << "0.5";
  }
  c = InsideFormat(kQ4K, DrawnCase(DType::kU4, 8, rng));
  const PackedRows k = PackedWeights(kQ4K, c);
  EXPECT_EQ(k.row_bytes, PackedDepth(kQ4K, c.K) / 256 * (2 + 2 + 12 + 128));
  EXPECT_EQ(PackedActivations(kQ4K, c).row_bytes, PackedDepth(kQ4K, c.K) / 256 * (4 + 256 + 32));
  // get_scale_min_k4 of the first four blocks: the low six bits of bytes 4 and 8.
  const double unit = c.w_q.scale[0] / (k.bytes[4] & 63);
  for (size_t i = 1; i < std::min<size_t>(4, static_cast<size_t>(RowBlocks(c))); ++i)
    EXPECT_EQ(c.w_q.scale[i], unit * (k.bytes[4 + i] & 63));
}

// Every code at every place comes back from the bytes, as ggml reads them.
TEST(BlockFormats, OfFewBitsLieAsLlamaCppHasThem) {
  using Read = int32_t (*)(const uint8_t* block, int64_t i);
  struct Row {
    const WeightFormat* format;
    int64_t bytes;
    Read code;
  };
  static constexpr std::array<int, 5> kPowers{1, 3, 9, 27, 81};
  const Row rows[] = {
      {&kIq4Xs, 136,
       [](const uint8_t* b, int64_t i) -> int32_t {
         return kValuesOfIq4Nl.at(b[8 + i / 32 * 16 + i % 16] >> (i % 32 / 16 * 4) & 15);
       }},
      {&kTq1_0, 54,
       [](const uint8_t* b, int64_t i) {
         const int64_t at = i < 160 ? i % 32 : i < 240 ? 32 + (i - 160) % 16 : 48 + (i - 240) % 4;
         const int64_t digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
         const auto shifted = static_cast<uint8_t>(b[at] * kPowers.at(static_cast<size_t>(digit)));
         return static_cast<int32_t>(shifted * 3 >> 8) - 1;
       }},
      {&kTq2_0, 66,
       [](const uint8_t* b, int64_t i) -> int32_t {
         return (b[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1;
       }},
      {&kQ1_0, 18,
       [](const uint8_t* b, int64_t i) -> int32_t { return (b[2 + i / 8] >> i % 8 & 1) * 2 - 1; }},
      {&kQ2_0, 18,
       [](const uint8_t* b, int64_t i) -> int32_t { return (b[2 + i / 4] >> i % 4 * 2 & 3) - 1; }},
      {&kNvfp4, 36, [](const uint8_t* b, int64_t i) -> int32_t {
         return kValuesOfMxfp4.at(b[4 + i / 16 * 8 + i % 8] >> (i % 16 / 8 * 4) & 15);
       }}};
  Rng rng(8);
  for (const auto& [format, bytes, code] : rows) {
    SCOPED_TRACE(format->name);
    Case c = InsideFormat(*format, DrawnCase(DType::kS8, 0, rng));
    c.M = c.N = 1;
    c.K = format->super_block;
    c.x = Tensor(DType::kS8, {1, c.K});
    const auto blocks = static_cast<size_t>(RowBlocks(c));
    c.w_q = c.x_q = {std::vector(blocks, 0.5f), std::vector(blocks, 0)};
    for (size_t first = 0; first < format->values.size(); ++first) {
      c.w = Tensor(DType::kS8, {1, c.K});
      for (int64_t i = 0; i < c.K; ++i)
        c.w.SetInt(i, format->values[(first + static_cast<size_t>(i)) % format->values.size()]);
      ASSERT_EQ(Validate(c), "");
      ASSERT_EQ(WhyNotInFormat(*format, c), "");
      const PackedRows row = PackedWeights(*format, c);
      ASSERT_EQ(row.row_bytes, bytes);
      for (int64_t i = 0; i < c.K; ++i) EXPECT_EQ(code(row.bytes.data(), i), c.w.IntAt(i)) << i;
    }
  }
  // iq4_xs: 16 * 0x1p-5 is 0.5 with an integer of 6 bits for each block, 32 more than it is.
  Case c = InsideFormat(kIq4Xs, DrawnCase(DType::kS8, 0, rng));
  const PackedRows row = PackedWeights(kIq4Xs, c);
  const auto factor = [&](size_t i) {
    return ((row.bytes[4 + i / 2] >> i % 2 * 4 & 15) | (row.bytes[2 + i / 4] >> i % 4 * 2 & 3)
                                                           << 4) -
           32;
  };
  for (size_t i = 1; i < std::min<size_t>(8, static_cast<size_t>(RowBlocks(c))); ++i)
    EXPECT_EQ(c.w_q.scale[i] * static_cast<float>(factor(0)),
              c.w_q.scale[0] * static_cast<float>(factor(i)));
  for (int code = 1; code <= kSmallCodes; ++code)
    EXPECT_EQ(SmallFactor(code) * 0x1p-10,
              DecodeFloat(DType::kF8E4M3FN, static_cast<uint32_t>(code)) / 2);
}

TEST(BlockFormats, OfASetTheOneThatStoresTheCase) {
  Rng rng(6);
  const FormatSet both = FormatsNamed(" q8_0  q4_0 ").value_or(0);
  EXPECT_EQ(both, 3u);
  EXPECT_EQ(FormatsNamed("q8_0,q4_0"), std::nullopt);
  EXPECT_EQ(FormatsNamed(""), 0u);
  for (const auto& [dtype, zero_point] : {std::pair{DType::kS8, 0}, {DType::kU4, 8}}) {
    const Case c = DrawnCase(dtype, zero_point, rng);
    EXPECT_EQ(WhyNotInFormats(both, c), "");
    EXPECT_EQ(FormatFor(both, c).dtype, dtype);
    EXPECT_EQ(InsideFormats(both, c), c);
  }
  const Case c = DrawnCase(DType::kS8, 3, rng);
  EXPECT_EQ(WhyNotInFormats(both, c), "ggml's zero point of q8_0 is 0");
  EXPECT_EQ(WhyNotInFormats(both, InsideFormats(both, c)), "");
  const Case nibbles = InsideFormat(kQ4_0, c);
  EXPECT_EQ(nibbles.w.dtype(), DType::kU4);
  EXPECT_EQ(WhyNotInFormat(kQ4_0, nibbles), "");
}

// Two rows of 40 elements: in blocks of 32 the second one of each is short.
Case DrawnElements(Op op, DType dtype, Rng& rng) {
  Tensor x(op == Op::kQuantize ? DType::kF32 : dtype, {2, 40});
  for (int64_t i = 0; i < x.size(); ++i) {
    if (op == Op::kQuantize)
      x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(rng.Between(-999, 999)) / 8;
    else
      x.SetInt(i, static_cast<int32_t>(rng.Between(RangeOf(dtype).min, RangeOf(dtype).max)));
  }
  Case c = CaseOver(op, std::move(x), op == Op::kQuantize ? dtype : DType::kF32);
  ChannelQParams(c).scale = {0.3f};
  return c;
}

TEST(BlockFormats, HaveElementsToo) {
  Rng rng(7);
  for (const WeightFormat* format : kWeightFormats) {
    SCOPED_TRACE(format->name);
    for (const Op op : {Op::kQuantize, Op::kDequantize}) {
      for (int i = 0; i < 30; ++i) {
        const Case drawn = DrawnElements(op, i % 2 == 0 ? DType::kS8 : DType::kU8, rng);
        ASSERT_NE(WhyNotInFormat(*format, drawn), "");
        const Case c = InsideFormat(*format, drawn);
        EXPECT_EQ(Validate(c), "");
        EXPECT_EQ(WhyNotInFormat(*format, c).empty(),
                  op == Op::kDequantize || QuantizerOf(*format).has_value());
        if (op == Op::kQuantize) continue;
        EXPECT_EQ(InsideFormat(*format, c), c);
        EXPECT_GT(PackedWeights(*format, CodesAsWeights(c)).row_bytes, 0);
      }
    }
  }
}

TEST(BlockFormats, ABlockHasTheScaleOfItsEnds) {
  const auto why = [](const WeightFormat& format, std::vector<float> x, DType dtype, float scale,
                      int32_t zero_point) {
    const auto n = static_cast<int64_t>(x.size());
    Case c = CaseOver(Op::kQuantize, Tensor::Of<float>({1, n}, x), dtype);
    c.x_block = 32;
    c.out_q = {{scale}, {zero_point}};
    if (dtype == DType::kU8) c.out_max = 31;
    EXPECT_EQ(Validate(c), "");
    return WhyNotInFormat(format, c);
  };
  EXPECT_EQ(why(kQ8_0, {1, -127}, DType::kS8, 1, 0), "");
  EXPECT_EQ(why(kQ8_0, {0, 0}, DType::kS8, 1, 0), "");
  EXPECT_EQ(why(kQ8_0, {1, -126}, DType::kS8, 1, 0), "ggml's q8_0 has the scale of its largest x");
  EXPECT_EQ(why(kQ8_0, {1, -127}, DType::kS8, 1, 1), "ggml's zero point of q8_0 is another one");
  EXPECT_EQ(why(kQ8_0, {1, -127}, DType::kU4, 1, 8), "ggml's q8_0 is asked for s8 codes");
  EXPECT_EQ(why(kQ4_0, {3, -4, 4}, DType::kU4, 0.5f, 8), "");
  EXPECT_EQ(why(kQ4_0, {3, 4, -4}, DType::kU4, 0.5f, 8),
            "ggml's q4_0 has the scale of its largest x");
  EXPECT_EQ(why(kQ5_0, {3, -16}, DType::kU8, 1, 16), "");
  EXPECT_EQ(why(kQ4_1, {-3, 12, 1}, DType::kU4, 1, 3), "");
  EXPECT_EQ(why(kQ4_1, {-3, -3}, DType::kU4, 1, 3), "");
  for (const std::vector<float>& x : {std::vector<float>{-3, 11}, {-2, 12}, {-2, -2}})
    EXPECT_EQ(why(kQ4_1, x, DType::kU4, 1, 3),
              "ggml's q4_1 has the scale and the minimum of its least and largest x");
  EXPECT_EQ(why(kQ4_1, {-8, 7}, DType::kU4, 1, 8),
            "ggml's q4_1 is asked with zero points from 0 to 30, but not 8");
  EXPECT_EQ(why(kQ5_1, {-3, 28}, DType::kU8, 1, 3), "");
  EXPECT_EQ(why(kQ8_0, {INFINITY}, DType::kS8, 1, 0), "ggml's q8_0 is asked with finite x");
  EXPECT_EQ(why(kQ8_0, {0}, DType::kS8, 0x1p17f, 0),
            "ggml's q8_0 is asked with scales from 2^-100 to 65504");
  EXPECT_EQ(why(kIq4Nl, {1}, DType::kS8, 1, 0), "ggml's iq4_nl is not asked to quantize");
}

}  // namespace
}  // namespace qualm
