// SPDX-License-Identifier: Apache-2.0
// Quantizes reals near ties, clamp edges and NaN; traps when a property fails.
#include "fuzz/target.h"

QUALM_FUZZ_OPERATION(qualm::Op::kQuantize);
