// SPDX-License-Identifier: Apache-2.0
// Runs depthwise convolutions near overflow, ties and their padding; traps when a property fails.
#include "fuzz/target.h"

QUALM_FUZZ_OPERATION(qualm::Op::kDepthwise);
