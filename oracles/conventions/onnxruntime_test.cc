// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime's add, pools and tables by hand: where they round, and what they count. The expected
// codes were printed by the library (1.30), which tools/onnxruntime_test.cc asks again.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "oracles/conventions/convention.h"

namespace qualm {
namespace {

using Codes = std::vector<int32_t>;

const Convention& Get(std::string_view name = "onnxruntime@vnni") {
  const Convention* convention = FindConvention(name);
  QUALM_CHECK(convention != nullptr);
  return *convention;
}

Codes Answer(const Case& c, std::string_view name = "onnxruntime@vnni") {
  EXPECT_EQ(Validate(c), "");
  EXPECT_EQ(Get(name).cannot_run(c), "");
  const Tensor y = Get(name).run(c).y;
  Codes codes(static_cast<size_t>(y.size()));
  for (int64_t i = 0; i < y.size(); ++i) codes[static_cast<size_t>(i)] = y.IntAt(i);
  return codes;
}

Case Matrix(Op op, const Codes& x, DType dtype = DType::kU8) {
  Case c;
  c.op = op;
  c.M = 1;
  c.N = static_cast<int64_t>(x.size());
  c.x = Tensor(dtype, {1, c.N});
  for (int64_t i = 0; i < c.N; ++i) c.x.SetInt(i, x[static_cast<size_t>(i)]);
  c.out_dtype = dtype;
  c.out_min = RangeOf(dtype).min;
  c.out_max = RangeOf(dtype).max;
  return c;
}

// One row of pixels, one channel, windows of `kernel` pixels.
Case Pool(Op op, const Codes& x, int64_t kernel) {
  Case c = Matrix(op, x);
  c.window = {
      .batch = 1, .in_h = 1, .in_w = static_cast<int64_t>(x.size()), .in_c = 1, .kernel_w = kernel};
  c.x = Tensor(DType::kU8, {1, 1, c.window.in_w, 1});
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, x[static_cast<size_t>(i)]);
  c.N = 1;
  DeriveSizes(&c);
  return c;
}

Case OneSum(DType dtype, const QParams& a, const QParams& b, const QParams& out, int32_t x,
            int32_t w) {
  Case c = Matrix(Op::kAdd, {x}, dtype);
  c.w = Tensor(dtype, {1, 1});
  c.w.SetInt(0, w);
  c.x_q = a;
  c.w_q = b;
  c.out_q = out;
  return c;
}

// One element is broadcast: from AVX2 on it is fused in another order, and so are the zero points.
TEST(OnnxruntimeConvention, OneElementIsAddedInAnotherOrder) {
  const Case order = OneSum(DType::kS8, {{0x1.5c0002p-6f}, {0}}, {{0x1.5cp-6f}, {0}},
                            {{0x1.5cp-5f}, {0}}, -46, -31);
  EXPECT_EQ(Answer(order), Codes{-38});
  EXPECT_EQ(Answer(order, "onnxruntime@avx2"), Codes{-38});
  EXPECT_EQ(Answer(order, "onnxruntime@sse41"), Codes{-38});
  const Case zero_points = OneSum(DType::kU8, {{0x1.e443d4p-6f}, {226}}, {{0x1.e443dp-5f}, {82}},
                                  {{0x1.e443d4p-5f}, {242}}, 251, 0);
  EXPECT_EQ(Answer(zero_points), Codes{173});
  EXPECT_EQ(Answer(zero_points, "onnxruntime@avx2"), Codes{173});
  Case two = order;
  two.N = 2;
  two.x = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{0, -46});
  two.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{0, -31});
  EXPECT_EQ(Answer(two), (Codes{0, -39}));
}

