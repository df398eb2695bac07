// SPDX-License-Identifier: Apache-2.0
// Weights as the inputs of MatMulNBits: codes without a sign, a float32 scale and a zero point for
// each block. Those that have a sign are moved up, and their zero points with them. Internal to
// exporters/.
#ifndef QUALM_EXPORTERS_NBITS_H_
#define QUALM_EXPORTERS_NBITS_H_

#include <cstdint>

#include "core/case.h"

namespace qualm::exporters {

struct NBits {
  int bits = 0;
  int64_t block = 0;    // codes of a block, a multiple of 16
  Tensor codes;         // u8 [N, blocks, block * bits / 8]: the first code lies lowest
  Tensor scales;        // f32 [N * blocks]
  Tensor zero_points;   // u8, rows of whole bytes
  bool centred = true;  // all zero points are those that the operator takes for granted
};

// The block of the case; where one holds the whole row, as many codes as that has, filled up.
int64_t NBitsBlock(const Case& c);
// Of a linear, with blocks of `block` codes, which the blocks of the case consist of. Throws
// CannotExpress.
NBits NBitsOf(const Case& c, int64_t block);

}  // namespace qualm::exporters

#endif  // QUALM_EXPORTERS_NBITS_H_
