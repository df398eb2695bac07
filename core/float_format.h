// SPDX-License-Identifier: Apache-2.0
// Float types of any width: what a code means, and which code a number gets. The fields of a type
// stand in its row (core/types.h).
#ifndef QUALM_CORE_FLOAT_FORMAT_H_
#define QUALM_CORE_FLOAT_FORMAT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/types.h"

namespace qualm {

// How a number between two neighbouring values of a type is rounded.
//   kNearestEven  to the nearer one; half way to the one whose code is even. A type without a
//                 fraction has no even one: to the larger (IEEE 754-2019, 4.3.1)
//   kTowardZero   to the one nearer to 0
//   kUp           to the larger one, also of negative numbers
enum class FloatRounding : uint8_t { kNearestEven, kTowardZero, kUp };
inline constexpr std::array<std::string_view, 3> kRoundingNames{"nearest_even", "toward_zero",
                                                                "up"};
constexpr std::span<const std::string_view> NamesOf(FloatRounding /*any*/) {
  return kRoundingNames;
}

// What becomes of a number beyond the largest value of a type. A number is beyond it if it is so
// after rounding, as if exponents went on; where rounding goes towards the type's range (toward
// zero, or up from below), it gives the largest value as in IEEE 754. Where a type lacks what is
// named here, infinity becomes NaN, and NaN the largest value.
//   kInfinity  infinity
//   kSaturate  the largest value, also of infinities
//   kNan       NaN; infinities stay
// A type without a sign (f8e8m0fnu, ue4m3) has no numbers below 0, and f8e8m0fnu no 0: kSaturate
// gives their lowest value, the others NaN.
enum class FloatOverflow : uint8_t { kInfinity, kSaturate, kNan };
inline constexpr std::array<std::string_view, 3> kOverflowNames{"infinity", "saturate", "nan"};
constexpr std::span<const std::string_view> NamesOf(FloatOverflow /*any*/) {
  return kOverflowNames;
}

// (-1)^negative * mantissa * 2^exponent.
struct BinaryReal {
  bool negative = false;
  uint64_t mantissa = 0;
  int exponent = 0;
};

// The pattern of 2^(bits - 1), where the type has a sign; else 0.
constexpr uint32_t SignOf(DType dtype) {
  const FloatFormat& f = InfoOf(dtype).floating;
  return f.has_sign ? 1u << (f.exponent_bits + f.fraction_bits) : 0;
}
// The largest finite value.
constexpr uint32_t LargestCode(DType dtype) {
  const FloatFormat& f = InfoOf(dtype).floating;
  const uint32_t all = (1u << (f.exponent_bits + f.fraction_bits)) - 1;
  if (f.top == FloatFormat::Top::kIeee) return all - (1u << f.fraction_bits);
  return f.top == FloatFormat::Top::kAllOnes ? all - 1 : all;
}
constexpr bool HasInfinities(DType dtype) {
  return InfoOf(dtype).floating.top == FloatFormat::Top::kIeee;
}
constexpr bool HasNan(DType dtype) {
  return InfoOf(dtype).floating.top != FloatFormat::Top::kFinite;
}
constexpr bool IsNanCode(DType dtype, uint32_t code) {
  if (!IsFloat(dtype) || !HasNan(dtype)) return false;
  if (InfoOf(dtype).floating.top == FloatFormat::Top::kMinusZero) return code == SignOf(dtype);
  const FloatFormat& f = InfoOf(dtype).floating;
  const uint32_t magnitude = code & ((1u << (f.exponent_bits + f.fraction_bits)) - 1);
  return magnitude > LargestCode(dtype) + (HasInfinities(dtype) ? 1 : 0);
}
// The NaN that conversions give: quiet, of positive sign, no payload. Of a type without NaN the
// largest value, as CUDA's conversions and PTX's cvt have it.
constexpr uint32_t NanCode(DType dtype) {
  const FloatFormat& f = InfoOf(dtype).floating;
  switch (f.top) {
    case FloatFormat::Top::kIeee: return LargestCode(dtype) + 1 + (1u << (f.fraction_bits - 1));
    case FloatFormat::Top::kAllOnes: return LargestCode(dtype) + 1;
    case FloatFormat::Top::kMinusZero: return SignOf(dtype);
    case FloatFormat::Top::kFinite: break;
  }
  return LargestCode(dtype);
}

// What the code means: a number, an infinity or (any pattern of it) a quiet NaN. Codes of bits that
// the type does not have are no codes.
double DecodeFloat(DType dtype, uint32_t code);

// The code of a number. A negative number that rounds to 0 gives -0, where the type has it.
uint32_t EncodeFloat(DType dtype, const BinaryReal& value, FloatRounding rounding,
                     FloatOverflow overflow);
// The same of a double; NaN gives NanCode.
uint32_t EncodeFloat(DType dtype, double value,
                     FloatRounding rounding = FloatRounding::kNearestEven,
                     FloatOverflow overflow = FloatOverflow::kInfinity);

// A code as text: FloatText of its value, "nan:7e" of a NaN, with the digits of its type.
std::string CodeText(DType dtype, uint32_t code);
// The code whose value is exactly this number or infinity; nullopt for NaN and where there is none.
std::optional<uint32_t> CodeOf(DType dtype, float value);
// The code that a text of CodeText names, or a decimal or hex number that is exactly a value of the
// type; f32 takes the nearest one of a decimal.
std::optional<uint32_t> CodeOfText(DType dtype, std::string_view text);

}  // namespace qualm

#endif  // QUALM_CORE_FLOAT_FORMAT_H_
