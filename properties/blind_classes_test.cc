// SPDX-License-Identifier: Apache-2.0
// Kinds of mistakes that drawn cases once met by luck alone. `qualm check --cases 300` finds each
// of these by seeds 1, 2 and 3, for the sake of
//   several_threads (one of 16 cases): threads that share a row, leave rows out, round or flush as
//     the caller does; rows are repeated so that all threads work at once
//   theme middling: a way of computing for M from 4, N from 16 and K from 32 on
//   theme far-value: a reduction that forgets elements behind a block or in the tail
//   theme wide-terms: terms with zero points in float32 or int32, which cancel, so that a last bit
//     shows
//   one_thing_changed: caches whose key lacks a field
//   scales chosen for one element of mul, rescale and table: float32 next to a tie
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "oracles/exact/exact.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

using Kernel = TestSubject::RunFunction;
using Wide = __int128;

struct Mistake {
  const char* name;
  Op op;
  std::function<Kernel()> kernel;  // a new one, which remembers nothing
};

Kernel Always(std::function<Tensor(const Case&)> run) {
  return [run = std::move(run)](const Case& c, const RunContext&) {
    return TestSubject::Good(run(c));
  };
}

void Spoil(Tensor& y, int64_t i) { y.bytes()[static_cast<size_t>(i) * SizeOf(y.dtype())] ^= 1; }

// --- Threads ------------------------------------------------------------------------------------

// Every thread copies its rows of y through one row that all share.
Outcome ThroughOneRow(const Case& c, const RunContext& context) {
  Tensor y = exact::Evaluate(c);
  const auto columns =
      static_cast<size_t>(std::max<int64_t>(1, y.shape().back())) * SizeOf(y.dtype());
  const std::span<uint8_t> bytes = y.bytes();
  std::vector<std::atomic<uint8_t>> scratch(columns);
  const size_t rows = bytes.size() / columns;
  const auto share = [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const std::span<uint8_t> own = bytes.subspan(row * columns, columns);
      for (size_t i = 0; i < columns; ++i) scratch[i].store(own[i], std::memory_order_relaxed);
      std::this_thread::yield();  // the work, during which another thread may run
      for (size_t i = 0; i < columns; ++i) own[i] = scratch[i].load(std::memory_order_relaxed);
    }
  };
  const auto threads = static_cast<size_t>(context.threads);
  std::vector<std::thread> workers;
  for (size_t t = 0; t < threads; ++t)
    workers.emplace_back(share, rows * t / threads, rows * (t + 1) / threads);
  for (std::thread& worker : workers) worker.join();
  return TestSubject::Good(std::move(y));
}

Kernel OnThreadsWhere(bool (*wrong)(const RunContext&)) {
  return [wrong](const Case& c, const RunContext& context) {
    Tensor y = exact::Evaluate(c);
    if (context.threads > 1 && wrong(context) && !y.empty()) Spoil(y, y.size() - 1);
    return TestSubject::Good(std::move(y));
  };
}

// Each thread does M / threads rows, and nobody does the rest.
Outcome RestOfRows(const Case& c, const RunContext& context) {
  Tensor y = exact::Evaluate(c);
  const int64_t columns = std::max<int64_t>(1, y.shape().back());
  const int64_t rows = y.size() / columns, done = rows / context.threads * context.threads;
  for (int64_t i = done * columns; i < y.size(); ++i) Spoil(y, i);
  return TestSubject::Good(std::move(y));
}

// --- Sizes and places ---------------------------------------------------------------------------

// A way of computing for sizes that are all middling, whose last output is wrong.
Tensor WrongWhereMiddling(const Case& c) {
  Tensor y = exact::Evaluate(c);
  const bool middling = c.M >= 4 && c.M <= 64 && c.N >= 16 && c.N <= 64 && c.K >= 32 &&
                        c.K <= 256 && c.M * c.N * c.K > 16000;
  if (middling) Spoil(y, y.size() - 1);
  return y;
}

// Elements behind `from` of a long row of x count as the first one does.
template <class T>
void Forget(std::span<T> row, size_t from) {
  if (row.size() > from) std::ranges::fill(row.subspan(from), row[0]);
}

// The largest of a row is looked for in whole vectors of eight.
Tensor SoftmaxWithoutTail(const Case& c) {
  Case less = c;
  const auto n = static_cast<size_t>(c.N);
  for (int64_t m = 0; m < c.M && n > 64; ++m)
    Forget(less.x.bytes().subspan(static_cast<size_t>(m) * n, n), n / 8 * 8);
  return exact::Evaluate(less);
}

