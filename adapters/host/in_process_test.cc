// SPDX-License-Identifier: Apache-2.0
// Every check on subjects in this process, tried with code that misbehaves on purpose.
#include "adapters/host/in_process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cfenv>
#include <functional>
#include <stdexcept>
#include <utility>

namespace qualm {
namespace {

// Runs a lambda as the kernel.
class LambdaSubject : public InProcessSubject {
 public:
  using Kernel = std::function<std::string(const Placed&, const RunContext&)>;
  explicit LambdaSubject(Kernel kernel) : kernel_(std::move(kernel)) {}
  std::string_view name() const override { return "lambda"; }
  std::string CannotRun(const Case& c) const override { return c.relu ? "no relu here" : ""; }

 protected:
  std::string Execute(const Placed& placed, const RunContext& context) override {
    return kernel_(placed, context);
  }

 private:
  Kernel kernel_;
};

Case Linear() {
  Case c;
  c.M = 2;
  c.N = 3;
  c.K = 2;
  c.x = Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{1, 2, 3, 4});
  c.w = Tensor::Of<int8_t>({3, 2}, std::vector<int8_t>{1, 1, -1, 1, 2, 0});
  c.bias = std::vector<float>{0.5f, 1.5f, 2.5f};
  EXPECT_EQ(Validate(c), "");
  return c;
}

// y = sum of the raw products, cut to the output type.
std::string Raw(const Placed& p, const RunContext&) {
  const Case& c = *p.problem;
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      int32_t sum = 0;
      for (int64_t k = 0; k < c.K; ++k) {
        sum += static_cast<const uint8_t*>(p.x)[m * p.x_stride + k] *
               static_cast<const int8_t*>(p.w)[n * c.K + k];
      }
      if (c.out_dtype == DType::kS32) {
        static_cast<int32_t*>(p.y)[m * p.y_stride + n] = sum;
      } else {
        static_cast<uint8_t*>(p.y)[m * p.y_stride + n] = static_cast<uint8_t>(sum);
      }
    }
  }
  return "";
}

std::vector<RunContext> Contexts() {
  std::vector<RunContext> contexts;
  for (bool end : {true, false}) {
    for (int64_t gap : {0, 1, 5}) {
      contexts.push_back({.align_offset = 13,
                          .end_at_guard = end,
                          .poison = 0x3C,
                          .x_row_gap = gap,
                          .y_row_gap = gap == 0 ? 0 : gap + 2});
    }
  }
  return contexts;
}

TEST(InProcess, GivesTheKernelItsDataAndReturnsTheOutput) {
  LambdaSubject subject([](const Placed& p, const RunContext& context) {
    EXPECT_EQ(p.x_stride, 2 + context.x_row_gap);
    EXPECT_EQ(p.y_stride, 3 + context.y_row_gap);
    EXPECT_EQ(p.bias.size(), 3u);
    EXPECT_EQ(p.bias[2], 2.5f);
    EXPECT_EQ(static_cast<const uint8_t*>(p.y)[0], context.poison);
    return Raw(p, context);
  });
  for (const RunContext& context : Contexts()) {
    const Outcome outcome = subject.Run(Linear(), context);
    ASSERT_EQ(outcome.status, RunStatus::kOk) << outcome.detail;
    EXPECT_EQ(outcome.y, Tensor::Of<uint8_t>({2, 3}, std::vector<uint8_t>{3, 1, 2, 7, 1, 6}));
    EXPECT_FALSE(outcome.acc);
  }
}

TEST(InProcess, ShowsAccumulatorsThroughAnS32Output) {
  LambdaSubject subject(Raw);
  const Outcome outcome = subject.Run(Linear(), {.want_acc = true});
  ASSERT_TRUE(outcome.acc);
  EXPECT_EQ(*outcome.acc, Tensor::Of<int32_t>({2, 3}, std::vector<int32_t>{3, 1, 2, 7, 1, 6}));
}

