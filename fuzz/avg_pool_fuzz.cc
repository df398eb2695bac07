// SPDX-License-Identifier: Apache-2.0
// Averages windows with every way to count padding, near ties; traps when a property fails.
#include "fuzz/target.h"

QUALM_FUZZ_OPERATION(qualm::Op::kAvgPool);
