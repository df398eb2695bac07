// SPDX-License-Identifier: Apache-2.0
// Drawn cases have everything that an operation can have; many kernels take little of it. A case
// brought into their limits keeps its shape and its data, and with them most of its hazard.
#ifndef QUALM_PROPERTIES_ADAPT_H_
#define QUALM_PROPERTIES_ADAPT_H_

#include <functional>
#include <optional>
#include <string>

#include "core/case.h"
#include "core/subject.h"

namespace qualm {

// The case itself if nothing speaks against it (`why_not` gives ""). Else a valid one of which that
// is so, with as little changed as the reasons against it ask for: fused relu, clamp, bias,
// parameters per channel, zero points, element types, requantization, dilation, padding, the
// output's parameters. nullopt where that does not help (sizes).
std::optional<Case> AdaptTo(const std::function<std::string(const Case&)>& why_not, const Case& c);
// Against it are the subject, and the convention that it promises to follow.
std::optional<Case> AdaptTo(const Subject& subject, const Case& c);

}  // namespace qualm

#endif  // QUALM_PROPERTIES_ADAPT_H_
