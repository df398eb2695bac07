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

// The same, plus decimal numbers (nearest float32, rounded once) and hex with any number of
// trailing zeros. nullopt for anything else, for hex that is not exactly a float32, and for
// decimals that overflow.
std::optional<float> ParseFloatText(std::string_view text);

// A double as C hex text, for records that hold float64 fields; nullopt if malformed.
std::optional<double> ParseDoubleText(std::string_view text);

}  // namespace qualm

#endif  // QUALM_CORE_FLOAT_TEXT_H_
