// SPDX-License-Identifier: Apache-2.0
// The rows and columns of a case that differ. Equal ones have equal outputs, so a large case that
// repeats itself costs the oracle no more than a small one.
#ifndef QUALM_PROPERTIES_DISTINCT_H_
#define QUALM_PROPERTIES_DISTINCT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"

namespace qualm {

struct Distinct {
  Case c;
  // Row m of the whole case equals row row_of[m] of `c`; columns likewise.
  std::vector<int64_t> row_of, column_of;

  // The output of the whole case, from that of `c`.
  Tensor Expanded(const Tensor& y, std::vector<int64_t> shape) const;
};
// nullopt if the case is small, or if its rows and columns depend on each other.
std::optional<Distinct> DistinctPartsOf(const Case& c);

}  // namespace qualm

#endif  // QUALM_PROPERTIES_DISTINCT_H_
