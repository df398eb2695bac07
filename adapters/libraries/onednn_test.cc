// SPDX-License-Identifier: Apache-2.0
// oneDNN under a forced instruction set: the saturating pair sum is there on AVX2 and SSE4.1 and is
// not with VNNI and AMX, and its outputs are those of PyTorch's arithmetic.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"
#include "adapters/qualm_plugin.h"
#include "core/status.h"

namespace qualm {
namespace {

class Onednn : public testing::Test {
 protected:
  void SetUp() override {
    RegisterLibraries();
    if (FindModule("qualm_onednn.so").empty())
      GTEST_SKIP() << "this build has no oneDNN: install libdnnl-dev (2.x or 3.7)";
  }

  // nullptr, with the reason printed, where this CPU lacks the instruction set.
  static std::unique_ptr<Subject> Make(const std::string& name) {
    try {
      return SubjectRegistry::Get().Make(name);
    } catch (const Unavailable& error) {
      GTEST_LOG_(WARNING) << "not checked here: " << error.what();
      return nullptr;
    }
  }
};

bool IsVersion2(const Subject& subject) { return subject.Version().starts_with("oneDNN 2."); }

constexpr const char* kEvery[] = {"onednn",          "onednn@sse41",      "onednn@avx2",
                                  "onednn@avx2vnni", "onednn@avx512core", "onednn@vnni",
                                  "onednn@amx"};

// A subject with the instruction set that the library chooses. Where no convention describes that
// one, the first other subject that can be made.
std::unique_ptr<Subject> MakeAny() {
  for (const char* name : kEvery) {
    try {
      return SubjectRegistry::Get().Make(name);
    } catch (const Unavailable&) {
    }
  }
  return nullptr;
}

// VNNI and AMX do; their predecessors add products in saturating pairs.
bool AddsExactly(const Subject& subject) {
  return subject.InstructionSet().ends_with("vnni") || subject.InstructionSet() == "amx";
}

Case Constant(int64_t depth, uint8_t x, int8_t w) {
  Case c;
  c.op = Op::kLinear;
  c.M = 1;
  c.N = 3;
  c.K = depth;
  c.x = Tensor::Of<uint8_t>({1, depth}, std::vector<uint8_t>(static_cast<size_t>(depth), x));
  c.w = Tensor::Of<int8_t>({3, depth}, std::vector<int8_t>(static_cast<size_t>(3 * depth), w));
  c.out_dtype = DType::kS32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  return c;
}

void ExpectAll(Subject& subject, const Case& c, int32_t want) {
  RunContext context;
  context.want_acc = true;
  const Outcome outcome = subject.Run(c, context);
  ASSERT_TRUE(outcome.ok()) << subject.name() << ": " << outcome.detail;
  ASSERT_TRUE(outcome.acc.has_value());
  for (int64_t n = 0; n < c.N; ++n) {
    EXPECT_EQ(outcome.y.IntAt(n), want) << subject.name();
    EXPECT_EQ(outcome.acc->IntAt(n), want) << subject.name();
  }
}

// 255*127 twice is 64770 > 32767: 32 pairs give 32*32767 instead of 64*32385.
TEST_F(Onednn, PairsSaturateWithoutVnniAndOnlyThere) {
  int checked = 0;
  for (const char* name : kEvery) {
    const std::unique_ptr<Subject> subject = Make(name);
    if (subject == nullptr) continue;
    const bool vnni = AddsExactly(*subject);
    const std::string_view model = IsVersion2(*subject) ? "model:onednn2@" : "model:onednn3@";
    EXPECT_EQ(subject->contract().text(), model.data() + subject->InstructionSet());
    if (!IsVersion2(*subject)) EXPECT_EQ(subject->Version().substr(0, 11), "oneDNN 3.7.");
    ExpectAll(*subject, Constant(64, 255, 127), vnni ? 2072640 : 1048544);
    ExpectAll(*subject, Constant(64, 255, -128), vnni ? -2088960 : 32 * -32768);
    ExpectAll(*subject, Constant(1, 255, 127), 32385);            // a pair of one cannot
    ExpectAll(*subject, Constant(64, 127, 127), 64 * 127 * 127);  // reduce_range cannot either
    ++checked;
  }
  EXPECT_GE(checked, 2) << "neither the default nor any forced instruction set works";
}

// Bias, scales and zero points as PyTorch passes them, with values that float32 holds exactly:
// (acc + bias) * 2^-3 + 10, half to even after the zero point has been added, then the clamp.
TEST_F(Onednn, OutputsRoundAfterTheZeroPoint) {
  const std::unique_ptr<Subject> subject = MakeAny();
  ASSERT_NE(subject, nullptr);
  Case c;
  c.op = Op::kLinear;
  c.M = 2;
  c.N = 2;
  c.K = 2;
  c.x = Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{3, 7, 250, 3});
  c.w = Tensor::Of<int8_t>({2, 2}, std::vector<int8_t>{4, 1, -4, 3});
  c.x_q = {.scale = {0.5f}, .zero_point = {3}};
  c.w_q = {.scale = {0.25f, 0.25f}, .zero_point = {0, 0}};
  c.per_channel = true;
  c.bias = std::vector<float>{1.0f, 0.0f};
  c.out_q = {.scale = {1.0f}, .zero_point = {11}};
  // Accumulators: row 0 {4, 12}, row 1 {988, -988}; bias in their units {8, 0}; times 1/8:
  // {1.5, 1.5}, {124.5, -123.5}. Plus 11: 12.5 -> 12 (rounding first would give 13), 135.5 -> 136
  // (135), -112.5 -> 0.
  for (const int64_t gap : {0, 3}) {
    RunContext context;
    context.x_row_gap = gap;
    context.y_row_gap = gap;
    const Outcome outcome = subject->Run(c, context);
    ASSERT_TRUE(outcome.ok()) << outcome.detail;
    EXPECT_EQ(outcome.y, Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{12, 12, 136, 0}));
  }
  c.relu = true;
  EXPECT_EQ(subject->Run(c, {}).y,
            Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{12, 12, 136, 11}));
  c.relu = false;
  c.out_dtype = DType::kS8;
  c.out_min = -128;
  c.out_max = 127;
  EXPECT_EQ(subject->Run(c, {}).y,
            Tensor::Of<int8_t>({2, 2}, std::vector<int8_t>{12, 12, 127, -112}));
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  EXPECT_EQ(subject->Run(c, {}).y,
            Tensor::Of<float>({2, 2}, std::vector<float>{1.5f, 1.5f, 124.5f, -123.5f}));
}

