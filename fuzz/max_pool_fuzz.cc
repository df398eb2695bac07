// SPDX-License-Identifier: Apache-2.0
// Takes maxima of windows with padding, dilation and ceil_mode; traps when a property fails.
#include "fuzz/target.h"

QUALM_FUZZ_OPERATION(qualm::Op::kMaxPool);
