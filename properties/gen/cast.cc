// SPDX-License-Identifier: Apache-2.0
// Cases of cast: values, midpoints and their neighbours, from the smallest subnormal to beyond the
// largest value of the output type, in every type of x; and every pattern that is no number.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

#include "core/float_format.h"
#include "core/scaled_cast.h"
#include "properties/gen/values.h"

namespace qualm::gen::internal {
namespace {

DType AnyFloat(Rng& rng) {
  const DTypeList& types = RowOf(Op::kCast).x_types;
  return types.list[rng.Below(types.count)];
}

// NaN of any payload, infinities, zeros, the ends of subnormals and of the range, of either sign.
uint32_t SpecialCode(Rng& rng, DType dtype) {
  const FloatFormat& f = InfoOf(dtype).floating;
  const uint32_t all = (1u << (f.exponent_bits + f.fraction_bits)) - 1;
  const uint32_t least = 1u << f.fraction_bits;  // normal
  const std::array<uint32_t, 10> magnitudes{
      0,
      0,
      1,
      least - 1,
      least,
      LargestCode(dtype) - 1,
      LargestCode(dtype),
      LargestCode(dtype) + 1 <= all ? LargestCode(dtype) + 1 : all,
      all - least / 2,
      all};
  const uint32_t magnitude = rng.Pick(magnitudes);
  return magnitude | (rng.Chance(1, 2) ? SignOf(dtype) : 0);
}

// The magnitude code of a finite value, small and large ones more often.
uint32_t FiniteCode(Rng& rng, Theme theme, DType dtype) {
  const uint32_t largest = LargestCode(dtype);
  const auto below = [&](uint64_t count) { return static_cast<uint32_t>(rng.Below(count)); };
  const FloatFormat& f = InfoOf(dtype).floating;
  const uint64_t binade = uint64_t{2} << f.fraction_bits;
  if (theme == Theme::kClampEdges || rng.Chance(1, 8))
    return largest - below(std::min<uint64_t>(4, largest));
  if (theme == Theme::kScaleExtremes || rng.Chance(1, 6))
    return below(std::min<uint64_t>(binade, largest + uint64_t{1}));
  return below(largest + uint64_t{1});
}

// A value of the output type, or what lies half way to the next one, or beside that.
double Target(Rng& rng, Theme theme, DType out) {
  const uint32_t code = FiniteCode(rng, theme, out);
  const double value = DecodeFloat(out, code);
  // Beyond the largest value the steps go on as before it.
  const double next = code < LargestCode(out) ? DecodeFloat(out, code + 1)
                                              : value + (value - DecodeFloat(out, code - 1));
  const double half = (value + next) * 0.5;
  const uint64_t kind = rng.Below(6);
  if (theme == Theme::kTies || kind < 2) return half;
  if (theme == Theme::kNearTies || kind < 4) {
    const double by = (next - value) * 0x1p-12;
    return rng.Chance(1, 2) ? half + by : half - by;
  }
  return kind == 4 ? value : value + (next - value) * rng.Unit();
}

uint32_t Element(Rng& rng, Theme theme, DType x, DType out) {
  const CodeRange range = RangeOf(x);
  if (rng.Chance(theme == Theme::kSpecialFloats ? 3 : 1, theme == Theme::kSpecialFloats ? 4 : 16))
    return SpecialCode(rng, x);
  if (rng.Chance(1, 8)) {
    const uint64_t any = rng.Next();
    return static_cast<uint32_t>(x == DType::kF32 ? any : any % (uint64_t{1} << BitsOf(x))) &
           (x == DType::kF32 ? ~0u : static_cast<uint32_t>(range.max));
  }
  const double target = Target(rng, theme, out);
  const bool negative = rng.Chance(1, 2);
  uint32_t code = EncodeFloat(x, target, FloatRounding::kNearestEven, FloatOverflow::kSaturate);
  if (code > 0 && code < LargestCode(x)) code += static_cast<uint32_t>(rng.Between(-1, 1));
  return code | (negative ? SignOf(x) : 0);
}

}  // namespace

Case DrawCast(Rng& rng, Theme theme, Op op) {
  Case c;
  c.op = op;
  DrawShape(rng, theme, 400, c);
  constexpr std::array kWide{DType::kF32, DType::kF32, DType::kF16, DType::kBF16};
  const DType x = rng.Chance(3, 4) ? rng.Pick(kWide) : AnyFloat(rng);
  c.out_dtype = AnyFloat(rng);
  OpenClamp(&c);
  if (rng.Chance(1, 3)) c.rounding = static_cast<FloatRounding>(rng.Below(3));
  c.overflow = static_cast<FloatOverflow>(rng.Below(3));
  c.x = Tensor(x, {c.M, c.N});
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetBits(i, Element(rng, theme, x, c.out_dtype));
  return c;
}

}  // namespace qualm::gen::internal