// The weight zero point is taken out of sums that saturate on raw codes: 2*255*127 = 64770 or
// 32767, minus zw*sum x = -1*510 and zx*sum w = 3*254, plus K*zx*zw = 2*3*-1.
TEST_F(Onednn, WeightZeroPointsAreTakenOutOfRawPairs) {
  for (const char* name : kEvery) {
    const std::unique_ptr<Subject> subject = Make(name);
    if (subject == nullptr) continue;
    const bool vnni = AddsExactly(*subject);
    Case c = Constant(2, 255, 127);
    c.x_q.zero_point = {3};
    c.w_q.zero_point = {-1};
    RunContext context;
    context.want_acc = true;
    const Outcome outcome = subject->Run(c, context);
    ASSERT_TRUE(outcome.ok()) << name << ": " << outcome.detail;
    ASSERT_TRUE(outcome.acc.has_value());
    const int32_t raw = vnni ? 64770 : 32767;
    EXPECT_EQ(outcome.acc->IntAt(0), raw) << name;
    EXPECT_EQ(outcome.y.IntAt(0), raw + 510 - 762 - 6) << name;
  }
}

// A weight zero point that is no code makes the matmul sum the rows of x itself. 2.6 then reads the
// u8 codes as signed bytes.
TEST_F(Onednn, RowsAreSummedAsSignedBytesWhereAZeroPointIsNoCode) {
  for (const char* name : {"onednn@sse41", "onednn@avx2"}) {
    const std::unique_ptr<Subject> subject = Make(name);
    if (subject == nullptr) continue;
    Case c = Constant(1, 200, 1);
    c.w_q.zero_point = {128};
    const Outcome outcome = subject->Run(c, {});
    ASSERT_TRUE(outcome.ok()) << name << ": " << outcome.detail;
    const int32_t sum = IsVersion2(*subject) ? 200 - 256 : 200;
    EXPECT_EQ(outcome.y.IntAt(0), 200 - 128 * sum) << name;
  }
}

