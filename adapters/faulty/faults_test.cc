// SPDX-License-Identifier: Apache-2.0
// Every planted fault has a witness: a smallest case on which the unharmed implementation gives
// the values worked out by hand, and the harmed one does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
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

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

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
  of["pair-saturation"] = {Linear(1, 1, 2, U8{255, 255}, S8{127, 2}), {32895}};
  of["s8-pair-wraps"] = {Linear(1, 1, 2, S8{-128, -128}, S8{-128, -128}), {32768}};
  of["int32-wraps"] = {Linear(1, 1, 1, U8{255}, S8{127}, INT32_MIN), {INT32_MAX}};
  of["u8-as-s8"] = {Linear(1, 1, 1, U8{128}, S8{1}), {128}};
  of["k-tail"] = {Linear(1, 1, 1, U8{1}, S8{1}), {1}};
  of["k-zero"] = {Linear(1, 1, 0, U8{}, S8{}), {0}, {}, RunStatus::kTouchedOutside};
  of["k-over-read"] = {
      Linear(1, 1, 1, U8{1}, S8{1}), {1}, {.end_at_guard = true}, RunStatus::kTouchedOutside};
  of["zp-term-float"] = {Linear(1, 1, 1, U8{0}, S8{1}, (1 << 24) + 1), {-16777217}};
  of["padded-k-zero-points"] = {Linear(1, 1, 1, U8{1}, S8{1}, 1, 1), {0}};
  of["negated-zp-int8"] = {Linear(1, 1, 1, S8{0}, S8{1}, -128), {128}};
  of["weight-zp-int8"] = {Linear(1, 1, 1, U8{1}, U8{128}, 0, 128), {0}};
  of["row-sum-of-row-0"] = {Linear(2, 1, 1, U8{0, 1}, S8{1}, 0, 1), {0, 0}};
  of["stale-column-sums"] = {Linear(1, 1, 1, U8{1}, S8{1}, 1), {0}};
  of["stale-column-sums"].before = Linear(1, 1, 1, U8{1}, S8{2}, 1);

  Case bias = WithOutput(Linear(1, 1, 1, U8{0}, S8{0}), DType::kF32);
  bias.x_q.scale = {0x1p-16f};
  bias.w_q.scale = {0x1p-16f};
  bias.bias = std::vector<float>{1.0f};
  of["bias-wraps"] = {bias, {1}};

  // (1 + 2^-23)^2 / (2 + 2^-21) is above a half by 2^-47, and a half after rounding the product.
  Case product = WithOutput(Linear(1, 1, 1, U8{1}, S8{1}), DType::kU8);
  product.x_q.scale = {0x1.000002p0f};
  product.w_q.scale = {0x1.000002p0f};
  product.out_q.scale = {0x1.000004p1f};
  of["scale-in-float"] = {product, {1}};

  Case tie = WithOutput(Linear(1, 1, 1, U8{147}, S8{1}), DType::kU8);
  tie.out_q.scale = {98};
  of["multiplier-in-double"] = {tie, {2}};
  of["zp-before-rounding"] = {Requantize({1}, 0.5f, 1), {1}};
  of["ties-away"] = {Requantize({1}, 0.5f), {0}};
  of["one-tie"] = {Quantize({0.5f}), {0}};
  of["reciprocal"] = {Quantize({45.5f}, 7), {6}};
  of["tail-rounds-away"] = {Quantize({0.5f}), {0}};
  of["alignment-head"] = {Quantize({0.5f}), {0}, {.align_offset = 4, .end_at_guard = false}};
  of["caller-rounding"] = {Quantize({1.25f}), {1}, {.rounding = Rounding::kUp}};
  of["clamp-after-conversion"] = {Quantize({kInf, 0x1p31f}), {255, 255}};
  of["nan-order"] = {Quantize({kNan}, 1, 10), {10}};
  of["difference-int8"] = {Dequantize({127}, 1, -128), {255}};
  of["truncating-narrow"] = {Requantize({256}, 1), {255}};
  of["relu-clamp-zero"] = {Requantize({-1}, 1, 1), {1}};
  of["relu-clamp-zero"].c.relu = true;

  Case channels = WithOutput(Linear(1, 9, 1, U8{1}, S8(9, 1)), DType::kF32);
  channels.per_channel = true;
  channels.w_q.scale = {1, 1, 1, 1, 1, 1, 1, 1, 2};
  channels.w_q.zero_point.assign(9, 0);
  of["scale-index"] = {channels, {1, 1, 1, 1, 1, 1, 1, 1, 2}};

  of["overlapped-tail"] = {Quantize({1}), {1}, {}, RunStatus::kTouchedOutside};
  of["half-tail"] = {Requantize({7, 7, 7, 7, 7}, 1), {7, 7, 7, 7, 7}};
  of["store-order"] = {Linear(2, 3, 1, U8{1, 1}, S8{1, 2, 3}), {1, 2, 3, 1, 2, 3}};
  of["stride-ignored"] = {Linear(2, 1, 1, U8{1, 2}, S8{1}), {1, 2}, {.x_row_gap = 1}};
  Case groups =
      Conv(Op::kConv2d, {.in_h = 1, .in_w = 1, .in_c = 2, .groups = 2}, U8{1, 1}, 2, S8{1, 1});
  groups.per_channel = true;
  groups.w_q = {{1, 2}, {0, 0}};
  of["group-scale-index"] = {WithOutput(groups, DType::kF32), {1, 2}};

  Case in_place = Elementwise(Op::kRescale, U8{1, 1, 1, 1, 1, 1, 1, 1, 1});
  in_place.x_q.scale = {2};
  of["overlapped-tail-in-place"] = {in_place, {2, 2, 2, 2, 2, 2, 2, 2, 2}, {.in_place = true}};
  of["taps-int16"] = {Conv(Op::kDepthwise, {.in_h = 1, .in_w = 3, .in_c = 1, .kernel_w = 3},
                           S8{127, 127, 127}, 1, S8{127, 127, 127}),
                      {48387}};
  of["padding-is-code-zero"] = {
      Conv(Op::kConv2d, {.in_h = 1, .in_w = 1, .in_c = 1, .kernel_w = 2, .pad_left = 1}, U8{5}, 1,
           S8{1, 1}, 3),
      {2}};
  of["row-bound"] = {
      Conv(Op::kDepthwise, {.in_h = 1, .in_w = 1, .in_c = 1, .kernel_h = 2, .pad_bottom = 1}, U8{5},
           1, S8{1, 1}),
      {5},
      {},
      RunStatus::kTouchedOutside};
  of["kernel-width-bound"] = {
      Conv(Op::kConv2d, {.in_h = 1, .in_w = 2, .in_c = 1, .kernel_w = 2}, U8{1, 2}, 1, S8{1, 1}),
      {3}};
  of["max-pool-start"] = {
      Pool(Op::kMaxPool, {.in_h = 1, .in_w = 2, .in_c = 1, .kernel_w = 2}, S8{-128, -128}), {-128}};
  of["average-sums-u16"] = {
      Pool(Op::kGlobalAvgPool, {.in_h = 1, .in_w = 258, .in_c = 1}, U8(258, 255)), {255}};
  of["divisor-unclipped"] = {
      Pool(Op::kAvgPool, {.in_h = 1, .in_w = 1, .in_c = 1, .kernel_w = 2, .pad_right = 1}, U8{8}),
      {8}};
  Case product_of_codes = Elementwise(Op::kMul, S8{127}, S8{127}, -128, -128);
  product_of_codes.out_q.scale = {1000};  // 255 * 255 / 1000
  of["product-int16"] = {product_of_codes, {65}};
  of["concat-first-params"] = {Concat(U8{3}, U8{3}, 2), {3, 6}};
  Case tie_of_table = Elementwise(Op::kTable, U8{1});
  tie_of_table.out_q.scale = {2};
  of["table-ties-away"] = {tie_of_table, {0}};
  of["table-index-offset"] = {Elementwise(Op::kTable, S8{5}), {5}};
  of["softmax-no-half"] = {Softmax(U8(7, 9), 1), std::vector<double>(7, 37)};  // 36.57
  of["softmax-max-not-subtracted"] = {Softmax(U8{1, 1}, 1), {128, 128}};
  of["softmax-distance-int8"] = {Softmax(U8{0, 255}, 0x1p-6f), {5, 251}};  // 4.68, 251.3
  of["left-shift-dropped"] = {Elementwise(Op::kMul, U8{3}, U8{5}), {15}};

  of["reduce-range-ignored"] = {Observing({0, 127}, 1, {.reduce_range = true}), {1, 0}};
  of["no-scale-floor"] = {Observing({0, 0}, 1, {}), {0x1p-23, 0}};
  of["range-without-zero"] = {Observing({100, 255}, 1, {}), {1, 0}};
  Case two_rows = Dynamic({0, 255}, S8{0, 1}, {});
  two_rows.M = 2;
  two_rows.x = Tensor::Of<float>({2, 2}, std::vector<float>{0, 255, -255, 255});
  two_rows.x_gran = Granularity::kRow;
  of["scale-of-row-0"] = {two_rows, {255, 254}};
  of["zero-point-of-row-0"] = {two_rows, {255, 254}};
  // 255 + 0.01f * 2^-15 is 255 in float32, and 100 times that is not in double.
  std::vector<float> slowly(600, 0x1.fe0002p7f);
  slowly[0] = 255;
  of["averaging-in-double"] = {
      Observing(std::move(slowly), 600, {.kind = Observer::Kind::kMovingAverage}), {1, 0}};

  Case blocks = Linear(1, 5, 257, U8(257, 0), S8(5 * 257, 0));
  blocks.bias_i32 = std::vector<int32_t>(5, 1);
  of["bias-per-k-block"] = {blocks, {1, 1, 1, 1, 1}};
  Case wide = WithOutput(Linear(1, 257, 1, U8{1}, S8(257, 1)), DType::kF32);
  wide.per_channel = true;
  wide.w_q = {std::vector<float>(257, 1), std::vector<int32_t>(257, 0)};
  wide.w_q.scale.back() = 2;
  of["channel-index-u8"] = {wide, WithLast(257, 1, 2)};
  U8 last_row(257, 0);
  last_row.back() = 1;
  of["row-index-u8"] = {Linear(257, 1, 1, last_row, S8{1}, 0, 1), std::vector<double>(257, 0)};
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
  U8 last_operand(65537, 0);
  last_operand.back() = 1;
  of["element-index-u16"] = {Elementwise(Op::kAdd, U8(65537, 0), last_operand),
                             WithLast(65537, 0, 1)};
  of["chunk-edge"] = {Quantize(std::vector<float>(16384, 1)), std::vector<double>(16384, 1)};
  of["softmax-row-block"] = {Softmax(U8(2049, 9), 1), std::vector<double>(2049, 0)};  // 1/8
  U8 line(65, 0);
  line.back() = 1;
  of["image-row-buffer"] = {Pool(Op::kMaxPool, {.in_h = 1, .in_w = 65, .in_c = 1}, line),
                            WithLast(65, 0, 1)};
  std::vector<float> late(4097, 0);
  late.back() = 255;
  of["observer-first-block"] = {Observing(late, 1, {}), {1, 0}};
  of["power-shift-wraps"] = {Requantize({1}, 0x1p-32f), {0}};
  of["code-sum-lanes"] = {Linear(1, 1, 2056, U8(2056, 0), S8(2056, -128), 1), {263168}};
  of["negated-term-int32"] = {Linear(1, 1, 1, U8{0}, S8{2}, INT32_MIN / 2), {INT32_MAX}};

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

