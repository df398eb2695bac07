// SPDX-License-Identifier: Apache-2.0
// Every check on subjects in this process, tried with code that misbehaves on purpose.
#include "adapters/host/in_process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cfenv>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

// The same with what the base class leaves to a subject: threads, other layouts, memory of its own.
class AbleSubject : public LambdaSubject {
 public:
  using LambdaSubject::LambdaSubject;
  std::string touched;        // TouchedOutside
  std::string cannot_run_as;  // CannotRunAs

 protected:
  std::string TouchedOutside() const override { return touched; }
  bool HasThreads(Op /*op*/) const override { return true; }
  std::string CannotRunAs(const Case& /*c*/, const RunContext& /*context*/) const override {
    return cannot_run_as;
  }
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

// Each parameter of an operation lies where the operation looks for it.
TEST(InProcess, GivesTheParametersThatTheOperationHas) {
  struct Row {
    Case c;
    std::vector<float> scale;
    std::vector<int32_t> zero_point;
  };
  Case linear = Linear();
  linear.w_q = {{0.5f}, {3}};
  linear.out_q = {{0.25f}, {7}};
  Case quotient;  // of scales
  quotient.op = Op::kRequantize;
  quotient.M = 1;
  quotient.N = 2;
  quotient.x = Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{1, 2});
  quotient.w_q.scale = {0.5f};
  quotient.out_q = {{0.25f}, {7}};
  Case multiplied = quotient;
  multiplied.w_q = multiplied.out_q = {};
  multiplied.out_q.zero_point = {7};
  multiplied.multiplier = {0.125f};
  for (const auto& [c, scale, zero_point] :
       {Row{linear, {0.5f}, {3}}, {quotient, {0.5f}, {7}}, {multiplied, {0.125f}, {7}}}) {
    ASSERT_EQ(Validate(c), "");
    LambdaSubject subject([&](const Placed& p, const RunContext&) {
      EXPECT_EQ(std::vector(p.scale.begin(), p.scale.end()), scale) << Describe(c);
      EXPECT_EQ(std::vector(p.zero_point.begin(), p.zero_point.end()), zero_point) << Describe(c);
      return std::string();
    });
    EXPECT_EQ(subject.Run(c, {}).status, RunStatus::kOk);
  }
}

TEST(InProcess, GivesTheBiasThatTheCaseHas) {
  Case integers = Linear();
  integers.bias.reset();
  integers.bias_i32 = std::vector<int32_t>{4, 5, 6};
  Case none = Linear();
  none.bias.reset();
  for (const Case& c : {Linear(), integers, none}) {
    ASSERT_EQ(Validate(c), "");
    LambdaSubject subject([&](const Placed& p, const RunContext&) {
      EXPECT_EQ(std::vector(p.bias.begin(), p.bias.end()), c.bias.value_or(std::vector<float>{}));
      EXPECT_EQ(std::vector(p.bias_i32.begin(), p.bias_i32.end()),
                c.bias_i32.value_or(std::vector<int32_t>{}));
      return std::string();
    });
    EXPECT_EQ(subject.Run(c, {}).status, RunStatus::kOk);
  }
}

// The sums are those of the codes alone, whatever the case does with them.
TEST(InProcess, AccumulatorsKnowNoZeroPointsAndNoChannels) {
  Case c = Linear();
  c.x_q.zero_point = {3};
  c.w_q = {{0.5f, 1.0f, 2.0f}, {1, 2, 3}};
  c.per_channel = true;
  ASSERT_EQ(Validate(c), "");
  std::vector<Case> asked;
  LambdaSubject subject([&](const Placed& p, const RunContext& context) {
    asked.push_back(*p.problem);
    return Raw(p, context);
  });
  EXPECT_TRUE(subject.Run(c, {.want_acc = true}).acc);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0], c);
  EXPECT_EQ(Validate(asked[1]), "");
  EXPECT_EQ(asked[1].out_dtype, DType::kS32);
  EXPECT_EQ(asked[1].x_q, QParams{});
  EXPECT_EQ(asked[1].w_q, QParams{});
  EXPECT_FALSE(asked[1].per_channel);
  asked.clear();
  EXPECT_FALSE(subject.Run(c, {}).acc);
  EXPECT_EQ(asked.size(), 1u) << "nobody asked for sums";
}