// s8 activations with a zero point: the reference gemm saturates to 2^31 - 1 and then converts
// through float32, which makes it INT32_MIN.
TEST_F(Onednn, TheReferenceGemmOverflowsToTheOtherEnd) {
  const std::unique_ptr<Subject> subject = Make("onednn@avx2");
  if (subject == nullptr) GTEST_SKIP() << "this CPU has no AVX2";
  Case c = Constant(33026, 0, -128);
  c.x = Tensor::Of<int8_t>({1, c.K}, std::vector<int8_t>(static_cast<size_t>(c.K), -128));
  c.x_q.zero_point = {127};
  c.w_q.zero_point = {127};
  const Outcome outcome = subject->Run(c, {});
  ASSERT_TRUE(outcome.ok()) << outcome.detail;
  EXPECT_EQ(outcome.y.IntAt(0), INT32_MIN);  // 33026 * 255 * 255 is 2^31 + 32002
}

TEST_F(Onednn, EveryShapeKeepsToItsBuffers) {
  for (const char* name : {"onednn", "onednn@avx2"}) {
    const std::unique_ptr<Subject> subject = Make(name);
    if (subject == nullptr) continue;
    for (const int64_t m : {1, 2, 5, 17}) {
      for (const int64_t k : {1, 3, 4, 15, 16, 31, 33, 65}) {
        for (const bool end_at_guard : {true, false}) {
          Case c = Constant(k, 3, -2);
          c.M = m;
          c.x = Tensor::Of<uint8_t>({m, k}, std::vector<uint8_t>(static_cast<size_t>(m * k), 3));
          RunContext context;
          context.end_at_guard = end_at_guard;
          context.align_offset = 1;
          const Outcome outcome = subject->Run(c, context);
          ASSERT_TRUE(outcome.ok()) << name << " M=" << m << " K=" << k << ": " << outcome.detail;
          EXPECT_EQ(outcome.y.IntAt(outcome.y.size() - 1), -6 * k);
        }
      }
    }
  }
}

