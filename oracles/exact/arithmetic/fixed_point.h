// SPDX-License-Identifier: Apache-2.0
// Real functions in fixed point: integer bounds that hold by construction, every step rounded
// outwards. For the fast forms. The definitions compute the same functions with MPFR (real.h) and
// share no arithmetic with these but that of big integers. Floating-point decides nothing, except
// in EstimateRealFunction, which bounds its error.
#ifndef QUALM_ORACLES_EXACT_ARITHMETIC_FIXED_POINT_H_
#define QUALM_ORACLES_EXACT_ARITHMETIC_FIXED_POINT_H_

#include <boost/multiprecision/cpp_int.hpp>
#include <cstdint>
#include <optional>

#include "core/case.h"
#include "oracles/exact/arithmetic/dyadic.h"

namespace qualm::exact {

// lo * 2^-bits <= value <= hi * 2^-bits.
struct FixedBounds {
  boost::multiprecision::cpp_int lo, hi;
};

// e^-t of t = magnitude * 2^exponent > 0.
FixedBounds ExpOfMinus(uint64_t magnitude, int exponent, int bits);

// f(s * difference), rounded once after the division by out_scale, for the functions that are not
// rational: sigmoid and tanh. |difference| < 2^33.
Rounded RoundRealFunction(Function function, float s, int64_t difference, float out_scale);

// The same value, not rounded, by the functions of the C library, whose error is far below the
// bound given. None where the bound would be no use.
std::optional<Estimate> EstimateRealFunction(Function function, float s, int64_t difference,
                                             float out_scale);

// f(s * difference) itself, as a double off by at most 2^-52 of it and by 2^-250.
double RealFunctionValue(Function function, float s, int64_t difference);

// Softmax: the numerator of a code `below` the largest one of a row of n >= 1 codes of scale s,
// RNE(q * e^(-below * s)) with q = min((2^32 - 1) / n, 2^23 - 1).
uint32_t SoftmaxNumerator(float s, int32_t below, int64_t n);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_ARITHMETIC_FIXED_POINT_H_
