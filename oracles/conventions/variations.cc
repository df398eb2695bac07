// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/variations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "core/float_format.h"
#include "core/slice.h"
#include "core/status.h"
#include "oracles/conventions/steps.h"
#include "oracles/conventions/variation_facts.h"

namespace qualm {
namespace {

using variations::DividesExactly;
using variations::Facts;
using variations::FactsOf;
using variations::HasProductOfScales;
using variations::IsFloat;
using variations::IsPowerOfTwo;
using variations::ProductOfScales;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kHalfUlp = 0x1p-24;  // relative error of one float32 rounding
constexpr double kSmallest = 0x1p-149;
// A float64 value nearer than this to a tie is a tie: its error is smaller than this, and every
// other value lies farther away.
constexpr double kTie = 0x1p-36;

double ZeroPoint(const Facts& f) {
  if (!IsCode(f.c->out_dtype)) return 0;
  return std::abs(static_cast<double>(f.c->out_q.zero_point_at(f.channel)));
}

// There is no integer before the output: x are real numbers.
bool ScalesReals(const Facts& f) { return !RowOf(f.c->op).x_qparams; }

// The scale of an operand that has none is 1.
bool ScalesArePowersOfTwo(const Facts& f) {
  return IsPowerOfTwo(OutputScale(f)) && IsPowerOfTwo(f.c->x_q.scale_at(f.channel)) &&
         IsPowerOfTwo(f.c->w_q.scale_at(f.channel));
}

double FloatMultiplier(const Facts& f) {
  const Case& c = *f.c;
  if (c.out_dtype == DType::kS32 || !c.multiplier.empty() || ScalesReals(f)) return 0;
  if (HasSums(c) && f.sum != 0) {
    // oneDNN of 3.10 multiplies by the scale of x first.
    const double half = f.sum * static_cast<double>(c.x_q.scale_at(0));
    if (half > 0x1.fffffp127 || half < 0x1.00001p-126) return kInfinity;
  }
  if (AddsOperands(c.op)) {
    if (DividesExactly(c.x_q.scale[0], OutputScale(f)) &&
        DividesExactly(c.w_q.scale[0], OutputScale(f)))
      return 0;
  } else if (HasProductOfScales(c.op)) {
    // oneDNN scales the first of two operands by sx/sy.
    if (HasTwoOperands(c.op) && !std::isnormal(c.x_q.scale[0] / OutputScale(f))) return kInfinity;
    const long double product =
        static_cast<long double>(c.x_q.scale_at(0)) * c.w_q.scale_at(f.channel);
    if (IsFloat(product) && std::isnormal(static_cast<float>(product)) &&
        DividesExactly(product, OutputScale(f)))
      return 0;
    const float single = ProductOfScales(c, f.channel);
    if (!std::isnormal(single) || !std::isnormal(single / OutputScale(f))) return kInfinity;
  } else if (c.op == Op::kRescale || c.op == Op::kMaxPool) {
    if (DividesExactly(c.x_q.scale[0], OutputScale(f))) return 0;
  }
  return f.terms * 4 * kHalfUlp;
}

double Reciprocals(const Facts& f) {
  if (f.c->out_dtype == DType::kS32) return 0;
  const Case& c = *f.c;
  if (!c.multiplier.empty()) return 0;
  const float reciprocal = 1.0f / OutputScale(f);
  if (!std::isnormal(reciprocal)) return kInfinity;
  if (HasSums(c)) {
    const float x = 1.0f / c.x_q.scale_at(0), w = 1.0f / c.w_q.scale_at(f.channel);
    const float product = ProductOfScales(c, f.channel);
    for (const float number :
         {x, w, x * w, reciprocal / (x * w), product, product * reciprocal, 1.0f / product}) {
      if (!std::isnormal(number)) return kInfinity;
    }
  } else if (HasProductOfScales(c.op)) {
    if (!std::isnormal(ProductOfScales(c, f.channel)) ||
        !std::isnormal(ProductOfScales(c, f.channel) * reciprocal))
      return kInfinity;
  }
  if (f.is_linear && ScalesArePowersOfTwo(f) && !c.bias) return 0;
  return f.terms * 16 * kHalfUlp + kSmallest / static_cast<double>(OutputScale(f));
}

double ZeroPointBeforeRounding(const Facts& f) {
  if (f.c->out_dtype == DType::kS32) return 0;
  double terms = f.terms;
  if (AddsOperands(f.c->op)) {
    terms = f.products;  // code and zero point are scaled by themselves
    if (terms > 0x1p127) return kInfinity;
    for (const QParams* q : {&f.c->x_q, &f.c->w_q}) {
      if (!std::isfinite(q->scale[0] / OutputScale(f))) return kInfinity;
    }
  } else if (IsFloat(f.real) && IsFloat(f.real + ZeroPoint(f)) && IsFloat(f.real - ZeroPoint(f))) {
    return kTie;
  }
  return (terms + ZeroPoint(f)) * 16 * kHalfUlp + kTie;
}

// Half and the float32 next to it, 0.49999997, add up to 1.
double HalfAdded(const Facts& f) {
  return f.c->op == Op::kQuantize ? f.terms * 2 * kHalfUlp + kTie : 0;
}

double Tie(const Facts& f) { return f.c->out_dtype == DType::kF32 ? 0 : kTie; }

// The products of one output that a kernel adds in 16 bits.
struct Products16 {
  std::array<int64_t, 2> high{}, low{};  // the two largest, and the two smallest, or 0
  int64_t up = 0, down = 0;              // the sums of each sign