// In WebAssembly add and mul take real numbers, a NaN becomes the code 0, of a sum its zero point,
// and what lies beyond int32 its end.
TEST(OnnxruntimeConvention, WebAssemblyTakesPlainCpp) {
  const auto both = [](const Case& c, const Codes& of_x86, const Codes& of_wasm) {
    EXPECT_EQ(Answer(c, "onnxruntime@sse41"), of_x86);
    EXPECT_EQ(Answer(c, "onnxruntime@wasm"), of_wasm);
  };
  Case sum = OneSum(DType::kS8, {{0x1.458p-6f}, {0}}, {{0x1.7bcp-5f}, {0}}, {{0x1.4c48p-1f}, {0}},
                    98, -49);
  both(sum, {-1}, {0});
  sum = OneSum(DType::kU8, {{1}, {0}}, {{1}, {0}}, {{0x1p-31f}, {0}}, 1, 0);
  both(sum, {0}, {255});
  Case product = OneSum(DType::kS8, {{0x1.ec391p-6f}, {0}}, {{0x1.b20564p-7f}, {-128}},
                        {{0x1.6c2698p-14f}, {1}}, 9, -126);
  product.op = Op::kMul;
  both(product, {84}, {83});
  Case mean = Matrix(Op::kAvgPool, {1, 0}, DType::kS8);
  mean.window = {.batch = 1, .in_h = 1, .in_w = 2, .in_c = 1};
  mean.x = Tensor::Of<int8_t>({1, 1, 2, 1}, std::vector<int8_t>{1, 0});
  mean.N = 1;
  mean.out_q.scale = {0x1p-31f};
  DeriveSizes(&mean);
  both(mean, {-128, 0}, {127, 0});
  Case softmax = Matrix(Op::kSoftmax, {7});
  softmax.out_q.scale = {0x1p-8f};
  both(softmax, {0}, {255});
  Case quantize = Matrix(Op::kQuantize, {0}, DType::kS8);
  quantize.x = Tensor::Of<float>({1, 1}, std::vector<float>{NAN});
  quantize.out_q.zero_point = {7};
  both(quantize, {-128}, {0});
  Case linear = Matrix(Op::kLinear, {0}, DType::kS8);
  linear.K = 1;
  linear.w = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{0});
  linear.x_q.scale = {2};
  linear.w_q.scale = {0x1p+127f};  // 0 times infinity
  linear.out_q.zero_point = {7};
  both(linear, {-128}, {7});
  quantize.out_dtype = DType::kS16;
  EXPECT_NE(Get("onnxruntime@wasm").cannot_run(quantize), "");
}

TEST(OnnxruntimeConvention, SumsOfIntegersWrap) {
  Case c = Matrix(Op::kLinear, {129, 130});
  c.N = 1;
  c.K = 2;
  c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{127, 127});
  c.out_dtype = DType::kS32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  EXPECT_EQ(Answer(c), Codes{32893});
  EXPECT_EQ(Answer(c, "onnxruntime@avx2"), Codes{32767});
  c.x_q.zero_point = {1};
  EXPECT_EQ(Answer(c, "onnxruntime@avx2"), Codes{32767 - 254});  // the zero point leaves exactly
}

TEST(OnnxruntimeConvention, MaxPoolTakesTheLargestCode) {
  Case c = Pool(Op::kMaxPool, {3, 9, 4, 1}, 2);
  EXPECT_EQ(Answer(c), (Codes{9, 9, 4}));
  c.window.pad_left = 1;
  DeriveSizes(&c);
  EXPECT_EQ(Answer(c), (Codes{3, 9, 9, 4}));
}

// A window is a mean of reals, and the zero point is inside the rounding; the window that is the
// whole image rounds first.
TEST(OnnxruntimeConvention, AveragePoolsRoundInTwoPlaces) {
  Case c = Pool(Op::kAvgPool, {2, 3, 2}, 2);  // 2.5, 2.5
  c.out_q.zero_point = {1};
  EXPECT_EQ(Answer(c), (Codes{4, 4}));  // rne(3.5)
  c = Pool(Op::kAvgPool, {2, 3}, 2);
  c.out_q.zero_point = {1};
  EXPECT_EQ(Answer(c), Codes{3});  // rne(2.5) + 1
  c = Pool(Op::kGlobalAvgPool, {2, 3}, 2);
  c.out_q.zero_point = {1};
  EXPECT_EQ(Answer(c), Codes{3});
}

TEST(OnnxruntimeConvention, PaddingThatCountsIsTheWholeKernel) {
  Case c = Pool(Op::kAvgPool, {8, 8, 8}, 2);
  c.window.pad_left = 1;
  c.window.stride_w = 2;
  DeriveSizes(&c);
  EXPECT_EQ(Answer(c), (Codes{8, 8}));
  c.window.count_include_pad = true;
  EXPECT_EQ(Answer(c), (Codes{4, 8}));
  c.window.pad_left = 0;  // the last of two windows hangs over
  c.window.ceil_mode = true;
  DeriveSizes(&c);
  EXPECT_EQ(Answer(c), (Codes{8, 4}));
}

