// SPDX-License-Identifier: Apache-2.0
// The layer that tests begin with.
#ifndef QUALM_CORE_LAYER_TEST_UTIL_H_
#define QUALM_CORE_LAYER_TEST_UTIL_H_

#include <cstdint>

#include "core/case.h"

namespace qualm {

// A linear layer, x [M,K] and w [N,K], of which all codes are 0 and all parameters the defaults.
inline Case ZeroLayer(int64_t m, int64_t n, int64_t k, DType x = DType::kU8, DType w = DType::kS8) {
  Case c;
  c.op = Op::kLinear;
  c.M = m, c.N = n, c.K = k;
  c.x = Tensor(x, {m, k});
  c.w = Tensor(w, {n, k});
  return c;
}

}  // namespace qualm

#endif  // QUALM_CORE_LAYER_TEST_UTIL_H_
