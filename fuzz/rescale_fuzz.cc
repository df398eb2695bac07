// SPDX-License-Identifier: Apache-2.0
// Moves codes to another scale and zero point near ties; traps when a property fails.
#include "fuzz/target.h"

QUALM_FUZZ_OPERATION(qualm::Op::kRescale);
