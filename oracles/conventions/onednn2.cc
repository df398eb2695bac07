// SPDX-License-Identifier: Apache-2.0
// oneDNN 2.6.3 on x86: matmul of u8 or s8 by s8 with plain K*N weights, one thread; scales as ideep
// (PyTorch 1.13, matmul.hpp at b2f8044) passes them.
//
//   gemm      src/cpu/x64/gemm (gemm_driver.cpp, s8x8s32): products through vpmaddubsw where there
//             is no VNNI; s8 activations are shifted to u8 by 128 first
//   epilogue  src/cpu/x64/jit_gemm_inner_product_utils.cpp: zero point added in float32, saturation
//             in float32, then cvtps2dq
//
// How the installed library treats zero points, as read in src/cpu/matmul and src/cpu/gemm at
// v2.6.3 and seen on 400,000 drawn cases:
//  * Pairs are made of raw codes; both zero points are taken out of the sums, modulo 2^32. The gemm
//    does it itself where both are codes of their types.
//  * Otherwise gemm_x8s8s32x_matmul.cpp does it afterwards, and reads u8 activations as char
//    when it sums them for the weight zero point: on x86 codes from 128 on count as x - 256.
//  * s8 activations with a zero point on either side fall to the reference gemm on sse41 and avx2
//    (a zero point that is no code counts as none here, see above). It is exact in float64 and ends
//    in out_round(float).
//  * On avx512core one output column (N = 1, M > 1, no zero point) goes to a gemv that never cuts K
//    and, for s8 activations, takes the weights as u8 by adding 128.
//  * K longer than one block and shorter than two full ones is cut at ceil(K/2); where that is odd,
//    the pairs behind it start on an odd k.
//  * brgemm (AVX-512 with VNNI) adds exactly and takes zero points out modulo 2^32; but if there
//    is one, or activations are s8, an s32 output then goes through float32.
//  * brgemm with AMX (src/cpu/x64/brgemm/jit_brgemm_amx_uker.cpp, process_output_range) converts
//    the raw sum to float32, adds the bias, then the term of x's zero point, then that of w's, and
//    rounds after each. Small matmuls go to VNNI (brgemm_matmul_utils.cpp, is_small_shapes).
// There is one zero point for all weights; zero points per channel are refused.
#include "oracles/conventions/onednn2.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace qualm::conventions {
namespace {

using Kind = Accumulation::Kind;

constexpr std::string_view kReference = "reference";
constexpr std::string_view kGemm = "gemm";
constexpr std::string_view kBrgemm = "brgemm";

constexpr OneDnnIsa kIsas[] = {
    {.name = "sse41", .one_block = 256, .block = 256},
    {.name = "avx2", .one_block = 256, .block = 384, .transposes = true},
    {.name = "avx2vnni", .one_block = 256, .block = 768, .vnni = true, .transposes = true},
    {.name = "avx512core", .one_block = 384, .block = 768, .avx512 = true},
    {.name = "vnni", .avx512 = true, .vnni = true, .brgemm = true},
    {.name = "amx", .avx512 = true, .vnni = true, .brgemm = true, .amx = true},
};

// Whether the tile kernel computes this case.
bool InTiles(const OneDnnIsa& isa, const Case& c) {
  if (!isa.amx || c.op != Op::kLinear) return false;
  const bool small = (c.M == 1 && c.K == 256) || (c.M <= 32 && c.M * c.N <= 256) || c.K <= 16;
  return !small;
}

// How the zero points leave a sum -----------------------------------------------------------------

uint64_t Unsigned(int64_t number) { return static_cast<uint64_t>(number); }
int32_t Wrapped(uint64_t number) { return Wrap32(static_cast<int64_t>(number)); }

// The reference gemm: in float64, the difference saturated to int32 and rounded to float32.
Value TakeOutRounding(const RawSum& sum) {
  const auto product = [](int64_t a, int64_t b) { return static_cast<__int128>(a) * b; };
  const __int128 full =
      sum.acc - product(sum.x_zero_point, SumOf(sum.w)) - product(sum.w_zero_point, SumOf(sum.x)) +
      product(sum.x_zero_point, sum.w_zero_point) * static_cast<int64_t>(sum.x.size());
  Value value;
  value.SetInt(ConvertX86(static_cast<float>(std::clamp<__int128>(full, INT32_MIN, INT32_MAX))));
  return value;
}
// Modulo 2^32, codes of x from 128 on counted as x - 256.
Value TakeOutOfSignedBytes(const RawSum& sum) {
  return TakeOutWrapping(
      sum, SumOf(sum.x) - 256 * std::ranges::count_if(sum.x, [](int32_t x) { return x >= 128; }));
}
// The zero point of x only: each term is rounded to float32, and each sum. s8 codes of x were
// shifted to u8 by 128 before.
Value TakeOutInFloat(const RawSum& sum) {
  const uint64_t w_sum = Unsigned(SumOf(sum.w));
  const uint64_t shift = sum.x_is_signed ? 128 : 0;
  auto number = static_cast<float>(Wrapped(Unsigned(sum.acc) + shift * w_sum));
  number += static_cast<float>(Wrapped(-shift * w_sum));
  number += static_cast<float>(Wrapped(-Unsigned(sum.x_zero_point) * w_sum));
  Value value;
  value.SetReal(number);
  return value;
}
// The addends of both zero points, int32 modulo 2^32, are left to AddXOffset and AddWOffset.
Value TakeOutInSteps(const RawSum& sum) {
  Value value;
  value.SetInt(sum.acc);
  const uint64_t x_zero = Unsigned(sum.x_zero_point), count = sum.x.size();
  value.x_offset = Wrapped(-x_zero * Unsigned(SumOf(sum.w)));
  value.w_offset = Wrapped(-Unsigned(sum.w_zero_point) * (Unsigned(SumOf(sum.x)) - count * x_zero));
  return value;
}

// Steps -------------------------------------------------------------------------------------------

// Rounds twice: once when the offset becomes a float32, once when it is added.
void AddOffset(Value& v, int32_t offset) {
  const auto number = static_cast<float>(offset);
  AddInto(v, v.number, number);
  if (static_cast<double>(number) != static_cast<double>(offset)) v.lossy = true;
}
void AddXOffset(Value& v, const Channel&) { AddOffset(v, v.x_offset); }
void AddWOffset(Value& v, const Channel&) { AddOffset(v, v.w_offset); }

void AppendSteps(std::vector<Step>& steps, const std::vector<Step>& more) {
  steps.insert(steps.end(), more.begin(), more.end());
}

bool HoldsCode(DType type, int32_t code) {
  const CodeRange range = RangeOf(type);
  return code >= range.min && code <= range.max;
}

// maxps and minps take the bound as second operand, so that NaN becomes the bound. Signed outputs
// need no lower bound here, since cvtps2dq turns everything too low into INT32_MIN.
void SaturateFloat(Value& v, const Channel& c) {
  const bool nan = std::isnan(v.number);
  float number = v.number;
  if (c.low >= 0) number = MaxPs(number, static_cast<float>(c.low));
  // The largest float32 that cvtps2dq takes.
  v.SetReal(MinPs(number, std::min(static_cast<float>(c.high), 2147483520.0f)));
  v.lossy = nan;
}

// The relu of the reference multiplies a number that is not above 0 by 0, so that NaN and -inf
// become NaN.
void ReluTimesZero(Value& v, const Channel&) {
  if (!(v.number > 0)) v.SetReal(v.number * 0.0f);
}

// As std::min and std::max with the bound first: NaN stays.
void SaturateKeepingNan(Value& v, const Channel& c) {
  const auto low = static_cast<float>(c.low);
  const float high = std::min(static_cast<float>(c.high), 2147483520.0f);
  if (v.number < low) v.SetReal(low);
  if (v.number > high) v.SetReal(high);
}

// vpmovusdb takes an int32 for unsigned. Only NaN has become negative.
void PackUnsigned(Value& v, const Channel& c) {
  v.lossy = v.integer < 0 || v.integer > c.high;
  if (v.lossy) v.SetInt(c.high);
}

// A cast from int32, which may be INT32_MIN for NaN, to a code.
void LowByte(Value& v, const Channel& c) {
  const int64_t full = v.integer;
  v.SetInt(c.low < 0 ? int64_t{static_cast<int8_t>(full)} : int64_t{static_cast<uint8_t>(full)});
  v.lossy = v.integer != full;
}

// ref_convolution_int8.cpp and ref_matmul_int8.cpp.
std::vector<Step> ReferenceSteps(const OneDnnScaling& scaling, const Case& c) {
  std::vector<Step> steps = {{Stage::kScale, "to float32", step::ToFloat}};
  AppendSteps(steps, scaling.before_offsets(c));
  AppendSteps(steps, scaling.after_offsets(c));
  if (c.relu) steps.push_back({Stage::kClamp, "relu: times 0 unless above it", ReluTimesZero});
  AppendSteps(steps, scaling.after_relu(c));
  // A zero point of 0 is added too: it makes -0 positive.
  steps.push_back({Stage::kZeroPoint, "+ zero point {zero_point} in float32, before rounding",
                   step::AddZeroPointFloat});
  if (c.out_dtype == DType::kF32) return steps;
  steps.insert(steps.end(),
               {{Stage::kClamp, "saturate in float32 to {low}..{high}", SaturateKeepingNan},
                {Stage::kRound, "cvtss2si, ties to even", step::RoundX86}});
  if (IsCode(c.out_dtype)) steps.push_back({Stage::kClamp, "its low byte", LowByte});
  return steps;
}

void MinusZeroPoint(Value& v, const Channel& c) {
  AddInto(v, v.number, -static_cast<float>(c.zero_point));
}

// Both operands are scaled to output units; each product is rounded too.
template <auto kCombineInto>
void CombineScaled(Value& v, const Channel& c) {
  Value a, b;
  MultiplyInto(a, static_cast<float>(v.integer), c.a.scale);
  MultiplyInto(b, static_cast<float>(v.second), c.b.scale);
  kCombineInto(v, a.number, b.number);
  v.lossy = v.lossy || a.lossy || b.lossy;
}

bool OneZeroPoint(const QParams& q) {
  return std::ranges::all_of(q.zero_point, [&](int32_t z) { return z == q.zero_point.front(); });
}

float Inverse(float scale) { return static_cast<float>(1.0 / static_cast<double>(scale)); }

Channel SumsChannel2(const Case& c, int64_t n, float inverse_x_scale) {
  Channel channel;
  SetOneDnnRange(channel, c);
  channel.reciprocal = inverse_x_scale * Inverse(c.w_q.scale_at(n));
  const float inverse_out = IsCode(c.out_dtype) ? Inverse(c.out_q.scale_at(0)) : 1.0f;
  channel.multiplier = inverse_out / channel.reciprocal;
  if (c.bias) channel.bias = (*c.bias)[static_cast<size_t>(n)] * channel.reciprocal;
  return channel;
}

// Where weights are halved, so is the bias, and the multiplier is doubled (bias_alpha and
// wei_adj_scale in jit_uni_x8s8s32x_conv_kernel.cpp; not after the gemm). It shows where a bias has
// a bit of 2^-149, and where a multiplier is 2^127 and more.
bool HalvesBias(const Accumulation& accumulation) {
  return accumulation.kind == Kind::kHalvedWeights && accumulation.kernel != kGemm;
}
void HalveAndDouble2(Channel& channel) {
  channel.bias = channel.bias * 0.5f * 2.0f;
  channel.multiplier = channel.multiplier * 2.0f * 0.5f;
}
std::vector<Step> Bias2(const Case& c) {
  if (!c.bias) return {};
  return {{Stage::kBias, "+ fl(bias*fl(isx*isw)) {bias}", step::AddBiasFloat}};
}
std::vector<Step> Multiplier2(const Case& c) {
  if (c.out_dtype == DType::kS32) return {};
  return {{Stage::kScale, "times fl(iso/fl(isx*isw)) {multiplier}", step::TimesMultiplier}};
}
constexpr OneDnnScaling kScaling2 = {
    .channel = SumsChannel2,
    .halve_and_double = HalveAndDouble2,
    .before_offsets = Bias2,
    .after_offsets = Multiplier2,
    .after_relu = [](const Case&) { return std::vector<Step>(); },
};

Channel ChannelOf(const OneDnnScaling& scaling, const Case& c, int64_t n) {
  Channel channel;
  SetOneDnnRange(channel, c);
  if (HasExplicitMultiplier(c)) {
    channel.multiplier = ExplicitMultiplier(c, n);
    return channel;
  }
  if (IsPool(c.op)) return channel;
  if (c.op == Op::kQuantize) {
    channel.reciprocal = Inverse(c.out_q.scale_at(n));
    return channel;
  }
  if (c.op == Op::kDequantize) {
    channel.scale = c.x_q.scale_at(n);
    channel.zero_point = c.x_q.zero_point_at(0);
    return channel;
  }
  if (HasTwoOperands(c.op)) {
    const float out = c.out_q.scale_at(0);
    channel.a.scale = c.x_q.scale_at(0) / out;
    channel.b.scale = c.op == Op::kAdd ? c.w_q.scale_at(0) / out : c.w_q.scale_at(0);
    return channel;
  }
  return scaling.channel(c, n, Inverse(c.x_q.scale_at(0)));
}

// The channels of a group fill whole blocks; the smallest block has 4.
bool HasBlockedGroups(const Case& c) {
  const int64_t groups = c.window.groups;
  return c.window.in_c / groups % 4 == 0 && c.N / groups % 4 == 0;
}

// With one group a depthwise convolution is a convolution of one channel, and runs as such.
bool HasDepthwiseKernel(const Case& c) { return c.window.groups > 1 && IsPlainDepthwise(c); }

// Without VNNI depthwise convolutions have no brgemm.
bool IsBrgemm(const OneDnnIsa& isa, const Case& c) {
  return isa.brgemm && (isa.vnni || !IsConv(c.op) || !HasDepthwiseKernel(c));
}

// Whether a kernel for 1x1 convolutions computes this case (jit_uni_x8s8s32x_1x1_conv_kernel.cpp,
// jit_avx512_core_x8s8s32x_1x1_conv_kernel.cpp). It takes the zero point, and the 128 of s8 codes,
// out in float32. It needs an image whose outputs times their stride are its pixels: no padding,
// which makes more, and no stride that steps over the last row or column. brgemm has kernels of its
// own.
bool HasOneByOneKernel(const OneDnnIsa& isa, const Case& c) {
  const Window& v = c.window;
  if (!IsConv(c.op) || IsBrgemm(isa, c) || v.kernel_h * v.kernel_w != 1) return false;
  const bool fits = v.groups == 1 || (isa.avx512 && HasBlockedGroups(c));
  return fits && v.out_h() * v.stride_h == v.in_h && v.out_w() * v.stride_w == v.in_w;
}

// While jit_uni_reorder.cpp lays out the weights it sums them, to take zero points out later; but
// not where it transposes tiles of 8 by 8 (process_unroll_tr8x8): 8 groups by 8 taps.
bool LosesCompensation(const OneDnnIsa& isa, const Case& c) {
  const Window& v = c.window;
  return isa.transposes && HasDepthwiseKernel(c) && v.groups % 8 == 0 &&
         v.kernel_h * v.kernel_w == 8;
}

// An s32 output goes through float32 if anything is left to do after the sums. Under brgemm the
// zero points and the 128 of s8 activations are left to do.
bool ThroughFloat(const OneDnnIsa& isa, const Case& c) {
  const bool brgemm = IsBrgemm(isa, c);
  if (IsConv(c.op) && !brgemm) return true;
  // Tiles multiply s8 by s8 as they are.
  const bool shifted = c.x.dtype() == DType::kS8 && !InTiles(isa, c);
  const bool has_zero_point = c.x_q.zero_point_at(0) != 0 || c.w_q.zero_point_at(0) != 0;
  // The gemm of version 3 is done with zero points too, but takes them for left to do.
  return c.relu || (brgemm ? shifted || has_zero_point : isa.version == 3 && has_zero_point);
}

// From a float32 in units of the output to a code. Kernels of oneDNN 3 with AVX keep NaN as NaN
// (jit_generator.hpp, saturate_f32), which converts to INT32_MIN; but those of direct convolutions
// have a saturation of their own (jit_uni_x8s8s32x_conv_kernel.cpp, store_output).
void AppendEnd(const OneDnnIsa& isa, const Case& c, std::vector<Step>& steps) {
  const size_t start = steps.size();
  AppendOneDnnEnd(steps);
  const bool direct = IsConv(c.op) && !isa.avx512 && !HasOneByOneKernel(isa, c);
  if (isa.version == 2 || isa.name == "sse41" || direct) return;
  Step& saturate = steps[start + 1];
  QUALM_CHECK(saturate.stage == Stage::kClamp);
  saturate = {Stage::kClamp, "saturate in float32 to {low}..{high}, not NaN", SaturateKeepingNan,
              Rise::kAlways};
  const bool reorder = c.op == Op::kQuantize || c.op == Op::kRequantize;  // packs as AVX2 does
  if (isa.avx512 && !reorder && c.out_dtype == DType::kU8)
    steps.back() = {Stage::kClamp, "pack as unsigned to {high}", PackUnsigned, Rise::kUnlessLossy};
}

// reorder (jit_uni_reorder.cpp) and binary (jit_uni_binary_kernel.cpp).
std::vector<Step> ElementwiseSteps(const OneDnnIsa& isa, const Case& c) {
  if (c.op == Op::kDequantize) {
    return {{Stage::kScale, "to float32", step::ToFloat},
            {Stage::kZeroPoint, "- zero point {zero_point} in float32", MinusZeroPoint},
            {Stage::kScale, "times {scale}", step::TimesScale}};
  }
  std::vector<Step> steps;
  if (c.op == Op::kQuantize) {
    steps = {{Stage::kScale, "times fl(1/scale) {reciprocal}", step::TimesReciprocal}};
  } else if (c.op == Op::kAdd) {
    steps = {{Stage::kScale, "times fl(sa/sy) {a_scale}, + {b} times fl(sb/sy) {b_scale}",
              CombineScaled<AddInto>}};
  } else {
    QUALM_CHECK(c.op == Op::kMul);
    steps = {{Stage::kScale, "times fl(sa/sy) {a_scale}, times {b} times sb {b_scale}",
              CombineScaled<MultiplyInto>}};
  }
  if (c.relu) steps.push_back({Stage::kClamp, "relu", step::Relu});
  AppendEnd(isa, c, steps);
  return steps;
}

// Pools of codes. jit_uni_i8i8_pooling.cpp multiplies a sum by the reciprocal of its count, in
// float32. It refuses windows wholly in a padding and, on sse41 and avx2, less than a register of
// codes: there ref_pooling.cpp divides.
bool HasPoolKernel(const OneDnnIsa& isa, const Case& c) {
  const Window& v = c.window;
  const auto reaches = [](int64_t out, int64_t stride, int64_t kernel, int64_t in, int64_t before) {
    return before >= kernel || (out - 1) * stride + kernel - in - before >= kernel;
  };
  if (reaches(v.out_h(), v.stride_h, v.kernel_h, v.in_h, v.pad_top) ||
      reaches(v.out_w(), v.stride_w, v.kernel_w, v.in_w, v.pad_left)) {
    return false;
  }
  constexpr int64_t kRegister = 16;  // of sse41, which avx2 falls back to
  return isa.avx512 ||
         v.batch * v.in_c * std::min(v.in_h, v.out_h()) * std::min(v.in_w, v.out_w()) >= kRegister;
}

// Max pool: the largest code. Average pools: the sum of codes, and in `second` their number.
Value GatherPool(const Case& c, int64_t index, Trace* trace) {
  const bool is_max = c.op == Op::kMaxPool;
  const std::vector<int32_t> codes = CodesUnderWindow(c, index);
  const auto count = static_cast<int32_t>(codes.size());
  Value value;
  value.SetInt(is_max ? std::ranges::max(codes) : SumOf(codes));
  value.second = c.window.count_include_pad
                     ? static_cast<int32_t>(TapsOf(c.window, index / c.N).size())
                     : count;
  if (trace != nullptr) {
    Note(trace, Stage::kAccumulate,
         (is_max ? "largest of " : "sum of the codes of ") + std::to_string(count) + " pixels",
         ValueText(value), false);
  }
  return value;
}

void TimesReciprocalOfCount(Value& v, const Channel&) {
  MultiplyInto(v, v.number, 1.0f / static_cast<float>(v.second));
}
void OverCount(Value& v, const Channel&) {
  const float quotient = v.number / static_cast<float>(v.second);
  v.lossy = static_cast<double>(quotient) * v.second != static_cast<double>(v.number);
  v.SetReal(quotient);
}

std::vector<Step> PoolSteps(const OneDnnIsa& isa, const Case& c) {
  if (c.op == Op::kMaxPool) return {};
  const Step mean = HasPoolKernel(isa, c)
                        ? Step{Stage::kScale, "times fl(1/{b})", TimesReciprocalOfCount}
                        : Step{Stage::kScale, "over {b}", OverCount};
  return {{Stage::kScale, "to float32", step::ToFloat},
          mean,
          {Stage::kRound, "cvtps2dq, ties to even", step::RoundX86},
          {Stage::kClamp, "pack to {low}..{high}", step::Clamp}};
}

// The gemm's first block of K; 0 if the pairs are those of a single block.
int64_t FirstBlock(const OneDnnIsa& isa, int64_t K) {
  return K > isa.one_block && K < 2 * isa.block ? (K + 1) / 2 : 0;
}

Accumulation ConvAccumulation(const OneDnnIsa& isa, const Case& c) {
  Accumulation result;
  const bool is_signed = c.x.dtype() == DType::kS8;
  const bool depthwise = HasDepthwiseKernel(c);
  const bool blocked = c.window.groups == 1 || HasBlockedGroups(c);
  const bool brgemm = IsBrgemm(isa, c);
  if (brgemm && isa.vnni) return result;
  result.kernel = depthwise    ? "depthwise kernel"
                  : brgemm     ? kBrgemm
                  : blocked    ? "direct kernel"
                  : isa.avx512 ? kGemm
                               : kReference;
  if (isa.vnni) return result;
  if (!depthwise && !blocked && !isa.avx512) return result;
  if (is_signed) {
    result.kind = Kind::kHalvedWeights;
  } else if (!depthwise) {
    result.kind = Kind::kPairs;
    result.pairs_within_tap = blocked || brgemm;
    if (!result.pairs_within_tap) {
      result.padding = Accumulation::Padding::kZeroCode;
      result.first_block = FirstBlock(isa, c.K);
    }
  }
  return result;
}

Accumulation AccumulationOf(const OneDnnIsa& isa, const Case& c) {
  if (IsConv(c.op)) return ConvAccumulation(isa, c);
  if (InTiles(isa, c)) {
    Accumulation tiles;
    tiles.take_out = TakeOutInSteps;
    tiles.lossy_how = "";
    tiles.kernel = "AMX tiles";
    return tiles;
  }
  const bool is_signed = c.x.dtype() == DType::kS8;
  const Kind pairs = is_signed ? Kind::kPairsXPlus128 : Kind::kPairs;
  if (isa.brgemm) {
    Accumulation brgemm;
    if (!isa.vnni) brgemm.kind = pairs;
    return brgemm;
  }
  const int32_t x_zp = c.x_q.zero_point_at(0);
  const int32_t w_zp = c.w_q.zero_point_at(0);
  const bool in_gemm = HoldsCode(c.x.dtype(), x_zp) && HoldsCode(DType::kS8, w_zp);
  const bool plain = !in_gemm || (x_zp == 0 && w_zp == 0);  // as the gemm sees it

  Accumulation result;
  if (!in_gemm && !is_signed && isa.version == 2) {
    result.take_out = TakeOutOfSignedBytes;
    result.lossy_how = ", with the codes of x summed as signed bytes";
  }
  if (is_signed && !plain && !isa.avx512) {
    result.take_out = TakeOutRounding;
    result.lossy_how = ", saturated to int32 and rounded to float32";
    return result;
  }
  if (isa.vnni) return result;
  if (isa.avx512 && plain && c.N == 1 && c.M > 1) {
    result.kind = is_signed ? Kind::kPairsWPlus128 : Kind::kPairs;
    return result;
  }
  result.kind = pairs;
  result.first_block = FirstBlock(isa, c.K);
  return result;
}

std::string CannotRun(const OneDnnIsa& isa, const Case& c) {
  if (HasSums(c)) {
    const std::string reason = FirstReason({
        Require(IsCode(c.x.dtype()), "activations must be u8 or s8"),
        Require(c.w.dtype() == DType::kS8, "weights must be s8"),
        Require(!c.bias_i32, "the bias must be float"),
        Require(!IsConv(c.op) || WeightZeroPointsAre(c, 0), "weight zero point must be 0"),
        // 2.6.3 computes garbage for some of these convolutions, on sse41 with zero points and
        // elsewhere.
        Require(isa.version == 3 || c.x.dtype() == DType::kU8 || isa.vnni || !HasDepthwiseKernel(c),
                "s8 activations of a depthwise convolution need VNNI"),
    });
    if (!reason.empty()) return reason;
  }
  return WholeRange(c);
}

std::vector<std::string> Claims(const OneDnnIsa& isa) {
  std::vector<std::string> claims = {"add.commutes", "per_channel_equals_per_tensor",
                                     "depthwise_is_grouped"};
  const auto claim = [&](std::initializer_list<const char*> more) { Append(claims, more); };
  // An image alone may be too small for the kernel of pools.
  if (isa.avx512) {
    claim({"batch_independence"});
  } else {
    claim({"conv2d.batch_independence", "depthwise.batch_independence",
           "max_pool.batch_independence"});
  }
  if (isa.brgemm || !isa.avx512) {
    claim({"conv2d.dilation_is_zero_stuffed"});
    if (!isa.transposes) claim({"depthwise.dilation_is_zero_stuffed"});
  }
  // The kernel of a product depends on its M, N and K. With AMX this changes bits: tiles round
  // where VNNI, which takes small products (InTiles), does not. So AMX makes no claim that changes
  // M, N or K of a product.
  if (isa.amx) {
    claim({"requantize.row_independence", "requantize.column_independence"});
  } else if (isa.brgemm || !isa.avx512) {
    claim({"row_independence"});
  }
  if (isa.vnni) claim({"k_permutation"});
  if (isa.brgemm && isa.vnni) {
    if (!isa.amx) claim({"column_independence"});
    claim({"groups_are_separate", "padding_is_explicit", "stride_is_subsample",
           "conv2d.zero_term_append"});
  } else if (!isa.avx512) {
    // A group alone, or an image without padding or strides, goes to another kernel.
    claim({"linear.column_independence", "requantize.column_independence"});
  }
  // These two do not hold where rows may be summed as signed bytes, nor with AMX: more terms may
  // move a product to tiles, whose rounding convolutions do not have.
  if (isa.brgemm && isa.vnni && !isa.amx)
    claim({"linear.zero_term_append", "one_by_one_is_linear"});
  return claims;
}

}  // namespace

