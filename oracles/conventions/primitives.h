// SPDX-License-Identifier: Apache-2.0
// The arithmetic that real kernels are made of, one scalar function per instruction or library
// primitive. None depends on the rounding mode of the thread, and -ffp-contract=off keeps every
// written float operation one rounding.
#ifndef QUALM_ORACLES_CONVENTIONS_PRIMITIVES_H_
#define QUALM_ORACLES_CONVENTIONS_PRIMITIVES_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>

#include "core/float_format.h"
#include "core/status.h"

namespace qualm::conventions {

// Two's complement: the low 32 bits of a sum, as every integer accumulator keeps them.
constexpr int32_t Wrap32(int64_t value) {
  return static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(value)));
}
// packssdw, paddsw, vqmovn.s32: clamp to int16.
constexpr int32_t Sat16(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, INT16_MIN, INT16_MAX));
}
constexpr int32_t Sat32(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, INT32_MIN, INT32_MAX));
}

// Nearest integer, ties to even, as a float. Infinities, NaN and |x| >= 2^23 come back unchanged.
inline float RoundNearestEven(float x) {
  if (!(std::fabs(x) < 0x1p23f)) return x;
  const float down = std::floor(x);
  const float rest = x - down;  // exact: both lie on the grid of x
  float rounded = down;
  if (rest > 0.5f || (rest == 0.5f && std::fmod(down, 2.0f) != 0.0f)) rounded = down + 1.0f;
  return std::copysign(rounded, x);
}
// The same for float64.
inline double RoundNearestEven(double x) {
  if (!(std::fabs(x) < 0x1p52)) return x;
  const double down = std::floor(x);
  const double rest = x - down;
  double rounded = down;
  if (rest > 0.5 || (rest == 0.5 && std::fmod(down, 2.0) != 0.0)) rounded = down + 1.0;
  return std::copysign(rounded, x);
}

// cvtps2dq, lrintf into int32 on x86: INT32_MIN for everything that does not fit, NaN included.
inline int32_t ConvertX86(float x) {
  const float rounded = RoundNearestEven(x);
  if (!(rounded >= -0x1p31f && rounded < 0x1p31f)) return INT32_MIN;
  return static_cast<int32_t>(rounded);
}
// vcvtnq_s32_f32: saturates, and NaN is 0.
inline int32_t ConvertArm(float x) {
  if (std::isnan(x)) return 0;
  const float rounded = RoundNearestEven(x);
  if (rounded >= 0x1p31f) return INT32_MAX;
  if (rounded < -0x1p31f) return INT32_MIN;
  return static_cast<int32_t>(rounded);
}
// lrintf into the 64-bit long of x86, and cvttss2si after nearbyintf: INT64_MIN if it does not fit.
inline int64_t ConvertX86To64(float x) {
  const float rounded = RoundNearestEven(x);
  if (!(rounded >= -0x1p63f && rounded < 0x1p63f)) return INT64_MIN;
  return static_cast<int64_t>(rounded);
}

// The nearest value of a float type, ties to even.
inline float RoundedTo(DType dtype, float value) {
  return static_cast<float>(DecodeFloat(dtype, EncodeFloat(dtype, value)));
}

// minps, maxps: the second operand where either is NaN.
constexpr float MinPs(float a, float b) { return a < b ? a : b; }
constexpr float MaxPs(float a, float b) { return a > b ? a : b; }

// exp, tanh and log of a C library are not rounded correctly, and their last bits differ from one
// version to the next (tanhf of glibc 2.36 and 2.41). A convention takes the correctly rounded
// number (oracles/exact/arithmetic/real.h), and refuses a case with kUndecided where a number so
// many ulps away from it gives another output. The manual of glibc bounds the errors of expf, exp
// and logf by 1 ulp, of tanhf by 2; measured over all float32, tanhf of 2.36 is off by 2.19 ulp, 2
// numbers away.
constexpr int kExpUlps = 1;
constexpr int kTanhUlps = 2;
// The number of the type that lies `ulps` above x.
template <class T>
T Beside(T x, int ulps) {
  const T end = std::copysign(std::numeric_limits<T>::infinity(), static_cast<T>(ulps));
  for (int i = std::abs(ulps); i > 0; --i) x = std::nextafter(x, end);
  return x;
}

