// SPDX-License-Identifier: Apache-2.0
// Real functions: MPFR's enclosures and those in fixed point, each against known digits and against
// the other.
#include "oracles/exact/arithmetic/real.h"

#include <gmp.h>
#include <gtest/gtest.h>
#include <mpfr.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <thread>

#include "core/rng.h"
#include "oracles/exact/arithmetic/fixed_point.h"

namespace qualm::exact {
namespace {

// A decimal fraction as a rational.
Rational Digits(const char* text) {
  std::string digits(text);
  const size_t point = digits.find('.');
  const auto decimals = static_cast<unsigned>(digits.size() - point - 1);
  digits.erase(point, 1);
  const size_t first = digits.find_first_not_of('0');
  return Rational(Integer(digits.substr(first)), boost::multiprecision::pow(Integer(10), decimals));
}

void ExpectEncloses(const Enclosure& enclosure, const char* digits, const char* unit) {
  EXPECT_LT(enclosure.lo, Rational(Digits(digits) + Digits(unit))) << digits;
  EXPECT_GT(enclosure.hi, Digits(digits)) << digits;
  EXPECT_LT(enclosure.lo, enclosure.hi);
  EXPECT_LT(Rational(enclosure.hi - enclosure.lo), PowerOfTwo(-60));
}

// The first 40 decimals, from tables.
TEST(Real, KnownDigits) {
  const char* const unit = "0.0000000000000000000000000000000000000001";
  ExpectEncloses(Enclose(RealFunction::kExp, -1, 64), "0.3678794411714423215955237701614608674458",
                 unit);
  ExpectEncloses(Enclose(RealFunction::kExp, 1, 64), "2.7182818284590452353602874713526624977572",
                 unit);
  ExpectEncloses(Enclose(RealFunction::kTanh, 1, 64), "0.7615941559557648881194582826047935904127",
                 unit);
  ExpectEncloses(Enclose(RealFunction::kSigmoid, 1, 64),
                 "0.7310585786300048792511592418218362743651", unit);
  EXPECT_EQ(Enclose(RealFunction::kSigmoid, 0, 64).lo, Rational(1, 2));
  EXPECT_EQ(Enclose(RealFunction::kSigmoid, 0, 64).hi, Rational(1, 2));
  EXPECT_EQ(Enclose(RealFunction::kTanh, 0, 64).hi, 0);
  EXPECT_EQ(Enclose(RealFunction::kExp, 0, 64).lo, 1);
}

TEST(Real, FarAwayIsNearlyTheLimit) {
  for (const int x : {1999, 2000, 2001, 1 << 20}) {
    const Enclosure sigmoid = Enclose(RealFunction::kSigmoid, x, 4096);
    EXPECT_LE(sigmoid.hi, 1);
    EXPECT_GE(sigmoid.lo, 1 - PowerOfTwo(-2047));
    const Enclosure minus = Enclose(RealFunction::kTanh, -x, 4096);
    EXPECT_GE(minus.lo, -1);
    EXPECT_LE(minus.hi, PowerOfTwo(-2047) - 1);
    const Enclosure exp = Enclose(RealFunction::kExp, -x, 4096);
    EXPECT_GE(exp.lo, 0);
    EXPECT_GT(exp.hi, 0);
    EXPECT_LE(exp.hi, PowerOfTwo(-2047));
  }
}

// One bound of MPFR always lies below the other form's upper bound, and the other way round; and
// both are narrow.
TEST(Real, FixedPointAgreesWithMpfr) {
  Rng rng(3);
  for (int trial = 0; trial < 4000; ++trial) {
    const auto magnitude = static_cast<uint64_t>(rng.Between(1, (int64_t{1} << 40) - 1));
    const auto exponent = static_cast<int>(rng.Between(-200, -30));
    const int bits = trial % 3 == 0 ? 128 : trial % 3 == 1 ? 64 : 300;
    const FixedBounds fixed = ExpOfMinus(magnitude, exponent, bits);
    const Rational x = -Rational(Integer(magnitude)) * PowerOfTwo(exponent);
    const Enclosure mpfr = Enclose(RealFunction::kExp, x, bits);
    const Rational lo = Rational(fixed.lo) * PowerOfTwo(-bits);
    const Rational hi = Rational(fixed.hi) * PowerOfTwo(-bits);
    ASSERT_LE(lo, mpfr.hi) << magnitude << " * 2^" << exponent;
    ASSERT_GE(hi, mpfr.lo) << magnitude << " * 2^" << exponent;
    ASSERT_LE(Rational(hi - lo), PowerOfTwo(3 - bits)) << magnitude << " * 2^" << exponent;
  }
}

// Where the bounds of any one precision would have to be tight: values next to a tie.
TEST(Real, RoundsNextToTies) {
  // sigmoid(+-2^-149) = 1/2 +- 2^-151: a tie but for that.
  EXPECT_EQ(RoundReal(RealFunction::kSigmoid, PowerOfTwo(-149), 1), 1);
  EXPECT_EQ(RoundReal(RealFunction::kSigmoid, -PowerOfTwo(-149), 1), 0);
  EXPECT_EQ(RoundReal(RealFunction::kSigmoid, 0, 1), 0);  // the tie, to even
  EXPECT_EQ(RoundReal(RealFunction::kSigmoid, 0, 3), 2);
  // tanh(2^-149) lies 2^-448 below 2^-149.
  EXPECT_EQ(RoundReal(RealFunction::kTanh, PowerOfTwo(-149), 3 * PowerOfTwo(148)), 1);
  EXPECT_EQ(RoundReal(RealFunction::kTanh, -PowerOfTwo(-149), 3 * PowerOfTwo(148)), -1);
  EXPECT_EQ(RoundReal(RealFunction::kSigmoid, PowerOfTwo(127), Rational(1, 2)), 0);  // below 1/2
  EXPECT_EQ(RoundReal(RealFunction::kExp, -PowerOfTwo(-149), Rational(3, 2)), 1);

  EXPECT_EQ(RoundRealFunction(Function::kSigmoid, 0x1p-149f, 1, 1.0f).integer, 1);
  EXPECT_EQ(RoundRealFunction(Function::kSigmoid, 0x1p-149f, -1, 1.0f).integer, 0);
  // 1 +- 2^-150: above the integer, and below.
  EXPECT_EQ(RoundRealFunction(Function::kSigmoid, 0x1p-149f, 1, 0.5f).rest, 1);
  EXPECT_EQ(RoundRealFunction(Function::kSigmoid, 0x1p-149f, -1, 0.5f).rest, -1);
  EXPECT_EQ(RoundRealFunction(Function::kSigmoid, 1.0f, 0, 1.0f).integer, 0);
  EXPECT_EQ(RoundRealFunction(Function::kSigmoid, 1.0f, 0, 1.0f).tie_distance, 0.0);
  EXPECT_EQ(RoundRealFunction(Function::kSigmoid, 0x1p127f, 1, 2.0f).integer, 0);
  EXPECT_GT(RoundRealFunction(Function::kSigmoid, 0x1p127f, 1, 2.0f).tie_distance, 0.0);
  EXPECT_EQ(RoundRealFunction(Function::kTanh, 0x1.8p-147f, 1, 0x1p-147f).integer, 1);
  EXPECT_EQ(RoundRealFunction(Function::kTanh, 0x1.8p-147f, -1, 0x1p-147f).integer, -1);
  EXPECT_EQ(RoundRealFunction(Function::kTanh, 0x1p127f, INT32_MAX, 0x1p-149f).integer, kFar);
}

// The largest numerator is rational and may be a tie: (2^32 - 1) / 514 = 8355967.5.
TEST(Real, SoftmaxNumerators) {
  EXPECT_EQ(SoftmaxNumerator(1.0f, 0, 1), 8388607u);
  EXPECT_EQ(SoftmaxNumerator(1.0f, 0, 512), 8388607u);
  EXPECT_EQ(SoftmaxNumerator(1.0f, 0, 513), 8372256u);  // ...255.94
  EXPECT_EQ(SoftmaxNumerator(1.0f, 0, 514), 8355968u);
  EXPECT_EQ(SoftmaxNumerator(0x1p-149f, 1, 514), 8355967u);  // just below the tie
  EXPECT_EQ(SoftmaxNumerator(1.0f, 1, 1), 3085996u);         // 8388607/e = 3085996.06...
  EXPECT_EQ(SoftmaxNumerator(1.0f, 17, 1), 0u);              // 0.347...
  EXPECT_EQ(SoftmaxNumerator(0x1p127f, 255, 1), 0u);
  Rng rng(9);
  for (const int64_t n : {int64_t{1}, int64_t{512}, int64_t{513}, int64_t{514}, int64_t{100000}}) {
    const Rational q =
        std::min(Rational((Integer(1) << 32) - 1, Integer(n)), Rational((Integer(1) << 23) - 1));
    for (const float s : {0x1p-149f, 0x1p-30f, 1.0f / 255, 0.0625f, 0.1f, 3.0f, 0x1.fffffep127f,
                          std::ldexp(static_cast<float>(rng.Between(1, 1 << 24)), -28)}) {
      for (int32_t below = 0; below <= 255; ++below) {
        const Rational x = -ToRational(s) * Rational(below);
        ASSERT_EQ(SoftmaxNumerator(s, below, n), RoundReal(RealFunction::kExp, x, q))
            << std::hexfloat << s << " " << below << " " << n;
      }
    }
  }
}

// A function of s * difference, its scales and difference drawn so that steep, flat and far parts
// of the function and outputs beside ties all come up.
struct DrawnFunction {
  Function function = Function::kSigmoid;
  float s = 1, out_scale = 1;
  int64_t difference = 1;

