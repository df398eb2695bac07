// SPDX-License-Identifier: Apache-2.0
// Cases inside the domain of real libraries, aimed at where their arithmetic parts: for telling
// conventions from each other, where a case that most of them refuse says nothing.
#ifndef QUALM_PROPERTIES_GEN_LIBRARY_H_
#define QUALM_PROPERTIES_GEN_LIBRARY_H_

#include <cstdint>

#include "core/case.h"
#include "core/rng.h"

namespace qualm::gen {

// A drawn case moved to what most conventions take: one code type for x and output, zero points
// that are codes, the whole clamp, mostly s8 weights with zero point 0. One case in eight stays as
// it is.
Case IntoLibraryDomain(Case c, Rng& rng);

// Every other case is gen::Draw moved into that domain. Of the rest, sums have few terms that are
// solved for a wanted accumulator: saturating pairs, exact ties, the nearest misses of ties (where
// multipliers that differ in the last bit part), float32 sums beyond 2^24, results beyond int32;
// with odd zero points, each kind of bias or none, and half of the time no code of x above 127, so
// that no pair saturates. Other operations are drawn towards ties and special values.
Case DrawForLibraries(Op op, uint64_t seed);

}  // namespace qualm::gen

#endif  // QUALM_PROPERTIES_GEN_LIBRARY_H_
