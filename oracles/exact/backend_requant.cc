// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/backend_requant.h"

#include <algorithm>
#include <bit>

#include "core/status.h"
#include "oracles/exact/arithmetic/dyadic.h"

namespace qualm::exact {
namespace {

using UWide = unsigned __int128;

// magnitude * 2^exponent, >= 0.
struct Number {
  UWide magnitude = 0;
  int exponent = 0;
};

int BitLength(UWide value) {
  const auto high = static_cast<uint64_t>(value >> 64);
  if (high != 0) return 128 - std::countl_zero(high);
  return 64 - std::countl_zero(static_cast<uint64_t>(value));
}

// Half to even to `bits` significant bits and multiples of 2^least.
Number RoundTo(Number n, int bits, int least) {
  if (n.magnitude == 0) return {};
  const int drop = std::max(BitLength(n.magnitude) - bits, least - n.exponent);
  if (drop <= 0) return n;
  if (drop > BitLength(n.magnitude)) return {0, 0};  // below half of the last place
  const UWide half = UWide{1} << (drop - 1);
  const UWide rest = n.magnitude & ((half << 1) - 1);
  // 127 bits at most, so that the shift by a whole 128 cannot happen.
  UWide kept = n.magnitude >> drop;
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  return {kept, n.exponent + drop};
}

Number ToFloat32(Number n) { return RoundTo(n, 24, -149); }

Number Product(const Number& a, const Number& b) {
  return {a.magnitude * b.magnitude, a.exponent + b.exponent};
}

// a / b, truncated to more than 55 bits. a has 48 bits at most, b 24. What is cut off can make a
// tie of a value just above one, and that changes no multiplier: a quotient of two float32 is no
// such value (it differs from every number of 25 bits by 2^-49 of it or more), and where 53 bits
// are rounded to 31, half away, the tie below the half of 31 bits goes up to it, which is even.
Number Quotient(const Number& a, const Number& b) {
  return {(a.magnitude << 79) / b.magnitude, a.exponent - 79 - b.exponent};
}

Number Exactly(float value) {
  const Dyadic d = Decode(value);
  return {static_cast<UWide>(d.mantissa), d.exponent};
}

bool Overflows(const Number& n) { return BitLength(n.magnitude) + n.exponent > 128; }

int64_t Wrapped(int64_t value) { return static_cast<int32_t>(static_cast<uint32_t>(value)); }

}  // namespace

BackendRequant::BackendRequant(const Case& c, int64_t channel)
    : mode_(c.requant), zero_point_(c.out_q.zero_point_at(0)) {
  QUALM_CHECK(mode_ != Requant::kExact);
  Number multiplier;
  if (!c.multiplier.empty()) {
    multiplier = Exactly(c.multiplier[c.multiplier.size() == 1 ? 0 : static_cast<size_t>(channel)]);
  } else {
    multiplier = Product(Exactly(c.x_q.scale_at(0)), Exactly(c.w_q.scale_at(channel)));
    if (mode_ != Requant::kFixedQ31) {
      multiplier = ToFloat32(multiplier);
      infinite_ = Overflows(multiplier);
    }
    multiplier = Quotient(multiplier, Exactly(c.out_q.scale_at(0)));
  }
  if (mode_ == Requant::kFixedQ31) {
    multiplier = RoundTo(multiplier, 53, INT32_MIN / 2);
    // To 31 bits, half away from zero.
    const UWide wide = multiplier.magnitude << 31;  // of more than 31 bits
    const int drop = BitLength(wide) - 31;
    multiplier = {(wide + (UWide{1} << (drop - 1))) >> drop, multiplier.exponent - 31 + drop};
    if (BitLength(multiplier.magnitude) == 32) {
      multiplier.magnitude >>= 1;
      ++multiplier.exponent;
    }
    // Below 2^-32 there is no shift for it.
    if (multiplier.exponent + 31 < -31) multiplier = {};
  } else {
    multiplier = ToFloat32(multiplier);
    infinite_ = infinite_ || Overflows(multiplier);
    // The bits of infinity, read as those of a number.
    if (infinite_) multiplier = {1, 128};
  }
  mantissa_ = static_cast<int64_t>(multiplier.magnitude);
  exponent_ = multiplier.exponent;
}

int64_t BackendRequant::Float32(int64_t sum) const {
  if (infinite_) return INT32_MIN;  // infinity, or 0 * infinity, which is NaN
  const bool negative = sum < 0;
  const Number real = ToFloat32({static_cast<UWide>(negative ? -sum : sum), 0});
  const Number product = ToFloat32(Product(real, {static_cast<UWide>(mantissa_), exponent_}));
  if (BitLength(product.magnitude) + product.exponent > 31) return INT32_MIN;
  const Number whole = RoundTo(product, 128, 0);  // what has 24 bits does not round up to 2^31
  const auto integer = static_cast<int64_t>(whole.magnitude << whole.exponent);
  return negative ? -integer : integer;
}

int64_t BackendRequant::FixedQ31(int64_t sum) const {
  const int shift = exponent_ + 31;
  const int left = std::clamp(shift, 0, 32);  // 32: nothing is left
  const int64_t shifted = Wrapped(sum * (int64_t{1} << left));
  const int64_t high = (shifted * mantissa_ + (int64_t{1} << 30)) >> 31;
  const int right = std::max(-shift, 0);
  const int64_t mask = (int64_t{1} << right) - 1;
  const int64_t threshold = (mask >> 1) + (high < 0 ? 1 : 0);
  return (high >> right) + ((high & mask) > threshold ? 1 : 0);
}

int64_t BackendRequant::FixedRndnu(int64_t sum) const {
  // The multiplier as q * 2^(-31 - shift), q of 31 bits.
  const int up = 31 - BitLength(static_cast<UWide>(mantissa_));
  const int64_t q = mantissa_ << up;
  const int shift = -31 - (exponent_ - up);
  const int right = std::clamp(shift, 1, 32);     // 32: nothing is left
  const int left = std::clamp(1 - shift, 0, 32);  // 32: all but 0 saturate
  const int64_t shifted = std::clamp<int64_t>(sum * (int64_t{1} << left), INT32_MIN, INT32_MAX);
  const int64_t high = (shifted * q) >> 31;
  return (high + (int64_t{1} << (right - 1))) >> right;
}

int64_t BackendRequant::CodeOf(__int128 sum) const {
  const auto fitting = static_cast<int64_t>(std::clamp<__int128>(sum, INT32_MIN, INT32_MAX));
  switch (mode_) {
    case Requant::kFloat32: return Float32(fitting) + zero_point_;
    case Requant::kFixedQ31: return Wrapped(FixedQ31(fitting) + zero_point_);
    case Requant::kFixedRndnu: return FixedRndnu(fitting) + zero_point_;
    case Requant::kExact: break;
  }
  QUALM_CHECK(!"an exact mode has no backend");
  return 0;
}

}  // namespace qualm::exact
