// SPDX-License-Identifier: Apache-2.0
// What casts between float types give in today's libraries. All of them round a number that the
// output type can hold to nearest even, once; they differ in the pattern of a NaN, in what lies
// beyond the type, and in f8e8m0fnu. The rules are those of recordings: every bf16 and f16, and f32
// at and around every boundary (corpus/golden/casts.jsonl). Of casts with scales there is one:
// QuantizeLinear and DequantizeLinear of ONNX Runtime (corpus/golden/onnxruntime130.jsonl).
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/float_format.h"
#include "core/scaled_cast.h"
#include "oracles/conventions/families.h"
#include "oracles/conventions/requirements.h"

namespace qualm::conventions {
namespace {

using enum DType;
using enum FloatOverflow;

// An element of x and what it shall become.
struct Element {
  DType from, to;
  FloatRounding rounding;
  FloatOverflow overflow;
  uint32_t code;
  double value;
  bool negative;
};

struct Stack {
  const char* name;
  const char* description;
  const char* source;
  // Why the cast is not its, "" if it is.
  std::string (*cannot)(const Case& c);
  uint32_t (*nan)(const Element& e);
  // What is not the nearest value of the output type, or its overflow; nullopt for all else.
  std::optional<uint32_t> (*edge)(const Element& e);
  // The float32 pattern of a NaN of a small type.
  uint32_t (*wide_nan)(const Element& e);
  // The element after the steps in which the scales are taken; null if it knows no scales.
  Element (*scaled)(const Case& c, int64_t index, Element e) = nullptr;
};

bool IsOneOf(DType dtype, std::initializer_list<DType> types) {
  for (const DType each : types) {
    if (each == dtype) return true;
  }
  return false;
}
bool IsFnuz(DType dtype) { return IsOneOf(dtype, {kF8E4M3FNUZ, kF8E5M2FNUZ, kF8E4M3B11FNUZ}); }
bool IsFloat6(DType dtype) { return IsOneOf(dtype, {kF6E2M3FN, kF6E3M2FN}); }
bool IsOcp8(DType dtype) { return IsOneOf(dtype, {kF8E4M3FN, kF8E5M2}); }

// A pattern with the sign of the number, where the type has a place for it.
uint32_t Signed(const Element& e, uint32_t magnitude) {
  return magnitude | (e.negative && !IsFnuz(e.to) ? SignOf(e.to) : 0);
}
// Of f8e4m3fn and f8e5m2: every bit but the sign.
uint32_t AllOnes(DType dtype) { return IsOcp8(dtype) ? 0x7F : NanCode(dtype); }

// ---- f8e8m0fnu.

constexpr uint32_t kE8M0Nan = 0xFF;

// Nearest of the fields of a float32: below 2^-126 all but powers of two go up.
std::optional<uint32_t> NearestOfFields(const Element& e, double magnitude) {
  const bool low = magnitude > 0x1p-127 && magnitude < 0x1p-126;
  if (low && e.rounding == FloatRounding::kNearestEven) return 1;
  return std::nullopt;
}
uint32_t PowerOf(const Element& e, double magnitude) {
  if (const auto code = NearestOfFields(e, magnitude)) return *code;
  return EncodeFloat(e.to, magnitude, e.rounding, e.overflow);
}

// ---- What a stack can be asked.

std::string NotFrom(const Case& c, std::initializer_list<DType> from,
                    std::initializer_list<DType> to) {
  if (!IsOneOf(c.x.dtype(), from) || !IsOneOf(c.out_dtype, to))
    return "no cast from " + std::string(Name(c.x.dtype())) + " to " +
           std::string(Name(c.out_dtype)) + " is recorded";
  return "";
}

// The small type of a cast from it to f32; nullopt for a cast to it.
bool Widens(const Case& c) { return c.out_dtype == kF32; }

std::string OneWay(const Case& c, FloatOverflow overflow) {
  return FirstReason(
      {Require(c.rounding == FloatRounding::kNearestEven, "rounds to nearest even"),
       Require(c.overflow == overflow,
               overflow == kSaturate ? "saturates" : "overflows to infinity or NaN")});
}
std::string NoNanPolicy(const Case& c) {
  return Require(c.overflow != kNan, "has no overflow to NaN alone");
}

std::string TorchCannot(const Case& c) {
  const auto small = {kF8E4M3FN, kF8E5M2, kF8E4M3FNUZ, kF8E5M2FNUZ, kF8E8M0FNU};
  const std::string why =
      Widens(c) ? NotFrom(c, small, {kF32}) : NotFrom(c, {kF32, kF16, kBF16}, small);
  return why.empty() ? OneWay(c, kInfinity) : why;
}
std::string MlDtypesCannot(const Case& c) {
  const auto small = {kF8E4M3FN,  kF8E5M2,        kF8E4M3FNUZ, kF8E5M2FNUZ, kF8E4M3,  kF8E3M4,
                      kF8E8M0FNU, kF8E4M3B11FNUZ, kF6E2M3FN,   kF6E3M2FN,   kF4E2M1FN};
  const std::string why =
      Widens(c) ? NotFrom(c, small, {kF32}) : NotFrom(c, {kF32, kF16, kBF16}, small);
  return why.empty() ? OneWay(c, kInfinity) : why;
}
std::string JaxCannot(const Case& c) {
  if (Widens(c) && IsFloat6(c.x.dtype())) return "fails to compile casts from 6 bits";
  return MlDtypesCannot(c);
}
std::string CudaCannot(const Case& c) {
  if (Widens(c)) {
    const std::string why =
        NotFrom(c, {kF8E4M3FN, kF8E5M2, kF6E2M3FN, kF6E3M2FN, kF4E2M1FN, kF8E8M0FNU}, {kF32});
    return why.empty() ? OneWay(c, kInfinity) : why;
  }
  if (c.out_dtype == kF8E8M0FNU) {
    return FirstReason(
        {NotFrom(c, {kF32}, {kF8E8M0FNU}), NoNanPolicy(c),
         Require(c.rounding != FloatRounding::kNearestEven, "rounds f8e8m0fnu toward zero or up")});
  }
  if (IsOcp8(c.out_dtype)) {
    return FirstReason({NotFrom(c, {kF32, kF16, kBF16}, {kF8E4M3FN, kF8E5M2}), NoNanPolicy(c),
                        OneWay(c, c.overflow)});
  }
  const std::string why = c.out_dtype == kF4E2M1FN ? NotFrom(c, {kF32, kF16}, {kF4E2M1FN})
                                                   : NotFrom(c, {kF32}, {kF6E2M3FN, kF6E3M2FN});
  return why.empty() ? OneWay(c, kSaturate) : why;
}
std::string PtxCannot(const Case& c) {
  return FirstReason({NotFrom(c, {kF32}, {kF8E4M3FN, kF8E5M2}), OneWay(c, kSaturate)});
}
constexpr std::initializer_list<DType> kFloatsOfOnnx{kF8E4M3FN, kF8E5M2, kF8E4M3FNUZ, kF8E5M2FNUZ,
                                                     kF8E8M0FNU};
// QuantizeLinear and DequantizeLinear; the latter beside a scale of 1 too, because no Cast from
// float8 is recorded.
std::string OnnxRuntimeCannotScale(const Case& c) {
  const auto small = {kF8E4M3FN, kF8E5M2, kF8E4M3FNUZ, kF8E5M2FNUZ};
  const auto is_one = [](const QParams& q) {
    return std::ranges::all_of(q.scale, [](float scale) { return scale == 1; });
  };
  if (IsOneOf(c.x.dtype(), small)) {
    return FirstReason({NotFrom(c, small, {kF32, kF16}),
                        Require(is_one(c.out_q), "DequantizeLinear has no scale of its output"),
                        OneWay(c, kInfinity)});
  }
  return FirstReason({NotFrom(c, {kF32, kF16}, small),
                      Require(is_one(c.x_q), "QuantizeLinear has no scale of its input"),
                      NoNanPolicy(c), OneWay(c, c.overflow)});
}
std::string OnnxRuntimeCannot(const Case& c) {
  if (IsScaledCast(c) || IsOneOf(c.x.dtype(), {kF8E4M3FN, kF8E5M2, kF8E4M3FNUZ, kF8E5M2FNUZ}))
    return OnnxRuntimeCannotScale(c);
  const std::string why = NotFrom(c, {kF32, kF16, kBF16}, kFloatsOfOnnx);
  if (!why.empty()) return why;
  if (c.out_dtype == kF8E8M0FNU) return NoNanPolicy(c);
  return FirstReason({NoNanPolicy(c), OneWay(c, c.overflow)});
}
std::string OnnxReferenceCannot(const Case& c) {
  if (c.out_dtype != kF4E2M1FN) {
    const std::string why = NotFrom(c, {kF32, kF16, kBF16}, kFloatsOfOnnx);
    return why.empty() ? OnnxRuntimeCannot(c) : why;
  }
  return FirstReason({NotFrom(c, {kF32, kF16, kBF16}, {kF4E2M1FN}), OneWay(c, kSaturate)});
}

// ---- PyTorch: c10/util/Float8_*.h on the CPU, cvt instructions on CUDA.

uint32_t TorchCpuNan(const Element& e) { return Signed(e, AllOnes(e.to)); }
uint32_t TorchCudaNan(const Element& e) {
  return e.from == kF16 ? AllOnes(e.to) : Signed(e, AllOnes(e.to));
}
std::optional<uint32_t> TorchEdge(const Element& e) {
  if (e.to != kF8E8M0FNU) return std::nullopt;
  return e.value == 0 ? 0 : PowerOf(e, std::abs(e.value));  // the sign is not read
}
// f8e4m3fn takes its largest number, 448, for all that is beyond, infinities too: seen in 2.13.
std::optional<uint32_t> Torch213Edge(const Element& e) {
  constexpr uint32_t kLargest = 0x7E;
  if (e.to == kF8E4M3FN && std::abs(e.value) >= 448) return Signed(e, kLargest);
  return TorchEdge(e);
}
uint32_t TorchWideNan(const Element& e) {
  if (IsFnuz(e.from) || e.from == kF8E8M0FNU) return 0x7F800001;  // signalling
  const uint32_t sign = (e.code & 0x80) << 24;
  return sign | (e.from == kF8E4M3FN ? 0x7FF00000 : 0x7FC00000 | (e.code & 3) << 21);
}
uint32_t TorchCudaWideNan(const Element& e) {
  return e.from == kF8E5M2 ? (e.code & 0x80) << 24 | 0x7FFFFFFF : TorchWideNan(e);
}

// ---- ml_dtypes, and JAX, which casts by it on the CPU but for what XLA compiles.

uint32_t MlDtypesNan(const Element& e) {
  if (HasNan(e.to)) return Signed(e, NanCode(e.to));
  return e.negative ? 0 : SignOf(e.to);  // -0 of NaN, +0 of -NaN
}
std::optional<uint32_t> MlDtypesEdge(const Element& e) {
  if (e.to != kF8E8M0FNU) return std::nullopt;
  return NearestOfFields(e, e.value);
}
uint32_t MlDtypesWideNan(const Element& e) {
  return 0x7FC00000 | ((e.code & SignOf(e.from)) != 0 ? 0x80000000 : 0);
}

uint32_t JaxCpuNan(const Element& e) {
  if (e.to == kF8E5M2 && e.from != kF32) return 0x7F;
  if (IsFloat6(e.to)) return Signed(e, 0);
  return e.to == kF4E2M1FN ? 0x08 : MlDtypesNan(e);
}
uint32_t JaxGpuNan(const Element& e) { return IsOcp8(e.to) ? 0x7F : JaxCpuNan(e); }
// A float6 beyond the largest value becomes a zero.
std::optional<uint32_t> JaxEdge(const Element& e) {
  if (!IsFloat6(e.to)) return MlDtypesEdge(e);
  const double largest = DecodeFloat(e.to, LargestCode(e.to));
  const double step = largest - DecodeFloat(e.to, LargestCode(e.to) - 1);
  if (std::abs(e.value) < largest + step / 2) return std::nullopt;
  return Signed(e, 0);
}
uint32_t JaxCpuWideNan(const Element& e) {
  return IsFnuz(e.from) ? 0x7FC00000 : MlDtypesWideNan(e);
}
uint32_t JaxGpuWideNan(const Element& e) { return IsOcp8(e.from) ? 0x7FFFFFFF : JaxCpuWideNan(e); }

// ---- CUDA's intrinsics, on the device as in the headers' own code; PTX's cvt.

uint32_t CudaNan(const Element& e) { return HasNan(e.to) ? AllOnes(e.to) : LargestCode(e.to); }
std::optional<uint32_t> CudaEdge(const Element& e) {
  if (e.to != kF8E8M0FNU) return std::nullopt;
  if (e.value == 0) return 0;
  return EncodeFloat(e.to, std::abs(e.value), e.rounding, e.overflow);  // the sign is not read
}
// They give f16, and bf16 of f8e8m0fnu, which was widened.
uint32_t CudaWideNan(const Element& e) { return e.from == kF8E8M0FNU ? 0x7FFF0000 : 0x7FFFE000; }

// ---- ONNX: the reference evaluator, and ONNX Runtime.

std::optional<uint32_t> OnnxReferenceEdge(const Element& e) {
  if (e.to != kF8E8M0FNU) return std::nullopt;
  const double magnitude = std::abs(e.value);  // the sign is not read
  if (magnitude == 0) return 0;
  if (std::isinf(magnitude)) return kE8M0Nan;
  // It counts 2^-127 among the numbers to be rounded up, and what lies below it.
  if (e.rounding == FloatRounding::kUp && magnitude <= 0x1p-127) return 1;
  return PowerOf(e, magnitude);
}

// From bf16 without saturation the sign is lost.
uint32_t OnnxRuntimeNan(const Element& e) {
  return e.from == kBF16 && e.overflow == kInfinity ? AllOnes(e.to) : Signed(e, AllOnes(e.to));
}
// Without saturation it compares the exponent and the fraction alone, so the first step beyond the
// largest value is taken for a number (f8e4m3fn) or gets the pattern behind infinity (f8e5m2); and
// f8e8m0fnu has no number outside its range, however it would be rounded.
std::optional<uint32_t> OnnxRuntimeEdge(const Element& e) {
  if (e.overflow != kInfinity) return std::nullopt;
  const double magnitude = std::abs(e.value);
  if (e.to == kF8E4M3FN && magnitude >= 480 && magnitude < 496) return Signed(e, 0x7E);
  if (e.to == kF8E5M2 && magnitude >= 61440 && magnitude < 65536) return Signed(e, 0x7F);
  if (e.to == kF8E8M0FNU && (e.value < 0x1p-127 || e.value > 0x1p127)) return kE8M0Nan;
  return std::nullopt;
}

uint32_t OnnxRuntimeWideNan(const Element& e) { return 0x7FC00000 | (e.negative ? 0x80000000 : 0); }
// x / scale (QuantizeLinear), or x * scale (DequantizeLinear), in float32; the other scale is 1.
Element OnnxRuntimeScaled(const Case& c, int64_t index, Element e) {
  if (std::isnan(e.value)) {
    e.negative |= IsFnuz(e.from);  // their NaN has the bit that is a sign in other types
    return e;
  }
  const size_t entry = ElementEntry(c, index);
  const float product = static_cast<float>(e.value) * c.x_q.scale[entry];
  const float scaled = product / c.out_q.scale[entry];
  return {.from = kF32,
          .to = e.to,
          .rounding = e.rounding,
          .overflow = e.overflow,
          .code = std::bit_cast<uint32_t>(scaled),
          .value = static_cast<double>(scaled),
          .negative = e.negative};
}

// No cast back is recorded: `cannot` refuses it.
constexpr uint32_t (*kNoWideNan)(const Element&) = nullptr;

constexpr std::array<Stack, 10> kStacks{
    {{"cuda-cast", "CUDA's intrinsics __nv_cvt_*: NaN without sign, saturating on request",
      "CUDA 13.0 cuda_fp8.h, cuda_fp6.h, cuda_fp4.h", CudaCannot, CudaNan, CudaEdge, CudaWideNan},
     {"jax-cast@cpu", "JAX on the CPU: overflow to infinity or NaN, of float6 to zero",
      "JAX 0.11.2, XLA's CPU compiler", JaxCannot, JaxCpuNan, JaxEdge, JaxCpuWideNan},
     {"jax-cast@gpu", "JAX on a GPU: the same but for the patterns of NaN",
      "JAX 0.11.2, XLA's GPU compiler", JaxCannot, JaxGpuNan, JaxEdge, JaxGpuWideNan},
     {"ml_dtypes-cast", "ml_dtypes: overflow to infinity, NaN or the largest value, signs kept",
      "ml_dtypes 0.6.0 include/float8.h, intn.h, mxfloat.h", MlDtypesCannot, MlDtypesNan,
      MlDtypesEdge, MlDtypesWideNan},
     {"onnx-cast@reference", "ONNX's reference evaluator: saturate is an attribute",
      "onnx 1.23.1 reference/ops/op_cast.py", OnnxReferenceCannot, MlDtypesNan, OnnxReferenceEdge,
      kNoWideNan},
     {"onnxruntime1.30-cast",
      "ONNX Runtime's Cast, and with scales QuantizeLinear and DequantizeLinear: not monotone at "
      "the edge without saturation, quotients rounded to float32",
      "ONNX Runtime 1.30.0 core/framework/float8.h, core/providers/cpu/quantization/"
      "quantize_linear.cc",
      OnnxRuntimeCannot, OnnxRuntimeNan, OnnxRuntimeEdge, OnnxRuntimeWideNan, OnnxRuntimeScaled},
     {"ptx-cast", "PTX's cvt.rn.satfinite: the largest value, NaN without sign", "PTX ISA 9.0, cvt",
      PtxCannot, CudaNan, CudaEdge, kNoWideNan},
     {"torch2.11-cast@cpu", "PyTorch's Tensor.to on the CPU: overflow to infinity or NaN",
      "PyTorch 2.11.0 c10/util/Float8_*.h", TorchCannot, TorchCpuNan, TorchEdge, TorchWideNan},
     {"torch2.11-cast@cuda", "PyTorch's Tensor.to on CUDA: the same but for the patterns of NaN",
      "PyTorch 2.11.0 c10/util/Float8_*.h, cuda_fp8.h", TorchCannot, TorchCudaNan, TorchEdge,
      TorchCudaWideNan},
     {"torch2.13-cast@cpu", "the same of 2.13: f8e4m3fn saturates, infinities too",
      "PyTorch 2.13.0 c10/util/Float8_*.h", TorchCannot, TorchCpuNan, Torch213Edge, TorchWideNan}}};

Element ElementOf(const Stack& stack, const Case& c, int64_t index) {
  Element e{.from = c.x.dtype(),
            .to = c.out_dtype,
            .rounding = c.rounding,
            .overflow = c.overflow,
            .code = c.x.BitsAt(index),
            .value = 0,
            .negative = false};
  e.value = DecodeFloat(e.from, e.code);
  e.negative = (e.code & SignOf(e.from)) != 0;
  return stack.scaled == nullptr ? e : stack.scaled(c, index, e);
}

uint32_t OutputOf(const Stack& stack, const Element& e) {
  if (std::isnan(e.value)) return e.to == kF32 ? stack.wide_nan(e) : stack.nan(e);
  if (const auto code = stack.edge(e)) return *code;
  const uint32_t code = EncodeFloat(e.to, e.value, e.rounding, e.overflow);
  return IsNanCode(e.to, code) ? Signed(e, code) : code;  // what overflows keeps its sign
}

Convention ConventionOf(const Stack& stack) {
  Convention convention;
  convention.name = stack.name;
  convention.description = stack.description;
  convention.source = stack.source;
  convention.ops = {Op::kCast};
  convention.cannot_run = [&stack](const Case& c) {
    if (c.op != Op::kCast) return "this convention has no " + std::string(Name(c.op));
    if (IsScaledCast(c) && stack.scaled == nullptr)
      return "this convention has no " + std::string(kOfScaledCasts);
    return stack.cannot(c);
  };
  convention.run = [&stack](const Case& c) {
    Tensor y(c.out_dtype, c.output_shape());
    for (int64_t i = 0; i < y.size(); ++i) y.SetBits(i, OutputOf(stack, ElementOf(stack, c, i)));
    return ConventionOutput{std::move(y), std::nullopt};
  };
  convention.trace = [&stack](const Case& c, int64_t index) {
    const Element e = ElementOf(stack, c, index);
    const std::string x = CodeText(e.from, e.code), y = CodeText(c.out_dtype, OutputOf(stack, e));
    Trace trace;
    if (IsScaledCast(c)) {
      const Quotient quotient = QuotientOf(c, index);
      const bool lossy = !quotient.exact || quotient.value != e.value;
      trace.push_back({Stage::kScale,
                       "x * x_scale / out_scale in float32: " +
                           CodeText(c.x.dtype(), c.x.BitsAt(index)) + " becomes " + x,
                       x, lossy && !std::isnan(e.value)});
    }
    trace.push_back({Stage::kRound, x + " becomes " + y, y, false});
    return trace;
  };
  convention.variations = {"V42"};
  return convention;
}

}  // namespace

std::vector<Convention> CastConventions() {
  std::vector<Convention> conventions;
  for (const Stack& stack : kStacks) conventions.push_back(ConventionOf(stack));
  return conventions;
}

}  // namespace qualm::conventions
