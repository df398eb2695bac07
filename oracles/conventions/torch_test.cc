// SPDX-License-Identifier: Apache-2.0
// The smallest cases on which PyTorch's engines differ from the conventions they are composed of.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracles/conventions/convention.h"
#include "oracles/conventions/test_util.h"
#include "oracles/exact/exact.h"

namespace qualm {
namespace {

// One image of one row and one channel.
Case MaxPoolRow(std::vector<uint8_t> x, int64_t taps, int64_t dilation, int64_t pad) {
  Case c;
  c.op = Op::kMaxPool;
  const auto width = static_cast<int64_t>(x.size());
  c.x = Tensor::Of<uint8_t>({1, 1, width, 1}, x);
  c.window.batch = c.window.in_h = c.window.in_c = 1;
  c.window.in_w = width;
  c.window.kernel_w = taps;
  c.window.dilation_w = dilation;
  c.window.pad_left = c.window.pad_right = pad;
  DeriveSizes(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

// The taps of the first output are at -1 and 1, of the second at 0 and 2, of the third at 1 and 3.
// Those in the padding read the pixels 0 and 2.
TEST(TorchConventions, QnnpackPoolsAPixelThatNoTapIsAt) {
  const Case c = MaxPoolRow({9, 1, 7}, 2, 2, 1);
  EXPECT_EQ(exact::Evaluate(c), Tensor::Of<uint8_t>({1, 1, 3, 1}, std::vector<uint8_t>{1, 9, 1}));
  EXPECT_EQ(Get("torch-qnnpack").run(c).y,
            Tensor::Of<uint8_t>({1, 1, 3, 1}, std::vector<uint8_t>{9, 9, 7}));
  EXPECT_EQ(Get("torch-onednn@avx2").run(c).y, exact::Evaluate(c));
  EXPECT_EQ(Get("torch-qnnpack").trace(c, 0).back().value, "9");
  // Without dilation the nearest pixel is in the window.
  const Case dense = MaxPoolRow({9, 1, 7}, 2, 1, 1);
  EXPECT_EQ(Get("torch-qnnpack").run(dense).y, exact::Evaluate(dense));
  EXPECT_NE(Get("torch-qnnpack").cannot_run(MaxPoolRow({9, 1, 7}, 1, 1, 0)), "");
}

// The same case with rows and columns exchanged.
Case Turned(Case c) {
  Window& v = c.window;
  std::swap(v.in_h, v.in_w);
  std::swap(v.kernel_h, v.kernel_w);
  std::swap(v.stride_h, v.stride_w);
  std::swap(v.dilation_h, v.dilation_w);
  std::swap(v.pad_top, v.pad_left);
  std::swap(v.pad_bottom, v.pad_right);
  const Tensor row = c.x;
  c.x = Tensor(DType::kU8, {1, v.in_h, v.in_w, 1});
  for (int64_t i = 0; i < row.size(); ++i) c.x.SetInt(i, row.IntAt(i));
  DeriveSizes(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

TEST(TorchConventions, QnnpackPoolsAPixelAboveOrBelow) {
  const Case c = Turned(MaxPoolRow({9, 1, 7}, 2, 2, 1));
  EXPECT_EQ(exact::Evaluate(c), Tensor::Of<uint8_t>({1, 3, 1, 1}, std::vector<uint8_t>{1, 9, 1}));
  EXPECT_EQ(Get("torch-qnnpack").run(c).y,
            Tensor::Of<uint8_t>({1, 3, 1, 1}, std::vector<uint8_t>{9, 9, 7}));
}

// ATen refuses padding above half of the window, in either direction.
TEST(TorchConventions, PaddingIsAtMostHalfOfTheWindow) {
  for (const char* convention : {"torch-qnnpack", "torch-onednn@avx2"}) {
    for (const int64_t pad : {1, 2}) {
      const Case c = MaxPoolRow({9, 1, 7}, 3, 1, pad);
      const char* const reason = pad == 1 ? "" : "padding must be at most half of the window";
      EXPECT_EQ(Get(convention).cannot_run(c), reason) << convention;
      EXPECT_EQ(Get(convention).cannot_run(Turned(c)), reason) << convention;
    }
  }
}

// Each operation has its own list, and the engine the union.
TEST(TorchConventions, OperationsOfAnEngineSayHowTheyMayDiffer) {
  using Ids = std::vector<std::string>;
  const auto of = [](std::string_view engine, Op op) { return Get(engine).for_op(op)->variations; };
  // Pixels outside the image win or count (V27); an average is a float32 sum times a multiplier.
  EXPECT_EQ(of("torch-qnnpack", Op::kMaxPool), Ids{"V27"});
  EXPECT_EQ(of("torch-qnnpack", Op::kAvgPool), (Ids{"V1", "V8", "V27"}));
  EXPECT_EQ(of("torch-onednn@avx2", Op::kMaxPool), Ids{});
  // dynamic_linear adds as oneDNN's linear does: in saturating pairs (V6) where there is no VNNI.
  for (const char* engine : {"torch-onednn@sse41", "torch-onednn@avx2", "torch-onednn@avx512core",
                             "torch-onednn@avx2vnni", "torch-onednn@vnni", "torch-onednn@amx"}) {
    const Ids ids = of(engine, Op::kDynamicLinear);
    const auto has = [&](std::string_view id) { return std::ranges::count(ids, id) == 1; };
    EXPECT_EQ(has("V6"), Get(engine).pair_saturates) << engine;
    EXPECT_TRUE(has("V8") && has("V31")) << engine;
  }
}

TEST(TorchConventions, EnginesRefuseOperationsThatTheyLack) {
  Case c;
  c.op = Op::kRequantize;
  c.M = c.N = 1;
  c.x = Tensor(DType::kS32, {1, 1});
  ASSERT_EQ(Validate(c), "");
  for (const char* convention : {"torch-qnnpack", "torch-onednn@avx2"})
    EXPECT_EQ(Get(convention).cannot_run(c), "this engine has no requantize");
}

// A convolution of one pixel that is nothing but its bias, in units of the output.
Case BiasOnly(int32_t bias, int64_t stride) {
  Case c;
  c.op = Op::kConv2d;
  c.N = 1;
  c.x = Tensor(DType::kU8, {1, 1, 1, 1});
  c.w = Tensor(DType::kS8, {1, 1, 1, 1});
  c.window.batch = c.window.in_h = c.window.in_w = c.window.in_c = 1;
  c.window.stride_h = c.window.stride_w = stride;
  c.out_q.scale = {0x1p23f};
  c.bias_i32 = std::vector<int32_t>{bias};
  DeriveSizes(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

// A bias of 2^31 - 1 is 255.99 units. Packed as float32 it is 2^31, which is no int32.
TEST(TorchConventions, QnnpackPacksTheBiasOfConvolutionsAsFloat) {
  const Convention& convention = Get("torch-qnnpack");
  EXPECT_EQ(convention.run(BiasOnly(INT32_MAX, 1)).y.IntAt(0), 255);
  EXPECT_EQ(convention.run(BiasOnly(INT32_MAX, 2)).y.IntAt(0), 0);
  // A stride or a padding in one direction is enough to leave the product of matrices.
  for (int64_t Window::* number : {&Window::stride_h, &Window::stride_w, &Window::pad_top,
                                   &Window::pad_bottom, &Window::pad_left, &Window::pad_right}) {
    Case c = BiasOnly(INT32_MAX, 1);
    ++(c.window.*number);
    DeriveSizes(&c);
    ASSERT_EQ(Validate(c), "");
    EXPECT_EQ(convention.run(c).y.IntAt(0), 0);
  }
  // The sum 3*2^23 - 1 is 1.5 units in float32. With the bias packed as float, 3*2^23, it is less.
  for (const int64_t stride : {1, 2}) {
    Case c = BiasOnly((3 << 23) + 1, stride);
    c.x.SetInt(0, 1);
    c.w.SetInt(0, -2);
    c.out_q.scale = {0x1p24f};
    EXPECT_EQ(convention.run(c).y.IntAt(0), stride == 1 ? 2 : 1);
  }
}

// Without a bias QNNPACK divides a bias of 0 by x_scale*w_scale.
TEST(TorchConventions, QnnpackNeedsAReciprocal) {
  Case c = BiasOnly(0, 1);
  c.bias_i32.reset();
  c.x_q.scale = {0x1p-100f};
  c.w_q.scale = {0x1p-29f};
  c.out_q.scale = {0x1p-110f};
  EXPECT_EQ(Get("torch-qnnpack").cannot_run(c), "the reciprocal of x_scale*w_scale must be finite");
  c.w_q.scale = {0x1p-27f};
  EXPECT_EQ(Get("torch-qnnpack").cannot_run(c), "");
}

// 0.5 and -0.5 units of the output: both are ties in float32, and go to 0; relu comes last.
TEST(TorchConventions, ConcatQuantizesWhatItDequantized) {
  Case c;
  c.op = Op::kConcat;
  c.M = 1;
  c.N = 3;
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{11, 9});
  c.w = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{3});
  c.x_q = {{0.5f}, {10}};
  c.w_q = {{2.0f}, {5}};
  c.out_q = {{1.0f}, {4}};
  ASSERT_EQ(Validate(c), "");
  const Convention& convention = Get("torch-onednn@vnni");
  EXPECT_EQ(convention.run(c).y, Tensor::Of<uint8_t>({1, 3}, std::vector<uint8_t>{4, 4, 0}));
  EXPECT_EQ(convention.trace(c, 2).back().value, "0");
  c.relu = true;
  EXPECT_EQ(convention.run(c).y, Tensor::Of<uint8_t>({1, 3}, std::vector<uint8_t>{4, 4, 4}));
  EXPECT_EQ(convention.trace(c, 2).back().value, "4");
}

// The window of the first output has one pixel of 2 inside the image: 4/2, whatever the case says.
TEST(TorchConventions, QnnpackDividesByTheWholeWindow) {
  Case c = MaxPoolRow({4, 8}, 2, 1, 1);
  c.op = Op::kAvgPool;
  const Convention& convention = Get("torch-qnnpack");
  for (const bool counted : {true, false}) {
    c.window.count_include_pad = counted;
    ASSERT_EQ(Validate(c), "");
    EXPECT_EQ(convention.run(c).y,
              Tensor::Of<uint8_t>({1, 1, 3, 1}, std::vector<uint8_t>{2, 6, 4}));
    EXPECT_EQ(convention.run(c).y == exact::Evaluate(c), counted);
  }
}

// Sums of 2, 6 and 4 over one or two pixels; in ceil mode the last window has one, and no padding.
TEST(TorchConventions, AtenDividesByWhatCounts) {
  Case c = MaxPoolRow({2, 4, 5}, 2, 1, 1);
  c.op = Op::kAvgPool;
  const Convention& convention = Get("torch-onednn@avx2");
  const auto is = [&](std::vector<uint8_t> y) {
    ASSERT_EQ(Validate(c), "");
    ASSERT_EQ(convention.cannot_run(c), "");
    const Tensor expected = Tensor::Of<uint8_t>({1, 1, static_cast<int64_t>(y.size()), 1}, y);
    EXPECT_EQ(convention.run(c).y, expected);
    EXPECT_EQ(exact::Evaluate(c), expected);
    EXPECT_EQ(convention.trace(c, 1).back().value, std::to_string(y[1]));
  };
  c.window.count_include_pad = true;
  is({1, 3, 4, 2});  // 4.5 and 2.5 are ties
  c.window.count_include_pad = false;
  is({2, 3, 4, 5});
  c = MaxPoolRow({2, 4, 5}, 2, 1, 0);
  c.op = Op::kAvgPool;
  c.window.stride_w = 2;
  c.window.ceil_mode = true;
  DeriveSizes(&c);
  is({3, 5});
  c.window.count_include_pad = true;  // there is none to count
  is({3, 5});
}

// On both engines XNNPACK multiplies s8 codes, with multipliers below 2^8; ATen multiplies u8.
TEST(TorchConventions, ProductsOfS8AreXnnpacks) {
  Case c;
  c.op = Op::kMul;
  c.M = c.N = 1;
  c.x = c.w = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{3});
  c.x_q = c.w_q = {{1.0f}, {0}};
  c.out_q = {{0x1p-8f}, {0}};
  c.out_dtype = DType::kS8;
  c.out_min = -128;
  c.out_max = 127;
  ASSERT_EQ(Validate(c), "");
  EXPECT_EQ(Get("torch-onednn@avx2").cannot_run(c), "the multiplier must lie in [2^-16, 2^8)");
  c.out_q = {{4.0f}, {0}};
  EXPECT_EQ(Get("torch-onednn@avx2").run(c).y.IntAt(0), 2);  // 9/4
  EXPECT_EQ(Get("torch-qnnpack").run(c).y, FindConvention("xnnpack@fp32")->run(c).y);
  // At zero point 127, where -12.5 is -13 in ATen's float32, as PyTorch 1.13 has it.
  Case edge = c;
  edge.x = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{-1});
  edge.w = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{1});
  edge.x_q = {{0x1.2d4p-4f}, {0}};
  edge.w_q = {{5.0f}, {0}};
  edge.out_q = {{0x1.e2p-6f}, {127}};
  ASSERT_EQ(Validate(edge), "");
  for (const char* convention : {"torch-qnnpack", "torch-onednn@avx2"}) {
    ASSERT_EQ(Get(convention).cannot_run(edge), "");
    EXPECT_EQ(Get(convention).run(edge).y.IntAt(0), 114);
  }
  EXPECT_EQ(FindConvention("xnnpack@fp32")->run(edge).y.IntAt(0), 115);
  // Only on QNNPACK's engine does XNNPACK add s8 codes too.
  c.op = Op::kAdd;
  c.out_q = {{0x1p-8f}, {0}};
  EXPECT_NE(Get("torch-qnnpack").cannot_run(c), "");
  EXPECT_EQ(Get("torch-onednn@avx2").cannot_run(c), "");
}

Case Table(Function function, std::vector<uint8_t> x) {
  Case c;
  c.op = Op::kTable;
  c.function = function;
  c.M = 1;
  c.N = static_cast<int64_t>(x.size());
  c.x = Tensor::Of<uint8_t>({1, c.N}, x);
  c.x_q = {{0.5f}, {8}};
  c.out_q = c.x_q;
  return c;
}

TEST(TorchConventions, Tables) {
  const auto run = [](std::string_view convention, const Case& c) {
    EXPECT_EQ(Validate(c), "");
    EXPECT_EQ(Get(convention).cannot_run(c), "");
    return Get(convention).run(c).y;
  };
  for (const char* convention : {"torch-qnnpack", "torch-onednn@avx2"}) {
    EXPECT_EQ(run(convention, Table(Function::kRelu, {3, 8, 9})),
              Tensor::Of<uint8_t>({1, 3}, std::vector<uint8_t>{8, 8, 9}));
    // -1.5 * 1.5/6 = -0.375 is -0.75 codes; 3 * 6/6 = 3 is 6.
    EXPECT_EQ(run(convention, Table(Function::kHardSwish, {5, 14})),
              Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{7, 14}));
  }
  Case leaky = Table(Function::kLeakyRelu, {3, 12});
  leaky.negative_slope = 0.5f;  // -5 codes become -2.5, a tie before the zero point is added
  EXPECT_EQ(run("torch-onednn@avx2", leaky),
            Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{6, 12}));
  EXPECT_NE(Get("torch-qnnpack").cannot_run(leaky), "");
  EXPECT_NE(Get("torch-qnnpack").cannot_run(Table(Function::kTanh, {3})), "");
  EXPECT_NE(Get("torch-qnnpack").cannot_run(Table(Function::kSigmoid, {3})), "");

