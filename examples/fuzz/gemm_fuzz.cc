// SPDX-License-Identifier: Apache-2.0
#include <qualm/fuzz/target.h>

#include "gemm_subject.h"

QUALM_FUZZ_TARGET(qualm::Op::kLinear, MakeGemm);
