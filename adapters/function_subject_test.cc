// SPDX-License-Identifier: Apache-2.0
#include "adapters/function_subject.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "core/status.h"

namespace qualm {
namespace {

using Call = KernelCall<uint8_t, int8_t, int32_t>;

Case Linear() {
  Case c;
  c.M = 2;
  c.N = 3;
  c.K = 2;
  c.x = Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{1, 2, 3, 4});
  c.w = Tensor::Of<int8_t>({3, 2}, std::vector<int8_t>{1, 1, -1, 1, 2, 0});
  c.x_q.zero_point = {1};
  c.out_dtype = DType::kS32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  EXPECT_EQ(Validate(c), "");
  return c;
}

void Gemm(const Call& call) {
  const Case& c = call.c;
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      int32_t sum = call.bias_i32.empty() ? 0 : call.bias_i32[static_cast<size_t>(n)];
      for (int64_t k = 0; k < c.K; ++k) {
        sum +=
            (call.x[m * call.x_stride + k] - c.x_q.zero_point[0]) * call.w[n * call.w_stride + k];
      }
      call.y[m * call.y_stride + n] = sum;
    }
  }
}

constexpr PluginLimits kLimits{.x_zero_point_min = 0, .x_zero_point_max = 255};

template <class Kernel>
std::unique_ptr<Subject> Make(Kernel kernel, PluginLimits limits = kLimits) {
  return MakeSubject<uint8_t, int8_t, int32_t>("gemm", Op::kLinear, limits, kernel);
}

TEST(FunctionSubject, RunsTheFunctionOnTypedData) {
  const auto subject = Make(Gemm);
  const Outcome outcome = subject->Run(Linear(), {});
  ASSERT_TRUE(outcome.ok()) << outcome.detail;
  EXPECT_EQ(outcome.y, Tensor::Of<int32_t>({2, 3}, std::vector<int32_t>{1, 1, 0, 5, 1, 4}));
  EXPECT_EQ(subject->name(), "gemm");
  EXPECT_TRUE(subject->contract().exact());
}

TEST(FunctionSubject, IsOnlyAskedWhatItCanDo) {
  const auto subject = Make(Gemm);
  EXPECT_EQ(subject->CannotRun(Linear()), "");
  Case c = Linear();
  c.bias_i32 = std::vector<int32_t>{1, 2, 3};
  EXPECT_EQ(subject->CannotRun(c), "gemm does not offer int32 bias");
  EXPECT_EQ(Make(Gemm, {.features = QUALM_CAN_BIAS_I32, .x_zero_point_max = 255})->CannotRun(c),
            "");
  c = Linear();
  c.x_q.zero_point = {256};
  EXPECT_NE(subject->CannotRun(c), "");
  c = Linear();
  c.out_dtype = DType::kU8;
  c.out_min = 0;
  c.out_max = 255;
  EXPECT_EQ(subject->CannotRun(c), "gemm does not offer output of type u8");
  c = Linear();
  c.op = Op::kAdd;
  EXPECT_EQ(subject->CannotRun(c), "gemm does not offer add");
  EXPECT_EQ(subject->Run(Linear(), {.x_row_gap = 1}).status, RunStatus::kSkipped);
  EXPECT_EQ(subject->Run(Linear(), {.threads = 2}).status, RunStatus::kSkipped);
}

TEST(FunctionSubject, StridesAreOnesOwnWish) {
  const auto subject = Make(Gemm, {.features = QUALM_CAN_STRIDES, .x_zero_point_max = 255});
  const Outcome dense = subject->Run(Linear(), {});
  const Outcome strided = subject->Run(Linear(), {.x_row_gap = 3, .y_row_gap = 2});
  ASSERT_TRUE(strided.ok()) << strided.detail;
  EXPECT_EQ(strided.y, dense.y);
}

TEST(FunctionSubject, StrayAccessesAndExceptionsAreFindings) {
  const auto reads = Make([](const Call& call) {
    Gemm(call);
    call.y[0] += static_cast<const volatile uint8_t*>(call.x)[4];
  });
  EXPECT_EQ(reads->Run(Linear(), {}).status, RunStatus::kTouchedOutside);
  const auto writes = Make([](const Call& call) {
    Gemm(call);
    call.y[-1] = 0;
  });
  EXPECT_EQ(writes->Run(Linear(), {}).status, RunStatus::kTouchedOutside);
  const auto changes = Make([](const Call& call) {
    Gemm(call);
    const_cast<uint8_t*>(call.x)[0] ^= 1;
  });
  EXPECT_EQ(changes->Run(Linear(), {}).status, RunStatus::kModifiedInput);
  const auto throws = Make([](const Call&) { throw std::runtime_error("no"); });
  const Outcome outcome = throws->Run(Linear(), {});
  EXPECT_EQ(outcome.status, RunStatus::kCrashed);
  EXPECT_EQ(outcome.detail, "exception: no");
}

TEST(FunctionSubject, ReadSlackAndAlignmentAreKept) {
  const PluginLimits limits{.x_zero_point_max = 255, .read_slack_bytes = 16, .alignment_bytes = 32};
  const auto subject = Make(
      [](const Call& call) {
        Gemm(call);
        if (reinterpret_cast<uintptr_t>(call.x) % 32 != 0) throw std::runtime_error("alignment");
        const volatile uint8_t past = call.x[4 + 15];
        (void)past;
      },
      limits);
  for (const bool end : {false, true}) {
    const Outcome outcome = subject->Run(Linear(), {.align_offset = 5, .end_at_guard = end});
    EXPECT_TRUE(outcome.ok()) << outcome.detail;
  }
}

TEST(FunctionSubject, BadNamesAndLimitsAreRefused) {
  const auto make = [](const char* name, PluginLimits limits) {
    MakeSubject<uint8_t, int8_t, int32_t>(name, Op::kLinear, limits, Gemm);
  };
  EXPECT_THROW(make("", kLimits), InputError);
  EXPECT_THROW(make("native@avx2", kLimits), InputError);
  EXPECT_THROW(make("gemm", {.x_zero_point_min = 1}), InputError);
  EXPECT_THROW(make("gemm", {.alignment_bytes = 3}), InputError);
}

TEST(FunctionSubject, OperationsWithoutWeights) {
  const auto subject = MakeSubject<uint8_t, void, uint8_t>(
      "copy", Op::kRescale, {}, [](const KernelCall<uint8_t, void, uint8_t>& call) {
        for (int64_t i = 0; i < call.c.M * call.c.N; ++i) call.y[i] = call.x[i];
      });
  Case c;
  c.op = Op::kRescale;
  c.M = 1;
  c.N = 2;
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{7, 8});
  const Outcome outcome = subject->Run(c, {});
  ASSERT_TRUE(outcome.ok()) << outcome.detail;
  EXPECT_EQ(outcome.y, c.x);
}

}  // namespace
}  // namespace qualm
