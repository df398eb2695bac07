// SPDX-License-Identifier: Apache-2.0
// XNNPACK at ae108ef: fully connected and convolution qs8, qu8 and (fp32 only) qc8, add, sub, mul,
// conversion between f32 and codes, pools, tables and softmax. Taps in the padding are real 0. add
// and sub (src/params-init.c, *_add_minmax_*) are fixed point with one exponent for both operands,
// ties toward +infinity, everywhere; mul (qs8-vmul, qu8-vmul) requantizes the exact product as the
// architecture does. Operators run with denormals flushed to zero, but are made without
// (src/operator-run.c, PTHREADPOOL_FLAG_DISABLE_DENORMALS).
// Products are exact on every instruction set; the requantization is chosen per architecture:
//   fp32    x86 (src/params-init.c, *_fp32_avx512): float multiplier, ties to even, upper clamp in
//           float32 before the conversion
//   rndnu   AArch64 NEON (*_rndnu_neon): fixed point, ties toward +infinity
#include "oracles/conventions/xnnpack.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "oracles/exact/arithmetic/real.h"

namespace qualm::conventions {
namespace {

void PackAndMaxLow(Value& v, const Channel& c) {
  // packs to the code type, then max with the lower bound; the upper one was applied in float32.
  v.SetInt(std::max<int64_t>(std::min<int64_t>(v.integer, c.high), c.low));
}

void FlushInput(Value& v, const Channel&) {
  const float before = v.number;
  v.SetReal(XnnpackFlushed(before));
  v.lossy = v.number != before;
}

// mult in [2^30, 2^31), shift right by `shift` in total, split as NEON does it: a saturating left
// shift, a doubling high half, a rounding right shift.
struct Rndnu {
  int32_t multiplier;
  int32_t left;   // >= 0
  int32_t right;  // >= 1
};
Rndnu RndnuOf(float scale) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  const auto multiplier = static_cast<int32_t>(((bits & 0x7FFFFFu) | 0x800000u) << 7);
  const int32_t shift = 127 + 31 - 32 - static_cast<int32_t>(bits >> 23);
  const int32_t right = std::max(shift, 1);
  return {multiplier, right - shift, right};
}
void RndnuShiftLeft(Value& v, const Channel& c) {
  const int64_t full = v.integer * (int64_t{1} << RndnuOf(c.multiplier).left);
  v.SetInt(Sat32(full));
  v.lossy = v.integer != full;
}
void RndnuHighHalf(Value& v, const Channel& c) {
  const int64_t product = v.integer * RndnuOf(c.multiplier).multiplier;
  v.SetInt(product >> 31);
  v.lossy = (product & 0x7FFFFFFF) != 0;
}
void RndnuShiftRight(Value& v, const Channel& c) {
  const int32_t right = RndnuOf(c.multiplier).right;
  v.SetInt((v.integer + (int64_t{1} << (right - 1))) >> right);
}

constexpr Step kToFloat{Stage::kScale, "to float32", step::ToFloat};
constexpr Step kBias{Stage::kBias, "+ int32 bias {bias_i32}", step::AddBiasI32};
constexpr Step kZeroPoint{Stage::kZeroPoint, "to int16, + zero point {zero_point}, saturating",
                          step::AddZeroPointSat16};
constexpr Step kFlush{Stage::kScale, "denormals flushed to zero", FlushInput, Rise::kAlways};
constexpr Step kReciprocal{Stage::kScale, "times fl(1/scale) {reciprocal}", step::TimesReciprocal};
const Step kFp32End[] = {
    {Stage::kClamp, "minps with {high} - {zero_point}", step::MinHigh},
    {Stage::kRound, "cvtps2dq, ties to even", step::RoundX86},
    kZeroPoint,
    {Stage::kClamp, "pack to {high}, max with {low}", PackAndMaxLow, Rise::kAlways},
};
const Step kRndnu[] = {
    {Stage::kScale, "vqshl, saturating", RndnuShiftLeft, Rise::kAlways},
    {Stage::kScale, "vqdmulh by the 24-bit mantissa of {multiplier}", RndnuHighHalf, Rise::kAlways},
    {Stage::kRound, "vrshl, ties toward +infinity", RndnuShiftRight, Rise::kAlways},
    kZeroPoint,
    {Stage::kClamp, "clamp to {low}..{high}", step::Clamp},
};
const Step kQuantizeArm[] = {
    kFlush,
    kReciprocal,
    {Stage::kRound, "vcvtn, ties to even", step::RoundArm},
    kZeroPoint,
    {Stage::kClamp, "clamp to {low}..{high}", step::Clamp},
};

void AddTerms(Value& v, const Channel& c) {
  const int64_t half = int64_t{1} << (c.fixed.shift - 1);
  const int64_t sum = half + (v.integer - c.a.zero_point) * c.a.fixed.value +
                      (int64_t{v.second} - c.b.zero_point) * c.b.fixed.value;
  v.SetInt(sum);  // an int32: at most 2 * 255 * 2^21 + 2^30
  v.lossy = c.operands_rounded;
}
void ShiftDown(Value& v, const Channel& c) { v.SetInt(v.integer >> c.fixed.shift); }
const Step kAdd[] = {
    {Stage::kAccumulate,
     "{a_fixed}*(a - {a_zp}) + {b_fixed}*({b} - {b_zp}) + 2^({shift}-1), the factors a scale over "
     "the output's times 2^{shift}, rounded",
     AddTerms},
    {Stage::kRound, ">> {shift}: ties toward +infinity", ShiftDown},
    kZeroPoint,
    {Stage::kClamp, "clamp to {low}..{high}", step::Clamp},
};

// Pools. max_pool (src/u8-maxpool, src/s8-maxpool) works on codes. The averages sum codes minus
// zero point, padding included; global_avg_pool and an average whose window is the whole padded
// image (src/operators/average-pooling-nhwc.c) end as fp32 does, other averages (src/qu8-avgpool)
// in fixed point on the magnitude: ties away from zero.
bool IsWholeImage(const Case& c) {
  const Window& v = c.window;
  return v.kernel_h == v.in_h + v.pad_top + v.pad_bottom &&
         v.kernel_w == v.in_w + v.pad_left + v.pad_right;
}
int64_t Averaged(const Case& c) {
  const Window& v = c.window;
  return c.op == Op::kGlobalAvgPool ? v.in_h * v.in_w : v.kernel_h * v.kernel_w;
}
float AverageMultiplier(const Case& c) {
  return c.x_q.scale[0] / (c.out_q.scale[0] * static_cast<float>(Averaged(c)));
}
Value GatherWindow(const Case& c, int64_t index, Trace* trace) {
  const bool is_max = c.op == Op::kMaxPool;
  const std::vector<int32_t> codes = CodesUnderWindow(c, index);
  const int64_t result =
      is_max ? std::ranges::max(codes) : SumOf(codes) - std::ssize(codes) * c.x_q.zero_point[0];
  Value value;
  value.SetInt(Wrap32(result));
  if (trace != nullptr) {
    Note(trace, Stage::kAccumulate,
         (is_max ? "largest of " : "sum of code - zero point of ") + std::to_string(codes.size()) +
             " pixels",
         ValueText(value), value.integer != result);
  }
  return value;
}
void TimesMagnitude(Value& v, const Channel& c) {
  // (multiplier as 24 bits) * |sum|, rounded half up at its 2^-shift, sign put back.
  const auto bits = std::bit_cast<uint32_t>(c.multiplier);
  const uint64_t mantissa = (bits & 0x7FFFFFu) | 0x800000u;
  const uint32_t shift = 127 + 23 - (bits >> 23);
  const auto magnitude = static_cast<uint64_t>(std::abs(v.integer));
  const auto scaled =
      static_cast<int64_t>((magnitude * mantissa + (uint64_t{1} << (shift - 1))) >> shift);
  v.SetInt(v.integer < 0 ? -scaled : scaled);
}
const Step kAverageEnd[] = {
    {Stage::kRound, "times {multiplier}, ties away from zero", TimesMagnitude},
    kZeroPoint,
    {Stage::kClamp, "clamp to {low}..{high}", step::Clamp},
};

std::string CannotRunPool(const Case& c) {
  const Window& v = c.window;
  const std::string shared = FirstReason({
      Require(!v.ceil_mode, "there is no ceil mode"),
      Require(c.op == Op::kGlobalAvgPool || v.kernel_h * v.kernel_w > 1, "a 1x1 pool is refused"),
      Require(c.op != Op::kAvgPool || c.x.dtype() == DType::kU8, "averages of windows are u8"),
  });
  return !shared.empty() || c.op == Op::kMaxPool ? shared : XnnpackCannotAverage(c);
}

// Tables (src/operators/lut-elementwise-nc.c): float32 steps around the C library's expf and tanhf.
void CodeToReal(Value& v, const Channel& c) {
  MultiplyInto(v, static_cast<float>(v.integer - c.a.zero_point), c.a.scale);
}
void Sigmoid(Value& v, const Channel& c) {
  const float power = Beside(exact::RoundedExp(std::fabs(v.number)), c.side * kExpUlps);
  v.SetReal(std::signbit(v.number) ? 1.0f / (1.0f + power) : 1.0f - 1.0f / (1.0f + power));
}
void Tanh(Value& v, const Channel& c) {
  v.SetReal(Beside(exact::RoundedTanh(v.number), c.side * kTanhUlps));
}
void LeakyRelu(Value& v, const Channel& c) {
  if (std::signbit(v.number)) MultiplyInto(v, v.number, c.b.scale);
}
void RoundAndAdd(Value& v, const Channel& c) { v.SetInt(ConvertX86To64(v.number) + c.zero_point); }
std::vector<Step> TableSteps(const Case& c) {
  std::vector<Step> steps;
  if (c.function != Function::kRelu) {
    steps.push_back(kXnnpackCodeToReal);
    switch (c.function) {
      case Function::kSigmoid:
        steps.push_back({Stage::kScale, "sigmoid in float32 by expf", Sigmoid});
        break;
      case Function::kTanh: steps.push_back({Stage::kScale, "tanhf", Tanh}); break;
      case Function::kLeakyRelu:
        steps.push_back({Stage::kScale, "times {b_scale} if negative", LeakyRelu});
        break;
      case Function::kRelu:
      case Function::kHardSwish: QUALM_CHECK(false);  // CannotRunTable
    }
    steps.push_back(kReciprocal);
    steps.push_back({Stage::kRound, "lrintf, + zero point {zero_point}", RoundAndAdd});
  }
  steps.push_back({Stage::kClamp, "clamp to {low}..{high}", step::Clamp});
  return steps;
}
std::string CannotRunTable(const Case& c) {
  const float out = c.out_q.scale[0];
  const int32_t low = RangeOf(c.out_dtype).min;
  const float ratio = c.x_q.scale[0] / out;
  switch (c.function) {
    case Function::kRelu:
      return FirstReason(
          {Require(XnnpackSameParameters(c), "relu is a clamp of codes"),
           Require(c.out_q.zero_point[0] < c.out_max, "the clamp must leave two codes")});
    case Function::kHardSwish: return "there is no quantized hardswish";
    case Function::kSigmoid:
      return Require(out == 0x1p-8f && c.out_q.zero_point[0] == low,
                     "the output of sigmoid has scale 2^-8 and the lowest code as zero point");
    case Function::kTanh:
      return Require(out == 0x1p-7f && c.out_q.zero_point[0] == low + 128,
                     "the output of tanh has scale 2^-7 and the middle code as zero point");
    case Function::kLeakyRelu: break;
  }
  return FirstReason({
      Require(c.out_dtype == DType::kU8, "leaky_relu is u8"),
      Require(std::isnormal(c.negative_slope) && c.negative_slope <= 1.0f,
              "the slope must be a normal number up to 1"),
      Require(ratio >= 0x1p-8f && ratio < 0x1p8f,
              "the scale of x over that of the output must lie in [2^-8, 2^8)"),
  });
}

// softmax (src/operators/softmax-nc.c, src/u8-lut32norm/scalar.c): numerators from exp in float64,
// their sum and the quotient in uint32, where the sum wraps.
class RowShares {
 public:
  explicit RowShares(const Case& c)
      : case_(c),
        largest_(std::min(static_cast<double>(UINT32_MAX) / static_cast<double>(c.N), 8388607.0)) {}

