// SPDX-License-Identifier: Apache-2.0
// Dequantizes codes with scales at the ends of float32; traps when a property fails.
#include "fuzz/target.h"

QUALM_FUZZ_OPERATION(qualm::Op::kDequantize);
