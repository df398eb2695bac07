// SPDX-License-Identifier: Apache-2.0
// What LiteRT took over from TFLite's reference kernels as it was (two roundings).
#ifndef QUALM_ORACLES_CONVENTIONS_TFLITE_H_
#define QUALM_ORACLES_CONVENTIONS_TFLITE_H_

#include <vector>

#include "core/case.h"
#include "oracles/conventions/steps.h"

namespace qualm::conventions {

// Channel::fixed, by MultiplyTwoRoundings.
extern const Step kTfliteTimesFixed;

// add and sub.
Channel TfliteSumChannel(const Case& c);
std::vector<Step> TfliteSumSteps(const Case& c);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_TFLITE_H_
