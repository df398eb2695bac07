// SPDX-License-Identifier: Apache-2.0
#include "properties/gen/sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "oracles/exact/exact.h"
#include "properties/gen/float_ties.h"
#include "properties/gen/layer.h"

namespace qualm::gen::internal {
namespace {

// From here on products of these terms with codes as zero points leave float32.
constexpr int64_t kManyTerms = 515;

void DrawInputZeroPoints(Rng& rng, Theme theme, Case& c) {
  // Beside activations of 16 bits libraries have no zero points.
  if (IsWideCode(c.x.dtype()) && rng.Chance(3, 5)) {
    c.x_q.zero_point = {c.x.dtype() == DType::kU16 ? 32768 : 0};
    c.w_q.zero_point.assign(c.per_channel ? static_cast<size_t>(c.N) : 1, 0);
    return;
  }
  DrawZeroPoints(rng, c.x.dtype(), theme, c.x_q.zero_point);
  if (IsConv(c.op) && rng.Chance(1, 20)) {
    // Just outside the codes: no padded image then stands for the padding.
    const CodeRange range = RangeOf(c.x.dtype());
    const auto off = static_cast<int32_t>(rng.Between(1, 9));
    c.x_q.zero_point = {rng.Chance(1, 2) ? range.min - off : range.max + off};
  }
  const size_t entries = c.per_channel ? static_cast<size_t>(c.N) : 1;
  c.w_q.zero_point.assign(entries, 0);
  const bool symmetric = rng.Chance(theme == Theme::kZeroPoints ? 1 : 2, 4);
  if (symmetric) return;
  DrawZeroPoints(rng, c.w.dtype(), theme, c.w_q.zero_point);
}

// The sums of a case, in units of the scales. As double: exact below 2^53, and only used to place
// things.
struct Sums {
  double largest = 0;       // in magnitude
  std::vector<double> row;  // of one row: the first of linear, the middle pixel of a convolution
};

Sums SumsOf(const Case& c) {
  Sums sums;
  const std::vector<__int128> corrected = exact::CorrectedSums(c);
  // Rounding to double keeps the order, so the least and the largest sum give the largest
  // magnitude.
  __int128 least = 0, most = 0;
  for (const __int128 sum : corrected) {
    least = std::min(least, sum);
    most = std::max(most, sum);
  }
  sums.largest = std::max(static_cast<double>(most), -static_cast<double>(least));
  const int64_t row = IsConv(c.op) ? c.M / 2 : 0;
  for (int64_t n = 0; n < c.N; ++n) {
    const auto at = static_cast<size_t>(row * c.N + n);
    sums.row.push_back(at < corrected.size() ? static_cast<double>(corrected[at]) : 0);
  }
  return sums;
}

// One term of the zero-point correction at an end of int32, or next to it: zx * sum w, zw * sum x
// or K * zx * zw. The bias brings the sum of all terms back.
void PutTermAtEdge(Rng& rng, Case& c) {
  if (c.x.empty() || c.w.empty()) return;
  const auto zero_point = [&](int64_t factor) {
    const double end = rng.Chance(1, 2) ? 0x1p31 : -0x1p31;
    const auto off = static_cast<double>(rng.Between(-1, 1));
    return ToInt32(std::floor(end / static_cast<double>(factor)) + (rng.Chance(1, 3) ? off : 0));
  };
  // The first K codes are 0 but for one, a power of two.
  const auto sum_of_power = [&](Tensor& codes) {
    const auto power = static_cast<int32_t>(1) << rng.Between(0, 6);
    for (int64_t k = 0; k < std::min(c.K, codes.size()); ++k) codes.SetInt(k, k == 0 ? power : 0);
    return power;
  };
  switch (rng.Below(3)) {
    case 0: c.x_q.zero_point = {zero_point(sum_of_power(c.w))}; break;
    case 1: std::ranges::fill(c.w_q.zero_point, zero_point(sum_of_power(c.x))); break;
    default:
      c.x_q.zero_point = {static_cast<int32_t>(1) << rng.Between(0, 30)};
      std::ranges::fill(c.w_q.zero_point, zero_point(c.K * c.x_q.zero_point[0]));
      break;
  }
}

// Where x holds term k of output channel n: in row m of linear, or in the one window of an image
// that is as large as the kernel.
int64_t PlaceInX(const Case& c, int64_t m, int64_t n, int64_t k) {
  if (c.op == Op::kDepthwise) return k * c.window.in_c + n / (c.N / c.window.groups);
  return c.op == Op::kLinear ? m * c.K + k : k;
}

// One of the two operands, for whose zero point all its codes stand, so that all its terms are 0.
class QuietOperand {
 public:
  QuietOperand(Case& c, bool x, int32_t zero) : c_(c), x_(x), zero_(zero) {
    std::ranges::fill((x ? c.x_q : c.w_q).zero_point, zero);
    std::ranges::fill((x ? c.x : c.w).bytes(), static_cast<uint8_t>(zero));
  }
  // Makes term k of all outputs off times the other operand.
  void Set(int64_t k, int32_t off) {
    const int64_t rows = c_.op == Op::kLinear ? c_.M : 1;
    for (int64_t n = 0; n < c_.N; ++n) {
      if (!x_) c_.w.SetInt(n * c_.K + k, zero_ + off);
      for (int64_t m = 0; x_ && m < rows; ++m) c_.x.SetInt(PlaceInX(c_, m, n, k), zero_ + off);
    }
  }