// The range of a row is that of its whole vectors of sixteen, where there are more than 256 values.
Tensor RangeWithoutTail(const Case& c) {
  Case less = c;
  const auto n = static_cast<size_t>(c.K == 0 ? c.N : c.K);
  const std::span<float> x = less.x.as<float>();
  for (size_t at = 0; n > 256 && at < x.size(); at += n) Forget(x.subspan(at, n), n / 16 * 16);
  return exact::Evaluate(less);
}

// The last term of a sum of more than 1,024 is dropped.
Tensor WithoutLastTerm(const Case& c) {
  std::vector<Wide> sums = exact::CorrectedSums(c);
  if (c.K > 1024 && c.op == Op::kLinear) {
    for (int64_t i = 0; i < std::ssize(sums); ++i) {
      const int64_t n = i % c.N, m = i / c.N;
      sums[static_cast<size_t>(i)] -= (Wide{c.x.IntAt(m * c.K + c.K - 1)} - c.x_q.zero_point[0]) *
                                      (Wide{c.w.IntAt(n * c.K + c.K - 1)} - c.w_q.zero_point_at(n));
    }
  }
  return exact::EvaluateFromSums(c, sums);
}

// --- Wide terms ---------------------------------------------------------------------------------

int32_t Wrapped(Wide value) { return static_cast<int32_t>(static_cast<uint32_t>(value)); }

// K * zx * zw in int32, added to sums that are wide enough.
Tensor ProductOfThreeWraps(const Case& c) {
  std::vector<Wide> sums = exact::CorrectedSums(c);
  for (size_t i = 0; i < sums.size(); ++i) {
    const Wide product =
        Wide{c.K} * c.x_q.zero_point[0] * c.w_q.zero_point_at(static_cast<int64_t>(i) % c.N);
    sums[i] += Wrapped(product) - product;
  }
  return exact::EvaluateFromSums(c, sums);
}

// What corrects the sum of codes is added to it in float32.
Tensor CompensationInFloat(const Case& c) {
  std::vector<Wide> sums = exact::CorrectedSums(c);
  const std::vector<int64_t> raw = exact::RawSums(c);
  for (size_t i = 0; i < sums.size(); ++i) {
    const Wide bias = c.bias_i32 ? (*c.bias_i32)[i % static_cast<size_t>(c.N)] : 0;
    const auto in_float = static_cast<float>(raw[i]) + static_cast<float>(sums[i] - bias - raw[i]);
    sums[i] = static_cast<Wide>(in_float) + bias;
  }
  return exact::EvaluateFromSums(c, sums);
}

Tensor BiasWraps(const Case& c) {
  std::vector<Wide> sums = exact::CorrectedSums(c);
  for (Wide& sum : sums) {
    if (c.bias_i32) sum = Wrapped(sum);
  }
  return exact::EvaluateFromSums(c, sums);
}

// (a - za)(b - zb), or the sum of x - zx, in int32. These are what the integers of the oracle are.
Tensor IntegersWrap(const Case& c) {
  exact::Integers integers = exact::IntegersOf(c);
  for (Wide& value : integers.values) value = Wrapped(value);
  return exact::EvaluateFrom(c, std::move(integers));
}

// The number of codes times their zero point in int32.
Tensor CountTimesZeroPointWraps(const Case& c) {
  exact::Integers integers = exact::IntegersOf(c);
  const Wide product = Wide{c.window.kernel_h * c.window.kernel_w} * c.x_q.zero_point[0];
  for (Wide& value : integers.values) value += product - Wrapped(product);
  return exact::EvaluateFrom(c, std::move(integers));
}

// --- Float32 ------------------------------------------------------------------------------------

int64_t Rounded(float value) {
  return static_cast<int64_t>(std::nearbyint(std::clamp(value, -1e9f, 1e9f)));
}

// Elements of an operation on codes, from a function of the differences to the zero points.
Tensor InFloat32(const Case& c, const std::function<float(float a, float b)>& of) {
  Tensor y(c.out_dtype, c.output_shape());
  const int64_t zero = c.out_q.zero_point[0];
  for (int64_t i = 0; i < y.size(); ++i) {
    const auto a = static_cast<float>(int64_t{c.x.IntAt(i)} - c.x_q.zero_point[0]);
    const auto b =
        c.w.empty() ? 0.0f : static_cast<float>(int64_t{c.w.IntAt(i)} - c.w_q.zero_point[0]);
    const int64_t low = c.relu ? std::max<int64_t>(zero, c.out_min) : c.out_min;
    const int64_t code = std::min<int64_t>(std::max(Rounded(of(a, b)) + zero, low), c.out_max);
    y.SetInt(i, static_cast<int32_t>(code));
  }
  return y;
}

bool Ordinary(float scale) { return scale > 0x1p-60f && scale < 0x1p60f; }

