// SPDX-License-Identifier: Apache-2.0
// Chooses scales and zero points for batches of reals; traps when a property fails.
#include "fuzz/target.h"

QUALM_FUZZ_OPERATION(qualm::Op::kChooseQParams);
