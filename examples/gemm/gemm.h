// SPDX-License-Identifier: Apache-2.0
// Stands for a kernel of yours: it knows nothing of qualm.
#ifndef EXAMPLES_GEMM_GEMM_H_
#define EXAMPLES_GEMM_GEMM_H_

#include <cstdint>

// y[m,n] = sum over k of (x[m,k] - x_zero_point) * w[n,k], clamped to int32. Row-major: x is M by K
// and y is M by N with the given distances from row to row, w is N by K and dense.
void Gemm(int64_t M, int64_t N, int64_t K, const uint8_t* x, int64_t x_stride, int32_t x_zero_point,
          const int8_t* w, int32_t* y, int64_t y_stride);

#endif  // EXAMPLES_GEMM_GEMM_H_
