// SPDX-License-Identifier: Apache-2.0
// Real functions in fixed point: integer bounds that hold by construction, every step rounded
// outwards. For the fast form; shares no arithmetic but that of big integers with the definitions,
// which use MPFR (real.h). No floating-point operation decides anything. Internal to oracles/exact.
#ifndef QUALM_ORACLES_EXACT_FIXED_POINT_H_
#define QUALM_ORACLES_EXACT_FIXED_POINT_H_

#include <boost/multiprecision/cpp_int.hpp>
#include <cstdint>

#include "core/case.h"
#include "oracles/exact/dyadic.h"

namespace qualm::exact {

// lo * 2^-bits <= value <= hi * 2^-bits.
struct FixedBounds {
  boost::multiprecision::cpp_int lo, hi;
};

// e^-t of t = magnitude * 2^exponent > 0.
FixedBounds ExpOfMinus(uint64_t magnitude, int exponent, int bits);

// f(s * difference) / out_scale, rounded once, for the functions that are not rational: sigmoid and
// tanh. |difference| < 2^33.
Rounded RoundRealFunction(Function function, float s, int64_t difference, float out_scale);

// Softmax: the numerator of a code `below` the largest one of a row of n >= 1 codes of scale s,
// RNE(q * e^(-below * s)) with q = min((2^32 - 1) / n, 2^23 - 1).
uint32_t SoftmaxNumerator(float s, int32_t below, int64_t n);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_FIXED_POINT_H_
