// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime on emulated processors: with AVX2 and no VNNI it still saturates pairs, before AVX2
// it does not.
#include "tools/onnxruntime_test_util.h"

namespace qualm {
namespace {

class OnnxruntimeAvx2 : public OnnxruntimeTest {
 protected:
  OnnxruntimeAvx2() : OnnxruntimeTest("onnxruntime@avx2") {}
};
class OnnxruntimeSse41 : public OnnxruntimeTest {
 protected:
  OnnxruntimeSse41() : OnnxruntimeTest("onnxruntime@sse41") {}
};

TEST_F(OnnxruntimeAvx2, PairsSaturate) {
  EXPECT_EQ(InstructionSet(), "avx2");
  EXPECT_EQ(Pair(), 32767);
  ExpectRecordings("avx2-qemu-haswell", 100);
  ExpectContract({Op::kLinear, Op::kConv2d, Op::kAdd, Op::kQuantize}, 15, 1);
}

class OnnxruntimeWheelAvx2 : public OnnxruntimeTest {
 protected:
  OnnxruntimeWheelAvx2() : OnnxruntimeTest("onnxruntime-py@avx2") {}
};

TEST_F(OnnxruntimeWheelAvx2, PairsSaturate) {
  EXPECT_EQ(InstructionSet(), "avx2");
  EXPECT_EQ(Pair(), 32767);
  ExpectRecordings("avx2-qemu-haswell", 100);
  ExpectContract({Op::kLinear, Op::kConv2d}, 15, 1);
}

TEST_F(OnnxruntimeSse41, SumsAreExact) {
  EXPECT_EQ(InstructionSet(), "sse41");
  EXPECT_EQ(Pair(), 32893);
  ExpectRecordings("sse41-qemu-nehalem", 90);
  ExpectContract({Op::kLinear, Op::kConv2d, Op::kAdd, Op::kQuantize}, 15, 1);
}

}  // namespace
}  // namespace qualm
