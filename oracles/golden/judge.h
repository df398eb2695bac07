// SPDX-License-Identifier: Apache-2.0
// Compares the conventions with recordings of the real libraries: every recorded output (y*, acc*,
// scale, zp, q) must be bit-equal to the output of the convention of its backend.
#ifndef QUALM_ORACLES_GOLDEN_JUDGE_H_
#define QUALM_ORACLES_GOLDEN_JUDGE_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/golden.h"
#include "core/verdict.h"

namespace qualm {

struct GoldenVerdict {
  std::string convention;  // "fbgemm@avx2"; "" if none is known
  Verdict verdict;      // passed, failed (with field and first difference), or skipped with reason
  int64_t outputs = 0;  // elements compared
  bool interval = false;  // the convention accepts many numbers of each output, not one
  // Where the record asks for output `tell`: what is recorded and computed, and its fused sums.
  std::vector<std::string> steps;
};

// Throws InputError if the record lacks a field its op needs or a field is malformed.
GoldenVerdict JudgeGolden(const GoldenRecord& record);

// Conventions that judge recordings alone: they have none of the operations of cases.
struct RecordedConvention {
  std::string_view name, about;
};
std::span<const RecordedConvention> RecordedConventions();

// Of a product of floats the ways of adding that give every output: "float32 chain of fused
// multiply-adds". nullopt where the record is no such product.
std::optional<std::vector<std::string>> GoldenArithmetics(const GoldenRecord& record);

// Whether the op of the record is an operation of cases.
bool GoldenHasCase(const GoldenRecord& record);
// The record as a case, for subjects and explain. Throws InputError unless GoldenHasCase.
Case GoldenCase(const GoldenRecord& record);

}  // namespace qualm

#endif  // QUALM_ORACLES_GOLDEN_JUDGE_H_
