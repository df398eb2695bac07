// SPDX-License-Identifier: Apache-2.0
// Looks codes up in tables of the activation functions; traps when a property fails.
#include "fuzz/target.h"

QUALM_FUZZ_OPERATION(qualm::Op::kTable);
