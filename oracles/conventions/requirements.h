// SPDX-License-Identifier: Apache-2.0
// Requirements of conventions on a case, and the reasons for which they refuse a case.
#ifndef QUALM_ORACLES_CONVENTIONS_REQUIREMENTS_H_
#define QUALM_ORACLES_CONVENTIONS_REQUIREMENTS_H_

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/case.h"

namespace qualm::conventions {

// A reason is a text that says why a case is refused; "" means that the case is not refused.

// Tables and softmax call exponential functions of the C library, ATen's of Sleef too: a case whose
// output depends on the last bits of such a function is refused, with this reason.
constexpr const char* kUndecided = "an output depends on how the exponential function rounds";

// The first reason that is not ""; "" if all are "".
std::string FirstReason(std::initializer_list<std::string> reasons);
// `reason` unless the requirement holds.
std::string Require(bool holds, std::string_view reason);
// Required: the zero points of x, of w (weights or second operand) and of the output are codes.
std::string ZeroPointsAreCodes(const Case& c);
// Required: weights of whole bytes, not in blocks. Every convention asks this.
std::string WeightsArePlain(const Case& c);
// Required: the clamp is the whole range of the output type.
std::string WholeRange(const Case& c);

// Whether every zero point of the weights is this one.
bool WeightZeroPointsAre(const Case& c, int32_t zero_point);
// Whether each group has one input and one output channel.
bool IsPlainDepthwise(const Case& c);

// Whether the case gives its multipliers (some requantize cases). All other cases give scales, from
// which multipliers follow.
bool HasExplicitMultiplier(const Case& c);
float ExplicitMultiplier(const Case& c, int64_t n);
// The given multiplier, or the one that follows from the scales, in float64: output codes per
// accumulator unit.
double RealMultiplier(const Case& c, int64_t n);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_REQUIREMENTS_H_
