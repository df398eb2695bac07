// SPDX-License-Identifier: Apache-2.0
// Drawn cases have everything that an operation can have; many kernels take little of it. A case
// brought into their limits keeps its shape and its data, and with them most of its hazard.
#ifndef QUALM_PROPERTIES_ADAPT_H_
#define QUALM_PROPERTIES_ADAPT_H_

#include <optional>

#include "core/case.h"
#include "core/subject.h"

namespace qualm {

// The case itself if the subject takes it. Else a valid one that it takes, with as little changed
// as its reasons against it ask for: fused relu, clamp, bias, parameters per channel, zero points,
// element types, requantization, dilation, padding. nullopt where that does not help (sizes).
std::optional<Case> AdaptTo(const Subject& subject, const Case& c);

}  // namespace qualm

#endif  // QUALM_PROPERTIES_ADAPT_H_
