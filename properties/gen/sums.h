// SPDX-License-Identifier: Apache-2.0
// Drawing of operations that end in sums over K: the part that linear and the convolutions share.
#ifndef QUALM_PROPERTIES_GEN_SUMS_H_
#define QUALM_PROPERTIES_GEN_SUMS_H_

#include <cstdint>

#include "properties/gen/values.h"

namespace qualm::gen::internal {

// How x and w are filled; a theme may require one of these.
enum class Fill : uint8_t { kUniform, kBoundary, kExtreme, kSignAligned, kConstant, kThreshold };

Fill PickFill(Rng& rng, Theme theme);

// Both tensors, element by element; for the first three fills, which do not look at shapes.
void FillElements(Rng& rng, Fill fill, Case& c);
// Weights whose largest magnitude is the threshold of a mitigation (63, 64, 65) or of the type, of
// one sign or both, under large activations.
void FillMagnitudes(Rng& rng, Case& c);
// Now and then makes one channel of s8 weights all zeros, so that its outputs are its
// bias.
void ZeroAChannel(Rng& rng, Case& c);

// Terms of a sum so many that products with zero points among the codes leave float32, rarely
// int32, or few, for zero points that are far from the codes.
int64_t DrawWideDepth(Rng& rng);

// Types of x, w (both still empty) and the output, and the granularity.
void DrawTypes(Rng& rng, Case& c);
// Now and then the filled weights become weights of 4 or 2 bits. A random generator of its own
// decides, so that all other cases are drawn as before there were such weights.
void NarrowWeights(const Rng& rng, Theme theme, Case& c);
// Everything that follows values and shape: zero points, scales, clamp, bias.
void DrawAroundSums(Rng& rng, Theme theme, Case& c);

}  // namespace qualm::gen::internal

#endif  // QUALM_PROPERTIES_GEN_SUMS_H_
