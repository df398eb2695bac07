// SPDX-License-Identifier: Apache-2.0
// An experiment that knows nothing of a kernel's arithmetic: which elements does an output read,
// and with which weights? One element of the input is changed at a time, in a problem of the same
// shape whose weights are all different and whose outputs show each product.
#ifndef QUALM_TRIAGE_READS_H_
#define QUALM_TRIAGE_READS_H_

#include <optional>
#include <string>

#include "core/case.h"
#include "core/subject.h"
#include "core/verdict.h"

namespace qualm::triage {

struct Misreading {
  FindingKind kind = FindingKind::kIndex;  // kIndex, kTail or kPadding
  std::string sentence;  // what the subject does: "leaves out the last term of a sum"
  std::string evidence;  // of one output, what it reads instead of what
};

// Whether an output that departs in the subject's answer `y` to `c` reads other elements than it
// should, or multiplies them by other weights. nullopt: it was not seen to, or the operation or its
// size does not lend itself, or products came back changed, so that something else is at work.
std::optional<Misreading> FindMisreading(const Case& c, const Tensor& right, const Tensor& y,
                                         Subject& subject);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_READS_H_
