// SPDX-License-Identifier: Apache-2.0
// Cases of operations that take codes of one or two inputs, element by element. What breaks them is
// scales that know of each other.
#include <algorithm>
#include <cmath>

#include "properties/gen/values.h"

namespace qualm::gen::internal {

void FillCodes(Rng& rng, Theme theme, Tensor& codes) {
  const DType dtype = codes.dtype();
  uint64_t style = rng.Below(4);
  if (theme == Theme::kUniform) style = 0;
  if (theme == Theme::kBoundaryBytes || theme == Theme::kZeroPoints) style = 1;
  if (theme == Theme::kAllExtreme) style = 2;
  int64_t next = rng.Between(0, 255) + RangeOf(dtype).min;
  switch (style) {
    case 0: return FillUniform(rng, dtype, codes.bytes());
    case 1: return FillBoundary(rng, dtype, codes.bytes());
    case 2: return FillExtreme(rng, dtype, codes.bytes());
    default: FillEach(codes, [&] { return next++; });  // every code: its byte, modulo 256
  }
}

double ShortScale(Rng& rng) {
  const auto mantissa = static_cast<double>(rng.Between(1, 511));
  return std::ldexp(mantissa, static_cast<int>(rng.Between(-16, -9)));
}

int64_t DrawDivisor(Rng& rng) {
  if (!rng.Chance(1, 2)) return 1;
  return rng.Chance(1, 3) ? 49 : 2 * rng.Between(1, 63) + 1;
}

void FillMultiples(Rng& rng, int32_t zero, int64_t divisor, Tensor& codes) {
  if (divisor == 1) return;
  const CodeRange range = RangeOf(codes.dtype());
  // Rounded towards zero, which lies between where the zero point is a code.
  const int64_t low = (int64_t{range.min} - zero) / divisor;
  const int64_t high = (int64_t{range.max} - zero) / divisor;
  for (int64_t i = 0; i < codes.size(); ++i) {
    const int64_t code = zero + divisor * rng.Between(low, high);
    if (code < range.min || code > range.max || rng.Chance(1, 2)) continue;
    codes.SetInt(i, static_cast<int32_t>(code));
  }
}

namespace {

struct Scales {
  double a = 1, b = 1, out = 1;
  int64_t divisor = 1;  // ties where the difference from a's zero point is a multiple
};

// Do codes meet as a product, so that the output's scale stands beside the product of both scales?
bool Multiplies(Op op) {
  switch (RowOf(op).combine) {
    case Combine::kProduct: return true;
    case Combine::kSum:
    case Combine::kDifference:
    case Combine::kNone: return false;  // rescale has one operand
  }
  return false;
}

// Ties at odd codes: a/out and b/out (their product, for mul) are odd multiples of powers of 1/2,
// or such over an odd divisor.
Scales TyingScales(Rng& rng, Op op) {
  Scales scales;
  scales.out = ShortScale(rng);
  const auto odd_a = static_cast<double>(2 * rng.Between(0, 3) + 1);
  const auto odd_b = static_cast<double>(2 * rng.Between(0, 3) + 1);
  const auto down = static_cast<int>(rng.Between(1, 5));
  scales.a = std::ldexp(scales.out * odd_a, -down);
  if (Multiplies(op)) {
    scales.b = std::ldexp(odd_b, -static_cast<int>(rng.Between(0, 4)));
  } else {
    scales.b = std::ldexp(scales.out * odd_b, -static_cast<int>(rng.Between(0, down)));
  }
  scales.divisor = DrawDivisor(rng);
  scales.out *= static_cast<double>(scales.divisor);
  return scales;
}

Scales RelatedScales(Rng& rng, Op op) {
  Scales scales;
  scales.a = DrawScale(rng, -10, -1);
  const double most = Multiplies(op) ? 127.0 : 2.0;  // times a: what the output has to hold
  switch (rng.Below(6)) {
    case 0:  // one for all, or so nearly that few codes tell
      scales.b = scales.out = scales.a;
      if (rng.Chance(1, 3)) scales.out *= 1.0 + static_cast<double>(rng.Between(-3, 3)) / 512.0;
      break;
    case 1:  // a multiplier of exactly 1
      scales.a = std::ldexp(1.0, static_cast<int>(rng.Between(-8, 0)));
      scales.b = DrawScale(rng, -10, -1);
      scales.out = Multiplies(op) ? scales.a * scales.b : scales.a;
      break;
    case 2:  // shared by the operands
      scales.b = scales.a;
      scales.out = scales.a * (0.25 + 2.0 * rng.Unit()) * (Multiplies(op) ? scales.b : 1.0);
      break;
    case 3:  // multipliers above 1
      scales.b = std::ldexp(scales.a, static_cast<int>(rng.Between(-3, 3)));
      scales.out = std::ldexp(Multiplies(op) ? scales.a * scales.b : scales.a,
                              -static_cast<int>(rng.Between(1, 10)));
      scales.out *= 1.0 + rng.Unit();
      break;
    case 4:  // one operand far below the other, also below float64, whose ties it breaks
      scales.b = std::ldexp(scales.a, -static_cast<int>(rng.Between(8, 70)));
      scales.out = Multiplies(op) ? scales.a * scales.b * most
                                  : std::ldexp(scales.a, static_cast<int>(rng.Between(0, 3)));
      break;
    default:  // calibrated
      scales.b = DrawScale(rng, -10, -1);
      scales.out = Multiplies(op) ? scales.a * scales.b * most : scales.a + scales.b;
      scales.out *= 0.5 + rng.Unit();
      break;
  }
  return scales;
}

void DrawScales(Rng& rng, Theme theme, Case& c) {
  Scales scales;
  if (theme == Theme::kScaleExtremes) {
    scales.a = ExtremeScale(rng);
    scales.b = ExtremeScale(rng);
    scales.out = rng.Chance(1, 2) ? ExtremeScale(rng) : scales.a;
  } else if (theme == Theme::kParameterEdges) {
    scales.out = PowerOfTwo(rng);
    scales.b = Multiplies(c.op) ? PowerOfTwo(rng) : scales.out * DrawEdgeMultiplier(rng).value;
    scales.a = scales.out * DrawEdgeMultiplier(rng).value / (Multiplies(c.op) ? scales.b : 1.0);
  } else if (theme == Theme::kTies || theme == Theme::kNearTies || rng.Chance(1, 12)) {
    scales = TyingScales(rng, c.op);
  } else {
    scales = RelatedScales(rng, c.op);
  }
  c.x_q.scale = {ToScale(scales.a)};
  if (HasW(c.op)) c.w_q.scale = {ToScale(scales.b)};
  c.out_q.scale = {ToScale(scales.out)};
  FillMultiples(rng, c.x_q.zero_point[0], scales.divisor, c.x);
  if (AddsOperands(c.op)) FillMultiples(rng, c.w_q.zero_point[0], scales.divisor, c.w);
  if (theme != Theme::kNearTies) return;
  float& nudged = c.x_q.scale[0];
  nudged = ToScale(std::nextafter(nudged, rng.Chance(1, 2) ? 0.0f : INFINITY));
}

// Zero points so large that sums leave every floating-point path, of opposite sign so that results
// are codes all the same: the means of two codes, and sums of powers of two of them, tie.
void CancelZeroPoints(Rng& rng, Case& c) {
  const int64_t bits = rng.Between(20, 30);
  const auto zero = static_cast<int32_t>(rng.Between(int64_t{1} << bits, (int64_t{2} << bits) - 1));
  c.x_q.zero_point = {zero};
  c.w_q.zero_point = {-zero};
  c.w_q.scale = c.x_q.scale;
  c.out_q.scale = {ToScale(
      std::ldexp(static_cast<double>(c.x_q.scale[0]), static_cast<int>(rng.Between(1, 3))))};
}

// The scales for which the result of one element lies next to a tie, half a last bit of float32
// away or less. What is computed in float32 then ends on either side.
void PutResultBesideTie(Rng& rng, Case& c) {
  if (c.x.empty()) return;
  const int64_t i = rng.Between(0, c.x.size() - 1);
  c.x_q.scale = {DrawScale(rng, -10, -1)};
  double real = c.x_q.scale[0] * (static_cast<double>(c.x.IntAt(i)) - c.x_q.zero_point[0]);
  if (Multiplies(c.op)) {
    c.w_q.scale = {DrawScale(rng, -10, -1)};
    real *= c.w_q.scale[0] * (static_cast<double>(c.w.IntAt(i)) - c.w_q.zero_point[0]);
  }
  const auto codes = static_cast<double>(rng.Between(0, 120)) + 0.5;
  if (real != 0) c.out_q.scale = {ToScale(std::abs(real) / codes)};
}

// Zero points so far from the codes that products of the differences leave int32.
void DrawFarZeroPoints(Rng& rng, Case& c) {
  const int64_t bits = rng.Between(11, 20);
  const int64_t others = rng.Between(31 - bits, 42 - bits);
  const auto far = [&](int64_t wide) {
    return static_cast<int32_t>((int64_t{1} << wide) + rng.Between(300, 400));
  };
  const int32_t sign = rng.Chance(1, 2) ? -1 : 1;
  c.x_q.zero_point = {sign * far(bits)};
  c.w_q.zero_point = {sign * far(others)};
}

}  // namespace

Case DrawOperands(Rng& rng, Theme theme, Op op) {
  Case c;
  c.op = op;
  DrawShape(rng, theme, 400, c);
  const DType dtype = rng.Chance(1, 2) ? DType::kU8 : DType::kS8;
  c.out_dtype = dtype;
  if (rng.Chance(1, 5)) c.out_dtype = dtype == DType::kU8 ? DType::kS8 : DType::kU8;
  c.x = Tensor(dtype, {c.M, c.N});
  FillCodes(rng, theme, c.x);
  DrawZeroPoints(rng, dtype, theme, c.x_q.zero_point);
  if (HasW(op)) {
    c.w = Tensor(dtype, {c.M, c.N});
    FillCodes(rng, theme, c.w);
    if (rng.Chance(1, 4)) {
      c.w_q.zero_point = c.x_q.zero_point;
    } else {
      DrawZeroPoints(rng, dtype, theme, c.w_q.zero_point);
    }
  }
  DrawScales(rng, theme, c);
  if (theme == Theme::kWideTerms && Multiplies(op)) {
    DrawFarZeroPoints(rng, c);
    PutResultBesideTie(rng, c);
  } else if (theme == Theme::kNearTies && !AddsOperands(op) && rng.Chance(1, 2)) {
    PutResultBesideTie(rng, c);
  }
  if (AddsOperands(op) && (theme == Theme::kTies || theme == Theme::kZeroPoints) &&
      rng.Chance(1, 6)) {
    CancelZeroPoints(rng, c);
  }
  DrawZeroPoints(rng, c.out_dtype, theme, c.out_q.zero_point);
  DrawClamp(rng, theme, c);
  return c;
}

}  // namespace qualm::gen::internal
