// SPDX-License-Identifier: Apache-2.0
// The conventions by hand: what each does differently, on the smallest case that shows it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/rng.h"
#include "core/verdict.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/test_util.h"

namespace qualm {
namespace {

// One linear layer with unit scales and zero points 0, s32 codes given row-major.
Case Linear(int64_t M, int64_t N, int64_t K, DType x_dtype, std::vector<int32_t> x, DType w_dtype,
            std::vector<int32_t> w, DType out_dtype) {
  Case c;
  c.op = Op::kLinear;
  c.M = M;
  c.N = N;
  c.K = K;
  c.x = Tensor(x_dtype, {M, K});
  c.w = Tensor(w_dtype, {N, K});
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, x[static_cast<size_t>(i)]);
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, w[static_cast<size_t>(i)]);
  c.out_dtype = out_dtype;
  c.out_min = RangeOf(out_dtype).min;
  c.out_max = RangeOf(out_dtype).max;
  EXPECT_EQ(Validate(c), "");
  return c;
}

Case Dot(std::vector<int32_t> x, std::vector<int32_t> w) {
  const auto K = static_cast<int64_t>(x.size());
  return Linear(1, 1, K, DType::kU8, std::move(x), DType::kS8, std::move(w), DType::kU8);
}

Case Quantize(std::vector<float> x, float scale, int32_t zero_point, DType dtype) {
  Case c;
  c.op = Op::kQuantize;
  c.M = 1;
  c.N = static_cast<int64_t>(x.size());
  c.x = Tensor::Of<float>({1, c.N}, x);
  c.out_q = {{scale}, {zero_point}};
  c.out_dtype = dtype;
  c.out_min = RangeOf(dtype).min;
  c.out_max = RangeOf(dtype).max;
  EXPECT_EQ(Validate(c), "");
  return c;
}

int32_t First(std::string_view convention, const Case& c) {
  EXPECT_EQ(Get(convention).cannot_run(c), "");
  return Get(convention).run(c).y.IntAt(0);
}

