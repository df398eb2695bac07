// SPDX-License-Identifier: Apache-2.0
// Sums whose products with the scales lie beside a tie of float32, nearer than double can tell: a
// kernel that computes an f32 output in double, and then rounds to float32, rounds twice.
#ifndef QUALM_PROPERTIES_GEN_FLOAT_TIES_H_
#define QUALM_PROPERTIES_GEN_FLOAT_TIES_H_

#include <cstdint>
#include <optional>

#include "core/rng.h"

namespace qualm::gen::internal {

// The least x with low <= factor * x mod modulus <= high; nullopt if there is none. Needs factor
// and high below modulus, low <= high and modulus <= 2^63.
std::optional<uint64_t> FirstBetween(uint64_t factor, uint64_t modulus, uint64_t low,
                                     uint64_t high);

// A positive int32 of 29 to 31 bits whose product with both scales lies within 2^-53 of itself of a
// tie of float32. Not every pair of scales has one that is found; nullopt then. Needs scales that
// are no denormals.
std::optional<int32_t> SumBesideFloatTie(Rng& rng, float x_scale, float w_scale);

}  // namespace qualm::gen::internal

#endif  // QUALM_PROPERTIES_GEN_FLOAT_TIES_H_
