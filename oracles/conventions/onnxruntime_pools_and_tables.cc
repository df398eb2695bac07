// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime 1.30, paths below onnxruntime/. MaxPool: core/providers/cpu/nn/pool.cc.
// QLinearAveragePool: contrib_ops/cpu/quantization/qlinear_pool.cc @ 07d59c0; where the window is
// the whole image it is QLinearGlobalAveragePool: qlinear_global_average_pool.cc @ 283cf8a and
// core/mlas/lib/qlgavgpool.cpp @ 050413d. QLinearConcat, QLinearLeakyRelu, QLinearSigmoid are
// tables of 256 codes that are made by dequantizing, the function and MlasQuantizeLinear:
// qlinear_concat.cc @ 07d59c0, qlinear_activations.cc @ 16ac448, qlinear_lookup_table.cc @ 1272a01,
// core/mlas/lib/logistic.cpp @ 01d143a. QLinearSoftmax: qlinear_softmax.cc @ 07d59c0, clamped as
// microsoft/onnxruntime pull request 29728 made it.
#include "oracles/conventions/onnxruntime_pools_and_tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "oracles/exact/arithmetic/real.h"

namespace qualm::conventions::ort {
namespace {

bool IsAverage(Op op) { return op == Op::kAvgPool || op == Op::kGlobalAvgPool; }

// ---- Inputs ----

Value LargestCode(const Case& c, int64_t index) {
  Value value;
  value.SetInt(std::ranges::max(CodesUnderWindow(c, index)));
  return value;
}

// The window is the image, as it is in every global_avg_pool: sums of codes in int32.
bool IsGlobal(const Case& c) {
  const Window& v = c.window;
  return v.kernel_h == v.in_h && v.kernel_w == v.in_w && !v.has_padding();
}

Value SumOfCodes(const Case& c, int64_t index) {
  const std::vector<int32_t> codes = CodesUnderWindow(c, index);
  Value value;
  value.SetInt(Wrap32(SumOf(codes) - std::ssize(codes) * c.x_q.zero_point[0]));
  return value;
}

// Real values added one after another in float32, over their number. Padding that counts is the
// whole kernel, overhang of ceil mode included.
Value MeanOfReals(const Case& c, int64_t index) {
  const std::vector<int32_t> codes = CodesUnderWindow(c, index);
  float sum = 0;
  for (const int64_t code : codes)
    sum += c.x_q.scale[0] * static_cast<float>(code - c.x_q.zero_point[0]);
  int64_t count = std::ssize(codes);
  if (c.window.count_include_pad) count = c.window.kernel_h * c.window.kernel_w;
  Value value;
  value.SetReal(sum / static_cast<float>(count));
  return value;
}

Value ConcatCode(const Case& c, int64_t index) {
  Value value;
  value.SetInt(ConcatElementAt(c, index).code);
  return value;
}

// The logarithm of the largest sum that a row's exponentials may have, in float32. The nearest
// number, or the `other` one: every logf that is off by less than 1 ulp gives one of the two that
// enclose the real logarithm.
float LogOfMost(const Case& c, bool other) {
  const float most = std::numeric_limits<float>::max() / static_cast<float>(c.N);
  const float log = exact::RoundedLog(most);
  if (!other) return log;
  const double real = exact::RoundedLog(static_cast<double>(most));
  return Beside(log, real > static_cast<double>(log) ? 1 : -1);
}

// Output codes as a real number: the share of the row's sum, times floor(1 / output scale).
class RowShares {
 public:
  // exp of every code is a table: 255 stands for the largest code of the row, and is raised so far
  // that the sum of the row just fits a float32.
  explicit RowShares(const Case& c, bool other_log = false)
      : case_(c),
        shift_(std::max(0.0, static_cast<double>(LogOfMost(c, other_log)) - 5) /
               static_cast<double>(c.x_q.scale[0])) {}

  Value operator()(int64_t index, Trace*) {
    if (index / case_.N != row_) Sum(index / case_.N);
    Value value;
    value.SetReal(Of(index) * std::floor(1.0f / case_.out_q.scale[0]) / sum_);
    return value;
  }

  // Whether the exponentials that were asked for are those of every C library.
  bool AreDecided() const { return are_decided_; }

