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

// `why_not` says why a case cannot be run, "" if it can. Returns `c` if it can be run; else a valid
// case that can be run and differs from `c` as little as the reasons ask for: in relu, clamp, bias,
// parameters per channel, zero points, element types, requantization, dilation, padding, the scale
// and zero point of the output, or the default of any other parameter. nullopt where no such change
// helps, as with sizes.
std::optional<Case> AdaptTo(const std::function<std::string(const Case&)>& why_not, const Case& c);
// The same where the reasons are those of the subject, and of the convention that it promises; the
// case is first brought into the subject's domain.
std::optional<Case> AdaptTo(const Subject& subject, const Case& c);
// A drawn case as the subject takes it: with f32 x, with its weights, or weights and activations,
// in blocks where the subject takes these and the case has its turn, else as AdaptTo brings it;
// what nobody else takes also where nothing else is taken, another one with codes of 16 bits among
// them.
std::optional<Case> TakenBy(const Subject& subject, const Case& drawn);
// Why the case cannot be run as it is: the subject's reason, or that of its convention; "" if it
// can.
std::string WhyNot(const Subject& subject, const Case& c);

}  // namespace qualm

#endif  // QUALM_PROPERTIES_ADAPT_H_