TEST(InProcess, SkipsWithTheReason) {
  LambdaSubject subject(Raw);
  Case c = Linear();
  c.relu = true;
  const Outcome outcome = subject.Run(c, {});
  EXPECT_EQ(outcome.status, RunStatus::kSkipped);
  EXPECT_EQ(outcome.detail, "no relu here");
}

RunStatus StatusOf(const LambdaSubject::Kernel& kernel, const RunContext& context,
                   std::string* detail = nullptr) {
  LambdaSubject subject(kernel);
  Outcome outcome = subject.Run(Linear(), context);
  if (detail != nullptr) *detail = outcome.detail;
  // After that the buffers are usable as before.
  LambdaSubject good(Raw);
  EXPECT_TRUE(good.Run(Linear(), context).ok());
  return outcome.status;
}

TEST(InProcess, SeesAnyByteTouchedOutside) {
  using Touch = std::function<void(const Placed&, const RunContext&)>;
  const std::vector<std::pair<const char*, Touch>> touches{
      {"before y", [](const Placed& p, const RunContext&) { static_cast<uint8_t*>(p.y)[-1] = 0; }},
      {"after y",
       [](const Placed& p, const RunContext&) { static_cast<uint8_t*>(p.y)[p.y_stride + 3] = 0; }},
      {"before x",
       [](const Placed& p, const RunContext&) {
         const_cast<uint8_t*>(static_cast<const uint8_t*>(p.x))[-1] = 0;
       }},
      {"after w",
       [](const Placed& p, const RunContext&) {
         const_cast<int8_t*>(static_cast<const int8_t*>(p.w))[6] = 0;
       }},
      {"after bias",
       [](const Placed& p, const RunContext&) { const_cast<float&>(p.bias.data()[3]) = 0; }},
      {"before the scales",
       [](const Placed& p, const RunContext&) { const_cast<float&>(p.scale.data()[-1]) = 0; }},
      {"after the zero points",
       [](const Placed& p, const RunContext&) {
         const_cast<int32_t&>(p.zero_point.data()[1]) = 0;
       }},
  };
  for (const auto& [what, touch] : touches) {
    for (const RunContext& context : Contexts()) {
      EXPECT_EQ(StatusOf(
                    [&](const Placed& p, const RunContext& run) {
                      touch(p, run);
                      return Raw(p, run);
                    },
                    context),
                RunStatus::kTouchedOutside)
          << what;
    }
  }
}

TEST(InProcess, SeesAWriteBetweenRows) {
  const RunContext gaps{.x_row_gap = 2, .y_row_gap = 2};
  std::string detail;
  EXPECT_EQ(StatusOf(
                [](const Placed& p, const RunContext&) {
                  static_cast<uint8_t*>(p.y)[4] = 0;
                  return std::string();
                },
                gaps, &detail),
            RunStatus::kTouchedOutside);
  EXPECT_EQ(detail, "wrote between the rows of y");
  EXPECT_EQ(StatusOf(
                [](const Placed& p, const RunContext&) {
                  const_cast<uint8_t*>(static_cast<const uint8_t*>(p.x))[3] = 0;
                  return std::string();
                },
                gaps, &detail),
            RunStatus::kTouchedOutside);
  EXPECT_EQ(detail, "wrote between the rows of x");
}

TEST(InProcess, SeesAModifiedInput) {
  const std::vector<std::pair<const char*, std::function<void(const Placed&)>>> changes{
      {"modified x",
       [](const Placed& p) { ++const_cast<uint8_t*>(static_cast<const uint8_t*>(p.x))[1]; }},
      {"modified w",
       [](const Placed& p) { ++const_cast<int8_t*>(static_cast<const int8_t*>(p.w))[5]; }},
      {"modified the scales", [](const Placed& p) { const_cast<float&>(p.scale[0]) = 2; }},
      {"modified the zero points",
       [](const Placed& p) { const_cast<int32_t&>(p.zero_point[0]) = 2; }},
      {"modified bias", [](const Placed& p) { const_cast<float&>(p.bias[1]) = 2; }},
  };
  for (const auto& [what, change] : changes) {
    std::string detail;
    EXPECT_EQ(StatusOf(
                  [&](const Placed& p, const RunContext&) {
                    change(p);
                    return std::string();
                  },
                  {}, &detail),
              RunStatus::kModifiedInput);
    EXPECT_EQ(detail, what);
  }
}

