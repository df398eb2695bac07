// SPDX-License-Identifier: Apache-2.0
// Stands for a kernel of yours: it knows nothing of qualm.
#ifndef EXAMPLES_GEMM_GEMM_H_
#define EXAMPLES_GEMM_GEMM_H_

#include <cstdint>

// y[m,n] = sum over k of (x[m,k] - x_zero_point) * w[n,k], clamped to int32. Dense and row-major:
// x is M by K, w is N by K, y is M by N.
void Gemm(int64_t M, int64_t N, int64_t K, const uint8_t* x, int32_t x_zero_point, const int8_t* w,
          int32_t* y);

#endif  // EXAMPLES_GEMM_GEMM_H_
