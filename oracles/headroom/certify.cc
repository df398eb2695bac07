// SPDX-License-Identifier: Apache-2.0
// Which weights can saturate a pair. x0*w0 + x1*w1 is linear in each activation, so over a box of
// activations it takes its largest and its smallest value at a corner, and each activation's corner
// depends only on the sign of its own weight. So the row is safe iff, for every pair, those two
// corner values lie in int16: necessary and sufficient.
#include <algorithm>

#include "core/status.h"
#include "oracles/headroom/headroom.h"

namespace qualm::headroom {

CertifyResult CertifyRow(std::span<const int8_t> weights, int32_t x_lo, int32_t x_hi) {
  QUALM_CHECK_LE(0, x_lo);
  QUALM_CHECK_LE(x_lo, x_hi);
  QUALM_CHECK_LE(x_hi, 255);
  CertifyResult result;
  int32_t worst = INT32_MAX;
  for (size_t k = 0; k < weights.size(); k += 2) {
    const int32_t w0 = weights[k];
    const bool alone = k + 1 == weights.size();
    const int32_t w1 = alone ? 0 : weights[k + 1];
    for (const bool largest : {true, false}) {
      Pair pair;
      pair.k = static_cast<int64_t>(k);
      pair.w0 = w0;
      pair.w1 = w1;
      pair.x0 = (w0 > 0) == largest ? x_hi : x_lo;
      pair.x1 = alone ? 0 : (w1 > 0) == largest ? x_hi : x_lo;
      pair.sum = pair.x0 * w0 + pair.x1 * w1;
      pair.saturated = std::clamp(pair.sum, -32768, 32767);
      const int32_t headroom = PairHeadroom(pair.sum);
      if (headroom < 0 && headroom < worst) {
        worst = headroom;
        result.safe = false;
        result.witness = pair;
      }
    }
  }
  return result;
}

}  // namespace qualm::headroom