Definition OneDnnDefinition(const OneDnnIsa& isa, const OneDnnScaling& scaling) {
  Definition definition;
  definition.pair_saturates = !isa.vnni;
  definition.satisfies = Claims(isa);
  definition.variations = OneDnnVariations(isa);
  // reorder and binary bring V1, V14 and V17.
  Append(definition.variations, {"V1", "V14", "V17", "V22"});
  // Tiles, and the kernels for 1x1 convolutions, take zero points out in float32.
  if (isa.amx || !isa.brgemm) definition.variations.emplace_back("V24");
  if (isa.transposes) definition.variations.emplace_back("V28");
  definition.ops = {Op::kLinear,   Op::kConv2d,     Op::kDepthwise,    Op::kRequantize,
                    Op::kQuantize, Op::kDequantize, Op::kAdd,          Op::kMul,
                    Op::kMaxPool,  Op::kAvgPool,    Op::kGlobalAvgPool};
  definition.cannot_run = [isa](const Case& c) {
    return FirstReason({
        Require(!IsPool(c.op) || (c.x.dtype() == c.out_dtype && c.x_q.scale == c.out_q.scale &&
                                  c.x_q.zero_point == c.out_q.zero_point),
                "a pool works on codes: input and output must share type and scale"),
        Require(!c.window.count_include_pad || (c.x_q.zero_point_at(0) == 0 && !c.window.ceil_mode),
                "padding counts as code 0"),
        Require(OneZeroPoint(c.out_q) && OneZeroPoint(c.x_q),
                "a reorder has one zero point for all channels"),
        Require(c.op != Op::kQuantize || !c.relu, "a reorder has no relu"),
        Require(!IsPool(c.op) || !c.relu, "a pool has no relu"),
        Require(
            !HasTwoOperands(c.op) || (c.x_q.zero_point_at(0) == 0 && c.w_q.zero_point_at(0) == 0 &&
                                      c.out_q.zero_point_at(0) == 0),
            "a binary primitive has no zero points"),
        Require(c.op != Op::kRequantize || HasExplicitMultiplier(c),
                "requantize needs an explicit multiplier"),
        Require(c.op != Op::kLinear || OneZeroPoint(c.w_q), "weight zero points must be equal"),
        CannotRun(isa, c),
        // The 128 that are added to s8 codes would stay in the sums too.
        Require(c.x.dtype() == DType::kU8 || !LosesCompensation(isa, c),
                "of s8 activations the reorder loses the compensation of these weights"),
    });
  };
  definition.accumulation = [isa](const Case& c) {
    Accumulation accumulation = AccumulationOf(isa, c);
    if (HasOneByOneKernel(isa, c)) {
      accumulation.take_out = TakeOutInFloat;
      accumulation.lossy_how = ", term by term in float32";
    }
    accumulation.zero_point_stays = LosesCompensation(isa, c);
    return accumulation;
  };
  definition.gather = [](const Case& c) -> Definition::Gatherer {
    return IsPool(c.op) ? EachAlone(c, GatherPool) : nullptr;
  };
  definition.channel = [isa, scaling](const Case& c, int64_t n) {
    Channel channel = ChannelOf(scaling, c, n);
    if (IsConv(c.op) && HalvesBias(AccumulationOf(isa, c))) scaling.halve_and_double(channel);
    return channel;
  };
  definition.steps = [isa, scaling](const Case& c) {
    if (IsConv(c.op) && AccumulationOf(isa, c).kernel == kReference)
      return ReferenceSteps(scaling, c);
    if (IsPool(c.op)) return PoolSteps(isa, c);
    if (!HasSums(c) && c.op != Op::kRequantize) return ElementwiseSteps(isa, c);
    std::vector<Step> steps = {{Stage::kScale, "to float32", step::ToFloat}};
    const auto add_offsets = [&] {
      if (!InTiles(isa, c)) return;
      if (c.x_q.zero_point_at(0) != 0)
        steps.push_back({Stage::kOffset, "- zero point of x * sum(w), in float32", AddXOffset});
      if (c.w_q.zero_point_at(0) != 0)
        steps.push_back(
            {Stage::kOffset, "- zero point of w * sum(x - zero point), in float32", AddWOffset});
    };
    if (c.out_dtype == DType::kS32) {
      if (!ThroughFloat(isa, c)) return std::vector<Step>{};
      add_offsets();
      if (c.relu) steps.push_back({Stage::kClamp, "relu", step::Relu});
      steps.insert(steps.end(),
                   {{Stage::kClamp, "saturate in float32 to {high}", SaturateFloat, Rise::kAlways},
                    {Stage::kRound, "cvtps2dq, ties to even", step::RoundX86}});
      return steps;
    }
    AppendSteps(steps, scaling.before_offsets(c));
    add_offsets();
    AppendSteps(steps, scaling.after_offsets(c));
    if (c.relu) steps.push_back({Stage::kClamp, "relu", step::Relu});
    AppendSteps(steps, scaling.after_relu(c));
    if (IsCode(c.out_dtype)) AppendEnd(isa, c, steps);
    return steps;
  };
  return definition;
}