  void Add(int64_t product) {
    high[1] = std::max(high[1], std::min(high[0], product));
    high[0] = std::max(high[0], product);
    low[1] = std::min(low[1], std::max(low[0], product));
    low[0] = std::min(low[0], product);
    up += std::max<int64_t>(product, 0);
    down += std::min<int64_t>(product, 0);
  }
};

// Whether the products leave 16 bits. They are u8 * s8: of two s8 operands either one is shifted by
// 128.
template <class Leave>
double Unless16Bits(const Facts& f, const Leave& leave) {
  if (!HasSums(*f.c)) return 0;
  const int shift = f.c->x.dtype() == DType::kS8 ? 128 : 0;
  Products16 shifted_x, shifted_w;
  ForEachProduct(f, [&](int64_t x, int64_t w) {
    shifted_x.Add((x + shift) * w);
    shifted_w.Add(x * (w + shift));
  });
  return leave(shifted_x) || leave(shifted_w) ? kInfinity : 0;
}

// The order of the terms is not known here: any two may share a pair.
double Pairs(const Facts& f) {
  return Unless16Bits(f, [](const Products16& p) {
    return p.high[0] + p.high[1] > INT16_MAX || p.low[0] + p.low[1] < INT16_MIN;
  });
}

double SumsInto16(const Facts& f) {
  return Unless16Bits(f,
                      [](const Products16& p) { return p.up > INT16_MAX || p.down < INT16_MIN; });
}

double IntegerBias(const Facts& f) {
  if (f.c->bias_i32 && IsConv(f.c->op)) {
    const double bias =
        std::abs(static_cast<double>((*f.c->bias_i32)[static_cast<size_t>(f.channel)]));
    if (bias < 0x1p24) return 0;
    return bias >= 0x1.fffffp30 ? kInfinity : bias * kHalfUlp * f.multiplier;
  }
  if (!f.c->bias) return 0;
  const float product = ProductOfScales(*f.c, f.channel);
  if (!std::isnormal(product) || f.bias_units + f.sum > 0x1.ffp30) return kInfinity;
  return (0.5 + f.bias_units * 16 * kHalfUlp) * f.multiplier;
}

double FloatSums(const Facts& f) {
  if (f.c->out_dtype == DType::kS32) return 0;
  if (AddsOperands(f.c->op) || ScalesReals(f)) return 0;
  if (!f.c->bias && f.sum < 0x1p24 && IsFloat(f.real)) return 0;
  return (f.terms + (RowOf(f.c->op).combine == Combine::kProduct ? std::abs(f.real) : 0)) * 8 *
         kHalfUlp;
}

double RangeShift(const Facts& f) {
  const Case& c = *f.c;
  if (c.op == Op::kDequantize)
    return 4 * kHalfUlp *
           std::abs(double{c.x_q.scale_at(f.channel)} * c.x_q.zero_point_at(f.channel));
  if ((c.op != Op::kQuantize && c.op != Op::kLinear) || !IsCode(c.out_dtype)) return 0;
  const double ends = 255 + ZeroPoint(f);
  if (c.op == Op::kQuantize) return 16 * kHalfUlp * (std::min(f.terms, ends) + ends);
  double offset = 0;
  const double zero = c.x_q.zero_point_at(0);
  ForEachProduct(f, [&](int64_t, int64_t w) { offset += std::abs(zero * static_cast<double>(w)); });
  const double size = f.products + f.terms + offset * f.multiplier + ends;
  return 0.003 + 16 * kHalfUlp * size * size / 255;
}

double Overflow(const Facts& f) { return f.terms + ZeroPoint(f) > 0x1.fep30 ? kInfinity : 0; }

double HalvedWeights(const Facts& f) {
  if (!IsConv(f.c->op) || f.c->x.dtype() != DType::kS8) return 0;
  double sum = 0;
  const double zero = f.c->x_q.zero_point_at(0);
  ForEachProduct(f, [&](int64_t x, int64_t w) {
    if (w % 2 != 0) sum += std::abs(static_cast<double>(x) - zero);
  });
  return sum * f.multiplier;
}

// What fixed point multiplies by: the piece of a table that is linear has the ratio of scales, and
// the slope below 0.
long double FixedPointFactor(const Facts& f) {
  const Case& c = *f.c;
  if (c.op != Op::kTable || !f.is_linear) return f.exact_multiplier;
  const long double ratio = static_cast<long double>(c.x_q.scale[0]) / OutputScale(f);
  const bool slopes =
      c.function == Function::kLeakyRelu && c.x.IntAt(f.index) < c.x_q.zero_point[0];
  return slopes ? ratio * c.negative_slope : ratio;
}

// The shift of a multiplier q * 2^(shift-31), q in [2^30, 2^31).
int ShiftOf(long double multiplier) {
  int shift = 0;
  std::frexp(multiplier, &shift);
  return shift;
}
// As float32, or rounded to 31 bits, a multiplier next below a power of two becomes the power.
int MostShiftOf(long double multiplier) { return ShiftOf(multiplier * (1 + 0x1p-22L)); }

// Fixed point makes codes of integers; the shares of a softmax have an arithmetic of their own.
bool HasFixedPoint(const Facts& f) {
  return !ScalesReals(f) && f.c->out_dtype != DType::kF32 && f.c->op != Op::kSoftmax;
}

double FixedMultiplier(const Facts& f) {
  const Case& c = *f.c;
  if (AddsOperands(c.op) || !HasFixedPoint(f)) return 0;
  const long double factor = FixedPointFactor(f);
  const double sum = c.op == Op::kTable
                         ? std::abs(static_cast<double>(c.x.IntAt(f.index)) - c.x_q.zero_point[0])
                         : f.sum;
  if (std::ldexp(sum, std::max(MostShiftOf(factor), 0)) >= 0x1p31) return kInfinity;
  const int shift = ShiftOf(factor);
  if (shift < -31) return f.terms;  // below 2^-32 the multiplier is 0
  const long double mantissa = std::ldexp(factor, 31 - shift);
  return mantissa == std::floor(mantissa) ? 0 : f.terms * 0x1p-30;
}

double TwoRoundings(const Facts& f) {
  if (!HasFixedPoint(f)) return 0;
  if (AddsOperands(f.c->op)) return 0.25;
  const long double factor = FixedPointFactor(f);
  if (ShiftOf(factor) > -1) return kTie;
  return kTie + std::ldexp(1.0, std::min(MostShiftOf(factor), -1) - 1);
}

double FloatQuotient(const Facts& f) {
  if (f.c->op != Op::kQuantize && f.c->op != Op::kLinear && !HasTwoOperands(f.c->op)) return 0;
  if (f.c->op == Op::kQuantize && DividesExactly(f.c->x.FloatAt(f.index), OutputScale(f))) return 0;
  return f.terms * 2 * kHalfUlp + kSmallest;
}

double DequantizedInFloat(const Facts& f) {
  if (f.c->out_dtype == DType::kS32) return 0;
  const auto out = static_cast<double>(OutputScale(f));
  const double count = static_cast<double>(f.c->K) + 16;
  if (f.products * out * count >= static_cast<double>(std::numeric_limits<float>::max()))
    return kInfinity;
  if (ScalesReals(f)) return 0;
  if (f.largest_operand >= static_cast<double>(std::numeric_limits<float>::max())) return kInfinity;
  // The last addend covers quotients below 2^-126.
  return f.products * count * kHalfUlp + count * kSmallest / out + kSmallest;
}

double Truncated(const Facts& f) {
  const bool integer = f.real_is_exact && f.real == std::floor(f.real);
  return integer || !IsCode(f.c->out_dtype) ? 0 : 0.5 + kTie;
}

// The int16 product is wrong by less than 6 units of 2^shift codes, of which sx/sy has 64 or
// more: 1.5 in the factor on the scale of the output, 3.5 in the one from 0 to 1 (two of its
// roundings halved), 1 where their product is cut.
double HardSwish16(const Facts& f) {
  if (f.c->op != Op::kTable || f.c->function != Function::kHardSwish) return 0;
  if (f.terms + ZeroPoint(f) > 0x7f00) return kInfinity;
  const double ratio = static_cast<double>(f.c->x_q.scale[0]) / OutputScale(f);
  return ratio * 0.09375 + kTie;
}

double FixedPointAdd(const Facts& f) {
  if (!AddsOperands(f.c->op)) return 0;
  const Case& c = *f.c;
  const double most =
      std::max(static_cast<double>(c.x_q.scale[0]), static_cast<double>(c.w_q.scale[0])) /
      OutputScale(f);
  const double codes = std::abs(static_cast<double>(c.x.IntAt(f.index)) - c.x_q.zero_point[0]) +
                       std::abs(static_cast<double>(c.w.IntAt(f.index)) - c.w_q.zero_point[0]);
  const auto is_short = [&](const QParams& q) {
    const long double ratio = static_cast<long double>(q.scale[0]) / OutputScale(f);
    const long double bits = std::ldexp(ratio, 19 - std::ilogb(most));
    return bits == std::floor(bits) && DividesExactly(q.scale[0], OutputScale(f));
  };
  if (is_short(c.x_q) && is_short(c.w_q)) return 0;
  return (codes + 4) * most * 0x1p-20 + f.terms * 4 * kHalfUlp;
}

double Wraps(const Facts& f) {
  // The exponentials of a row, as integers, in a uint32.
  if (f.c->op == Op::kSoftmax) return f.sum + static_cast<double>(f.c->N) >= 0x1p32 ? kInfinity : 0;
  // XNNPACK keeps sums of s4 weights times 16.
  if (f.c->op == Op::kLinear && f.c->w.dtype() == DType::kS4 && f.sum + f.bias_units >= 0x1.ffp26)
    return kInfinity;
  // A sum may wrap while the zero points are still in it, and come back.
  return f.sum + f.bias_units >= 0x1.ffp30 ? kInfinity : 0;
}

double Specials(const Facts& f) {
  if (f.c->op == Op::kConcat || f.c->op == Op::kTable)
    return f.largest_operand < static_cast<double>(std::numeric_limits<float>::max()) ? 0
                                                                                      : kInfinity;
  if (f.c->op != Op::kQuantize) return 0;
  return f.terms + ZeroPoint(f) < 0x1.fep30 ? 0 : kInfinity;  // NaN is not below
}

double ZeroPointsAsBytes(const Facts& f) { return f.zero_points_are_codes ? 0 : kInfinity; }

double FloatResult(const Facts& f) {
  if (f.c->out_dtype != DType::kF32) return 0;
  if (!std::isnormal(ProductOfScales(*f.c, f.channel))) return kInfinity;
  if (f.terms > 0x1p126) return kInfinity;
  return f.terms * 8 * kHalfUlp + 4 * kSmallest;
}

double WeightZeroPointFromX(const Facts& f) {
  return f.c->w_q.zero_point_at(f.channel) != 0 ? kInfinity : 0;
}

double Always(const Facts&) { return kInfinity; }

double Flushed(const Facts& f) {
  const Case& c = *f.c;
  const auto denormal = [](double value) { return value != 0 && std::abs(value) < 0x1p-126; };
  for (const QParams* q : {&c.x_q, &c.w_q, &c.out_q}) {
    for (const float scale : q->scale) {
      if (denormal(static_cast<double>(scale))) return kInfinity;
    }
  }
  if (c.op == Op::kQuantize && denormal(static_cast<double>(c.x.FloatAt(f.index))))
    return kInfinity;
  return denormal(f.real) ? std::max(f.terms, 0x1p-126) : 0;
}

// The scale stays within 2^-22 of the exact one, and the zero point next to it; so a code, which is
// rounded with both, and by steps of its own, is no more than two away. Nothing bounds them where
// FBGEMM means something else by symmetric, where a small scale makes it widen the range
// (WidenToSmallestScale), and where the scale is not finite. The rule onnx widens nothing; but of
// zeros, for which it is 1, tract and TVM choose the scale 0.
double RangeFormulas(const Facts& f) {
  if (!RowOf(f.c->op).observer || IsMx(f.c->rule)) return 0;
  if (f.c->observer.symmetric) return kInfinity;
  const bool onnx = f.c->rule == QParamsRule::kOnnx;
  if (!std::isfinite(f.chosen_scale) || f.chosen_scale < (onnx ? 0x1p-126 : 0x1p-13) ||
      (onnx && f.chosen_scale == 1))
    return kInfinity;
  const int64_t columns = ChosenCount(*f.c);
  if (f.index >= 2 * columns) return 2;
  return f.index < columns ? f.terms * 0x1p-22 : 1;
}

// The bins of a histogram are others, and so may be the part of the range that is kept.
double OtherHistograms(const Facts& f) {
  const bool histogram = f.c->observer.kind == Observer::Kind::kHistogram;
  return RowOf(f.c->op).observer && histogram ? kInfinity : 0;
}

double PaddingOfPools(const Facts& f) {
  const Window& v = f.c->window;
  if (f.c->op == Op::kMaxPool) {
    const bool down = v.dilation_h > 1 && v.pad_top + v.pad_bottom > 0;
    const bool across = v.dilation_w > 1 && v.pad_left + v.pad_right > 0;
    return down || across ? kInfinity : 0;
  }
  if (f.c->op != Op::kAvgPool) return 0;
  // The sum is divided by the whole window instead of the part that counts.
  const auto whole = static_cast<double>(v.kernel_h * v.kernel_w);
  return f.terms * (1 - static_cast<double>(f.count) / whole);
}

double ShareOverflows(const Facts& f) {
  return f.c->op == Op::kSoftmax && f.c->N == 1 ? kInfinity : 0;
}

// 16 roundings of the share itself and one for each term of the sum, 2^-24 of the share each. The
// integer exponentials of the definition are each within 1/2 of the real ones.
double RealExponentials(const Facts& f) {
  if (f.c->op != Op::kSoftmax) return 0;
  const auto count = static_cast<double>(f.c->N);
  return f.terms * (count + 16) * kHalfUlp + (128 + count * f.terms / 2) / f.sum;
}

double OffsetsInFloat(const Facts& f) {
  const Case& c = *f.c;
  if (!HasSums(c)) return 0;
  // s8 codes are shifted to u8 by 128 first; the 128 leaves together with the zero points.
  const double shift = c.x.dtype() == DType::kS8 ? 128 : 0;
  const double x_zero = std::abs(static_cast<double>(c.x_q.zero_point_at(0))) + shift;
  const double w_zero = std::abs(static_cast<double>(c.w_q.zero_point_at(f.channel)));
  double parts = 0;
  ForEachProduct(f, [&](int64_t x, int64_t w) {
    parts +=
        (static_cast<double>(std::abs(x)) + x_zero) * (static_cast<double>(std::abs(w)) + w_zero);
  });
  if (parts > 0x1.fep30) return kInfinity;
  if (parts < 0x1p24) return 0;
  return (parts * f.multiplier + f.terms) * 4 * kHalfUlp;
}

double IntegerThroughFloat(const Facts& f) {
  if (f.c->out_dtype != DType::kS32) return 0;
  return f.sum > 0x1.fep30 ? 256 : f.sum * 2 * kHalfUlp;
}

double ZeroPointLost(const Facts& f) {
  const Window& v = f.c->window;
  const bool lost =
      v.groups % 8 == 0 && v.kernel_h * v.kernel_w == 8 && f.c->x_q.zero_point_at(0) != 0;
  return lost ? kInfinity : 0;
}

// The codes of x times their weights, in output units, of the terms that `of` takes.
template <class Of>
double CodesOfTerms(const Facts& f, const Of& of) {
  const int64_t row = f.index / f.given->N * f.given->K;
  int64_t k = 0;
  double weights = 0;
  ForEachProduct(f, [&](int64_t, int64_t w) {
    if (!of(static_cast<double>(f.given->x.FloatAt(row + k++)))) return;
    weights += std::abs(static_cast<double>(w) - f.c->w_q.zero_point_at(f.channel));
  });
  return weights * f.multiplier;
}

// Where the range is not finite, or its scale is denormal, a library may choose another scale.
double CodesOfX(const Facts& f) {
  if (!RowOf(f.given->op).dynamic) return 0;
  const float scale = f.c->x_q.scale[0];
  const bool finite =
      std::ranges::all_of(f.given->x.as<float>(), [](float x) { return std::isfinite(x); });
  if (!finite || !std::isnormal(scale) || scale == std::numeric_limits<float>::max())
    return kInfinity;
  return CodesOfTerms(f, [&](double x) {
    const double codes = x / static_cast<double>(scale);
    return std::abs(codes - std::floor(codes) - 0.5) < 0x1p-12;
  });
}

// 8 lanes of 16 bits hold the sum of 2048 weights of -128.
double SignIn8Bits(const Facts& f) {
  if (!RowOf(f.given->op).dynamic || f.c->w.dtype() != DType::kS8) return 0;
  bool wrong = f.c->K > 2048 && f.c->x_q.zero_point_at(0) != 0;
  ForEachProduct(f, [&](int64_t x, int64_t w) { wrong = wrong || (x < 0 && w == INT8_MIN); });
  return wrong ? kInfinity : 0;
}

// Half of a code with reduce_range, and at most another half without.
double ReduceRangeIgnored(const Facts& f) {
  if (!f.given->observer.reduce_range) return 0;
  return CodesOfTerms(f, [](double) { return true; });
}

// The ratio of scales is off by half of a 256th, and by its own rounding to float32.
double RatioIn256ths(const Facts& f) {
  const Case& c = *f.c;
  const bool leaky = c.op == Op::kTable && c.function == Function::kLeakyRelu;
  if ((c.op != Op::kRescale && !leaky) || c.x.dtype() != c.out_dtype) return 0;
  const double codes = std::abs(static_cast<double>(c.x.IntAt(f.index)) - c.x_q.zero_point[0]);
  const double ratio = static_cast<double>(c.x_q.scale[0]) / OutputScale(f);
  return codes * (0x1p-9 + ratio * 4 * kHalfUlp);
}

double Lanes16(const Facts& f) {
  if (f.c->op != Op::kAdd && f.c->op != Op::kMul) return 0;
  return f.terms + ZeroPoint(f) > 0x7f00 ? kInfinity : 0;
}

// The code, or the sum of codes, that makes the output, and the zero points in it: the magnitude of
// each, in units of the output.
double CodesByThemselves(const Facts& f) {
  const Case& c = *f.c;
  double codes = 0, zero_points = 0;
  if (c.op == Op::kDequantize || c.op == Op::kRescale) {
    codes = c.x.IntAt(f.index);
    zero_points = c.x_q.zero_point_at(f.channel);
  } else if (c.op == Op::kConcat) {
    const conventions::ConcatElement element = conventions::ConcatElementAt(c, f.index);
    codes = element.code;
    zero_points = element.q->zero_point[0];
  } else {
    for (const Tap& tap : TapsOf(c.window, f.index / c.N)) {
      codes += tap.x_row < 0 ? 0 : c.x.IntAt(tap.x_row + f.channel);
    }
    zero_points = static_cast<double>(f.count) * c.x_q.zero_point[0];
  }
  return (std::abs(codes) + std::abs(zero_points)) * f.multiplier;
}

double InputZeroPointInFloat(const Facts& f) {
  const Op op = f.c->op;
  if (op != Op::kDequantize && op != Op::kConcat && op != Op::kGlobalAvgPool && op != Op::kRescale)
    return 0;
  const double parts = CodesByThemselves(f) + ZeroPoint(f);
  // A multiplier that is rounded to infinity makes NaN of a code 0.
  if (std::max(parts, f.multiplier) >= 0x1.fffffp127) return kInfinity;
  return parts * 4 * kHalfUlp + 4 * kSmallest;
}

double InputZeroPointRounded(const Facts& f) {
  if (f.c->op != Op::kGlobalAvgPool) return 0;
  const double parts = CodesByThemselves(f);
  // The sum of codes may be shifted to twice the mean.
  return parts + ZeroPoint(f) >= 0x1p30 ? kInfinity : 0.5 + parts * 8 * kHalfUlp + kTie;
}

// The multiplier's integer has 31 bits, and loses as many as the number of pixels has behind its
// first one; less than one unit more is cut.
double MultiplierOverPixels(const Facts& f) {
  if (f.c->op != Op::kGlobalAvgPool) return 0;
  const int shift = ShiftOf(f.multiplier), bits = std::ilogb(static_cast<double>(f.count));
  const int of_scales = MostShiftOf(f.exact_multiplier * f.count);
  if (of_scales + 31 < bits) return f.terms;  // no room for the bits
  const int left = of_scales - bits;          // shift, or one more
  if (std::ldexp(f.sum, std::max(left, 0)) >= 0x1p31) return kInfinity;
  return f.terms * 0x1p-29 + (std::min(left, -1) > shift ? std::ldexp(1.0, shift - 1) : 0);
}

// A polynomial around -1/8 gives the exponential within 2^-21.6 of itself, exponentials below
// exp(-15.5) may count as 0, and each is rounded to 2^-19 in a sum of at least 1. Half of each
// integer of the definition as in RealExponentials.
double FixedPointSoftmax(const Facts& f) {
  if (f.c->op != Op::kSoftmax) return 0;
  const auto count = static_cast<double>(f.c->N);
  return f.terms * (count + 8) * 0x1p-19 + 0x1p-14 + (128 + count * f.terms / 2) / f.sum;
}

// From 2^14 on the integer is off by half at most, or by less than one where it is 2^15 - 1.
double MultiplierOf16Bits(const Facts& f) {
  return HasSums(*f.c) && IsWideCode(f.c->x.dtype()) ? f.terms * 0x1p-15 : 0;
}

// Of what is no number of the output type, or next to the smallest of f8e8m0fnu.
double CastEdges(const Facts& f) {
  const Case& c = *f.c;
  if (!RowOf(c.op).cast) return 0;
  const double x = c.x.ValueAt(f.index);
  if (!(std::abs(x) <= DecodeFloat(c.out_dtype, LargestCode(c.out_dtype)))) return kInfinity;
  return c.out_dtype == DType::kF8E8M0FNU && x < 0x1p-126 ? kInfinity : 0;
}

struct Entry {
  Variation variation;
  double (*reach)(const Facts&);
};

constexpr std::array<Entry, 46> kEntries{{
    {{"V1", "float32 multiplier", "the multiplier is fl(fl(sx*sw)/sy), one float32",
      "2^-22 of the value; none where a product or quotient of scales, or of the sum and the scale "
      "of x, is no normal float32"},
     FloatMultiplier},
    {{"V2", "reciprocal scale", "fl(1/s) is multiplied by instead of dividing by s",
      "2^-20 of the value; none where a reciprocal is no normal float32"},
     Reciprocals},
    {{"V3", "zero point before rounding",
      "the output zero point is added, mostly in float32, then the sum is rounded",
      "2^-20 of value and zero point; a tie goes to the even sum"},
     ZeroPointBeforeRounding},
    {{"V4", "ties away from zero", "half is rounded away from zero", "ties only"}, Tie},
    {{"V5", "ties up", "half is rounded toward +infinity", "ties only"}, Tie},
    {{"V6", "saturating pairs", "two u8*s8 products are added in a saturating int16 (vpmaddubsw)",
      "none where two products leave int16; else 0"},
     Pairs},
    {{"V7", "int32 bias", "a float bias is rounded to int32 in units of sx*sw",
      "half of sx*sw/sy; none beyond int32"},
     IntegerBias},
    {{"V8", "float32 sum", "the sum, its bias and its product with the scale are float32",
      "2^-21 of sum and bias, each by itself"},
     FloatSums},
    {{"V9", "overflow becomes INT32_MIN",
      "a result beyond int32 is converted to INT32_MIN, or wraps, before the clamp",
      "none from 2^31 on; else 0"},
     Overflow},
    {{"V10", "halved weights", "s8 weights are halved, rounded to even, and the sum is doubled",
      "sum of abs(x - zx) over the odd weights, times sx*sw/sy"},
     HalvedWeights},
    {{"V11", "31-bit multiplier", "the multiplier is an integer of 31 bits and a shift",
      "2^-30 of the value; none where the left shift leaves int32, all of it below 2^-32"},
     FixedMultiplier},
    {{"V12", "two roundings",
      "the product is rounded to an integer and then shifted, rounded again",
      "a quarter of a code (half of 2^shift, shift <= -1)"},
     TwoRoundings},
    {{"V13", "float32 quotient", "x/s is rounded to float32 before it is rounded to a code",
      "2^-23 of the value"},
     FloatQuotient},
    {{"V14", "operands in floating point",
      "operands are dequantized and computed with in float32 (or float64)",
      "(terms + 16) * 2^-24 of the products, each by itself; none where float32 overflows"},
     DequantizedInFloat},
    {{"V15", "fixed-point add", "both scales become integers of 20 to 22 bits with one exponent",
      "2^-20 of the larger scale over the output's, times the codes"},
     FixedPointAdd},
    {{"V16", "int32 wraps", "the sum wraps, or saturates, in int32",
      "none from 2^31 on, of s4 weights from 2^27 on; else 0"},
     Wraps},
    {{"V17", "special values", "NaN, infinities and quotients beyond int32 go elsewhere",
      "none for these; else 0"},
     Specials},
    {{"V18", "zero points as bytes", "a zero point that is no code is cut to its type, or wraps",
      "none where one is no code; else 0"},
     ZeroPointsAsBytes},
    {{"V19", "float32 steps", "a float32 output is the result of several float32 operations",
      "2^-21 of sum and bias, each by itself; none where sx*sw is no normal float32"},
     FloatResult},
    {{"V20", "weight zero point from x", "(x - zx - zw) * w is summed", "none unless zw = 0"},
     WeightZeroPointFromX},
    {{"V21", "half of the codes", "clips at 0..127, or -64..63", "none"}, Always},
    {{"V22", "int32 through float32", "an s32 output is rounded to float32 and back",
      "2^-23 of the sum"},
     IntegerThroughFloat},
    {{"V23", "other range formulas", "scale and zero point are chosen by other steps",
      "2^-22 of the scale, 1 of the zero point, 2 of a code; none if symmetric, or for scales "
      "that are infinite or below 2^-13, of the rule onnx below 2^-126 or 1"},
     RangeFormulas},
    {{"V24", "zero points in float32",
      "the sum of raw products and the zero-point terms are added in float32, each rounded",
      "2^-22 of all of them; none beyond int32"},
     OffsetsInFloat},
    {{"V25", "16-bit sums", "pair sums are added in a saturating int16, spilled every 256 terms",
      "none where the products of one sign leave int16; else 0"},
     SumsInto16},
    {{"V26", "denormals flushed", "denormal inputs, scales and results count as 0",
      "none where one is denormal; else 0"},
     Flushed},
    {{"V27", "padding of pools",
      "positions outside the image count in an average, or move to the nearest pixel of a maximum",
      "an average: its share of positions that should not count; a maximum: none where a dilated "
      "window has padding; else 0"},
     PaddingOfPools},
    {{"V28", "zero point lost",
      "a reorder that transposes the weights does not sum them, so the zero point of x stays in",
      "none for 8 groups by 8 taps with a zero point of x; else 0"},
     ZeroPointLost},
    {{"V29", "share overflows", "a share of a softmax is multiplied by 256 before it is divided",
      "none for rows of one code; else 0"},
     ShareOverflows},
    {{"V30", "real exponentials", "the exponentials of a softmax stay floating point",
      "(codes + 16) * 2^-24 of the share, and half of each integer of the definition"},
     RealExponentials},
    {{"V31", "codes of x", "dynamic_linear quantizes x in float32, by the choice of its rule",
      "one code of each x within 2^-12 codes of a tie; none where x or its range is not finite, or "
      "its scale denormal"},
     CodesOfX},
    {{"V32", "reduce_range ignored", "dynamic_linear spreads x over all codes",
      "one code of each x under reduce_range; else 0"},
     ReduceRangeIgnored},
    {{"V33", "ratio in 256ths",
      "codes of one type are rescaled by the ratio of scales in 256ths, times the slope below 0",
      "2^-9 of x - zx, and 2^-22 of the value"},
     RatioIn256ths},
    {{"V34", "truncated", "the fraction is cut off, or rounded down",
      "half a code; 0 for integers"},
     Truncated},
    {{"V35", "16-bit hard-swish",
      "hardswish is computed in 16-bit fixed point, ties away from zero",
      "3/32 of sx/sy; none where value and zero point leave int16"},
     HardSwish16},
    {{"V36", "other histograms", "a histogram has other bins, and moves to others by another rule",
      "none for histograms; else 0"},
     OtherHistograms},
    {{"V37", "16-bit lanes",
      "the sum or product of two operands goes through 16 bits, where the zero point is added and "
      "wraps",
      "none where value and zero point leave int16; else 0"},
     Lanes16},
    {{"V38", "input zero point in float32",
      "codes, or their sum, and the zero point of x are scaled in float32, each by itself",
      "2^-22 of the codes, the zero points of x and that of the output, each by itself; none "
      "where they overflow float32"},
     InputZeroPointInFloat},
    {{"V39", "input zero point rounded",
      "of the mean of an image, the zero point of x becomes a rounded number of output codes",
      "half a code, and 2^-21 of the codes and the zero point, each by itself; none from 2^30 on"},
     InputZeroPointRounded},
    {{"V40", "multiplier over pixels",
      "the 31-bit integer of a multiplier is divided by the number of pixels, and cut",
      "2^-29 of the value, and a quarter of a code as V12; all of it where sx/sy is below pixels * "
      "2^-32"},
     MultiplierOverPixels},
    {{"V41", "fixed-point softmax",
      "exponentials are polynomials in 32-bit fixed point, and their sum has 19 bits behind the "
      "point",
      "(codes + 8) * 2^-19 of the share, 2^-14, and half of each integer of the definition"},
     FixedPointSoftmax},
    {{"V42", "edges of float types",
      "casts give NaN other patterns, and what lies beyond the output type another value",
      "none of NaN, beyond the largest value, and below 2^-126 of f8e8m0fnu; else 0"},
     CastEdges},
    {{"V43", "shift of a range",
      "zero points and bias change the ends of the output's range, of which a float32 scale and "
      "shift are made",
      "2^-20 of the codes, zero points and bias, of sums times these over 255, and 0.003"},
     RangeShift},
    {{"V44", "half added in float32",
      "half is added to a float32 quotient, then the fraction is cut",
      "ties, and 2^-23 of the value"},
     HalfAdded},
    {{"V45", "16-bit multiplier",
      "of sums of 16-bit activations, the multiplier is an integer of 16 bits and a shift",
      "2^-15 of the value"},
     MultiplierOf16Bits},
    {{"V46", "sign in 8 bits",
      "of s8 by s8 the sign of x goes to w in 8 bits, where -128 has no opposite; the sum of w, "
      "times the zero point of x, wraps in 16-bit lanes",
      "none for a w of -128 under a negative x, or over 2048 terms with a zero point of x; else 0"},
     SignIn8Bits},
}};

constexpr auto kVariations = [] {
  std::array<Variation, kEntries.size()> list;
  for (size_t i = 0; i < list.size(); ++i) list[i] = kEntries[i].variation;
  return list;
}();

double ReachOf(std::string_view id, const Facts& f) {
  const auto entry = std::ranges::find(kEntries, id, [](const Entry& e) { return e.variation.id; });
  QUALM_CHECK(entry != kEntries.end());
  // All others move codes, or what becomes of codes.
  const bool of_observers = entry->reach == RangeFormulas || entry->reach == OtherHistograms;
  if (RowOf(f.c->op).observer && !of_observers) return 0;
  if (RowOf(f.c->op).cast != (entry->reach == CastEdges)) return 0;
  return entry->reach(f);
}

double RoundHalfEven(double value) {
  const double down = std::floor(value), rest = value - down;
  return rest > 0.5 || (rest == 0.5 && std::fmod(down, 2) != 0) ? down + 1 : down;
}

// value + reach; another number than the value unless the reach is 0, however large the value.
double Moved(double value, double reach) {
  const double moved = value + reach;
  return reach != 0 && moved == value ? std::nextafter(value, std::copysign(kInfinity, reach))
                                      : moved;
}

// The output that rounding, zero point and clamp make of a finite value.
double Finish(const Case& c, int64_t channel, double value) {
  if (c.out_dtype == DType::kF32) {
    const bool overflows = std::abs(value) > static_cast<double>(std::numeric_limits<float>::max());
    if (overflows) value = std::copysign(kInfinity, value);
    return c.relu ? std::max(value, 0.0) : value;
  }
  const auto low = static_cast<double>(std::min<int64_t>(LowerBound(c, channel), c.out_max));
  const double zero = IsCode(c.out_dtype) ? c.out_q.zero_point_at(channel) : 0.0;
  return std::clamp(RoundHalfEven(value) + zero, low, static_cast<double>(c.out_max));
}

}  // namespace

std::span<const Variation> AllVariations() { return kVariations; }

const Variation* FindVariation(std::string_view id) {
  const auto at = std::ranges::find(kVariations, id, &Variation::id);
  return at == kVariations.end() ? nullptr : &*at;
}

std::vector<double> Reach(std::string_view id, const Case& c) {
  const FactsOf facts_of(c);
  std::vector<double> list;
  for (const Facts& facts : facts_of.All()) list.push_back(ReachOf(id, facts));
  return list;
}

std::vector<Permitted> PermittedOutputs(std::span<const std::string> variations, const Case& c) {
  std::vector<Permitted> list;
  if (RowOf(c.op).dynamic && !RowsShareQParams(c)) {  // each row has its own
    for (int64_t m = 0; m < c.M; ++m) {
      Case row = slice::Rows(c, {{m}});
      row.x_gran = Granularity::kTensor;
      for (const Permitted& one : PermittedOutputs(variations, row)) list.push_back(one);
    }
    return list;
  }
  const FactsOf facts_of(c);
  const CodeRange range = RangeOf(c.out_dtype);
  for (const Facts& facts : facts_of.All()) {
    double reach =
        facts.real_is_exact ? 0 : facts.terms * 0x1p-50;  // the error of this computation
    for (const std::string& id : variations) {
      reach += ReachOf(id, facts);
    }
    if (!(reach < kInfinity)) {  // NaN: of an input that is NaN
      list.push_back({IsFloat(c.out_dtype) ? -kInfinity : range.min,
                      IsFloat(c.out_dtype) ? kInfinity : range.max});
      continue;
    }
    if (RowOf(c.op).cast) {  // rounded already
      const double infinite = std::isnan(facts.real) ? kInfinity : 0;
      list.push_back({infinite > 0 ? -infinite : facts.real, infinite > 0 ? infinite : facts.real});
      continue;
    }
    if (c.out_dtype == DType::kF32) {  // one rounding more, as the exact result has too
      reach += facts.terms * kHalfUlp + kSmallest;
    }
    list.push_back({Finish(c, facts.channel, Moved(facts.real, -reach)),
                    Finish(c, facts.channel, Moved(facts.real, reach))});
  }
  return list;
}

}  // namespace qualm
