// SPDX-License-Identifier: Apache-2.0
// Experiments without any idea of the kernel's arithmetic: if an output changes with channels, rows
// or images not its own, it is read, corrected or scaled by something of theirs.
#ifndef QUALM_TRIAGE_INFLUENCE_H_
#define QUALM_TRIAGE_INFLUENCE_H_

#include <optional>
#include <string>

#include "core/case.h"
#include "core/subject.h"

namespace qualm::triage {

// "outputs change with the weights of other channels", where the subject's answer `y` to `c` has
// outputs that are not `right` and do so; nullopt if none was seen. Of the other channels, rows and
// images every code stays in its row, at another place or more than once, so that no check of their
// range or type takes another path. At most 40 runs.
std::optional<std::string> ForeignInfluence(const Case& c, const Tensor& right, const Tensor& y,
                                            Subject& subject);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_INFLUENCE_H_
