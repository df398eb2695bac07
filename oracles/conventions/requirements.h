// SPDX-License-Identifier: Apache-2.0
// What conventions ask of a case, to say why they refuse it.
#ifndef QUALM_ORACLES_CONVENTIONS_REQUIREMENTS_H_
#define QUALM_ORACLES_CONVENTIONS_REQUIREMENTS_H_

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/case.h"

namespace qualm::conventions {

// Of reasons, "" where a requirement holds: the first that is not "".
std::string FirstReason(std::initializer_list<std::string> reasons);
std::string Require(bool holds, std::string_view reason);

// "" or the reason.
// The zero points of x, of w (weights or second operand) and of the output are codes.
std::string ZeroPointsAreCodes(const Case& c);
// The clamp is the whole range of the output type.
std::string WholeRange(const Case& c);

// Every zero point of the weights is this one.
bool WeightZeroPointsAre(const Case& c, int32_t zero_point);
// One input and one output channel per group.
bool IsPlainDepthwise(const Case& c);

// The case names its multipliers; otherwise they follow from the scales, of requantize as of
// linear.
bool HasExplicitMultiplier(const Case& c);
float ExplicitMultiplier(const Case& c, int64_t n);
// Either of them in float64: codes out per accumulator unit.
double RealMultiplier(const Case& c, int64_t n);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_REQUIREMENTS_H_
