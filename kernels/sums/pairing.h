// SPDX-License-Identifier: Apache-2.0
// Which activations vpmaddubsw adds in pairs (certify.h). Weights that are too large together need
// not meet: sixteen activations are shuffled so that few do. Weights are packed in
// that order, and rows are shuffled before they meet them. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_PAIRING_H_
#define QUALM_KERNELS_SUMS_PAIRING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sums/panel_weights.h"

namespace qualm::kernels {

// Activations are shuffled in blocks of so many: what one instruction can do.
inline constexpr int64_t kShuffled = 16;

// The order of the activations for some panels.
struct Pairing {
  size_t end_panel = 0;  // it begins where the pairing before ends
  // [depth / 16][16]: the activation of its block that stands at each place. The last depth % 16
  // stay where they are. Empty: all do.
  std::vector<uint8_t> shuffle = {};
};

// Chooses the pairings for a layer, and puts its weights in their order. Empty if no activation
// shall move.
std::vector<Pairing> PairActivations(int64_t depth, std::span<const PanelWeights> panels);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_PAIRING_H_
