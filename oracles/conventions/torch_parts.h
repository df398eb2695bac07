// SPDX-License-Identifier: Apache-2.0
// Operators of PyTorch 1.13.1 (aten/src/ATen/native/quantized/cpu) that are not sums: what its
// engines are composed of beside the families. Conventions without names and claims.
#ifndef QUALM_ORACLES_CONVENTIONS_TORCH_PARTS_H_
#define QUALM_ORACLES_CONVENTIONS_TORCH_PARTS_H_

#include <cstdint>

#include "oracles/conventions/convention.h"

namespace qualm::conventions {

Convention AtenMaxPool();
Convention QnnpackMaxPool();
// avg_pool and global_avg_pool.
Convention AtenAvgPool();
Convention QnnpackAvgPool();
// `aten` quantizes and dequantizes.
Convention AtenConcat(const Convention& aten);
// `block`: codes that the vector loop takes at a time, 0 where there is none.
Convention AtenTable(int64_t block);
Convention QnnpackTable();
// `aten` quantizes and dequantizes. The exponential functions of this and of ATen's tables are
// other libraries': a case that they could decide by their last bits is refused.
Convention AtenSoftmax(const Convention& aten);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_TORCH_PARTS_H_
