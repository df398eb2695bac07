// SPDX-License-Identifier: Apache-2.0
// The bound is the classical one: a term that takes part in h roundings reaches the result as
// t * (1+d_1) ... (1+d_h), |d| <= u = 2^-24, so that the sum is off by at most
// ((1+u)^h - 1) * sum |t|. A quotient divides by such factors; to nearest |d| <= u/(1+u), so
// 1/(1+d) lies within 1+-u too. Integers carry all of it, in units of a power of two below
// everything that occurs: nothing here is rounded but (1+u)^h, upwards.
#include "oracles/conventions/float_sums.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

#include "core/status.h"
#include "oracles/exact/arithmetic/dyadic.h"
#include "oracles/exact/arithmetic/rational.h"
#include "oracles/exact/dynamic_linear.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/reduction.h"

namespace qualm {
namespace {

using exact::Dyadic;
using exact::Integer;
using exact::Rational;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kPrecision = 24;    // bits of a float32
constexpr int kLeastUnit = -149;  // every float32 is a multiple of 2^kLeastUnit
constexpr int kGrowthBits = 128;  // of the fraction of (1+u)^h
// From this product of scales on no product of two dequantized operands is denormal, nor is the
// product of the scales itself: both are rounded at most twice before that.
constexpr int kNoUnderflow = -125;

// What the terms of the outputs are, in units of sx * sw.
struct Terms {
  std::vector<__int128> sizes;  // of each output: the sum of |x - zx| * |w - zw| + |bias_i32|
  int64_t x_most = 0;           // the largest |x - zx|
  std::vector<int64_t> w_most;  // of each channel, the largest |w - zw|
};

// sum over k of a[k] * b[k], which `most_a` and `most_b` bound.
__int128 Dot(const int64_t* a, const int64_t* b, int64_t k, int64_t most_a, int64_t most_b) {
  const __int128 most = static_cast<__int128>(most_a) * most_b * std::max<int64_t>(k, 1);
  if (most <= INT64_MAX) {
    int64_t sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += a[i] * b[i];
    return sum;
  }
  __int128 sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += static_cast<__int128>(a[i]) * b[i];
  return sum;
}

Terms TermsOf(const Case& c) {
  const exact::Reduction lists = exact::ReductionOf(c, 0);
  Terms terms;
  std::vector<int64_t> x(lists.x.size()), w(lists.w.size());
  const int64_t zx = c.x_q.zero_point_at(0);
  const int64_t depth = lists.taps == 0 ? c.K : c.K / lists.taps;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const bool inside =
        lists.taps == 0 ||
        lists.inside[static_cast<size_t>(at / c.K / lists.groups * lists.taps + at % c.K / depth)];
    x[i] = inside ? std::abs(lists.x[i] - zx) : 0;  // real 0 in the padding
    terms.x_most = std::max(terms.x_most, x[i]);
  }
  for (int64_t n = 0; n < c.N; ++n) {
    int64_t& most = terms.w_most.emplace_back(0);
    for (int64_t i = n * c.K; i < (n + 1) * c.K; ++i) {
      const auto at = static_cast<size_t>(i);
      w[at] = std::abs(lists.w[at] - int64_t{c.w_q.zero_point_at(n)});
      most = std::max(most, w[at]);
    }
  }
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      __int128 size = Dot(x.data() + lists.x_row(m, n) * c.K, w.data() + n * c.K, c.K, terms.x_most,
                          terms.w_most[static_cast<size_t>(n)]);
      if (c.bias_i32) size += std::abs(int64_t{(*c.bias_i32)[static_cast<size_t>(n)]});
      terms.sizes.push_back(size);
    }
  }
  return terms;
}

Integer Up(Integer value, int bits) {
  return bits >= 0 ? Integer(value << bits) : Integer(-((-value) >> -bits));
}

