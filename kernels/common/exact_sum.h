// SPDX-License-Identifier: Apache-2.0
// Exact sums of dyadic numbers: what decides a rounding that floating point cannot. Internal to
// kernels/.
//
// All terms of our operations are integers times powers of two: float32 scales and biases, and
// integer sums. A fixed-point number wide enough for all of them (the idea of Kulisch's long
// accumulator) adds them without error, and then the sign of the sum is the comparison, and its
// leading bits are the correctly rounded float32. Slow (tens of nanoseconds), so only used for the
// few elements whose double approximation lies too close to a rounding boundary.
#ifndef QUALM_KERNELS_COMMON_EXACT_SUM_H_
#define QUALM_KERNELS_COMMON_EXACT_SUM_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace qualm::kernels::internal {

// value = mantissa * 2^exponent, exactly. |mantissa| < 2^24, exponent >= -149. `value` is finite.
struct Dyadic {
  int64_t mantissa;
  int exponent;
};
inline Dyadic ToDyadic(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const int biased = static_cast<int>((bits >> 23) & 0xFF);
  const int64_t fraction = bits & 0x7FFFFF;
  const int64_t magnitude = biased == 0 ? fraction : fraction | 0x800000;
  return {bits >> 31 ? -magnitude : magnitude, biased == 0 ? -149 : biased - 150};
}

class ExactSum {
 public:
  // Adds value * 2^exponent, exponent >= kLowestExponent. The sum must stay below 2^446 in
  // magnitude: a 128-bit sum times two float32 scales is below 2^384.
  void Add(__int128 value, int exponent) {
    const int position = exponent - kLowestExponent;
    const int first = position / 64;
    const int shift = position % 64;
    const uint64_t fill = value < 0 ? ~uint64_t{0} : 0;
    const uint64_t low = static_cast<uint64_t>(value);
    const uint64_t high = static_cast<uint64_t>(value >> 64);
    const uint64_t digits[3] = {
        low << shift,
        shift == 0 ? high : (high << shift) | (low >> (64 - shift)),
        shift == 0 ? fill : (fill << shift) | (high >> (64 - shift)),
    };
    uint64_t carry = 0;
    for (int i = first; i < kLimbs; ++i) {
      const uint64_t digit = i - first < 3 ? digits[i - first] : fill;
      const unsigned __int128 sum = static_cast<unsigned __int128>(limbs_[i]) + digit + carry;
      limbs_[i] = static_cast<uint64_t>(sum);
      carry = static_cast<uint64_t>(sum >> 64);
    }
  }

  // Adds sum * a * b.
  void AddProduct(__int128 sum, float a, float b) {
    const Dyadic da = ToDyadic(a);
    const Dyadic db = ToDyadic(b);
    const __int128 product = static_cast<__int128>(da.mantissa) * db.mantissa;  // 48 bits
    const int exponent = da.exponent + db.exponent;
    // Two halves, so that each partial product stays below 2^113.
    Add(product * static_cast<int64_t>(sum >> 64), exponent + 64);
    Add(product * static_cast<uint64_t>(sum), exponent);
  }

  // Adds multiple * value / 2. |multiple| < 2^103.
  void AddHalves(__int128 multiple, float value) {
    const Dyadic d = ToDyadic(value);
    Add(multiple * d.mantissa, d.exponent - 1);
  }

  // -1, 0 or 1.
  int Sign() const {
    if (limbs_[kLimbs - 1] >> 63) return -1;
    for (const uint64_t limb : limbs_) {
      if (limb != 0) return 1;
    }
    return 0;
  }

  // Rounded once to float32, half to even, with gradual underflow; overflow gives infinity, an
  // exact zero +0, and a negative sum that underflows -0.
  float ToFloat() const {
    const int sign = Sign();
    if (sign == 0) return 0.0f;
    ExactSum magnitude = *this;
    if (sign < 0) magnitude.Negate();
    const int top = magnitude.TopBit();
    constexpr int kLowestBit = -149 - kLowestExponent;  // of a denormal float32
    const int last = top - 23 > kLowestBit ? top - 23 : kLowestBit;
    uint32_t kept = 0;
    for (int i = top; i >= last; --i) kept = kept * 2 + magnitude.Bit(i);
    const bool half = last > 0 && magnitude.Bit(last - 1) != 0;
    if (half && (kept % 2 != 0 || magnitude.AnyBitBelow(last - 1))) ++kept;
    // kept <= 2^24, so both the conversion and the scaling are exact, or overflow as they should.
    const float result = std::ldexp(static_cast<float>(kept), last + kLowestExponent);
    return sign < 0 ? -result : result;
  }

 private:
  // Two scales have exponents >= -149 each; half a scale -150.
  static constexpr int kLowestExponent = -320;
  static constexpr int kLimbs = 12;

  uint32_t Bit(int i) const { return static_cast<uint32_t>(limbs_[i / 64] >> (i % 64)) & 1; }
  bool AnyBitBelow(int i) const {
    for (int k = 0; k < i / 64; ++k) {
      if (limbs_[k] != 0) return true;
    }
    return (limbs_[i / 64] & ((uint64_t{1} << (i % 64)) - 1)) != 0;
  }
  int TopBit() const {
    for (int k = kLimbs - 1; k > 0; --k) {
      if (limbs_[k] != 0) return 64 * k + 63 - std::countl_zero(limbs_[k]);
    }
    return 63 - std::countl_zero(limbs_[0]);
  }
  void Negate() {
    uint64_t carry = 1;
    for (uint64_t& limb : limbs_) {
      limb = ~limb + carry;
      carry = carry != 0 && limb == 0 ? 1 : 0;
    }
  }

  uint64_t limbs_[kLimbs] = {};  // two's complement, least significant first
};

// RNE(v) where that lies in [lo, hi]: `side(n)` is the sign of v - (n + 1/2).
template <class Side>
int64_t RoundBetween(int64_t lo, int64_t hi, const Side& side) {
  while (lo < hi) {
    const int64_t middle = lo + (hi - lo) / 2;
    const int sign = side(middle);
    if (sign > 0 || (sign == 0 && middle % 2 != 0)) {
      lo = middle + 1;
    } else {
      hi = middle;
    }
  }
  return lo;
}

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_COMMON_EXACT_SUM_H_
