// SPDX-License-Identifier: Apache-2.0
// Cases of quantize, dequantize and requantize.
#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <vector>

#include "properties/gen/values.h"

namespace qualm::gen::internal {
namespace {

// Channels of a list that has one entry, or N.
size_t Entries(const Case& c) { return c.per_channel ? static_cast<size_t>(c.N) : 1; }

void DrawPerChannel(Rng& rng, Case& c) { c.per_channel = rng.Chance(2, 5); }

float ThemeScale(Rng& rng, Theme theme) {
  if (theme == Theme::kScaleExtremes || rng.Chance(1, 30)) return ExtremeScale(rng);
  if (theme == Theme::kParameterEdges && rng.Chance(1, 2)) return PowerOfTwo(rng);
  if (theme == Theme::kTies) {
    // Powers of two make ties exact in every channel of arithmetic. Other short mantissas have ties
    // too, but no exact inverse.
    const auto exponent = static_cast<int>(rng.Between(-10, 3));
    if (rng.Chance(1, 2)) return ToScale(std::ldexp(1.0, exponent));
    if (rng.Chance(1, 2)) {
      return ToScale(std::ldexp(static_cast<double>(rng.Between(1, 1 << 14)), exponent - 14));
    }
  }
  return DrawScale(rng, -14, 4);
}

// A float at the place the theme is about, for scale s and the codes of the case.
float QuantizeInput(Rng& rng, Theme theme, double s, int32_t z, const Case& c) {
  const CodeRange range = RangeOf(c.out_dtype);
  const auto neighbour = [&](float x) {
    const int64_t step = rng.Between(-1, 1);
    return step == 0 ? x : std::nextafter(x, step > 0 ? INFINITY : -INFINITY);
  };
  const auto code = static_cast<double>(rng.Between(range.min - 2, range.max + 2)) - z;
  switch (theme) {
    case Theme::kTies: return static_cast<float>((code + 0.5) * s);
    case Theme::kNearTies: return neighbour(static_cast<float>((code + 0.5) * s));
    case Theme::kClampEdges: {
      const double edge = rng.Chance(1, 2) ? c.out_min : c.out_max;
      const double halves = static_cast<double>(rng.Between(-4, 4)) * 0.5;
      return neighbour(static_cast<float>((edge - z + halves) * s));
    }
    case Theme::kSpecialFloats:
      switch (rng.Below(4)) {
        case 0: return static_cast<float>(s * 0x1p31);
        case 1: return static_cast<float>(s * (0x1p31 - z));
        case 2: return static_cast<float>(-s * 0x1p31);
        default: return SpecialFloat(rng);
      }
    case Theme::kParameterEdges: {
      // Quotients at the ends of integers and of mantissas, where a conversion or the addition of
      // 1.5 * 2^23 goes another way.
      constexpr std::array<int, 11> kBits{7, 8, 15, 16, 22, 23, 24, 30, 31, 32, 63};
      const double sign = rng.Chance(1, 2) ? 1.0 : -1.0;
      const double end = std::ldexp(sign, rng.Pick(kBits));
      const double halves = static_cast<double>(rng.Between(-3, 3)) * 0.5;
      return neighbour(static_cast<float>((end + halves - (rng.Chance(1, 2) ? z : 0)) * s));
    }
    default: break;
  }
  if (rng.Chance(1, 30)) return SpecialFloat(rng);
  if (rng.Chance(1, 10)) return static_cast<float>((code + 0.5) * s);
  return static_cast<float>((code + rng.Unit() - 0.5) * s);
}

// The nearest misses of ties, at any magnitude: with S the mantissa of the scale, odd, and r small
// and odd, X = r / 2^(j+1) modulo S makes 2 X 2^j = (2n+1) S + r, so that x/s misses n + 1/2 by
// r / 2S. The zero point brings n among the codes. The same value for all rows of a column.
void MissTies(Rng& rng, Case& c) {
  const CodeRange range = RangeOf(c.out_dtype);
  std::vector<float> values(Entries(c));
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t s = rng.Between(1 << 23, (1 << 24) - 1) | 1;
    const auto j = static_cast<int>(rng.Between(0, 30));
    const int64_t r = 2 * rng.Between(-2, 1) + 1;
    int64_t x = r < 0 ? s + r : r;
    for (int k = 0; k <= j; ++k) x = (x % 2 == 0 ? x : x + s) / 2;
    const int64_t n = (((x << (j + 1)) - r) / s - 1) / 2;
    const bool negative = rng.Chance(1, 2);  // -x/s misses -(n+1) + 1/2
    const auto exponent = static_cast<int>(rng.Between(-20, 4)) - 23;
    c.out_q.scale[i] = ToScale(std::ldexp(static_cast<double>(s), exponent));
    values[i] =
        static_cast<float>(std::ldexp(static_cast<double>(negative ? -x : x), exponent + j));
    c.out_q.zero_point[i] =
        static_cast<int32_t>(rng.Between(range.min, range.max) - (negative ? -n - 1 : n));
  }
  for (int64_t i = 0; i < c.x.size(); ++i) {
    c.x.as<float>()[static_cast<size_t>(i)] =
        values[c.per_channel ? static_cast<size_t>(i % c.N) : 0];
  }
}

// Accumulators times float32 multipliers that miss a tie of codes by 2^-47: the product has 55
// bits, rounded to the 53 of a double it is the tie, and half to even then goes the other way.
// Found by factoring (2n + 1) * 2^46 - 1 for odd n and + 1 for even ones.
void MissTiesWithLongProducts(Rng& rng, Case& c) {
  struct Factors {
    int32_t mantissa;  // of the multiplier, in units of 2^-47
    int32_t acc;
  };
  constexpr std::array<Factors, 6> kFactors{{{11091175, 1643243817},    // 129.5 - 2^-47
                                             {16387349, 1206639165},    // 140.5 + 2^-47
                                             {11532643, 1885425739},    // 154.5 + 2^-47
                                             {15024411, 1494077165},    // 159.5 - 2^-47
                                             {16695961, 1563659863},    // 185.5 - 2^-47
                                             {14934009, 2115678793}}};  // 224.5 + 2^-47
  std::vector<Factors> chosen(Entries(c));
  c.multiplier.resize(chosen.size());
  for (size_t i = 0; i < chosen.size(); ++i) {
    chosen[i] = rng.Pick(kFactors);
    c.multiplier[i] = static_cast<float>(std::ldexp(chosen[i].mantissa, -47));
  }
  c.out_q.zero_point = {c.out_dtype == DType::kS8 ? -128 : 0};
  c.x = Tensor(DType::kS32, {c.M, c.N});
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const size_t channel = c.per_channel ? static_cast<size_t>(i % c.N) : 0;
    c.x.SetInt(i, chosen[channel].acc - static_cast<int32_t>(rng.Between(0, 3) / 3));
  }
}

