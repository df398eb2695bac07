// SPDX-License-Identifier: Apache-2.0
// Takes the softmax of rows of codes; traps when a property fails.
#include "fuzz/target.h"

QUALM_FUZZ_OPERATION(qualm::Op::kSoftmax);
