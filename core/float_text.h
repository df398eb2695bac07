// SPDX-License-Identifier: Apache-2.0
// float32 <-> text, exact both ways.
#ifndef QUALM_CORE_FLOAT_TEXT_H_
#define QUALM_CORE_FLOAT_TEXT_H_

#include <optional>
#include <string>
#include <string_view>

namespace qualm {

// "0x1.0c6a02p-7", "-0x0p+0", "inf", "-inf", "nan:7fc00000".
std::string FloatText(float value);

// The shortest decimal that is nearest to this float32 alone, for people: "0.0078431377", "1e-45".
// NaN and infinities as FloatText.
std::string ShortestDecimal(float value);

// A text for people: its shortest decimal stands in parentheses behind each hex float,
// "0x1.8p-3 (0.1875)". A text that has them stays as it is.
std::string WithDecimals(std::string_view text);

// A number as somebody printed it, +-digits * 10^exponent: the last digit counts 10^exponent.
struct Decimal {
  bool negative = false;
  std::string digits;
  int exponent = 0;
};
// "0.0160", "-3", "1.6e-2": at most 40 characters, of which two are digits of the exponent at most.
std::optional<Decimal> ParseDecimal(std::string_view text);

// A text of FloatText, a decimal number (nearest float32, rounded once) or hex with any number of
// trailing zeros. nullopt for anything else, for hex that is not exactly a float32, and for
// decimals that overflow.
std::optional<float> ParseFloatText(std::string_view text);

// A double as C hex text, for records that hold float64 fields; nullopt if malformed.
std::optional<double> ParseDoubleText(std::string_view text);
// "0x1.8p-3", as it reads.
std::string DoubleText(double value);

}  // namespace qualm

#endif  // QUALM_CORE_FLOAT_TEXT_H_
