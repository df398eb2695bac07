// SPDX-License-Identifier: Apache-2.0
// The operators of ONNX Runtime that are neither sums nor QuantizeLinear, QLinearAdd, QLinearMul:
// pools, QLinearConcat, tables, QLinearSoftmax.
#ifndef QUALM_ORACLES_CONVENTIONS_ONNXRUNTIME_FURTHER_H_
#define QUALM_ORACLES_CONVENTIONS_ONNXRUNTIME_FURTHER_H_

#include <string>
#include <vector>

#include "oracles/conventions/definition.h"

namespace qualm::conventions::ort {

// fl(v / scale), as all of its quantization.
void DivideByScale(Value& v, const Channel& c);

// Those operations.
std::vector<Op> FurtherOps();
// Why one of them cannot be had, "" if it can.
std::string CannotRunFurther(const Case& c);
// What flows into the steps of output `index`, and its constants.
Value FurtherInput(const Case& c, int64_t index);
Channel FurtherChannel(const Case& c, int64_t column);
// `fma`: the sigmoid's polynomials are fused. `end` requantizes a float32 number of output codes
// (clamp, round, zero point).
std::vector<Step> FurtherSteps(const Case& c, bool fma, const std::vector<Step>& end);

}  // namespace qualm::conventions::ort

#endif  // QUALM_ORACLES_CONVENTIONS_ONNXRUNTIME_FURTHER_H_
