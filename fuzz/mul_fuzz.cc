// SPDX-License-Identifier: Apache-2.0
// Multiplies codes of two scales near ties and clamp edges; traps when a property fails.
#include "fuzz/target.h"

QUALM_FUZZ_OPERATION(qualm::Op::kMul);
