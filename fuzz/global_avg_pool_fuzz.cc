// SPDX-License-Identifier: Apache-2.0
// Averages whole images near ties; traps when a property fails.
#include "fuzz/target.h"

QUALM_FUZZ_OPERATION(qualm::Op::kGlobalAvgPool);
