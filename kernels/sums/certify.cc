// SPDX-License-Identifier: Apache-2.0
// Whether the saturating multiply-add is exact for given weights. CertifyPair has the proof: the
// largest and the smallest sum of a pair decide.
#include "kernels/sums/certify.h"

#include <algorithm>

namespace qualm::kernels {

// The sum is largest when every positive weight meets 255 and every negative one 0, and smallest
// the other way round, so two corners decide. 255*128 = 32640 fits and 255*129 = 32895 does not;
// 255*-128 = -32640 fits and 255*-129 = -32895 does not.
bool CertifyPair(int8_t w0, int8_t w1) {
  const int positive = std::max<int>(w0, 0) + std::max<int>(w1, 0);
  const int negative = std::min<int>(w0, 0) + std::min<int>(w1, 0);
  return positive <= 128 && negative >= -128;
}

}  // namespace qualm::kernels
