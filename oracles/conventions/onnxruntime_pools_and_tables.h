// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime's pools, and its operators that are tables of codes: QLinearConcat,
// QLinearLeakyRelu, QLinearSigmoid and, with a table of exponentials, QLinearSoftmax.
#ifndef QUALM_ORACLES_CONVENTIONS_ONNXRUNTIME_POOLS_AND_TABLES_H_
#define QUALM_ORACLES_CONVENTIONS_ONNXRUNTIME_POOLS_AND_TABLES_H_

#include <string>
#include <vector>

#include "oracles/conventions/definition.h"

namespace qualm::conventions::ort {

std::vector<Op> PoolAndTableOps();
// The reason why the operator refuses a case of these operations, "" if it takes the case.
std::string CannotPoolOrTable(const Case& c);
// The values that the steps begin with, and the constants of a column.
Definition::Gatherer GatherPoolOrTable(const Case& c);
Channel PoolOrTableChannel(const Case& c, int64_t column);
// What differs between the processors that MLAS is compiled for.
struct PoolOrTableForms {
  bool fma;               // the sigmoid's polynomials are fused
  std::vector<Step> end;  // requantizes a float32 number of output codes: clamp, round, zero point
  Step round;             // nearbyintf and a conversion to int32
};
std::vector<Step> PoolOrTableSteps(const Case& c, const PoolOrTableForms& forms);

}  // namespace qualm::conventions::ort

#endif  // QUALM_ORACLES_CONVENTIONS_ONNXRUNTIME_POOLS_AND_TABLES_H_
