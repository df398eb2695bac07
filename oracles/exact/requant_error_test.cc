// SPDX-License-Identifier: Apache-2.0
// How far the requantization modes lie from the exact result: a search for the worst case, near
// ties of random layers. docs/quantization.md quotes the table that this prints.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/rng.h"
#include "oracles/exact/arithmetic/dyadic.h"
#include "oracles/exact/backend_requant.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {
namespace {

struct Worst {
  int64_t outputs = 0;
  int64_t differ = 0;           // codes, from the exact ones
  int64_t code_difference = 0;  // the largest
  double distance = 0;          // |code - real value|, the largest; 0.5 is what one rounding may do
  float x_scale = 0, w_scale = 0, out_scale = 0;  // where
  int32_t accumulator = 0;
  int64_t code = 0;
};

float Scale(Rng& rng, int low, int high) {
  const int exponent = static_cast<int>(rng.Between(low, high));
  if (rng.Chance(1, 4)) return std::ldexp(1.0f, exponent);
  return std::ldexp(static_cast<float>(rng.Between(1 << 23, (1 << 24) - 1)), exponent - 23);
}

// Multipliers of 2^-26 to 1 with ordinary scales, |codes| up to 255: nothing overflows.
Worst Search(Requant requant, int layers) {
  Rng rng(20);
  Worst worst;
  Case c;
  c.op = Op::kRequantize;
  c.M = c.N = 1;
  c.requant = requant;
  for (int i = 0; i < layers; ++i) {
    c.x_q.scale = {Scale(rng, -10, -4)};
    c.w_q.scale = {Scale(rng, -10, -4)};
    const int exponent = static_cast<int>(rng.Between(-25, -1));
    const double product = double{c.x_q.scale[0]} * double{c.w_q.scale[0]};
    c.out_q.scale = {Scale(rng, std::ilogb(product) - exponent, std::ilogb(product) - exponent)};
    const double real = product / double{c.out_q.scale[0]};
    if (real >= 1) continue;
    const BackendRequant mode(c, 0);
    const Line line = Over(qualm::exact::Scale(c.x_q.scale[0], c.w_q.scale[0]), c.out_q.scale[0]);
    for (int j = 0; j < 48; ++j) {
      const double tie = (static_cast<double>(rng.Between(-256, 255)) + 0.5) / real;
      const auto accumulator =
          static_cast<int64_t>(std::nearbyint(tie)) + (j % 4 == 0 ? rng.Between(-1, 1) : 0);
      if (std::abs(accumulator) > INT32_MAX) continue;
      const int64_t code = mode.CodeOf(accumulator);
      const int64_t exact = Round(line, accumulator).integer;
      const double distance =
          std::abs(static_cast<double>(code) - static_cast<double>(accumulator) * real);
      ++worst.outputs;
      worst.differ += code != exact ? 1 : 0;
      worst.code_difference = std::max(worst.code_difference, std::abs(code - exact));
      if (distance <= worst.distance) continue;
      worst.distance = distance;
      worst.x_scale = c.x_q.scale[0];
      worst.w_scale = c.w_q.scale[0];
      worst.out_scale = c.out_q.scale[0];
      worst.accumulator = static_cast<int32_t>(accumulator);
      worst.code = code;
    }
  }
  std::printf(
      "%-12s %lld outputs next to ties, %lld differ (%.2f%%), by %lld at most; farthest from the "
      "real value by %.9f lsb: accumulator %d, scales %a * %a / %a, code %lld before the zero "
      "point\n",
      std::string(Name(requant)).c_str(), static_cast<long long>(worst.outputs),
      static_cast<long long>(worst.differ),
      100.0 * static_cast<double>(worst.differ) / static_cast<double>(worst.outputs),
      static_cast<long long>(worst.code_difference), worst.distance, worst.accumulator,
      static_cast<double>(worst.x_scale), static_cast<double>(worst.w_scale),
      static_cast<double>(worst.out_scale), static_cast<long long>(worst.code));
  return worst;
}

TEST(RequantError, OrdinaryLayersAreOneCodeOffAtMost) {
  constexpr int kLayers = 100000;
  // One rounding half to even of a value with four roundings of 2^-24, |value| < 256.
  const Worst float32 = Search(Requant::kFloat32, kLayers);
  EXPECT_EQ(float32.code_difference, 1);
  EXPECT_GT(float32.distance, 0.50002);
  EXPECT_LT(float32.distance, 0.5 + 0x1p-14);
  // The high half is rounded at 2^-r, then again: 1/2 + 2^-(r+1), r = 1 for multipliers of
  // 1/4..1/2.
  const Worst q31 = Search(Requant::kFixedQ31, kLayers);
  EXPECT_EQ(q31.code_difference, 1);
  EXPECT_GT(q31.distance, 0.7499);
  EXPECT_LE(q31.distance, 0.75 + 0x1p-20);
  // Truncation before half up loses nothing: only the multiplier's two roundings count.
  const Worst rndnu = Search(Requant::kFixedRndnu, kLayers);
  EXPECT_EQ(rndnu.code_difference, 1);
  EXPECT_GT(rndnu.distance, 0.50001);
  EXPECT_LT(rndnu.distance, 0.5 + 0x1p-15);
}

int32_t CodeOf(Requant requant, int32_t accumulator, float x_scale, float w_scale,
               float out_scale) {
  Case c;
  c.op = Op::kRequantize;
  c.M = c.N = 1;
  c.x = Tensor::Of<int32_t>({1, 1}, std::vector<int32_t>{accumulator});
  c.x_q.scale = {x_scale};
  c.w_q.scale = {w_scale};
  c.out_q.scale = {out_scale};
  c.requant = requant;
  EXPECT_EQ(Validate(c), "");
  return Evaluate(c).IntAt(0);
}

// The table's last column: whole ranges off.
TEST(RequantError, OverflowAndUnderflowCostTheWholeRange) {
  // acc * m = 2^31 and more becomes INT32_MIN.
  EXPECT_EQ(CodeOf(Requant::kExact, 1 << 30, 1, 2, 1), 255);
  EXPECT_EQ(CodeOf(Requant::kFloat32, 1 << 30, 1, 2, 1), 0);
  // A multiplier of 1 or more shifts the accumulator out of int32.
  EXPECT_EQ(CodeOf(Requant::kExact, 1 << 30, 1, 1, 1), 255);
  EXPECT_EQ(CodeOf(Requant::kFixedQ31, 1 << 30, 1, 1, 1), 0);
  // x_scale * w_scale underflows to 0 in float32.
  EXPECT_EQ(CodeOf(Requant::kExact, 255, 0x1p-80f, 0x1p-80f, 0x1p-149f), 0);
  EXPECT_EQ(CodeOf(Requant::kExact, 255 << 12, 0x1p-80f, 0x1p-80f, 0x1p-148f), 255);
  EXPECT_EQ(CodeOf(Requant::kFloat32, 255 << 12, 0x1p-80f, 0x1p-80f, 0x1p-148f), 0);
  EXPECT_EQ(CodeOf(Requant::kFixedRndnu, 255 << 12, 0x1p-80f, 0x1p-80f, 0x1p-148f), 0);
  EXPECT_EQ(CodeOf(Requant::kFixedQ31, 255 << 12, 0x1p-80f, 0x1p-80f, 0x1p-148f), 255);
}

}  // namespace
}  // namespace qualm::exact
