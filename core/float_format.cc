// SPDX-License-Identifier: Apache-2.0
#include "core/float_format.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <system_error>

#include "core/float_text.h"

namespace qualm {
namespace {

// The code of a number beyond the ends of the type, or of an infinity.
uint32_t Beyond(DType dtype, bool negative, FloatOverflow overflow, bool infinite) {
  const FloatFormat& f = InfoOf(dtype).floating;
  if (negative && !f.has_sign) return overflow == FloatOverflow::kSaturate ? 0 : NanCode(dtype);
  const uint32_t sign = negative ? SignOf(dtype) : 0;
  if (overflow == FloatOverflow::kSaturate || !HasNan(dtype)) return sign | LargestCode(dtype);
  if (HasInfinities(dtype) && (overflow == FloatOverflow::kInfinity || infinite))
    return sign | (LargestCode(dtype) + 1);
  return NanCode(dtype);
}

// Whether mantissa / 2^shift, cut to `kept`, is rounded away from zero.
bool RoundsAway(const BinaryReal& value, int shift, uint64_t kept, FloatRounding rounding,
                bool even) {
  const uint64_t rest = shift > 63 ? value.mantissa : value.mantissa - (kept << shift);
  if (rest == 0 || rounding == FloatRounding::kTowardZero) return false;
  if (rounding == FloatRounding::kUp) return !value.negative;
  if (shift > 64) return false;  // less than half
  const uint64_t half = uint64_t{1} << (shift - 1);
  if (rest != half) return rest > half;
  return !even || kept % 2 != 0;
}

}  // namespace

double DecodeFloat(DType dtype, uint32_t code) {
  if (IsNanCode(dtype, code)) return std::numeric_limits<double>::quiet_NaN();
  const FloatFormat& f = InfoOf(dtype).floating;
  const uint32_t magnitude = code & ((1u << (f.exponent_bits + f.fraction_bits)) - 1);
  const double sign = (code & SignOf(dtype)) != 0 ? -1.0 : 1.0;
  if (magnitude > LargestCode(dtype)) return sign * std::numeric_limits<double>::infinity();
  const auto exponent = static_cast<int>(magnitude >> f.fraction_bits);
  const auto fraction = static_cast<int>(magnitude & ((1u << f.fraction_bits) - 1));
  const bool normal = exponent > 0 || f.fraction_bits == 0;
  const int field = f.fraction_bits == 0 ? exponent : std::max(exponent, 1);
  return sign * std::ldexp(fraction + (normal ? 1 << f.fraction_bits : 0),
                           field - f.bias - f.fraction_bits);
}

uint32_t EncodeFloat(DType dtype, const BinaryReal& value, FloatRounding rounding,
                     FloatOverflow overflow) {
  const FloatFormat& f = InfoOf(dtype).floating;
  const bool has_zero = f.fraction_bits > 0;
  const int least = (has_zero ? 1 : 0) - f.bias;  // exponent of the smallest normal number
  const auto leading = static_cast<int>(std::bit_width(value.mantissa)) - 1 + value.exponent;
  if (!has_zero && (value.negative || value.mantissa == 0))
    return Beyond(dtype, /*negative=*/true, overflow, false);
  if (!has_zero && leading < least) return 0;  // nothing smaller to round to
  const bool keeps_zero_sign = f.has_sign && f.top != FloatFormat::Top::kMinusZero;
  const uint32_t zero = value.negative && keeps_zero_sign ? SignOf(dtype) : 0;
  if (value.mantissa == 0) return zero;
  // The number in units of the last digit that the type has there.
  int unit = std::max(leading, least) - f.fraction_bits;
  const int shift = unit - value.exponent;
  uint64_t digits = shift <= 0   ? value.mantissa << -shift
                    : shift > 63 ? 0
                                 : value.mantissa >> shift;
  if (shift > 0 && RoundsAway(value, shift, digits, rounding, has_zero)) ++digits;
  if (digits == 0) return zero;
  if (digits == uint64_t{2} << f.fraction_bits) {
    digits /= 2;
    ++unit;
  }
  if (value.negative && !f.has_sign) return Beyond(dtype, true, overflow, false);
  // Codes of one sign lie in the order of their values: a subnormal has exponent 0 and no
  // leading 1.
  const int64_t exponent = int64_t{unit} + f.fraction_bits - (least - (has_zero ? 1 : 0));
  const int64_t magnitude = (exponent << f.fraction_bits) + static_cast<int64_t>(digits) -
                            (int64_t{1} << f.fraction_bits);
  if (magnitude > LargestCode(dtype)) {
    const bool stays = rounding == FloatRounding::kTowardZero ||
                       (rounding == FloatRounding::kUp && value.negative);
    return Beyond(dtype, value.negative, stays ? FloatOverflow::kSaturate : overflow, false);
  }
  return (value.negative ? SignOf(dtype) : 0) | static_cast<uint32_t>(magnitude);
}

uint32_t EncodeFloat(DType dtype, double value, FloatRounding rounding, FloatOverflow overflow) {
  if (std::isnan(value)) return NanCode(dtype);
  if (std::isinf(value)) return Beyond(dtype, std::signbit(value), overflow, true);
  constexpr int kDigits = std::numeric_limits<double>::digits;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);
  return EncodeFloat(dtype,
                     {std::signbit(value), static_cast<uint64_t>(std::ldexp(fraction, kDigits)),
                      exponent - kDigits},
                     rounding, overflow);
}

std::string CodeText(DType dtype, uint32_t code) {
  if (dtype == DType::kF32) return FloatText(std::bit_cast<float>(code));
  if (!IsNanCode(dtype, code)) return FloatText(static_cast<float>(DecodeFloat(dtype, code)));
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, "nan:%0*x", (BitsOf(dtype) + 3) / 4, code);
  return buffer;
}

std::optional<uint32_t> CodeOf(DType dtype, float value) {
  if (std::isnan(value)) return std::nullopt;
  const uint32_t code = EncodeFloat(dtype, static_cast<double>(value));
  const double decoded = DecodeFloat(dtype, code);
  const bool same =
      decoded == static_cast<double>(value) && std::signbit(decoded) == std::signbit(value);
  return same ? std::optional(code) : std::nullopt;
}

std::optional<uint32_t> CodeOfText(DType dtype, std::string_view text) {
  constexpr std::string_view kNan = "nan:";
  if (dtype != DType::kF32 && text.starts_with(kNan)) {
    text.remove_prefix(kNan.size());
    uint32_t code = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, code, 16);
    const bool whole = error == std::errc() && stop == end;
    if (!whole || text.size() != static_cast<size_t>(BitsOf(dtype) + 3) / 4) return std::nullopt;
    return IsNanCode(dtype, code) ? std::optional(code) : std::nullopt;
  }
  const std::optional<float> value = ParseFloatText(text);
  if (!value) return std::nullopt;
  return dtype == DType::kF32 ? std::bit_cast<uint32_t>(*value) : CodeOf(dtype, *value);
}

}  // namespace qualm