TEST(ConventionsTest, ListIsSortedAndLosesNone) {
  std::set<std::string> names;
  std::string previous;
  for (const Convention& convention : AllConventions()) {
    EXPECT_LT(previous, convention.name);
    previous = convention.name;
    names.insert(convention.name);
    EXPECT_FALSE(convention.description.empty()) << convention.name;
    EXPECT_FALSE(convention.source.empty()) << convention.name;
    const bool permutes =
        std::count(convention.satisfies.begin(), convention.satisfies.end(), "k_permutation") != 0;
    EXPECT_FALSE(convention.pair_saturates && permutes) << convention.name;
  }
  for (const char* name : {"fbgemm@avx2",
                           "fbgemm@avx512",
                           "fbgemm@vnni",
                           "fbgemm@avx2+acc16",
                           "fbgemm@avx2+nofma",
                           "fbgemm@avx2+acc16+nofma",
                           "fbgemm@scalar",
                           "onednn2@sse41",
                           "onednn2@avx2",
                           "onednn2@avx2vnni",
                           "onednn2@avx512core",
                           "onednn2@vnni",
                           "onednn2@amx",
                           "onednn3@avx2",
                           "onednn3@vnni",
                           "onednn3@sse41",
                           "onednn3@avx512core",
                           "qnnpack",
                           "aten@default",
                           "aten@avx2",
                           "aten@avx512",
                           "aten@aarch64",
                           "xnnpack@fp32",
                           "xnnpack@rndnu",
                           "xnnpack2024@avx2",
                           "xnnpack2024@avx512",
                           "xnnpack2026@avx2",
                           "xnnpack2026@avx512",
                           "tflite@builtin",
                           "tflite@reference",
                           "tflite@double",
                           "tflite@single",
                           "onnxruntime@sse41",
                           "onnxruntime@avx2",
                           "onnxruntime@vnni",
                           "onnxruntime@wasm",
                           "observers@torch",
                           "observers@aten",
                           "observers@fbgemm",
                           "ggml@avx",
                           "ggml@c",
                           "gemmlowp",
                           "gemmlowp@sse4",
                           "ruy",
                           "ctranslate2",
                           "mnn",
                           "ncnn",
                           "tract",
                           "openvino",
                           "openvino@avx2",
                           "stablehlo",
                           "torch-decomposed",
                           "torch-qnnpack",
                           "torch-x86@vnni",
                           "torch-fbgemm@avx2",
                           "torch-fbgemm@avx512+held",
                           "torchao@vnni",
                           "torch2.11-aten",
                           "torch2.11-qnnpack",
                           "torch2.13-aten@avx512",
                           "torch2.13-qnnpack",
                           "tvm",
                           "observers@torch2",
                           "onednn3.10@avx2",
                           "onednn3.10@vnni",
                           "torch-onednn@vnni",
                           "numpy@float32",
                           "plain@away",
                           "plain@truncate",
                           "plain@up",
                           "onnx@reference",
                           "cuda-cast",
                           "jax-cast@cpu",
                           "jax-cast@gpu",
                           "ml_dtypes-cast",
                           "onnx-cast@reference",
                           "onnxruntime1.30-cast",
                           "ptx-cast",
                           "torch2.11-cast@cpu",
                           "torch2.11-cast@cuda",
                           "torch2.13-cast@cpu"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_EQ(FindConvention("fbgemm"), nullptr);
}

// An engine claims nothing of an operation that it lacks.
TEST(ConventionsTest, EnginesClaimNothingOfWhatTheyLack) {
  for (const Convention& convention : AllConventions()) {
    for (const Op op : AllOps()) {
      if (!convention.for_op || Has(convention, op)) continue;
      EXPECT_EQ(convention.for_op(op), nullptr) << convention.name << " " << Name(op);
      EXPECT_FALSE(Satisfies(convention, op, "row_independence"));
    }
  }
}

TEST(ConventionsTest, FamiliesStandOnceAndHoldAllConventions) {
  const std::vector<std::string_view> families = AllFamilies();
  EXPECT_EQ(std::set(families.begin(), families.end()).size(), families.size());
  std::set<std::string_view> met;
  for (const Convention& convention : AllConventions()) met.insert(convention.family);
  EXPECT_EQ(std::set(families.begin(), families.end()), met);
}

TEST(ConventionsTest, OnlyPairSaturatingConventionsLoseAPair) {
  const Case c = Dot({255, 255}, {127, 127});
  for (const Convention& convention : AllConventions()) {
    if (!convention.cannot_run(c).empty()) continue;
    const std::optional<Tensor> acc = convention.run(c).acc;
    // The others add real numbers: float32 ones, or exact ones.
    const bool has_acc =
        convention.name == "plain@float32+away" ||
        !(convention.name.starts_with("numpy@") || convention.name.starts_with("plain@") ||
          convention.name == "torch-decomposed" || convention.name == "tvm");
    EXPECT_EQ(acc.has_value(), has_acc) << convention.name;
    if (acc) {
      EXPECT_EQ(acc->IntAt(0), convention.pair_saturates ? 32767 : 64770) << convention.name;
    }
  }
}

TEST(ConventionsTest, TracesNameEverySaturatingPair) {
  const Case c = Dot({255, 255, 1, 1, 200, 255}, {127, 127, 5, 5, -128, -128});
  const Trace trace = Get("fbgemm@avx2").trace(c, 0);
  std::vector<TraceStep> lost;
  for (const TraceStep& step : trace) {
    if (step.stage == Stage::kAccumulate && step.lossy) lost.push_back(step);
  }
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(lost[0].text,
            "pair k=(0,1): 255*127 + 255*127 = 32385 + 32385 = 64770 -> 32767, lost 32003");
  EXPECT_EQ(lost[0].value, "32767");
  EXPECT_EQ(lost[1].text,
            "pair k=(4,5): 200*-128 + 255*-128 = -25600 + -32640 = -58240 -> -32768, lost -25472");
  EXPECT_EQ(lost[1].value, "-32768");
  for (const TraceStep& step : Get("fbgemm@vnni").trace(c, 0)) {
    EXPECT_FALSE(step.stage == Stage::kAccumulate && step.lossy) << step.text;
  }
}

TEST(ConventionsTest, SumsBeyondInt32WrapAndSaySo) {
  constexpr size_t kTerms = 66312;  // the fewest of 255 * 127 that leave int32
  const Case c = Dot(std::vector<int32_t>(kTerms, 255), std::vector<int32_t>(kTerms, 127));
  const int64_t sum = int64_t{kTerms} * 255 * 127;
  EXPECT_EQ(Acc("fbgemm@vnni", c), sum - (int64_t{1} << 32));
  const TraceStep step = Get("fbgemm@vnni").trace(c, 0).front();
  EXPECT_TRUE(step.lossy);
  EXPECT_TRUE(step.text.ends_with(" = 2147514120, wrapped to int32")) << step.text;
  const TraceStep fits = Get("fbgemm@vnni").trace(Dot({255, 255}, {127, 127}), 0).front();
  EXPECT_FALSE(fits.lossy);
  EXPECT_TRUE(fits.text.ends_with(" = 64770")) << fits.text;
}

TEST(ConventionsTest, PairsAreAdjacentAndAnOddLastTermIsAlone) {
  EXPECT_EQ(Acc("fbgemm@avx2", Dot({255, 0, 255, 0}, {127, 0, 127, 0})), 64770);
  EXPECT_EQ(Acc("fbgemm@avx2", Dot({255, 255, 0, 0}, {127, 127, 0, 0})), 32767);
  EXPECT_EQ(Acc("fbgemm@avx2", Dot({0, 0, 255}, {0, 0, 127})), 32385);
  EXPECT_EQ(Acc("fbgemm@avx2", Dot({129, 129}, {-128, -128})), -32768);
}

TEST(ConventionsTest, Acc16AlsoSaturatesTheRunningSumAndSpillsEvery256) {
  // Pairs 16129 each: the third no longer fits.
  const Case three = Dot({127, 0, 127, 0, 127, 0}, {127, 0, 127, 0, 127, 0});
  EXPECT_EQ(Acc("fbgemm@avx2+acc16", three), 32767);
  EXPECT_EQ(Acc("fbgemm@avx512+acc16", three), 32767);
  EXPECT_EQ(Acc("fbgemm@avx2", three), 48387);
  EXPECT_EQ(Acc("fbgemm@vnni+acc16", three), 48387);
  // Order matters: a negative pair in between leaves room.
  EXPECT_EQ(Acc("fbgemm@avx2+acc16",
                Dot({127, 0, 127, 0, 127, 0, 127, 0}, {127, 0, 127, 0, -127, 0, 127, 0})),
            32258);
  std::vector<int32_t> x(258, 0), w(258, 0);
  for (const size_t k : {252u, 254u, 256u}) x[k] = w[k] = 127;
  EXPECT_EQ(Acc("fbgemm@avx2+acc16", Dot(x, w)), 48387);  // 2 in the first block, 1 in the next
}

TEST(ConventionsTest, OneDnnCutsALongKInTwo) {
  // Recovered from the installed oneDNN 2.6.3: 257 is cut at 129, so (128,129) is no pair there
  // and (129,130) is one.
  const auto at = [](int64_t K, int64_t k) {
    std::vector<int32_t> x(static_cast<size_t>(K), 0), w(static_cast<size_t>(K), 0);
    x[static_cast<size_t>(k)] = x[static_cast<size_t>(k + 1)] = 255;
    w[static_cast<size_t>(k)] = w[static_cast<size_t>(k + 1)] = 127;
    return Dot(std::move(x), std::move(w));
  };
  EXPECT_EQ(Acc("onednn2@avx2", at(256, 128)), 32767);
  EXPECT_EQ(Acc("onednn2@avx2", at(257, 128)), 64770);
  EXPECT_EQ(Acc("onednn2@avx2", at(257, 129)), 32767);
  EXPECT_EQ(Acc("onednn2@sse41", at(513, 256)), 32767);
  EXPECT_EQ(Acc("onednn2@avx2", at(513, 256)), 64770);
  EXPECT_EQ(Acc("onednn2@avx2", at(769, 384)), 32767);
  EXPECT_EQ(Acc("onednn2@avx512core", at(769, 384)), 64770);
  EXPECT_EQ(Acc("onednn2@avx512core", at(384, 192)), 32767);
  EXPECT_EQ(Acc("onednn2@vnni", at(256, 128)), 64770);
}

TEST(ConventionsTest, OneDnnSignedActivations) {
  const auto signed_dot = [](int64_t M, std::vector<int32_t> x, std::vector<int32_t> w) {
    const auto K = static_cast<int64_t>(w.size());
    return Linear(M, 1, K, DType::kS8, std::move(x), DType::kS8, std::move(w), DType::kS8);
  };
  // Shifted to u8: (127+128)*127 twice saturates, -127 does not.
  EXPECT_EQ(Acc("onednn2@avx2", signed_dot(1, {127, 127}, {127, 127})), 255);
  EXPECT_EQ(Acc("onednn2@avx2", signed_dot(1, {-127, -127}, {127, 127})), -32258);
  EXPECT_EQ(Acc("onednn2@vnni", signed_dot(1, {127, 127}, {127, 127})), 32258);
  // A zero point sends sse41 and avx2, not avx512core, to the exact reference gemm.
  Case c = signed_dot(1, {127, 127}, {127, 127});
  c.x_q.zero_point = {3};
  EXPECT_EQ(Acc("onednn2@avx2", c), 32258);
  EXPECT_EQ(Acc("onednn2@sse41", c), 32258);
  EXPECT_EQ(Acc("onednn2@avx512core", c), 255);
  // avx512core, one column, several rows: the weights are shifted (read off the library).
  EXPECT_EQ(Acc("onednn2@avx512core", signed_dot(2, {-127, -127, 0, 0}, {127, 127})), -256);
  EXPECT_EQ(Acc("onednn2@avx512core", signed_dot(2, {-128, -128, 0, 0}, {5, 7})), 0);
  EXPECT_EQ(Acc("onednn2@avx512core", signed_dot(2, {127, 127, 0, 0}, {-128, -128})), -32512);
  EXPECT_EQ(Acc("onednn2@avx2", signed_dot(2, {-127, -127, 0, 0}, {127, 127})), -32258);
}

// Read in oneDNN 2.6.3 (src/cpu/matmul/gemm_x8s8s32x_matmul.cpp, src/cpu/gemm) and off the library.
TEST(ConventionsTest, OneDnnWeightZeroPoints) {
  const auto s32 = [](Case c, int32_t x_zp, int32_t w_zp) {
    c.x_q.zero_point = {x_zp};
    c.w_q.zero_point = {w_zp};
    c.out_dtype = DType::kS32;
    c.out_min = INT32_MIN;
    c.out_max = INT32_MAX;
    return c;
  };
  // Pairs are made of raw codes, then both zero points leave: + 510 - 3*254 - 2*3.
  const Case pair = s32(Dot({255, 255}, {127, 127}), 3, -1);
  EXPECT_EQ(First("onednn2@avx2", pair), 32767 - 258);
  EXPECT_EQ(First("onednn2@avx512core", pair), 32767 - 258);
  EXPECT_EQ(First("onednn2@avx2vnni", pair), 64770 - 258);
  EXPECT_EQ(First("onednn2@vnni", pair), 64770 - 258);
  // A zero point that is no code is taken out afterwards, with u8 codes summed as signed bytes.
  for (const char* convention :
       {"onednn2@sse41", "onednn2@avx2", "onednn2@avx2vnni", "onednn2@avx512core"}) {
    EXPECT_EQ(First(convention, s32(Dot({200}, {1}), 0, 128)), 200 + 128 * 56) << convention;
    EXPECT_EQ(First(convention, s32(Dot({127}, {1}), 0, 128)), 127 - 128 * 127) << convention;
    EXPECT_EQ(First(convention, s32(Dot({200}, {1}), 256, -1)), 200 - 256 - 56 - 256) << convention;
    EXPECT_EQ(First(convention, s32(Dot({200}, {1}), 255, -1)), 200 - 255 + 200 - 255)
        << convention;
  }
  EXPECT_EQ(First("onednn2@vnni", s32(Dot({200}, {1}), 0, 128)), 200 - 128 * 200);
  // The reference gemm takes s8 activations with zero points, unless one of them is no code, and
  // rounds its sums to float32, as brgemm does.
  const Case s8 = Linear(1, 1, 2, DType::kS8, {127, 127}, DType::kS8, {127, 127}, DType::kS8);
  EXPECT_EQ(First("onednn2@avx2", s32(s8, 0, 1)), 2 * 127 * 126);
  EXPECT_EQ(First("onednn2@avx2", s32(s8, 0, 128)), 255 - 128 * 254);
  EXPECT_EQ(First("onednn2@avx512core", s32(s8, 0, 1)), 255 - 254);
  const std::vector<int32_t> many(1089, 127);
  const Case large = Linear(1, 1, 1089, DType::kS8, many, DType::kS8, many, DType::kS8);
  for (const char* convention : {"onednn2@avx2", "onednn2@avx2vnni", "onednn2@vnni"}) {
    EXPECT_EQ(First(convention, s32(large, 0, 1)), 1089 * 127 * 126)
        << convention;  // even, above 2^24
    EXPECT_EQ(First(convention, s32(large, 0, 2)), 1089 * 127 * 125 + 1) << convention;  // odd
  }
  // K = 33026 leaves int32: the reference gemm saturates to 2^31 - 1, which float32 has not.
  const auto depth = int64_t{33026};
  const std::vector<int32_t> low(static_cast<size_t>(depth), -128);
  const Case longest = Linear(1, 1, depth, DType::kS8, low, DType::kS8, low, DType::kS8);
  EXPECT_EQ(First("onednn2@avx2", s32(longest, 127, 127)), INT32_MIN);
  EXPECT_EQ(First("onednn2@avx512core", s32(longest, 127, 127)),
            static_cast<int32_t>(33026u * 65025u));
}

TEST(ConventionsTest, OneDnnS32AndF32Outputs) {
  std::vector<int32_t> x(520, 255), w(520, 127);
  w[518] = 7;
  x[519] = 2;
  w[519] = 1;
  Case c = Dot(x, w);
  c.out_dtype = DType::kS32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  const int32_t sum = 518 * 32385 + 1785 + 2;
  ASSERT_EQ(sum, (1 << 24) + 1);
  EXPECT_EQ(First("onednn2@vnni", c), sum);
  EXPECT_EQ(First("onednn2@avx2vnni", c), sum);
  // Whatever follows the sums goes through float32: for brgemm that includes zero points.
  c.x_q.zero_point = {-1};
  const int32_t shifted = sum + 518 * 127 + 8;
  EXPECT_EQ(First("onednn2@vnni", c), shifted + 1);
  EXPECT_EQ(First("onednn2@avx2vnni", c), shifted);
  c.relu = true;
  EXPECT_EQ(First("onednn2@avx2vnni", c), shifted + 1);

  c = Dot({3}, {5});
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  c.x_q.scale = {0.5f};
  c.w_q.scale = {0.25f};
  c.bias = std::vector<float>{1.0f};
  EXPECT_EQ(Get("onednn2@avx2").run(c).y.FloatAt(0), 2.875f);
  c.x_q.zero_point = {7};
  EXPECT_EQ(Get("onednn2@avx2").run(c).y.FloatAt(0), -1.5f);
  c.relu = true;
  EXPECT_EQ(Get("onednn2@avx2").run(c).y.FloatAt(0), 0.0f);
}

// Seen on a CPU with AMX: one code 2 against weights -1 with zero point 127 in 17 terms is -2 -
// 254, and the bias meets the -2 first.
TEST(ConventionsTest, AmxTilesAddTheBiasBeforeTheZeroPoints) {
  Case c = Linear(12, 22, 17, DType::kU8, std::vector<int32_t>(12 * 17), DType::kS8,
                  std::vector<int32_t>(22 * 17), DType::kF32);
  c.x.SetInt(0, 2);
  c.w.SetInt(0, -1);
  c.w_q.zero_point = {127};
  c.bias = std::vector<float>(22, -0x1.6aefe4p-4f);
  const auto first = [&](std::string_view convention) {
    return Get(convention).run(c).y.FloatAt(0);
  };
  EXPECT_EQ(first("onednn2@vnni"), -0x1.0016aep+8f);
  EXPECT_EQ(first("onednn2@amx"), -0x1.0016bp+8f);
  const Trace trace = Get("onednn2@amx").trace(c, 0);
  EXPECT_TRUE(std::ranges::any_of(
      trace, [](const TraceStep& step) { return step.stage == Stage::kOffset && step.lossy; }));
  // Small products are not worth a tile.
  c = Linear(1, 1, 17, DType::kU8, std::vector<int32_t>(17), DType::kS8, std::vector<int32_t>(17),
             DType::kF32);
  c.x.SetInt(0, 2);
  c.w.SetInt(0, -1);
  c.w_q.zero_point = {127};
  c.bias = std::vector<float>{-0x1.6aefe4p-4f};
  EXPECT_EQ(first("onednn2@amx"), -0x1.0016aep+8f);
}

TEST(ConventionsTest, ZeroPointBeforeOrAfterRounding) {
  // 5 * 0.5 = 2.5 with zero point 1: 2 + 1 against rne(3.5).
  Case c = Dot({5}, {1});
  c.x_q.scale = {0.5f};
  c.out_q.zero_point = {1};
  EXPECT_EQ(First("fbgemm@vnni", c), 3);
  EXPECT_EQ(First("qnnpack", c), 3);
  EXPECT_EQ(First("onnxruntime@vnni", c), 3);
  EXPECT_EQ(First("onednn2@vnni", c), 4);
  EXPECT_EQ(First("onednn3@vnni", c), 4);
}

TEST(ConventionsTest, TiesGoToEvenUpOrAway) {
  const auto half = [](int32_t x, DType dtype) {
    Case c = Linear(1, 1, 1, dtype, {x}, dtype, {1}, dtype);
    c.x_q.scale = {0.5f};
    return c;
  };
  EXPECT_EQ(First("xnnpack@fp32", half(5, DType::kS8)), 2);
  EXPECT_EQ(First("xnnpack@rndnu", half(5, DType::kS8)), 3);
  EXPECT_EQ(First("tflite@double", half(5, DType::kS8)), 3);
  EXPECT_EQ(First("tflite@single", half(5, DType::kS8)), 3);
  EXPECT_EQ(First("xnnpack@fp32", half(-3, DType::kS8)), -2);
  EXPECT_EQ(First("xnnpack@rndnu", half(-3, DType::kS8)), -1);
  EXPECT_EQ(First("tflite@single", half(-3, DType::kS8)), -1);
}

TEST(ConventionsTest, LargeResultsOverflowOnlyWithoutAClampBeforeTheConversion) {
  Case c = Dot({255}, {127});
  c.x_q.scale = {0x1p20f};
  EXPECT_EQ(First("fbgemm@vnni", c), 0);  // INT32_MIN
  EXPECT_EQ(First("qnnpack", c), 0);
  EXPECT_EQ(First("onednn2@vnni", c), 255);
  EXPECT_EQ(First("onnxruntime@vnni", c), 255);
}

TEST(ConventionsTest, BiasRoundsWhereTheFamilyRoundsIt) {
  Case c = Dot({1}, {1});
  c.bias = std::vector<float>{0.5f};
  c.x_q.scale = {1.0f};
  c.out_q.scale = {0.5f};
  EXPECT_EQ(First("qnnpack", c), 2);      // the bias becomes rne(0.5) = 0 accumulator units
  EXPECT_EQ(First("fbgemm@vnni", c), 3);  // (1 + 0.5) * 2
  EXPECT_EQ(First("onednn2@vnni", c), 3);
}

TEST(ConventionsTest, ContractionShowsInThePerTensorBias) {
  // fl(v + b*r) in one rounding against two: v = 1, b*r = 2^-24 + 2^-47 exactly, so that only the
  // fused form sees what lies above the tie.
  Case c = Dot({1}, {1});
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  c.x_q.scale = {1.0f + 0x1p-23f};
  c.bias = std::vector<float>{0x1p-24f};
  const float fused = Get("fbgemm@vnni").run(c).y.FloatAt(0);
  const float split = Get("fbgemm@vnni+nofma").run(c).y.FloatAt(0);
  EXPECT_EQ(fused, std::fma(1.0f, 1.0f + 0x1p-23f, 0x1p-24f));
  EXPECT_EQ(split, (1.0f + 0x1p-23f) + 0x1p-24f);
  c = Dot({3}, {1});
  c.x_q.scale = {3.0f};  // reciprocal 1/3 rounds
  c.out_q.scale = {0x1p-6f};
  for (float bias = 0.001f; bias < 1.0f; bias *= 1.37f) {
    c.bias = std::vector<float>{bias};
    const float product = bias * static_cast<float>(1.0 / 3.0);
    const float scale = 3.0f / 0x1p-6f;
    EXPECT_EQ(Get("fbgemm@vnni+nofma").run(c).y.IntAt(0),
              std::min<int64_t>(255, std::llrint((3.0f + product) * scale)));
  }
}

TEST(ConventionsTest, QuantizeOfWhatIsNoNumber) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto codes = [](std::string_view convention, const Case& c) {
    const Tensor y = Get(convention).run(c).y;
    std::vector<int32_t> result;
    for (int64_t i = 0; i < y.size(); ++i) result.push_back(y.IntAt(i));
    return result;
  };
  using V = std::vector<int32_t>;
  const Case low = Quantize({inf, -inf, nan}, 1.0f, 3, DType::kU8);
  const Case high = Quantize({inf, -inf, nan}, 1.0f, 200, DType::kU8);
  EXPECT_EQ(codes("fbgemm@avx2", low), (V{255, 0, 255}));
  EXPECT_EQ(codes("fbgemm@avx2", high), (V{0, 0, 0}));  // the zero point wraps
  EXPECT_EQ(codes("fbgemm@scalar", high), (V{255, 0, 0}));
  EXPECT_EQ(codes("aten@default", high), (V{0, 0, 0}));
  EXPECT_EQ(codes("aten@aarch64", high), (V{255, 0, 200}));
  EXPECT_EQ(codes("xnnpack@fp32", high), (V{255, 0, 255}));
  EXPECT_EQ(codes("xnnpack@rndnu", high), (V{255, 0, 200}));
  EXPECT_EQ(codes("onnxruntime@vnni", high), (V{255, 0, 0}));
}

TEST(ConventionsTest, QuantizeMultipliesByTheReciprocalOrDivides) {
  // FBGEMM's own example: the product is 127.5, the quotient a little less.
  const Case c = Quantize({0.273939937f}, 0.00214854861f, 0, DType::kU8);
  for (const char* convention : {"fbgemm@avx2", "fbgemm@scalar", "aten@default", "xnnpack@fp32"}) {
    EXPECT_EQ(First(convention, c), 128) << convention;
  }
  EXPECT_EQ(First("onnxruntime@vnni", c), 127);
  EXPECT_EQ(First("tflite@double", c), 127);
}

// code - zero point wraps in int32, and then becomes a float32.
TEST(ConventionsTest, TracesTellWhatADequantizeLoses) {
  const auto last = [](int32_t code, int32_t zero_point) {
    Case c = CaseOver(Op::kDequantize, Tensor(DType::kU8, {1, 1}), DType::kF32);
    c.x.SetInt(0, code);
    c.x_q.zero_point = {zero_point};
    EXPECT_EQ(Validate(c), "");
    EXPECT_EQ(Get("fbgemm@avx2").cannot_run(c), "");
    return Get("fbgemm@avx2").trace(c, 0).back();
  };
  const TraceStep whole = last(0, 16777216);  // 2^24
  EXPECT_EQ(whole.value, "-0x1p+24");
  EXPECT_FALSE(whole.lossy);
  const TraceStep rounded = last(0, 16777217);
  EXPECT_EQ(rounded.value, "-0x1p+24");
  EXPECT_TRUE(rounded.lossy);
  const TraceStep wrapped = last(0, INT32_MIN);  // 2^31
  EXPECT_EQ(wrapped.value, "-0x1p+31");
  EXPECT_TRUE(wrapped.lossy);
}

TEST(ConventionsTest, CasesOutsideAConventionAreRefusedWithAReason) {
  const auto reason = [](std::string_view convention, const Case& c) {
    EXPECT_EQ(Validate(c), "");
    return Get(convention).cannot_run(c);
  };
  Case c = Dot({1}, {1});
  c.w_q.zero_point = {1};
  EXPECT_EQ(reason("onednn2@avx2", c), "");
  EXPECT_EQ(reason("onednn3@avx2", c), "");
  EXPECT_EQ(reason("fbgemm@avx2", c), "");
  c.out_q.zero_point = {256};
  EXPECT_EQ(reason("qnnpack", c), "output zero point must be a code of the output type");
  EXPECT_EQ(reason("fbgemm@avx2", c), "");
  c = Dot({1}, {1});
  c.out_max = 200;
  EXPECT_NE(reason("fbgemm@avx2", c), "");
  EXPECT_EQ(reason("qnnpack", c), "");
  c = Linear(1, 1, 1, DType::kS8, {1}, DType::kS8, {1}, DType::kS8);
  EXPECT_EQ(reason("fbgemm@vnni", c), "activations must be u8");
  EXPECT_EQ(reason("xnnpack@fp32", c), "");
  c.x_q.scale = {256.0f};
  EXPECT_EQ(reason("xnnpack@fp32", c), "the multiplier must lie in [2^-32, 256)");
  c = Dot({1}, {1});
  c.bias_i32 = std::vector<int32_t>{1};
  EXPECT_EQ(reason("onednn2@vnni", c), "the bias must be float");
  c = Dot({1}, {1});
  c.w = Tensor(DType::kS4, {1, 1});
  for (const Convention& each : AllConventions()) {
    if (std::ranges::count(each.ops, Op::kLinear) != 0)
      EXPECT_EQ(reason(each.name, c), "no weights of fewer than 8 bits") << each.name;
  }
  EXPECT_EQ(reason("fbgemm@avx2+acc16", Quantize({1}, 1, 0, DType::kU8)),
            "this convention has no quantize");
}

// Random cases with zero points, bias and per-channel scales, as far as the convention takes them.
Case Random(Rng& rng, const Convention& convention) {
  for (int tries = 0; tries < 200; ++tries) {
    const DType x_dtype = rng.Chance(2, 3) ? DType::kU8 : DType::kS8;
    const DType out_dtype = rng.Chance(1, 5) ? DType::kF32 : x_dtype;
    const DType w_dtype = rng.Chance(1, 8) ? DType::kU8 : DType::kS8;
    const int64_t M = rng.Between(2, 4), N = rng.Between(1, 5), K = rng.Between(2, 40);
    std::vector<int32_t> x(static_cast<size_t>(M * K)), w(static_cast<size_t>(N * K));
    const CodeRange xr = RangeOf(x_dtype), wr = RangeOf(w_dtype);
    for (int32_t& v : x) v = static_cast<int32_t>(rng.Between(xr.min, xr.max));
    for (int32_t& v : w) v = static_cast<int32_t>(rng.Between(wr.min, wr.max));
    Case c = Linear(M, N, K, x_dtype, x, w_dtype, w, out_dtype);
    c.x_q = {{0.0123f}, {static_cast<int32_t>(rng.Between(xr.min, xr.max))}};
    c.w_q.scale = {0.00317f};
    c.w_q.zero_point = {rng.Chance(1, 2) ? 0 : static_cast<int32_t>(rng.Between(wr.min, wr.max))};
    c.out_q.scale = {0.0371f};
    if (rng.Chance(1, 2)) {
      c.bias.emplace(static_cast<size_t>(N));
      for (float& b : *c.bias) b = static_cast<float>(rng.Unit()) - 0.5f;
    }
    if (Validate(c).empty() && convention.cannot_run(c).empty()) return c;
  }
  return {};
}

Case WithOrder(const Case& c, const std::vector<int64_t>& order) {
  Case permuted = c;
  for (size_t k = 0; k < order.size(); ++k) {
    const auto to = static_cast<int64_t>(k);
    for (int64_t m = 0; m < c.M; ++m)
      permuted.x.SetInt(m * c.K + to, c.x.IntAt(m * c.K + order[k]));
    for (int64_t n = 0; n < c.N; ++n)
      permuted.w.SetInt(n * c.K + to, c.w.IntAt(n * c.K + order[k]));
  }
  return permuted;
}

TEST(ConventionsTest, ClaimsHoldOnRandomCases) {
  Rng rng(7);
  int64_t permuted = 0, rows = 0, channels = 0, changed = 0;
  for (const Convention& convention : AllConventions()) {
    const auto claims = [&](const char* claim) {
      return std::count(convention.satisfies.begin(), convention.satisfies.end(), claim) != 0;
    };
    for (int round = 0; round < 40; ++round) {
      const Case c = Random(rng, convention);
      if (c.K == 0) break;  // no linear
      const Tensor y = convention.run(c).y;
      std::vector<int64_t> order(static_cast<size_t>(c.K));
      std::iota(order.begin(), order.end(), int64_t{0});
      std::rotate(order.begin(), order.begin() + 1, order.end());
      const bool same = convention.run(WithOrder(c, order)).y == y;
      if (claims("k_permutation")) {
        EXPECT_TRUE(same) << convention.name;
        ++permuted;
      } else if (!same) {
        ++changed;
      }
      if (claims("row_independence")) {
        Case row = c;
        row.M = 1;
        row.x = Tensor(c.x.dtype(), {1, c.K});
        for (int64_t k = 0; k < c.K; ++k) row.x.SetInt(k, c.x.IntAt((c.M - 1) * c.K + k));
        const Tensor alone = convention.run(row).y;
        for (int64_t n = 0; n < c.N; ++n)
          EXPECT_EQ(alone.BitsAt(n), y.BitsAt((c.M - 1) * c.N + n)) << convention.name;
        ++rows;
      }
      Case per_channel = c;
      per_channel.per_channel = true;
      per_channel.w_q.scale.assign(static_cast<size_t>(c.N), c.w_q.scale[0]);
      per_channel.w_q.zero_point.assign(static_cast<size_t>(c.N), c.w_q.zero_point[0]);
      if (claims("per_channel_equals_per_tensor") && convention.cannot_run(per_channel).empty()) {
        EXPECT_EQ(convention.run(per_channel).y, y) << convention.name;
        ++channels;
      }
    }
  }
  EXPECT_GT(permuted, 200);
  EXPECT_GT(changed, 50) << "pair saturation must show when K is permuted";
  EXPECT_GT(rows, 400);
  EXPECT_GT(channels, 200);
}

TEST(ConventionsTest, EmptyCasesGiveEmptyOutputs) {
  Case c = Linear(0, 3, 4, DType::kU8, {}, DType::kS8, std::vector<int32_t>(12, 1), DType::kU8);
  EXPECT_EQ(Get("fbgemm@avx2").run(c).y.shape(), (std::vector<int64_t>{0, 3}));
  c = Linear(1, 1, 0, DType::kU8, {}, DType::kS8, {}, DType::kU8);
  c.out_q.zero_point = {9};
  EXPECT_EQ(First("fbgemm@avx2", c), 9);
  EXPECT_EQ(First("onednn2@avx2", c), 9);
}

// The three ways to choose on one tensor: whether the floor is 2^-23 or 6.1e-5, and what symmetric
// means, tells them apart.
TEST(ConventionsTest, QParamsAreChosenEachInItsWay) {
  Case c;
  c.op = Op::kChooseQParams;
  c.M = 1;
  c.N = 2;
  c.x = Tensor::Of<float>({1, 1, 2}, std::vector<float>{-0x1p-12f, 0x1p-12f});
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  const auto chosen = [&](std::string_view convention) {
    EXPECT_EQ(Get(convention).cannot_run(c), "");
    const Tensor y = Get(convention).run(c).y;
    const Trace trace = Get(convention).trace(c, 1);
    EXPECT_EQ(trace.back().value, ElementText(y, 1));
    return std::pair{y.FloatAt(0), y.FloatAt(1)};
  };
  EXPECT_EQ(chosen("observers@torch"), (std::pair{0x1p-11f / 255, 127.0f}));  // scale rounded up
  EXPECT_EQ(chosen("observers@aten").first, 6.1e-5f);
  EXPECT_EQ(chosen("observers@fbgemm").first, 6.1e-5f);
  c.x = Tensor::Of<float>({1, 1, 2}, std::vector<float>{-128.0f, 1.0f});
  c.observer.symmetric = true;
  EXPECT_EQ(chosen("observers@torch"), (std::pair{128 / 127.5f, 128.0f}));
  EXPECT_EQ(chosen("observers@fbgemm"), (std::pair{1.0f, 128.0f}));
  EXPECT_EQ(Get("observers@aten").cannot_run(c), "affine only");
  c.observer.symmetric = false;
  EXPECT_EQ(Get("observers@aten").cannot_run(c), "");
  c.observer.reduce_range = true;
  EXPECT_EQ(Get("observers@aten").cannot_run(c), "");
  EXPECT_EQ(Get("onnx@reference").cannot_run(c), "reduce_range is none of its options");
  c.observer.reduce_range = false;
  c.observer.quant_max = 254;
  for (const char* name : {"observers@aten", "onnx@reference"})
    EXPECT_EQ(Get(name).cannot_run(c), "codes 0..255 only");
  c.observer.dtype = DType::kS8;
  c.observer.quant_min = -128;
  c.observer.quant_max = 127;
  ASSERT_EQ(Validate(c), "");
  EXPECT_EQ(Get("observers@aten").cannot_run(c), "codes 0..255 only");
  c.observer.kind = Observer::Kind::kHistogram;
  EXPECT_EQ(Get("observers@fbgemm").cannot_run(c), "min_max only");
}

// Or a contract that names the convention would be green where nothing judged.
TEST(Conventions, SatisfyNothingOfAnOperationThatTheyLack) {
  int lacking = 0;
  for (const Convention& convention : AllConventions()) {
    for (const Op op : AllOps()) {
      if (std::ranges::count(convention.ops, op) != 0) continue;
      ++lacking;
      for (const char* claim : {"matches_exact", "value_permutation", "commutes"})
        EXPECT_FALSE(Satisfies(convention, op, claim)) << convention.name << " " << Name(op);
    }
  }
  EXPECT_GT(lacking, 500);
}

}  // namespace
}  // namespace qualm