// Multipliers at their edges, given or as a quotient of scales, and accumulators at theirs.
void MultiplyAtEdges(Rng& rng, Case& c) {
  std::vector<EdgeMultiplier> edges(Entries(c));
  for (EdgeMultiplier& edge : edges) edge = DrawEdgeMultiplier(rng);
  if (rng.Chance(1, 2) && c.N > 0) {
    c.x_q.scale = {PowerOfTwo(rng)};
    c.out_q.scale = {PowerOfTwo(rng)};
    c.w_q = {std::vector<float>(edges.size()), std::vector<int32_t>(edges.size(), 0)};
    const double unit = double{c.out_q.scale[0]} / c.x_q.scale[0];
    for (size_t i = 0; i < edges.size(); ++i) c.w_q.scale[i] = ToScale(edges[i].value * unit);
  } else {
    for (const EdgeMultiplier& edge : edges) c.multiplier.push_back(ToScale(edge.value));
  }
  c.x = Tensor(DType::kS32, {c.M, c.N});
  for (int64_t i = 0; i < c.x.size(); ++i) {
    c.x.SetInt(i, EdgeAccumulator(rng, edges[c.per_channel ? static_cast<size_t>(i % c.N) : 0]));
  }
}

// One case in ten has codes of 16 bits. The generator is a copy, which goes another way, so that
// all other seeds draw the same cases as before there were such codes.
DType MaybeWide(Rng rng, DType dtype) {
  Rng own(MixSeed(rng.Next(), 16));
  if (!own.Chance(1, 10)) return dtype;
  return own.Chance(2, 3) ? DType::kS16 : DType::kU16;
}
// A type of fewer than 8 bits in the place of the drawn one.
DType SmallOr(Rng& rng, bool small, DType dtype) {
  constexpr std::array kSmall{DType::kU4, DType::kU4, DType::kS4,
                              DType::kS4, DType::kU2, DType::kS2};
  return small ? rng.Pick(kSmall) : dtype;
}

}  // namespace

