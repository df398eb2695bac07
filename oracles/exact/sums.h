// SPDX-License-Identifier: Apache-2.0
// The parts that linear and convolutions share: all but the places of the terms of a sum. Internal
// to oracles/exact.
#ifndef QUALM_ORACLES_EXACT_SUMS_H_
#define QUALM_ORACLES_EXACT_SUMS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "oracles/exact/meanings.h"
#include "oracles/exact/told.h"

namespace qualm::exact {

// Definition: the real value that the scales and the float bias of channel n make of a sum.
Rational ScaledSum(const Case& c, int64_t n, const Integer& sum);

// Fast form: exact::CorrectedSums, and the scales and float bias of channel n.
void SumsOf(const Case& c, Integers* integers);
Line LineOfSum(const Case& c, int64_t n);

// Told steps: the x and w of each term, and the names of the indices over which the sum runs.
struct TermsTold {
  std::string over;
  std::vector<std::pair<int32_t, int32_t>> xw;
  int64_t taps_in_padding = 0;
};
// Tells the steps of a case with one output, from the sum of these terms on.
void TellSum(Teller& teller, const TermsTold& terms);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_SUMS_H_