 private:
  Case& c_;
  bool x_;
  int32_t zero_;
};

// One term decides: all others are 0.
void PutFarValue(Rng& rng, Case& c) {
  if (c.K == 0 || c.x.empty() || c.w.empty()) return;
  const bool x = rng.Chance(1, 2);
  const CodeRange range = RangeOf((x ? c.x : c.w).dtype());
  const int32_t zero = std::clamp((x ? c.x_q : c.w_q).zero_point[0], range.min, range.max);
  QuietOperand quiet(c, x, zero);
  const int64_t k = FarPlace(rng, c.K);
  const auto most = static_cast<int32_t>(rng.Between(100, 127));
  const bool up = int64_t{zero} + most <= range.max;
  quiet.Set(k, up ? most : std::max(-most, range.min - zero));
  // Where the other operand would make it 0 too, it does not.
  Tensor& loud = x ? c.w : c.x;
  const QParams& q = x ? c.w_q : c.x_q;
  const CodeRange of_loud = RangeOf(loud.dtype());
  for (int64_t n = 0; n < c.N; ++n) {
    const int64_t at = x ? n * c.K + k : PlaceInX(c, 0, n, k);
    const int64_t off = int64_t{loud.IntAt(at)} - q.zero_point_at(x ? n : 0);
    if (off > -16 && off < 16) loud.SetInt(at, of_loud.max - loud.IntAt(at) + of_loud.min);
  }
}

// An odd code, two or more away from the ends of the type, and far from 0.
int32_t FarOddCode(Rng& rng, DType dtype) {
  const CodeRange range = RangeOf(dtype);
  const auto in = static_cast<int32_t>(2 + 2 * rng.Between(0, 12));
  return range.min < 0 && rng.Chance(1, 2) ? range.min + 1 + in : range.max - in;
}

// The sum of the codes' products, and each of the three terms with zero points that correct it, is
// beyond 2^24, or 2^31; what they add up to is small. So a last bit that any of them loses decides
// a code: pairs of terms of one operand, +d and -d beside its zero point, and all else is on it.
void PutWideTerms(Rng& rng, Case& c) {
  if (c.K < 2 || c.x.empty() || c.w.empty()) return;
  const bool x = rng.Chance(1, 2);
  QuietOperand quiet(c, x, FarOddCode(rng, (x ? c.x : c.w).dtype()));
  Tensor& loud = x ? c.w : c.x;
  const CodeRange range = RangeOf(loud.dtype());
  const bool low = range.min < 0 && rng.Chance(1, 2);
  FillEach(loud, [&] {
    const auto off = static_cast<int32_t>(rng.Below(64));
    return low ? range.min + off : range.max - off;
  });
  std::vector<int32_t>& zero_points = (x ? c.w_q : c.x_q).zero_point;
  int32_t zero = rng.Chance(1, 3) ? 0 : FarOddCode(rng, loud.dtype());
  if (c.K < kManyTerms || rng.Chance(1, 6)) {
    zero = int32_t{1} << rng.Between(12, 19);
    zero += static_cast<int32_t>(2 * rng.Between(0, 1023) + 1);
    if (rng.Chance(1, 2)) zero = -zero;
  }
  std::ranges::fill(zero_points, zero);
  const int64_t pairs = rng.Between(1, 3);
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t k = rng.Between(0, c.K / 2 - 1);
    const auto off = static_cast<int32_t>(rng.Between(1, 2));
    quiet.Set(k, off);
    quiet.Set(c.K - 1 - k, -off);
  }
}

// Multipliers at their edges, from scales that are short numbers.
std::vector<EdgeMultiplier> DrawEdgeScales(Rng& rng, Case& c) {
  std::vector<EdgeMultiplier> edges(c.per_channel ? static_cast<size_t>(c.N) : 1);
  c.x_q.scale = {PowerOfTwo(rng)};
  c.out_q.scale = {PowerOfTwo(rng)};
  const double unit = double{c.out_q.scale[0]} / c.x_q.scale[0];
  c.w_q.scale.clear();
  for (EdgeMultiplier& edge : edges) {
    edge = DrawEdgeMultiplier(rng);
    c.w_q.scale.push_back(ToScale(edge.value * unit));
  }
  return edges;
}

void DrawEdgeBias(Rng& rng, const Sums& sums, const std::vector<EdgeMultiplier>& edges, Case& c) {
  c.bias_i32.emplace(static_cast<size_t>(c.N));
  for (size_t n = 0; n < c.bias_i32->size(); ++n) {
    const double wanted = EdgeAccumulator(rng, edges[edges.size() == 1 ? 0 : n]);
    (*c.bias_i32)[n] = ToInt32(wanted - sums.row[n]);
  }
}

void DrawScales(Rng& rng, Theme theme, double largest, Case& c) {
  const size_t entries = c.per_channel ? static_cast<size_t>(c.N) : 1;
  c.w_q.scale.assign(entries, 1.0f);
  if (theme == Theme::kScaleExtremes) {
    c.x_q.scale = {ExtremeScale(rng)};
    for (float& scale : c.w_q.scale) scale = ExtremeScale(rng);
    c.out_q.scale = {ExtremeScale(rng)};
    if (rng.Chance(1, 2)) {  // extremes that cancel, or nearly
      c.out_q.scale = {ToScale(static_cast<double>(c.x_q.scale[0]) * 64.0)};
      for (float& scale : c.w_q.scale) scale = DrawScale(rng, -4, 2);
    }
    return;
  }
  if (theme == Theme::kTies) {
    c.x_q.scale = {ToScale(std::ldexp(1.0, static_cast<int>(rng.Between(-9, 0))))};
    for (float& scale : c.w_q.scale) {
      const auto odd = static_cast<double>(2 * rng.Between(0, 2) + 1);
      scale = ToScale(std::ldexp(odd, static_cast<int>(rng.Between(-10, -4))));
    }
  } else {
    c.x_q.scale = {DrawScale(rng, -10, -3)};
    for (float& scale : c.w_q.scale) scale = DrawScale(rng, -12, -3);
    if (c.per_channel && c.N > 1 && rng.Chance(1, 6)) {
      c.w_q.scale[rng.Below(entries)] =
          ToScale(std::ldexp(1.0, static_cast<int>(rng.Between(-60, -20))));
    }
  }
  // Output scale: calibrated to the sums, too small (heavy clamping) or too large (everything near
  // the zero point); now and then shared with the input.
  double w_largest = 0;
  for (float scale : c.w_q.scale) w_largest = std::max(w_largest, double{scale});
  double target = std::max(1.0, largest) * c.x_q.scale[0] * std::max(w_largest, 0x1p-60) /
                  (IsWideCode(c.out_dtype) ? 32767.0 : 127.0);
  switch (rng.Below(3)) {
    case 0: target *= 0.5 + rng.Unit(); break;
    case 1: target = std::ldexp(target, -static_cast<int>(rng.Between(1, 12))); break;
    default: target = std::ldexp(target, static_cast<int>(rng.Between(1, 12))); break;
  }
  c.out_q.scale = {ToScale(target)};
  if (theme == Theme::kTies) {
    int exponent = 0;
    std::frexp(target, &exponent);
    // Or over an odd divisor, which the odd factors of the weights' scales (1, 3, 5) divide.
    const int64_t odd = DrawDivisor(rng);
    const auto divisor = static_cast<double>(odd == 1 ? 1 : 15 * odd);
    exponent = std::clamp(exponent, -60, 60) - std::ilogb(divisor);
    c.out_q.scale = {ToScale(std::ldexp(divisor, exponent))};
  } else if (rng.Chance(1, 12)) {
    c.out_q.scale = c.x_q.scale;
    if (rng.Chance(1, 2)) {
      for (float& scale : c.w_q.scale) scale = 1.0f;
    }
  }
}

// Where output (0, n) shall lie, in codes from real 0, halves included.
double TargetCode(Rng& rng, Theme theme, const Case& c) {
  const double z = c.out_q.zero_point[0];
  if (theme == Theme::kClampEdges) {
    const double edge = rng.Chance(1, 2) ? c.out_min : c.out_max;
    return edge - z + static_cast<double>(rng.Between(-4, 4)) * 0.5;
  }
  const CodeRange range = RangeOf(c.out_dtype);
  return static_cast<double>(rng.Between(range.min - 1, range.max)) - z + 0.5;
}

void DrawBias(Rng& rng, Theme theme, const Sums& sums, Case& c) {
  const auto channels = static_cast<size_t>(c.N);
  const bool solve =
      c.M > 0 && c.K > 0 &&
      (((theme == Theme::kTies || theme == Theme::kNearTies || theme == Theme::kClampEdges) &&
        rng.Chance(4, 5)) ||
       (theme == Theme::kLongK && rng.Chance(1, 2)));
  if (solve && c.out_dtype == DType::kS32) {
    // Sums at the corners of float32 and int32.
    constexpr std::array<double, 6> kCorners{0x1p24, -0x1p24, 0x1p31, -0x1p31, 0x1p30, 0x1p31 - 1};
    c.bias_i32.emplace(channels);
    for (size_t n = 0; n < channels; ++n) {
      const double near = rng.Pick(kCorners);
      const double corner = near + static_cast<double>(rng.Between(-2, 2));
      (*c.bias_i32)[n] = ToInt32(corner - sums.row[n]);
    }
    return;
  }
  if (solve && IsCode(c.out_dtype)) {
    const bool as_float = rng.Chance(1, 4);
    if (as_float) {
      c.bias.emplace(channels);
    } else {
      c.bias_i32.emplace(channels);
    }
    for (size_t n = 0; n < channels; ++n) {
      const auto channel = static_cast<int64_t>(n);
      const double unit = static_cast<double>(c.x_q.scale[0]) * c.w_q.scale_at(channel);
      const double target = TargetCode(rng, theme, c);
      const auto step = static_cast<double>(theme == Theme::kNearTies ? rng.Between(-1, 1) : 0);
      if (as_float) {
        const double bias = target * c.out_q.scale[0] - sums.row[n] * unit;
        (*c.bias)[n] = static_cast<float>(std::clamp(bias, -1e30, 1e30));
      } else {
        const double acc = std::floor(target * c.out_q.scale[0] / unit + 0.5);
        (*c.bias_i32)[n] = ToInt32(acc + step - sums.row[n]);
      }
    }
    return;
  }
  const uint64_t style = rng.Below(10);
  if (style < 4) return;
  if (style < 7 && c.out_dtype != DType::kS32) {
    c.bias.emplace(channels);
    const bool special = theme == Theme::kSpecialFloats;
    for (float& bias : *c.bias) {
      const double codes = 256.0 * (rng.Unit() - 0.5);
      bias = static_cast<float>(std::clamp(codes * c.out_q.scale[0], -1e38, 1e38));
      if (special || rng.Chance(1, 40)) {
        const float value = SpecialFloat(rng);
        bias = std::isfinite(value) ? value : -0.0f;
      }
    }
    return;
  }
  c.bias_i32.emplace(channels);
  for (int32_t& bias : *c.bias_i32) {
    const auto bits = static_cast<int>(rng.Between(1, 20));
    bias = rng.Chance(1, 25)
               ? CornerAccumulator(rng)
               : static_cast<int32_t>(rng.Between(-(int64_t{1} << bits), int64_t{1} << bits));
  }
}

// The sum becomes one whose product with the scales lies beside a tie.
void PutProductBesideFloatTie(Rng& rng, const Sums& sums, size_t n, Case& c) {
  float& w_scale = c.w_q.scale[c.per_channel ? n : 0];
  for (int attempt = 0; attempt < 8; ++attempt) {
    c.x_q.scale = {DrawScale(rng, -10, -3)};
    w_scale = DrawScale(rng, -12, -3);
    const auto sum = SumBesideFloatTie(rng, c.x_q.scale[0], w_scale);
    if (!sum) continue;
    c.bias.reset();
    if (!c.bias_i32) c.bias_i32.emplace(static_cast<size_t>(c.N));
    (*c.bias_i32)[n] = ToInt32((rng.Chance(1, 2) ? *sum : -*sum) - sums.row[n]);
    return;
  }
}

// The scales make the sum a power of two, but for less than 2^-29 of it, and that is half a unit in
// the last place of the bias. One of 16 pairs of scales comes so near.
void PutBiasBesideFloatTie(Rng& rng, const Sums& sums, size_t n, Case& c) {
  const double sum = std::abs(sums.row[n]);
  if (sum == 0 || sum >= 0x1p31) return;
  for (int attempt = 0; attempt < 64; ++attempt) {
    const auto x_scale = static_cast<float>(1 + rng.Unit());
    const auto w_scale = static_cast<float>(1 / (sum * x_scale));
    const double off = std::fma(sum, double{x_scale} * w_scale, -1.0);  // of an exact product
    if (off == 0 || std::abs(off) >= 0x1p-29) continue;
    const auto exponent = static_cast<int>(rng.Between(-20, 20));
    c.x_q.scale = {std::ldexp(x_scale, exponent)};
    c.w_q.scale[c.per_channel ? n : 0] = w_scale;
    c.bias_i32.reset();
    if (!c.bias) c.bias.emplace(static_cast<size_t>(c.N));
    const double bias = std::ldexp(1 + rng.Unit(), exponent + 24);
    (*c.bias)[n] = static_cast<float>(rng.Chance(1, 2) ? bias : -bias);
    return;
  }
}

// Brings one channel of an f32 output so near to a tie of float32 that double cannot tell on which
// side it lies.
void PutBesideFloatTie(Rng& rng, const Sums& sums, Case& c) {
  if (c.N == 0) return;
  const auto n = static_cast<size_t>(rng.Between(0, c.N - 1));
  if (rng.Chance(1, 2)) return PutProductBesideFloatTie(rng, sums, n, c);
  PutBiasBesideFloatTie(rng, sums, n, c);
}

}  // namespace