// One image, unit scales, x and w constant, s32 outputs.
Case Image(DType x_dtype, int64_t height, int64_t width, int64_t in_c, int64_t out_c,
           int64_t groups, int32_t x, int32_t w) {
  Case c;
  c.op = Op::kConv2d;
  c.window.batch = 1;
  c.window.in_h = c.window.kernel_h = height;
  c.window.in_w = c.window.kernel_w = width;
  c.window.in_c = in_c;
  c.window.groups = groups;
  c.N = out_c;
  c.x = Tensor(x_dtype, {1, height, width, in_c});
  c.w = Tensor(DType::kS8, {out_c, height, width, in_c / groups});
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, x);
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, w);
  c.out_dtype = DType::kS32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  DeriveSizes(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

void ExpectFirst(Subject& subject, const Case& c, int32_t want) {
  const Outcome outcome = subject.Run(c, {});
  ASSERT_TRUE(outcome.ok()) << subject.name() << ": " << outcome.detail;
  EXPECT_EQ(outcome.y.IntAt(0), want) << subject.name();
}

void ExpectSkipped(Subject& subject, const Case& c, std::string_view why) {
  const Outcome outcome = subject.Run(c, {});
  EXPECT_EQ(outcome.status, RunStatus::kSkipped) << subject.name();
  EXPECT_EQ(outcome.detail, why) << subject.name();
}

// 255*127 = 32385. Channels of a tap make pairs, taps do not; s8 weights of 3 become 2*rne(1.5).
TEST_F(Onednn, ConvolutionsPairTheChannelsOfATap) {
  int checked = 0;
  for (const char* name : kEvery) {
    const std::unique_ptr<Subject> subject = Make(name);
    if (subject == nullptr) continue;
    const bool exact = AddsExactly(*subject);
    ExpectFirst(*subject, Image(DType::kU8, 1, 1, 2, 1, 1, 255, 127), exact ? 2 * 32385 : 32767);
    ExpectFirst(*subject, Image(DType::kU8, 2, 2, 3, 1, 1, 255, 127),
                exact ? 12 * 32385 : 4 * (32767 + 32385));
    const Case channel = Image(DType::kU8, 2, 2, 1, 1, 1, 255, 127);
    if (IsVersion2(*subject) || subject->InstructionSet() != "avx512core")
      ExpectFirst(*subject, channel, 4 * 32385);
    else
      ExpectSkipped(*subject, channel,
                    "oneDNN 3.7 pairs taps of one channel only where the CPU has VBMI");
    ExpectFirst(*subject, Image(DType::kU8, 3, 3, 16, 16, 16, 255, 127), 9 * 32385);
    ExpectFirst(*subject, Image(DType::kS8, 2, 2, 4, 1, 1, 100, 3), 16 * 100 * (exact ? 3 : 4));
    Case padded = Image(DType::kU8, 2, 2, 3, 1, 1, 7, 5);
    padded.x_q.zero_point = {7};
    padded.window.pad_top = padded.window.pad_right = 1;
    DeriveSizes(&padded);
    ExpectFirst(*subject, padded, 0);  // the padding is real 0, not code 0
    ++checked;
  }
  EXPECT_GE(checked, 2) << "neither the default nor any forced instruction set works";
}

// corpus/regressions/depthwise-zero-point-lost: 8 groups by 8 taps, where weights are transposed in
// tiles of 8 by 8.
TEST_F(Onednn, TheZeroPointStaysInTransposedDepthwiseWeights) {
  for (const char* name : {"onednn@avx2", "onednn@avx2vnni", "onednn@sse41"}) {
    const std::unique_ptr<Subject> subject = Make(name);
    if (subject == nullptr) continue;
    // Of version 3 no convention describes AVX2_VNNI, and it does not always lose them.
    if (name == std::string_view("onednn@avx2vnni") && !IsVersion2(*subject)) continue;
    for (const int64_t groups : {7, 8, 16}) {
      Case c = Image(DType::kU8, 2, 4, groups, groups, groups, 1, 1);
      c.x_q.zero_point = {1};
      const bool lost = groups % 8 == 0 && name != std::string_view("onednn@sse41");
      ExpectFirst(*subject, c, lost ? 8 : 0);
    }
  }
}

TEST_F(Onednn, ConvolutionsThatNoConventionDescribesAreSkipped) {
  const std::unique_ptr<Subject> sse41 = Make("onednn@sse41");
  if (sse41 != nullptr) {
    const Case c = Image(DType::kS8, 3, 3, 4, 4, 4, 1, 2);
    if (IsVersion2(*sse41))
      ExpectSkipped(*sse41, c, "oneDNN 2.6 without VNNI is wrong for depthwise s8 activations");
    else
      ExpectFirst(*sse41, c, 18);
  }
  const std::unique_ptr<Subject> gemm = Make("onednn@avx512core");
  if (gemm == nullptr) GTEST_SKIP() << "this CPU has no AVX-512";
  // 8 channels by 8 terms, none of them a block of 4: im2col and gemm.
  Case c = Image(DType::kU8, 1, 1, 32, 8, 4, 2, 1);
  ExpectFirst(*gemm, c, 16);
  c.x_q.zero_point = {1};
  if (IsVersion2(*gemm))
    ExpectSkipped(*gemm, c,
                  "oneDNN 2.6 loses the compensation of these weights in its jit:uni reorder");
  else
    ExpectFirst(*gemm, c, 8);
  c = Image(DType::kU8, 1, 1, 36, 8, 4, 2, 1);
  c.x_q.zero_point = {1};
  ExpectFirst(*gemm, c, 9);
}

// Two cases that tear down a worker with AMX if they are tried, and are answered elsewhere.
TEST_F(Onednn, WindowsWhollyInThePaddingAreNotAskedOfTiles) {
  Case crash = Image(DType::kU8, 1, 3, 5, 1, 1, 1, 1);
  crash.window.in_h = 6;
  crash.x = Tensor(DType::kU8, {1, 6, 3, 5});
  crash.window.stride_h = 2;
  crash.window.pad_bottom = 1;
  DeriveSizes(&crash);
  Case stray = Image(DType::kU8, 2, 1, 16, 1, 1, 1, 1);
  stray.window.in_w = 9;
  stray.x = Tensor(DType::kU8, {1, 2, 9, 16});
  stray.x_q.zero_point = {1};
  stray.window.dilation_h = stray.window.pad_top = stray.window.pad_bottom = 5;
  DeriveSizes(&stray);
  for (const char* name : kEvery) {
    const std::unique_ptr<Subject> subject = Make(name);
    if (subject == nullptr) continue;
    for (const Case& c : {crash, stray}) {
      ASSERT_EQ(Validate(c), "");
      const Outcome outcome = subject->Run(c, {});
      if (!IsVersion2(*subject) && subject->InstructionSet() != "sse41" &&
          subject->InstructionSet() != "avx2") {
        EXPECT_EQ(outcome.detail, "oneDNN 3.7 fails where a window lies wholly in the padding");
        continue;
      }
      if (subject->InstructionSet() != "amx") {
        ASSERT_TRUE(outcome.ok()) << name << ": " << outcome.detail;
        EXPECT_EQ(outcome.y.IntAt(outcome.y.size() / 2), 0) << name;
        continue;
      }
      EXPECT_EQ(outcome.status, RunStatus::kSkipped);
      EXPECT_EQ(outcome.detail,
                c.x_q.zero_point_at(0) == 0
                    ? "oneDNN 2.6 on AMX fails where a window lies wholly in the padding"
                    : "oneDNN 2.6 on AMX writes beyond y where a window is larger than the image");
    }
  }
}

// One channel, one window to a row, a stride: the sums of the second row are those of other pixels.
TEST_F(Onednn, OneChannelAndOneWindowToARowAreNotAskedOfBrgconv3) {
  const std::unique_ptr<Subject> vnni = Make("onednn@vnni");
  if (vnni == nullptr) GTEST_SKIP() << "this CPU has no AVX-512 VNNI";
  Case c = Image(DType::kU8, 1, 2, 1, 1, 1, 3, 2);
  c.window.in_h = 2;
  c.x = Tensor(DType::kU8, {1, 2, 2, 1});
  for (int64_t i = 0; i < 4; ++i) c.x.SetInt(i, 3);
  c.window.stride_w = 2;
  DeriveSizes(&c);
  ASSERT_EQ(Validate(c), "");
  if (IsVersion2(*vnni))
    ExpectFirst(*vnni, c, 12);
  else
    ExpectSkipped(*vnni, c, "oneDNN 3.7 mixes rows up where one channel and one window fill a row");
}

// 3.7 writes a column of outputs as if its rows were dense.
TEST_F(Onednn, AColumnWithGapsIsNotAskedOfVersion3) {
  const std::unique_ptr<Subject> subject = MakeAny();
  ASSERT_NE(subject, nullptr);
  Case c = Constant(4, 1, 1);
  c.M = 2;
  c.N = 1;
  c.x = Tensor::Of<uint8_t>({2, 4}, std::vector<uint8_t>(8, 1));
  c.w = Tensor::Of<int8_t>({1, 4}, std::vector<int8_t>(4, 1));
  ExpectFirst(*subject, c, 4);
  RunContext context;
  context.y_row_gap = 1;
  const Outcome outcome = subject->Run(c, context);
  if (IsVersion2(*subject)) {
    EXPECT_EQ(outcome.y.IntAt(1), 4);
  } else {
    EXPECT_EQ(outcome.detail,
              "oneDNN 3.7 writes a column of outputs without the gaps between its rows");
  }
}

// Two groups with 12 input and 4 output channels run on the jit kernel for 1x1 windows, which
// subtracts zero points in float32 and so rounds 12*(7 - 2^27).
TEST_F(Onednn, GroupedOneByOneSumsThatMayRoundAreSkipped) {
  const std::unique_ptr<Subject> vnni = Make("onednn@vnni");
  if (vnni == nullptr) GTEST_SKIP() << "this CPU has no AVX-512 VNNI";
  Case c = Image(DType::kU8, 1, 1, 24, 8, 2, 7, 1);
  c.x_q.zero_point = {3};
  ExpectFirst(*vnni, c, 48);
  c.x_q.zero_point = {1 << 27};
  const Outcome outcome = vnni->Run(c, {});
  EXPECT_EQ(outcome.status, RunStatus::kSkipped);
  EXPECT_EQ(outcome.detail, "oneDNN rounds the zero points of some grouped 1x1 convolutions");
}

// Everything through the reorder and binary primitives; zero points are added before rounding.
TEST_F(Onednn, ReordersAndBinaries) {
  for (const char* name : kEvery) {
    const std::unique_ptr<Subject> subject = Make(name);
    if (subject == nullptr) continue;
    Case c;
    c.op = Op::kQuantize;
    c.M = 1;
    c.N = 3;
    c.x = Tensor::Of<float>({1, 3}, std::vector<float>{2.5f, -1000.0f, 1e30f});
    c.out_q = {{1.0f}, {1}};
    EXPECT_EQ(subject->Run(c, {}).y, Tensor::Of<uint8_t>({1, 3}, std::vector<uint8_t>{4, 0, 255}))
        << name;
    c.op = Op::kRequantize;
    c.x = Tensor::Of<int32_t>({1, 3}, std::vector<int32_t>{5, -7, 1 << 30});
    c.multiplier = {0.5f};
    EXPECT_EQ(subject->Run(c, {}).y, Tensor::Of<uint8_t>({1, 3}, std::vector<uint8_t>{4, 0, 255}))
        << name;
    c = {};
    c.op = Op::kDequantize;
    c.M = 1;
    c.N = 2;
    c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{3, 250});
    c.x_q = {{0.25f}, {7}};
    c.out_dtype = DType::kF32;
    c.out_min = INT32_MIN;
    c.out_max = INT32_MAX;
    EXPECT_EQ(subject->Run(c, {}).y, Tensor::Of<float>({1, 2}, std::vector<float>{-1.0f, 60.75f}))
        << name;
    c = {};
    c.op = Op::kAdd;
    c.M = 1;
    c.N = 2;
    c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{3, 250});
    c.w = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{2, 8});
    c.out_q.scale = {2.0f};
    EXPECT_EQ(subject->Run(c, {}).y, Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{2, 129}))
        << name;
    c.op = Op::kMul;
    EXPECT_EQ(subject->Run(c, {}).y, Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{3, 255}))
        << name;
    c.x_q.zero_point = {1};
    EXPECT_EQ(subject->CannotRun(c), "oneDNN does not offer x: zero point 1 is outside 0");
  }
}

