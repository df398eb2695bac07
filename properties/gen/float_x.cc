// SPDX-License-Identifier: Apache-2.0
// Linear of f32 x. What breaks it: what breaks the floats of dynamic_linear and the blocks of
// weights, and what only sums without rounding show: one product, scale or zero point too few.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "core/rng.h"
#include "properties/gen/gen.h"
#include "properties/gen/values.h"

namespace qualm::gen {
namespace {

constexpr std::array<Theme, 12> kThemes{
    Theme::kUniform,       Theme::kUniform,    Theme::kBoundaryBytes, Theme::kConstantRows,
    Theme::kLongK,         Theme::kZeroPoints, Theme::kZeroPoints,    Theme::kScaleExtremes,
    Theme::kSpecialFloats, Theme::kTails,      Theme::kMiddling,      Theme::kEmpty};

// A power of two near the scale.
float PowerBelow(float scale) {
  int exponent = 0;
  (void)std::frexp(scale, &exponent);
  return std::ldexp(1.0f, std::max(exponent - 1, -149));
}

// All terms become small multiples of one power of two: float32 sums of every order are exact.
void InExactWindow(Rng& rng, Case& c) {
  const int exponent = static_cast<int>(rng.Between(-20, 20));
  const int64_t most = rng.Chance(1, 2) ? 15 : 127;
  for (float& x : c.x.as<float>())
    x = static_cast<float>(std::ldexp(static_cast<double>(rng.Between(-most, most)), exponent));
  const float least = PowerBelow(c.w_q.scale.empty() ? 1.0f : c.w_q.scale[0]);
  const float scale = std::clamp(least, 0x1p-20f, 0x1p20f);
  for (float& each : c.w_q.scale) each = scale * (rng.Chance(1, 2) ? 1.0f : 2.0f);
  const CodeRange codes = RangeOf(c.w.dtype());
  for (int32_t& zero : c.w_q.zero_point) zero = std::clamp(zero, codes.min, codes.max);
  if (!c.bias) return;
  for (float& bias : *c.bias)
    bias = static_cast<float>(std::ldexp(static_cast<double>(rng.Between(-255, 255)), exponent)) *
           scale;
}

}  // namespace

std::optional<Case> WithFloatX(const Case& drawn, uint64_t seed) {
  if (!RowOf(drawn.op).float_x || HasFloatX(drawn) || HasWideCodes(drawn) || drawn.w_block != 0)
    return std::nullopt;
  Rng rng(MixSeed(seed, 6000));
  if (rng.Chance(1, 2)) return std::nullopt;
  const Theme theme = rng.Pick(kThemes);
  Case c = internal::DrawDynamicLinear(rng, theme, Op::kDynamicLinear);
  if (rng.Chance(2, 3)) {
    for (uint64_t turn = 0; turn < 8 && c.w_block == 0; ++turn)
      c = InBlocks(c, seed + turn).value_or(c);
  }
  const Case plain;
  c.op = drawn.op;
  c.observer = plain.observer;
  c.rule = plain.rule;
  c.x_gran = plain.x_gran;
  for (float& x : c.x.as<float>()) {
    if (!std::isfinite(x)) x = std::signbit(x) ? -0.0f : 0x1p-149f;
  }
  const bool window =
      theme != Theme::kScaleExtremes && theme != Theme::kSpecialFloats && rng.Chance(1, 4);
  if (window) InExactWindow(rng, c);
  return c;
}

}  // namespace qualm::gen