Fill PickFill(Rng& rng, Theme theme) {
  switch (theme) {
    case Theme::kUniform: return Fill::kUniform;
    case Theme::kBoundaryBytes: return Fill::kBoundary;
    case Theme::kAllExtreme: return Fill::kExtreme;
    case Theme::kSignAligned: return Fill::kSignAligned;
    case Theme::kConstantRows: return Fill::kConstant;
    case Theme::kNearPairThreshold: return Fill::kThreshold;
    case Theme::kLongK: return rng.Chance(3, 5) ? Fill::kConstant : Fill::kBoundary;
    default: break;
  }
  constexpr std::array<Fill, 10> kMix{
      Fill::kUniform,  Fill::kUniform,  Fill::kUniform, Fill::kUniform,     Fill::kBoundary,
      Fill::kBoundary, Fill::kBoundary, Fill::kExtreme, Fill::kSignAligned, Fill::kConstant};
  return rng.Pick(kMix);
}

void FillElements(Rng& rng, Fill fill, Case& c) {
  const DType xd = c.x.dtype();
  const DType wd = c.w.dtype();
  switch (fill) {
    case Fill::kUniform: {
      // Now and then values around zero only: small sums, and weights of magnitude 1.
      const bool small = rng.Chance(1, 6);
      FillUniform(rng, xd, c.x.bytes());
      if (!small) {
        FillUniform(rng, wd, c.w.bytes());
        break;
      }
      FillEach(c.w, [&] {
        return static_cast<int32_t>(wd == DType::kU8 ? rng.Between(127, 129) : rng.Between(-1, 1));
      });
      break;
    }
    case Fill::kBoundary: {
      std::array<int32_t, 4> alphabet{};
      for (int32_t& code : alphabet) code = UniformCode(rng, xd);
      const bool few = rng.Chance(1, 3);
      if (few) {
        FillPicks(rng, alphabet, c.x.bytes());
      } else {
        FillBoundary(rng, xd, c.x.bytes());
      }
      FillBoundary(rng, wd, c.w.bytes());
      break;
    }
    case Fill::kExtreme: {
      // A whole tensor in one corner, or each element in either.
      const bool one_x = rng.Chance(1, 2);
      const bool one_w = rng.Chance(1, 2);
      const int32_t x0 = ExtremeCode(rng, xd);
      const int32_t w0 = ExtremeCode(rng, wd);
      const auto fill_one = [&](bool one, int32_t code, Tensor& codes) {
        if (!one) return FillExtreme(rng, codes.dtype(), codes.bytes());
        std::ranges::fill(codes.bytes(), static_cast<uint8_t>(code));
      };
      fill_one(one_x, x0, c.x);
      fill_one(one_w, w0, c.w);
      break;
    }
    default: QUALM_CHECK(false);  // the others look at shapes
  }
}

