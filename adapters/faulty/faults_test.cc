// SPDX-License-Identifier: Apache-2.0
// Every planted fault that is no cause of triage has a witness: a smallest case on which the
// unharmed implementation gives the values worked out by hand, and the harmed one does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "adapters/kinds.h"
#include "adapters/registry.h"
#include "core/sanitized.h"
#include "core/subject.h"

namespace qualm {
namespace {

std::unique_ptr<Subject> Make(const std::string& id) {
  std::unique_ptr<Subject> subject = FaultySubjects().make("faulty:" + id);
  EXPECT_NE(subject, nullptr) << id;
  return subject;
}

Case WithOutput(Case c, DType dtype) {
  c.out_dtype = dtype;
  c.out_min = RangeOf(dtype).min;
  c.out_max = RangeOf(dtype).max;
  return c;
}

Case Quantize(std::vector<float> x, float scale = 1, int32_t zero_point = 0) {
  Case c;
  c.op = Op::kQuantize;
  c.M = 1;
  c.N = static_cast<int64_t>(x.size());
  c.x = Tensor::Of<float>({1, c.N}, x);
  c.out_q = {{scale}, {zero_point}};
  return c;
}

Case Dequantize(std::vector<int8_t> q, float scale, int32_t zero_point) {
  Case c;
  c.op = Op::kDequantize;
  c.M = 1;
  c.N = static_cast<int64_t>(q.size());
  c.x = Tensor::Of<int8_t>({1, c.N}, q);
  c.x_q = {{scale}, {zero_point}};
  return WithOutput(std::move(c), DType::kF32);
}

Case Requantize(std::vector<int32_t> acc, float multiplier, int32_t zero_point = 0) {
  Case c;
  c.op = Op::kRequantize;
  c.M = 1;
  c.N = static_cast<int64_t>(acc.size());
  c.x = Tensor::Of<int32_t>({1, c.N}, acc);
  c.multiplier = {multiplier};
  c.out_q.zero_point = {zero_point};
  return c;
}

template <class X, class W>
Case Linear(int64_t M, int64_t N, int64_t K, std::vector<X> x, std::vector<W> w,
            int32_t x_zero_point = 0, int32_t w_zero_point = 0) {
  Case c;
  c.M = M;
  c.N = N;
  c.K = K;
  c.x = Tensor::Of<X>({M, K}, x);
  c.w = Tensor::Of<W>({N, K}, w);
  c.x_q.zero_point = {x_zero_point};
  c.w_q.zero_point = {w_zero_point};
  return WithOutput(std::move(c), DType::kS32);
}

// Two inputs; the second one has a scale of its own.
Case Concat(std::vector<uint8_t> x, std::vector<uint8_t> w, float w_scale) {
  Case c;
  c.op = Op::kConcat;
  c.M = 1;
  c.N = static_cast<int64_t>(x.size() + w.size());
  c.x = Tensor::Of<uint8_t>({1, static_cast<int64_t>(x.size())}, x);
  c.w = Tensor::Of<uint8_t>({1, static_cast<int64_t>(w.size())}, w);
  c.w_q.scale = {w_scale};
  return WithOutput(std::move(c), DType::kU8);
}

Case Softmax(std::vector<uint8_t> x, float scale) {
  Case c;
  c.op = Op::kSoftmax;
  c.M = 1;
  c.N = static_cast<int64_t>(x.size());
  c.x = Tensor::Of<uint8_t>({1, c.N}, x);
  c.x_q.scale = {scale};
  c.out_q.scale = {0x1p-8f};
  return WithOutput(std::move(c), DType::kU8);
}

// One image, whole windows; tests change what they need and call Derived.
Case Derived(Case c) {
  DeriveSizes(&c);
  return c;
}

template <class X>
Case Pool(Op op, Window window, std::vector<X> x) {
  Case c;
  c.op = op;
  window.batch = 1;
  if (op == Op::kGlobalAvgPool) {
    window.kernel_h = window.in_h;
    window.kernel_w = window.in_w;
  }
  c.window = window;
  c.x = Tensor::Of<X>({1, window.in_h, window.in_w, window.in_c}, x);
  const DType dtype = c.x.dtype();
  return Derived(WithOutput(std::move(c), dtype));
}

template <class X, class W>
Case Conv(Op op, Window window, std::vector<X> x, int64_t channels, std::vector<W> w,
          int32_t x_zero_point = 0) {
  Case c;
  c.op = op;
  window.batch = 1;
  c.window = window;
  c.N = channels;
  c.x = Tensor::Of<X>({1, window.in_h, window.in_w, window.in_c}, x);
  c.w = Tensor::Of<W>({channels, window.kernel_h, window.kernel_w, window.in_c / window.groups}, w);
  c.x_q.zero_point = {x_zero_point};
  return Derived(WithOutput(std::move(c), DType::kS32));
}

template <class X>
Case Elementwise(Op op, std::vector<X> x, std::vector<X> w = {}, int32_t x_zero_point = 0,
                 int32_t w_zero_point = 0) {
  Case c;
  c.op = op;
  c.M = 1;
  c.N = static_cast<int64_t>(x.size());
  c.x = Tensor::Of<X>({1, c.N}, x);
  if (HasTwoOperands(op)) c.w = Tensor::Of<X>({1, c.N}, w);
  c.x_q.zero_point = {x_zero_point};
  c.w_q.zero_point = {w_zero_point};
  const DType dtype = c.x.dtype();
  return WithOutput(std::move(c), dtype);
}

Case Observing(std::vector<float> x, int64_t batches, const Observer& observer) {
  Case c;
  c.op = Op::kChooseQParams;
  c.M = 1;
  c.N = static_cast<int64_t>(x.size()) / batches;
  c.x = Tensor::Of<float>({batches, 1, c.N}, x);
  c.observer = observer;
  return WithOutput(std::move(c), DType::kF32);
}

Case Dynamic(std::vector<float> x, std::vector<int8_t> w, const Observer& observer) {
  Case c;
  c.op = Op::kDynamicLinear;
  c.M = c.N = 1;
  c.K = static_cast<int64_t>(x.size());
  c.x = Tensor::Of<float>({1, c.K}, x);
  c.w = Tensor::Of<int8_t>({1, c.K}, w);
  c.observer = observer;
  return WithOutput(std::move(c), DType::kF32);
}

// `size` values, all of them `value` but the last.
std::vector<double> WithLast(size_t size, double value, double last) {
  std::vector<double> values(size, value);
  values.back() = last;
  return values;
}

using U8 = std::vector<uint8_t>;
using S8 = std::vector<int8_t>;

struct Witness {
  Case c;
  std::vector<double> exact;
  RunContext context = {};
  RunStatus status = RunStatus::kOk;  // of the harmed one; kOk: its values differ
  std::optional<Case> before = {};    // run first, by both
};

std::map<std::string, Witness> Witnesses() {
  std::map<std::string, Witness> of;
  of["k-zero"] = {Linear(1, 1, 0, U8{}, S8{}), {0}, {}, RunStatus::kTouchedOutside};
  of["k-over-read"] = {
      Linear(1, 1, 1, U8{1}, S8{1}), {1}, {.end_at_guard = true}, RunStatus::kTouchedOutside};
  of["stale-column-sums"] = {Linear(1, 1, 1, U8{1}, S8{1}, 1), {0}};
  of["stale-column-sums"].before = Linear(1, 1, 1, U8{1}, S8{2}, 1);

  of["one-tie"] = {Quantize({0.5f}), {0}};
  of["tail-rounds-away"] = {Quantize({0.5f}), {0}};
  of["alignment-head"] = {Quantize({0.5f}), {0}, {.align_offset = 4, .end_at_guard = false}};
  of["caller-rounding"] = {Quantize({1.25f}), {1}, {.rounding = Rounding::kUp}};

  of["overlapped-tail"] = {Quantize({1}), {1}, {}, RunStatus::kTouchedOutside};
  of["half-tail"] = {Requantize({7, 7, 7, 7, 7}, 1), {7, 7, 7, 7, 7}};
  of["store-order"] = {Linear(2, 3, 1, U8{1, 1}, S8{1, 2, 3}), {1, 2, 3, 1, 2, 3}};
  of["stride-ignored"] = {Linear(2, 1, 1, U8{1, 2}, S8{1}), {1, 2}, {.x_row_gap = 1}};
  Case in_place = Elementwise(Op::kRescale, U8{1, 1, 1, 1, 1, 1, 1, 1, 1});
  in_place.x_q.scale = {2};
  of["overlapped-tail-in-place"] = {in_place, {2, 2, 2, 2, 2, 2, 2, 2, 2}, {.in_place = true}};
  of["row-bound"] = {
      Conv(Op::kDepthwise, {.in_h = 1, .in_w = 1, .in_c = 1, .kernel_h = 2, .pad_bottom = 1}, U8{5},
           1, S8{1, 1}),
      {5},
      {},
      RunStatus::kTouchedOutside};

  Case blocks = Linear(1, 5, 257, U8(257, 0), S8(5 * 257, 0));
  blocks.bias_i32 = std::vector<int32_t>(5, 1);
  of["bias-per-k-block"] = {blocks, {1, 1, 1, 1, 1}};
  U8 image(10 * 193, 0);
  image.back() = 1;
  of["deep-channel-tap"] = {
      Conv(Op::kConv2d, {.in_h = 1, .in_w = 10, .in_c = 193, .kernel_w = 2}, image, 1, S8(386, 1)),
      WithLast(9, 0, 1)};
  Case nine =
      Conv(Op::kConv2d, {.in_h = 1, .in_w = 1, .in_c = 9, .groups = 9}, U8(9, 1), 9, S8(9, 1));
  nine.per_channel = true;
  nine.w_q = {{1, 1, 1, 1, 1, 1, 1, 1, 2}, std::vector<int32_t>(9, 0)};
  of["group-block-scale"] = {WithOutput(nine, DType::kF32), WithLast(9, 1, 2)};
  of["chunk-edge"] = {Quantize(std::vector<float>(16384, 1)), std::vector<double>(16384, 1)};
  of["power-shift-wraps"] = {Requantize({1}, 0x1p-32f), {0}};

  Case twice = WithOutput(Linear(1, 1, 1, U8{1}, S8{1}), DType::kF32);
  twice.w_q.scale = {2};
  of["stale-scales"] = {twice, {2}};
  of["stale-scales"].before = WithOutput(Linear(1, 1, 1, U8{1}, S8{1}), DType::kF32);
  Case biased = Linear(1, 1, 1, U8{1}, S8{1});
  biased.bias_i32 = std::vector<int32_t>{5};
  of["stale-bias"] = {biased, {6}};
  biased.bias_i32 = std::vector<int32_t>{0};
  of["stale-bias"].before = biased;
  of["stale-clamp"] = {Linear(1, 1, 1, U8{1}, S8{1}), {1}};
  of["stale-clamp"].before = Linear(1, 1, 1, U8{1}, S8{1});
  of["stale-clamp"].before->out_max = 0;
  of["stale-scratch"] = {Linear(1, 1, 1, U8{1}, S8{1}), {1}, {.calls = 2}};
  U8 numbers;
  std::vector<double> products;
  for (int i = 0; i < 32 * 32; ++i) products.push_back((i / 32 + 1) * (i % 32 + 1));
  for (uint8_t i = 1; i <= 32; ++i) numbers.push_back(i);
  of["shared-scratch"] = {
      Linear(32, 32, 1, numbers, S8(numbers.begin(), numbers.end())), products, {.callers = 8}};
  of["leaves-rounding"] = {Quantize({1}), {1}, {.watch = true}, RunStatus::kLeftBehind};
  of["blocks-signals"] = {
      Elementwise(Op::kRescale, U8{1}), {1}, {.watch = true}, RunStatus::kLeftBehind};
  of["leaks-per-call"] = {Dequantize({1}, 1, 0),
                          {1},
                          {.watch = true},
                          kSanitized ? RunStatus::kOk : RunStatus::kLeftBehind};
  Case both = Elementwise(Op::kAdd, U8{1}, U8{1});
  both.w_q.scale = {2};
  of["shared-first-params"] = {both, {3}, {.shared_inputs = true}};
  of["second-read-again"] = {
      Elementwise(Op::kAdd, U8(9, 1), U8(9, 1)), std::vector<double>(9, 2), {.over_w = true}};
  of["weight-stride-ignored"] = {Linear(1, 2, 1, U8{1}, S8{1, 2}), {1, 2}, {.w_row_gap = 1}};
  // The third row lies 2^32 + 128 bytes behind the first one.
  of["row-offset-u32"] = {
      Linear(3, 1, 1, U8{1, 2, 3}, S8{1}), {1, 2, 3}, {.x_row_gap = (int64_t{1} << 31) + 63}};
  of["line-stride-ignored"] = {
      Pool(Op::kMaxPool, {.in_h = 2, .in_w = 1, .in_c = 1}, U8{1, 2}), {1, 2}, {.x_line_gap = 1}};

  of["output-not-cleared"] = {Linear(1, 1, 1, U8{1}, S8{1}), {1}};
  of["input-shifted-in-place"] = {
      Linear(1, 1, 1, S8{1}, S8{1}), {1}, {}, RunStatus::kModifiedInput};
  return of;
}

Outcome RunWitness(const std::string& id, const Witness& witness) {
  const std::unique_ptr<Subject> subject = Make(id);
  if (witness.before) {
    EXPECT_TRUE(subject->Run(*witness.before, witness.context).ok());
  }
  return subject->Run(witness.c, witness.context);
}

TEST(Faults, EachHasAWitness) {
  const std::map<std::string, Witness> witnesses = Witnesses();
  EXPECT_EQ(std::ssize(witnesses), std::ranges::count(ListFaults(), "", &FaultInfo::cause));
  for (const FaultInfo& info : ListFaults()) {
    SCOPED_TRACE(info.id);
    if (!info.cause.empty()) continue;  // a cause has its cases in corpus/causes
    const auto at = witnesses.find(std::string(info.id));
    ASSERT_NE(at, witnesses.end());
    const Witness& witness = at->second;
    ASSERT_EQ(Validate(witness.c), "");

    const Outcome right = RunWitness("none", witness);
    ASSERT_EQ(right.status, RunStatus::kOk) << right.detail;
    ASSERT_EQ(static_cast<size_t>(right.y.size()), witness.exact.size());
    for (int64_t i = 0; i < right.y.size(); ++i) {
      EXPECT_EQ(right.y.ValueAt(i), witness.exact[static_cast<size_t>(i)]) << i;
    }
    const Outcome wrong = RunWitness(std::string(info.id), witness);
    EXPECT_EQ(wrong.status, witness.status) << wrong.detail;
    if (wrong.ok() && (!kSanitized || info.id != "leaks-per-call")) {
      EXPECT_NE(wrong.y, right.y);
    }
  }
}

// Dull cases: whole vectors, whole blocks, one row, no ties, nothing near an end. A fault that
// shows even here would be no test of a feeder.
TEST(Faults, AreSilentOnDullCases) {
  Case linear = WithOutput(Linear(1, 8, 4, U8{1, 2, 3, 4}, S8(32, 1), 1), DType::kU8);
  linear.out_q.zero_point = {4};
  linear.bias = std::vector<float>(8, 1.0f);
  Case rescale = Elementwise(Op::kRescale, U8{1, 2, 3, 4, 5, 6, 7, 9}, {}, 1);
  rescale.x_q.scale = {0.375f};
  Case add = Elementwise(Op::kAdd, U8{1, 2, 3}, U8{4, 5, 6}, 1, 1);
  add.x_q.scale = {0.375f};
  add.w_q.scale = {0.25f};
  Case difference = Elementwise(Op::kSub, U8{3, 2, 3}, U8{1, 1, 2}, 1, 1);
  difference.x_q.scale = {0.375f};
  difference.w_q.scale = {0.25f};
  Case mul = Elementwise(Op::kMul, U8{1, 2, 3}, U8{4, 5, 6}, 1, 1);
  mul.x_q.scale = {0.375f};
  const Window plain{.in_h = 2, .in_w = 2, .in_c = 1, .kernel_h = 2, .kernel_w = 2};
  const std::vector<Case> dull{Quantize({1, 2, 3, 4, 5, 6, 7, 8.25f}, 1, 3),
                               Dequantize({1, 2, 3, 4, 5, 6, 7, 8}, 0.5f, 2),
                               Requantize({1, 2, 3, 4, 5, 6, 7, 9}, 0.125f * 3, 2),
                               linear,
                               rescale,
                               add,
                               difference,
                               mul,
                               Concat(U8{1, 2}, U8{3, 4}, 1),
                               Elementwise(Op::kTable, U8{1, 2, 3}, {}, 2),
                               Softmax(U8{255, 200}, 1),
                               Pool(Op::kMaxPool, plain, U8{1, 2, 3, 4}),
                               Pool(Op::kAvgPool, plain, U8{1, 2, 3, 6}),
                               Pool(Op::kGlobalAvgPool, plain, U8{1, 2, 3, 6}),
                               Conv(Op::kConv2d, plain, U8{1, 2, 3, 4}, 1, S8{1, 2, 3, 4}, 1),
                               Conv(Op::kDepthwise, plain, U8{1, 2, 3, 4}, 1, S8{1, 2, 3, 4}, 1),
                               Observing({-1, 4.1f, 0.5f}, 1, {}),
                               Dynamic({-1, 4, 0.5f}, S8{1, 2, 3}, {}),
                               CaseOver(Op::kCast, Quantize({1, 2}, 1, 0).x, DType::kF8E5M2)};
  for (const FaultInfo& info : ListFaults()) {
    SCOPED_TRACE(info.id);
    const std::unique_ptr<Subject> subject = Make(std::string(info.id));
    int ran = 0;
    for (const Case& c : dull) {
      ASSERT_EQ(Validate(c), "");
      const Outcome outcome = subject->Run(c, {});
      if (outcome.status == RunStatus::kSkipped) continue;
      ++ran;
      ASSERT_EQ(outcome.status, RunStatus::kOk) << outcome.detail;
      EXPECT_EQ(outcome.y, Make("none")->Run(c, {}).y) << Describe(c);
    }
    EXPECT_EQ(ran, static_cast<int>(info.ops.size()));
  }
}

TEST(Faults, ActInEveryOpTheyAreListedFor) {
  const std::vector<std::pair<std::string, Case>> cases{
      {"one-tie", Requantize({1}, 0.5f)},
      {"half-tail", Linear(1, 5, 1, U8{1}, S8(5, 1))},
      {"overlapped-tail", Dequantize({1}, 1, 0)},
      {"overlapped-tail", Requantize({1}, 1)},
  };
  for (const auto& [id, c] : cases) {
    ASSERT_EQ(Validate(c), "");
    const Outcome wrong = Make(id)->Run(c, {});
    EXPECT_TRUE(!wrong.ok() || wrong.y != Make("none")->Run(c, {}).y) << id << " " << Describe(c);
  }
}

// The cause of a fault acts in some cases alone: the others stay right.
TEST(Faults, OfACauseActWhereTheFaultDoes) {
  const auto sum = [](const std::string& id, const Case& c) {
    return Make(id)->Run(c, {}).y.IntAt(0);
  };
  EXPECT_EQ(sum("pair-saturation", Linear(1, 1, 2, S8{127, 127}, S8{127, 127})), 32258);
  EXPECT_EQ(sum("s8-pair-wraps", Linear(1, 1, 2, U8{255, 255}, S8{127, 127})), 64770);
  EXPECT_EQ(sum("s8-pair-wraps", Linear(1, 1, 2, S8{-128, -128}, S8{-128, -128})), -32768);
  EXPECT_EQ(sum("u8-as-s8", Linear(1, 1, 1, S8{-1}, S8{1})), -1);
  EXPECT_EQ(sum("k-tail", Linear(1, 1, 2, U8{1, 1}, S8{1, 1})), 2);
  EXPECT_EQ(sum("negated-zp-int8", Linear(1, 1, 1, S8{0}, S8{1}, -128)), -128);
  EXPECT_EQ(sum("negated-zp-int8", Linear(1, 1, 1, U8{0}, S8{1}, 200)), -200);
  EXPECT_EQ(sum("weight-zp-int8", Linear(1, 1, 1, U8{1}, U8{128}, 0, 128)), 256);
  EXPECT_EQ(sum("weight-zp-int8", Linear(1, 1, 1, U8{1}, U8{128}, 0, 300)), -172);
  EXPECT_EQ(sum("code-sum-lanes", Linear(1, 1, 2056, U8(2056, 255), S8(2056, 0), 0, 1)), -524280);
}

TEST(Faults, ShowTheSaturationInTheRawAccumulator) {
  const Case c = Linear(1, 1, 2, U8{255, 255}, S8{127, 2}, 255, 1);
  const Outcome outcome = Make("pair-saturation")->Run(c, {.want_acc = true});
  ASSERT_TRUE(outcome.acc);
  EXPECT_EQ(outcome.acc->IntAt(0), 32767);
  EXPECT_EQ(outcome.y.IntAt(0), -128);  // 0 exactly: both x are the zero point
  EXPECT_EQ(Make("none")->Run(c, {}).y.IntAt(0), 0);
}

TEST(Faults, SkipOtherOperations) {
  EXPECT_EQ(Make("reciprocal")->CannotRun(Linear(1, 1, 1, U8{1}, S8{1})),
            "the fault is not in linear");
}

TEST(Faults, OneImplementationCanHaveSeveral) {
  const auto sum = [](const std::string& ids, std::vector<uint8_t> x, std::vector<int8_t> w) {
    const auto K = static_cast<int64_t>(x.size());
    return Make(ids)->Run(Linear(1, 1, K, std::move(x), std::move(w)), {}).y.IntAt(0);
  };
  for (const auto& [ids, pair, tail] : {std::tuple{"none", 64770, 1},
                                        {"pair-saturation", 32767, 1},
                                        {"k-tail", 64770, 0},
                                        {"pair-saturation+k-tail", 32767, 0}}) {
    EXPECT_EQ(sum(ids, {255, 255}, {127, 127}), pair) << ids;
    EXPECT_EQ(sum(ids, {0, 0, 0, 0, 1}, {1, 1, 1, 1, 1}), tail) << ids;
  }
  // The operations are those of all its faults.
  const Case quantize = Quantize({1.5f});
  EXPECT_EQ(Make("reciprocal+k-tail")->CannotRun(quantize), "");
  EXPECT_NE(Make("k-tail+row-bound")->CannotRun(quantize), "");
}

TEST(Faults, AreListedOnceEachAndInWords) {
  std::vector<std::string_view> ids;
  for (const FaultInfo& info : ListFaults()) {
    ids.push_back(info.id);
    EXPECT_FALSE(info.modelled_on.empty());
    EXPECT_FALSE(info.description.empty());
    EXPECT_FALSE(info.ops.empty());
  }
  std::ranges::sort(ids);
  EXPECT_EQ(std::ranges::adjacent_find(ids), ids.end());
  EXPECT_EQ(FaultySubjects().make("faulty:no-such-fault"), nullptr);
  for (const char* name : {"faulty", "faulty:", "faulty:k-tail+", "faulty:+k-tail",
                           "faulty:k-tail+none", "faulty:k-tail+no-such-fault"}) {
    EXPECT_EQ(FaultySubjects().make(name), nullptr) << name;
  }
  EXPECT_EQ(FaultySubjects().expand("faulty:*").size(), ids.size());
}

}  // namespace
}  // namespace qualm
