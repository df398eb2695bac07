// SPDX-License-Identifier: Apache-2.0
// The bound is the classical one: a term that takes part in h roundings reaches the result as
// t * (1+d_1) ... (1+d_h), |d| <= u = 2^-24, so that the sum is off by at most
// ((1+u)^h - 1) * sum |t|. A quotient divides by such factors; to nearest |d| <= u/(1+u), so
// 1/(1+d) lies within 1+-u too. Integers carry all of it, in units of a power of two below
// everything that occurs: nothing here is rounded but (1+u)^h, upwards.
#include "oracles/conventions/float_sums.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
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
  // Of each output: the sum of |x - zx| * |w - zw| + |bias_i32|, or of |x - zx| * (w + zw) where
  // these are apart; of weights in blocks one for each block.
  std::vector<__int128> sizes;
  int64_t x_most = 0;           // the largest |x - zx|
  std::vector<int64_t> w_most;  // of each channel, the largest |w - zw|, or w + zw
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

Terms TermsOf(const Case& c, Offsets offsets) {
  const exact::Reduction lists = exact::ReductionOf(c, 0);
  Terms terms;
  std::vector<int64_t> x(lists.x.size()), w(lists.w.size());
  const int64_t depth = lists.taps == 0 ? c.K : c.K / lists.taps;
  const auto [lowest, highest] = RangeOf(c.w.dtype());
  for (size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const bool inside =
        lists.taps == 0 ||
        lists.inside[static_cast<size_t>(at / c.K / lists.groups * lists.taps + at % c.K / depth)];
    const int64_t zx = c.x_q.zero_point[XEntry(c, at / c.K, at % c.K)] - int64_t{lists.x_offset};
    x[i] = inside ? std::abs(lists.x[i] - zx) : 0;  // real 0 in the padding
    terms.x_most = std::max(terms.x_most, x[i]);
  }
  for (int64_t n = 0; n < c.N; ++n) {
    int64_t& most = terms.w_most.emplace_back(0);
    for (int64_t i = n * c.K; i < (n + 1) * c.K; ++i) {
      const auto at = static_cast<size_t>(i);
      const size_t entry = WEntry(c, n, i - n * c.K);
      const int64_t zw = c.w_q.zero_point[entry];
      w[at] = offsets == Offsets::kFirst ? std::abs(lists.w[at] - zw)
                                         : lists.w[at] - lowest + std::abs(zw - lowest);
      if (offsets == Offsets::kApartFromEither)
        w[at] = std::max(w[at], highest - lists.w[at] + std::abs(zw - highest));
      most = std::max(most, w[at]);
    }
  }
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      const int64_t in_block = c.w_block == 0 ? c.K : c.w_block;
      for (int64_t k = 0; k == 0 || k < c.K; k += in_block) {
        terms.sizes.push_back(Dot(x.data() + lists.x_row(m, n) * c.K + k, w.data() + n * c.K + k,
                                  std::min(in_block, c.K - k), terms.x_most,
                                  terms.w_most[static_cast<size_t>(n)]));
        if (c.K == 0) break;
      }
      if (c.bias_i32)
        terms.sizes.back() += std::abs(int64_t{(*c.bias_i32)[static_cast<size_t>(n)]});
    }
  }
  return terms;
}

