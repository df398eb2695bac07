// SPDX-License-Identifier: Apache-2.0
#include "oracles/models/variations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "core/status.h"
#include "oracles/exact/exact.h"

namespace qualm {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kHalfUlp = 0x1p-24;  // relative error of one float32 rounding
constexpr double kSmallest = 0x1p-149;
// More than the real value is off by in double, less than anything that is no tie.
constexpr double kTie = 0x1p-36;

// What is known of one output, in output codes, or in real units where the output is f32.
struct Facts {
  const Case* c = nullptr;
  int64_t index = 0, channel = 0;
  double real = 0;        // the exact value before rounding and zero point
  double terms = 0;       // the sum of the magnitudes that make it up: |sum|*multiplier + |bias|
  double products = 0;    // the same, every product of the sum by itself
  double sum = 0;         // |accumulator|, int32 bias included, zero points taken out
  double multiplier = 0;  // output units per accumulator unit
  long double exact_multiplier = 0;  // the same, to 64 bits
  double largest_operand = 0;        // |scale * (code - zero point)| of any x or w
  double bias_units = 0;             // |float bias| in accumulator units
  bool zero_points_are_codes = true;
  bool real_is_exact = false;  // as the double that it is
};

float Out(const Facts& f) { return IsCode(f.c->out_dtype) ? f.c->out_q.scale_at(f.channel) : 1.0f; }
double ZeroPoint(const Facts& f) {
  if (!IsCode(f.c->out_dtype)) return 0;
  return std::abs(static_cast<double>(f.c->out_q.zero_point_at(f.channel)));
}

// The product of the input scales.
float InputScales(const Case& c, int64_t channel) {
  switch (c.op) {
    case Op::kQuantize: return 1;
    case Op::kDequantize: return c.x_q.scale_at(channel);
    default: return c.x_q.scale_at(0) * c.w_q.scale_at(channel);
  }
}

// Nothing is lost where a step is exact: ties stay ties there. Products of two float32 numbers are
// exact in long double.
bool IsFloat(long double value) {
  return static_cast<long double>(static_cast<float>(value)) == value;
}
bool IsPowerOfTwo(float value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5f;
}
bool DividesExactly(long double value, float divisor) {
  const auto quotient = static_cast<float>(value / divisor);
  return std::isnormal(quotient) && static_cast<long double>(quotient) * divisor == value;
}
bool ScalesArePowersOfTwo(const Facts& f) {
  const Case& c = *f.c;
  const bool inputs = c.op != Op::kQuantize;
  const bool weights = HasSums(c.op) || HasTwoOperands(c.op) || c.op == Op::kRequantize;
  return IsPowerOfTwo(Out(f)) && (!inputs || IsPowerOfTwo(c.x_q.scale_at(0))) &&
         (!weights || IsPowerOfTwo(c.w_q.scale_at(f.channel)));
}

double FloatMultiplier(const Facts& f) {
  const Case& c = *f.c;
  if (c.out_dtype == DType::kS32 || !c.multiplier.empty() || c.op == Op::kQuantize) return 0;
  if (c.op == Op::kAdd) {
    if (DividesExactly(c.x_q.scale[0], Out(f)) && DividesExactly(c.w_q.scale[0], Out(f))) return 0;
  } else if (c.op != Op::kDequantize) {
    const long double product =
        static_cast<long double>(c.x_q.scale_at(0)) * c.w_q.scale_at(f.channel);
    if (IsFloat(product) && std::isnormal(static_cast<float>(product)) &&
        DividesExactly(product, Out(f)))
      return 0;
  }
  if (HasSums(c.op) || c.op == Op::kMul || (c.op == Op::kRequantize && c.multiplier.empty())) {
    const float product = InputScales(c, f.channel);
    if (!std::isnormal(product) || !std::isnormal(product / Out(f))) return kInfinity;
  }
  return f.terms * 4 * kHalfUlp;
}

double Reciprocals(const Facts& f) {
  if (f.c->out_dtype == DType::kS32) return 0;
  const Case& c = *f.c;
  if (!c.multiplier.empty()) return 0;
  const float reciprocal = 1.0f / Out(f);
  if (!std::isnormal(reciprocal)) return kInfinity;
  if (HasSums(c.op)) {
    const float x = 1.0f / c.x_q.scale_at(0), w = 1.0f / c.w_q.scale_at(f.channel);
    const float product = InputScales(c, f.channel);
    for (const float number :
         {x, w, x * w, reciprocal / (x * w), product, product * reciprocal, 1.0f / product}) {
      if (!std::isnormal(number)) return kInfinity;
    }
  } else if (c.op == Op::kMul || c.op == Op::kRequantize) {
    if (c.multiplier.empty() && (!std::isnormal(InputScales(c, f.channel)) ||
                                 !std::isnormal(InputScales(c, f.channel) * reciprocal))) {
      return kInfinity;
    }
  }
  if (ScalesArePowersOfTwo(f) && !c.bias) return 0;
  return f.terms * 16 * kHalfUlp + kSmallest / static_cast<double>(Out(f));
}

double ZeroPointBeforeRounding(const Facts& f) {
  if (f.c->out_dtype == DType::kS32) return 0;
  const Case& c = *f.c;
  double terms = f.terms;
  if (c.op == Op::kAdd) {
    // Codes and zero points are scaled apart.
    const auto apart = [&](const Tensor& codes, const QParams& q) {
      const double ratio = static_cast<double>(q.scale[0]) / Out(f);
      return ratio * (std::abs(static_cast<double>(codes.IntAt(f.index))) +
                      std::abs(static_cast<double>(q.zero_point[0])));
    };
    terms += apart(c.x, c.x_q) + apart(c.w, c.w_q);
    for (const QParams* q : {&c.x_q, &c.w_q}) {
      const float ratio = q->scale[0] / Out(f);
      if (!std::isfinite(ratio) || terms > 0x1p127) return kInfinity;
    }
  }
  if (c.op != Op::kAdd && IsFloat(f.real) && IsFloat(f.real + ZeroPoint(f)) &&
      IsFloat(f.real - ZeroPoint(f)))
    return kTie;
  return (terms + ZeroPoint(f)) * 16 * kHalfUlp + kTie;
}

double Tie(const Facts&) { return kTie; }

// The products of one output, as a kernel of saturating pairs meets them: u8 * s8, an s8 operand
// shifted by 128; taps in the padding read the zero point's low byte, or nothing.
template <class Visit>
void ForEachProduct(const Facts& f, const Visit& visit) {
  const Case& c = *f.c;
  const int64_t m = f.index / c.N, n = f.index % c.N;
  if (c.op == Op::kLinear) {
    for (int64_t k = 0; k < c.K; ++k) visit(c.x.IntAt(m * c.K + k), c.w.IntAt(n * c.K + k));
    return;
  }
  const Window& v = c.window;
  const int64_t depth = v.in_c / v.groups, first = n / (c.N / v.groups) * depth;
  const auto byte = static_cast<uint8_t>(static_cast<uint32_t>(c.x_q.zero_point_at(0)));
  const int32_t padding = c.x.dtype() == DType::kU8 ? byte : static_cast<int8_t>(byte);
  int64_t k = n * c.K;
  for (const Tap& tap : TapsOf(v, m)) {
    for (int64_t i = 0; i < depth; ++i, ++k) {
      visit(tap.x_row < 0 ? padding : c.x.IntAt(tap.x_row + first + i), c.w.IntAt(k));
    }
  }
}

// The products whose magnitudes matter to 16-bit sums.
struct LargestProducts {
  std::array<int64_t, 2> high{}, low{};  // two of each sign
  int64_t up = 0, down = 0;              // all of each sign
};
LargestProducts LargestOf(const Facts& f) {
  LargestProducts p;
  const auto add = [&](int64_t product) {
    if (product > 0) {
      p.up += product;
      p.high[1] = std::max(p.high[1], product);
      if (p.high[1] > p.high[0]) std::swap(p.high[0], p.high[1]);
    } else {
      p.down += product;
      p.low[1] = std::min(p.low[1], product);
      if (p.low[1] < p.low[0]) std::swap(p.low[0], p.low[1]);
    }
  };
  const bool is_signed = f.c->x.dtype() == DType::kS8;
  ForEachProduct(f, [&](int64_t x, int64_t w) {
    add((x + (is_signed ? 128 : 0)) * w);
    if (is_signed) add(x * (w + 128));
  });
  return p;
}

// Whatever the order of the terms, some two may share a pair.
double Pairs(const Facts& f) {
  if (!HasSums(f.c->op)) return 0;
  const LargestProducts p = LargestOf(f);
  return p.high[0] + p.high[1] > INT16_MAX || p.low[0] + p.low[1] < INT16_MIN ? kInfinity : 0;
}

double SumsInto16(const Facts& f) {
  if (!HasSums(f.c->op)) return 0;
  const LargestProducts p = LargestOf(f);
  return p.up > INT16_MAX || p.down < INT16_MIN ? kInfinity : 0;
}

double IntegerBias(const Facts& f) {
  if (f.c->bias_i32 && IsConv(f.c->op)) {
    const double bias =
        std::abs(static_cast<double>((*f.c->bias_i32)[static_cast<size_t>(f.channel)]));
    if (bias < 0x1p24) return 0;
    return bias >= 0x1.fffffp30 ? kInfinity : bias * kHalfUlp * f.multiplier;
  }
  if (!f.c->bias) return 0;
  const float product = InputScales(*f.c, f.channel);
  if (!std::isnormal(product) || f.bias_units + f.sum > 0x1.ffp30) return kInfinity;
  return (0.5 + f.bias_units * 16 * kHalfUlp) * f.multiplier;
}

double FloatSums(const Facts& f) {
  if (f.c->out_dtype == DType::kS32) return 0;
  if (f.c->op == Op::kAdd || f.c->op == Op::kQuantize) return 0;
  if (!f.c->bias && f.sum < 0x1p24 && IsFloat(f.real)) return 0;
  return (f.terms + (f.c->op == Op::kMul ? std::abs(f.real) : 0)) * 8 * kHalfUlp;
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

// Of q * 2^(shift-31), q in [2^30, 2^31).
int ShiftOf(double multiplier) {
  int shift = 0;
  std::frexp(multiplier, &shift);
  return shift;
}

double FixedMultiplier(const Facts& f) {
  if (f.c->op == Op::kAdd || f.c->op == Op::kQuantize) return 0;
  const int shift = ShiftOf(f.multiplier);
  if (std::ldexp(f.sum, std::max(shift, 0)) >= 0x1p31) return kInfinity;
  const long double mantissa = std::ldexp(static_cast<long double>(f.multiplier), 31 - shift);
  const bool is_exact = f.exact_multiplier == static_cast<long double>(f.multiplier) &&
                        mantissa == std::floor(mantissa);
  if (is_exact && shift >= -31) return 0;
  // Below 2^-32 the multiplier is 0.
  return shift < -30 ? f.terms : f.terms * 0x1p-30;
}

double TwoRoundings(const Facts& f) {
  if (f.c->op == Op::kQuantize) return 0;
  if (f.c->op == Op::kAdd) return 0.25;
  const int shift = ShiftOf(f.multiplier);
  return kTie + (shift <= -1 ? std::ldexp(1.0, shift - 1) : 0);
}

double FloatQuotient(const Facts& f) {
  if (f.c->op != Op::kQuantize && f.c->op != Op::kLinear && !HasTwoOperands(f.c->op)) return 0;
  if (f.c->op == Op::kQuantize && DividesExactly(f.c->x.FloatAt(f.index), Out(f))) return 0;
  return f.terms * 2 * kHalfUlp + kSmallest;
}

double DequantizedInFloat(const Facts& f) {
  if (f.c->out_dtype == DType::kS32) return 0;
  const auto out = static_cast<double>(Out(f));
  const double count = static_cast<double>(f.c->K) + 16;
  if (f.products * out * count >= static_cast<double>(std::numeric_limits<float>::max()))
    return kInfinity;
  if (f.c->op == Op::kQuantize) return 0;
  if (f.largest_operand >= static_cast<double>(std::numeric_limits<float>::max())) return kInfinity;
  // Quotients below 2^-126 too.
  return f.products * count * kHalfUlp + count * kSmallest / out + kSmallest;
}

double FixedPointAdd(const Facts& f) {
  if (f.c->op != Op::kAdd) return 0;
  const Case& c = *f.c;
  const double most =
      std::max(static_cast<double>(c.x_q.scale[0]), static_cast<double>(c.w_q.scale[0])) / Out(f);
  const double codes = std::abs(static_cast<double>(c.x.IntAt(f.index)) - c.x_q.zero_point[0]) +
                       std::abs(static_cast<double>(c.w.IntAt(f.index)) - c.w_q.zero_point[0]);
  const auto is_short = [&](const QParams& q) {
    const long double ratio = static_cast<long double>(q.scale[0]) / Out(f);
    const long double bits = std::ldexp(ratio, 19 - std::ilogb(most));
    return bits == std::floor(bits) && DividesExactly(q.scale[0], Out(f));
  };
  if (is_short(c.x_q) && is_short(c.w_q)) return 0;
  return (codes + 4) * most * 0x1p-20 + f.terms * 4 * kHalfUlp;
}

double Wraps(const Facts& f) {
  // A sum may wrap while the zero points are still in it, and come back.
  return f.sum + f.bias_units >= 0x1.ffp30 ? kInfinity : 0;
}

double Specials(const Facts& f) {
  if (f.c->op != Op::kQuantize) return 0;
  return std::isfinite(f.real) && f.terms + ZeroPoint(f) < 0x1.fep30 ? 0 : kInfinity;
}

double ZeroPointsAsBytes(const Facts& f) { return f.zero_points_are_codes ? 0 : kInfinity; }

double FloatResult(const Facts& f) {
  if (f.c->out_dtype != DType::kF32) return 0;
  if (!std::isnormal(InputScales(*f.c, f.channel))) return kInfinity;
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

// Those that facts are gathered of.
bool HasBounds(Op op) {
  return HasSums(op) || HasTwoOperands(op) || op == Op::kQuantize || op == Op::kDequantize ||
         op == Op::kRequantize;
}

double OtherOperators(const Facts& f) { return HasBounds(f.c->op) ? 0 : kInfinity; }

double OffsetsInFloat(const Facts& f) {
  const Case& c = *f.c;
  if (!HasSums(c.op)) return 0;
  // s8 codes are shifted to u8 by 128 first, which leaves with the zero points.
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
  const bool lost = IsConv(f.c->op) && v.groups > 1 && v.groups % 8 == 0 &&
                    v.kernel_h * v.kernel_w == 8 && f.c->x_q.zero_point_at(0) != 0;
  return lost ? kInfinity : 0;
}

struct Row {
  Variation variation;
  double (*reach)(const Facts&);
};

constexpr std::array<Row, 28> kRows{{
    {{"V1", "float32 multiplier", "the multiplier is fl(fl(sx*sw)/sy), one float32",
      "2^-22 of the value; none where a product or quotient of scales is no normal float32"},
     FloatMultiplier},
    {{"V2", "reciprocal scale", "fl(1/s) is multiplied by instead of dividing by s",
      "2^-20 of the value; none where a reciprocal is no normal float32"},
     Reciprocals},
    {{"V3", "zero point before rounding",
      "the output zero point is added in float32, then the sum is rounded",
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
    {{"V16", "int32 wraps", "the sum wraps, or saturates, in int32", "none from 2^31 on; else 0"},
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
    {{"V23", "other range formulas", "scale and zero point are chosen by other steps", "none"},
     Always},
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
    {{"V27", "other operators", "pools, tables, softmax and concat follow formulas of their own",
      "none for these; else 0"},
     OtherOperators},
    {{"V28", "zero point lost",
      "a reorder that transposes the weights does not sum them, so the zero point of x stays in",
      "none for 8 groups by 8 taps with a zero point of x; else 0"},
     ZeroPointLost},
}};

constexpr auto kVariations = [] {
  std::array<Variation, kRows.size()> list;
  for (size_t i = 0; i < list.size(); ++i) list[i] = kRows[i].variation;
  return list;
}();

bool IsOneOfItsCodes(const QParams& q, DType dtype) {
  const CodeRange range = RangeOf(dtype);
  return std::ranges::all_of(q.zero_point,
                             [&](int32_t z) { return z >= range.min && z <= range.max; });
}

bool ZeroPointsAreCodes(const Case& c) {
  return (!IsCode(c.x.dtype()) || IsOneOfItsCodes(c.x_q, c.x.dtype())) &&
         (!(HasSums(c.op) || HasTwoOperands(c.op)) || IsOneOfItsCodes(c.w_q, c.w.dtype())) &&
         (!IsCode(c.out_dtype) || IsOneOfItsCodes(c.out_q, c.out_dtype));
}

const Row& RowOf(std::string_view id) {
  const auto row = std::ranges::find(kRows, id, [](const Row& r) { return r.variation.id; });
  QUALM_CHECK(row != kRows.end());
  return *row;
}

// What a case shares between its outputs.
class FactsOf {
 public:
  explicit FactsOf(const Case& c) : c_(c), are_codes_(ZeroPointsAreCodes(c)) {
    if (HasSums(c.op)) sums_ = exact::CorrectedSums(c);
  }

  Facts operator()(int64_t index) const {
    Facts f;
    f.c = &c_;
    f.index = index;
    f.channel = index % c_.N;
    f.zero_points_are_codes = are_codes_;
    if (!HasBounds(c_.op)) return f;
    const long double out = Out(f);
    switch (c_.op) {
      case Op::kQuantize: return Scaled(f, c_.x.FloatAt(index), 1 / out, IsPowerOfTwo(Out(f)));
      case Op::kDequantize:
        return Scaled(f,
                      static_cast<long double>(c_.x.IntAt(index)) - c_.x_q.zero_point_at(f.channel),
                      c_.x_q.scale_at(f.channel), true);
      case Op::kRequantize:
        if (!c_.multiplier.empty()) {
          const size_t at = c_.multiplier.size() == 1 ? 0 : static_cast<size_t>(f.channel);
          return Scaled(f, c_.x.IntAt(index), c_.multiplier[at], true);
        }
        return ScaledDown(f, c_.x.IntAt(index));
      case Op::kMul:
        return ScaledDown(f, Difference(c_.x, c_.x_q, index) * Difference(c_.w, c_.w_q, index));
      case Op::kAdd: return Added(f, out);
      default: break;  // sums
    }
    const auto sum = static_cast<long double>(sums_[static_cast<size_t>(index)]);
    f = c_.out_dtype == DType::kS32 ? Scaled(f, sum, 1, true) : ScaledDown(f, sum);
    f.products = 0;
    ForEachProduct(f, [&](int64_t x_code, int64_t w_code) {
      const double x = std::abs(static_cast<double>(x_code) - c_.x_q.zero_point_at(0));
      const double w = std::abs(static_cast<double>(w_code) - c_.w_q.zero_point_at(f.channel));
      f.products += x * w;
      f.largest_operand = std::max({f.largest_operand, x * static_cast<double>(c_.x_q.scale_at(0)),
                                    w * static_cast<double>(c_.w_q.scale_at(f.channel))});
    });
    f.products *= f.multiplier;
    if (c_.bias) {
      const long double bias = (*c_.bias)[static_cast<size_t>(f.channel)];
      f.real = static_cast<double>(f.real + bias / out);
      f.terms += static_cast<double>(std::abs(bias) / out);
      f.products += static_cast<double>(std::abs(bias) / out);
      f.real_is_exact = false;
      f.bias_units = static_cast<double>(std::abs(bias) / Product(f.channel));
    }
    return f;
  }

 private:
  // By the product of the input scales over the output's.
  Facts ScaledDown(const Facts& f, long double sum) const {
    const long double product = Product(f.channel);
    return Scaled(f, sum, product / Out(f), DividesExactly(product, Out(f)));
  }
  static Facts Scaled(Facts f, long double sum, long double multiplier, bool is_exact) {
    const long double real = sum * multiplier;
    f.real = static_cast<double>(real);
    // 40 bits times the 24 of a float32.
    f.real_is_exact =
        is_exact && std::abs(sum) < 0x1p40L && static_cast<long double>(f.real) == real;
    f.terms = f.products = std::abs(f.real);
    f.sum = static_cast<double>(std::abs(sum));
    f.multiplier = static_cast<double>(multiplier);
    f.exact_multiplier = multiplier;
    return f;
  }
  static long double Difference(const Tensor& codes, const QParams& q, int64_t index) {
    return static_cast<long double>(codes.IntAt(index)) - q.zero_point[0];
  }
  long double Product(int64_t channel) const {
    return static_cast<long double>(c_.x_q.scale_at(0)) * c_.w_q.scale_at(channel);
  }
  Facts Added(Facts f, long double out) const {
    const long double a = Difference(c_.x, c_.x_q, f.index) * c_.x_q.scale[0] / out;
    const long double b = Difference(c_.w, c_.w_q, f.index) * c_.w_q.scale[0] / out;
    f.real = static_cast<double>(a + b);
    f.real_is_exact = IsPowerOfTwo(Out(f)) && (a + b) - a == b && (a + b) - b == a &&
                      static_cast<long double>(f.real) == a + b;
    f.terms = f.products = static_cast<double>(std::abs(a) + std::abs(b));
    f.multiplier = 1;
    return f;
  }

  const Case& c_;
  bool are_codes_;
  std::vector<__int128> sums_;
};

double RoundHalfEven(double value) {
  const double down = std::floor(value), rest = value - down;
  if (rest != 0.5) return rest < 0.5 ? down : down + 1;
  return std::fmod(down, 2) == 0 ? down : down + 1;
}

// What rounding, zero point and clamp make of a value.
double Finish(const Case& c, int64_t channel, double value) {
  if (c.out_dtype == DType::kF32) return c.relu ? std::max(value, 0.0) : value;
  const auto low = static_cast<double>(std::min<int64_t>(LowerBound(c, channel), c.out_max));
  const double zero = IsCode(c.out_dtype) ? c.out_q.zero_point_at(channel) : 0.0;
  if (std::isnan(value)) return std::clamp(zero, low, static_cast<double>(c.out_max));
  const double code = std::isinf(value) ? value : RoundHalfEven(value) + zero;
  return std::clamp(code, low, static_cast<double>(c.out_max));
}

}  // namespace

std::span<const Variation> AllVariations() { return kVariations; }

const Variation* FindVariation(std::string_view id) {
  const auto at = std::ranges::find(kVariations, id, &Variation::id);
  return at == kVariations.end() ? nullptr : &*at;
}

double Reach(std::string_view id, const Case& c, int64_t index) {
  if (c.op == Op::kChooseQParams) return kInfinity;
  return RowOf(id).reach(FactsOf(c)(index));
}

std::vector<Permitted> PermittedOutputs(const Model& model, const Case& c) {
  QUALM_CHECK(c.op != Op::kChooseQParams);  // V23 has no bound
  const FactsOf facts_of(c);
  std::vector<Permitted> list;
  const CodeRange range = RangeOf(c.out_dtype);
  for (int64_t i = 0; i < c.M * c.N; ++i) {
    const Facts facts = facts_of(i);
    double reach = facts.real_is_exact ? 0 : facts.terms * 0x1p-50;  // of this computation
    for (const std::string& id : model.variations) {
      reach += RowOf(id).reach(facts);
    }
    if (!(reach < kInfinity)) {  // NaN: of an input that is NaN
      list.push_back({c.out_dtype == DType::kF32 ? -kInfinity : range.min,
                      c.out_dtype == DType::kF32 ? kInfinity : range.max});
      continue;
    }
    if (c.out_dtype == DType::kF32) {  // one rounding more, as the exact result has too
      reach += facts.terms * kHalfUlp + kSmallest;
    }
    list.push_back({Finish(c, facts.channel, facts.real - reach),
                    Finish(c, facts.channel, facts.real + reach)});
  }
  return list;
}

}  // namespace qualm