Case DrawQuantize(Rng& rng, Theme theme, Op op) { return DrawQuantize(rng, theme, op, false); }
Case DrawDequantize(Rng& rng, Theme theme, Op op) { return DrawDequantize(rng, theme, op, false); }

Case DrawQuantize(Rng& rng, Theme theme, Op op, bool small) {
  Case c;
  c.op = op;
  DrawShape(rng, theme, 400, c);
  DrawPerChannel(rng, c);
  c.out_dtype = MaybeWide(rng, rng.Chance(3, 5) ? DType::kU8 : DType::kS8);
  c.out_dtype = SmallOr(rng, small, c.out_dtype);
  c.out_q.scale.assign(Entries(c), 1.0f);
  c.out_q.zero_point.assign(Entries(c), 0);
  for (float& scale : c.out_q.scale) scale = ThemeScale(rng, theme);
  DrawZeroPoints(rng, c.out_dtype, theme, c.out_q.zero_point);
  DrawClamp(rng, theme, c);
  c.x = Tensor(DType::kF32, {c.M, c.N});
  const auto x = c.x.as<float>();
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const int64_t n = i % c.N;
    x[static_cast<size_t>(i)] =
        QuantizeInput(rng, theme, c.out_q.scale_at(n), c.out_q.zero_point_at(n), c);
  }
  if (theme == Theme::kNearTies && rng.Chance(1, 3)) MissTies(rng, c);
  return c;
}

Case DrawDequantize(Rng& rng, Theme theme, Op op, bool small) {
  Case c;
  c.op = op;
  DrawShape(rng, theme, 600, c);
  DrawPerChannel(rng, c);
  const DType usual = MaybeWide(rng, rng.Chance(1, 2) ? DType::kU8 : DType::kS8);
  const DType dtype = SmallOr(rng, small, usual);
  c.x_q.scale.assign(Entries(c), 1.0f);
  c.x_q.zero_point.assign(Entries(c), 0);
  for (float& scale : c.x_q.scale) scale = ThemeScale(rng, theme);
  DrawZeroPoints(rng, dtype, theme, c.x_q.zero_point);
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  c.x = Tensor(dtype, {c.M, c.N});
  const bool boundary = theme == Theme::kBoundaryBytes || theme == Theme::kZeroPoints;
  for (int64_t i = 0; i < c.x.size(); ++i) {
    c.x.SetInt(i, boundary ? BoundaryCode(rng, dtype) : UniformCode(rng, dtype));
  }
  return c;
}

