// SPDX-License-Identifier: Apache-2.0
// Python packages as subjects: drawn cases of each operation against its contract.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/registry.h"
#include "core/status.h"
#include "core/subject.h"
#include "tools/drawn_contract_test_util.h"

namespace qualm {
namespace {

struct Wheel {
  const char* name;
  const char* version;   // how it begins
  const char* contract;  // of these operations, without @avx2 behind it
  std::vector<Op> ops;
  int cases, judged;  // of each operation; at least so many of them are judged
};
const std::vector<Op> kQuantizedTypes{Op::kDequantize, Op::kRequantize, Op::kRescale, Op::kLinear};
// The compilers compile a program for each case.
const std::vector<Wheel> kWheels{
    {"jax", "XLA through JAX 0.", "model:stablehlo", kQuantizedTypes, 50, 20},
    {"iree", "IREE 3.", "model:stablehlo", kQuantizedTypes, 15, 5},
    {"ncnn", "ncnn 1.0.", "model:ncnn", {Op::kLinear, Op::kConv2d}, 200, 20},
    {"ctranslate2", "CTranslate2 4.", "model:ctranslate2", {Op::kLinear}, 200, 20},
    {"mnn", "MNN 3.", "model:mnn", {Op::kQuantize}, 300, 100},
    {"mnn", "MNN 3.", "exact", {Op::kDequantize}, 300, 100},
    {"tvm",
     "TVM 0.",
     "model:tvm",
     {Op::kQuantize, Op::kRescale, Op::kAdd, Op::kSub, Op::kMul, Op::kConcat, Op::kLinear,
      Op::kDynamicLinear},
     200,
     60},
    {"torchao", "torchao 0.", "model:torchao-mx", {Op::kChooseQParams}, 300, 100},
    {"tvm", "TVM 0.", "exact", {Op::kDequantize, Op::kMaxPool}, 60, 20},
    {"tract",
     "tract 0.23.",
     "model:tract",
     {Op::kQuantize, Op::kDequantize, Op::kRescale, Op::kLinear, Op::kConv2d, Op::kDepthwise},
     100,
     60},
    {"tract", "tract 0.23.", "model:onnx@reference", {Op::kDynamicLinear}, 100, 20},
    {"openvino",
     "OpenVINO 2026.4.",
     "model:openvino",
     {Op::kQuantize, Op::kDequantize, Op::kLinear},
     100,
     20},
};

std::string ClaimOf(const Wheel& wheel) {
  return wheel.contract == std::string("exact") ? "matches_exact" : "matches_model";
}

class Wheels : public testing::TestWithParam<Wheel> {};

TEST_P(Wheels, KeepsItsContract) {
  const Wheel& wheel = GetParam();
  setenv("QUALM_TIME_LIMIT_MS", "300000", 1);  // no answer is timed, and the machine may be busy
  RegisterAllSubjects();
  const auto kinds = SubjectRegistry::Get().kinds();
  const auto kind = std::ranges::find(kinds, wheel.name, &SubjectKind::kind);
  ASSERT_NE(kind, kinds.end());
  if (!kind->why_absent.empty()) GTEST_SKIP() << kind->why_absent;
  try {
    const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make(wheel.name);
    EXPECT_TRUE(subject->Version().starts_with(wheel.version)) << subject->Version();
    for (const Op op : wheel.ops) {
      const std::string contract = subject->contracts().of(op).text();
      EXPECT_EQ(contract.ends_with("@avx2") ? contract.substr(0, contract.size() - 5) : contract,
                wheel.contract)
          << Name(op);
    }
  } catch (const Unavailable& error) {
    GTEST_SKIP() << error.what();
  }
  ExpectContract({.subject = wheel.name,
                  .ops = wheel.ops,
                  .cases = wheel.cases,
                  .judged = wheel.judged,
                  .declared = false,
                  .claim = ClaimOf(wheel)});
}

INSTANTIATE_TEST_SUITE_P(Packages, Wheels, testing::ValuesIn(kWheels), [](const auto& wheel) {
  return wheel.param.name + ("_" + std::string(Name(wheel.param.ops.front())));
});

// The pipe program for PyTorch, on the CPU: its casts are those of torch2.13-cast@cpu.
TEST(TorchPipe, KeepsItsContract) {
  RegisterAllSubjects();
  try {
    const std::string version = SubjectRegistry::Get().Make("torch@decomposed")->Version();
    if (!version.starts_with("PyTorch 2.13"))
      GTEST_SKIP() << "its casts are held to PyTorch 2.13, this is " << version;
  } catch (const Unavailable& error) {
    GTEST_SKIP() << error.what();
  }
  ExpectContract({.subject =
                      "pipe:${QUALM_PYTHON:-$HOME/.cache/qualm/torch/bin/python} '" QUALM_SOURCE_DIR
                      "/examples/pipe/torch_cuda.py' cpu",
                  .ops = {Op::kCast},
                  .cases = 300,
                  .judged = 100,
                  .declared = false,
                  .claim = "matches_model"});
}

// 1e30 times 3e27 is beyond float32: the compilers refuse the program.
TEST(StableHlo, ScalesThatNoTypeHoldsAreSkipped) {
  RegisterAllSubjects();
  Case c;
  c.M = c.N = c.K = 1;
  c.x = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{3});
  c.w = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{5});
  c.x_q.scale = {1e30F};
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  for (const char* name : {"jax", "iree"}) {
    std::unique_ptr<Subject> subject;
    try {
      subject = SubjectRegistry::Get().Make(name);
    } catch (const Unavailable& error) {
      GTEST_LOG_(WARNING) << "not checked here: " << error.what();
      continue;
    }
    for (const auto& [scale, status] :
         {std::pair{1.0F, RunStatus::kOk}, {3e27F, RunStatus::kSkipped}}) {
      c.w_q.scale = {scale};
      const Outcome outcome = subject->Run(c, {});
      EXPECT_EQ(Name(outcome.status), Name(status)) << name << ": " << outcome.detail;
    }
  }
}

}  // namespace
}  // namespace qualm
