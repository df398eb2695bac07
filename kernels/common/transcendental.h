// SPDX-License-Identifier: Apache-2.0
// e^-t, sigmoid and tanh in double, with proven bounds. Internal to kernels/. Must run in a
// ScopedFpEnvironment, compiled without contraction.
//
// t stands for a real number T with |t - T| <= 2^-53 * T (one rounded product), t >= 0.
//
// e^-t. n = the integer next to t / ln 2, r = t - n*ln 2 in two steps, ln 2 = high + low with 32
// bits in high: n*high is exact (n <= 1010), t - n*high exact or next to it (Sterbenz; at worst
// 2^-55), n*low has an error below 2^-74, the last subtraction one of at most 2^-55: together below
// 2^-53.9, with |r| < 0.347. Then e^-r by its Taylor polynomial of degree 13: the rest is below
// 0.347^14 / 14! < 2^-57. Horner's rule, whose last steps are 1 - r*q with q = 1 - r/2*...: q has
// an error below 1.6 * 2^-53, times |r| and rounded, added and rounded: below 2.2 * 2^-53. e^-r is
// at least 0.706, so all of this is below 5 * 2^-53 of it; 2^-n is exact. The error of the argument
// is T*2^-53 of e^-T. The bounds returned are at (t + 16) * 2^-53 of the value on either side,
// where (t + 6) is needed, and the rest covers the computation of the bounds themselves.
//
// 1 - e^-t for t < 1/3 (n = 0): t*q, with relative errors of 2.5 * 2^-53 for q >= 0.85, one
// rounding and that of the argument: 4.5 * 2^-53, where bounds at 16 * 2^-53 are returned.
//
// Every further quotient or difference is monotone in these and adds at most three roundings; the
// bounds are moved outwards by 2^-50 once more.
#ifndef QUALM_KERNELS_COMMON_TRANSCENDENTAL_H_
#define QUALM_KERNELS_COMMON_TRANSCENDENTAL_H_

namespace qualm::kernels::internal {

struct Interval {
  double lo = 0, hi = 0;
};

// Both ends, >= 0, moved outwards by 2^-50 of their value.
Interval Widened(Interval interval);

Interval ExpOfMinus(double t);
// 1 / (1 + e^-v) and tanh(v) of v = t, or of v = -t.
Interval Sigmoid(double t, bool negative);
Interval Tanh(double t, bool negative);

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_COMMON_TRANSCENDENTAL_H_
