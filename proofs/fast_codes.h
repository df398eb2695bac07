// SPDX-License-Identifier: Apache-2.0
// Exact codes at the speed of doubles: a value is computed with a bound of its error, and a code is
// taken only if the whole interval rounds to it. The oracle decides all other values.
#ifndef QUALM_PROOFS_FAST_CODES_H_
#define QUALM_PROOFS_FAST_CODES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/case.h"

namespace qualm::proofs {

// True if codes of this case are the nearest integers to a multiple of x, to a sum of multiples of
// a and b, or to a multiple of a*b: quantize, requantize, rescale, add, sub and mul in mode exact.
bool HasNearest(const Case& c);

// Writes the code of each output of `c` (one row, per tensor) that doubles decide, and returns the
// places of the others.
std::vector<uint32_t> Nearest(const Case& c, std::span<const uint8_t> x, std::span<const uint8_t> w,
                              std::span<uint8_t> codes);

}  // namespace qualm::proofs

#endif  // QUALM_PROOFS_FAST_CODES_H_