Integer Up(const Integer& value, int bits) {
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

// One channel of outputs, whose weights may lie in blocks with scales of their own. Where those of
// x do too: of row m alone.
class Channel {
 public:
  Channel(const Case& c, const Terms& terms, Offsets offsets, int64_t m, int64_t n)
      : c_(c),
        offsets_(offsets),
        n_(n),
        codes_(IsCode(c.out_dtype)),
        x_most_(terms.x_most),
        w_most_(terms.w_most[static_cast<size_t>(n)]),
        sy_(codes_ ? exact::Decode(c.out_q.scale_at(0)) : Dyadic{1, 0}),
        bias_(c.bias ? exact::Decode((*c.bias)[static_cast<size_t>(n)]) : Dyadic{0, 0}) {
    // Doubles suffice where a factor of two does not matter: they hold any product of these.
    sy_size_ = codes_ ? c.out_q.scale_at(0) : 1.0;
    bias_size_ = c.bias ? std::abs((*c.bias)[static_cast<size_t>(n)]) : 0.0;
    unit_ = std::min(bias_.exponent, kLeastUnit - 1);
    for (int64_t b = 0; b < RowBlocks(c); ++b) {
      const size_t entry = WEntry(c, n, b * c.w_block);
      const double sw = c.w_q.scale[entry], sx = c.x_q.scale[XEntry(c, m, b * c.w_block)];
      sw_.push_back(exact::Decode(static_cast<float>(sw)));
      sx_.push_back(exact::Decode(static_cast<float>(sx)));
      sw_least_ = std::min(sw_least_, sw);
      sw_most_ = std::max(sw_most_, sw);
      sx_most_ = std::max(sx_most_, sx);
      gain_least_ = std::min(gain_least_, sx * sw);
      gain_most_ = std::max(gain_most_, sx * sw);
      unit_ = std::min(unit_, GainExponent(static_cast<size_t>(b)));
    }
    unit_ -= kGrowthBits;
    growth_ = Growth(Roundings());
  }

  // The integers of each block.
  FloatSum Judge(std::span<const __int128> sums, std::span<const __int128> sizes) const {
    __int128 size = 0;
    for (const __int128 one : sizes) size += one;
    if (MayOverflow(static_cast<double>(size)) || !ScalesAreTame()) return Everything();
    const Integer value = Scaled(sums) + In(bias_), terms = Scaled(sizes) + abs(In(bias_));
    if (InWindow(sizes, terms)) return Within(value, Integer(0), SumGrade::kWindow);
    return Within(value, Bound(size, terms), SumGrade::kBound);
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
    // the product of the scales first, where there is one.
    if (codes_) roundings += 2 + (DividesBias() ? 2 : 0);
    // A block's sum of x is converted, and so is its zero point; then there are two scales as
    // above, and one term more of each block.
    if (offsets_ != Offsets::kFirst) roundings += 2 + RowBlocks(c_);
    return roundings;
  }

  FloatSum Everything() const {
    if (!codes_) return {{-kInfinity, kInfinity}, SumGrade::kUndecided};
    const CodeRange range = RangeOf(c_.out_dtype);
    return {{static_cast<double>(range.min), static_cast<double>(range.max)}, SumGrade::kUndecided};
  }

  bool DividesBias() const { return c_.bias && c_.w_block == 0; }

  // Whether a number on the way, of whatever permitted computation, may leave float32. Only then
  // can a NaN arise, of infinities that cancel or meet a zero.
  bool MayOverflow(double size) const {
    const double gain = gain_most_;
    const auto x = static_cast<double>(x_most_), w = static_cast<double>(w_most_);
    const double one = std::max({1.0, x, w, size});
    double most = std::max({x * sx_most_, w * sw_most_, size * sx_most_, size * sw_most_,
                            one * gain, size * gain + bias_size_});
    if (codes_) {
      most = std::max({most, most / sy_size_, one * gain / sy_size_});
      if (DividesBias()) most = std::max(most, bias_size_ / gain + size);
    }
    const double growth = std::ldexp(static_cast<double>(growth_), -kGrowthBits);
    return !(most * growth < 0x1p127);
  }

  // Where outputs are codes, every product and quotient of scales has to be a normal float32: it
  // stands for the whole sum. (A small sum that is denormal before it is rounded is 0 in any case.)
  bool ScalesAreTame() const {
    if (!codes_) return true;
    const auto is_tame = [](double value) {
      return value >= std::ldexp(1.0, kNoUnderflow) && value <= 0x1p126;
    };
    for (const double sw : {sw_least_, sw_most_}) {
      const double gain = sx_most_ * sw;
      if (!is_tame(gain) || !is_tame(gain / sy_size_) || !is_tame(sw / sy_size_) || !is_tame(sw))
        return false;
    }
    return is_tame(1 / sy_size_) && is_tame(sx_most_ / sy_size_) && is_tame(sx_most_);
  }

  Integer In(const Dyadic& value) const {
    return Integer(value.mantissa) << (value.exponent - unit_);
  }
  int GainExponent(size_t b) const { return sx_[b].exponent + sw_[b].exponent; }
  // The sum of the blocks' integers, each times its scales.
  Integer Scaled(std::span<const __int128> numbers) const {
    Integer sum = 0;
    for (size_t b = 0; b < sw_.size(); ++b) {
      sum += (Integer(numbers[b]) * sx_[b].mantissa * sw_[b].mantissa) << (GainExponent(b) - unit_);
    }
    return sum;
  }

  // Whether all terms are multiples of a power of two that is so large that a float32 holds every
  // partial sum, whatever its order. Then operands, products and scales are exact too, where they
  // matter: each divides a term that is no zero. `terms`: the sum of their magnitudes.
  bool InWindow(std::span<const __int128> sizes, const Integer& terms) const {
    const bool has_bias = bias_.mantissa != 0;
    if (terms == 0) return true;
    int unit = has_bias ? bias_.exponent : INT32_MAX;
    for (size_t b = 0; b < sw_.size(); ++b) {
      if (sizes[b] != 0) unit = std::min(unit, GainExponent(b));
    }
    if (unit < kLeastUnit) return false;
    if (terms > Integer(1) << (unit - unit_ + kPrecision)) return false;
    if (!codes_) return true;
    // Nothing but powers of two may divide, and no quotient of the bias may be denormal.
    if (sy_.mantissa != 1) return false;
    if (!has_bias) return true;
    if (!DividesBias()) return bias_.exponent - sy_.exponent >= kLeastUnit;
    return sx_[0].mantissa == 1 && sw_[0].mantissa == 1 &&
           bias_.exponent - std::max(GainExponent(0), sy_.exponent) >= kLeastUnit;
  }

  // `size`: of all blocks; `terms`: the sum of the magnitudes of the terms.
  Integer Bound(__int128 size, const Integer& terms) const {
    const Integer one = Integer(1) << kGrowthBits;
    Integer bound = Up(terms * (growth_ - one), -kGrowthBits);
    // A denormal product is off by up to half of the least float32. The terms multiply that of the
    // product of the scales; else there is one of each term. (The sum of two numbers is exact where
    // it is denormal, and so is the product with an integer.)
    Integer denormals = 0;  // in units of half of the least float32
    if (gain_least_ < std::ldexp(1.0, kNoUnderflow)) denormals = Integer(size) + c_.K + 1;
    // Quotients of a float bias: by the scale of the output, and by the product of the scales.
    const Integer half = Integer(1) << (kLeastUnit - 1 - unit_);
    bound += Up(denormals * half * growth_, -kGrowthBits);
    if (codes_ && c_.bias) {
      Integer scales = In(sy_);
      if (DividesBias()) scales += Scaled(std::array<__int128, 1>{1});
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
  Offsets offsets_;
  int64_t n_;
  bool codes_;
  int64_t x_most_, w_most_;
  std::vector<Dyadic> sx_, sw_;  // of each block; without blocks one
  Dyadic sy_, bias_;
  double sy_size_, bias_size_;
  double sw_least_ = kInfinity, sw_most_ = 0, sx_most_ = 0;
  double gain_least_ = kInfinity, gain_most_ = 0;  // of the products of a block's scales
  int unit_ = 0;                                   // Integers are multiples of 2^unit_
  Integer growth_;
};

std::vector<FloatSum> OfCodes(const Case& c, Offsets offsets) {
  std::vector<FloatSum> list;
  const std::vector<__int128> sums = c.w_block == 0 ? exact::CorrectedSums(c) : exact::BlockSums(c);
  const Terms terms = TermsOf(c, offsets);
  std::vector<Channel> channels;
  const int64_t rows = c.x_block == 0 ? 1 : c.M;
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < c.N; ++n) channels.emplace_back(c, terms, offsets, m, n);
  }
  const auto blocks = static_cast<size_t>(RowBlocks(c));
  for (size_t at = 0; at < sums.size(); at += blocks) {
    list.push_back(channels[at / blocks % channels.size()].Judge(
        std::span(sums).subspan(at, blocks), std::span(terms.sizes).subspan(at, blocks)));
  }
  return list;
}

// dynamic_linear: its codes and its scale of x are those of the rule.
std::vector<FloatSum> OfRows(const Case& c, Offsets offsets) {
  std::vector<FloatSum> list;
  const int64_t rows = RowsShareQParams(c) ? std::max<int64_t>(c.M, 1) : 1;
  for (int64_t first = 0; first < c.M; first += rows) {
    const exact::ObservedRange range = exact::FiniteRange(
        c.x.as<float>().subspan(static_cast<size_t>(first * c.K), static_cast<size_t>(rows * c.K)));
    const exact::ChosenQParams chosen = exact::ChosenFor(c, range);
    Tensor codes = exact::Evaluate(exact::QuantizeOf(c, first, rows, chosen));
    std::ranges::copy(OfCodes(exact::SumsCaseOf(c, std::move(codes), chosen), offsets),
                      std::back_inserter(list));
  }
  return list;
}

// A positive double as an integer of units of 2^unit, which divides it.
Integer InUnits(double value, int unit) {
  int exponent = 0;
  const auto significand = static_cast<int64_t>(std::ldexp(std::frexp(value, &exponent), 53));
  return significand == 0 ? Integer(0) : Integer(significand) << (exponent - 53 - unit);
}

// The outputs of a linear of f32 x. Its terms are x * (w - zw) * sw.
class FloatOutputs {
 public:
  explicit FloatOutputs(const Case& c)
      : c_(c),
        sums_(exact::SumsOfFloats(c)),
        sizes_(exact::SumsOfFloats(c, exact::Signs::kDropped)) {
    for (const float value : c.x.as<float>()) {
      const Dyadic number = exact::Decode(value);
      x_.push_back({std::abs(double{value}), number.exponent});
    }
    for (int64_t i = 0; i < c.N * c.K; ++i) {
      const auto entry = WEntry(c, i / c.K, i % c.K);
      w_.push_back(std::abs(static_cast<double>(c.w.IntAt(i)) - c.w_q.zero_point[entry]));
    }
    for (const float scale : c.w_q.scale) scales_.push_back(exact::Decode(scale));
  }

  FloatSum Judge(int64_t m, int64_t n) const {
    const Extent extent = ExtentOf(m, n);
    const Dyadic bias = c_.bias ? exact::Decode((*c_.bias)[static_cast<size_t>(n)]) : Dyadic{};
    const Integer growth = Growth(Roundings(extent));
    const Integer offset = Integer(bias.mantissa) << (bias.exponent - kUnit);
    const Integer value = Total(sums_, m, n) + offset, terms = Total(sizes_, m, n) + abs(offset);
    const double most = std::max(extent.most, std::ldexp(static_cast<double>(terms), kUnit));
    if (!(most * std::ldexp(static_cast<double>(growth), -kGrowthBits) < 0x1p127))
      return {{-kInfinity, kInfinity}, SumGrade::kUndecided};
    const int unit = bias.mantissa == 0 ? extent.unit : std::min(extent.unit, bias.exponent);
    const bool window =
        terms == 0 || (unit >= kLeastUnit && terms <= Integer(1) << (unit - kUnit + kPrecision));
    if (window) return Between(value, 0, SumGrade::kWindow);
    const Integer one = Integer(1) << kGrowthBits;
    // Each half of the least float32 by which a denormal number on the way may be off.
    const Integer halves = InUnits(std::ldexp(extent.denormals, kLeastUnit - 1), kUnit);
    const Integer bound = Up(terms * (growth - one) + halves * growth, -kGrowthBits);
    return Between(value, bound, SumGrade::kBound);
  }

 private:
  struct Factor {
    double size;
    int exponent;
  };
  struct Extent {
    double most = 0;       // the largest magnitude on the way
    double w_most = 0;     // of these w - zw
    int unit = INT32_MAX;  // every term is a multiple of 2^unit
    // Errors of denormal products, times what they are multiplied by, in halves of the least
    // float32.
    double denormals = 0;
  };

  // Below everything: products of the least x and the least scale.
  static constexpr int kUnit = 2 * kLeastUnit - kGrowthBits;

  // The product with a weight that has been multiplied by its scale. Or: the product with an
  // integer, and that with the scale, of each or of the sum of a block.
  int64_t Roundings(const Extent& extent) const {
    const int64_t terms = c_.K + (c_.bias ? 1 : 0);
    const bool converted = extent.w_most > std::ldexp(1.0, kPrecision);
    return 2 + (converted ? 1 : 0) + std::max<int64_t>(terms - 1, 0);
  }

  Extent ExtentOf(int64_t m, int64_t n) const {
    Extent extent;
    const double least = std::ldexp(1.0, kNoUnderflow);
    double in_block = 0;  // sum of |x| * |w - zw|
    size_t block = SIZE_MAX;
    for (int64_t k = 0; k < c_.K; ++k) {
      const Factor& x = x_[static_cast<size_t>(m * c_.K + k)];
      const double w = w_[static_cast<size_t>(n * c_.K + k)];
      const size_t entry = WEntry(c_, n, k);
      const double scale = c_.w_q.scale[entry];
      if (entry != block) in_block = 0;
      block = entry;
      in_block += x.size * w;
      extent.w_most = std::max(extent.w_most, w);
      extent.most = std::max({extent.most, in_block, x.size * scale, w * scale});
      if (x.size == 0 || w == 0) continue;
      extent.unit = std::min(extent.unit, x.exponent + scales_[entry].exponent);
      extent.denormals += (w * scale < least ? x.size : 0) + (x.size * scale < least ? w : 0) +
                          (x.size * w < least ? scale : 0) + (x.size * w * scale < least ? 1 : 0);
    }
    extent.denormals *= 1 + 0x1p-20;  // more than the roundings of this sum take away
    return extent;
  }

  // Of all blocks, in units of 2^kUnit.
  Integer Total(const exact::FloatBlockSums& sums, int64_t m, int64_t n) const {
    Integer total = 0;
    const int64_t blocks = RowBlocks(c_);
    auto at = static_cast<size_t>((m * c_.N + n) * blocks * sums.levels);
    for (int64_t block = 0; block < blocks; ++block) {
      const Dyadic& scale = scales_[WEntry(c_, n, block * c_.w_block)];
      for (int level = 0; level < sums.levels; ++level, ++at) {
        if (sums.values[at] == 0) continue;
        total +=
            (Integer(sums.values[at]) * scale.mantissa)
            << (sums.unit + level * exact::FloatBlockSums::kLevelBits + scale.exponent - kUnit);
      }
    }
    return total;
  }

  FloatSum Between(const Integer& value, const Integer& bound, SumGrade grade) const {
    const double lowest = c_.relu ? 0 : -kInfinity;
    return {{std::max<double>(Above(value - bound, kUnit), lowest),
             std::max<double>(Below(value + bound, kUnit), lowest)},
            grade};
  }

  const Case& c_;
  exact::FloatBlockSums sums_, sizes_;
  std::vector<Factor> x_;
  std::vector<double> w_;
  std::vector<Dyadic> scales_;
};

std::vector<FloatSum> OfFloats(const Case& c) {
  const FloatOutputs outputs(c);
  std::vector<FloatSum> list;
  for (int64_t i = 0; i < c.M * c.N; ++i) list.push_back(outputs.Judge(i / c.N, i % c.N));
  return list;
}

}  // namespace

bool HasFloatSums(Op op) { return HasWeights(op); }

Offsets OffsetsOf(const Contract& contract) {
  return contract.offsets ? Offsets::kApart : Offsets::kFirst;
}

std::string WhyNoFloatSums(const Case& c, Offsets offsets) {
  if (!HasFloatSums(c.op)) return "sum judges sums of products, not " + std::string(Name(c.op));
  if (c.out_dtype == DType::kS32) return "sum judges f32 outputs and codes; an s32 sum is exact";
  if (c.requant != Requant::kExact)
    return "sum judges no requantization mode, which says the bits itself";
  if (offsets != Offsets::kFirst && HasFloatX(c))
    return "sum+offsets judges codes of x; f32 x has no sum that is exact";
  return "";
}

std::vector<FloatSum> FloatSums(const Case& c, Offsets offsets) {
  QUALM_CHECK(WhyNoFloatSums(c, offsets).empty());
  if (HasFloatX(c)) return OfFloats(c);
  return RowOf(c.op).dynamic ? OfRows(c, offsets) : OfCodes(c, offsets);
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