  Rational x() const { return ToRational(s) * Rational(difference); }
  RealFunction real() const {
    return function == Function::kTanh ? RealFunction::kTanh : RealFunction::kSigmoid;
  }
};
DrawnFunction AnyFunction(Rng& rng) {
  DrawnFunction drawn;
  if (rng.Chance(1, 2)) drawn.function = Function::kTanh;
  const int most = rng.Chance(1, 8) ? 33 : 9;
  drawn.difference = rng.Between(-(int64_t{1} << most) + 1, (int64_t{1} << most) - 1);
  const int range = rng.Chance(1, 4) ? 120 : 8;
  drawn.s = std::ldexp(1.0f + static_cast<float>(rng.Unit()),
                       static_cast<int>(rng.Between(-range, rng.Chance(1, 4) ? range : 0)));
  drawn.out_scale = std::ldexp(rng.Chance(1, 3) ? 1.0f : 1.0f + static_cast<float>(rng.Unit()),
                               static_cast<int>(rng.Between(-range - 4, rng.Chance(1, 6) ? 9 : 0)));
  if (rng.Chance(1, 6)) {  // flat: x / 4 + 1/2 or x, one part in 2^60 and less beside a tie
    const bool is_tanh = drawn.function == Function::kTanh;
    drawn.s = std::ldexp(1.0f, static_cast<int>(rng.Between(-100, -30)));
    drawn.difference = 2 * rng.Between(-40, 40) + 1;
    drawn.out_scale =
        is_tanh ? 2 * drawn.s : std::ldexp(1.0f, static_cast<int>(rng.Between(-8, 1)));
  }
  return drawn;
}

TEST(Real, RoundedFunctionsAreThoseOfMpfr) {
  Rng rng(21);
  int beside = 0, far = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const DrawnFunction drawn = AnyFunction(rng);
    const std::string text = std::string(Name(drawn.function)) + " " + std::to_string(drawn.s) +
                             " * " + std::to_string(drawn.difference) + " over " +
                             std::to_string(drawn.out_scale);
    const Rational factor = 1 / ToRational(drawn.out_scale);
    const Integer nearest = RoundReal(drawn.real(), drawn.x(), factor);
    const Rounded rounded =
        RoundRealFunction(drawn.function, drawn.s, drawn.difference, drawn.out_scale);
    if (abs(nearest) >= kFar) {
      ++far;
      ASSERT_EQ(rounded.integer, nearest > 0 ? kFar : -kFar) << text;
      continue;
    }
    ASSERT_EQ(rounded.integer, nearest) << text;
    const Enclosure value = Enclose(drawn.real(), drawn.x(), 700);
    const Rational low = value.lo * factor - Rational(nearest);
    const Rational high = value.hi * factor - Rational(nearest);
    if ((low > 0) == (high > 0) && low != 0 && high != 0) {
      ASSERT_EQ(rounded.rest, low > 0 ? 1 : -1) << text;
    }
    // 1 - 2 |rest|, no smaller than the least that is told.
    const Rational distance = std::max(Rational(1 - 2 * abs(low)), PowerOfTwo(-120));
    ASSERT_TRUE(rounded.tie_distance.has_value()) << text;
    const double expected = static_cast<double>(distance);
    ASSERT_NEAR(*rounded.tie_distance, expected, 1e-9 * expected + 0x1p-120) << text;
    if (expected < 1e-9) ++beside;
  }
  EXPECT_GT(beside, 100);
  EXPECT_GT(far, 10);
}

TEST(Real, ValuesAndEstimatesEncloseThoseOfMpfr) {
  Rng rng(22);
  int estimated = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    DrawnFunction drawn = AnyFunction(rng);
    if (trial % 40 == 0) drawn.difference = 0;
    if (trial % 7 == 0) {  // where the estimate ends
      drawn.s = 0.25f;
      drawn.difference = (rng.Chance(1, 2) ? 1 : -1) * rng.Between(126, 130);
    }
    const Enclosure value = Enclose(drawn.real(), drawn.x(), 700);
    const Rational found(RealFunctionValue(drawn.function, drawn.s, drawn.difference));
    const Rational error = PowerOfTwo(-52) * abs(value.lo) + PowerOfTwo(-250);
    ASSERT_LE(Rational(value.lo - error), found) << drawn.s << " " << drawn.difference;
    ASSERT_GE(Rational(value.hi + error), found) << drawn.s << " " << drawn.difference;
    const std::optional<Estimate> estimate =
        EstimateRealFunction(drawn.function, drawn.s, drawn.difference, drawn.out_scale);
    ASSERT_EQ(estimate.has_value(), abs(drawn.x()) < 32) << drawn.s << " " << drawn.difference;
    if (!estimate) continue;
    ++estimated;
    const Rational factor = 1 / ToRational(drawn.out_scale);
    ASSERT_LE(Rational(estimate->value) - Rational(estimate->error), value.lo * factor);
    ASSERT_GE(Rational(estimate->value) + Rational(estimate->error), value.hi * factor);
  }
  EXPECT_GT(estimated, 1000);
}