// (1 + 2^-24)^h in units of 2^-kGrowthBits, rounded upwards.
Integer Growth(int64_t h) {
  const Integer one = Integer(1) << kGrowthBits;
  const auto times = [&](const Integer& a, const Integer& b) { return Up(a * b, -kGrowthBits); };
  Integer power = one + (one >> kPrecision), product = one;
  for (; h > 0; h >>= 1) {
    if ((h & 1) != 0) product = times(product, power);
    power = times(power, power);
  }
  return product;
}

// The largest float32 that is at most value * 2^unit; -FLT_MAX below all.
float Below(const Integer& value, int unit) {
  if (value == 0) return 0.0f;
  const int top = static_cast<int>(msb(Integer(abs(value)))) + unit;  // 2^top <= |value|
  const int step = std::max(top - (kPrecision - 1), kLeastUnit);
  // Rounded down; cpp_int shifts negative numbers right towards minus infinity.
  const Integer multiple =
      step >= unit ? Integer(value >> (step - unit)) : Integer(value << (unit - step));
  const auto significand = static_cast<double>(static_cast<int64_t>(multiple));
  return static_cast<float>(
      std::clamp(std::ldexp(significand, step), -double{FLT_MAX}, double{FLT_MAX}));
}
float Above(const Integer& value, int unit) { return -Below(-value, unit); }

// One channel of outputs.
class Channel {
 public:
  Channel(const Case& c, const Terms& terms, int64_t n)
      : c_(c),
        n_(n),
        codes_(IsCode(c.out_dtype)),
        x_most_(terms.x_most),
        w_most_(terms.w_most[static_cast<size_t>(n)]),
        sx_(exact::Decode(c.x_q.scale_at(0))),
        sw_(exact::Decode(c.w_q.scale_at(n))),
        sy_(codes_ ? exact::Decode(c.out_q.scale_at(0)) : Dyadic{1, 0}),
        bias_(c.bias ? exact::Decode((*c.bias)[static_cast<size_t>(n)]) : Dyadic{0, 0}) {
    // Doubles suffice where a factor of two does not matter: they hold any product of these.
    sx_size_ = c.x_q.scale_at(0);
    sw_size_ = c.w_q.scale_at(n);
    sy_size_ = codes_ ? c.out_q.scale_at(0) : 1.0;
    bias_size_ = c.bias ? std::abs((*c.bias)[static_cast<size_t>(n)]) : 0.0;
    gain_exponent_ = sx_.exponent + sw_.exponent;
    unit_ = std::min({gain_exponent_, bias_.exponent, kLeastUnit - 1}) - kGrowthBits;
    growth_ = Growth(Roundings());
  }

  FloatSum Judge(__int128 sum, __int128 size) const {
    if (MayOverflow(static_cast<double>(size)) || !ScalesAreTame()) return Everything();
    if (InWindow(size)) return Within(Value(sum), Integer(0), SumGrade::kWindow);
    return Within(Value(sum), Bound(size), SumGrade::kBound);
  }

 private:
  // The roundings that a term takes part in, in the deepest of the permitted computations.
  int64_t Roundings() const {
    constexpr int64_t kExact = int64_t{1} << kPrecision;
    // Operands that have more bits than a float32 are rounded when they become one.
    const int64_t converted = (x_most_ > kExact ? 1 : 0) + (w_most_ > kExact ? 1 : 0);
    const int64_t terms = c_.K + (c_.bias || c_.bias_i32 ? 1 : 0);
    // Twice a scale, and the product. Or: the conversion of a partial sum, the product of the
    // scales, and the product with it.
    int64_t roundings = converted + 3 + std::max<int64_t>(terms - 1, 0);
    // The reciprocal of the output's scale, and the product with it. A float bias may be divided by
    // the product of the scales first.
    if (codes_) roundings += 2 + (c_.bias ? 2 : 0);
    return roundings;
  }

  FloatSum Everything() const {
    if (!codes_) return {{-kInfinity, kInfinity}, SumGrade::kUndecided};
    const CodeRange range = RangeOf(c_.out_dtype);
    return {{static_cast<double>(range.min), static_cast<double>(range.max)}, SumGrade::kUndecided};
  }