// Where no step overflows, so that only roundings tell.
Tensor MulInFloat(const Case& c) {
  const float a = c.x_q.scale[0], b = c.w_q.scale[0], out = c.out_q.scale[0];
  if (!Ordinary(a) || !Ordinary(b) || !Ordinary(out)) return exact::Evaluate(c);
  for (const QParams* q : {&c.x_q, &c.w_q, &c.out_q}) {
    if (std::abs(int64_t{q->zero_point[0]}) > 1000) return exact::Evaluate(c);
  }
  return InFloat32(c, [&](float x, float w) { return x * w * (a * b / out); });
}

Tensor RescaleInFloat(const Case& c) {
  const float a = c.x_q.scale[0], out = c.out_q.scale[0];
  if (!Ordinary(a) || !Ordinary(out) || std::abs(int64_t{c.x_q.zero_point[0]}) > 1000)
    return exact::Evaluate(c);
  return InFloat32(c, [&](float x, float) { return x * (a / out); });
}

Kernel TableInFloat(Function function) {
  return Always([function](const Case& c) {
    const float scale = c.x_q.scale[0], out = c.out_q.scale[0];
    const bool far = std::abs(int64_t{c.x_q.zero_point[0]}) > 1000;
    if (c.function != function || !Ordinary(scale) || !Ordinary(out) || far)
      return exact::Evaluate(c);
    return InFloat32(c, [&](float x, float) {
      const float v = x * scale;
      if (function == Function::kSigmoid) return 1 / (1 + std::exp(-v)) / out;
      if (function == Function::kTanh) return std::tanh(v) / out;
      return v * std::clamp(v + 3, 0.0f, 6.0f) * (1 / 6.0f) / out;
    });
  });
}

// --- Caches whose key lacks a field -------------------------------------------------------------

// Answers as before where the case, without the field that `forget` makes the same, was answered
// last.
Kernel Cached(std::function<void(Case&)> forget) {
  struct Kept {
    Case key;
    Tensor y;
  };
  return [forget = std::move(forget), kept = std::make_shared<std::optional<Kept>>()](
             const Case& c, const RunContext&) {
    Case key = ProblemOf(c);
    forget(key);
    if (!*kept || !((*kept)->key == key)) *kept = Kept{key, exact::Evaluate(c)};
    const Tensor& y = (*kept)->y;
    return TestSubject::Good(
        y.shape() == c.output_shape() && y.dtype() == c.out_dtype ? y : exact::Evaluate(c));
  };
}

void ForgetRestOfWeights(Case& c) {
  if (c.N == 0) return;
  std::ranges::fill(c.w.bytes().subspan(static_cast<size_t>(c.w.size() / c.N)), uint8_t{0});
}