// The bounds of ExpOfMinus stay narrow wherever its magnitude, exponent and number of bits are.
TEST(Real, BoundsInFixedPointAreNarrowEverywhere) {
  Rng rng(23);
  for (int trial = 0; trial < 3000; ++trial) {
    const int length = static_cast<int>(rng.Between(1, 57));
    const auto magnitude =
        static_cast<uint64_t>(rng.Between(int64_t{1} << (length - 1), (int64_t{1} << length) - 1));
    const int bits = 1 << rng.Between(6, 9);
    // The number of bits of e^-t's argument before its point: far below, around and above `bits`.
    const auto point =
        static_cast<int>(rng.Chance(1, 2) ? rng.Between(-20, 12) : rng.Between(-300, 150));
    const int exponent = point - length;
    const FixedBounds fixed = ExpOfMinus(magnitude, exponent, bits);
    const Rational x = -Rational(Integer(magnitude)) * PowerOfTwo(exponent);
    const Enclosure mpfr = Enclose(RealFunction::kExp, x, 2 * bits);
    const Rational lo = Rational(fixed.lo) * PowerOfTwo(-bits);
    const Rational hi = Rational(fixed.hi) * PowerOfTwo(-bits);
    ASSERT_LE(lo, mpfr.hi) << magnitude << " * 2^" << exponent << " in " << bits;
    ASSERT_GE(hi, mpfr.lo) << magnitude << " * 2^" << exponent << " in " << bits;
    ASSERT_LE(Rational(hi - lo), PowerOfTwo(2 - bits))
        << magnitude << " * 2^" << exponent << " in " << bits;
    ASSERT_LE(hi, 1);
  }
}

