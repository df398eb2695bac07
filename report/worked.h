// SPDX-License-Identifier: Apache-2.0
// One output of a case worked through: what goes in, and the exact steps beside those of a subject.
#ifndef QUALM_REPORT_WORKED_H_
#define QUALM_REPORT_WORKED_H_

#include <cstdint>
#include <string>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/conventions/convention.h"
#include "report/document.h"

namespace qualm::report {

// What a subject makes of a case.
struct Answer {
  std::string who;
  Tensor y;
  const Convention* convention = nullptr;  // that gives this answer, for its steps; may be none
};

// "output row 0, channel 3".
std::string PlaceOf(const Case& c, int64_t index);

// The operands of output `index`, term by term where there are sums; zeros are left out.
Table OperandTable(const Case& c, int64_t index);

// The exact steps, and beside them the answer's up to the first that is not exact, which is marked.
// Without an answer, or where that is exact here, the exact steps alone.
Table StepTable(const Case& c, int64_t index, const Answer* answer);

}  // namespace qualm::report

#endif  // QUALM_REPORT_WORKED_H_
