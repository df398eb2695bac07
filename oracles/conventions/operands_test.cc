// SPDX-License-Identifier: Apache-2.0
// add and mul of the conventions, worked out by hand: where each differs, on the smallest case that
// shows the difference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/rng.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/test_util.h"
#include "oracles/exact/exact.h"

namespace qualm {
namespace {

// Unit scales, zero points 0.
Case Two(Op op, const std::vector<int32_t>& a, const std::vector<int32_t>& b,
         DType dtype = DType::kU8) {
  Case c;
  c.op = op;
  c.M = 1;
  c.N = static_cast<int64_t>(a.size());
  c.x = Tensor(dtype, {1, c.N});
  c.w = Tensor(dtype, {1, c.N});
  for (int64_t i = 0; i < c.N; ++i) {
    c.x.SetInt(i, a[static_cast<size_t>(i)]);
    c.w.SetInt(i, b[static_cast<size_t>(i)]);
  }
  c.out_dtype = dtype;
  c.out_min = RangeOf(dtype).min;
  c.out_max = RangeOf(dtype).max;
  EXPECT_EQ(Validate(c), "");
  return c;
}

int32_t First(std::string_view convention, const Case& c) {
  EXPECT_EQ(Get(convention).cannot_run(c), "") << convention;
  return Get(convention).run(c).y.IntAt(0);
}

TEST(OperandConventionsTest, TiesOfAdd) {
  // 5/2 with zero point 1.
  Case c = Two(Op::kAdd, {5}, {0});
  c.out_q = {{2.0f}, {1}};
  EXPECT_EQ(First("aten@default", c), 3);      // rne(2.5) + 1
  EXPECT_EQ(First("qnnpack", c), 4);           // away from zero
  EXPECT_EQ(First("xnnpack@fp32", c), 4);      // up
  EXPECT_EQ(First("onnxruntime@vnni", c), 4);  // rne(3.5): the zero point is inside
  c.w.SetInt(0, 2);                            // 7/2
  EXPECT_EQ(First("onnxruntime@sse41", c), 4);
  EXPECT_EQ(First("aten@default", c), 5);
  // -3/2 tells rounding away from zero and rounding up apart.
  c = Two(Op::kAdd, {0}, {0});
  c.x_q.zero_point = {3};
  c.out_q = {{2.0f}, {10}};
  EXPECT_EQ(First("aten@default", c), 8);
  EXPECT_EQ(First("qnnpack", c), 8);
  EXPECT_EQ(First("xnnpack@rndnu", c), 9);
  c = Two(Op::kAdd, {-3}, {0}, DType::kS8);
  c.out_q.scale = {2.0f};
  EXPECT_EQ(First("tflite@double", c), -2);
  EXPECT_EQ(First("tflite@single", c), -1);
}

// The same pair twice over: the body of the vector loop fuses, its tail does not.
TEST(OperandConventionsTest, AtenAddsBodyAndTailDifferently) {
  const auto distinct = [](const std::string& name, int64_t count, int64_t* first_tail) {
    Rng rng(3);
    for (int round = 0; round < 4000; ++round) {
      Case c = Two(Op::kAdd, std::vector<int32_t>(static_cast<size_t>(count), 0),
                   std::vector<int32_t>(static_cast<size_t>(count), 0));
      const auto a = static_cast<int32_t>(rng.Below(256)), b = static_cast<int32_t>(rng.Below(256));
      for (int64_t i = 0; i < count; ++i) {
        c.x.SetInt(i, a);
        c.w.SetInt(i, b);
      }
      // Scales of half an output step, so that ties are frequent.
      c.x_q = {{0.0123f}, {static_cast<int32_t>(rng.Below(256))}};
      c.w_q = {{0.0123f}, {static_cast<int32_t>(rng.Below(256))}};
      c.out_q = {{0.0246f}, {128}};
      const Tensor y = Get(name).run(c).y;
      for (int64_t i = 1; i < count; ++i) {
        if (y.IntAt(i) == y.IntAt(i - 1)) continue;
        *first_tail = i;
        return true;
      }
    }
    return false;
  };
  int64_t at = 0;
  EXPECT_TRUE(distinct("aten@avx2", 150, &at));
  EXPECT_EQ(at, 128);
  EXPECT_TRUE(distinct("aten@avx2", 127, &at));
  EXPECT_EQ(at, 64);
  EXPECT_TRUE(distinct("aten@avx512", 200, &at));
  EXPECT_EQ(at, 128);
  EXPECT_TRUE(distinct("aten@avx512+pt26", 127, &at));
  EXPECT_EQ(at, 64);
  EXPECT_FALSE(distinct("aten@avx512", 127, &at));
  EXPECT_FALSE(distinct("aten@default", 150, &at));
  EXPECT_FALSE(distinct("aten@aarch64", 150, &at));
}

TEST(OperandConventionsTest, RangesOfRatios) {
  const auto reason = [](std::string_view convention, float ratio) {
    Case c = Two(Op::kAdd, {1}, {1});
    c.x_q.scale = {ratio};
    return Get(convention).cannot_run(c);
  };
  EXPECT_EQ(reason("qnnpack", 0x1p-14f), "");
  EXPECT_NE(reason("qnnpack", 0x1p-15f), "");
  EXPECT_EQ(reason("xnnpack@fp32", 0x1p-10f), "");
  EXPECT_NE(reason("xnnpack@fp32", 0x1p-11f), "");
  EXPECT_NE(reason("xnnpack@fp32", 256.0f), "");
  EXPECT_EQ(reason("aten@default", 256.0f), "");
  Case both = Two(Op::kAdd, {1}, {1});
  both.out_q.scale = {0x1p+10f};  // a shift by 31
  EXPECT_EQ(Get("qnnpack").cannot_run(both), "");
  both.out_q.scale = {0x1p+11f};
  EXPECT_EQ(Get("qnnpack").cannot_run(both),
            "one operand's scale over that of the output must be at least 2^-10");
  Case s8 = Two(Op::kAdd, {1}, {1}, DType::kS8);
  EXPECT_EQ(Get("qnnpack").cannot_run(s8), "operands and output must be u8");
  EXPECT_EQ(Get("tflite@double").cannot_run(s8), "");
  s8.out_q.scale = {0x1p-30f};
  EXPECT_EQ(Get("tflite@double").cannot_run(s8), "the multiplier is too large");
  EXPECT_EQ(Get("fbgemm@avx2").cannot_run(s8), "this convention has no add");
  EXPECT_EQ(Get("onednn2@vnni").cannot_run(both), "");
  both.w_q.zero_point = {1};
  EXPECT_EQ(Get("onednn2@vnni").cannot_run(both), "a binary primitive has no zero points");
}

// oneDNN's attributes scale each operand and round after each step.
TEST(OperandConventionsTest, OneDnnScalesEachOperand) {
  Case c = Two(Op::kAdd, {3, 250, 200}, {2, 100, 0});
  c.out_q = {{2.0f}, {0}};
  // 5/2 to even; 175; 100.
  for (const char* convention : {"onednn2@sse41", "onednn2@avx2", "onednn2@amx"}) {
    const Tensor y = Get(convention).run(c).y;
    EXPECT_EQ(y.IntAt(0), 2) << convention;
    EXPECT_EQ(y.IntAt(1), 175) << convention;
    EXPECT_EQ(y.IntAt(2), 100) << convention;
  }
  // 3*fl(1/3) + 0 rounds to 1; 49/3*3 = 49 either way, but fl(49*fl(1/3)) = 16.333334.
  c = Two(Op::kMul, {3, 49}, {1, 3});
  c.out_q = {{3.0f}, {0}};
  const Tensor y = Get("onednn2@avx2").run(c).y;
  EXPECT_EQ(y.IntAt(0), 1);
  EXPECT_EQ(y.IntAt(1), 49);
}

TEST(OperandConventionsTest, OneDnnReordersAddTheZeroPointInFloat32) {
  Case c;
  c.op = Op::kQuantize;
  c.M = 1;
  c.N = 4;
  c.x = Tensor::Of<float>({1, 4}, std::vector<float>{2.5f, 3.5f, -INFINITY, NAN});
  c.out_q = {{1.0f}, {1}};
  Tensor y = Get("onednn2@avx2").run(c).y;
  EXPECT_EQ(y.IntAt(0), 4);  // 3.5 to even; 2 + 1 if rounded first
  EXPECT_EQ(y.IntAt(1), 4);  // 4.5
  EXPECT_EQ(y.IntAt(2), 0);
  EXPECT_EQ(y.IntAt(3), 0);  // maxps takes the bound
  c.out_dtype = DType::kS8;
  c.out_min = -128;
  c.out_max = 127;
  y = Get("onednn2@avx2").run(c).y;
  EXPECT_EQ(y.IntAt(2), -128);
  EXPECT_EQ(y.IntAt(3), 127);  // minps does
  c.per_channel = true;
  c.out_q = {{1, 1, 1, 1}, {0, 0, 0, 1}};
  EXPECT_EQ(Get("onednn2@avx2").cannot_run(c), "a reorder has one zero point for all channels");

  Case back;
  back.op = Op::kDequantize;
  back.M = back.N = 1;
  back.x = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{1});
  back.x_q = {{0.5f}, {16777217}};  // rounds to 2^24, and 1 - 2^24 is exact
  back.out_dtype = DType::kF32;
  back.out_min = INT32_MIN;
  back.out_max = INT32_MAX;
  EXPECT_EQ(Get("onednn2@avx2").run(back).y.FloatAt(0), -8388607.5f);
}

TEST(OperandConventionsTest, Multiplications) {
  // 5*1/2 with zero point 1.
  Case c = Two(Op::kMul, {5}, {1});
  c.out_q = {{2.0f}, {1}};
  EXPECT_EQ(First("aten@default", c), 3);
  EXPECT_EQ(First("aten@aarch64", c), 3);
  EXPECT_EQ(First("qnnpack", c), 3);
  EXPECT_EQ(First("xnnpack@fp32", c), 3);
  EXPECT_EQ(First("xnnpack@rndnu", c), 4);
  EXPECT_EQ(First("onnxruntime@avx2", c), 4);  // rne(3.5)
  Case s8 = Two(Op::kMul, {-3}, {1}, DType::kS8);
  s8.out_q.scale = {2.0f};
  EXPECT_EQ(First("tflite@double", s8), -1);  // the doubling high half: negative ties go up
  EXPECT_EQ(First("tflite@single", s8), -1);
  c.x_q.scale = {0x1p+20f};
  EXPECT_EQ(Get("aten@default").cannot_run(c), "a product must stay below 2^31 output units");
}

TEST(OperandConventionsTest, ReluKeepsRealZero) {
  Case c = Two(Op::kAdd, {0, 9}, {0, 9});
  c.x_q.zero_point = c.w_q.zero_point = {4};
  c.out_q.zero_point = {100};
  c.relu = true;
  for (const char* name :
       {"aten@default", "aten@avx2", "aten@aarch64", "qnnpack", "xnnpack@fp32", "xnnpack@rndnu"}) {
    const Tensor y = Get(name).run(c).y;
    EXPECT_EQ(y.IntAt(0), 100) << name;
    EXPECT_EQ(y.IntAt(1), 110) << name;
  }
  EXPECT_EQ(Get("onnxruntime@vnni").cannot_run(c), "this operator has no relu");
}

// tflite@double rounds twice, and V34 does not round to the nearest code.
bool RoundsOnceToNearest(const Convention& convention) {
  const bool twice = convention.name.starts_with("tflite@") && convention.name != "tflite@single";
  return !twice && std::ranges::find(convention.variations, "V34") == convention.variations.end();
}

// With power-of-two scales nothing rounds before the end: away from ties every convention must give
// the exact answer.
TEST(OperandConventionsTest, ConventionsAgreeWithTheExactOracle) {
  Rng rng(5);
  std::map<std::string, int> compared;
  for (int round = 0; round < 300; ++round) {
    const Op op = rng.Chance(1, 2) ? Op::kAdd : Op::kMul;
    const DType dtype = rng.Chance(1, 2) ? DType::kU8 : DType::kS8;
    const CodeRange codes = RangeOf(dtype);
    const auto code = [&] { return static_cast<int32_t>(rng.Between(codes.min, codes.max)); };
    std::vector<int32_t> a(70), b(70);
    for (int32_t& v : a) v = code();
    for (int32_t& v : b) v = code();
    Case c = Two(op, a, b, dtype);
    c.x_q = {{0.5f}, {code()}};
    c.w_q = {{rng.Chance(1, 2) ? 0.5f : 1.0f}, {code()}};
    c.out_q = {{op == Op::kAdd ? 2.0f : 32.0f}, {code()}};
    const Tensor exact = exact::Evaluate(c);
    // In halves of the output step: an odd number of halves is a tie.
    const auto is_tie = [&](int64_t i) {
      const double x = 0.5 * (a[static_cast<size_t>(i)] - c.x_q.zero_point[0]);
      const double w =
          static_cast<double>(c.w_q.scale[0]) * (b[static_cast<size_t>(i)] - c.w_q.zero_point[0]);
      const double steps = (op == Op::kAdd ? x + w : x * w) / static_cast<double>(c.out_q.scale[0]);
      return std::fabs(steps - std::floor(steps)) == 0.5;
    };
    for (const Convention& convention : AllConventions()) {
      if (!RoundsOnceToNearest(convention) || !convention.cannot_run(c).empty()) continue;
      const Tensor y = convention.run(c).y;
      for (int64_t i = 0; i < c.N; ++i) {
        if (!is_tie(i)) {
          ASSERT_EQ(y.IntAt(i), exact.IntAt(i)) << convention.name << " " << i;
        }
      }
      ++compared[convention.name + " " + std::string(Name(op))];
    }
  }
  // Every convention that has the operation was asked, but for oneDNN, which has no zero points.
  for (const Convention& convention : AllConventions()) {
    for (const Op op : {Op::kAdd, Op::kMul}) {
      const bool has = Has(convention, op);
      const bool asked = compared.contains(convention.name + " " + std::string(Name(op)));
      const bool takes = RoundsOnceToNearest(convention) && !convention.name.starts_with("onednn");
      EXPECT_EQ(asked, has && takes) << convention.name;
    }
  }
}

}  // namespace
}  // namespace qualm