  // -infinity times a ramp of 0.
  Case nan = Table(Function::kHardSwish, {0});
  nan.x_q.scale = {0x1.8p+127f};
  nan.out_q = {{1.0f}, {9}};
  EXPECT_EQ(run("torch-qnnpack", nan).IntAt(0), 0);

  // 3 is 1.5 codes: QNNPACK adds the zero point before it rounds, so an odd one turns the tie.
  Case tie = Table(Function::kHardSwish, {14});
  tie.out_q = {{2.0f}, {9}};
  EXPECT_EQ(run("torch-qnnpack", tie).IntAt(0), 10);
  EXPECT_EQ(run("torch-onednn@avx2", tie).IntAt(0), 11);
}

TEST(TorchConventions, QnnpacksTablesNeedNormalScales) {
  Case c = Table(Function::kHardSwish, {14});
  c.out_q.scale = {0x1p-126f};
  EXPECT_EQ(Get("torch-qnnpack").cannot_run(c), "");
  c.out_q.scale = {0x1p-127f};
  EXPECT_EQ(Get("torch-qnnpack").cannot_run(c), "scales must be normal numbers");
  c.out_q.scale = {1.0f};
  c.x_q.scale = {0x1p-127f};
  EXPECT_EQ(Get("torch-qnnpack").cannot_run(c), "scales must be normal numbers");
}

// x*min(max(x + 3, 0), 6)/6: the sum, the product and the quotient may each round.
TEST(TorchConventions, TracesTellWhatHardSwishLoses) {
  const auto hard_swish = [](float scale, uint8_t code) {
    Case c = Table(Function::kHardSwish, {code});
    c.x_q.scale = {scale};
    return Get("torch-qnnpack").trace(c, 0).at(1);
  };
  const TraceStep three = hard_swish(0.5f, 14);  // 3 * 6 / 6
  EXPECT_EQ(three.value, "0x1.8p+1");
  EXPECT_FALSE(three.lossy);
  EXPECT_TRUE(hard_swish(0.5f, 10).lossy);  // 1 * 4 / 6: the quotient rounds
  // 3 + 2^-25 rounds to 3, and 2^-25 * 3 / 6 is exact.
  const TraceStep small = hard_swish(0x1p-25f, 9);
  EXPECT_EQ(small.value, "0x1p-26");
  EXPECT_TRUE(small.lossy);
  // 2^25 + 3 rounds too, but to a number that is cut to 6: 2^25 * 6 / 6.
  const TraceStep large = hard_swish(0x1p25f, 9);
  EXPECT_EQ(large.value, "0x1p+25");
  EXPECT_FALSE(large.lossy);
}

// Whether ATen's answer to one code follows from how near the exponential function comes to the
// real one.
bool IsDecided(const Case& c) {
  EXPECT_EQ(Validate(c), "");
  const std::string reason = Get("torch-onednn@avx2").cannot_run(c);
  EXPECT_TRUE(reason.empty() ||
              reason == "an output depends on how the exponential function rounds")
      << reason;
  return reason.empty();
}

// A sigmoid may be 2^-22 of itself and 2^-126 away from the real one, on either side.
TEST(TorchConventions, SigmoidsNearATieAreUndecided) {
  // A half is 127.5 units of 1/255: less 2^-23 of a half, the smallest sigmoid is below the tie,
  // and so on.
  Case half = Table(Function::kSigmoid, {8});
  for (const auto& [from_tie, decided] : std::vector<std::pair<double, bool>>{
           {-0x1p-20, true}, {-0x1p-23, false}, {0x1p-23, false}, {0x1p-20, true}}) {
    half.out_q = {{static_cast<float>(1 / (255 * (1 + from_tie)))}, {0}};
    EXPECT_EQ(IsDecided(half), decided) << from_tie;
  }
  // exp(-72.087) is about 2^-104, of which 2^-126 is as much as 2^-22.
  Case small = Table(Function::kSigmoid, {0});
  small.x_q = {{72.087f}, {1}};
  const double real = 1 / (1 + std::exp(static_cast<double>(72.087f)));
  for (const auto& [from_tie, decided] : std::vector<std::pair<double, bool>>{
           {-0x1p-20, true}, {-0x1.8p-22, false}, {0x1.8p-22, false}, {0x1p-20, true}}) {
    small.out_q = {{static_cast<float>(real / (0.5 * (1 + from_tie)))}, {0}};
    EXPECT_EQ(IsDecided(small), decided) << from_tie;
  }
}

// x_scale*(254 - 255) is -6.3 in PyTorch 2, whose sigmoid is 40.499 codes; the fused x_scale*254 -
// fl(x_scale*255) of 1.13 is -6.29995, and 40.501 codes.
TEST(TorchConventions, OnlyOldVectorsOfSigmoidFuse) {
  Case c = Table(Function::kSigmoid, std::vector<uint8_t>(64, 254));
  c.x_q = {{6.3f}, {255}};
  c.out_q = {{0x1.7ba8ap-15f}, {0}};
  ASSERT_EQ(Validate(c), "");
  for (const auto& [convention, code] :
       {std::pair{"torch-onednn@avx2", 41}, {"torch2.13-aten@avx2", 40}}) {
    ASSERT_EQ(Get(convention).cannot_run(c), "") << convention;
    EXPECT_EQ(Get(convention).run(c).y.IntAt(0), code) << convention;
  }
}

TEST(TorchConventions, SigmoidAndTanh) {
  // 0, 1 and 20: a half; 256/(1 + 1/e) = 187.15; what would be 256.
  Case sigmoid = Table(Function::kSigmoid, {8, 10, 48});
  sigmoid.out_q = {{0x1p-8f}, {0}};
  ASSERT_EQ(Validate(sigmoid), "");
  for (const char* convention : {"torch-qnnpack", "torch-onednn@sse41", "torch-onednn@avx2"}) {
    ASSERT_EQ(Get(convention).cannot_run(sigmoid), "");
    EXPECT_EQ(Get(convention).run(sigmoid).y,
              Tensor::Of<uint8_t>({1, 3}, std::vector<uint8_t>{128, 187, 255}));
  }
  // 128 + 128*0.76159 = 225.48; -4: 128 - 128*0.99933 = 0.09.
  Case tanh = Table(Function::kTanh, {8, 10, 0, 48});
  tanh.out_q = {{0x1p-7f}, {128}};
  ASSERT_EQ(Validate(tanh), "");
  for (const char* convention : {"torch-qnnpack", "torch-onednn@sse41", "torch-onednn@avx2"}) {
    ASSERT_EQ(Get(convention).cannot_run(tanh), "");
    EXPECT_EQ(Get(convention).run(tanh).y,
              Tensor::Of<uint8_t>({1, 4}, std::vector<uint8_t>{128, 225, 0, 255}));
  }
  // A half over 1/255 is 127.5: which code it becomes is a matter of exp(0).
  sigmoid.out_q = {{1.0f / 255}, {0}};
  EXPECT_NE(Get("torch-onednn@avx2").cannot_run(sigmoid), "");
  sigmoid.x.SetInt(0, 9);
  EXPECT_EQ(Get("torch-onednn@avx2").cannot_run(sigmoid), "");
}

TEST(TorchConventions, Softmax) {
  Case c;
  c.op = Op::kSoftmax;
  c.M = 1;
  c.N = 2;
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{3, 5});
  c.x_q = {{0.5f}, {0}};
  c.out_q = {{0x1p-8f}, {0}};
  ASSERT_EQ(Validate(c), "");
  // 256/(1 + e) = 68.85
  for (const char* convention : {"torch-qnnpack", "torch-onednn@sse41", "torch-onednn@avx2"}) {
    ASSERT_EQ(Get(convention).cannot_run(c), "");
    EXPECT_EQ(Get(convention).run(c).y, Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{69, 187}));
  }
  EXPECT_EQ(Get("torch-onednn@avx2").trace(c, 0).back().value, "69");
  // A share of 1 is 256, which is beyond the codes.
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{0, 255});
  EXPECT_EQ(Get("torch-onednn@avx2").run(c).y,
            Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{0, 255}));
}