// One pair of vpmaddubsw: the sum of two u8*s8 products, saturated to int16.
constexpr int32_t SaturatingPair(int32_t x0, int32_t w0, int32_t x1, int32_t w1) {
  return Sat16(int64_t{x0} * w0 + int64_t{x1} * w1);
}

// gemmlowp, fixedpoint/fixedpoint.h (vqrdmulh): high half of 2ab, rounded to nearest with ties away
// from zero, except that the nudge of negative products makes their ties round up.
constexpr int32_t SaturatingRoundingDoublingHighMul(int32_t a, int32_t b) {
  if (a == INT32_MIN && b == INT32_MIN) return INT32_MAX;
  const int64_t product = int64_t{a} * b;
  const int64_t nudge = product >= 0 ? int64_t{1} << 30 : 1 - (int64_t{1} << 30);
  return static_cast<int32_t>((product + nudge) / (int64_t{1} << 31));  // toward zero
}

// gemmlowp: x / 2^exponent, ties away from zero; exponent 0..31.
constexpr int32_t RoundingDivideByPot(int32_t x, int32_t exponent) {
  QUALM_CHECK(exponent >= 0 && exponent <= 31);
  const int64_t mask = (int64_t{1} << exponent) - 1;
  const int64_t remainder = x & mask;
  const int64_t threshold = (mask >> 1) + (x < 0 ? 1 : 0);
  return static_cast<int32_t>((int64_t{x} >> exponent) + (remainder > threshold ? 1 : 0));
}

// A real multiplier as Q * 2^(shift - 31).
struct FixedMultiplier {
  int32_t value = 0;
  int32_t shift = 0;
  friend bool operator==(const FixedMultiplier&, const FixedMultiplier&) = default;
};

// TFLite QuantizeMultiplier. `single_rounding` is the TFLITE_SINGLE_ROUNDING build.
inline FixedMultiplier QuantizeMultiplier(double multiplier, bool single_rounding) {
  if (multiplier == 0.0) return {};
  int shift = 0;
  const double mantissa = std::frexp(multiplier, &shift);
  auto value = static_cast<int64_t>(std::round(mantissa * 0x1p31));  // ties away from zero
  if (value == int64_t{1} << 31) {
    value /= 2;
    ++shift;
  }
  if (shift < -31) {
    shift = 0;
    value = 0;
  }
  if (single_rounding && shift > 30) {
    shift = 30;
    value = INT32_MAX;
  }
  return {static_cast<int32_t>(value), shift};
}

// TFLite MultiplyByQuantizedMultiplier, default build: two roundings. Shift -31..31.
constexpr int32_t MultiplyTwoRoundings(int32_t x, FixedMultiplier m) {
  const int32_t left = std::max(m.shift, 0);
  const int32_t right = std::max(-m.shift, 0);
  const auto shifted = static_cast<int32_t>(static_cast<uint32_t>(x) << left);
  return RoundingDivideByPot(SaturatingRoundingDoublingHighMul(shifted, m.value), right);
}
// The same in the single-rounding build: ties toward +infinity. Shift -31..30.
constexpr int32_t MultiplyOneRounding(int32_t x, FixedMultiplier m) {
  const int32_t total = 31 - m.shift;
  QUALM_CHECK(total >= 1 && total <= 62);
  return Wrap32((int64_t{x} * m.value + (int64_t{1} << (total - 1))) >> total);
}

// ChooseQuantizationParams of FBGEMM and ATen: no scale is smaller than this one.
constexpr float kSmallestScale = 6.1e-5f;
// Widens a range whose scale would be smaller, so that it is the smallest; `steps` = qmax - qmin.
// An end that is 0 stays 0; two others grow by one factor. min <= 0 <= max.
constexpr void WidenToSmallestScale(float scale, int32_t steps, float& min, float& max) {
  if (min == 0.0f) {
    max = kSmallestScale * static_cast<float>(steps);
  } else if (max == 0.0f) {
    min = -kSmallestScale * static_cast<float>(steps);
  } else {
    const float amplifier = kSmallestScale / scale;
    min *= amplifier;
    max *= amplifier;
  }
}

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_PRIMITIVES_H_
