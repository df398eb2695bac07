// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime on this processor: its name and version, its recordings once more, and drawn cases
// under its contract.
#include "properties/gen/gen.h"
#include "tools/onnxruntime_test_util.h"

namespace qualm {
namespace {

const std::vector<Op> kOps{Op::kQuantize,  Op::kDequantize,    Op::kLinear, Op::kConv2d,
                           Op::kDepthwise, Op::kAdd,           Op::kMul,    Op::kMaxPool,
                           Op::kAvgPool,   Op::kGlobalAvgPool, Op::kConcat, Op::kTable,
                           Op::kSoftmax,   Op::kDynamicLinear};

class Onnxruntime : public OnnxruntimeTest {
 protected:
  Onnxruntime() : OnnxruntimeTest("onnxruntime") {}
};

TEST_F(Onnxruntime, SaysWhoItIs) {
  EXPECT_EQ(subject().Version(), "ONNX Runtime 1.30.0");
  EXPECT_EQ(subject().contract().convention, "onnxruntime@" + InstructionSet());
}

TEST_F(Onnxruntime, PairsSaturateWithoutVnni) {
  EXPECT_EQ(Pair(), InstructionSet() == "avx2" ? 32767 : 32893);
}

TEST_F(Onnxruntime, RepeatsItsRecordings) {
  const std::string isa = InstructionSet() == "vnni"   ? "vnni-native"
                          : InstructionSet() == "avx2" ? "avx2-qemu-haswell"
                                                       : "sse41-qemu-nehalem";
  ExpectRecordings(isa, 80);
}

TEST_F(Onnxruntime, DrawnCasesKeepTheContract) { ExpectContract(kOps, 100, 5); }

class OnnxruntimeConstant : public OnnxruntimeTest {
 protected:
  OnnxruntimeConstant() : OnnxruntimeTest("onnxruntime@constant") {}
};

// Packed weights and the kernels for symmetric ones are other code with the same arithmetic.
TEST_F(OnnxruntimeConstant, WeightsOfTheModelGiveTheSame) {
  EXPECT_EQ(Pair(), InstructionSet() == "avx2" ? 32767 : 32893);
  ExpectContract({Op::kLinear, Op::kConv2d, Op::kDepthwise}, 120, 3);
}

// The wheel is a later release with the same arithmetic, but for what adapters/contracts.cc
// declares.
class OnnxruntimeWheel : public OnnxruntimeTest {
 protected:
  OnnxruntimeWheel() : OnnxruntimeTest("onnxruntime-py") {}
};

TEST_F(OnnxruntimeWheel, KeepsTheRecordingsAndTheContract) {
  EXPECT_EQ(subject().Version().find("ONNX Runtime 1."), 0u) << subject().Version();
  EXPECT_EQ(subject().contract(Op::kLinear).convention, "onnxruntime@" + InstructionSet());
  EXPECT_EQ(Pair(), InstructionSet() == "avx2" ? 32767 : 32893);
  if (InstructionSet() == "vnni") ExpectRecordings("vnni-native", 80);
  ExpectContract(kOps, 100, 5);
}

// Cast to float8, whose bytes NumPy does not know.
TEST_F(OnnxruntimeWheel, CastsAsItsConvention) {
  EXPECT_EQ(subject().contract(Op::kCast).convention, "onnxruntime1.30-cast");
  ExpectContract({Op::kCast}, 300, 3);
}

// QuantizeLinear makes quotients in float32: the first two lie on a tie there, and beside it in the
// real numbers. DequantizeLinear rounds the product once.
TEST_F(OnnxruntimeWheel, QuantizesToFloat8ByAFloat32Quotient) {
  const std::vector<float> x{0x1.b33334p-6f, 0x1.e66666p-6f, 1.5f};
  Case c = CaseOver(Op::kCast, Tensor::Of<float>({1, 3}, x), DType::kF8E4M3FN);
  c.overflow = FloatOverflow::kSaturate;
  c.out_q.scale = {0.1f};
  const Outcome quantized = subject().Run(c, {});
  ASSERT_TRUE(quantized.ok()) << quantized.detail;
  EXPECT_EQ(quantized.y.ValueAt(0), 0.25);
  EXPECT_EQ(quantized.y.ValueAt(1), 0.3125);
  EXPECT_EQ(quantized.y.ValueAt(2), 15);
  Case back = CaseOver(Op::kCast, quantized.y, DType::kF32);
  back.x_q.scale = {0.1f};
  const Outcome dequantized = subject().Run(back, {});
  ASSERT_TRUE(dequantized.ok()) << dequantized.detail;
  EXPECT_EQ(dequantized.y.FloatAt(2), 15 * 0.1f);
}

class OnnxruntimeWheelConstant : public OnnxruntimeTest {
 protected:
  OnnxruntimeWheelConstant() : OnnxruntimeTest("onnxruntime-py@constant") {}
};

TEST_F(OnnxruntimeWheelConstant, WeightsOfTheModelGiveTheSame) {
  ExpectContract({Op::kLinear, Op::kConv2d, Op::kDepthwise}, 120, 3);
}

// The npm package onnxruntime-web: WebAssembly, the same on every processor.
class OnnxruntimeWeb : public OnnxruntimeTest {
 protected:
  OnnxruntimeWeb() : OnnxruntimeTest("onnxruntime-web") {}
};

TEST_F(OnnxruntimeWeb, KeepsTheContract) {
  EXPECT_EQ(subject().Version(), "ONNX Runtime 1.30.0");
  EXPECT_EQ(subject().contract().convention, "onnxruntime@wasm");
  EXPECT_EQ(Pair(), 32893);
  std::vector<Op> ops = kOps;
  ops.push_back(Op::kChooseQParams);
  qualm::ExpectContract({.subject = "onnxruntime-web", .ops = ops, .cases = 100, .judged = 30});
  qualm::ExpectContract({.subject = "onnxruntime-web@constant",
                         .ops = {Op::kLinear, Op::kConv2d, Op::kDepthwise},
                         .cases = 60,
                         .judged = 30});
}

// A chain of rounded products, as the tree of known_trees.cc says.
TEST_F(OnnxruntimeWeb, SumsFloatsInSomeOrder) {
  for (const char* const name : {"onnxruntime-web@nbits", "onnxruntime-web@constant+nbits"})
    qualm::ExpectContract({.subject = name, .ops = {Op::kLinear}, .cases = 300, .judged = 150});
}

// MatMulNBits, its weights as an input and as part of the model: sums in float32, of f32 x alone.
class OnnxruntimeNBits : public OnnxruntimeTest {
 protected:
  OnnxruntimeNBits() : OnnxruntimeTest("onnxruntime-py@nbits") {}
};

TEST_F(OnnxruntimeNBits, SumsFloatsInSomeOrder) {
  EXPECT_EQ(subject().contract().text(), "sum");
  EXPECT_NE(subject().CannotRun(gen::Draw(Op::kLinear, 1)), "");
  for (const char* const name : {"onnxruntime-py@nbits", "onnxruntime-py@constant+nbits"})
    qualm::ExpectContract({.subject = name, .ops = {Op::kLinear}, .cases = 300, .judged = 150});
}

// DynamicQuantizeMatMul: the arithmetic of the nodes that it stands for.
class OnnxruntimeFused : public OnnxruntimeTest {
 protected:
  OnnxruntimeFused() : OnnxruntimeTest("onnxruntime-py@fused") {}
};

TEST_F(OnnxruntimeFused, ComputesAsTheNodesThatItStandsFor) {
  EXPECT_EQ(subject().contract(Op::kDynamicLinear).convention, "onnxruntime@" + InstructionSet());
  EXPECT_NE(subject().CannotRun(gen::Draw(Op::kLinear, 1)), "");
  for (const char* const name : {"onnxruntime-py@fused", "onnxruntime-py@constant+fused"})
    qualm::ExpectContract(
        {.subject = name, .ops = {Op::kDynamicLinear}, .cases = 300, .judged = 150});
}

// At accuracy level 4 it makes codes of x itself: it is given reals that have these codes.
class OnnxruntimeLevel4 : public OnnxruntimeTest {
 protected:
  OnnxruntimeLevel4() : OnnxruntimeTest("onnxruntime-py@nbits+level4") {}
};

TEST_F(OnnxruntimeLevel4, TakesZeroPointsOutInFloats) {
  EXPECT_EQ(subject().contract().text(), "sum+offsets");
  EXPECT_NE(subject().CannotRun(gen::Draw(Op::kLinear, 1)), "");
  for (const char* const name :
       {"onnxruntime-py@nbits+level4", "onnxruntime-py@constant+nbits+level4"})
    qualm::ExpectContract({.subject = name, .ops = {Op::kLinear}, .cases = 300, .judged = 150});
}

// Reads of empty tensors and outputs left unwritten are upstream's (docs/onnxruntime.md): not asked
// for.
TEST_F(Onnxruntime, SkipsWhatItCannotDo) {
  Case c;
  c.M = c.N = 1;
  c.K = 0;
  c.x = Tensor(DType::kU8, {1, 0});
  c.w = Tensor(DType::kS8, {1, 0});
  ASSERT_EQ(Validate(c), "");
  EXPECT_EQ(subject().CannotRun(c), "ONNX Runtime does not offer K = 0");
  c.K = 1;
  c.x = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{1});
  c.w = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{1});
  EXPECT_EQ(subject().CannotRun(c), "");
  c.out_dtype = DType::kS8;
  c.out_min = -128;
  c.out_max = 127;
  const Outcome outcome = subject().Run(c, {});
  EXPECT_EQ(Name(outcome.status), Name(RunStatus::kSkipped)) << outcome.detail;
}

}  // namespace
}  // namespace qualm
