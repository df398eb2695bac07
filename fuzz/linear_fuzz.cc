// SPDX-License-Identifier: Apache-2.0
// Runs linear layers near pair saturation, overflow and ties; traps when a property fails.
#include "fuzz/target.h"

QUALM_FUZZ_OPERATION(qualm::Op::kLinear);
