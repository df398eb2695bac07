// SPDX-License-Identifier: Apache-2.0
// Linear with weights of 4 or 8 bits in blocks, as ONNX Runtime's MatMulNBits has them: codes
// without a sign, a float32 scale and a zero point that is a code for each block; x is f32, or s8
// in the same blocks.
#ifndef QUALM_ADAPTERS_HOST_NBITS_H_
#define QUALM_ADAPTERS_HOST_NBITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/case.h"

namespace qualm {

// Blocks are multiples of 16, or one for each channel: of so many codes, filled up.
int64_t NBitsBlock(const Case& c);
std::string WhyNotNBits(int bits, const Case& c);
// The case with such weights and blocks, if x is f32 or in blocks.
Case InsideNBits(int bits, const Case& c);

// The weights as the operator's inputs. Weights with a sign are moved up, and their zero points.
struct NBitsInputs {
  std::vector<uint8_t> codes;        // [N, blocks, block * bits / 8]
  std::vector<float> scales;         // [N, blocks]
  std::vector<uint8_t> zero_points;  // [N, bytes of a row]; empty where all are 2^(bits-1)
};
NBitsInputs NBitsInputsOf(const Case& c);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_NBITS_H_
