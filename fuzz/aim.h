// SPDX-License-Identifier: Apache-2.0
// Mutations that go straight to a hazard: chance would take long to meet one. Each returns without
// a change where the case has no room for it.
#ifndef QUALM_FUZZ_AIM_H_
#define QUALM_FUZZ_AIM_H_

#include "core/case.h"
#include "core/rng.h"

namespace qualm::fuzz {

// Sets two neighbouring products of a sum to their extremes, with equal signs: beyond int16.
void ExtremePair(Case& c, Rng& rng);

// Makes one output lie at (or a hair beside) j or j + 1/2 codes from its zero point: inside the
// clamp, where errors show, and near the ties.
void AimAtCode(Case& c, Rng& rng);

// Puts one output exactly on a tie.
void AimAtTie(Case& c, Rng& rng);

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_AIM_H_
