// SPDX-License-Identifier: Apache-2.0
// Hard-swish of TFLite's reference kernels, as an operation of its conventions.
#ifndef QUALM_ORACLES_CONVENTIONS_TFLITE_HARD_SWISH_H_
#define QUALM_ORACLES_CONVENTIONS_TFLITE_HARD_SWISH_H_

#include "oracles/conventions/convention.h"

namespace qualm::conventions {

// A convention without a name that has table alone. Both builds compute the same.
Convention TfliteHardSwish();

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_TFLITE_HARD_SWISH_H_