 private:
  float Of(int64_t index) {
    const int32_t code = 255 - largest_ + case_.x.IntAt(index);
    std::optional<float>& known = table_[static_cast<size_t>(code)];
    if (!known) {
      const double x = (code - 255 + shift_) * static_cast<double>(case_.x_q.scale[0]);
      const double power = exact::RoundedExp(x);
      known = static_cast<float>(power);
      are_decided_ = are_decided_ && static_cast<float>(Beside(power, -kExpUlps)) == *known &&
                     static_cast<float>(Beside(power, kExpUlps)) == *known;
    }
    return *known;
  }

  void Sum(int64_t row) {
    row_ = row;
    const int64_t first = row * case_.N, end = first + case_.N;
    largest_ = case_.x.IntAt(first);
    for (int64_t i = first; i < end; ++i) largest_ = std::max(largest_, case_.x.IntAt(i));
    sum_ = 0;
    for (int64_t i = first; i < end; ++i) sum_ += Of(i);
  }

  const Case& case_;
  double shift_;
  std::array<std::optional<float>, 256> table_;
  bool are_decided_ = true;
  int64_t row_ = -1;  // the row that `largest_` and `sum_` belong to
  int32_t largest_ = 0;
  float sum_ = 0;
};

// ---- Steps ----

void AsIs(Value& v, const Channel&) { v.lossy = false; }

void ToReal(Value& v, const Channel& c) {
  MultiplyInto(v, c.a.scale, static_cast<float>(v.integer - c.a.zero_point));
}
// QLinearConcat copies codes where scale and zero point are those of the output.
bool IsCopied(const Channel& c) { return c.a.scale == c.scale && c.a.zero_point == c.zero_point; }
void ToRealUnlessCopied(Value& v, const Channel& c) {
  if (!IsCopied(c)) return ToReal(v, c);
  v.SetReal(static_cast<float>(v.integer - c.a.zero_point));
  v.lossy = false;
}
void OverScaleUnlessCopied(Value& v, const Channel& c) {
  if (!IsCopied(c)) return step::DivideByScale(v, c);
  v.lossy = false;
}

// {multiplier} is the slope.
void LeakyRelu(Value& v, const Channel& c) {
  if (!(v.number >= 0)) MultiplyInto(v, c.multiplier, v.number);
}

template <bool kFused>
float MultiplyAdd(float a, float b, float c) {
  return kFused ? std::fma(a, b, c) : a * b + c;
}

// Eigen's rational approximation, of x in [-18, 18].
template <bool kFused>
void Sigmoid(Value& v, const Channel&) {
  constexpr float kAlpha[] = {4.37031012579801e-11f, 1.15627324459942e-07f, 6.08574864600143e-05f,
                              8.51377133304701e-03f, 2.48287947061529e-01f};
  constexpr float kBeta[] = {6.10247389755681e-13f, 5.76102136993427e-09f, 6.29106785017040e-06f,
                             1.70198817374094e-03f, 1.16817656904453e-01f, 9.93151921023180e-01f};
  const float x = std::clamp(v.number, -18.0f, 18.0f);
  const float square = x * x;
  float p = kAlpha[0];
  for (size_t i = 1; i < std::size(kAlpha); ++i) p = MultiplyAdd<kFused>(p, square, kAlpha[i]);
  float q = kBeta[0];
  for (size_t i = 1; i < std::size(kBeta); ++i) q = MultiplyAdd<kFused>(q, square, kBeta[i]);
  v.SetReal(std::clamp(p * x / q + 0.5f, 0.0f, 1.0f));
  v.lossy = true;
}

constexpr Step kToReal{Stage::kScale, "(code - {a_zp}) times {a_scale} in float32", ToReal};
constexpr Step kOverScale{Stage::kScale, "divided by scale {scale}", step::DivideByScale};

std::vector<Step> Head(const Case& c, bool fma) {
  if (IsAverage(c.op)) {
    return {{Stage::kAccumulate, "sum of codes less the zero point", AsIs},
            {Stage::kScale, "to float32", step::ToFloat},
            {Stage::kScale, "times {multiplier}", step::TimesMultiplier}};
  }
  if (c.op == Op::kConcat) {
    return {{Stage::kScale, "(code - {a_zp}) times {a_scale} in float32", ToRealUnlessCopied},
            {Stage::kScale, "divided by scale {scale}", OverScaleUnlessCopied}};
  }
  QUALM_CHECK(c.op == Op::kTable);
  const Step leaky{Stage::kScale, "times {multiplier} if negative", LeakyRelu};
  const Step sigmoid{Stage::kScale, fma ? "sigmoid, fused" : "sigmoid",
                     fma ? Sigmoid<true> : Sigmoid<false>};
  return {kToReal, c.function == Function::kSigmoid ? sigmoid : leaky, kOverScale};
}

// Whether every C library gives these codes of softmax.
bool SoftmaxIsDecided(const Case& c) {
  RowShares shares(c), others(c, true);
  const std::vector<Step> steps =
      PoolOrTableSteps(c, {.fma = false, .end = {}, .round = {Stage::kRound, "", step::RoundX86}});
  const Channel channel = PoolOrTableChannel(c, 0);
  const auto code = [&](RowShares& of, int64_t index) {
    Value value = of(index, nullptr);
    Apply(steps, channel, value, nullptr);
    return value.integer;
  };
  for (int64_t i = 0; i < c.x.size(); ++i) {
    if (code(shares, i) != code(others, i)) return false;
  }
  return shares.AreDecided() && others.AreDecided();
}

}  // namespace

std::vector<Op> PoolAndTableOps() {
  return {Op::kMaxPool, Op::kAvgPool, Op::kGlobalAvgPool, Op::kConcat, Op::kTable, Op::kSoftmax};
}

std::string CannotPoolOrTable(const Case& c) {
  const bool table =
      c.op != Op::kTable || c.function == Function::kLeakyRelu || c.function == Function::kSigmoid;
  float scale = 1;
  if (c.op == Op::kGlobalAvgPool || (c.op == Op::kAvgPool && IsGlobal(c)))
    scale = PoolOrTableChannel(c, 0).multiplier;
  const CodeRange range = RangeOf(c.out_dtype);
  const bool codes = std::ranges::all_of(
      c.w_q.zero_point, [&](int32_t z) { return z >= range.min && z <= range.max; });
  return FirstReason({
      Require(c.op != Op::kConcat || codes, "b zero point must be a code of the b type"),
      Require(table, "this convention has no such table"),
      Require(scale >= 0x1p-32f && scale < 256,
              "the multiplier of a global average must be in [2^-32, 256)"),
      Require(c.op != Op::kSoftmax || SoftmaxIsDecided(c), kUndecided),
  });
}

Definition::Gatherer GatherPoolOrTable(const Case& c) {
  if (c.op == Op::kSoftmax) return RowShares(c);
  if (c.op == Op::kTable) return nullptr;  // the element itself
  const auto input = [&c] {
    if (c.op == Op::kMaxPool) return LargestCode;
    if (c.op == Op::kConcat) return ConcatCode;
    QUALM_CHECK(IsAverage(c.op));
    return IsGlobal(c) ? SumOfCodes : MeanOfReals;
  }();
  return [&c, input](int64_t index, Trace*) { return input(c, index); };
}

Channel PoolOrTableChannel(const Case& c, int64_t column) {
  const bool second = c.op == Op::kConcat && column >= c.x.shape()[1];
  const QParams& q = second ? c.w_q : c.x_q;
  Channel channel;
  channel.low = c.out_min;
  channel.high = c.out_max;
  channel.zero_point = c.out_q.zero_point[0];
  channel.scale = c.out_q.scale[0];
  channel.a.scale = q.scale[0];
  channel.a.zero_point = q.zero_point[0];
  channel.multiplier = c.negative_slope;
  if (IsAverage(c.op)) channel.multiplier = q.scale[0] / (channel.scale * static_cast<float>(c.K));
  return channel;
}

std::vector<Step> PoolOrTableSteps(const Case& c, const PoolOrTableForms& forms) {
  if (c.op == Op::kMaxPool) return {{Stage::kAccumulate, "largest code under the window", AsIs}};
  if (c.op == Op::kSoftmax) {
    return {{Stage::kScale, "share of the row's sum, in output codes", AsIs},
            {Stage::kRound, "nearbyintf, ties to even", forms.round.apply},
            {Stage::kZeroPoint, "+ zero point {zero_point}", step::AddZeroPointWrap32},
            {Stage::kClamp, "clamp to {low}..{high}", step::Clamp}};
  }
  if (c.op == Op::kAvgPool && !IsGlobal(c)) {
    return {{Stage::kAccumulate, "mean of the real values, in float32", AsIs},
            kOverScale,
            {Stage::kZeroPoint, "+ zero point {zero_point} in float32, before rounding",
             step::AddZeroPointFloat},
            forms.round,
            {Stage::kClamp, "clamp to {low}..{high}", step::Clamp}};
  }
  std::vector<Step> steps = Head(c, forms.fma);
  steps.insert(steps.end(), forms.end.begin(), forms.end.end());
  return steps;
}

}  // namespace qualm::conventions::ort
