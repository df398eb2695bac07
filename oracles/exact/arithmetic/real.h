// SPDX-License-Identifier: Apache-2.0
// Real functions of rational numbers, enclosed by MPFR with directed rounding. For the definitions
// and the told steps; the fast forms (fixed_point.h) share nothing with it. And the functions of
// the C library for the conventions, rounded correctly: the library's own last bits are not the
// same on every machine.
#ifndef QUALM_ORACLES_EXACT_ARITHMETIC_REAL_H_
#define QUALM_ORACLES_EXACT_ARITHMETIC_REAL_H_

#include "oracles/exact/arithmetic/rational.h"

namespace qualm::exact {

enum class RealFunction { kExp, kSigmoid, kTanh };

// lo < f(x) < hi, or lo = f(x) = hi where that is rational: at 0 only, because e^x is
// transcendental for every other algebraic x (Lindemann). x is an integer times a power of two.
// `precision` is the number of bits MPFR works with.
struct Enclosure {
  Rational lo, hi;
};
Enclosure Enclose(RealFunction function, const Rational& x, int precision);

// RNE(f(x) * factor), factor > 0 rational: the precision grows until no tie lies in the enclosure.
// The growth ends, because a transcendental number times a rational one is no tie.
Integer RoundReal(RealFunction function, const Rational& x, const Rational& factor);

// e^x, tanh(x) and log(x) as the nearest number of the type, half to even: 0, denormals, infinities
// and NaN as IEEE 754 has them.
float RoundedExp(float x);
double RoundedExp(double x);
float RoundedTanh(float x);
double RoundedTanh(double x);
float RoundedLog(float x);
double RoundedLog(double x);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_ARITHMETIC_REAL_H_
