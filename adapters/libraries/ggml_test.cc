// SPDX-License-Identifier: Apache-2.0
// Which cases the formats of ggml have, and what a drawn case becomes. Needs nothing of ggml.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "adapters/libraries/libraries.h"
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

TEST(GgmlFormats, DrawnCasesAreBroughtAmongTheirCodes) {
  Rng rng(1);
  for (const WeightFormat* format : kNamedFormats) {
    std::set<int32_t> met;
    for (int i = 0; i < 20; ++i) {
      const Case drawn = DrawnCase(DType::kS8, 0, rng);
      ASSERT_EQ(Validate(drawn), "");
      const std::string name(format->name);
      EXPECT_NE(WhyNotInGgml(format, drawn).find(name + " has "), std::string::npos);
      const Case c = InsideGgml(*format, drawn);
      EXPECT_EQ(Validate(c), "");
      EXPECT_EQ(WhyNotInGgml(format, c), "");
      EXPECT_EQ(InsideGgml(*format, c), c) << "a case of the format stays as it is";
      EXPECT_EQ(c.x, drawn.x);
      for (int64_t k = 0; k < c.w.size(); ++k) met.insert(c.w.IntAt(k));
    }
    EXPECT_EQ(met, std::set<int32_t>(format->values.begin(), format->values.end()));
  }
}

TEST(GgmlFormats, NumbersThatAFormatHasStay) {
  Rng rng(2);
  const Case nibbles = DrawnCase(DType::kU4, 8, rng);
  const Case c = InsideGgml(kQ5_0, nibbles);
  EXPECT_EQ(c.w.dtype(), DType::kS8);
  for (int64_t i = 0; i < c.w.size(); ++i) EXPECT_EQ(c.w.IntAt(i), nibbles.w.IntAt(i) - 8);
  // 0.75 is no power of two.
  EXPECT_EQ(c.w_q.scale, nibbles.w_q.scale);
  EXPECT_EQ(InsideGgml(kMxfp4, nibbles).w_q.scale, std::vector(6, 0.5f));
}

TEST(GgmlFormats, SaysWhatItCannotStore) {
  Rng rng(3);
  const Case nibbles = DrawnCase(DType::kU4, 8, rng);
  Case c = InsideGgml(kMxfp4, nibbles);
  const auto why = [&](const WeightFormat* format) { return WhyNotInGgml(format, c); };
  for (const float scale : {0x1p-128f, 0x1p126f}) {
    c.w_q.scale[1] = scale;
    EXPECT_EQ(why(&kMxfp4), "");
    EXPECT_EQ(why(&kQ5_0), "ggml's scales are f16");
  }
  for (const float scale : {0x1p-129f, 0x1p127f, 0.75f}) {
    c.w_q.scale[1] = scale;
    EXPECT_EQ(why(&kMxfp4), "ggml's scales of mxfp4 are powers of two from 2^-128 to 2^126");
  }
  c.w.SetInt(3, 5);
  EXPECT_EQ(why(&kMxfp4), "ggml's mxfp4 has 16 codes of s8, from -12 to 12");
  c.w_q.zero_point[2] = 1;
  EXPECT_EQ(why(nullptr), "ggml's zero point of q8_0 is 0");
  c = nibbles;
  EXPECT_EQ(why(nullptr), "");
  EXPECT_EQ(why(&kIq4Nl), "ggml's iq4_nl is asked with s8 weights");
  c.x_block = 16;
  EXPECT_EQ(why(&kIq4Nl), "ggml multiplies blocks of 32 by blocks of 32");
}

}  // namespace
}  // namespace qualm
