// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/arithmetic/real.h"

#include <mpfr.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "core/status.h"

namespace qualm::exact {
namespace {

// MPFR keeps constants per thread; a thread that ends gives them back.
struct ThreadCache {
  ~ThreadCache() { mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE); }
};
void GiveBackAtTheEnd() { static thread_local const ThreadCache cache; }

class Number {
 public:
  explicit Number(int precision) { mpfr_init2(value_, precision); }
  ~Number() { mpfr_clear(value_); }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  mpfr_ptr get() { return value_; }

 private:
  mpfr_t value_;
};

class BigInteger {
 public:
  BigInteger() { mpz_init(value_); }
  ~BigInteger() { mpz_clear(value_); }
  BigInteger(const BigInteger&) = delete;
  BigInteger& operator=(const BigInteger&) = delete;
  mpz_ptr get() { return value_; }

 private:
  mpz_t value_;
};

// x * 2^scale is the integer whose precision the result has: exact.
void SetExactly(const Rational& x, Number* number) {
  BigInteger mantissa;
  const Integer p = numerator(x);
  const Integer q = denominator(x);
  const int exponent = -static_cast<int>(msb(q));
  QUALM_CHECK(PowerOfTwo(-exponent) == Rational(q));
  QUALM_CHECK(mpz_set_str(mantissa.get(), p.str().c_str(), 10) == 0);
  QUALM_CHECK(mpfr_set_z_2exp(number->get(), mantissa.get(), exponent, MPFR_RNDN) == 0);
}

Rational Exactly(Number& number) {
  BigInteger mantissa;
  const auto exponent = static_cast<int>(mpfr_get_z_2exp(mantissa.get(), number.get()));
  char* const text = mpz_get_str(nullptr, 10, mantissa.get());
  const Integer p((std::string(text)));
  void (*release)(void*, size_t) = nullptr;
  mp_get_memory_functions(nullptr, nullptr, &release);
  release(text, std::char_traits<char>::length(text) + 1);
  return Rational(p) * PowerOfTwo(exponent);
}

// f(x) rounded in one direction, every step on the safe side.
Rational Bound(RealFunction function, Number& x, int precision, bool up) {
  const mpfr_rnd_t outward = up ? MPFR_RNDU : MPFR_RNDD;
  const mpfr_rnd_t inward = up ? MPFR_RNDD : MPFR_RNDU;
  Number y(precision);
  switch (function) {
    case RealFunction::kExp: mpfr_exp(y.get(), x.get(), outward); break;
    case RealFunction::kTanh: mpfr_tanh(y.get(), x.get(), outward); break;
    case RealFunction::kSigmoid: {  // 1 / (1 + e^-x)
      Number minus(static_cast<int>(mpfr_get_prec(x.get())));
      mpfr_neg(minus.get(), x.get(), MPFR_RNDN);
      mpfr_exp(y.get(), minus.get(), inward);
      mpfr_add_ui(y.get(), y.get(), 1, inward);
      mpfr_ui_div(y.get(), 1, y.get(), outward);
      break;
    }
  }
  return Exactly(y);
}

// Beyond this magnitude the exponentials are not computed: e^-2000 < 2^-2048.
constexpr int kFarAway = 2000;

Enclosure FarAway(RealFunction function, bool negative) {
  const Rational nearly = PowerOfTwo(-2048);
  if (function == RealFunction::kTanh) {
    // 1 - tanh(x) < 2 e^-2x
    return negative ? Enclosure{-1, nearly - 1} : Enclosure{1 - nearly, 1};
  }
  if (negative) return {0, nearly};
  QUALM_CHECK(function == RealFunction::kSigmoid);  // e^x of large x is not needed
  return {1 - nearly, 1};
}

// While it lives MPFR has the exponents of T alone: what it rounds is rounded once, denormals too.
template <class T>
class ExponentsOf {
 public:
  ExponentsOf() {
    using Limits = std::numeric_limits<T>;
    mpfr_set_emin(Limits::min_exponent - Limits::digits + 1);
    mpfr_set_emax(Limits::max_exponent);
  }
  ~ExponentsOf() {
    mpfr_set_emin(least_);
    mpfr_set_emax(most_);
  }
  ExponentsOf(const ExponentsOf&) = delete;
  ExponentsOf& operator=(const ExponentsOf&) = delete;