void FillMagnitudes(Rng& rng, Case& c) {
  const int32_t shift = c.x.dtype() == DType::kS8 ? 128 : 0;
  const CodeRange w_range = RangeOf(c.w.dtype());
  constexpr std::array<int32_t, 5> kMagnitudes{63, 64, 65, 127, 128};
  const int32_t magnitude = rng.Pick(kMagnitudes);
  FillEach(c.x, [&] { return rng.Chance(3, 4) ? 255 - shift : BoundaryCode(rng, c.x.dtype()); });
  const bool one_sign = rng.Chance(1, 2);
  const bool negative = rng.Chance(1, 2);
  // Pairs next to each other whose sum is the last that fits 16 bits times 255, or the first that
  // does not: equal magnitudes never make the odd one.
  if (rng.Chance(1, 3) && c.K > 0) {
    const auto sum = static_cast<int32_t>(rng.Between(128, 129));
    const auto first = static_cast<int32_t>(rng.Between(sum - 127, 127));
    const int32_t zero = c.w.dtype() == DType::kU8 ? 128 : 0;
    int64_t i = 0;
    FillEach(c.w, [&] {
      const int32_t weight = i++ % c.K % 2 == 0 ? first : sum - first;
      return zero + (negative ? -weight : weight);
    });
    return;
  }
  FillEach(c.w, [&] {
    const bool minus = one_sign ? negative : rng.Chance(1, 2);
    return std::clamp(minus ? -magnitude : magnitude, w_range.min, w_range.max);
  });
}