TEST_F(Onednn, PoolsWorkOnCodes) {
  for (const char* name : kEvery) {
    const std::unique_ptr<Subject> subject = Make(name);
    if (subject == nullptr) continue;
    Case c;
    c.op = Op::kMaxPool;
    c.window.batch = c.window.in_h = 1;
    c.window.in_w = c.window.kernel_w = 3;
    c.window.in_c = 2;
    c.x = Tensor::Of<uint8_t>({1, 1, 3, 2}, std::vector<uint8_t>{7, 1, 3, 200, 100, 0});
    c.x_q = c.out_q = {{0.5f}, {9}};
    DeriveSizes(&c);
    ASSERT_EQ(Validate(c), "");
    EXPECT_EQ(subject->Run(c, {}).y,
              Tensor::Of<uint8_t>({1, 1, 1, 2}, std::vector<uint8_t>{100, 200}))
        << name;
    c.op = Op::kAvgPool;  // 110/3, 201/3
    EXPECT_EQ(subject->Run(c, {}).y,
              Tensor::Of<uint8_t>({1, 1, 1, 2}, std::vector<uint8_t>{37, 67}))
        << name;
    c.op = Op::kGlobalAvgPool;
    EXPECT_EQ(subject->Run(c, {}).y,
              Tensor::Of<uint8_t>({1, 1, 1, 2}, std::vector<uint8_t>{37, 67}))
        << name;
    c.out_q.scale = {1.0f};
    const Outcome outcome = subject->Run(c, {});
    EXPECT_EQ(outcome.status, RunStatus::kSkipped);
    EXPECT_EQ(outcome.detail, "oneDNN pools codes: input and output must share type and scale");
  }
}

