// SPDX-License-Identifier: Apache-2.0
// When the saturating multiply-add is exact. vpmaddubsw and its kin add two u8*s8 products in a
// saturating int16; weights for which no activation can reach that limit may take it, all others
// must not.
#ifndef QUALM_KERNELS_SUMS_CERTIFY_H_
#define QUALM_KERNELS_SUMS_CERTIFY_H_

#include <cstdint>

namespace qualm::kernels {

// True iff x0*w0 + x1*w1 fits int16 for all x0, x1 in 0..255.
bool CertifyPair(int8_t w0, int8_t w1);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_CERTIFY_H_
