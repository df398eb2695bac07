// SPDX-License-Identifier: Apache-2.0
// How a target adds the products of four u8 and four s8 to an int32 (sums/quads-inl.h). Internal to
// kernels/.
#ifndef QUALM_KERNELS_COMMON_QUAD_SUM_H_
#define QUALM_KERNELS_COMMON_QUAD_SUM_H_

#include <cstdint>

namespace qualm::kernels::internal {

enum class QuadSum : uint8_t {
  kHighway,   // as Highway does
  kPairs,     // vpmaddubsw: only for weights that cannot saturate, so that no target has it always
  kWidened,   // vpmaddwd, of activations that are widened to 16 bits before (sums/arrange.h)
  kVnniVex,   // vpdpbusd of AVX-VNNI
  kVnniEvex,  // vpdpbusd of AVX-512 on 256 bits
  kDot,       // sdot: takes activations less 128; packing adds 128 * w
  kI8mm,      // usdot
};

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_COMMON_QUAD_SUM_H_
