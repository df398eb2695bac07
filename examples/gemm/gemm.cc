// SPDX-License-Identifier: Apache-2.0
#include "gemm.h"

#include <algorithm>

void Gemm(int64_t M, int64_t N, int64_t K, const uint8_t* x, int64_t x_stride, int32_t x_zero_point,
          const int8_t* w, int32_t* y, int64_t y_stride) {
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t n = 0; n < N; ++n) {
      const uint8_t* const row = x + m * x_stride;
      const int8_t* const weights = w + n * K;
      int64_t sum = 0;
      for (int64_t k = 0; k < K; k += 2) {
        int32_t pair = row[k] * weights[k];
        if (k + 1 < K) pair += row[k + 1] * weights[k + 1];
#ifdef BUGGY
        // As vpmaddubsw does: two products are added in a saturating int16.
        pair = std::clamp<int32_t>(pair, INT16_MIN, INT16_MAX);
#endif
        sum += pair;
      }
      for (int64_t k = 0; k < K; ++k) sum -= int64_t{x_zero_point} * weights[k];
      y[m * y_stride + n] = static_cast<int32_t>(std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX));
    }
  }
}