void ZeroAChannel(Rng& rng, Case& c) {
  // One channel of zeros: its scale and bias are all that is left of it.
  if (c.N > 1 && c.w.dtype() == DType::kS8 && rng.Chance(1, 12)) {
    const int64_t n = rng.Between(0, c.N - 1);
    for (int64_t k = 0; k < c.K; ++k) c.w.SetInt(n * c.K + k, 0);
  }
}

int64_t DrawWideDepth(Rng& rng) {
  const uint64_t style = rng.Below(100);
  if (style < 60) return rng.Between(kManyTerms, 2100);
  return style < 95 ? rng.Between(2, 130) : rng.Between(33026, 70000);
}

void NarrowWeights(const Rng& rng, Theme theme, Case& c) {
  // These place codes of 8 bits afterwards.
  if (theme == Theme::kParameterEdges || theme == Theme::kFarValue || theme == Theme::kWideTerms)
    return;
  Rng own(MixSeed(Rng(rng).Next(), 4000));
  if (!own.Chance(1, 6)) return;
  const bool is_signed = c.w.dtype() == DType::kS8;
  const bool two = own.Chance(1, 4);
  Tensor narrow(is_signed ? (two ? DType::kS2 : DType::kS4) : (two ? DType::kU2 : DType::kU4),
                c.w.shape());
  // The highest bits keep signs, ends and equal codes.
  for (int64_t i = 0; i < narrow.size(); ++i)
    narrow.SetInt(i, c.w.IntAt(i) >> (8 - BitsOf(narrow.dtype())));
  c.w = std::move(narrow);
}

