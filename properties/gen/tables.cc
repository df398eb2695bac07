// SPDX-License-Identifier: Apache-2.0
// Cases of concat, table and softmax.
#include <algorithm>
#include <array>
#include <cmath>

#include "oracles/exact/arithmetic/real.h"
#include "properties/gen/layer.h"

namespace qualm::gen::internal {
namespace {

// Every other odd multiple of a power of 1/2 above 1/2 gives ties at odd codes.
double TyingRatio(Rng& rng) {
  const auto odd = static_cast<double>(2 * rng.Between(0, 3) + 1);
  return std::ldexp(odd, -static_cast<int>(rng.Between(1, 4)));
}

void Nudge(Rng& rng, float& scale) {
  scale = ToScale(std::nextafter(scale, rng.Chance(1, 2) ? 0.0f : INFINITY));
}

// One code in a row; rows differ.
void FillConstantRows(Rng& rng, Case& c) {
  for (int64_t m = 0; m < c.M; ++m) {
    const int32_t code = BoundaryCode(rng, c.x.dtype());
    for (int64_t n = 0; n < c.N; ++n) c.x.SetInt(m * c.N + n, code);
  }
}

void DrawConcatScales(Rng& rng, Theme theme, Case& c) {
  double out = DrawScale(rng, -9, -2);
  double a = 0;
  double b = 0;
  if (theme == Theme::kScaleExtremes) {
    a = ExtremeScale(rng);
    b = ExtremeScale(rng);
    out = rng.Chance(1, 2) ? ExtremeScale(rng) : a;
  } else if (theme == Theme::kParameterEdges) {
    out = PowerOfTwo(rng);
    a = out * DrawEdgeMultiplier(rng).value;
    b = out * DrawEdgeMultiplier(rng).value;
  } else if (theme == Theme::kTies || theme == Theme::kNearTies || rng.Chance(1, 12)) {
    out = ShortScale(rng);
    a = out * TyingRatio(rng);
    b = out * TyingRatio(rng);
    const int64_t divisor = DrawDivisor(rng);
    out *= static_cast<double>(divisor);
    FillMultiples(rng, c.x_q.zero_point[0], divisor, c.x);
    FillMultiples(rng, c.w_q.zero_point[0], divisor, c.w);
  } else {
    switch (rng.Below(4)) {
      case 0: a = b = out; break;
      case 1:  // one input keeps its codes
        a = out;
        b = out * (0.25 + 2.0 * rng.Unit());
        break;
      case 2:
        a = std::ldexp(out, static_cast<int>(rng.Between(-3, 6)));
        b = std::ldexp(out, static_cast<int>(rng.Between(-6, 3)));
        break;
      default:
        a = out * (0.25 + 2.0 * rng.Unit());
        b = out * (0.25 + 2.0 * rng.Unit());
        break;
    }
  }
  if (rng.Chance(1, 2)) std::swap(a, b);
  c.x_q.scale = {ToScale(a)};
  c.w_q.scale = {ToScale(b)};
  c.out_q.scale = {ToScale(out)};
  if (theme == Theme::kNearTies) Nudge(rng, rng.Chance(1, 2) ? c.x_q.scale[0] : c.w_q.scale[0]);
}

void DrawFunction(Rng& rng, Case& c) {
  constexpr std::array<Function, 5> kFunctions{Function::kRelu, Function::kLeakyRelu,
                                               Function::kHardSwish, Function::kSigmoid,
                                               Function::kTanh};
  c.function = rng.Pick(kFunctions);
  if (c.function != Function::kLeakyRelu) return;
  constexpr std::array<float, 8> kSlopes{0.0f,  0.25f, 0.5f,      1.0f,
                                         0.01f, 2.0f,  0x1p-149f, 0x1.99999ap-4f};
  c.negative_slope = rng.Pick(kSlopes);
}

// Ties of the rational functions; of the others only f(0) can be one.
void DrawTyingTable(Rng& rng, Case& c) {
  switch (c.function) {
    case Function::kHardSwish: {
      // v = 3a/2^k: v(v+3)/6 = 3a(a + 2^k) / 2^(2k + 1).
      const auto k = static_cast<int>(rng.Between(3, 6));
      c.x_q.scale = {std::ldexp(3.0f, -k)};
      const float out = rng.Chance(1, 2) ? 1.0f : 3.0f;
      c.out_q.scale = {std::ldexp(out, -static_cast<int>(rng.Between(3, 2 * k)))};
      break;
    }
    case Function::kSigmoid:
    case Function::kTanh:
      c.x_q.scale = {DrawScale(rng, -7, -1)};
      c.out_q.scale = {1.0f};
      break;
    default: {
      const double out = ShortScale(rng);
      c.x_q.scale = {ToScale(out * TyingRatio(rng))};
      const int64_t divisor = DrawDivisor(rng);
      FillMultiples(rng, c.x_q.zero_point[0], divisor, c.x);
      c.out_q.scale = {ToScale(out * static_cast<double>(divisor))};
      break;
    }
  }
}

// The function at a real value, but for its last bits; they only place things.
double ValueOf(const Case& c, double real) {
  switch (c.function) {
    case Function::kHardSwish: return real * std::min(std::max(real + 3, 0.0), 6.0) / 6;
    case Function::kSigmoid: return 1 / (1 + exact::RoundedExp(-real));
    case Function::kTanh: return exact::RoundedTanh(real);
    default: return real < 0 ? real * c.negative_slope : real;
  }
}

// The scales for which the value at one of the codes lies next to a tie, half a last bit of float32
// away or less, and an output zero point that keeps it among the codes. What is computed in float32
// then ends on either side.
void PutValueBesideTie(Rng& rng, Case& c) {
  if (c.x.empty()) return;
  for (int attempt = 0; attempt < 8; ++attempt) {
    const int64_t off = int64_t{c.x.IntAt(rng.Between(0, c.x.size() - 1))} - c.x_q.zero_point[0];
    c.x_q.scale = {DrawScale(rng, -8, -3)};
    const double value = ValueOf(c, c.x_q.scale[0] * static_cast<double>(off));
    const int64_t highest = rng.Chance(1, 2) ? 16 : 150;
    const auto tie = static_cast<double>(rng.Between(1, highest)) + 0.5;
    c.out_q.scale = {ToScale(std::abs(value) / tie)};
    const auto in = static_cast<int32_t>(rng.Between(0, 100));
    const CodeRange range = RangeOf(c.out_dtype);
    c.out_q.zero_point = {value > 0 ? range.min + in : range.max - in};
    if (std::abs(value) >= 0x1p-20) return;
  }
}

void DrawTableScales(Rng& rng, Theme theme, Case& c) {
  const bool real = c.function == Function::kSigmoid || c.function == Function::kTanh;
  if (theme == Theme::kScaleExtremes) {
    c.x_q.scale = {ExtremeScale(rng)};
    c.out_q.scale = {rng.Chance(1, 2) ? ExtremeScale(rng) : c.x_q.scale[0]};
    return;
  }
  if (theme == Theme::kParameterEdges && !real) {
    c.out_q.scale = {PowerOfTwo(rng)};
    c.x_q.scale = {ToScale(DrawEdgeMultiplier(rng).value * c.out_q.scale[0])};
    return;
  }
  if (theme == Theme::kTies || theme == Theme::kNearTies || rng.Chance(1, 12)) {
    DrawTyingTable(rng, c);
    if (theme == Theme::kNearTies) Nudge(rng, c.x_q.scale[0]);
    return;
  }
  c.x_q.scale = {DrawScale(rng, -8, -2)};
  if (real) {
    // As libraries fix it, or calibrated; now and then so fine that most of the range is cut off.
    const bool usual = rng.Chance(1, 2);
    const float fixed = c.function == Function::kTanh ? 0x1p-7f : 0x1p-8f;
    const float drawn = DrawScale(rng, -12, -6);
    c.out_q.scale = {usual ? fixed : drawn};
  } else {
    const double ratio = rng.Chance(1, 3) ? 1.0 : 0.25 + 2.0 * rng.Unit();
    c.out_q.scale = {ToScale(c.x_q.scale[0] * ratio)};
  }
}

}  // namespace

Case DrawConcat(Rng& rng, Theme theme, Op op) {
  Case c;
  c.op = op;
  DrawShape(rng, theme, 400, c);
  // Anywhere, or at an end: one input has no columns, or one.
  int64_t first = rng.Between(0, c.N);
  const uint64_t place = rng.Below(8);
  if (place == 0) first = 0;
  if (place == 1) first = c.N;
  if (place == 2) first = std::min<int64_t>(1, c.N);
  if (place == 3) {  // two of one length, as kernels unroll it
    constexpr int64_t kMost = 400;
    first = int64_t{1} << rng.Below(6);
    while (first > 1 && c.M * 2 * first > kMost) first /= 2;
    c.N = 2 * first;
  }
  const DType dtype = rng.Chance(1, 2) ? DType::kU8 : DType::kS8;
  c.out_dtype = dtype;
  if (rng.Chance(1, 5)) c.out_dtype = dtype == DType::kU8 ? DType::kS8 : DType::kU8;
  c.x = Tensor(dtype, {c.M, first});
  FillCodes(rng, theme, c.x);
  c.w = Tensor(dtype, {c.M, c.N - first});
  FillCodes(rng, theme, c.w);
  DrawZeroPoints(rng, dtype, theme, c.x_q.zero_point);
  if (rng.Chance(1, 4)) {
    c.w_q.zero_point = c.x_q.zero_point;
  } else {
    DrawZeroPoints(rng, dtype, theme, c.w_q.zero_point);
  }
  DrawConcatScales(rng, theme, c);
  DrawZeroPoints(rng, c.out_dtype, theme, c.out_q.zero_point);
  DrawClamp(rng, theme, c);
  return c;
}

Case DrawTable(Rng& rng, Theme theme, Op op) {
  Case c;
  c.op = op;
  DrawShape(rng, theme, 400, c);
  DrawFunction(rng, c);
  const DType dtype = rng.Chance(1, 2) ? DType::kU8 : DType::kS8;
  c.out_dtype = dtype;
  if (rng.Chance(1, 5)) c.out_dtype = dtype == DType::kU8 ? DType::kS8 : DType::kU8;
  c.x = Tensor(dtype, {c.M, c.N});
  if (theme == Theme::kConstantRows) {
    FillConstantRows(rng, c);
  } else {
    FillCodes(rng, theme, c.x);
  }
  DrawZeroPoints(rng, dtype, theme, c.x_q.zero_point);
  DrawTableScales(rng, theme, c);
  DrawZeroPoints(rng, c.out_dtype, theme, c.out_q.zero_point);
  const bool plain =
      theme == Theme::kUniform || theme == Theme::kBoundaryBytes || theme == Theme::kAllExtreme;
  if (theme == Theme::kNearTies || (plain && rng.Chance(1, 2))) PutValueBesideTie(rng, c);
  // f(0) is the tie of the real functions.
  const CodeRange range = RangeOf(dtype);
  const int32_t zero = c.x_q.zero_point[0];
  if (theme == Theme::kTies && !c.x.empty() && zero >= range.min && zero <= range.max)
    c.x.SetInt(0, zero);
  DrawClamp(rng, theme, c);
  c.relu = false;
  return c;
}

Case DrawSoftmax(Rng& rng, Theme theme, Op op) {
  Case c;
  c.op = op;
  DrawShape(rng, theme, 400, c);
  const DType dtype = rng.Chance(1, 2) ? DType::kU8 : DType::kS8;
  c.out_dtype = dtype;
  const CodeRange range = RangeOf(dtype);
  if (theme == Theme::kLongK || theme == Theme::kTies) {
    c.M = rng.Between(1, 2);
    c.N = rng.Between(512, 1100);  // numerators share 2^32 from 513 on
  }
  if (theme == Theme::kFarValue) {
    c.M = rng.Between(1, 2);
    c.N = std::min<int64_t>(DrawFarLength(rng), 4096);
  }
  c.x = Tensor(dtype, {c.M, c.N});
  FillCodes(rng, theme, c.x);
  // Narrow rows, in which many codes have a share; or rows of one code; or of 512 largest ones,
  // half a share each, and others that have none.
  const bool narrow = theme != Theme::kAllExtreme && rng.Chance(1, 2);
  const int64_t width = rng.Between(1, 40);
  const auto base = static_cast<int32_t>(rng.Between(range.min, range.max - width));
  for (int64_t i = 0; narrow && i < c.x.size(); ++i) {
    c.x.SetInt(i, base + static_cast<int32_t>((c.x.IntAt(i) - range.min) % width));
  }
  if (theme == Theme::kConstantRows) FillConstantRows(rng, c);
  c.x_q.scale = {DrawScale(rng, -8, 0)};
  if (theme == Theme::kTies) {
    c.x_q.scale = {1.0f};
    const auto top = static_cast<int32_t>(rng.Between(range.min + 40, range.max));
    for (int64_t i = 0; i < c.x.size(); ++i) {
      c.x.SetInt(i, i % c.N < 512 ? top : std::min(c.x.IntAt(i), top - 40));
    }
  }
  if (theme == Theme::kFarValue) {  // one code above all others
    const auto top = static_cast<int32_t>(rng.Between(range.min + 40, range.max));
    const auto below = static_cast<int32_t>(rng.Between(1, 40));
    for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, std::min(c.x.IntAt(i), top - below));
    for (int64_t m = 0; m < c.M; ++m) {
      const int64_t place = FarPlace(rng, c.N);
      c.x.SetInt(m * c.N + place, top);
    }
  }
  if (theme == Theme::kScaleExtremes) c.x_q.scale = {ExtremeScale(rng)};
  DrawZeroPoints(rng, dtype, theme, c.x_q.zero_point);
  c.out_q = {{0x1p-8f}, {range.min}};
  DrawClamp(rng, theme, c);
  c.relu = false;
  return c;
}

}  // namespace qualm::gen::internal