TEST_F(Onednn, WhatItCannotDoIsSkippedWithTheReason) {
  const std::unique_ptr<Subject> subject = MakeAny();
  ASSERT_NE(subject, nullptr);
  Case c = Constant(4, 1, 1);
  EXPECT_EQ(subject->CannotRun(c), "");
  c.w_q.zero_point = {INT32_MIN};  // "given at run time" to oneDNN
  EXPECT_EQ(subject->CannotRun(c),
            "oneDNN does not offer w: zero point -2147483648 is outside -2147483647 to 2147483647");
  c.per_channel = true;
  c.w_q = {.scale = {1, 1, 1}, .zero_point = {3, 3, 4}};
  EXPECT_EQ(subject->CannotRun(c), "");
  const Outcome outcome = subject->Run(c, {});
  EXPECT_EQ(outcome.status, RunStatus::kSkipped);
  EXPECT_EQ(outcome.detail, "oneDNN has one zero point for all weights, not one per channel");
  c.w_q.zero_point = {3, 3, 3};
  EXPECT_EQ(subject->Run(c, {}).y.IntAt(2), 4 * (1 - 3));
  c = Constant(4, 1, 1);
  c.bias_i32 = std::vector<int32_t>{1, 2, 3};
  EXPECT_EQ(subject->CannotRun(c), "oneDNN does not offer int32 bias");
  EXPECT_EQ(subject->CannotRun(Constant(0, 1, 1)), "oneDNN does not offer K = 0");
  EXPECT_THROW(SubjectRegistry::Get().Make("onednn@neon"), InputError);
}

// The number of kept primitives changes no answer, only the speed. So the test asks the library for
// the number, in this process.
TEST_F(Onednn, FewPrimitivesAreKeptUnlessTheEnvironmentSaysHowMany) {
  void* const plugin = dlopen(FindModule("qualm_onednn.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(plugin, nullptr) << dlerror();
  const auto entry =
      reinterpret_cast<decltype(&qualm_plugin_entry)>(dlsym(plugin, "qualm_plugin_entry"));
  const auto capacity =
      reinterpret_cast<int (*)(int*)>(dlsym(plugin, "dnnl_get_primitive_cache_capacity"));
  ASSERT_NE(entry, nullptr);
  ASSERT_NE(capacity, nullptr);
  const auto kept = [&] {
    EXPECT_NE(entry(), nullptr);
    int count = -1;
    EXPECT_EQ(capacity(&count), 0);
    return count;
  };
  setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7", 1);
  EXPECT_EQ(kept(), 7);
  unsetenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY");
  EXPECT_EQ(kept(), 64);
}

}  // namespace
}  // namespace qualm
