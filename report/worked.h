// SPDX-License-Identifier: Apache-2.0
// One output of a case worked through: its inputs, and the exact steps beside those of a subject.
#ifndef QUALM_REPORT_WORKED_H_
#define QUALM_REPORT_WORKED_H_

#include <cstdint>
#include <string>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/conventions/convention.h"
#include "report/document.h"

namespace qualm::report {

// A subject's answer to a case.
struct Answer {
  std::string who;
  Tensor y;
  const Convention* convention = nullptr;  // gives this answer, for its steps; may be null
};

// "output row 0, channel 3".
std::string PlaceOf(const Case& c, int64_t index);

// The operands of output `index`, term by term where there are sums; zeros are left out.
Table OperandTable(const Case& c, int64_t index);

// The steps of the convention of an answer, without the exact ones. They show where numbers are
// rounded in float32, that is, where the environment acts.
Table OwnSteps(const Case& c, int64_t index, const Answer& answer);

// The exact steps and, beside them, the answer's steps up to the first that is not exact, which is
// marked. Without an answer, or if the answer is exact here, only the exact steps.
Table StepTable(const Case& c, int64_t index, const Answer* answer);

}  // namespace qualm::report

#endif  // QUALM_REPORT_WORKED_H_
