// SPDX-License-Identifier: Apache-2.0
#include <qualm/adapters/function_subject.h>

#include "gemm.h"

inline std::unique_ptr<qualm::Subject> MakeGemm() {
  return qualm::MakeSubject<uint8_t, int8_t, int32_t>(
      "gemm", qualm::Op::kLinear,
      {.features = QUALM_CAN_STRIDES | QUALM_CAN_EMPTY_K, .x_zero_point_max = 255},
      [](const auto& p) {
        Gemm(p.c.M, p.c.N, p.c.K, p.x, p.x_stride, p.c.x_q.zero_point[0], p.w, p.y, p.y_stride);
      });
}
