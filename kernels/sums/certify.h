// SPDX-License-Identifier: Apache-2.0
// When the saturating multiply-add is exact. vpmaddubsw and its kin add two u8*s8 products in a
// saturating int16; weights for which no activation can reach that limit may take it, all others
// must not. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_CERTIFY_H_
#define QUALM_KERNELS_SUMS_CERTIFY_H_

#include <algorithm>
#include <cstdint>

namespace qualm::kernels {

// True iff x0*w0 + x1*w1 fits int16 for all x0, x1 in 0..255.
//
// The sum is largest when every positive weight meets 255 and every negative one 0, and smallest
// the other way round, so two corners decide. 255*128 = 32640 fits and 255*129 = 32895 does not;
// 255*-128 = -32640 fits and 255*-129 = -32895 does not.
constexpr bool CertifyPair(int8_t w0, int8_t w1) {
  const int positive = std::max<int>(w0, 0) + std::max<int>(w1, 0);
  const int negative = std::min<int>(w0, 0) + std::min<int>(w1, 0);
  return positive <= 128 && negative >= -128;
}

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_CERTIFY_H_
