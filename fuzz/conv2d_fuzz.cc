// SPDX-License-Identifier: Apache-2.0
// Runs convolutions near pair saturation, overflow, ties and their padding; traps when a property
// fails.
#include "fuzz/target.h"

QUALM_FUZZ_OPERATION(qualm::Op::kConv2d);
