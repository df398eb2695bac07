// SPDX-License-Identifier: Apache-2.0
// Helpers for the answers to forum threads.
#ifndef QUALM_REPORT_FORUM_UTIL_H_
#define QUALM_REPORT_FORUM_UTIL_H_

#include <cstdint>
#include <string>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/conventions/convention.h"
#include "report/document.h"
#include "report/forum.h"

namespace qualm::report {

// The convention of that name, which exists.
const Convention& ConventionCalled(const std::string& name);

// Outputs in which two tensors of codes differ, and by how much at most.
struct Mismatch {
  int64_t outputs = 0, wrong = 0, worst = 0;
  int64_t first = -1;  // -1: none
};
Mismatch Compare(const Tensor& exact, const Tensor& other);

// "0.0241212": as people write a scale.
std::string Real(double value);

// The question as a paragraph that stands out.
Block Question(const std::string& text);

}  // namespace qualm::report

#endif  // QUALM_REPORT_FORUM_UTIL_H_