double ValueAt(const Tensor& tensor, int64_t i) {
  return tensor.dtype() == DType::kF32 ? double{tensor.FloatAt(i)} : double(tensor.IntAt(i));
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
  EXPECT_EQ(witnesses.size(), ListFaults().size());
  for (const FaultInfo& info : ListFaults()) {
    SCOPED_TRACE(info.id);
    const auto at = witnesses.find(std::string(info.id));
    ASSERT_NE(at, witnesses.end());
    const Witness& witness = at->second;
    ASSERT_EQ(Validate(witness.c), "");

    const Outcome right = RunWitness("none", witness);
    ASSERT_EQ(right.status, RunStatus::kOk) << right.detail;
    ASSERT_EQ(static_cast<size_t>(right.y.size()), witness.exact.size());
    for (int64_t i = 0; i < right.y.size(); ++i) {
      EXPECT_EQ(ValueAt(right.y, i), witness.exact[static_cast<size_t>(i)]) << i;
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
  Case add = Elementwise(Op::kAdd, U8{1, 2, 3}, U8{4, 5, 6}, 1, 2);
  add.x_q.scale = {0.375f};
  add.w_q.scale = {0.25f};
  Case difference = Elementwise(Op::kSub, U8{3, 2, 3}, U8{1, 1, 2}, 1, 1);
  difference.x_q.scale = {0.375f};
  difference.w_q.scale = {0.25f};
  Case mul = Elementwise(Op::kMul, U8{1, 2, 3}, U8{4, 5, 6}, 1, 2);
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
                               Pool(Op::kAvgPool, plain, U8{1, 2, 3, 5}),
                               Pool(Op::kGlobalAvgPool, plain, U8{1, 2, 3, 5}),
                               Conv(Op::kConv2d, plain, U8{1, 2, 3, 4}, 1, S8{1, 2, 3, 4}, 1),
                               Conv(Op::kDepthwise, plain, U8{1, 2, 3, 4}, 1, S8{1, 2, 3, 4}, 1),
                               Observing({-1, 4.1f, 0.5f}, 1, {}),
                               Dynamic({-1, 4, 0.5f}, S8{1, 2, 3}, {})};
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
  Case relu = WithOutput(Linear(1, 1, 1, U8{1}, S8{-1}), DType::kU8);
  relu.relu = true;
  relu.out_q.zero_point = {2};
  Case quantize_relu = Quantize({-1}, 1, 2);
  quantize_relu.relu = true;
  Case tie = WithOutput(Linear(1, 1, 1, U8{1}, S8{1}), DType::kU8);
  tie.out_q = {{2.0f}, {1}};
  const Case large = WithOutput(Linear(1, 1, 2, U8{255, 255}, S8{127, 127}), DType::kU8);
  const Case tail = Linear(1, 5, 1, U8{1}, S8(5, 1));
  Case depthwise =
      Conv(Op::kDepthwise, {.in_h = 1, .in_w = 1, .in_c = 2, .groups = 2}, U8{1, 1}, 2, S8{1, 1});
  depthwise.per_channel = true;
  depthwise.w_q = {{1, 2}, {0, 0}};
  depthwise = WithOutput(depthwise, DType::kF32);
  const std::vector<std::pair<std::string, Case>> cases{
      {"relu-clamp-zero", relu},
      {"relu-clamp-zero", quantize_relu},
      {"zp-before-rounding", tie},
      {"ties-away", tie},
      {"one-tie", Requantize({1}, 0.5f)},
      {"truncating-narrow", large},
      {"half-tail", tail},
      {"overlapped-tail", Dequantize({1}, 1, 0)},
      {"overlapped-tail", Requantize({1}, 1)},
      {"pair-saturation", Conv(Op::kConv2d, {.in_h = 1, .in_w = 2, .in_c = 1, .kernel_w = 2},
                               U8{255, 255}, 1, S8{127, 2})},
      {"padding-is-code-zero",
       Conv(Op::kDepthwise, {.in_h = 1, .in_w = 1, .in_c = 1, .kernel_w = 2, .pad_right = 1}, U8{5},
            1, S8{1, 1}, 3)},
      {"group-scale-index", depthwise},
      {"average-sums-u16",
       Pool(Op::kAvgPool, {.in_h = 1, .in_w = 258, .in_c = 1, .kernel_w = 258}, U8(258, 255))},
      {"left-shift-dropped", Elementwise(Op::kAdd, U8{3}, U8{5})},
  };
  for (const auto& [id, c] : cases) {
    ASSERT_EQ(Validate(c), "");
    const Outcome wrong = Make(id)->Run(c, {});
    EXPECT_TRUE(!wrong.ok() || wrong.y != Make("none")->Run(c, {}).y) << id << " " << Describe(c);
  }
}

TEST(Faults, ShowTheSaturationInTheRawAccumulator) {
  const Case c = Linear(1, 1, 2, U8{255, 255}, S8{127, 2}, 255, 1);
  const Outcome outcome = Make("pair-saturation")->Run(c, {.want_acc = true});
  ASSERT_TRUE(outcome.acc);
  EXPECT_EQ(outcome.acc->IntAt(0), 32767);
  EXPECT_EQ(outcome.y.IntAt(0), -128);  // 0 exactly: both x are the zero point
  EXPECT_EQ(Make("none")->Run(c, {}).y.IntAt(0), 0);
}

TEST(Faults, SkipWhatTheArithmeticCannotHold) {
  Case c = WithOutput(Linear(1, 1, 1, U8{1}, S8{1}), DType::kU8);
  c.bias = std::vector<float>{0x1p127f};
  EXPECT_EQ(Make("none")->CannotRun(c),
            "bias and x_scale*w_scale too far apart for 128-bit arithmetic");
  EXPECT_EQ(Make("none")->Run(c, {}).status, RunStatus::kSkipped);
  EXPECT_EQ(Make("reciprocal")->CannotRun(c), "the fault is not in linear");
  EXPECT_EQ(Make("none")->CannotRun(Observing({1}, 1, {.kind = Observer::Kind::kHistogram})),
            "there is no histogram observer here");
  Case add = Elementwise(Op::kAdd, U8{1}, U8{1});
  EXPECT_EQ(Make("none")->CannotRun(add), "");
  add.w_q.scale = {0x1p-127f};
  EXPECT_EQ(Make("none")->CannotRun(add),
            "the scales of the operands are too far apart for 128-bit arithmetic");
}

// A kept scale beside a bias that was made for another one: no exact sum, and no reason to end.
TEST(Faults, KeptScalesMayBeFarFromTheBias) {
  const std::unique_ptr<Subject> subject = Make("stale-scales");
  Case c = WithOutput(Linear(1, 1, 1, U8{1}, S8{1}), DType::kU8);
  c.x_q.scale = {0x1p-120f};
  ASSERT_TRUE(subject->Run(c, {}).ok());
  c.x_q.scale = {1};
  c.bias = std::vector<float>{0x1p40f};
  const Outcome outcome = subject->Run(c, {});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.y.IntAt(0), 255);
}

// Channel 8 takes the scale of channel 0.
TEST(Faults, ScalesOfOtherChannelsMayBeFarFromTheBias) {
  Case c = WithOutput(Linear(1, 9, 1, U8{1}, std::vector<int8_t>(9, 1)), DType::kU8);
  c.per_channel = true;
  c.w_q.scale.assign(9, 1.0f);
  c.w_q.scale[0] = 0x1p-120f;
  c.w_q.zero_point.assign(9, 0);
  c.bias.emplace(9, 0.0f);
  c.bias->back() = 0x1p40f;
  const Outcome outcome = Make("scale-index")->Run(c, {});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.y.IntAt(8), 255);
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
