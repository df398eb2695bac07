// SPDX-License-Identifier: Apache-2.0
// How a scale and zero point follow from a range, by each QParamsRule (docs/quantization.md). There
// is no real result that is rounded once: the steps are the definition. Two forms: floats as the
// processor rounds them, and rationals that are rounded where a step says so.
#ifndef QUALM_ORACLES_EXACT_QPARAMS_RULE_H_
#define QUALM_ORACLES_EXACT_QPARAMS_RULE_H_

#include <cstdint>

#include "core/case.h"
#include "oracles/exact/observer.h"

namespace qualm::exact {

// ATen's choice for a finite range that holds 0. The scale is of float64 until its last step.
struct AtenChoice {
  double scale = 1.0;
  int32_t zero_point = 0;
};
AtenChoice AtenFromRange(float min, float max, bool reduce_range);

// The scale and zero point that the rule of a choose_qparams or dynamic_linear chooses for a finite
// range that holds 0. Of choose_qparams the scale is infinite where the range is beyond float32; of
// dynamic_linear, which goes on with it, it is then the largest float32.
ChosenQParams ChosenFor(const Case& c, ObservedRange range);
// The same in rationals.
ChosenQParams ChosenForRational(const Case& c, ObservedRange range);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_QPARAMS_RULE_H_
