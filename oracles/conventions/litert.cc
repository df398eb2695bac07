// SPDX-License-Identifier: Apache-2.0
// TensorFlow Lite as LiteRT 2.3 has it (paths below tflite/kernels/ of LiteRT v2.2.0, whose kernels
// are those of 2.3), u8 and s8: the reference kernels. They are those of tflite.cc with two
// roundings, but
//   linear (fully_connected.cc, internal/reference/integer_ops/fully_connected.h): the sum times
//     the float64 multiplier, rounded by round()
//   convolutions of u8 (kernel_util.cc, GetQuantizedConvolutionMultipler) and mul (mul.cc): the
//     product of scales is float32, and so is mul's quotient
//   means of windows (internal/reference/integer_ops/pooling.h): of the codes, not of their
//     distance to the zero point; of whole images (internal/reference/reduce.h): the multiplier's
//     integer is divided by the number of pixels
//   u8 concat (internal/reference/concatenation.h), sigmoid and tanh (internal/common.h,
//     LUTPopulate): float32; relu and leaky_relu (activations.cc): fixed point
//   softmax: litert_softmax.cc; linear of float32 x (dynamic_linear): litert_dynamic_linear.cc
//   s4 and s2 weights of linear: as the same numbers in s8 (fully_connected.cc, EvalQuantized)
//   s16 activations: sums and bias in int64; of linear times the float64 multiplier as above, of
//     convolutions a multiplier of 16 bits, rounded once (internal/common.cc)
// The optimized kernels on x86 are the NEON ones, translated to SSE (internal/optimized; their
// neon_check.h): whole vectors are computed in another way than what is left over.
//   linear, and convolutions of one group: ruy (cpu_backend_gemm_x86.h), of linear with one scale
//     the product of scales is float32
//   depthwise of s8, 8 channels at a time (optimized_ops.h, Quantize): shifts round half up
//   add and mul (integer_ops/add.h, mul.h; optimized_ops.h): a sum is cut to 16 bits, a product
//     saturates, and the zero point is added in 16 bits, which wrap
//   quantize: times the float32 reciprocal, ties to even, else over the scale in float64, ties
//   away;
//     dequantize: the zero point is taken out in float32; codes to codes: shifts round half up
//   means of whole images (integer_ops/mean.h, optimized_ops.h): the multiplier is float32, and the
//     zero point of x is rounded to codes of the output by itself
// Beside a bias of int64 their s16 layers are the reference ones.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "oracles/conventions/definition.h"
#include "oracles/conventions/litert_dynamic_linear.h"
#include "oracles/conventions/litert_softmax.h"
#include "oracles/conventions/ruy.h"
#include "oracles/conventions/tflite.h"
#include "oracles/conventions/tflite_hard_swish.h"
#include "oracles/exact/arithmetic/real.h"
#include "oracles/exact/exact.h"