Case DrawRequantize(Rng& rng, Theme theme, Op op) {
  Case c;
  c.op = op;
  DrawShape(rng, theme, 400, c);
  DrawPerChannel(rng, c);
  c.out_dtype = MaybeWide(rng, rng.Chance(3, 5) ? DType::kU8 : DType::kS8);
  DrawZeroPoints(rng, c.out_dtype, theme, c.out_q.zero_point);
  DrawClamp(rng, theme, c);

  if (theme == Theme::kNearTies && rng.Chance(1, 6)) {
    MissTiesWithLongProducts(rng, c);
    return c;
  }

  if (theme == Theme::kParameterEdges) {
    MultiplyAtEdges(rng, c);
    return c;
  }

  // Real multipliers, for placing accumulators; exact enough where it matters (powers of two).
  std::vector<double> m(Entries(c));
  const bool quotient = rng.Chance(2, 5) && c.N > 0;
  const bool ties = theme == Theme::kTies;
  if (quotient) {
    c.x_q.scale = {ties ? ToScale(std::ldexp(1.0, static_cast<int>(rng.Between(-8, 0))))
                        : ThemeScale(rng, theme)};
    // One of three output scales is the input's own: a multiplier of w alone. With an odd factor
    // there are ties though the multiplier is no float of any width.
    const double odd_out = ties ? static_cast<double>(2 * rng.Between(0, 3) + 1) : 1.0;
    c.out_q.scale = {rng.Chance(1, 3) ? c.x_q.scale[0]
                     : ties ? ToScale(std::ldexp(odd_out, static_cast<int>(rng.Between(-2, 6))))
                            : ThemeScale(rng, theme)};
    c.w_q.scale.assign(m.size(), 1.0f);
    c.w_q.zero_point.assign(m.size(), 0);
    for (size_t i = 0; i < m.size(); ++i) {
      const double odd = ties ? static_cast<double>(2 * rng.Between(0, 3) + 1) : 1.0;
      c.w_q.scale[i] = ties ? ToScale(std::ldexp(odd, static_cast<int>(rng.Between(-12, -1))))
                            : ThemeScale(rng, theme);
      m[i] = static_cast<double>(c.x_q.scale[0]) * c.w_q.scale[i] / c.out_q.scale[0];
    }
  } else {
    c.multiplier.resize(m.size());
    for (size_t i = 0; i < m.size(); ++i) {
      const double odd = ties ? static_cast<double>(2 * rng.Between(0, 3) + 1) : 1.0;
      if (ties) {
        c.multiplier[i] = ToScale(std::ldexp(odd, static_cast<int>(rng.Between(-20, -1))));
      } else if (theme == Theme::kScaleExtremes) {
        c.multiplier[i] = ExtremeScale(rng);
      } else if (rng.Chance(1, 3)) {
        c.multiplier[i] = CornerMultiplier(rng);
      } else {
        c.multiplier[i] = DrawScale(rng, -20, 1);
      }
      m[i] = c.multiplier[i];
    }
  }

  const CodeRange range = RangeOf(c.out_dtype);
  const double z = c.out_q.zero_point[0];
  c.x = Tensor(DType::kS32, {c.M, c.N});
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const double mult = m[c.per_channel ? static_cast<size_t>(i % c.N) : 0];
    const auto code = static_cast<double>(rng.Between(range.min - 2, range.max + 2));
    int32_t acc = 0;
    if (theme == Theme::kBoundaryBytes || rng.Chance(1, 16)) {
      acc = CornerAccumulator(rng);
    } else if (theme == Theme::kTies || theme == Theme::kNearTies) {
      // The accumulator nearest the middle between two codes, and its neighbours.
      const double target = std::floor((code - z + 0.5) / mult + 0.5);
      acc = ToInt32(theme == Theme::kTies ? target
                                          : target + static_cast<double>(rng.Between(-1, 1)));
    } else if (theme == Theme::kClampEdges) {
      const double edge = rng.Chance(1, 2) ? c.out_min : c.out_max;
      const double halves = static_cast<double>(rng.Between(-4, 4)) * 0.5;
      acc = ToInt32((edge - z + halves) / mult);
    } else if (rng.Chance(1, 3)) {
      acc = ToInt32((code - z + rng.Unit()) / mult);
    } else {
      const auto bits = static_cast<int>(rng.Between(1, 31));
      acc = static_cast<int32_t>(rng.Between(-(int64_t{1} << bits), (int64_t{1} << bits) - 1));
    }
    c.x.SetInt(i, acc);
  }
  return c;
}

}  // namespace qualm::gen::internal