  // Whether a number on the way, of whatever permitted computation, may leave float32. Only then
  // can a NaN arise, of infinities that cancel or meet a zero.
  bool MayOverflow(double size) const {
    const double gain = sx_size_ * sw_size_;
    const auto x = static_cast<double>(x_most_), w = static_cast<double>(w_most_);
    const double one = std::max({1.0, x, w, size});
    double most = std::max({x * sx_size_, w * sw_size_, size * sx_size_, size * sw_size_,
                            one * gain, size * gain + bias_size_});
    if (codes_)
      most = std::max({most, most / sy_size_, bias_size_ / gain + size, one * gain / sy_size_});
    const double growth = std::ldexp(static_cast<double>(growth_), -kGrowthBits);
    return !(most * growth < 0x1p127);
  }

  // Where outputs are codes, every product and quotient of scales has to be a normal float32: it
  // stands for the whole sum. (A small sum that is denormal before it is rounded is 0 in any case.)
  bool ScalesAreTame() const {
    if (!codes_) return true;
    const double gain = sx_size_ * sw_size_;
    const auto is_tame = [](double value) {
      return value >= std::ldexp(1.0, kNoUnderflow) && value <= 0x1p126;
    };
    return is_tame(gain) && is_tame(1 / sy_size_) && is_tame(gain / sy_size_) &&
           is_tame(sx_size_ / sy_size_) && is_tame(sw_size_ / sy_size_) && is_tame(sx_size_) &&
           is_tame(sw_size_);
  }

  Integer In(const Dyadic& value) const {
    return Integer(value.mantissa) << (value.exponent - unit_);
  }
  Integer Scaled(__int128 number) const {
    return (Integer(number) * sx_.mantissa * sw_.mantissa) << (gain_exponent_ - unit_);
  }
  Integer Value(__int128 sum) const { return Scaled(sum) + In(bias_); }

  // Whether all terms are multiples of a power of two that is so large that a float32 holds every
  // partial sum, whatever its order. Then operands, products and scales are exact too, where they
  // matter: each divides a term that is no zero.
  bool InWindow(__int128 size) const {
    const bool has_bias = bias_.mantissa != 0;
    if (size == 0 && !has_bias) return true;
    int unit = has_bias ? bias_.exponent : gain_exponent_;
    if (size != 0) unit = std::min(unit, gain_exponent_);
    if (unit < kLeastUnit) return false;
    if (Scaled(size) + abs(In(bias_)) > Integer(1) << (unit - unit_ + kPrecision)) return false;
    if (!codes_) return true;
    // Nothing but powers of two may divide, and no quotient of the bias may be denormal.
    if (sy_.mantissa != 1) return false;
    return !has_bias || (sx_.mantissa == 1 && sw_.mantissa == 1 &&
                         bias_.exponent - std::max(gain_exponent_, sy_.exponent) >= kLeastUnit);
  }

  Integer Bound(__int128 size) const {
    const Integer one = Integer(1) << kGrowthBits;
    Integer bound = Up((Scaled(size) + abs(In(bias_))) * (growth_ - one), -kGrowthBits);
    // A denormal product is off by up to half of the least float32. The terms multiply that of the
    // product of the scales; else there is one of each term. (The sum of two numbers is exact where
    // it is denormal, and so is the product with an integer.)
    Integer denormals = 0;  // in units of half of the least float32
    if (sx_size_ * sw_size_ < std::ldexp(1.0, kNoUnderflow)) denormals = Integer(size) + c_.K + 1;
    // Quotients of a float bias: by the scale of the output, and by the product of the scales.
    const Integer half = Integer(1) << (kLeastUnit - 1 - unit_);
    bound += Up(denormals * half * growth_, -kGrowthBits);
    if (codes_ && c_.bias) {
      const Integer scales = In(sy_) + Scaled(1);
      bound += Up(scales * growth_, kLeastUnit - 1 - kGrowthBits);
    }
    return bound;
  }

