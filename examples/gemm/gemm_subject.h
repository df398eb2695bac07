// SPDX-License-Identifier: Apache-2.0
#include <qualm/adapters/function_subject.h>

#include "gemm.h"

inline std::unique_ptr<qualm::Subject> MakeGemm() {
  return qualm::MakeSubject<uint8_t, int8_t, int32_t>(
      "gemm", qualm::Op::kLinear,
      {.features = QUALM_CAN_EMPTY | QUALM_CAN_EMPTY_K, .x_zero_point_max = 255},
      [](const auto& call) {
        Gemm(call.c.M, call.c.N, call.c.K, call.x, call.c.x_q.zero_point[0], call.w, call.y);
      });
}