void DrawTypes(Rng& rng, Case& c) {
  // Mostly the combination that every library has.
  c.x = Tensor(rng.Chance(3, 4) ? DType::kU8 : DType::kS8, {0, 0});
  c.w = Tensor(rng.Chance(6, 7) ? DType::kS8 : DType::kU8, {0, 0});
  c.per_channel = rng.Chance(2, 5);
  const uint64_t out = rng.Below(100);
  c.out_dtype = out < 48   ? DType::kU8
                : out < 72 ? DType::kS8
                : out < 88 ? DType::kS32
                           : DType::kF32;
}

void DrawAroundSums(Rng& rng, Theme theme, Case& c) {
  const bool at_edges = theme == Theme::kParameterEdges;
  if (theme == Theme::kLayer || theme == Theme::kMiddling) theme = ThemeOfLayer(rng);
  DrawInputZeroPoints(rng, theme, c);
  if (at_edges && rng.Chance(1, 2)) PutTermAtEdge(rng, c);
  if (theme == Theme::kFarValue) PutFarValue(rng, c);
  if (theme == Theme::kWideTerms) PutWideTerms(rng, c);
  const Sums sums = SumsOf(c);
  std::vector<EdgeMultiplier> edges;
  if (at_edges) {
    edges = DrawEdgeScales(rng, c);
  } else {
    DrawScales(rng, theme, sums.largest, c);
  }
  if (IsCode(c.out_dtype)) {
    const bool symmetric = c.out_dtype == DType::kS16 && rng.Chance(3, 5);
    if (!symmetric) DrawZeroPoints(rng, c.out_dtype, theme, c.out_q.zero_point);
  }
  if (c.out_dtype == DType::kF32) {
    c.out_min = INT32_MIN;
    c.out_max = INT32_MAX;
    c.relu = rng.Chance(1, 4);
  } else {
    DrawClamp(rng, theme, c);
  }
  if (at_edges) {
    DrawEdgeBias(rng, sums, edges, c);
  } else {
    DrawBias(rng, theme, sums, c);
  }
  if (c.out_dtype == DType::kF32 && (theme == Theme::kTies || theme == Theme::kNearTies)) {
    PutBesideFloatTie(rng, sums, c);
  }
  if (!IsCode(c.out_dtype)) c.out_q = QParams{};  // these outputs have none
}

}  // namespace qualm::gen::internal