  Value operator()(int64_t index, Trace* trace) {
    if (index / case_.N != row_) Sum(index / case_.N);
    const uint32_t own = Numerator(top_ - case_.x.IntAt(index));
    Value value;
    // A sum of 0 has wrapped: the library asserts, and this 0 is never compared.
    value.SetInt(sum_ == 0 ? 0 : std::min<uint32_t>(((own << 8) + (sum_ >> 1)) / sum_, 255));
    if (trace != nullptr) {
      Note(trace, Stage::kAccumulate,
           "(256*" + std::to_string(own) + " + " + std::to_string(sum_) + "/2) / " +
               std::to_string(sum_) + " in uint32, at most 255",
           ValueText(value), false);
    }
    return value;
  }

  // Whether every C library gives these numerators.
  bool AreDecided() {
    for (int64_t i = 0; i < case_.x.size(); ++i) {
      if (i % case_.N == 0) Sum(i / case_.N);
      const int32_t below = top_ - case_.x.IntAt(i);
      if (Numerator(below, -kExpUlps) != Numerator(below, kExpUlps)) return false;
    }
    return true;
  }

 private:
  // Of a code that lies `below` the largest one of its row.
  uint32_t Numerator(int32_t below, int ulps = 0) const {
    double power = 1;  // exp(0), in every C library
    if (below != 0) {
      const double x = static_cast<double>(-below) * static_cast<double>(case_.x_q.scale[0]);
      power = Beside(exact::RoundedExp(x), ulps);
    }
    return static_cast<uint32_t>(static_cast<int64_t>(RoundNearestEven(largest_ * power)));
  }