TEST(OnnxruntimeConvention, GlobalMultipliersHaveLimits) {
  Case c = Pool(Op::kGlobalAvgPool, {1, 2}, 2);
  c.x_q.scale = {512.0f};
  EXPECT_NE(Get().cannot_run(c), "");
  c.x_q.scale = {511.0f};
  EXPECT_EQ(Get().cannot_run(c), "");
}

TEST(OnnxruntimeConvention, ConcatCopiesWhereNothingChanges) {
  Case c = Matrix(Op::kConcat, {5});
  c.N = 2;
  c.w = c.x;
  c.out_q = {{2.0f}, {1}};
  c.w_q = c.out_q;
  EXPECT_EQ(Answer(c), (Codes{3, 5}));  // rne(2.5) + 1; a copy
  // Through reals the second would be infinite.
  c.out_q.scale = c.w_q.scale = {0x1p127f};
  EXPECT_EQ(Answer(c), (Codes{1, 5}));
}

TEST(OnnxruntimeConvention, TablesAreFloat32) {
  Case c = Matrix(Op::kTable, {-100, -2, 0, 3}, DType::kS8);
  c.function = Function::kLeakyRelu;
  c.negative_slope = 0.25f;
  EXPECT_EQ(Answer(c), (Codes{-25, 0, 0, 3}));  // rne(-0.5) = 0
  c.function = Function::kSigmoid;
  c.negative_slope = 0.01f;
  c.out_q = {{0x1p-8f}, {-128}};
  EXPECT_EQ(Answer(c), (Codes{-128, -97, 0, 116}));
  c.function = Function::kTanh;
  EXPECT_NE(Get().cannot_run(c), "");
}

// One column takes everything: 256 is beyond the last code of either type.
TEST(OnnxruntimeConvention, SoftmaxClamps) {
  Case c = Matrix(Op::kSoftmax, {255, 0, 0});
  c.out_q = {{0x1p-8f}, {0}};
  EXPECT_EQ(Answer(c), (Codes{255, 0, 0}));
  c = Matrix(Op::kSoftmax, {127, -128}, DType::kS8);
  c.out_q = {{0x1p-8f}, {-128}};
  EXPECT_EQ(Answer(c), (Codes{127, -128}));
  c = Matrix(Op::kSoftmax, {7, 7, 7, 7}, DType::kS8);
  c.out_q = {{0x1p-8f}, {-128}};
  EXPECT_EQ(Answer(c), (Codes{-64, -64, -64, -64}));
}

// 512 equal codes have half a code each, but for the rounding of their sum; and that depends on the
// logarithm by which all exponentials are raised.
TEST(OnnxruntimeConvention, SharesAtATieAreUndecided) {
  const auto refusal = [](size_t equal) {
    Case c = Matrix(Op::kSoftmax, Codes(equal, 7));
    c.out_q = {{0x1p-8f}, {0}};
    EXPECT_EQ(Validate(c), "");
    return Get().cannot_run(c);
  };
  EXPECT_EQ(refusal(511), "");
  EXPECT_EQ(refusal(512), "an output depends on how the exponential function rounds");
  EXPECT_EQ(refusal(513), "");
}

// A trace ends in the output, whatever flows in first.
TEST(OnnxruntimeConvention, TracesEndInTheOutput) {
  Case concat = Matrix(Op::kConcat, {5});
  concat.N = 2;
  concat.w = concat.x;
  concat.out_q = {{2.0f}, {1}};
  Case softmax = Matrix(Op::kSoftmax, {1, 3});
  softmax.out_q = {{0x1p-8f}, {0}};
  for (const Case& c : {Pool(Op::kMaxPool, {3, 9, 4}, 2), Pool(Op::kAvgPool, {3, 9, 4}, 2),
                        Pool(Op::kGlobalAvgPool, {3, 9, 4}, 3), concat, softmax}) {
    const Codes y = Answer(c);
    for (size_t i = 0; i < y.size(); ++i) {
      const Trace trace = Get().trace(c, static_cast<int64_t>(i));
      ASSERT_FALSE(trace.empty());
      EXPECT_EQ(trace.back().value, std::to_string(y[i])) << Name(c.op);
    }
  }
}

}  // namespace
}  // namespace qualm
