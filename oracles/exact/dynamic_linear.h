// SPDX-License-Identifier: Apache-2.0
// dynamic_linear: the scales and zero points that it chooses for x, and the quantize and the linear
// that remain once they are chosen (docs/quantization.md).
#ifndef QUALM_ORACLES_EXACT_DYNAMIC_LINEAR_H_
#define QUALM_ORACLES_EXACT_DYNAMIC_LINEAR_H_

#include <cstdint>
#include <span>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/exact/observer.h"

namespace qualm::exact {

// ATen's choice for a finite range that holds 0. The scale is of float64 until its last step.
struct AtenChoice {
  double scale = 1.0;
  int32_t zero_point = 0;
};
AtenChoice AtenFromRange(float min, float max, bool reduce_range);

// The range of the finite values, 0 included.
ObservedRange FiniteRange(std::span<const float> values);
// The scale and zero point that the rule of a dynamic_linear chooses for such a range.
ChosenQParams ChosenFor(const Case& c, ObservedRange range);

// Rows [first, first + count) of x as a quantize into the codes of the case.
Case QuantizeOf(const Case& c, int64_t first, int64_t count, const ChosenQParams& chosen);
// The linear of these codes.
Case SumsCaseOf(const Case& c, Tensor codes, const ChosenQParams& chosen);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_DYNAMIC_LINEAR_H_