TEST(InProcess, TellsARefusalFromACrash) {
  std::string detail;
  EXPECT_EQ(StatusOf([](const Placed&, const RunContext&) { return std::string("K: too long"); },
                     {}, &detail),
            RunStatus::kRefused);
  EXPECT_EQ(detail, "K: too long");
  EXPECT_EQ(StatusOf([](const Placed&,
                        const RunContext&) -> std::string { throw std::runtime_error("no"); },
                     {}, &detail),
            RunStatus::kCrashed);
  EXPECT_EQ(detail, "exception: no");
  EXPECT_EQ(StatusOf(
                [](const Placed&, const RunContext&) {
                  raise(SIGILL);
                  return std::string();
                },
                {}, &detail),
            RunStatus::kCrashed);
}

TEST(InProcess, SetsTheEnvironmentAroundTheCallOnly) {
  const int before = std::fegetround();
  int inside = -1;
  LambdaSubject subject([&](const Placed& p, const RunContext& context) {
    inside = std::fegetround();
    std::fesetround(FE_UPWARD);  // left behind by the kernel
    return Raw(p, context);
  });
  EXPECT_TRUE(subject.Run(Linear(), {.rounding = Rounding::kDown}).ok());
  EXPECT_EQ(inside, FE_DOWNWARD);
  EXPECT_EQ(std::fegetround(), before);
}

// y = x of pixel m, whatever the window.
std::string CopyPixels(const Placed& p, const RunContext&) {
  const Case& c = *p.problem;
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      static_cast<uint8_t*>(p.y)[m * p.y_stride + n] =
          static_cast<const uint8_t*>(p.x)[m * p.x_stride + n];
    }
  }
  return "";
}

TEST(InProcess, ImagesAreRowsOfPixels) {
  Case c;
  c.op = Op::kMaxPool;
  c.window = {.batch = 1, .in_h = 2, .in_w = 2, .in_c = 3};
  DeriveSizes(&c);
  c.x = Tensor(DType::kU8, {1, 2, 2, 3});
  for (int i = 0; i < 12; ++i) c.x.SetInt(i, i + 1);
  ASSERT_EQ(Validate(c), "");
  LambdaSubject subject([](const Placed& p, const RunContext& context) {
    EXPECT_EQ(p.x_stride, 3 + context.x_row_gap);
    EXPECT_EQ(p.y_stride, 3 + context.y_row_gap);
    return CopyPixels(p, context);
  });
  for (const RunContext& context : Contexts()) {
    const Outcome outcome = subject.Run(c, context);
    ASSERT_EQ(outcome.status, RunStatus::kOk) << outcome.detail;
    EXPECT_EQ(outcome.y, c.x);
  }
  LambdaSubject gap([](const Placed& p, const RunContext& context) {
    static_cast<uint8_t*>(p.y)[3] ^= 1;
    return CopyPixels(p, context);
  });
  EXPECT_EQ(gap.Run(c, {.y_row_gap = 1}).status, RunStatus::kTouchedOutside);
}

Case Operands(Op op) {
  Case c;
  c.op = op;
  c.M = 2;
  c.N = 2;
  c.x = Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{1, 2, 3, 4});
  if (HasTwoOperands(op)) c.w = Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{10, 20, 30, 40});
  EXPECT_EQ(Validate(c), "");
  return c;
}