  void Sum(int64_t row) {
    row_ = row;
    std::array<uint32_t, 256> counts{};
    for (int64_t n = 0; n < case_.N; ++n)
      ++counts[static_cast<size_t>(case_.x.IntAt(row * case_.N + n))];
    top_ = 255;
    while (counts[static_cast<size_t>(top_)] == 0) --top_;
    sum_ = 0;
    for (int32_t code = 0; code <= top_; ++code) {
      if (const uint32_t count = counts[static_cast<size_t>(code)]; count != 0)
        sum_ += count * Numerator(top_ - code);
    }
  }

  const Case& case_;
  double largest_;
  int64_t row_ = -1;  // the row that `top_` and `sum_` belong to
  int32_t top_ = 0;
  uint32_t sum_ = 0;
};

Definition::Gatherer GatherOf(const Case& c) {
  if (IsPool(c.op)) return EachAlone(c, GatherWindow);
  if (c.op == Op::kSoftmax) return RowShares(c);
  return nullptr;
}

std::string CannotMapCodes(const Case& c) {
  const std::string shared = FirstReason({
      Require(c.x.dtype() == c.out_dtype, "x and output must have one type"),
      Require(LowerBound(c) < c.out_max, "the clamp must leave two codes"),
      Require(c.op == Op::kMaxPool ||
                  (std::isnormal(c.x_q.scale[0]) && std::isnormal(c.out_q.scale[0])),
              "scales must be normal numbers"),
  });
  if (!shared.empty()) return shared;
  if (IsPool(c.op)) return CannotRunPool(c);
  if (c.op == Op::kTable) return CannotRunTable(c);
  if (c.op == Op::kRescale)
    return Require(XnnpackSameParameters(c), "codes are clamped, not rescaled");
  return FirstReason({Require(c.x.dtype() == DType::kU8, "softmax is u8"), WholeRange(c),
                      Require(!c.relu, "softmax has no fused relu")});
}

// The operations on two operands that XNNPACK has.
bool HasItsOperands(Op op) {
  switch (RowOf(op).combine) {
    case Combine::kSum:
    case Combine::kDifference:
    case Combine::kProduct: return true;
    case Combine::kNone: return false;
  }
  return false;
}

std::vector<Op> OpsOf(bool rndnu) {
  std::vector<Op> ops{Op::kQuantize,  Op::kDequantize, Op::kRequantize, Op::kLinear, Op::kConv2d,
                      Op::kDepthwise, Op::kMaxPool,    Op::kRescale,    Op::kTable,  Op::kSoftmax};
  const std::vector<Op> two_operands = OpsWhere(HasItsOperands);
  ops.insert(ops.end(), two_operands.begin(), two_operands.end());
  // The averages of AArch64 have kernels of their own.
  if (!rndnu) ops.insert(ops.end(), {Op::kAvgPool, Op::kGlobalAvgPool});
  return ops;
}
// Codes of one input to codes, without a product.
bool MapsCodes(Op op) {
  return IsPool(op) || op == Op::kRescale || op == Op::kTable || op == Op::kSoftmax;
}

Channel MapChannel(const Case& c, Channel channel) {
  channel.zero_point = c.out_q.zero_point[0];
  channel.a.zero_point = c.x_q.zero_point[0];
  channel.a.scale = c.x_q.scale[0];
  channel.b.scale = c.negative_slope;
  channel.reciprocal = 1.0f / c.out_q.scale[0];
  if (c.op == Op::kAvgPool || c.op == Op::kGlobalAvgPool) channel.multiplier = AverageMultiplier(c);
  if (c.op == Op::kTable && c.function == Function::kRelu)
    channel.low = std::max(channel.low, channel.zero_point);
  return channel;
}

std::vector<Step> MapSteps(const Case& c) {
  std::vector<Step> steps;
  if (c.op == Op::kTable) return TableSteps(c);
  if (c.op == Op::kAvgPool && !IsWholeImage(c)) {
    steps.assign(std::begin(kAverageEnd), std::end(kAverageEnd));
  } else if (c.op == Op::kAvgPool || c.op == Op::kGlobalAvgPool) {
    return XnnpackMeanSteps();
  } else {
    steps.push_back({Stage::kClamp, "clamp to {low}..{high}", step::Clamp});
  }
  return steps;
}

Channel ChannelOf(const Case& c, int64_t n) {
  if (AddsOperands(c.op)) return FixedPointAddChannel(c, 21);
  Channel channel;
  SetClamp(channel, c);
  if (MapsCodes(c.op)) return MapChannel(c, channel);
  if (c.op == Op::kQuantize) {
    channel.scale = c.out_q.scale_at(n);
    channel.reciprocal = XnnpackFlushed(1.0f / channel.scale);
    channel.zero_point = c.out_q.zero_point_at(n);
    return channel;
  }
  if (c.op == Op::kDequantize) {
    channel.scale = c.x_q.scale[0];
    channel.zero_point = c.x_q.zero_point[0];
    return channel;
  }
  channel.zero_point = c.out_q.zero_point_at(0);
  // Of the two operands of mul.
  channel.a.zero_point = c.x_q.zero_point_at(0);
  channel.b.zero_point = c.w_q.zero_point_at(0);
  if (HasExplicitMultiplier(c)) {
    channel.multiplier = ExplicitMultiplier(c, n);
    return channel;
  }
  channel.multiplier = c.x_q.scale_at(0) * c.w_q.scale_at(n) / c.out_q.scale_at(0);
  if (c.bias_i32) channel.bias_i32 = (*c.bias_i32)[static_cast<size_t>(n)];
  return channel;
}

std::string CannotRun(const Case& c, bool rndnu) {
  const std::string shared = FirstReason({
      c.op == Op::kMaxPool ? "" : ZeroPointsAreCodes(c),
      Require(LowerBound(c) <= c.out_max, "relu above the upper clamp"),
      Require(!c.bias, "the bias must be int32"),
      Require(!c.per_channel || (!rndnu && HasSums(c)), "per tensor only"),
  });
  if (!shared.empty()) return shared;
  if (HasTwoOperands(c.op)) return XnnpackCannotRunOperands(c);
  if (MapsCodes(c.op)) {
    const std::string reason = CannotMapCodes(c);
    if (!reason.empty()) return reason;
    if (c.op == Op::kTable)
      return Require(XnnpackCodesAreDecided(c, TableSteps(c), ChannelOf(c, 0)), kUndecided);
    return Require(c.op != Op::kSoftmax || XnnpackSharesAreDecided(c), kUndecided);
  }
  if (c.op == Op::kDequantize) {
    return Require(std::isnormal(c.x_q.scale[0]), "the scale must be a normal number");
  }
  if (c.op == Op::kQuantize) {
    return Require(std::isnormal(c.out_q.scale_at(0)), "the scale must be a normal number");
  }
  if (HasSums(c)) {
    const std::string types = XnnpackCannotRunSumTypes(c);
    if (!types.empty()) return types;
  }
  for (int64_t n = 0; n < c.N; ++n) {
    const float multiplier = ChannelOf(c, n).multiplier;
    // Per channel the library does not check the lower end.
    if (!((c.per_channel || multiplier >= 0x1p-32f) && multiplier < 256.0f)) {
      return "the multiplier must lie in [2^-32, 256)";
    }
  }
  return "";
}

template <size_t N>
void AppendSteps(std::vector<Step>& steps, const Step (&more)[N]) {
  steps.insert(steps.end(), std::begin(more), std::end(more));
}

std::vector<Step> StepsOf(const Case& c, bool rndnu) {
  std::vector<Step> steps;
  if (MapsCodes(c.op)) return MapSteps(c);
  if (c.op == Op::kDequantize) {
    steps.push_back(
        {Stage::kScale, "minus {zero_point}, times {scale}", step::TimesCodeMinusZeroPoint});
    return steps;
  }
  if (c.op == Op::kQuantize) {
    if (rndnu) {
      AppendSteps(steps, kQuantizeArm);
    } else {
      steps.push_back(kFlush);
      steps.push_back(kReciprocal);
      AppendSteps(steps, kFp32End);
    }
    return steps;
  }
  if (AddsOperands(c.op)) {
    AppendSteps(steps, kAdd);
    return steps;
  }
  if (c.op == Op::kMul) {
    steps.push_back(step::kProduct);
  }
  if (c.bias_i32) steps.push_back(kBias);
  if (rndnu) {
    AppendSteps(steps, kRndnu);
    return steps;
  }
  steps.push_back(kToFloat);
  steps.push_back({Stage::kScale, "times {multiplier}", step::TimesMultiplier});
  AppendSteps(steps, kFp32End);
  return steps;
}

Convention Make(bool rndnu) {
  Definition definition;
  definition.name = rndnu ? "xnnpack@rndnu" : "xnnpack@fp32";
  definition.description = rndnu ? "XNNPACK on AArch64: exact sums, fixed point, ties toward +inf"
                                 : "XNNPACK on x86: exact sums, float multiplier, ties to even";
  definition.source = "XNNPACK src/params-init.c @ ae108ef";
  definition.satisfies = XnnpackClaims();
  definition.variations = {"V1", "V2", "V5", "V15", "V16", "V17", "V26"};
  definition.variations.emplace_back(rndnu ? "V11" : "V8");
  if (!rndnu) {
    definition.variations.emplace_back("V19");  // of operators that rndnu lacks
    Append(definition.satisfies,
           {"linear.per_channel_equals_per_tensor", "conv2d.per_channel_equals_per_tensor",
            "depthwise.per_channel_equals_per_tensor"});
  }
  definition.ops = OpsOf(rndnu);
  definition.cannot_run = [rndnu](const Case& c) { return CannotRun(c, rndnu); };
  definition.gather = GatherOf;
  definition.accumulation = ExactSums;
  definition.channel = ChannelOf;
  definition.steps = [rndnu](const Case& c) { return StepsOf(c, rndnu); };
  return MakeConvention(std::move(definition));
}

}  // namespace

