// SPDX-License-Identifier: Apache-2.0
// Compares the conventions with recordings of the real libraries: every recorded output (y*, acc*,
// scale, zp, q) must be bit-equal to the output of the convention of its backend.
#ifndef QUALM_ORACLES_GOLDEN_JUDGE_H_
#define QUALM_ORACLES_GOLDEN_JUDGE_H_

#include <string>

#include "core/io/golden.h"
#include "core/verdict.h"

namespace qualm {

struct GoldenVerdict {
  std::string convention;  // "fbgemm@avx2"; "" if none is known
  Verdict verdict;      // passed, failed (with field and first difference), or skipped with reason
  int64_t outputs = 0;  // elements compared
};

// Throws InputError if the record lacks a field its op needs or a field is malformed.
GoldenVerdict JudgeGolden(const GoldenRecord& record);

// Whether the op of the record is an operation of cases.
bool GoldenHasCase(const GoldenRecord& record);
// The record as a case, for subjects and explain. Throws InputError unless GoldenHasCase.
Case GoldenCase(const GoldenRecord& record);

}  // namespace qualm

#endif  // QUALM_ORACLES_GOLDEN_JUDGE_H_