namespace qualm::gen {
namespace {

// A power of two; one of few bits, whose products with halves of values are floats; any; or one at
// the ends of float32, where quotients leave it.
float AnyScale(Rng& rng) {
  const uint64_t kind = rng.Below(8);
  if (kind < 3) return std::ldexp(1.0f, static_cast<int>(rng.Between(-12, 12)));
  if (kind < 5) return internal::ToScale(internal::ShortScale(rng));
  return kind < 7 ? internal::DrawScale(rng, -9, 9) : internal::ExtremeScale(rng);
}

// A scale for each channel or block of a row, or one for all. Each list is of scales next to the
// one that there was, which differ by factors up to 4, or of 1 alone.
void IntoLists(uint64_t seed, Case& c) {
  Rng rng(MixSeed(seed, 5301));
  const int64_t kind = rng.Between(0, 2);
  if (kind == 0 || c.M * c.N == 0) return;
  constexpr std::array<int32_t, 4> kOfFormats{32, 16, 128, 64};
  c.per_channel = kind == 1;
  if (kind == 2) {  // more often short ones: most rows are
    c.x_block = rng.Chance(1, 3)   ? rng.Pick(kOfFormats)
                : rng.Chance(1, 6) ? static_cast<int32_t>(c.N)
                                   : static_cast<int32_t>(rng.Between(1, c.N + 1));
  }
  const auto count = static_cast<size_t>(kind == 1 ? c.N : c.M * ElementBlocks(c));
  const bool powers = rng.Chance(1, 4);
  for (QParams* q : {&c.out_q, &c.x_q}) {
    const float one = q->scale[0];
    q->zero_point.assign(count, 0);
    q->scale.assign(count, one);
    if (one == 1) continue;
    for (float& scale : q->scale) {
      const double factor = powers ? std::ldexp(1.0, static_cast<int>(rng.Between(-2, 2)))
                                   : static_cast<double>(rng.Between(8, 64)) / 16;
      scale = internal::ToScale(one * factor);
    }
  }
}

}  // namespace

std::optional<Case> WithCastScales(const Case& drawn, uint64_t seed) {
  if (!RowOf(drawn.op).cast || IsScaledCast(drawn)) return std::nullopt;
  Rng rng(MixSeed(seed, 5300));
  if (!rng.Chance(1, 4)) return std::nullopt;
  Case c = ProblemOf(drawn);
  const int64_t which = rng.Between(1, 3);
  if (which != 1) c.x_q.scale = {AnyScale(rng)};
  if (which != 2) c.out_q.scale = {AnyScale(rng)};
  if (which == 3 && rng.Chance(1, 6)) c.x_q = c.out_q;
  if (!IsScaledCast(c)) return std::nullopt;
  IntoLists(seed, c);
  // Small types have few numbers to choose from, so there the scales alone make the quotients.
  if (BitsOf(c.x.dtype()) < 16 || rng.Chance(1, 6)) return c;
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const size_t entry = ElementEntry(c, i);
    const double out = double{c.out_q.scale[entry]}, in = double{c.x_q.scale[entry]};
    const double value = DecodeFloat(c.x.dtype(), c.x.BitsAt(i));
    if (!std::isfinite(value)) continue;
    c.x.SetBits(i, EncodeFloat(c.x.dtype(), value * out / in, FloatRounding::kNearestEven,
                               FloatOverflow::kSaturate));
  }
  return c;
}

}  // namespace qualm::gen