// A kernel that has no s32 output, refuses it, or has clamped a sum at an end of int32, shows none.
TEST(InProcess, ShowsNoAccumulatorsThatItCannotTell) {
  class NoSums : public LambdaSubject {
   public:
    using LambdaSubject::LambdaSubject;
    std::string CannotRun(const Case& c) const override {
      return c.out_dtype == DType::kS32 ? "no s32" : "";
    }
  };
  int calls = 0;
  NoSums no_sums([&](const Placed& p, const RunContext& context) {
    ++calls;
    return Raw(p, context);
  });
  const Outcome without = no_sums.Run(Linear(), {.want_acc = true});
  EXPECT_TRUE(without.ok());
  EXPECT_FALSE(without.acc);
  EXPECT_EQ(calls, 1);

  const auto acc = [](const std::function<std::string(int32_t*)>& sums) {
    LambdaSubject subject([&](const Placed& p, const RunContext& context) {
      Raw(p, context);
      if (p.problem->out_dtype != DType::kS32) return std::string();
      return sums(static_cast<int32_t*>(p.y));
    });
    const Outcome outcome = subject.Run(Linear(), {.want_acc = true});
    EXPECT_TRUE(outcome.ok()) << "the answer itself is one";
    return outcome.acc;
  };
  EXPECT_FALSE(acc([](int32_t*) { return "no sums here"; }));
  for (const int32_t sum : {INT32_MIN, INT32_MIN + 1, INT32_MAX - 1, INT32_MAX}) {
    const bool clamped = sum == INT32_MIN || sum == INT32_MAX;
    const std::optional<Tensor> shown = acc([sum](int32_t* y) {
      y[5] = sum;
      return "";
    });
    EXPECT_EQ(shown.has_value(), !clamped) << sum;
    if (shown) {
      EXPECT_EQ(shown->IntAt(5), sum);
    }
  }
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

// A sentence names the buffer, also where the buffer of a list stands for another.
TEST(InProcess, NamesTheBufferThatWasWrittenOutside) {
  Case integers = Linear();
  integers.bias.reset();
  integers.bias_i32 = std::vector<int32_t>{4, 5, 6};
  ASSERT_EQ(Validate(integers), "");
  const auto told = [](const Case& c, const std::function<const void*(const Placed&)>& end) {
    LambdaSubject subject([&](const Placed& p, const RunContext&) {
      *static_cast<uint8_t*>(const_cast<void*>(end(p))) ^= 1;
      return std::string();
    });
    // At the end of each buffer lies memory, since they begin at the guard page.
    return subject.Run(c, {.end_at_guard = false}).detail;
  };
  const auto behind = [](const auto& list) { return static_cast<const void*>(list.data() + 3); };
  EXPECT_EQ(told(Linear(), [](const Placed& p) { return static_cast<const uint8_t*>(p.x) + 4; }),
            "wrote outside x");
  EXPECT_EQ(told(Linear(), [](const Placed& p) { return static_cast<const uint8_t*>(p.w) + 6; }),
            "wrote outside w");
  EXPECT_EQ(told(Linear(), [](const Placed& p) { return static_cast<const uint8_t*>(p.y) + 6; }),
            "wrote outside y");
  EXPECT_EQ(told(Linear(), [&](const Placed& p) { return behind(p.scale); }),
            "wrote outside the scales");
  EXPECT_EQ(told(Linear(), [&](const Placed& p) { return behind(p.zero_point); }),
            "wrote outside the zero points");
  EXPECT_EQ(told(Linear(), [&](const Placed& p) { return behind(p.bias); }), "wrote outside bias");
  EXPECT_EQ(told(integers, [&](const Placed& p) { return behind(p.bias_i32); }),
            "wrote outside bias");
}

// What is worse is told: a crash, then a write outside, then a refusal, which says nothing about
// what was done before it.
TEST(InProcess, TellsTheWorstOfOneCall) {
  const auto write_outside = [](const Placed& p) {
    static_cast<uint8_t*>(p.y)[-1] ^= 1;
    return std::string("K: too long");
  };
  std::string detail;
  EXPECT_EQ(StatusOf(
                [&](const Placed& p, const RunContext&) {
                  const std::string refusal = write_outside(p);
                  raise(SIGILL);
                  return refusal;
                },
                {}, &detail),
            RunStatus::kCrashed);
  EXPECT_EQ(detail, "SIGILL: illegal instruction");
  EXPECT_EQ(
      StatusOf([&](const Placed& p, const RunContext&) { return write_outside(p); }, {}, &detail),
      RunStatus::kTouchedOutside);
  EXPECT_EQ(detail, "wrote outside y");
  // The subject's own buffers come behind those of the case, and before changed inputs.
  AbleSubject subject([&](const Placed& p, const RunContext&) {
    const_cast<float&>(p.scale[0]) = 2;
    return std::string("K: too long");
  });
  EXPECT_EQ(subject.Run(Linear(), {}).status, RunStatus::kModifiedInput);
  subject.touched = "the scratch";
  const Outcome outcome = subject.Run(Linear(), {});
  EXPECT_EQ(outcome.status, RunStatus::kTouchedOutside);
  EXPECT_EQ(outcome.detail, "wrote outside the scratch");
}

TEST(InProcess, ARefusedCallHasNoOutput) {
  int calls = 0;
  LambdaSubject subject([&](const Placed& p, const RunContext& context) {
    ++calls;
    Raw(p, context);
    return std::string("K: too long");
  });
  const Outcome outcome = subject.Run(Linear(), {.want_acc = true});
  EXPECT_EQ(outcome.status, RunStatus::kRefused);
  EXPECT_EQ(outcome.y, Tensor());
  EXPECT_FALSE(outcome.acc);
  EXPECT_EQ(calls, 1) << "nor are its sums asked for";
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

// Gaps between the lines of an image leave its pixels dense.
TEST(InProcess, ImagesHaveLinesOfPixels) {
  Case c;
  c.op = Op::kMaxPool;
  c.window = {.batch = 1, .in_h = 2, .in_w = 2, .in_c = 3};
  DeriveSizes(&c);
  c.x = Tensor(DType::kU8, {1, 2, 2, 3});
  for (int i = 0; i < 12; ++i) c.x.SetInt(i, i + 1);
  ASSERT_EQ(Validate(c), "");
  struct Row {
    RunContext context;
    int64_t stride, line_stride;
  };
  for (const auto& [context, stride, line_stride] :
       {Row{{}, 3, 6}, {{.x_row_gap = 5}, 8, 16}, {{.x_line_gap = 5}, 3, 11}}) {
    AbleSubject subject([&](const Placed& p, const RunContext&) {
      EXPECT_EQ(p.x_stride, stride);
      EXPECT_EQ(p.x_line_stride, line_stride);
      for (int64_t line = 0; line < 2; ++line) {
        for (int64_t pixel = 0; pixel < 2; ++pixel) {
          EXPECT_EQ(static_cast<const uint8_t*>(p.x)[line * line_stride + pixel * stride],
                    c.x.IntAt((2 * line + pixel) * 3));
        }
      }
      return std::string();
    });
    EXPECT_EQ(subject.Run(c, context).status, RunStatus::kOk);
  }
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

TEST(InProcess, SumsAreAskedOfOperationsThatHaveThem) {
  int calls = 0;
  LambdaSubject subject([&](const Placed& p, const RunContext& context) {
    ++calls;
    return AddBytes(p, context);
  });
  const Outcome outcome = subject.Run(Operands(Op::kAdd), {.want_acc = true});
  EXPECT_TRUE(outcome.ok());
  EXPECT_FALSE(outcome.acc);
  EXPECT_EQ(calls, 1);
}

TEST(InProcess, ASubjectWithThreadsRunsOnThem) {
  int threads = 0;
  AbleSubject subject([&](const Placed& p, const RunContext& context) {
    threads = context.threads;
    return Raw(p, context);
  });
  EXPECT_EQ(subject.Run(Linear(), {.threads = 2}).status, RunStatus::kOk);
  EXPECT_EQ(threads, 2);
}

// What a plain subject does not do, and what the case lacks, is told instead of run.
TEST(InProcess, SkipsStatesThatItCannotHave) {
  int calls = 0;
  const LambdaSubject::Kernel count = [&](const Placed&, const RunContext&) {
    ++calls;
    return std::string();
  };
  LambdaSubject plain(count);
  Case image;
  image.op = Op::kMaxPool;
  image.window = {.batch = 1, .in_h = 2, .in_w = 2, .in_c = 3};
  DeriveSizes(&image);
  image.x = Tensor(DType::kU8, {1, 2, 2, 3});
  struct Row {
    Case c;
    RunContext context;
    std::string why;
  };
  const std::string dense = "takes dense weights and images", packs = "packs afresh for each call";
  for (const auto& [c, context, why] :
       {Row{Linear(), {.w_row_gap = 1}, dense},
        {image, {.x_line_gap = 1}, dense},
        {Operands(Op::kAdd), {.over_w = true}, "does not write over the second operand"},
        {Linear(), {.calls = 2}, packs},
        {Linear(), {.callers = 2}, packs},
        {Operands(Op::kAdd), {.w_row_gap = 1}, "has no weights"}}) {
    const Outcome outcome = plain.Run(c, context);
    EXPECT_EQ(outcome.status, RunStatus::kSkipped) << why;
    EXPECT_EQ(outcome.detail, why);
  }
  AbleSubject able(count);
  able.cannot_run_as = "not so";
  EXPECT_EQ(able.Run(Linear(), {}).detail, "not so");
  able.cannot_run_as = "";
  EXPECT_EQ(able.Run(Operands(Op::kAdd), {.w_row_gap = 1}).detail, "has no weights");
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(able.Run(Linear(), {.w_row_gap = 1}).ok());
  EXPECT_EQ(calls, 1);
}

// A signal mask is the caller's, and is put back. What was left is told only where it was watched
// for, and is no reason to call again and look for leaks; a crash is none either.
TEST(InProcess, WatchesWhatACallLeavesBehind) {
  int calls = 0;
  const auto run = [&](const std::function<void()>& act, bool watch) {
    calls = 0;
    LambdaSubject subject([&](const Placed& p, const RunContext& context) {
      ++calls;
      act();
      return Raw(p, context);
    });
    return subject.Run(Linear(), {.watch = watch});
  };
  const auto mask = [](int how) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGURG);
    pthread_sigmask(how, &signals, nullptr);
  };
  EXPECT_TRUE(run([] {}, true).ok());
  EXPECT_GT(calls, 1) << "leaks show in many calls";
  EXPECT_TRUE(run([] {}, false).ok());
  EXPECT_EQ(calls, 1);

  const Outcome left = run([&] { mask(SIG_BLOCK); }, true);
  EXPECT_EQ(left.status, RunStatus::kLeftBehind);
  EXPECT_EQ(left.detail, "left another signal mask: signal " + std::to_string(SIGURG));
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(run([&] { mask(SIG_BLOCK); }, false).ok());
  mask(SIG_UNBLOCK);

  EXPECT_EQ(run([] { raise(SIGILL); }, true).detail, "SIGILL: illegal instruction");
  EXPECT_EQ(calls, 1);
}

// The caller writes inputs between the calls, and reads the output.
TEST(InProcess, InBulkAnswersWhatTheBuffersHold) {
  const Case c = Linear();
  LambdaSubject subject(Raw);
  const BulkSubject::Buffers buffers = subject.OpenBulk(c);
  ASSERT_EQ(buffers.x.size(), 4u);
  ASSERT_EQ(buffers.w.size(), 6u);
  ASSERT_EQ(buffers.y.size(), 6u);
  const auto y = [&] { return std::vector(buffers.y.begin(), buffers.y.end()); };
  EXPECT_EQ(subject.RunBulk(), "");
  EXPECT_EQ(y(), (std::vector<uint8_t>{3, 1, 2, 7, 1, 6}));
  buffers.x[0] = 11;
  buffers.w[5] = 1;
  EXPECT_EQ(subject.RunBulk(), "");
  EXPECT_EQ(y(), (std::vector<uint8_t>{13, 247, 24, 7, 1, 10}));
}

TEST(InProcess, InBulkTellsWhatWentWrong) {
  std::function<std::string(const Placed&)> act;
  AbleSubject subject([&](const Placed& p, const RunContext&) { return act(p); });
  const Case c = Linear();
  const auto told = [&](std::function<std::string(const Placed&)> kernel) {
    act = std::move(kernel);
    subject.OpenBulk(c);
    return subject.RunBulk();
  };
  const auto before = [](const void* at) {
    static_cast<uint8_t*>(const_cast<void*>(at))[-1] ^= 1;
    return std::string();
  };
  EXPECT_EQ(told([](const Placed&) { return ""; }), "");
  EXPECT_EQ(told([](const Placed&) { return "K: too long"; }), "refused: K: too long");
  EXPECT_EQ(told([](const Placed&) -> std::string { throw std::runtime_error("no"); }),
            "crashed: exception: no");
  EXPECT_EQ(told([&](const Placed& p) { return before(p.x); }), "wrote outside x");
  EXPECT_EQ(told([&](const Placed& p) { return before(p.w); }), "wrote outside w");
  EXPECT_EQ(told([&](const Placed& p) { return before(p.y); }), "wrote outside y");
  subject.touched = "the scratch";
  EXPECT_EQ(told([](const Placed&) { return ""; }), "wrote outside the scratch");
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