// A share of n may be (n + 8) * 2^-24 of itself away from the real one, on either side: of 8,
// 2^-20.
TEST(TorchConventions, SharesNearATieAreUndecided) {
  Case c = Table(Function::kRelu, {1, 0, 0, 0, 0, 0, 0, 0});
  c.op = Op::kSoftmax;
  c.out_q = {{0x1p-8f}, {0}};
  for (const auto& [from_tie, decided] : std::vector<std::pair<double, bool>>{
           {-0x1p-19, true}, {-0x1p-21, false}, {0, false}, {0x1p-21, false}, {0x1p-19, true}}) {
    // The share of the first is 1/(1 + 7/exp(scale)), here 128.5 codes. The others are 18.2.
    const double share = 128.5 / 256 * (1 + from_tie);
    c.x_q = {{static_cast<float>(std::log(7 / (1 / share - 1)))}, {0}};
    EXPECT_EQ(IsDecided(c), decided) << from_tie;
  }
}

// 1/512 is half a code, and exp(0) is 1 everywhere: the tie goes to the even code.
TEST(TorchConventions, SharesOfEqualNumbersAreDecided) {
  Case c = Table(Function::kRelu, std::vector<uint8_t>(512, 7));
  c.op = Op::kSoftmax;
  c.out_q = {{0x1p-8f}, {0}};
  ASSERT_TRUE(IsDecided(c));
  EXPECT_EQ(Get("torch-onednn@avx2").run(c).y.IntAt(0), 0);
}

TEST(TorchConventions, SoftmaxWantsFiniteNumbers) {
  for (const size_t at : {0, 1, 2}) {
    std::vector<uint8_t> x(3, 0);
    x[at] = 255;
    Case c = Table(Function::kRelu, x);
    c.op = Op::kSoftmax;
    c.x_q = {{0x1p120f}, {0}};  // 255 * 2^120 is below 2^128
    c.out_q = {{0x1p-8f}, {0}};
    ASSERT_EQ(Validate(c), "");
    EXPECT_EQ(Get("torch-onednn@avx2").cannot_run(c), "");
    c.x_q.scale = {0x1p121f};
    EXPECT_EQ(Get("torch-onednn@avx2").cannot_run(c), "x must be finite");
  }
}

}  // namespace
}  // namespace qualm