 private:
  mpfr_exp_t least_ = mpfr_get_emin(), most_ = mpfr_get_emax();
};

using MpfrFunction = int(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t rounding);

template <MpfrFunction kFunction, class T>
T Nearest(T x) {
  GiveBackAtTheEnd();
  constexpr int kDigits = std::numeric_limits<T>::digits;
  Number argument(kDigits), y(kDigits);
  mpfr_set_d(argument.get(), static_cast<double>(x), MPFR_RNDN);
  const ExponentsOf<T> exponents;
  const int inexact = kFunction(y.get(), argument.get(), MPFR_RNDN);
  mpfr_subnormalize(y.get(), inexact, MPFR_RNDN);
  return static_cast<T>(mpfr_get_d(y.get(), MPFR_RNDN));
}

// MPFR takes microseconds, and a convention asks for the number of a code when it refuses the case,
// when it runs it and when it explains it.
template <MpfrFunction kFunction, class T>
T Remembered(T x) {
  using Bits = std::conditional_t<sizeof(T) == sizeof(uint32_t), uint32_t, uint64_t>;
  struct Known {
    bool is_known = false;
    Bits x = 0;
    T y = 0;
  };
  constexpr int kLogSize = 10;
  static thread_local std::array<Known, 1 << kLogSize> all;
  const auto bits = std::bit_cast<Bits>(x);
  Known& known = all[(uint64_t{bits} * 0x9E3779B97F4A7C15u) >> (64 - kLogSize)];
  if (!known.is_known || known.x != bits) known = {true, bits, Nearest<kFunction>(x)};
  return known.y;
}

}  // namespace

float RoundedExp(float x) { return Remembered<mpfr_exp>(x); }
double RoundedExp(double x) { return Remembered<mpfr_exp>(x); }
float RoundedTanh(float x) { return Remembered<mpfr_tanh>(x); }
double RoundedTanh(double x) { return Remembered<mpfr_tanh>(x); }
float RoundedLog(float x) { return Remembered<mpfr_log>(x); }
double RoundedLog(double x) { return Remembered<mpfr_log>(x); }

Enclosure Enclose(RealFunction function, const Rational& x, int precision) {
  if (x == 0) {
    const Rational at_zero = function == RealFunction::kTanh  ? Rational(0)
                             : function == RealFunction::kExp ? Rational(1)
                                                              : Rational(1, 2);
    return {at_zero, at_zero};
  }
  if (abs(x) > kFarAway) return FarAway(function, x < 0);
  GiveBackAtTheEnd();
  const Integer mantissa = abs(numerator(x));
  Number exact(std::max(2, static_cast<int>(msb(mantissa)) + 1));
  SetExactly(x, &exact);
  return {Bound(function, exact, precision, false), Bound(function, exact, precision, true)};
}

Integer RoundReal(RealFunction function, const Rational& x, const Rational& factor) {
  if (x == 0) return RoundHalfEven(Enclose(function, x, 64).lo * factor);
  const Rational half(1, 2);
  for (int precision = 64;; precision *= 2) {
    QUALM_CHECK(precision <= 1 << 20);
    const Enclosure value = Enclose(function, x, precision);
    // Strictly between its bounds: at a lower bound that is a tie it rounds up, at an upper one
    // down.
    const Integer least = Floor(value.lo * factor + half);
    const Integer most = -Floor(half - value.hi * factor);
    if (least == most) return least;
  }
}

}  // namespace qualm::exact
