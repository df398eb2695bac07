// SPDX-License-Identifier: Apache-2.0
// FBGEMM at 71d6f8b, x86: the u8*s8 GEMMs and convolutions with ATen's call sequence (qlinear.cpp,
// qconv.cpp, apply_impl), the dynamic linear (f32 output), and the element-wise functions of
// QuantUtils.
//
//   accumulators  src/GenerateKernelU8S8S32ACC32.cc (vpmaddubsw, vpmaddwd), ...ACC32Avx512VNNI.cc
//                 (vpdpbusd), GenerateKernelU8S8S32ACC16.cc (vpmaddubsw, vpaddsw; blocks of 256);
//                 a row names its Kind, accumulation.cc adds by it
//   epilogue      src/QuantUtilsAvx2.cc, requantizeOutputProcessingAvx2 and requantizeForFloatAvx2,
//                 used by every instruction set
//   convolutions  src/FbgemmConv.cc (dispatch); padding is the zero point, as a byte, inside the
//                 sums (src/PackAWithIm2Col.cc). im2col, pointwise and groupwise add as the GEMM of
//                 their instruction set does, the depthwise kernel in saturating pairs of taps on
//                 every one (src/GenerateI8Depthwise.cc: there is none for VNNI)
//   quantize      src/QuantUtilsAvx2.cc, QuantizeAvx2; fbgemm@scalar is include/fbgemm/QuantUtils.h
//
// +nofma is a build with -ffp-contract=off: GCC otherwise fuses bias*reciprocal + float(v), and the
// scaling and bias of the f32 output. In the depthwise kernel GCC 12 (-O3) moves the product out of
// the loop over pixels instead; the compiler of PyTorch's official wheel fuses it there too.
//
// FBGEMM_ENABLE_INSTRUCTIONS does not reach the groupwise kernel, which asks the processor
// (src/GroupwiseConv.cc, getOrCreateConvKernel): held to AVX2 where there is VNNI, it adds exactly.
#include "oracles/conventions/fbgemm.h"

#include <cmath>

#include "oracles/conventions/definition.h"
#include "oracles/conventions/torch_operators.h"