// e^-t a little above and below a multiple of the unit, where one guard bit too few shows.
TEST(Real, BoundsInFixedPointHoldBesideTheirUnits) {
  for (const int bits : {5, 8, 11}) {
    for (int k = 1; k < 1 << bits; ++k) {
      const auto nearest = static_cast<uint64_t>(-std::log(std::ldexp(1.0L, -bits) * k) * 0x1p54L);
      for (const uint64_t magnitude : {nearest - 1, nearest, nearest + 1, nearest + 2}) {
        const FixedBounds fixed = ExpOfMinus(magnitude, -54, bits);
        const Rational x = -Rational(Integer(magnitude)) * PowerOfTwo(-54);
        const Enclosure mpfr = Enclose(RealFunction::kExp, x, 200);
        ASSERT_LE(Rational(fixed.lo) * PowerOfTwo(-bits), mpfr.lo) << magnitude << " in " << bits;
        ASSERT_GE(Rational(fixed.hi) * PowerOfTwo(-bits), mpfr.hi) << magnitude << " in " << bits;
      }
    }
  }
}

// Halfway between y and its neighbour towards `end`, which must be finite.
template <class T>
Rational HalfwayTo(T y, T end) {
  const T neighbour = std::nextafter(y, end);
  EXPECT_TRUE(std::isfinite(neighbour));
  return (Rational(static_cast<double>(y)) + Rational(static_cast<double>(neighbour))) / 2;
}

