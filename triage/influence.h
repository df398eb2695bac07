// SPDX-License-Identifier: Apache-2.0
// Experiments that know nothing of the kernel's arithmetic: other channels, rows or images get
// other codes. An output that changes with them was computed from something that belongs to them.
#ifndef QUALM_TRIAGE_INFLUENCE_H_
#define QUALM_TRIAGE_INFLUENCE_H_

#include <optional>
#include <string>

#include "core/case.h"
#include "core/subject.h"

namespace qualm::triage {

// Looks at outputs of the subject's answer `y` to `c` that are not `right`. If they change with
// something that belongs to others, says so: "outputs change with the weights of other channels";
// nullopt if none was seen to change. The others get codes of their own row, at other places, so
// that a kernel which checks ranges or types takes the same path as before. At most 120 runs.
std::optional<std::string> ForeignInfluence(const Case& c, const Tensor& right, const Tensor& y,
                                            Subject& subject);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_INFLUENCE_H_
