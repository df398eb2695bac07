// SPDX-License-Identifier: Apache-2.0
// Cases near a given case, on which a subject can be asked.
#ifndef QUALM_TRIAGE_VARY_H_
#define QUALM_TRIAGE_VARY_H_

#include <cstdint>
#include <optional>

#include "core/case.h"

namespace qualm::triage {

// The case with other codes, zero points, scales, bias or clamp, or with more terms, rows or
// channels. Never with fewer, because a fault may need a size. The same case and seed give the same
// result. nullopt where the edits made no valid case.
std::optional<Case> Varied(const Case& c, uint64_t seed);

// The case with fewer terms, rows or channels, with smaller blocks of weights, with another stride,
// dilation or padding, or with codes of the other type that stand for the same numbers: it tells on
// which of these a fault depends. nullopt where there is no such case.
std::optional<Case> Reduced(const Case& c, uint64_t seed);
// The case with something that it does not have: a bias, a relu, a zero point. A condition such as
// "where there is no bias" has to be held to it. nullopt: it has all of it.
std::optional<Case> Extended(const Case& c, uint64_t seed);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_VARY_H_
