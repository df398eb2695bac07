// SPDX-License-Identifier: Apache-2.0
// Faults that were not planted with triage in mind: kernels as people write them. A named cause
// must be the true one; `unknown` is allowed, a wrong cause is not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/slice.h"
#include "oracles/exact/exact.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "properties/test_subject.h"
#include "triage/causes.h"
#include "triage/cover.h"
#include "triage/triaged.h"

namespace qualm::triage {
namespace {

constexpr int64_t kLargeSum = int64_t{1} << 50;

// A linear layer with codes, of a size for a test, of sums that the kernels below hold in 64 bits.
bool IsPlain(const Case& c) {
  const auto is_far = [](int32_t zero) { return std::abs(int64_t{zero}) > INT16_MAX; };
  return IsCode(c.out_dtype) && c.requant == Requant::kExact && c.M * c.N * c.K < 20000 &&
         !(std::ranges::any_of(c.x_q.zero_point, is_far) &&
           std::ranges::any_of(c.w_q.zero_point, is_far));
}

// The code of a rounded value.
int32_t Finish(const Case& c, double rounded) {
  const double zero = c.out_q.zero_point_at(0);
  const double low = c.relu ? std::max<double>(c.out_min, zero) : c.out_min;
  if (std::isnan(rounded)) rounded = 0;
  return static_cast<int32_t>(std::min<double>(std::max(rounded + zero, low), c.out_max));
}

// One output from its integer sum and its float bias.
using OneOutput = std::function<int32_t(const Case&, int64_t channel, int64_t sum, double bias)>;

Tensor FromSums(const Case& c, const OneOutput& one) {
  Tensor y = exact::Evaluate(c);
  const std::vector<__int128> sums = exact::CorrectedSums(c);
  for (int64_t i = 0; i < y.size(); ++i) {
    const auto sum = static_cast<int64_t>(
        std::clamp<__int128>(sums[static_cast<size_t>(i)], -kLargeSum, kLargeSum));
    const double bias = c.bias ? (*c.bias)[static_cast<size_t>(i % c.N)] : 0;
    y.SetInt(i, one(c, i % c.N, sum, bias));
  }
  return y;
}

double RealOf(const Case& c, int64_t channel, int64_t sum, double bias) {
  const double unit = static_cast<double>(c.x_q.scale_at(0)) * c.w_q.scale_at(channel);
  return (static_cast<double>(sum) * unit + bias) / c.out_q.scale_at(0);
}

// dequantize, matmul, requantize, all in float32, as in NumPy.
Tensor InNumpyFloats(const Case& c) {
  Tensor y = exact::Evaluate(c);
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t m = i / c.N, n = i % c.N;
    float sum = 0;
    for (int64_t k = 0; k < c.K; ++k) {
      const auto code = [](const Tensor& t, int64_t at, int64_t zero) {
        return static_cast<float>(t.IntAt(at) - zero);
      };
      sum += code(c.x, m * c.K + k, c.x_q.zero_point_at(0)) * c.x_q.scale_at(0) *
             (code(c.w, n * c.K + k, c.w_q.zero_point_at(n)) * c.w_q.scale_at(n));
    }
    const auto channel = static_cast<size_t>(n);
    if (c.bias) sum += (*c.bias)[channel];
    if (c.bias_i32)
      sum += static_cast<float>((*c.bias_i32)[channel]) * c.x_q.scale_at(0) * c.w_q.scale_at(n);
    y.SetInt(i, Finish(c, std::nearbyint(sum / c.out_q.scale_at(0))));
  }
  return y;
}

struct Kernel {
  const char* name;
  std::function<Tensor(const Case&)> run;
  // The kinds that may be named besides unknown, and the share of findings that must be named.
  std::set<FindingKind> right;
  double least_right;
  std::function<bool(const Case&)> takes = nullptr;  // null: every plain layer
};

void PrintTo(const Kernel& kernel, std::ostream* out) { *out << kernel.name; }

class Diagnosis : public testing::TestWithParam<Kernel> {};

TEST_P(Diagnosis, IsRightOrUnknown) {
  const Kernel& kernel = GetParam();
  TestSubject subject(
      [&](const Case& c, const RunContext&) { return TestSubject::Good(kernel.run(c)); });
  const auto takes = [&](const Case& c) {
    return IsPlain(c) && (kernel.takes == nullptr || kernel.takes(c));
  };
  subject.cannot_run = [&](const Case& c) { return takes(c) ? "" : "no layer of this kernel"; };
  const Property& property = *FindProperty("matches_exact");
  std::vector<Attribution> established;
  int found = 0, right = 0;
  for (uint64_t seed = 0; seed < 20000 && found < 12; ++seed) {
    const Case c = gen::Draw(Op::kLinear, CaseSeed(1, Op::kLinear, static_cast<int64_t>(seed)));
    if (!takes(c) || !Judge(property, c, subject).failed()) continue;
    ++found;
    Triaged triaged(Finding(c, property.claim, "test", {}), subject, nullptr, established);
    triaged.Minimize({.max_calls = 600});
    const FindingKind kind = triaged.finding().kind;
    right += kernel.right.contains(kind) ? 1 : 0;
    EXPECT_TRUE(kind == FindingKind::kUnknown || kernel.right.contains(kind))
        << Describe(c) << ": [" << Name(kind) << "] " << triaged.finding().explanation;
    if (!triaged.causes().empty()) established.push_back(Named(Op::kLinear, triaged.causes()));
  }
  EXPECT_GE(found, 4);
  EXPECT_GE(right, kernel.least_right * found) << right << " of " << found;
}

// The quotient is rounded to float32 before it is rounded to a code.
int32_t RoundedTwice(const Case& c, int64_t channel, int64_t sum, double bias) {
  const long double unit = static_cast<long double>(c.x_q.scale_at(0)) * c.w_q.scale_at(channel);
  const long double value =
      (static_cast<long double>(sum) * unit + static_cast<long double>(bias)) /
      static_cast<long double>(c.out_q.scale_at(0));
  return Finish(c, static_cast<double>(std::nearbyint(static_cast<float>(value))));
}

// The product of the scales is a float32 and may be infinite: 0 times it is NaN, which becomes 0.
int32_t WithFloatScales(const Case& c, int64_t channel, int64_t sum, double bias) {
  const float multiplier =
      c.x_q.scale_at(0) * c.w_q.scale_at(channel) * (1.0f / c.out_q.scale_at(0));
  if (std::isfinite(multiplier)) {
    return Finish(c, std::nearbyint(RealOf(c, channel, sum, bias)));
  }
  return Finish(c, std::nearbyint(static_cast<float>(sum) * multiplier));
}

Tensor WithBiasOfTheNextChannel(const Case& c) {
  Case shifted = ProblemOf(c);
  if (shifted.bias && c.N > 1) std::ranges::rotate(*shifted.bias, shifted.bias->begin() + 1);
  if (shifted.bias_i32 && c.N > 1)
    std::ranges::rotate(*shifted.bias_i32, shifted.bias_i32->begin() + 1);
  return exact::Evaluate(shifted);
}

Tensor WithoutTheTailOfLongSums(const Case& c) {
  if (c.K <= 32) return exact::Evaluate(c);
  const auto y = Counterfactual(c, CauseNamed("product tail of 4 dropped"));
  const auto last = Counterfactual(c, CauseNamed("last product dropped"));
  return c.K % 4 == 0 ? exact::Evaluate(c) : c.K % 4 == 1 ? *last : *y;
}

Tensor LastColumnsOfTheLastRow(const Case& c) {
  Tensor y = exact::Evaluate(c);
  for (int64_t n = c.N - c.N % 16; n < c.N && c.M > 0; ++n) {
    const int64_t i = (c.M - 1) * c.N + n;
    y.SetInt(i, c.out_min + (c.out_max - y.IntAt(i)));
  }
  return y;
}

Tensor LosingTheHighestCode(const Case& c) {
  Tensor y = exact::Evaluate(c);
  for (int64_t i = 0; i < y.size(); ++i) {
    if (y.IntAt(i) == RangeOf(c.out_dtype).max) y.SetInt(i, y.IntAt(i) - 1);
  }
  return y;
}

bool HasIntegerBias(const Case& c) { return !c.bias; }
bool HasPairs(const Case& c) {
  return !c.bias && c.x.dtype() == DType::kU8 && c.w.dtype() == DType::kS8;
}

// How far the sum of an output, of a layer with one output, is from the right one.
using DeltaOf = int64_t (*)(const Case& one);

auto MovedSums(DeltaOf delta) {
  return [delta](const Case& c) {
    Tensor y = exact::Evaluate(c);
    for (int64_t i = 0; i < y.size(); ++i) {
      Case one = slice::OneOutput(c, i);
      const int64_t moved = (one.bias_i32 ? one.bias_i32->front() : 0) + delta(one);
      one.bias_i32.emplace(1,
                           static_cast<int32_t>(std::clamp<int64_t>(moved, INT32_MIN, INT32_MAX)));
      y.SetInt(i, exact::Evaluate(one).IntAt(0));
    }
    return y;
  };
}

int64_t BiasOncePer32Terms(const Case& one) {
  const int64_t blocks = (one.K + 31) / 32;
  return one.bias_i32 && blocks > 1 ? (blocks - 1) * one.bias_i32->front() : 0;
}

int64_t SumOf(const Tensor& codes) {
  int64_t sum = 0;
  for (int64_t k = 0; k < codes.size(); ++k) sum += codes.IntAt(k);
  return sum;
}

// The compensation of one operand used for the other.
int64_t ZeroPointsExchanged(const Case& one) {
  const int64_t zx = one.x_q.zero_point_at(0), zw = one.w_q.zero_point_at(0);
  return (zx - zw) * (SumOf(one.w) - SumOf(one.x));
}

// Products in an int16 that wraps, emptied after every fourth.
int64_t SpillsLate(const Case& one) {
  int64_t sum = 0, right = 0;
  int16_t lane = 0;
  for (int64_t k = 0; k < one.K; ++k) {
    const int32_t product = one.x.IntAt(k) * one.w.IntAt(k);
    right += product;
    lane = static_cast<int16_t>(lane + product);
    if (k % 4 != 3 && k + 1 < one.K) continue;
    sum += lane;
    lane = 0;
  }
  return sum - right;
}

double MultiplierOf(const Case& c, int64_t channel) {
  return static_cast<double>(c.x_q.scale_at(0)) * c.w_q.scale_at(channel) / c.out_q.scale_at(0);
}

int32_t MultiplierOf12Bits(const Case& c, int64_t channel, int64_t sum, double /*bias*/) {
  int exponent = 0;
  const double mantissa = std::frexp(MultiplierOf(c, channel), &exponent);
  const double cut = std::ldexp(std::trunc(std::ldexp(mantissa, 12)), exponent - 12);
  return Finish(c, static_cast<double>(std::nearbyint(static_cast<long double>(sum) *
                                                      static_cast<long double>(cut))));
}

// A 31-bit multiplier whose product is rounded, then shifted and rounded again, both half up.
int32_t RoundedTwiceInFixedPoint(const Case& c, int64_t channel, int64_t sum, double /*bias*/) {
  int exponent = 0;
  const double mantissa = std::frexp(MultiplierOf(c, channel), &exponent);
  if (exponent > 0 || exponent < -30 || std::abs(sum) > INT32_MAX)
    return Finish(c, std::nearbyint(RealOf(c, channel, sum, 0)));
  const auto multiplier = static_cast<int64_t>(std::nearbyint(std::ldexp(mantissa, 31)));
  const int64_t high = (sum * multiplier + (int64_t{1} << 30)) >> 31;
  const int shift = -exponent;
  return Finish(
      c, static_cast<double>(shift == 0 ? high : (high + (int64_t{1} << (shift - 1))) >> shift));
}

OneOutput Rounding(double (*round)(double)) {
  return [round](const Case& c, int64_t channel, int64_t sum, double bias) {
    return Finish(c, round(RealOf(c, channel, sum, bias)));
  };
}

auto Outputs(OneOutput one) {
  return [one = std::move(one)](const Case& c) { return FromSums(c, one); };
}

constexpr FindingKind kTie = FindingKind::kTie, kRounding = FindingKind::kRounding,
                      kTail = FindingKind::kTail, kIndex = FindingKind::kIndex,
                      kZeroPoint = FindingKind::kZeroPoint;

INSTANTIATE_TEST_SUITE_P(
    Kernels, Diagnosis,
    testing::Values(
        Kernel{"numpy_float32", InNumpyFloats, {kRounding}, 0},
        Kernel{"half_up",
               Outputs(Rounding([](double v) { return std::floor(v + 0.5); })),
               {kTie, kRounding},  // in float64 besides
               0.7},
        Kernel{"half_away",
               Outputs(Rounding([](double v) { return std::round(v); })),
               {kTie, kRounding},
               0.7},
        Kernel{"truncates",
               Outputs(Rounding([](double v) { return std::trunc(v); })),
               {kRounding},
               0.7},
        Kernel{"two_roundings", Outputs(RoundedTwice), {kRounding}, 0},
        Kernel{"scales_overflow", Outputs(WithFloatScales), {kRounding}, 0},
        Kernel{"highest_code_lost", LosingTheHighestCode, {FindingKind::kClamp}, 0.7},
        Kernel{"bias_of_next_channel", WithBiasOfTheNextChannel, {kIndex}, 0},
        Kernel{"tail_of_long_sums", WithoutTheTailOfLongSums, {kTail}, 0.7},
        Kernel{"last_columns_of_last_row", LastColumnsOfTheLastRow, {kTail}, 0},
        Kernel{"bias_once_per_block", MovedSums(BiasOncePer32Terms), {kIndex}, 0.7, HasIntegerBias},
        Kernel{"zero_points_exchanged",
               MovedSums(ZeroPointsExchanged),
               {kZeroPoint},
               0.7,
               HasIntegerBias},
        Kernel{"spills_late", MovedSums(SpillsLate), {FindingKind::kPairSaturation}, 0.7, HasPairs},
        Kernel{
            "multiplier_of_12_bits", Outputs(MultiplierOf12Bits), {kRounding}, 0.7, HasIntegerBias},
        Kernel{"rounded_twice_in_fixed_point",
               Outputs(RoundedTwiceInFixedPoint),
               {kRounding, kTie},
               0,
               HasIntegerBias}),
    [](const auto& kernel) { return std::string(kernel.param.name); });

}  // namespace
}  // namespace qualm::triage