std::string AddBytes(const Placed& p, const RunContext&) {
  const Case& c = *p.problem;
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      const int x = static_cast<const uint8_t*>(p.x)[m * p.x_stride + n];
      const int w = c.w.empty() ? 0 : static_cast<const uint8_t*>(p.w)[m * p.w_stride + n];
      static_cast<uint8_t*>(p.y)[m * p.y_stride + n] = static_cast<uint8_t>(x + w);
    }
  }
  return "";
}

TEST(InProcess, TheSecondOperandIsLaidOutLikeTheFirst) {
  LambdaSubject subject([](const Placed& p, const RunContext& context) {
    EXPECT_EQ(p.x_stride, 2 + context.x_row_gap);
    EXPECT_EQ(p.w_stride, 2 + context.x_row_gap);
    return AddBytes(p, context);
  });
  for (const RunContext& context : Contexts()) {
    const Outcome outcome = subject.Run(Operands(Op::kAdd), context);
    ASSERT_EQ(outcome.status, RunStatus::kOk) << outcome.detail;
    EXPECT_EQ(outcome.y, Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{11, 22, 33, 44}));
  }
  const auto harmed = [](int64_t at) {
    LambdaSubject harm([at](const Placed& p, const RunContext& context) {
      const_cast<uint8_t*>(static_cast<const uint8_t*>(p.w))[at] ^= 1;
      return AddBytes(p, context);
    });
    return harm.Run(Operands(Op::kMul), {.x_row_gap = 1});
  };
  EXPECT_EQ(harmed(3).detail, "modified w");
  EXPECT_EQ(harmed(2).detail, "wrote between the rows of w");
}

TEST(InProcess, InPlaceTheOutputLiesOverX) {
  for (const Op op : {Op::kAdd, Op::kMul, Op::kRescale}) {
    LambdaSubject subject([](const Placed& p, const RunContext& context) {
      EXPECT_EQ(p.x, p.y);
      EXPECT_EQ(p.x_stride, p.y_stride);
      return AddBytes(p, context);
    });
    for (RunContext context : Contexts()) {
      context.in_place = true;
      const Outcome outcome = subject.Run(Operands(op), context);
      ASSERT_EQ(outcome.status, RunStatus::kOk) << outcome.detail;
      EXPECT_EQ(outcome.y.IntAt(3), HasTwoOperands(op) ? 44 : 4);
    }
  }
  // Memory beside it is watched as before.
  LambdaSubject gap([](const Placed& p, const RunContext& context) {
    static_cast<uint8_t*>(p.y)[2] ^= 1;
    return AddBytes(p, context);
  });
  EXPECT_EQ(gap.Run(Operands(Op::kAdd), {.x_row_gap = 1, .in_place = true}).status,
            RunStatus::kTouchedOutside);
  LambdaSubject linear(Raw);
  const Outcome skipped = linear.Run(Linear(), {.in_place = true});
  EXPECT_EQ(skipped.status, RunStatus::kSkipped);
  EXPECT_EQ(skipped.detail, "linear does not run in place");
}

TEST(InProcess, ThreadsAreSkippedByWhatHasNone) {
  LambdaSubject subject(Raw);
  const Outcome outcome = subject.Run(Linear(), {.threads = 2});
  EXPECT_EQ(outcome.status, RunStatus::kSkipped);
  EXPECT_EQ(outcome.detail, "runs on one thread");
}

TEST(InProcess, ATrapOnAnotherThreadCountsAsOneHere) {
  LambdaSubject outside([](const Placed&, const RunContext&) -> std::string {
    throw TrapError(std::string(kGuardPageTrap));
  });
  EXPECT_EQ(outside.Run(Linear(), {}).status, RunStatus::kTouchedOutside);
  LambdaSubject crash(
      [](const Placed&, const RunContext&) -> std::string { throw TrapError("SIGILL: it did"); });
  const Outcome outcome = crash.Run(Linear(), {});
  EXPECT_EQ(outcome.status, RunStatus::kCrashed);
  EXPECT_EQ(outcome.detail, "SIGILL: it did");
}

}  // namespace
}  // namespace qualm
