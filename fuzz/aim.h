// SPDX-License-Identifier: Apache-2.0
// Mutations that go straight to a hazard: chance would take long to meet one. Each returns without
// a change where the case has no room for it.
#ifndef QUALM_FUZZ_AIM_H_
#define QUALM_FUZZ_AIM_H_

#include "core/case.h"
#include "core/rng.h"

namespace qualm::fuzz {

// Sets two neighbouring products of a sum to their extremes, with equal signs. Products u8*s8 leave
// int16 together, s8*s8 only with -128 four times.
void ExtremePair(Case& c, Rng& rng);

// Makes one output lie at (or a hair beside) j or j + 1/2 codes from its zero point, j at most 255:
// near a tie or near a code, and most often inside the clamp, where errors show.
void AimAtCode(Case& c, Rng& rng);

// Puts one output exactly on a tie.
void AimAtTie(Case& c, Rng& rng);

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_AIM_H_
