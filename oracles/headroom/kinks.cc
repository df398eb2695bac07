// SPDX-License-Identifier: Apache-2.0
// In a constant-input sweep both activations of a pair are x, so the pair sum is x*S. For S > 0 it
// fits int16 up to x = floor(32767 / S), for S < 0 up to floor(32768 / |S|). A code lies beyond
// that iff the bound is below 255, that is, iff |S| >= 129 (255 * 128 = 32640 fits, 255 * 129 =
// 32895 does not). S >= -256, so that no kink lies below code 128.
#include <algorithm>
#include <tuple>

#include "oracles/headroom/headroom.h"

namespace qualm::headroom {

std::vector<Kink> PredictKinks(const Case& c, int64_t n) {
  std::vector<Kink> kinks;
  if (!HasPairs(c)) return kinks;
  const int8_t* w = c.w.as<int8_t>().data() + n * c.K;
  for (int64_t k = 0; k + 1 < c.K; k += 2) {
    const int32_t sum = w[k] + w[k + 1];
    if (sum == 0) continue;
    const int32_t last = sum > 0 ? 32767 / sum : 32768 / -sum;
    if (last < 255) kinks.push_back({n, k, sum, last});
  }
  std::sort(kinks.begin(), kinks.end(), [](const Kink& a, const Kink& b) {
    return std::tie(a.last_exact_code, a.k) < std::tie(b.last_exact_code, b.k);
  });
  return kinks;
}

}  // namespace qualm::headroom