bool XnnpackCodesAreDecided(const Case& c, const std::vector<Step>& steps, Channel channel) {
  const auto code = [&](int64_t index, int side) {
    channel.side = side;
    Value value;
    value.SetInt(c.x.IntAt(index));
    Apply(steps, channel, value, nullptr);
    return value.integer;
  };
  for (int64_t i = 0; i < c.x.size(); ++i) {
    if (code(i, -1) != code(i, 1)) return false;
  }
  return true;
}
bool XnnpackSharesAreDecided(const Case& c) { return RowShares(c).AreDecided(); }

Channel XnnpackChannel(const Case& c, int64_t n) { return ChannelOf(c, n); }
std::vector<Step> XnnpackFp32Steps(const Case& c) { return StepsOf(c, false); }
Definition::Gatherer XnnpackGather(const Case& c) { return GatherOf(c); }
std::vector<std::string> XnnpackClaims() {
  std::vector<std::string> claims{"k_permutation",       "zero_term_append", "row_independence",
                                  "column_independence", "identity_weights", "commutes",
                                  "add.is_monotone"};
  AddExactConvClaims(claims);
  return claims;
}

std::vector<Step> XnnpackMeanSteps() {
  std::vector<Step> steps{kToFloat, {Stage::kScale, "times {multiplier}", step::TimesMultiplier}};
  AppendSteps(steps, kFp32End);
  return steps;
}
std::vector<Step> XnnpackFixedPointEnd() {
  return {kZeroPoint, {Stage::kClamp, "clamp to {low}..{high}", step::Clamp}};
}
const Step kXnnpackCodeToReal{Stage::kScale, "minus {a_zp}, times {a_scale}", CodeToReal};

float XnnpackFlushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}
bool XnnpackSameParameters(const Case& c) {
  return c.x_q.scale == c.out_q.scale && c.x_q.zero_point == c.out_q.zero_point;
}

std::string XnnpackCannotRunOperands(const Case& c) {
  const auto inside = [&](const QParams& q) {
    const float ratio = q.scale[0] / c.out_q.scale[0];
    return ratio >= 0x1p-10f && ratio < 0x1p8f;
  };
  const std::string shared = FirstReason({
      Require(c.x.dtype() == c.out_dtype, "operands and output must have one type"),
      Require(LowerBound(c) < c.out_max, "the clamp must leave two codes"),
  });
  if (!shared.empty()) return shared;
  if (c.op == Op::kMul) {
    const float multiplier = c.x_q.scale[0] * c.w_q.scale[0] / c.out_q.scale[0];
    return Require(multiplier >= 0x1p-16f && multiplier < 0x1p8f,
                   "the multiplier must lie in [2^-16, 2^8)");
  }
  return FirstReason({
      Require(inside(c.x_q) && inside(c.w_q),
              "the scale of an operand over that of the output must lie in [2^-10, 2^8)"),
  });
}

std::string XnnpackCannotRunSumTypes(const Case& c) {
  return FirstReason({
      Require(c.x.dtype() == c.out_dtype && c.w.dtype() == c.out_dtype,
              "x, w and output must have one type, u8 or s8"),
      Require(c.out_dtype == DType::kU8 || WeightZeroPointsAre(c, 0),
              "s8 weights have zero point 0"),
      Require(!c.per_channel || c.out_dtype == DType::kS8, "per channel needs s8"),
  });
}

std::string XnnpackCannotAverage(const Case& c) {
  const float ratio = c.x_q.scale[0] / c.out_q.scale[0];
  const float multiplier = AverageMultiplier(c);
  return FirstReason({
      Require(!c.window.has_padding() || c.window.count_include_pad, "the padding counts"),
      Require(ratio >= 0x1p-8f && ratio < 0x1p8f,
              "the scale of x over that of the output must lie in [2^-8, 2^8)"),
      Require(multiplier >= 0x1p-32f && multiplier < 256.0f,
              "the multiplier must lie in [2^-32, 256)"),
  });
}

std::vector<Convention> XnnpackConventions() { return {Make(false), Make(true)}; }

}  // namespace qualm::conventions