Convention OneDnn2GemmLinear(OneDnnIsa isa, float inverse_x_scale) {
  isa.brgemm = isa.amx = false;
  Definition definition = OneDnnDefinition(isa, kScaling2);
  definition.channel = [inverse_x_scale](const Case& c, int64_t n) {
    return SumsChannel2(c, n, inverse_x_scale);
  };
  // The gemm refuses sums without terms. The reference (ref_matmul_int8.cpp; onednn_verbose tells)
  // takes them, whose relu differs.
  definition.steps = [gemm = std::move(definition.steps)](const Case& c) {
    return c.K == 0 ? ReferenceSteps(kScaling2, c) : gemm(c);
  };
  return MakeConvention(std::move(definition));
}

const OneDnnIsa* FindOneDnnIsa(std::string_view name) {
  for (const OneDnnIsa& isa : kIsas) {
    if (isa.name == name) return &isa;
  }
  return nullptr;
}

std::vector<std::string> OneDnnVariations(const OneDnnIsa& isa) {
  std::vector<std::string> variations = {"V2", "V3", "V8", "V16", "V18", "V19"};
  if (!isa.vnni) Append(variations, {"V6", "V10"});
  return variations;
}

void SetOneDnnRange(Channel& channel, const Case& c) {
  channel.low = c.out_min;
  channel.high = c.out_max;
  // Float and s32 outputs have none, whatever the case says: no attribute passes it.
  channel.zero_point = IsCode(c.out_dtype) ? c.out_q.zero_point_at(0) : 0;
}

void AppendOneDnnEnd(std::vector<Step>& steps) {
  steps.insert(
      steps.end(),
      {{Stage::kZeroPoint, "+ zero point {zero_point} in float32, before rounding",
        step::AddZeroPointFloat},
       {Stage::kClamp, "saturate in float32 to {low}..{high}", SaturateFloat, Rise::kAlways},
       {Stage::kRound, "cvtps2dq, ties to even", step::RoundX86},
       {Stage::kClamp, "pack to {low}..{high}", step::Clamp}});
}

std::vector<Convention> OneDnn2Conventions() {
  std::vector<Convention> conventions;
  for (const OneDnnIsa& isa : kIsas) {
    Definition definition = OneDnnDefinition(isa, kScaling2);
    definition.name = "onednn2@" + std::string(isa.name);
    definition.description = "oneDNN 2.6 matmul on " + std::string(isa.name) +
                             (isa.vnni ? ": exact sums" : ": saturating int16 pairs") +
                             ", zero point added before rounding";
    definition.source = "oneDNN 2.6.3 src/cpu/x64/gemm; ideep b2f8044 operators/matmul.hpp";
    conventions.push_back(MakeConvention(std::move(definition)));
  }
  return conventions;
}

}  // namespace qualm::conventions
