// SPDX-License-Identifier: Apache-2.0
// The requantization modes are the arithmetic of the conventions they are named after: the same
// problem asked of the convention, and of the exact meaning with the mode, gives the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "core/rng.h"
#include "core/status.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"

namespace qualm {
namespace {

struct Pair {
  Requant requant;
  std::string_view convention;
  DType x, w, out;
  bool per_channel;  // the convention has it
};
constexpr Pair kPairs[] = {
    {Requant::kFloat32, "fbgemm@vnni", DType::kU8, DType::kS8, DType::kU8, true},
    {Requant::kFixedQ31, "tflite@double", DType::kS8, DType::kS8, DType::kS8, false},
    {Requant::kFixedRndnu, "xnnpack@rndnu", DType::kS8, DType::kS8, DType::kS8, false},
    {Requant::kFixedRndnu, "xnnpack@rndnu", DType::kU8, DType::kU8, DType::kU8, false},
};

float Scale(Rng& rng, bool power_of_two, int low, int high) {
  const auto mantissa = static_cast<float>(rng.Between(1 << 23, (1 << 24) - 1));
  return std::ldexp(power_of_two ? 0x1p23f : mantissa,
                    static_cast<int>(rng.Between(low, high)) - 23);
}

// Everything but x, w and the sizes. Multipliers from 2^-34 to far beyond 1: sums overflow too.
void DrawParameters(Rng& rng, const Pair& pair, Case* c) {
  const CodeRange range = RangeOf(pair.out);
  c->out_dtype = pair.out;
  c->out_min = range.min;
  c->out_max = range.max;
  c->out_q.zero_point = {static_cast<int32_t>(rng.Between(range.min, range.max))};
  c->per_channel = pair.per_channel && c->N > 0 && rng.Chance(1, 2);
  const int exponent =
      static_cast<int>(rng.Chance(1, 3) ? rng.Between(-34, 8) : rng.Between(-14, 0));
  const bool ties = rng.Chance(1, 2);
  c->x_q.scale = {Scale(rng, ties, -8, -2)};
  c->w_q.scale.assign(c->per_channel ? static_cast<size_t>(c->N) : 1, 1.0f);
  for (float& scale : c->w_q.scale) scale = Scale(rng, ties, -10, -8);
  c->w_q.zero_point.assign(c->w_q.scale.size(), 0);
  c->out_q.scale = {Scale(rng, ties, -14 - exponent, -13 - exponent)};
}

void Expect(const Pair& pair, const Case& plain, int* compared, int* differ) {
  const Convention* convention = FindConvention(pair.convention);
  ASSERT_NE(convention, nullptr);
  if (!convention->cannot_run(plain).empty()) return;
  Case c = plain;
  c.requant = pair.requant;
  ASSERT_EQ(Validate(c), "");
  EXPECT_NE(convention->cannot_run(c), "");  // a convention has one arithmetic
  const Tensor expected = convention->run(plain).y;
  const Tensor actual = exact::Evaluate(c);
  ASSERT_EQ(exact::EvaluateRational(c), actual);
  for (int64_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual.IntAt(i), expected.IntAt(i)) << Describe(c) << " at " << i;
  }
  ++*compared;
  if (exact::Evaluate(plain) != expected) ++*differ;
}

TEST(RequantModes, RequantizeIsTheConventions) {
  for (const Pair& pair : kPairs) {
    SCOPED_TRACE(pair.convention);
    Rng rng(7);
    int compared = 0, differ = 0;
    for (int i = 0; i < 3000 && !testing::Test::HasFatalFailure(); ++i) {
      Case c;
      c.op = Op::kRequantize;
      c.M = 1;
      c.N = 6;
      DrawParameters(rng, pair, &c);
      c.per_channel = false;
      c.w_q.scale.resize(1);
      c.w_q.zero_point.resize(1);
      if (rng.Chance(1, 2)) {
        c.multiplier = {c.x_q.scale[0] * c.w_q.scale[0] / c.out_q.scale[0]};
        c.x_q = c.w_q = QParams{};
        c.out_q.scale = {1.0f};
      }
      const double real = c.multiplier.empty()
                              ? double{c.x_q.scale[0]} * c.w_q.scale[0] / double{c.out_q.scale[0]}
                              : double{c.multiplier[0]};
      c.x = Tensor(DType::kS32, {1, 6});
      for (int64_t j = 0; j < 6; ++j) {
        const double near = std::floor((static_cast<double>(rng.Between(-256, 256)) + 0.5) / real);
        const int64_t any = static_cast<int32_t>(rng.Next()) >> rng.Between(0, 31);
        const int64_t acc = rng.Chance(1, 2) && std::abs(near) < 2e9
                                ? static_cast<int64_t>(near) + rng.Between(-1, 2)
                                : any;
        c.x.SetInt(j, static_cast<int32_t>(acc));
      }
      Expect(pair, c, &compared, &differ);
    }
    EXPECT_GT(compared, 2000);
    EXPECT_GT(differ, 100);
  }
}

TEST(RequantModes, LinearIsTheConventions) {
  for (const Pair& pair : kPairs) {
    SCOPED_TRACE(pair.convention);
    Rng rng(8);
    int compared = 0, differ = 0;
    for (int i = 0; i < 2000 && !testing::Test::HasFatalFailure(); ++i) {
      Case c;
      c.op = Op::kLinear;
      c.M = 2;
      c.N = 3;
      c.K = rng.Between(1, 24);
      DrawParameters(rng, pair, &c);
      const CodeRange x_range = RangeOf(pair.x);
      const CodeRange w_range = RangeOf(pair.w);
      c.x_q.zero_point = {static_cast<int32_t>(rng.Between(x_range.min, x_range.max))};
      if (pair.w == DType::kU8) {
        c.w_q.zero_point = {static_cast<int32_t>(rng.Between(w_range.min, w_range.max))};
      }
      c.x = Tensor(pair.x, {c.M, c.K});
      c.w = Tensor(pair.w, {c.N, c.K});
      for (int64_t j = 0; j < c.x.size(); ++j) {
        c.x.SetInt(j, static_cast<int32_t>(rng.Between(x_range.min, x_range.max)));
      }
      for (int64_t j = 0; j < c.w.size(); ++j) {
        c.w.SetInt(j, static_cast<int32_t>(rng.Between(w_range.min, w_range.max)));
      }
      if (rng.Chance(1, 2)) {
        c.bias_i32.emplace(3);
        for (int32_t& b : *c.bias_i32) {
          b = static_cast<int32_t>(rng.Next()) >> rng.Between(rng.Chance(1, 8) ? 1 : 12, 31);
        }
      } else {  // row 0 next to ties
        const std::vector<__int128> sums = exact::CorrectedSums(c);
        c.bias_i32.emplace();
        for (int64_t n = 0; n < c.N; ++n) {
          const double real = double{c.x_q.scale[0]} * c.w_q.scale_at(n) / double{c.out_q.scale[0]};
          const double tie = std::floor((static_cast<double>(rng.Between(-99, 99)) + 0.5) / real);
          const double bias = tie - static_cast<double>(sums[static_cast<size_t>(n)]);
          c.bias_i32->push_back(static_cast<int32_t>(std::clamp(bias, -2e9, 2e9)));
        }
      }
      c.relu = rng.Chance(1, 4);
      Expect(pair, c, &compared, &differ);
    }
    EXPECT_GT(compared, 1500);
    EXPECT_GT(differ, 10);
  }
}

}  // namespace
}  // namespace qualm
