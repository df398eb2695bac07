// SPDX-License-Identifier: Apache-2.0
// The lines of NumPy in float32, for libraries whose reference is the same lines.
#ifndef QUALM_ORACLES_CONVENTIONS_NUMPY_H_
#define QUALM_ORACLES_CONVENTIONS_NUMPY_H_

#include "oracles/conventions/definition.h"

namespace qualm::conventions {

// numpy@float32.
Definition DequantizingInFloat32();

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_NUMPY_H_