template <class T>
void ExpectRounded(T x) {
  constexpr T kInf = std::numeric_limits<T>::infinity();
  const auto expect_nearest = [&](RealFunction function, T y) {
    const Enclosure value = Enclose(function, Rational(static_cast<double>(x)), 400);
    EXPECT_GE(value.lo, HalfwayTo(y, -kInf)) << x;
    EXPECT_LE(value.hi, HalfwayTo(y, kInf)) << x;
  };
  expect_nearest(RealFunction::kExp, RoundedExp(x));
  expect_nearest(RealFunction::kTanh, RoundedTanh(x));
}

// log rises: log(x) lies between two numbers if x lies between their exponentials.
template <class T>
void ExpectRoundedLog(T x) {
  constexpr T kInf = std::numeric_limits<T>::infinity();
  const T log = RoundedLog(x);
  const Rational exactly(static_cast<double>(x));
  EXPECT_LE(Enclose(RealFunction::kExp, HalfwayTo(log, -kInf), 200).hi, exactly) << x;
  EXPECT_GE(Enclose(RealFunction::kExp, HalfwayTo(log, kInf), 200).lo, exactly) << x;
}

TEST(Real, RoundedFunctionsAreTheNearestNumbers) {
  Rng rng(25);
  for (int trial = 0; trial < 2000; ++trial) {
    // Small x have results beside 1 and beside x itself; the results of -87.4 and -708.5 on are
    // denormal.
    const double size = std::ldexp(1.0, static_cast<int>(rng.Between(trial < 100 ? -140 : -9, 6)));
    const double x = (rng.Unit() - 0.5) * size;
    ExpectRounded(x);
    ExpectRounded(static_cast<float>(x));
    ExpectRounded(static_cast<float>(-87.4 - 16 * rng.Unit()));
    ExpectRounded(-708.5 - 36 * rng.Unit());
    ExpectRoundedLog(std::ldexp(1 + rng.Unit(), std::min(trial - 1000, 1000)));
    ExpectRoundedLog(static_cast<float>(std::ldexp(1 + rng.Unit(), trial % 250 - 124)));
  }
}