std::vector<Mistake> Mistakes() {
  const auto one = [](Kernel kernel) { return [kernel] { return kernel; }; };
  const auto always = [&](Tensor (*run)(const Case&)) { return one(Always(run)); };
  std::vector<Mistake> all;
  for (const Op op :
       {Op::kAdd, Op::kTable, Op::kDequantize, Op::kAvgPool, Op::kConv2d, Op::kLinear})
    all.push_back({"OneRowForAllThreads", op, one(ThroughOneRow)});
  for (const Op op : {Op::kQuantize, Op::kMaxPool, Op::kLinear}) {
    all.push_back({"RestOfRows", op, one(RestOfRows)});
    all.push_back({"ThreadsRoundAsTheCaller", op, one(OnThreadsWhere([](const RunContext& context) {
                     return context.rounding == Rounding::kUp;
                   }))});
    all.push_back({"ThreadsFlushAsTheCaller", op, one(OnThreadsWhere([](const RunContext& context) {
                     return context.flush_denormals;
                   }))});
  }
  for (const Op op : {Op::kLinear, Op::kConv2d, Op::kDynamicLinear})
    all.push_back({"Middling", op, always(WrongWhereMiddling)});
  all.push_back({"LargestWithoutTail", Op::kSoftmax, always(SoftmaxWithoutTail)});
  for (const Op op : {Op::kChooseQParams, Op::kDynamicLinear})
    all.push_back({"RangeWithoutTail", op, always(RangeWithoutTail)});
  all.push_back({"LastTermDropped", Op::kLinear, always(WithoutLastTerm)});
  for (const Op op : {Op::kLinear, Op::kConv2d, Op::kDepthwise}) {
    all.push_back({"ProductOfThreeWraps", op, always(ProductOfThreeWraps)});
    all.push_back({"CompensationInFloat", op, always(CompensationInFloat)});
    all.push_back({"BiasWraps", op, always(BiasWraps)});
  }
  all.push_back({"ProductWraps", Op::kMul, always(IntegersWrap)});
  for (const Op op : {Op::kAvgPool, Op::kGlobalAvgPool})
    all.push_back({"CountTimesZeroPointWraps", op, always(CountTimesZeroPointWraps)});
  all.push_back({"Float32", Op::kMul, always(MulInFloat)});
  all.push_back({"Float32", Op::kRescale, always(RescaleInFloat)});
  all.push_back({"SigmoidInFloat32", Op::kTable, one(TableInFloat(Function::kSigmoid))});
  all.push_back({"TanhInFloat32", Op::kTable, one(TableInFloat(Function::kTanh))});
  all.push_back({"HardSwishInFloat32", Op::kTable, one(TableInFloat(Function::kHardSwish))});
  const auto cached = [&](const char* name, Op op, void (*forget)(Case&)) {
    all.push_back({name, op, [forget] { return Cached(forget); }});
  };
  cached("KeyWithoutRestOfWeights", Op::kLinear, ForgetRestOfWeights);
  cached("KeyWithoutRestOfWeights", Op::kConv2d, ForgetRestOfWeights);
  for (const Op op : {Op::kLinear, Op::kConv2d, Op::kAdd, Op::kTable, Op::kAvgPool}) {
    cached("KeyWithoutScale", op, [](Case& c) { c.x_q.scale = {1}; });
    cached("KeyWithoutZeroPoint", op, [](Case& c) { c.x_q.zero_point = {0}; });
    cached("KeyWithoutOutputZeroPoint", op, [](Case& c) { c.out_q.zero_point = {0}; });
    cached("KeyWithoutLowClamp", op, [](Case& c) { c.out_min = c.out_max; });
  }
  for (const Op op : {Op::kLinear, Op::kConv2d}) {
    cached("KeyWithoutBias", op, [](Case& c) {
      if (c.bias) std::ranges::fill(*c.bias, 0.0f);
      if (c.bias_i32) std::ranges::fill(*c.bias_i32, 0);
    });
  }
  cached("KeyWithoutSlope", Op::kTable, [](Case& c) { c.negative_slope = 0; });
  cached("KeyWithoutFunction", Op::kTable, [](Case& c) { c.function = Function::kRelu; });
  for (const Op op : {Op::kConv2d, Op::kMaxPool}) {
    cached("KeyWithoutPadding", op, [](Case& c) {
      c.window.pad_top = c.window.pad_bottom = c.window.pad_left = c.window.pad_right = 0;
    });
  }
  cached("KeyWithoutDilation", Op::kConv2d, [](Case& c) {
    c.window.dilation_h = c.window.dilation_w = 1;
    c.window.pad_bottom = c.window.pad_right = 0;  // which says no more than the sizes
  });
  cached("KeyWithoutGroups", Op::kConv2d, [](Case& c) {
    c.window.groups = 1;
    c.K = 0;
    c.w = Tensor(c.w.dtype(), {0, 0, 0, 0});  // found by its address
  });
  return all;
}

// How many of 300 cases `qualm check --seed SEED` judges until one fails; -1 if none does.
int64_t CasesUntilFound(const Mistake& mistake, uint64_t seed) {
  TestSubject subject(mistake.kernel());
  for (int64_t i = 0; i < 300; ++i) {
    const uint64_t drawn = CaseSeed(seed, mistake.op, i);
    const Case c = gen::Draw(mistake.op, drawn);
    MemoSubject memo(subject);
    bool found = false;
    JudgeAll(
        c, memo, "*",
        [&](const Property&, const Verdict& verdict) { return !(found = verdict.failed()); },
        drawn);
    if (found) return i + 1;
  }
  return -1;
}

class BlindClasses : public testing::TestWithParam<Mistake> {};

TEST_P(BlindClasses, AreFoundWithin300Cases) {
  for (const uint64_t seed : {1, 2, 3}) {
    const int64_t cases = CasesUntilFound(GetParam(), seed);
    EXPECT_NE(cases, -1) << "seed " << seed;
    RecordProperty("cases_of_seed_" + std::to_string(seed), std::to_string(cases));
  }
}

INSTANTIATE_TEST_SUITE_P(Mistakes, BlindClasses, testing::ValuesIn(Mistakes()),
                         [](const testing::TestParamInfo<Mistake>& instance) {
                           return instance.param.name + std::string("Of_") +
                                  std::string(Name(instance.param.op));
                         });

// Judged the same way, a kernel without a mistake stays without a finding.
TEST(ExactKernels, NothingIsFoundInAnExactKernel) {
  for (const Op op : AllOps())
    EXPECT_EQ(CasesUntilFound({"", op, [] { return TestSubject::Exact; }}, 1), -1) << Name(op);
}

}  // namespace
}  // namespace qualm
