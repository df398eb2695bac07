// SPDX-License-Identifier: Apache-2.0
// ruy at 21a85fe, x86 kernels (ruy/kernel_avx512.cc, kernel_avx2_fma.cc, kernel_avx.cc): exact sums
// in int32, zero points and bias modulo 2^32; with TFLite's multiplier and exponent a left shift
// that wraps, a product whose high half is rounded half up, and a right shift that is rounded half
// up again. ruy calls none of this normative (ruy/mul_params.h): its plain C++ rounds once
// (ruy/apply_multiplier.cc), which is tflite@single's arithmetic.
#include "oracles/conventions/ruy.h"

#include <algorithm>

#include "oracles/conventions/definition.h"

namespace qualm::conventions {
namespace {

constexpr int32_t kMostShift = 30;

void ShiftLeft(Value& v, const Channel& c) {
  const int64_t full = v.integer * (int64_t{1} << std::max(c.fixed.shift, 0));
  v.SetInt(Wrap32(full));
  v.lossy = v.integer != full;
}
void HighHalf(Value& v, const Channel& c) {
  const int64_t product = v.integer * c.fixed.value;
  v.SetInt(Wrap32((product + (int64_t{1} << 30)) >> 31));
  v.lossy = v.integer * (int64_t{1} << 31) != product;
}
void ShiftRight(Value& v, const Channel& c) {
  const int32_t right = std::max(-c.fixed.shift, 0);
  if (right > 0) v.SetInt((v.integer + (int64_t{1} << (right - 1))) >> right);
}

Channel ChannelOf(const Case& c, int64_t n) { return FixedPointChannel(c, n); }

std::string CannotRun(const Case& c) {
  const std::string shared = FirstReason({
      Require(!c.bias, "the bias must be int32"),
      Require(LowerBound(c) <= c.out_max, "relu above the upper clamp"),
      Require(c.out_dtype != DType::kF32, "outputs are codes or sums"),
      Require(c.out_dtype != DType::kS32 || !c.relu, "sums have no relu"),
      ZeroPointsAreCodes(c),
  });
  if (!shared.empty()) return shared;
  if (c.out_dtype == DType::kS32) return WholeRange(c);
  for (int64_t n = 0; n < c.N; ++n) {
    if (ChannelOf(c, n).fixed.shift > kMostShift) return "the multiplier is too large";
  }
  return "";
}

}  // namespace

std::vector<Step> RuySteps(const Case& c) {
  return FixedPointSteps(c,
                         {{Stage::kScale, "<< {left}, wrapping", ShiftLeft, Rise::kUnlessLossy},
                          {Stage::kRound, "times {fixed}*2^-31, half up", HighHalf, Rise::kAlways},
                          {Stage::kRound, ">> {right}, half up", ShiftRight, Rise::kAlways}});
}

std::vector<Convention> RuyConventions() {
  Definition definition;
  definition.name = "ruy";
  definition.description = "ruy on x86: exact sums, fixed point with two roundings, both half up";
  definition.source = "ruy kernel_avx512.cc, kernel_avx2_fma.cc @ 21a85fe";
  definition.variations = {"V5", "V9", "V11", "V12", "V16", "V18"};
  definition.satisfies = {"k_permutation",
                          "zero_term_append",
                          "row_independence",
                          "column_independence",
                          "requantize.per_channel_equals_per_tensor",
                          "linear.per_channel_equals_per_tensor"};
  definition.ops = {Op::kRequantize, Op::kLinear};
  definition.cannot_run = CannotRun;
  definition.accumulation = ExactSums;
  definition.channel = ChannelOf;
  definition.steps = RuySteps;
  return {MakeConvention(std::move(definition))};
}

}  // namespace qualm::conventions