namespace qualm::conventions {
namespace {

float ProductOfScales(const Case& c) { return c.x_q.scale[0] * c.w_q.scale[0]; }

// Output codes per unit of what is multiplied.
double RealMultiplierOf(const Case& c, int64_t n) {
  const auto out = static_cast<double>(c.out_q.scale_at(0));
  if (c.op == Op::kMul) return static_cast<double>(ProductOfScales(c) / c.out_q.scale[0]);
  if (c.op == Op::kTable) return static_cast<double>(c.x_q.scale[0] / c.out_q.scale[0]);
  if (IsConv(c.op) && c.x.dtype() == DType::kU8)
    return static_cast<double>(ProductOfScales(c)) / out;
  if (IsConv(c.op)) return RealMultiplier(c, n);
  return static_cast<double>(c.x_q.scale[0]) / out;
}

// Of the mean of a whole image: the integer of the multiplier over the pixels, cut.
void DivideByPixels(FixedMultiplier& m, int64_t pixels) {
  const int32_t digits = std::bit_width(static_cast<uint64_t>(pixels)) - 1;
  const int32_t shift = std::min({digits, 32, 31 + m.shift});
  m.value = static_cast<int32_t>((int64_t{m.value} << shift) / pixels);
  m.shift -= shift;
}

Channel ReferenceChannel(const Case& c, int64_t n) {
  if (AddsOperands(c.op)) return TfliteSumChannel(c);
  Channel channel;
  SetClamp(channel, c);
  if (SetColumnScale(channel, c, n)) return channel;
  const bool second = c.op == Op::kConcat && n >= c.x.shape()[1];
  const QParams& q = second ? c.w_q : c.x_q;
  channel.a.scale = q.scale[0];
  channel.a.zero_point = q.zero_point[0];
  channel.b.scale = HasW(c.op) ? c.w_q.scale_at(n) : 1;
  channel.b.zero_point = HasW(c.op) ? c.w_q.zero_point_at(n) : 0;
  channel.scale = c.out_q.scale_at(0);
  channel.zero_point = c.out_q.zero_point_at(0);
  channel.reciprocal = 1.0f / channel.scale;
  if (c.bias_i32) channel.bias_i32 = (*c.bias_i32)[static_cast<size_t>(n)];
  if (c.op == Op::kConcat) {
    channel.multiplier = channel.a.scale * channel.reciprocal;
    channel.bias = static_cast<float>(-channel.a.zero_point) * channel.multiplier;
  } else if (c.op != Op::kLinear && c.op != Op::kMaxPool && c.op != Op::kAvgPool) {
    channel.a.fixed = channel.b.fixed = channel.fixed =
        QuantizeMultiplier(RealMultiplierOf(c, n), false);
  }
  if (c.op == Op::kGlobalAvgPool) DivideByPixels(channel.fixed, c.K);
  if (c.op == Op::kTable && c.function == Function::kLeakyRelu) {
    const float slope = c.x_q.scale[0] * c.negative_slope / c.out_q.scale[0];
    channel.b.fixed = QuantizeMultiplier(static_cast<double>(slope), false);
  }
  if (c.op == Op::kTable && c.function == Function::kRelu)
    channel.low = std::max(channel.low, channel.zero_point);
  return channel;
}

// The mean of a whole image: the zero point takes that of x in, rounded.
void SetOptimizedMean(Channel& channel, const Case& c) {
  const float scale = c.x_q.scale[0], out = c.out_q.scale[0];
  channel.fixed =
      QuantizeMultiplier(static_cast<double>(scale / (static_cast<float>(c.K) * out)), false);
  const float offset = static_cast<float>(c.x_q.zero_point[0]) * scale / out;
  const float rounded = offset > 0 ? offset + 0.5f : offset - 0.5f;
  const bool fits = rounded >= -0x1p31f && rounded < 0x1p31f;
  const int32_t cut = fits ? static_cast<int32_t>(rounded) : INT32_MIN;  // cvttss2si
  channel.zero_point = Wrap32(int64_t{c.out_q.zero_point[0]} - cut);
}

Channel OptimizedChannel(const Case& c, int64_t n) {
  Channel channel = ReferenceChannel(c, n);
  const auto out = static_cast<double>(c.out_q.scale_at(0));
  if (c.op == Op::kLinear) {
    const double multiplier = c.w_q.scale.size() > 1
                                  ? RealMultiplier(c, n)
                                  : static_cast<double>(ProductOfScales(c)) / out;
    channel.fixed = QuantizeMultiplier(multiplier, false);
  }
  if (c.op == Op::kQuantize) channel.reciprocal = 1.0f / channel.scale;
  if (c.op == Op::kDequantize)
    channel.bias = static_cast<float>(-static_cast<double>(channel.zero_point) *
                                      static_cast<double>(channel.scale));
  if (c.op == Op::kGlobalAvgPool) SetOptimizedMean(channel, c);
  return channel;
}

// ---- Inputs ----

Value LargestCode(const Case& c, int64_t index, Trace*) {
  Value value;
  value.SetInt(std::ranges::max(CodesUnderWindow(c, index)));
  return value;
}

// Divided by the number of codes, which lie in the image, ties away from zero.
Value MeanOfCodes(const Case& c, int64_t index, Trace* trace) {
  const std::vector<int32_t> codes = CodesUnderWindow(c, index);
  const int64_t sum = SumOf(codes), count = std::ssize(codes);
  Value value;
  value.SetInt((sum + (sum > 0 ? count / 2 : -(count / 2))) / count);
  Note(trace, Stage::kScale,
       "sum of codes over their number, ties away from zero: " + std::to_string(sum) + " / " +
           std::to_string(count),
       ValueText(value), value.integer * count != sum);
  return value;
}

Value SumOfCodes(const Case& c, int64_t index, Trace*) {
  const std::vector<int32_t> codes = CodesUnderWindow(c, index);
  Value value;
  value.SetInt(Wrap32(SumOf(codes) - std::ssize(codes) * c.x_q.zero_point[0]));
  return value;
}

Value ConcatCode(const Case& c, int64_t index, Trace*) {
  Value value;
  value.SetInt(ConcatElementAt(c, index).code);
  return value;
}

Value RawSumOfCodes(const Case& c, int64_t index, Trace*) {
  Value value;
  value.SetInt(Wrap32(SumOf(CodesUnderWindow(c, index))));
  return value;
}

bool HasWideSums(const Case& c) { return HasSums(c) && HasWideCodes(c); }

// s16 codes: sums of products, and the bias, in int64.
Definition::Gatherer WideSums(const Case& c) {
  return [sums = exact::CorrectedSums(c)](int64_t index, Trace* trace) {
    Value value;
    value.SetInt(static_cast<int64_t>(sums[static_cast<size_t>(index)]));
    Note(trace, Stage::kAccumulate, "sum of x*w, and the bias, in int64", ValueText(value), false);
    return value;
  };
}

Definition::Gatherer Gather(const Case& c) {
  if (HasWideSums(c)) return WideSums(c);
  switch (c.op) {
    case Op::kSoftmax: return LitertShares(c);
    case Op::kMaxPool: return EachAlone(c, LargestCode);
    case Op::kAvgPool: return EachAlone(c, MeanOfCodes);
    case Op::kGlobalAvgPool: return EachAlone(c, SumOfCodes);
    case Op::kConcat: return EachAlone(c, ConcatCode);
    default: return nullptr;  // the element itself
  }
}

// ---- Steps ----

// The multiplier in 16 bits, half up, cut to 32 bits: MultiplyByQuantizedMultiplier of an int64.
void TimesReducedMultiplier(Value& v, const Channel& c) {
  constexpr int32_t kLargest = 0x7FFF;
  const int32_t reduced = c.fixed.value < kLargest << 16
                              ? static_cast<int32_t>((int64_t{c.fixed.value} + (1 << 15)) >> 16)
                              : kLargest;
  const int32_t right = 15 - c.fixed.shift;
  v.SetInt(Wrap32((v.integer * reduced + (int64_t{1} << (right - 1))) >> right));
}

// cvttsd2si behind round(): what does not fit becomes INT32_MIN.
void TimesMultiplier64(Value& v, const Channel& c) {
  const double multiplier = static_cast<double>(c.a.scale) * static_cast<double>(c.b.scale) /
                            static_cast<double>(c.scale);
  const double product = static_cast<double>(v.integer) * multiplier;
  const double rounded = std::round(product);
  v.lossy = !(rounded >= -0x1p31 && rounded < 0x1p31);
  v.SetInt(v.lossy ? INT32_MIN : static_cast<int64_t>(rounded));
}

void LessZeroPoint(Value& v, const Channel& c) { v.SetInt(v.integer - c.a.zero_point); }

void TimesEither(Value& v, const Channel& c) {
  const FixedMultiplier& m = v.integer >= 0 ? c.a.fixed : c.b.fixed;
  v.SetInt(MultiplyTwoRoundings(static_cast<int32_t>(v.integer), m));
}

// Codes of the same scale and zero point are copied.
bool IsCopied(const Channel& c) { return c.a.scale == c.scale && c.a.zero_point == c.zero_point; }
void TimesMultiplierUnlessCopied(Value& v, const Channel& c) {
  if (IsCopied(c)) return v.SetInt(v.integer - c.zero_point);
  const auto code = static_cast<float>(v.integer);
  v.SetReal(code * c.multiplier + c.bias);
  v.lossy = true;
}
void RoundAwayUnlessCopied(Value& v, const Channel& c) {
  if (v.real) step::RoundAway(v, c);
}

void CodeToReal(Value& v, const Channel& c) {
  MultiplyInto(v, c.a.scale, static_cast<float>(v.integer - c.a.zero_point));
}
void Sigmoid(Value& v, const Channel& c) {
  const float power = Beside(exact::RoundedExp(-v.number), c.side * kExpUlps);
  v.SetReal(1.0f / (1.0f + power));
}
void Tanh(Value& v, const Channel& c) {
  v.SetReal(Beside(exact::RoundedTanh(v.number), c.side * kTanhUlps));
}
void RoundAwayFloat(Value& v, const Channel&) { v.SetReal(std::round(v.number)); }
void CutToInt(Value& v, const Channel&) {
  const bool fits = v.number >= -0x1p31f && v.number < 0x1p31f;
  v.SetInt(fits ? static_cast<int64_t>(v.number) : INT32_MIN);
}

constexpr Step kLessZeroPoint{Stage::kOffset, "minus {a_zp}", LessZeroPoint};
constexpr Step kClamp{Stage::kClamp, "clamp to {low}..{high}", step::Clamp};
constexpr Step kTimesMultiplier64{
    Stage::kRound, "times {a_scale}*{b_scale}/{scale} in float64, rounded, ties away from zero",
    TimesMultiplier64};
constexpr Step kTimesReducedMultiplier{
    Stage::kRound, "times {fixed}*2^({shift}-31), the multiplier rounded to 16 bits, half up",
    TimesReducedMultiplier};

std::vector<Step> TableSteps(const Case& c) {
  switch (c.function) {
    case Function::kRelu: return FixedPointSteps(c, {kLessZeroPoint, kTfliteTimesFixed});
    case Function::kLeakyRelu:
      return FixedPointSteps(
          c,
          {kLessZeroPoint,
           {Stage::kRound,
            "times {a_fixed}*2^({a_shift}-31), negative ones {b_fixed}*2^({b_shift}-31), rounded "
            "twice, ties away from zero",
            TimesEither}});
    default: break;
  }
  const bool sigmoid = c.function == Function::kSigmoid;
  return {{Stage::kScale, "(code - {a_zp}) times {a_scale} in float32", CodeToReal},
          {Stage::kScale, sigmoid ? "1/(1 + expf(-x))" : "tanhf", sigmoid ? Sigmoid : Tanh},
          {Stage::kScale, "times fl(1/scale) {reciprocal}", step::TimesReciprocal},
          {Stage::kRound, "roundf, ties away from zero", RoundAwayFloat},
          {Stage::kZeroPoint, "+ zero point {zero_point} in float32", step::AddZeroPointFloat},
          {Stage::kRound, "to int32", CutToInt},
          kClamp};
}

// The bias is in the sums, and zero points are 0.
std::vector<Step> WideSteps(const Case& c) {
  return {c.op == Op::kLinear ? kTimesMultiplier64 : kTimesReducedMultiplier, kClamp};
}

std::vector<Step> StepsOf(const Case& c) {
  if (AddsOperands(c.op)) return TfliteSumSteps(c);
  if (HasWideSums(c)) return WideSteps(c);
  switch (c.op) {
    case Op::kDequantize:
      return {{Stage::kScale, "times scale {scale} minus zero point {zero_point}",
               step::TimesCodeMinusZeroPoint}};
    case Op::kQuantize:
      return FixedPointSteps(c, {{Stage::kScale, "divided by scale {scale}", step::DivideByScale},
                                 {Stage::kRound, "round, ties away from zero", step::RoundAway}});
    case Op::kMul: return FixedPointSteps(c, {step::kProduct, kTfliteTimesFixed});
    case Op::kLinear: return FixedPointSteps(c, {kTimesMultiplier64});
    case Op::kRescale: return FixedPointSteps(c, {kLessZeroPoint, kTfliteTimesFixed});
    case Op::kMaxPool:
    case Op::kAvgPool:
    case Op::kSoftmax: return {kClamp};
    case Op::kConcat:
      return FixedPointSteps(
          c,
          {{Stage::kScale, "times fl(scale*fl(1/out_scale)) {multiplier}, + {bias}, unless copied",
            TimesMultiplierUnlessCopied},
           {Stage::kRound, "round, ties away from zero", RoundAwayUnlessCopied}});
    case Op::kTable: return TableSteps(c);
    default: return FixedPointSteps(c, {kTfliteTimesFixed});  // convolutions, means of images
  }
}

// ---- Steps of the optimized kernels ----

bool IsInBody(const Channel& c, int64_t lanes) {
  return c.element.index < c.element.count / lanes * lanes;
}
bool IsChannelInBody(const Channel& c, int64_t lanes) {
  return c.element.index % c.element.columns < c.element.columns / lanes * lanes;
}
int32_t Wrap16(int64_t value) {
  return static_cast<int16_t>(static_cast<uint16_t>(static_cast<uint64_t>(value)));
}
// vshlq_s32: a negative shift goes right, without rounding.
int32_t Shift(int64_t value, int32_t shift) {
  return shift >= 0 ? Wrap32(value * (int64_t{1} << shift))
                    : static_cast<int32_t>(value >> std::min(-shift, 31));
}
int32_t HalfUp(int32_t value, int32_t right) {
  return right == 0 ? value : static_cast<int32_t>((value + (int64_t{1} << (right - 1))) >> right);
}

// vqrdmulhq_s32 and vrshlq_s32.
int32_t FixedHalfUp(int64_t x, FixedMultiplier m) {
  const int32_t high = SaturatingRoundingDoublingHighMul(Shift(x, std::max(m.shift, 0)), m.value);
  return HalfUp(high, std::max(-m.shift, 0));
}
void RescaleFixed(Value& v, const Channel& c) {
  const auto x = static_cast<int32_t>(v.integer);
  v.SetInt(IsInBody(c, 16) ? FixedHalfUp(x, c.fixed) : MultiplyTwoRoundings(x, c.fixed));
}
void DepthwiseFixed(Value& v, const Channel& c) {
  const auto x = static_cast<int32_t>(v.integer);
  v.SetInt(IsChannelInBody(c, 8) ? FixedHalfUp(x, c.fixed) : MultiplyTwoRoundings(x, c.fixed));
}
void MeanFixed(Value& v, const Channel& c) {
  const auto x = static_cast<int32_t>(v.integer);
  v.SetInt(IsChannelInBody(c, 16) ? FixedHalfUp(x, c.fixed) : MultiplyTwoRoundings(x, c.fixed));
}

// The zero point is part of it.
template <int kLanes>
void MulFixed(Value& v, const Channel& c) {
  const int32_t scaled = MultiplyTwoRoundings(static_cast<int32_t>(v.integer), c.fixed);
  v.SetInt(IsInBody(c, kLanes) ? Wrap16(Sat16(scaled) + c.zero_point)
                               : Wrap32(int64_t{scaled} + c.zero_point));
}

template <int kLanes>
void AddFixed(Value& v, const Channel& c) {
  const bool body = IsInBody(c, kLanes);
  const auto scaled = [&](int64_t difference, FixedMultiplier m) {
    constexpr int32_t kUp = 20;
    if (!body) return MultiplyTwoRoundings(static_cast<int32_t>(difference * (1 << kUp)), m);
    if constexpr (kLanes == 16)
      return SaturatingRoundingDoublingHighMul(Shift(difference, kUp + m.shift), m.value);
    return Shift(SaturatingRoundingDoublingHighMul(Shift(difference, kUp), m.value), m.shift);
  };
  const int32_t sum = Wrap32(int64_t{scaled(v.integer - c.a.zero_point, c.a.fixed)} +
                             scaled(int64_t{v.second} - c.b.zero_point, c.b.fixed));
  const int32_t result = MultiplyTwoRoundings(sum, c.fixed);
  v.SetInt(body ? Wrap16(int64_t{Wrap16(result)} + c.zero_point)
                : Wrap32(int64_t{result} + c.zero_point));
}

void QuantizeFixed(Value& v, const Channel& c) {
  if (IsInBody(c, 8)) {
    step::TimesReciprocal(v, c);
    return step::RoundX86(v, c);
  }
  const double rounded = std::round(static_cast<double>(v.number) / static_cast<double>(c.scale));
  const bool fits = rounded >= -0x1p31 && rounded < 0x1p31;
  v.SetInt(fits ? static_cast<int64_t>(rounded) : INT32_MIN);
}
void DequantizeFixed(Value& v, const Channel& c) {
  if (!IsInBody(c, 8)) return step::TimesCodeMinusZeroPoint(v, c);
  const float product = static_cast<float>(v.integer) * c.scale;
  v.SetReal(product + c.bias);
  v.lossy = true;
}

std::vector<Step> OptimizedSteps(const Case& c) {
  const bool u8 = c.out_dtype == DType::kU8;
  if (HasWideSums(c)) return WideSteps(c);
  switch (c.op) {
    case Op::kQuantize:
      if (c.out_q.scale.size() > 1) return StepsOf(c);
      return FixedPointSteps(c,
                             {{Stage::kRound,
                               "times {reciprocal} in float32, ties to even; what fills no vector "
                               "over {scale} in float64, ties away from zero",
                               QuantizeFixed}});
    case Op::kDequantize:
      if (c.x_q.scale.size() > 1) return StepsOf(c);
      return {{Stage::kScale,
               "code times {scale}, + {bias}, in float32; what fills no vector less {zero_point}, "
               "times {scale}",
               DequantizeFixed}};
    case Op::kRescale:
      return FixedPointSteps(c,
                             {kLessZeroPoint,
                              {Stage::kRound,
                               "times {fixed}*2^({shift}-31), rounded twice, in vectors half up, "
                               "else ties away from zero",
                               RescaleFixed}});
    case Op::kMul:
      return {step::kProduct,
              {Stage::kZeroPoint,
               "times {fixed}*2^({shift}-31), rounded twice, and + zero point {zero_point}, in "
               "vectors in 16 bits",
               u8 ? MulFixed<8> : MulFixed<16>},
              kClamp};
    case Op::kAdd:
      return {
          {Stage::kZeroPoint,
           "(a - {a_zp})*2^20 * {a_fixed}*2^({a_shift}-31) + ({b} - {b_zp})*2^20 * "
           "{b_fixed}*2^({b_shift}-31), times {fixed}*2^({shift}-31), + zero point {zero_point}, "
           "in vectors in 16 bits",
           u8 ? AddFixed<8> : AddFixed<16>},
          kClamp};
    case Op::kLinear: return RuySteps(c);
    case Op::kConv2d: return c.window.groups == 1 ? RuySteps(c) : StepsOf(c);
    case Op::kDepthwise:
      if (u8) return StepsOf(c);
      return FixedPointSteps(c,
                             {{Stage::kRound,
                               "times {fixed}*2^({shift}-31), rounded twice, in vectors half up, "
                               "else ties away from zero",
                               DepthwiseFixed}});
    case Op::kGlobalAvgPool:
      return FixedPointSteps(c,
                             {{Stage::kRound,
                               "times {fixed}*2^({shift}-31), rounded twice, in vectors half up, "
                               "else ties away from zero",
                               MeanFixed}});
    default: return StepsOf(c);
  }
}

// ---- What is refused ----

// Larger shifts are undefined in C++ there.
bool AreMultipliersFit(const Case& c, bool optimized) {
  for (int64_t n = 0; n < c.N; ++n) {
    const Channel channel = optimized ? OptimizedChannel(c, n) : ReferenceChannel(c, n);
    const int32_t most = AddsOperands(c.op) ? 0 : HasWideSums(c) ? 7 : 30;
    if (std::max({channel.fixed.shift, channel.a.fixed.shift, channel.b.fixed.shift}) > most)
      return false;
    if (std::min({channel.fixed.shift, channel.a.fixed.shift, channel.b.fixed.shift}) < -31)
      return false;
  }
  return true;
}

bool SameParameters(const QParams& a, const QParams& b) {
  return a.scale == b.scale && a.zero_point == b.zero_point;
}

// A number so many ulps away may give another code.
bool AreCodesDecided(const Case& c) {
  const std::vector<Step> steps = StepsOf(c);
  Channel channel = ReferenceChannel(c, 0);
  const auto code = [&](int32_t x, int side) {
    channel.side = side;
    Value value;
    value.SetInt(x);
    Apply(steps, channel, value, nullptr);
    return value.integer;
  };
  for (int64_t i = 0; i < c.x.size(); ++i) {
    if (code(c.x.IntAt(i), -1) != code(c.x.IntAt(i), 1)) return false;
  }
  return true;
}

bool MeetsTheImage(const Case& c) {
  for (int64_t m = 0; m < c.M; ++m) {
    if (c.N > 0 && CodesUnderWindow(c, m * c.N).empty()) return false;
  }
  return true;
}

std::string CannotSum(const Case& c) {
  const bool u8 = c.x.dtype() == DType::kU8;
  return FirstReason({
      // s8 weights of u8 activations are u8 ones, 128 lower.
      Require(u8 || c.w.dtype() == DType::kS8, "weights of s8 and s16 activations must be s8"),
      Require(u8 || WeightZeroPointsAre(c, 0),
              "weights of s8 and s16 activations must have zero point 0"),
      Require(!u8 || !c.per_channel, "weights of u8 activations have one scale"),
      Require(std::ranges::all_of(c.w_q.scale,
                                  [&](float s) { return std::isfinite(s * c.x_q.scale[0]); }),
              "the product of scales must be finite"),
  });
}

std::string CannotPool(const Case& c) {
  const Window& v = c.window;
  return FirstReason({
      Require(!v.ceil_mode && !v.count_include_pad && v.dilation_h == 1 && v.dilation_w == 1,
              "there is no ceil mode, no padding that counts and no dilation"),
      Require(SameParameters(c.x_q, c.out_q) || c.op == Op::kMaxPool,
              "the output must have the scale and zero point of the input"),
  });
}

std::string CannotTable(const Case& c) {
  if (c.function == Function::kHardSwish) return "this convention has no such table";
  if (c.function == Function::kRelu || c.function == Function::kLeakyRelu) return "";
  return FirstReason(
      {Require(c.function != Function::kSigmoid || c.out_q.scale[0] == 0x1p-8f,
               "the output of sigmoid has scale 2^-8"),
       Require(c.out_q.scale[0] >= 0x1p-30f, "codes of tanh beyond int32 are undefined in C++"),
       Require(AreCodesDecided(c), kUndecided)});
}

std::string CannotRun(const Case& c, bool optimized) {
  const bool sums = HasSums(c), f32 = c.op == Op::kDequantize;
  const std::string shared = FirstReason({
      Require(!c.per_channel || sums || c.op == Op::kQuantize || f32, "per tensor only"),
      Require(!c.bias, "the bias must be int32"),
      Require(f32 || IsCode(c.out_dtype), "the output must be codes"),
      Require(f32 || c.op == Op::kQuantize || c.op == Op::kRescale || c.x.dtype() == c.out_dtype,
              "input and output must have one type"),
      ZeroPointsAreCodes(c),
      Require(!IsPool(c.op) || MeetsTheImage(c), "every window must meet the image"),
      f32 ? "" : WholeRange(c),
  });
  if (!shared.empty()) return shared;
  if (HasWideCodes(c)) {  // kernels/dequantize.cc, Prepare and Eval
    const std::string reason = FirstReason(
        {Require(c.x.dtype() != DType::kU16 && c.out_dtype != DType::kU16, "no codes are u16"),
         Require(!f32 || c.x_q.scale.size() == 1, "s16 codes become reals per tensor only"),
         Require(!f32 || c.x_q.zero_point_at(0) == 0, "the zero point of s16 codes must be 0"),
         Require(!sums || (c.x_q.zero_point_at(0) == 0 && c.out_q.zero_point_at(0) == 0),
                 "the zero points of s16 activations must be 0")});
    if (!reason.empty()) return reason;
  }
  const bool fuses = sums || HasTwoOperands(c.op) || c.op == Op::kMaxPool || c.op == Op::kAvgPool;
  if (!f32 && !fuses && c.relu) return "this operator has no fused relu";
  if (f32 || c.op == Op::kQuantize) return "";
  if (c.op == Op::kSoftmax) return c.x.empty() ? "" : LitertCannotShare(c, optimized);
  if (IsPool(c.op) && c.op != Op::kGlobalAvgPool) return CannotPool(c);
  if (c.op == Op::kConcat) {
    const bool same = SameParameters(c.x_q, c.out_q) && SameParameters(c.w_q, c.out_q);
    return Require(c.x.dtype() == DType::kU8 || same,
                   "s8 operands must have the scale and zero point of the output");
  }
  const std::string reason = sums ? CannotSum(c) : c.op == Op::kTable ? CannotTable(c) : "";
  if (!reason.empty()) return reason;
  if (c.op == Op::kLinear && (!optimized || HasWideSums(c))) return "";
  return Require(AreMultipliersFit(c, optimized), "the multiplier is too large");
}

// `own`, and the hard-swish of tflite@double.
Convention WithHardSwish(Convention own) {
  const auto plain = std::make_shared<const Convention>(own);
  const auto other = std::make_shared<const Convention>(TfliteHardSwish());
  const auto of = [=](const Case& c) -> const Convention& {
    return c.op == Op::kTable && c.function == Function::kHardSwish ? *other : *plain;
  };
  own.cannot_run = [of](const Case& c) { return of(c).cannot_run(c); };
  own.run = [of](const Case& c) { return of(c).run(c); };
  own.trace = [of](const Case& c, int64_t index) { return of(c).trace(c, index); };
  own.variations.insert(own.variations.end(), other->variations.begin(), other->variations.end());
  SortVariations(own.variations);
  return own;
}

Convention Make(bool optimized) {
  Definition definition;
  definition.name = optimized ? "tflite@builtin" : "tflite@reference";
  definition.description =
      optimized ? "TensorFlow Lite's optimized kernels on x86: ruy, and NEON kernels in SSE, whose "
                  "vectors round otherwise than what is left over"
                : "TensorFlow Lite's reference kernels today: as tflite@double, but linear rounds "
                  "once, in float64";
  definition.source = optimized ? "LiteRT v2.2.0 tflite/kernels, internal/optimized"
                                : "LiteRT v2.2.0 tflite/kernels, internal/reference";
  definition.satisfies = {"linear.k_permutation", "conv2d.k_permutation",
                          "global_avg_pool.k_permutation", "zero_term_append",
                          "linear.row_independence"};
  if (!optimized) {
    Append(definition.satisfies, {"row_independence", "column_independence", "commutes",
                                  "add.is_monotone", "linear.per_channel_equals_per_tensor"});
    // Not one_by_one_is_linear: only linear rounds in float64.
    Append(definition.satisfies,
           {"batch_independence", "depthwise_is_grouped", "dilation_is_zero_stuffed",
            "groups_are_separate", "padding_is_explicit", "stride_is_subsample"});
  }
  definition.variations = {"V1",  "V2",  "V4",  "V9",  "V11", "V12", "V13",
                           "V14", "V15", "V16", "V17", "V38", "V45"};
  if (optimized) {
    Append(definition.variations, {"V5", "V30", "V37", "V39"});
  } else {
    Append(definition.variations, {"V40", "V41"});
  }
  definition.ops = {Op::kQuantize,      Op::kDequantize, Op::kRescale, Op::kAdd,
                    Op::kSub,           Op::kMul,        Op::kLinear,  Op::kConv2d,
                    Op::kDepthwise,     Op::kMaxPool,    Op::kAvgPool, Op::kConcat,
                    Op::kGlobalAvgPool, Op::kTable,      Op::kSoftmax};
  definition.cannot_run = [optimized](const Case& c) { return CannotRun(c, optimized); };
  definition.wide_codes = definition.wide_sums = true;
  definition.gather = [optimized](const Case& c) {
    if (optimized && c.op == Op::kSoftmax) return LitertSharesInFloat(c);
    return optimized && c.op == Op::kGlobalAvgPool ? EachAlone(c, RawSumOfCodes) : Gather(c);
  };
  definition.accumulation = ExactSums;
  definition.channel = optimized ? OptimizedChannel : ReferenceChannel;
  definition.steps = optimized ? OptimizedSteps : StepsOf;
  Convention convention = WithHardSwish(MakeConvention(std::move(definition)));
  AddOperation(convention, LitertDynamicLinear());
  return WithNarrowWeights(convention, convention);
}

}  // namespace

std::vector<Convention> LitertConventions() { return {Make(true), Make(false)}; }

}  // namespace qualm::conventions