  FloatSum Within(const Integer& value, const Integer& bound, SumGrade grade) const {
    const Integer low = value - bound, high = value + bound;
    if (codes_) return {{CodeOf(low), CodeOf(high)}, grade};
    // A float32 lies in the interval if and only if it lies between these two.
    double least = Above(low, unit_), most = Below(high, unit_);
    if (c_.relu) {
      least = std::max(least, 0.0);
      most = std::max(most, 0.0);
    }
    return {{least, most}, grade};
  }

  // Rounding to integers rises, so the codes of an interval are those from the one of its lower end
  // to that of the upper one.
  double CodeOf(const Integer& value) const {
    Integer numerator = value, denominator = sy_.mantissa;
    const int shift = unit_ - sy_.exponent;
    (shift >= 0 ? numerator : denominator) <<= std::abs(shift);
    const Integer low = std::min<int64_t>(LowerBound(c_, n_), c_.out_max);
    const Integer code =
        exact::RoundHalfEven(Rational(numerator, denominator)) + c_.out_q.zero_point_at(n_);
    return static_cast<double>(std::clamp<Integer>(code, low, Integer(c_.out_max)));
  }

  const Case& c_;
  int64_t n_;
  bool codes_;
  int64_t x_most_, w_most_;
  Dyadic sx_, sw_, sy_, bias_;
  double sx_size_, sw_size_, sy_size_, bias_size_;
  int gain_exponent_ = 0;
  int unit_ = 0;  // Integers are multiples of 2^unit_
  Integer growth_;
};

std::vector<FloatSum> OfCodes(const Case& c) {
  std::vector<FloatSum> list;
  const std::vector<__int128> sums = exact::CorrectedSums(c);
  const Terms terms = TermsOf(c);
  std::vector<Channel> channels;
  for (int64_t n = 0; n < c.N; ++n) channels.emplace_back(c, terms, n);
  for (size_t i = 0; i < sums.size(); ++i)
    list.push_back(channels[i % channels.size()].Judge(sums[i], terms.sizes[i]));
  return list;
}

// dynamic_linear: its codes and its scale of x are those of the rule.
std::vector<FloatSum> OfRows(const Case& c) {
  std::vector<FloatSum> list;
  const int64_t rows = RowsShareQParams(c) ? std::max<int64_t>(c.M, 1) : 1;
  for (int64_t first = 0; first < c.M; first += rows) {
    const exact::ObservedRange range = exact::FiniteRange(
        c.x.as<float>().subspan(static_cast<size_t>(first * c.K), static_cast<size_t>(rows * c.K)));
    const exact::ChosenQParams chosen = exact::ChosenFor(c, range);
    Tensor codes = exact::Evaluate(exact::QuantizeOf(c, first, rows, chosen));
    std::ranges::copy(OfCodes(exact::SumsCaseOf(c, std::move(codes), chosen)),
                      std::back_inserter(list));
  }
  return list;
}

}  // namespace

bool HasFloatSums(Op op) { return HasWeights(op); }

std::string WhyNoFloatSums(const Case& c) {
  if (!HasFloatSums(c.op)) return "sum judges sums of products, not " + std::string(Name(c.op));
  if (c.out_dtype == DType::kS32) return "sum judges f32 outputs and codes; an s32 sum is exact";
  if (c.w_block != 0) return "sum knows no " + std::string(kInBlocks);
  if (c.requant != Requant::kExact)
    return "sum judges no requantization mode, which says the bits itself";
  return "";
}

std::vector<FloatSum> FloatSums(const Case& c) {
  QUALM_CHECK(WhyNoFloatSums(c).empty());
  return RowOf(c.op).dynamic ? OfRows(c) : OfCodes(c);
}

SumGrades CountGrades(const std::vector<FloatSum>& sums) {
  SumGrades counts;
  for (const FloatSum& sum : sums) {
    switch (sum.grade) {
      case SumGrade::kWindow: ++counts.window; break;
      case SumGrade::kBound: ++counts.bound; break;
      case SumGrade::kUndecided: ++counts.undecided; break;
    }
  }
  return counts;
}

}  // namespace qualm
