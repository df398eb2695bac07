// SPDX-License-Identifier: Apache-2.0
// Weights as a sum of two sets that cannot saturate (certify.h), where SplitPanel finds such sets.
// In ordinary weights only a few pairs can saturate: their excess moves to extra quads, whose
// activations are read a second time. The sum over both sets is the sum over the weights. Internal
// to kernels/.
#ifndef QUALM_KERNELS_SUMS_SPLIT_H_
#define QUALM_KERNELS_SUMS_SPLIT_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/sums/panel_weights.h"

namespace qualm::kernels {

// At most; a multiple of 4.
inline constexpr int64_t kMostExtraPlaces = 2048;

struct ExtraQuads {
  // Four of each quad, ascending: 4 * quad + byte of the activations.
  std::vector<int64_t> places;
  std::vector<int8_t> weights;  // [quads][width][4]
};

// An unsafe pair needs one extra place, or two where its excess may not be a pair with the excess
// before it. An extra place costs as much as two others: where more pairs than a quarter are
// unsafe, widened rows (arrange.h) are faster.
inline int64_t MostExtraPlaces(int64_t quads) { return std::min(kMostExtraPlaces, quads / 2); }

// Makes all pairs of the panel safe with at most `most_places` extra places (rounded up to whole
// quads), and returns true. Returns false and leaves the weights as they are if that is too few.
bool SplitPanel(int64_t quads, const PanelWeights& panel, int64_t most_places, ExtraQuads* extra);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_SPLIT_H_
