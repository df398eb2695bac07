// SPDX-License-Identifier: Apache-2.0
// Inputs aimed at the narrow sums of a layer: corners of the range, by the signs of weights.
#ifndef QUALM_PROOFS_DIRECTED_H_
#define QUALM_PROOFS_DIRECTED_H_

#include <cstdint>

#include "core/case.h"
#include "proofs/certify.h"

namespace qualm::proofs {

// The layer on `rows` rows of zeros, or images of one output pixel. Zero points are 0 and the
// output is s32: the outputs are raw sums.
Case RawSumsOf(const Case& layer, int64_t rows);

// The same on drawn rows, or images of one output pixel: most codes are ends of the range
// or next to them, chosen by the signs of the weights of a channel, so that sums of that channel
// come to their corners.
Case Directed(const Case& layer, Codes x, int64_t rows, uint64_t seed);

}  // namespace qualm::proofs

#endif  // QUALM_PROOFS_DIRECTED_H_
