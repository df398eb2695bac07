// SPDX-License-Identifier: Apache-2.0
// The packed weights of one panel: of as many channels as an inner loop computes at once. A place
// is the number of an activation in a row. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_PANEL_WEIGHTS_H_
#define QUALM_KERNELS_SUMS_PANEL_WEIGHTS_H_

#include <cstdint>

namespace qualm::kernels {

struct PanelWeights {
  int64_t width = 0;          // channels
  int8_t* weights = nullptr;  // [quads][width][4]

  // Of a channel, at place 4 * quad + byte. For an even place, place + 1 is the next byte.
  int8_t* At(int64_t place, int64_t channel) const {
    return weights + (place / 4 * width + channel) * 4 + place % 4;
  }
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_PANEL_WEIGHTS_H_
