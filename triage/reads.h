// SPDX-License-Identifier: Apache-2.0
// An experiment that knows nothing of a kernel's arithmetic: which elements does an output read,
// and with which weights? One element of the input is changed at a time, in a problem of the same
// shape whose weights are all different and whose outputs show each product.
#ifndef QUALM_TRIAGE_READS_H_
#define QUALM_TRIAGE_READS_H_

#include <optional>

#include "core/case.h"
#include "core/subject.h"
#include "triage/ask.h"

namespace qualm::triage {

// Whether an output that departs in the subject's answer `y` to `c` reads other elements than it
// should, or multiplies them by other weights: kIndex, kTail or kPadding. nullopt: it was not seen
// to, or the operation or its size does not lend itself, or products came back changed, so that
// something else is at work.
std::optional<ShownOfSubject> FindMisreading(const Case& c, const Tensor& right, const Tensor& y,
                                             Subject& subject);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_READS_H_