namespace qualm::conventions {
namespace {

using Kind = Accumulation::Kind;

void BiasFused(Value& v, const Channel& c) {
  const float number = v.number;
  v.SetReal(std::fma(c.bias, c.reciprocal, number));
  const double exact =
      static_cast<double>(c.bias) * static_cast<double>(c.reciprocal) + static_cast<double>(number);
  v.lossy = static_cast<double>(v.number) != exact;
}
void BiasTwoRoundings(Value& v, const Channel& c) {
  const float number = v.number;
  const float product = MultiplyInto(v, c.bias, c.reciprocal);
  AddInto(v, number, product);
}
void BiasDivided(Value& v, const Channel& c) {  // c.bias is fl(bias/atw) already
  AddInto(v, v.number, c.bias);
}
void ReluCode(Value& v, const Channel& c) {
  // pmaxub with the zero point broadcast as a byte: outside 0..255 its low 8 bits count.
  v.SetInt(std::max<int64_t>(v.integer, static_cast<uint8_t>(c.zero_point)));
}
void ClampU8(Value& v, const Channel&) { v.SetInt(std::clamp<int64_t>(v.integer, 0, 255)); }

void RealFused(Value& v, const Channel& c) {
  const float number = v.number;
  v.SetReal(std::fma(number, c.accumulator_scale, c.bias));
  const double exact = static_cast<double>(number) * static_cast<double>(c.accumulator_scale) +
                       static_cast<double>(c.bias);
  v.lossy = static_cast<double>(v.number) != exact;
}
void RealProduct(Value& v, const Channel& c) { MultiplyInto(v, v.number, c.accumulator_scale); }
void ReluReal(Value& v, const Channel&) { v.SetReal(MaxPs(0.0f, v.number)); }

constexpr Step kBiasI32{Stage::kBias, "+ int32 bias {bias_i32}", step::AddBiasI32};
constexpr Step kToFloat{Stage::kScale, "to float32", step::ToFloat};
constexpr Step kScale{Stage::kScale, "times multiplier {multiplier}", step::TimesMultiplier};
constexpr Step kRound{Stage::kRound, "cvtps2dq, ties to even", step::RoundX86};
constexpr Step kZeroPoint{Stage::kZeroPoint, "to int16, + zero point {zero_point}, saturating",
                          step::AddZeroPointSat16};
constexpr Step kClamp{Stage::kClamp, "clamp to u8", ClampU8, Rise::kAlways};
constexpr Step kRelu{Stage::kClamp, "relu: at least {zero_point}", ReluCode, Rise::kAlways};

enum class Build { kGcc12, kWithoutFma, kWheel };

struct Variant {
  Kind kind = Kind::kExact;
  bool acc16 = false;
  Build build = Build::kGcc12;
  bool held = false;  // below the VNNI of the processor, by FBGEMM_ENABLE_INSTRUCTIONS
};

// FbgemmConv.cc, takeDepthWiseFastPath.
bool TakesDepthwiseKernel(const Case& c) {
  const Window& v = c.window;
  const auto is_half = [&](int64_t pad) { return pad == (v.kernel_h - 1) / 2; };
  return IsConv(c.op) && v.groups == v.in_c && (c.N == v.groups || c.N == 2 * v.groups) &&
         v.groups % 8 == 0 && v.stride_h <= 2 && v.stride_w <= 2 && v.kernel_h == v.kernel_w &&
         (v.kernel_h == 3 || v.kernel_h == 5 || v.kernel_h == 7) && v.dilation_h == 1 &&
         v.dilation_w == 1 && is_half(v.pad_top) && is_half(v.pad_bottom) && is_half(v.pad_left) &&
         is_half(v.pad_right);
}

// Fbgemm.cc, fbgemmOptimizedGConv, on a processor with AVX-512. Without it fewer groups do, but
// then the kernel adds as the others do.
bool TakesGroupwiseKernel(const Case& c) {
  const Window& v = c.window;
  if (!IsConv(c.op) || v.in_c != c.N) return false;
  const int64_t channels = v.in_c / v.groups;
  const bool has_kernel = channels == 2 || channels == 4 || channels == 8 || channels == 16;
  return has_kernel && v.groups >= 64 / (channels * std::max<int64_t>(channels, 4)) &&
         v.kernel_h == 3 && v.kernel_w == 3 && v.dilation_h == 1 && v.dilation_w == 1 &&
         v.pad_top == 1 && v.pad_bottom == 1 && v.pad_left == 1 && v.pad_right == 1 &&
         v.stride_h == v.stride_w && v.stride_h <= 2;
}

std::vector<Step> LinearToCodes(const Case& c, const Variant& variant) {
  std::vector<Step> steps;
  if (c.bias_i32) steps.push_back(kBiasI32);
  steps.push_back(kToFloat);
  if (c.bias && c.per_channel) {
    steps.push_back({Stage::kBias, "+ fl(bias/(x_scale*w_scale)) {bias}", BiasDivided});
  } else if (c.bias && variant.build != Build::kWithoutFma &&
             (variant.build == Build::kWheel || !TakesDepthwiseKernel(c))) {
    steps.push_back({Stage::kBias, "fused + bias {bias} * {reciprocal}", BiasFused});
  } else if (c.bias) {
    steps.push_back({Stage::kBias, "+ fl(bias {bias} * {reciprocal})", BiasTwoRoundings});
  }
  steps.insert(steps.end(), {kScale, kRound, kZeroPoint, kClamp});
  if (c.relu) steps.push_back(kRelu);
  return steps;
}

std::vector<Step> LinearToReal(const Case& c, const Variant& variant) {
  std::vector<Step> steps = {kToFloat};
  if (c.bias && variant.build != Build::kWithoutFma) {
    steps.push_back({Stage::kScale, "fused times {accumulator_scale} + bias {bias}", RealFused});
  } else {
    steps.push_back({Stage::kScale, "times {accumulator_scale}", RealProduct});
    if (c.bias) steps.push_back({Stage::kBias, "+ bias {bias}", step::AddBiasFloat});
  }
  if (c.relu) steps.push_back({Stage::kClamp, "relu", ReluReal});
  return steps;
}

// QuantizeAvx2: the upper clamp before the conversion keeps large values positive, until the zero
// point is added and wraps.
void QuantizeCut(Value& v, const Channel&) {
  const float before = v.number;
  v.SetReal(MinPs(before, 2147483520.0f));
  v.lossy = std::isnan(before);
}

// Quantize, scalar: zero point added in float32, clamp in float64, NaN cast to 0.
void QuantizeClampReal(Value& v, const Channel& c) {
  // The cast of NaN is undefined in C++; the recorded build gives 0.
  v.lossy = std::isnan(v.number);
  if (v.lossy) return v.SetInt(0);
  v.SetInt(static_cast<int64_t>(std::clamp<double>(v.number, c.low, c.high)));
}

// fmadd of x, 1/scale and the zero point.
void QuantizeFused(Value& v, const Channel& c) {
  const float before = v.number;
  v.SetReal(std::fma(before, c.reciprocal, static_cast<float>(c.zero_point)));
  v.lossy = static_cast<double>(v.number) !=
            static_cast<double>(before) * static_cast<double>(c.reciprocal) + c.zero_point;
}

// Requantize, scalar: lrintf into 64 bits, no int16 stage.
void RoundTo64(Value& v, const Channel&) {
  const float before = v.number;
  v.SetInt(ConvertX86To64(before));
  v.lossy = !(std::fabs(before) < 0x1p63f);
}
void AddZeroPoint64(Value& v, const Channel& c) {
  v.SetInt(static_cast<int64_t>(static_cast<uint64_t>(v.integer) +
                                static_cast<uint64_t>(int64_t{c.zero_point})));
}

constexpr Step kTimesReciprocal{Stage::kScale, "times fl(1/scale) {reciprocal}",
                                step::TimesReciprocal};
constexpr Step kQuantizeCut{Stage::kScale, "minps with 2147483520", QuantizeCut, Rise::kAlways};
const Step kQuantizeVector[] = {
    kTimesReciprocal,
    kQuantizeCut,
    kRound,
    {Stage::kZeroPoint, "+ zero point {zero_point}, wrapping", step::AddZeroPointWrap32},
    {Stage::kClamp, "clamp to {low}..{high}", step::Clamp},
};
const Step kQuantizeVectorLegacy[] = {
    {Stage::kScale, "fused times fl(1/scale) {reciprocal} + zero point {zero_point}", QuantizeFused,
     Rise::kAlways},
    kQuantizeCut,
    kRound,
    {Stage::kClamp, "clamp to {low}..{high}", step::Clamp},
};
constexpr Step kQuantizeRound{Stage::kRound, "nearbyint, ties to even", step::RoundEven};
constexpr Step kQuantizeClamp{Stage::kClamp, "clamp to {low}..{high}", QuantizeClampReal,
                              Rise::kAlways};
const Step kQuantizeScalar[] = {
    kTimesReciprocal,
    kQuantizeRound,
    {Stage::kZeroPoint, "+ zero point {zero_point} in float32", step::AddZeroPointFloat},
    kQuantizeClamp,
};
const Step kQuantizeScalarLegacy[] = {
    kTimesReciprocal,
    {Stage::kZeroPoint, "+ zero point {zero_point} in float32, before rounding",
     step::AddZeroPointFloat},
    kQuantizeRound,
    kQuantizeClamp,
};
const Step kRequantizeScalar[] = {
    kToFloat,
    kScale,
    {Stage::kRound, "lrintf, ties to even", RoundTo64, Rise::kUnlessLossy},
    {Stage::kZeroPoint, "+ zero point {zero_point}", AddZeroPoint64},
    {Stage::kClamp, "clamp to {low}..{high}", step::Clamp},
};
const Step kDequantize[] = {
    {Stage::kScale, "scale {scale} * float(code - {zero_point})", step::TimesCodeMinusZeroPoint},
};

template <size_t N>
std::vector<Step> List(const Step (&steps)[N]) {
  return {steps, steps + N};
}

Channel ChannelOf(const Case& c, int64_t n) {
  Channel channel;
  SetClamp(channel, c);
  if (SetColumnScale(channel, c, n)) {
    if (c.op == Op::kQuantize) channel.reciprocal = 1.0f / channel.scale;
    return channel;
  }
  QUALM_CHECK(c.op == Op::kRequantize || HasSums(c));
  channel.zero_point = c.out_q.zero_point_at(0);
  if (HasExplicitMultiplier(c)) {
    channel.multiplier = ExplicitMultiplier(c, n);
    return channel;
  }
  channel.accumulator_scale = c.x_q.scale_at(0) * c.w_q.scale_at(n);
  channel.multiplier = channel.accumulator_scale / c.out_q.scale_at(0);
  channel.reciprocal = static_cast<float>(1.0 / static_cast<double>(channel.accumulator_scale));
  if (c.bias) channel.bias = (*c.bias)[static_cast<size_t>(n)];
  if (c.bias && c.per_channel && c.out_dtype != DType::kF32) {
    channel.bias = channel.bias / channel.accumulator_scale;
  }
  if (c.bias_i32) channel.bias_i32 = (*c.bias_i32)[static_cast<size_t>(n)];
  return channel;
}

Accumulation AccumulationOf(const Case& c, const Variant& variant) {
  Accumulation result;
  result.kind = variant.kind;
  result.padding = Accumulation::Padding::kZeroPoint;
  if (TakesDepthwiseKernel(c)) {
    result.kind = Kind::kPairs;
    result.kernel = "depthwise kernel";
  } else if (variant.held && TakesGroupwiseKernel(c)) {
    result.kind = Kind::kExact;
    result.kernel = "groupwise kernel";
  }
  return result;
}

std::string CannotRunSums(const Case& c) {
  return FirstReason({
      Require(c.x.dtype() == DType::kU8, "activations must be u8"),
      Require(c.w.dtype() == DType::kS8, "weights must be s8"),
      Require(!IsConv(c.op) || c.out_dtype == DType::kU8, "a convolution makes u8"),
      Require(c.out_dtype == DType::kU8 || c.out_dtype == DType::kF32, "output must be u8 or f32"),
      WholeRange(c),
      Require(c.out_dtype == DType::kU8 || !c.bias_i32, "an f32 output takes a float bias"),
  });
}

constexpr std::initializer_list<Op> kElementwise = {Op::kQuantize, Op::kDequantize,
                                                    Op::kRequantize};
std::string CannotRunElementwise(const Case& c) {
  return FirstReason({
      WholeRange(c),
      Require(!c.relu, "this function has no fused relu"),
      Require(!c.per_channel, "this function is per tensor"),
      Require(c.op != Op::kRequantize || c.out_dtype == DType::kU8, "requantize makes u8"),
  });
}

Convention Make(const std::string& isa, Kind kind, bool acc16, Build build) {
  const Variant variant{acc16 && kind == Kind::kPairs ? Kind::kPairsInto16 : kind, acc16, build};
  const bool fma = build != Build::kWithoutFma;
  Definition definition;
  definition.name = "fbgemm@" + isa + (acc16 ? "+acc16" : "") + (fma ? "" : "+nofma");
  definition.description = std::string("FBGEMM u8*s8 on ") + isa +
                           (variant.kind == Kind::kExact ? ": exact int32 sums"
                            : acc16                      ? ": saturating int16 pairs and sums"
                                                         : ": saturating int16 pairs") +
                           (fma ? "" : ", built without contraction");
  definition.source = "FBGEMM src/QuantUtilsAvx2.cc, src/GenerateKernelU8S8S32ACC" +
                      std::string(acc16 ? "16" : "32") + ".cc @ 71d6f8b";
  definition.pair_saturates = variant.kind != Kind::kExact;
  definition.variations = {"V1", "V2", "V8", "V9", "V16", "V17", "V18", "V19"};
  // Under VNNI only the depthwise kernel saturates pairs.
  if (variant.kind != Kind::kExact || !acc16) definition.variations.emplace_back("V6");
  if (variant.kind == Kind::kPairsInto16) definition.variations.emplace_back("V25");
  // Without VNNI all convolution kernels add alike. Under VNNI the depthwise kernel saturates, and
  // groups, padding and stride decide whether a case takes it.
  definition.satisfies = {"row_independence", "batch_independence", "depthwise_is_grouped",
                          "one_by_one_is_linear"};
  if (variant.kind == Kind::kExact) {
    Append(definition.satisfies,
           {"k_permutation", "linear.zero_term_append", "linear.column_independence",
            "quantize.column_independence", "dequantize.column_independence",
            "requantize.column_independence"});
  } else if (!fma) {
    Append(definition.satisfies, {"column_independence", "groups_are_separate",
                                  "padding_is_explicit", "stride_is_subsample"});
  } else {
    // A convolution that leaves the depthwise kernel gets a fused bias.
    Append(definition.satisfies,
           {"linear.column_independence", "quantize.column_independence",
            "dequantize.column_independence", "requantize.column_independence"});
  }
  definition.ops = {Op::kLinear};
  if (!acc16) {
    definition.ops.insert(definition.ops.end(), {Op::kConv2d, Op::kDepthwise});
    definition.ops.insert(definition.ops.end(), kElementwise);
  }
  definition.cannot_run = [](const Case& c) {
    return HasSums(c) ? CannotRunSums(c) : CannotRunElementwise(c);
  };
  definition.accumulation = [variant](const Case& c) { return AccumulationOf(c, variant); };
  definition.channel = ChannelOf;
  definition.steps = [variant](const Case& c) {
    if (c.op == Op::kQuantize) return FbgemmQuantize(true, false);
    if (c.op == Op::kDequantize) return List(kDequantize);
    if (c.op == Op::kRequantize)
      return std::vector<Step>{kToFloat, kScale, kRound, kZeroPoint, kClamp};
    QUALM_CHECK(HasSums(c));
    return c.out_dtype == DType::kF32 ? LinearToReal(c, variant) : LinearToCodes(c, variant);
  };
  Convention convention = MakeConvention(std::move(definition));
  if (!acc16) AddOperation(convention, FbgemmDynamicLinear(convention));
  if (acc16) {
    convention.cannot_run = [all = convention.cannot_run](const Case& c) {
      return IsConv(c.op) ? "convolutions add in int32" : all(c);
    };
  }
  return convention;
}

Convention MakeScalar() {
  Definition definition;
  definition.name = "fbgemm@scalar";
  definition.description = "FBGEMM's element-wise functions without vector code";
  definition.source = "FBGEMM include/fbgemm/QuantUtils.h @ 71d6f8b";
  definition.satisfies = {"row_independence", "column_independence"};
  definition.variations = {"V1", "V2", "V8", "V9", "V17", "V18"};
  definition.ops = kElementwise;
  definition.cannot_run = CannotRunElementwise;
  definition.channel = ChannelOf;
  definition.steps = [](const Case& c) {
    if (c.op == Op::kQuantize) return FbgemmQuantize(false, false);
    return c.op == Op::kDequantize ? List(kDequantize) : List(kRequantizeScalar);
  };
  return MakeConvention(std::move(definition));
}

}  // namespace

std::vector<Step> FbgemmQuantize(bool vector, bool legacy) {
  if (vector) return legacy ? List(kQuantizeVectorLegacy) : List(kQuantizeVector);
  return legacy ? List(kQuantizeScalarLegacy) : List(kQuantizeScalar);
}

std::vector<Convention> FbgemmConventions() {
  std::vector<Convention> conventions;
  for (const Build build : {Build::kGcc12, Build::kWithoutFma}) {
    for (const bool acc16 : {false, true}) {
      conventions.push_back(Make("avx2", Kind::kPairs, acc16, build));
      conventions.push_back(Make("avx512", Kind::kPairs, acc16, build));
      conventions.push_back(Make("vnni", Kind::kExact, acc16, build));
    }
  }
  conventions.push_back(MakeScalar());
  return conventions;
}

Convention FbgemmOfWheel(const std::string& isa, bool held) {
  const Variant variant{isa == "vnni" ? Kind::kExact : Kind::kPairs, false, Build::kWheel, held};
  const bool exact = variant.kind == Kind::kExact;
  Definition definition;
  definition.name = "torch-fbgemm@" + isa + (held ? "+held" : "");
  definition.description =
      "convolutions of the official wheel's FBGEMM on " + isa +
      (exact ? ": exact int32 sums, but for the depthwise kernel" : ": saturating int16 pairs") +
      (held ? ", held there on a processor with VNNI: the groupwise kernel adds exactly" : "");
  definition.source =
      "FBGEMM src/FbgemmConv.cc, src/GroupwiseConv.cc, src/QuantUtilsAvx2.cc @ 71d6f8b";
  definition.pair_saturates = true;
  definition.variations = {"V1", "V2", "V6", "V8", "V9", "V16", "V17", "V18", "V19"};
  definition.satisfies = {"row_independence", "batch_independence", "depthwise_is_grouped",
                          "one_by_one_is_linear"};
  if (!exact && !held) {  // all kernels add alike
    Append(definition.satisfies, {"column_independence", "groups_are_separate",
                                  "padding_is_explicit", "stride_is_subsample"});
  }
  definition.ops = {Op::kConv2d, Op::kDepthwise};
  definition.cannot_run = CannotRunSums;
  definition.accumulation = [variant](const Case& c) { return AccumulationOf(c, variant); };
  definition.channel = ChannelOf;
  definition.steps = [variant](const Case& c) { return LinearToCodes(c, variant); };
  return MakeConvention(std::move(definition));
}

std::vector<int32_t> FbgemmDepthwise3d(int32_t x, int32_t w_zero_point, float out_scale) {
  constexpr int64_t kSize = 7;
  // The kernel adds saturating pairs; with weights of 1 a pair is 510 at most.
  const Accumulation accumulation;
  Channel channel;
  channel.multiplier = 1.0f / out_scale;
  const Step steps[] = {kToFloat, kScale, kRound, kZeroPoint, kClamp};
  const std::vector<int32_t> weights(kSize * kSize * kSize, 1);
  // Along one axis: whether this tap of the window at `position` lies in the volume.
  const auto inside = [](int64_t position, int64_t tap) {
    const int64_t at = position + tap - kSize / 2;
    return at >= 0 && at < kSize;
  };
  std::vector<int32_t> y;
  for (int64_t i = 0; i < kSize * kSize * kSize; ++i) {
    std::vector<int32_t> row;
    for (int64_t k = 0; k < kSize * kSize * kSize; ++k) {
      const bool valid = inside(i / (kSize * kSize), k / (kSize * kSize)) &&
                         inside(i / kSize % kSize, k / kSize % kSize) &&
                         inside(i % kSize, k % kSize);
      row.push_back(valid ? x : 0);
    }
    const int32_t acc = Accumulate(accumulation, row, weights, nullptr);
    // The sum of the codes of x saturates to int16.
    Value value = TakeOutWrapping({acc, 0, w_zero_point, false, row, weights},
                                  std::min<int64_t>(SumOf(row), INT16_MAX));
    Apply(steps, channel, value, nullptr);
    y.push_back(static_cast<int32_t>(value.integer));
  }
  return y;
}

int32_t FbgemmRequantizeFixedPoint(int32_t value, int32_t multiplier, int32_t right_shift,
                                   int32_t zero_point, bool vector_body) {
  QUALM_CHECK(right_shift >= 1 && right_shift <= 62);
  const int64_t product = int64_t{value} * multiplier;
  const int64_t quotient = (product + (int64_t{1} << (right_shift - 1))) >> right_shift;
  const int64_t code = quotient + zero_point;
  return static_cast<int32_t>(std::clamp<int64_t>(vector_body ? Wrap32(code) : code, 0, 255));
}

ChosenQParams FbgemmChooseQParams(float min, float max, int32_t qmin, int32_t qmax,
                                  bool preserve_sparsity, bool force_power_of_two) {
  const bool symmetric = min < 0 && max > 0 && preserve_sparsity;
  if (symmetric) {
    const int32_t low = -((qmax - qmin) / 2 + 1);
    const int32_t high = (qmax - qmin) / 2;
    const double widest = std::max(std::fabs(min / static_cast<float>(low)),
                                   std::fabs(max / static_cast<float>(high)));
    min = static_cast<float>(widest * low);
    max = static_cast<float>(widest * high);
  }
  min = std::min(min, 0.0f);
  max = std::max(max, 0.0f);
  auto scale = static_cast<float>((static_cast<double>(max) - static_cast<double>(min)) /
                                  static_cast<double>(qmax - qmin));
  if (std::isinf(1.0f / scale)) scale = 0.1f;  // 0 too
  if (force_power_of_two) {
    // Upstream rounds log2(scale) up and, where scale < 1, log2(1/scale) down: for every float32
    // the same, and too far from an integer for the last bits of log2 to decide.
    int exponent = 0;
    const bool is_power = std::frexp(scale, &exponent) == 0.5f;
    scale = std::ldexp(1.0f, is_power ? exponent - 1 : exponent);
  }
  if (scale < kSmallestScale) {
    WidenToSmallestScale(scale, qmax - qmin, min, max);
    scale = kSmallestScale;
  }
  const double min_codes = static_cast<double>(min) / static_cast<double>(scale);
  const double max_codes = static_cast<double>(max) / static_cast<double>(scale);
  // The zero point follows from the end whose terms are smaller, which loses less.
  const double min_error = std::abs(qmin) + std::fabs(min_codes);
  const double max_error = std::abs(qmax) + std::fabs(max_codes);
  double zero_point = min_error < max_error ? qmin - min_codes : qmax - max_codes;
  if (min < 0 && max > 0 && preserve_sparsity) {
    zero_point = static_cast<double>(qmin + qmax) / 2;
  }
  // An infinite end leaves NaN, which x86 converts to INT32_MIN.
  if (std::isnan(zero_point)) return {scale, INT32_MIN};
  const double clamped = std::clamp<double>(zero_point, qmin, qmax);
  return {scale, static_cast<int32_t>(RoundNearestEven(clamped))};
}

}  // namespace qualm::conventions
