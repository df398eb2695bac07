// SPDX-License-Identifier: Apache-2.0
// Joins codes of two scales, each rescaled, near ties; traps when a property fails.
#include "fuzz/target.h"

QUALM_FUZZ_OPERATION(qualm::Op::kConcat);
