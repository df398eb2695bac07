// SPDX-License-Identifier: Apache-2.0
// Operators of PyTorch 1.13.1 (aten/src/ATen/native/quantized/cpu) that are not sums: what its
// engines are composed of beside the families. Models without names and claims.
#ifndef QUALM_ORACLES_CONVENTIONS_TORCH_PARTS_H_
#define QUALM_ORACLES_CONVENTIONS_TORCH_PARTS_H_

#include <cstdint>

#include "oracles/conventions/model.h"

namespace qualm::models {

Model AtenMaxPool();
Model QnnpackMaxPool();
// avg_pool and global_avg_pool.
Model AtenAvgPool();
Model QnnpackAvgPool();
// `aten` quantizes and dequantizes.
Model AtenConcat(const Model& aten);
// `block`: codes that the vector loop takes at a time, 0 where there is none.
Model AtenTable(int64_t block);
Model QnnpackTable();
// `aten` quantizes and dequantizes. The exponential functions of this and of ATen's tables are
// other libraries': a case that they could decide by their last bits is refused.
Model AtenSoftmax(const Model& aten);

}  // namespace qualm::models

#endif  // QUALM_ORACLES_CONVENTIONS_TORCH_PARTS_H_
