// SPDX-License-Identifier: Apache-2.0
// Rationals over big integers and the two roundings of the specification, written to be believed.
// The definitions and the told steps use it, the fast forms do not.
#ifndef QUALM_ORACLES_EXACT_ARITHMETIC_RATIONAL_H_
#define QUALM_ORACLES_EXACT_ARITHMETIC_RATIONAL_H_

#include <boost/multiprecision/cpp_int.hpp>
#include <string>

namespace qualm::exact {

using Integer = boost::multiprecision::cpp_int;
using Rational = boost::multiprecision::cpp_rational;

// The real number that a finite float32 is.
Rational ToRational(float value);

// 2^exponent.
Rational PowerOfTwo(int exponent);

// Largest integer not above the value.
Integer Floor(const Rational& value);

// Nearest integer, ties to the even one.
Integer RoundHalfEven(const Rational& value);

// Nearest float32, ties to even, gradual underflow, +-inf from 2^128 - 2^103 on. Exact zero is +0;
// a negative value that rounds to zero is -0, as in IEEE 754.
float RoundToFloat32(const Rational& value);

// Nearest float64, ties to even, of a value that is 0 or has a float64 of normal size.
Rational NearestFloat64(const Rational& value);

// "p/q" reduced with q > 1, or "p" for an integer.
std::string ToText(const Rational& value);

// For sentences only: about nine digits.
std::string ApproximateText(const Rational& value);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_ARITHMETIC_RATIONAL_H_
