// SPDX-License-Identifier: Apache-2.0
// gemmlowp at e844ffd: u8 x u8 products summed exactly, zero points taken out modulo 2^32, and the
// output pipeline bias - OutputStageScaleInt32ByFixedPointAndExponent - clamp - saturating cast
// (internal/output.h). Multiplier and exponent are those that TFLite passes (QuantizeMultiplier of
// the float64 quotient of scales).
//   gemmlowp       the scalar code of a build without SIMD. A left shift, for multipliers of 1 and
//                  more, saturates (fixedpoint/fixedpoint.h, ShiftLeft)
//   gemmlowp@sse4  a build with SSE4.1, where it wraps (fixedpoint/fixedpoint_sse.h), but for the
//                  outputs that are left over from blocks of 4 both in M and in N: those are
//                  scalar (internal/unpack.h). A requantize is a product for each row
// TFLite's own reference kernels are tflite.cc.
#include <algorithm>
#include <cmath>

#include "oracles/conventions/definition.h"

namespace qualm::conventions {
namespace {

// The shift by 31 multiplies by 1 << 31, which C++ leaves undefined there.
constexpr int32_t kMostShift = 30;

void HighHalf(Value& v, const Channel& c) {
  const int64_t product = v.integer * c.fixed.value;
  v.SetInt(SaturatingRoundingDoublingHighMul(static_cast<int32_t>(v.integer), c.fixed.value));
  v.lossy = v.integer * (int64_t{1} << 31) != product;
}
void ShiftRight(Value& v, const Channel& c) {
  v.SetInt(RoundingDivideByPot(static_cast<int32_t>(v.integer), std::max(-c.fixed.shift, 0)));
}
void ShiftSaturating(Value& v, const Channel& c) {
  const int64_t full = v.integer * (int64_t{1} << std::max(c.fixed.shift, 0));
  v.SetInt(Sat32(full));
  v.lossy = v.integer != full;
}
void ShiftWrapping(Value& v, const Channel& c) {
  const int64_t full = v.integer * (int64_t{1} << std::max(c.fixed.shift, 0));
  v.SetInt(Wrap32(full));
  v.lossy = v.integer != full;
}
bool InLastColumns(const Channel& c) {
  return c.element.index % c.element.columns >= c.element.columns - c.element.columns % 4;
}
bool InLastRows(const Channel& c) {
  const int64_t rows = c.element.count / c.element.columns;
  return c.element.index / c.element.columns >= rows - rows % 4;
}
void ShiftInBlocks(Value& v, const Channel& c) {
  InLastColumns(c) && InLastRows(c) ? ShiftSaturating(v, c) : ShiftWrapping(v, c);
}
void ShiftInRows(Value& v, const Channel& c) {
  InLastColumns(c) ? ShiftSaturating(v, c) : ShiftWrapping(v, c);
}

Channel ChannelOf(const Case& c, int64_t n) { return FixedPointChannel(c, n); }

std::string CannotRun(const Case& c, bool simd) {
  const bool scales_per_channel = c.w_q.scale.size() > 1 || c.multiplier.size() > 1;
  const std::string shared = FirstReason({
      Require(!c.bias, "the bias must be int32"),
      Require(LowerBound(c) <= c.out_max, "relu above the upper clamp"),
      Require(c.op != Op::kLinear || (c.x.dtype() == DType::kU8 && c.w.dtype() == DType::kU8),
              "activations and weights must be u8"),
      Require(c.out_dtype == DType::kU8 || c.out_dtype == DType::kS32 ||
                  (c.out_dtype == DType::kS8 && !simd),
              simd ? "output must be u8 or s32" : "output must be u8, s8 or s32"),
      Require(c.out_dtype == DType::kS32 || !scales_per_channel || !simd,
              "one multiplier for all channels"),
  });
  if (!shared.empty()) return shared;
  if (const std::string reason = ZeroPointsAreCodes(c); !reason.empty()) return reason;
  if (c.out_dtype == DType::kS32) return "";
  for (int64_t n = 0; n < c.N; ++n) {
    if (ChannelOf(c, n).fixed.shift > kMostShift) return "the multiplier is too large";
  }
  return "";
}

Convention Make(bool simd) {
  Definition definition;
  definition.name = simd ? "gemmlowp@sse4" : "gemmlowp";
  definition.description =
      std::string("gemmlowp u8: exact sums, fixed point with two roundings; left shifts ") +
      (simd ? "wrap in blocks of 4" : "saturate");
  definition.source = "gemmlowp internal/output.h, fixedpoint/fixedpoint.h @ e844ffd";
  definition.satisfies = {"k_permutation", "zero_term_append"};
  definition.variations = {"V4", "V9", "V11", "V12", "V16", "V18"};
  if (!simd) {
    Append(definition.satisfies,
           {"row_independence", "column_independence", "linear.per_channel_equals_per_tensor"});
  }
  definition.ops = {Op::kRequantize, Op::kLinear};
  definition.cannot_run = [simd](const Case& c) { return CannotRun(c, simd); };
  definition.accumulation = ExactSums;
  definition.channel = ChannelOf;
  definition.steps = [simd](const Case& c) {
    const auto shift_simd = c.op == Op::kRequantize ? ShiftInRows : ShiftInBlocks;
    return FixedPointSteps(
        c, {{Stage::kScale, simd ? "<< {left}, wrapping in blocks of 4" : "<< {left}, saturating",
             simd ? shift_simd : ShiftSaturating, simd ? Rise::kUnknown : Rise::kAlways},
            {Stage::kRound, "times {fixed}*2^-31, rounded", HighHalf, Rise::kAlways},
            {Stage::kRound, ">> {right}, ties away from zero", ShiftRight, Rise::kAlways}});
  };
  return MakeConvention(std::move(definition));
}

}  // namespace

std::vector<Convention> GemmlowpConventions() { return {Make(false), Make(true)}; }

}  // namespace qualm::conventions
