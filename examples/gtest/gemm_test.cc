// SPDX-License-Identifier: Apache-2.0
#include <qualm/properties/gtest.h>

#include "gemm_subject.h"

QUALM_TEST_SUBJECT(Gemm, qualm::Op::kLinear, MakeGemm);