TEST(Real, RoundedFunctionsAtTheirEnds) {
  EXPECT_EQ(RoundedExp(0.0f), 1.0f);
  EXPECT_EQ(RoundedExp(-0.0), 1.0);
  EXPECT_EQ(RoundedExp(88.8f), INFINITY);
  EXPECT_LT(RoundedExp(88.8), INFINITY) << "no end of float64";
  EXPECT_EQ(RoundedExp(-INFINITY), 0.0f);
  EXPECT_EQ(RoundedExp(-103.9f), 0x1p-149f) << "0.54 of the least float32";
  EXPECT_EQ(RoundedExp(-104.0f), 0.0f) << "0.49 of it";
  EXPECT_EQ(RoundedExp(-1e30), 0.0);
  EXPECT_TRUE(std::isnan(RoundedExp(NAN)));
  EXPECT_EQ(RoundedTanh(INFINITY), 1.0f);
  EXPECT_EQ(RoundedTanh(-20.0), -1.0);
  EXPECT_EQ(RoundedTanh(-0x1p-149f), -0x1p-149f);
  EXPECT_TRUE(std::signbit(RoundedTanh(-0.0f)));
  EXPECT_EQ(RoundedLog(1.0f), 0.0f);
  EXPECT_EQ(RoundedLog(0.0f), -INFINITY);
  EXPECT_EQ(RoundedLog(INFINITY), INFINITY);
}

TEST(Real, EnclosuresOfFewBitsHoldThoseOfMany) {
  Rng rng(24);
  for (int trial = 0; trial < 3000; ++trial) {
    const auto function = static_cast<RealFunction>(rng.Below(3));
    Rational x = Rational(Integer(rng.Between(1, 1 << 12))) *
                 PowerOfTwo(static_cast<int>(rng.Between(-16, -8)));
    if (rng.Chance(1, 2)) x = -x;
    const int precision = static_cast<int>(rng.Between(4, 40));
    const Enclosure few = Enclose(function, x, precision), many = Enclose(function, x, 300);
    ASSERT_LE(few.lo, many.lo) << ToText(x) << " in " << precision;
    ASSERT_GE(few.hi, many.hi) << ToText(x) << " in " << precision;
  }
}

// A factor that puts the value above a tie by less than 64 bits show.
TEST(Real, RoundsByAsManyBitsAsItTakes) {
  for (const RealFunction function :
       {RealFunction::kExp, RealFunction::kSigmoid, RealFunction::kTanh}) {
    const Enclosure value = Enclose(function, Rational(3, 4), 300);
    EXPECT_EQ(RoundReal(function, Rational(3, 4), Rational(3, 2) / value.lo), 2);
    EXPECT_EQ(RoundReal(function, Rational(3, 4), Rational(3, 2) / value.hi), 1);
  }
}

// What GMP and MPFR hold, counted.
std::atomic<int64_t> held = 0;
void* Take(size_t size) {
  held += static_cast<int64_t>(size);
  return std::malloc(size);
}
void* Move(void* from, size_t before, size_t after) {
  held += static_cast<int64_t>(after) - static_cast<int64_t>(before);
  return std::realloc(from, after);
}
void GiveBack(void* from, size_t size) {
  held -= static_cast<int64_t>(size);
  std::free(from);
}

TEST(Real, GivesBackWhatItTook) {
  void* (*take)(size_t) = nullptr;
  void* (*move)(void*, size_t, size_t) = nullptr;
  void (*give_back)(void*, size_t) = nullptr;
  mpfr_free_cache();  // not into other hands
  mp_get_memory_functions(&take, &move, &give_back);
  mp_set_memory_functions(Take, Move, GiveBack);
  std::thread([] {
    for (const int x : {-3, 1, 20}) {
      Enclose(RealFunction::kExp, x, 500);
      Enclose(RealFunction::kTanh, x, 500);
      Enclose(RealFunction::kSigmoid, x, 500);
    }
  }).join();
  mp_set_memory_functions(take, move, give_back);
  EXPECT_EQ(held, 0);
}

}  // namespace
}  // namespace qualm::exact
