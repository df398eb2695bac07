// SPDX-License-Identifier: Apache-2.0
// dynamic_linear: the quantize and the linear that remain once scales and zero points of x are
// chosen (qparams_rule.h; docs/quantization.md).
#ifndef QUALM_ORACLES_EXACT_DYNAMIC_LINEAR_H_
#define QUALM_ORACLES_EXACT_DYNAMIC_LINEAR_H_

#include <cstdint>
#include <span>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/exact/qparams_rule.h"

namespace qualm::exact {

// The range of the finite values, 0 included.
ObservedRange FiniteRange(std::span<const float> values);

// Rows [first, first + count) of x as a quantize into the codes of the case.
Case QuantizeOf(const Case& c, int64_t first, int64_t count, const ChosenQParams& chosen);
// The linear of these codes.
Case SumsCaseOf(const Case& c, Tensor codes, const ChosenQParams& chosen);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_DYNAMIC_LINEAR_H_
