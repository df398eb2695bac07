// SPDX-License-Identifier: Apache-2.0
// What XNNPACK of 2022 computes on x86 (xnnpack@fp32), of which that of 2024 kept the most.
#ifndef QUALM_ORACLES_CONVENTIONS_XNNPACK_H_
#define QUALM_ORACLES_CONVENTIONS_XNNPACK_H_

#include <string>
#include <vector>

#include "oracles/conventions/definition.h"

namespace qualm::conventions {

Channel XnnpackChannel(const Case& c, int64_t n);
std::vector<Step> XnnpackFp32Steps(const Case& c);
Definition::Gatherer XnnpackGather(const Case& c);
std::vector<std::string> XnnpackClaims();

// The steps after an average's sum, times {multiplier}.
std::vector<Step> XnnpackMeanSteps();
// The last steps of fixed point: the zero point and the clamp.
std::vector<Step> XnnpackFixedPointEnd();
// (code - {a_zp}) * {a_scale} in float32.
extern const Step kXnnpackCodeToReal;

// Whether every C library gives these codes, by steps that rise or fall behind the one function of
// a table that a library calls; these shares of a softmax.
bool XnnpackCodesAreDecided(const Case& c, const std::vector<Step>& steps, Channel channel);
bool XnnpackSharesAreDecided(const Case& c);

// 0 for a denormal.
float XnnpackFlushed(float x);
// Whether x and the output have the same scale and zero point.
bool XnnpackSameParameters(const Case& c);

// Why these cases are refused, "" where they are not: of add, sub and mul; of the types of a sum of
// products; of an average of windows.
std::string XnnpackCannotRunOperands(const Case& c);
std::string XnnpackCannotRunSumTypes(const Case& c);
std::string XnnpackCannotAverage(const Case& c);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_XNNPACK_H_
