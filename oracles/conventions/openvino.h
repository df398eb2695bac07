// SPDX-License-Identifier: Apache-2.0
#ifndef QUALM_ORACLES_CONVENTIONS_OPENVINO_H_
#define QUALM_ORACLES_CONVENTIONS_OPENVINO_H_

#include "core/case.h"

namespace qualm::conventions {

// Whether the sum of this linear would be multiplied by exactly 1, in one product, before a shift
// for each channel. OpenVINO 2026.4 leaves such a product out, and the scale of the output with it.
bool OpenvinoMultipliesByOne(const Case& c);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_OPENVINO_H_
