// SPDX-License-Identifier: Apache-2.0
// Exact arithmetic on m * 2^e with a 128-bit m: enough to round any product of three scales once.
// A third implementation beside kernels/ and oracles/, so that the planted faults share no bug
// with either.
#ifndef QUALM_ADAPTERS_FAULTY_DYADIC_H_
#define QUALM_ADAPTERS_FAULTY_DYADIC_H_

#include <cstdint>

namespace qualm::faulty {

// mantissa * 2^exponent, |mantissa| < 2^kMantissaBits.
struct Dyadic {
  __int128 mantissa = 0;
  int exponent = 0;
};
// Two bits short of the sign, so that a remainder can be doubled and a divisor aligned.
inline constexpr int kMantissaBits = 124;

// Number of bits of |value|; 0 for 0.
int BitLength(__int128 value);

// Exact, odd mantissa (or 0). `value` is finite.
Dyadic FromFloat(float value);
Dyadic FromInt(__int128 value);
// Exact; the caller has made sure that the mantissas fit (BitLength sums).
Dyadic Product(const Dyadic& a, const Dyadic& b);
// Exact sum into *sum; false if it needs more than kMantissaBits.
bool Sum(const Dyadic& a, const Dyadic& b, Dyadic* sum);

enum class RoundTo : uint8_t { kNearestEven, kNearestAway, kDown, kUp, kTowardZero };

// Results beyond this are returned as +-kHuge: past every int32 zero point and clamp.
inline constexpr int64_t kHuge = int64_t{1} << 40;

// numerator / denominator (> 0, mantissa below 2^64) rounded to an integer. Where `offset_is_odd`,
// ties go to the value that is even after an odd integer has been added.
int64_t RoundQuotient(const Dyadic& numerator, const Dyadic& denominator, RoundTo rule,
                      bool offset_is_odd = false);

// Nearest float32, ties to even, gradual underflow, overflow to infinity; exact zero is +0.
float RoundToFloat(const Dyadic& value);

}  // namespace qualm::faulty

#endif  // QUALM_ADAPTERS_FAULTY_DYADIC_H_
