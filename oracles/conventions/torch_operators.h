// SPDX-License-Identifier: Apache-2.0
// Pools, tables, concat, softmax and dynamic_linear of PyTorch 1.13.1
// (aten/src/ATen/native/quantized/cpu): its engines take these operations from here, and all others
// from the families. The conventions here have no names and no claims.
#ifndef QUALM_ORACLES_CONVENTIONS_TORCH_OPERATORS_H_
#define QUALM_ORACLES_CONVENTIONS_TORCH_OPERATORS_H_

#include <cstdint>

#include "oracles/conventions/aten.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/onednn2.h"

namespace qualm::conventions {

Convention AtenMaxPool();
// QNNPACK where FBGEMM quantizes the bias (quantize_val<qint32> of the official wheels, measured on
// 2.13): beyond int32 it saturates.
Convention QnnpackOfWheels();
Convention QnnpackMaxPool();
// avg_pool and global_avg_pool. `lanes`: channels that the vector loop of avg_pool takes at a time,
// 0 where it computes as the rest does.
Convention AtenAvgPool(int64_t lanes, AtenBuild build);
Convention QnnpackAvgPool();
// `aten` quantizes and dequantizes.
Convention AtenConcat(const Convention& aten);
// `block`: codes that the vector loop takes at a time, 0 where there is none.
Convention AtenTable(int64_t block, AtenBuild build);
Convention QnnpackTable();
// `aten` quantizes and dequantizes.
Convention AtenSoftmax(const Convention& aten);
// `aten` quantizes.
Convention QnnpackDynamicLinear(const Convention& aten);
// `linear` makes the matmul from the reciprocal of the scale of x.
using OneDnnLinear = Convention (*)(OneDnnIsa isa, float inverse_x_scale);
Convention OneDnnDynamicLinear(const OneDnnIsa& isa, OneDnnLinear linear);
// `fbgemm` quantizes x, and multiplies.
Convention FbgemmDynamicLinear(const Convention& fbgemm);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_TORCH_OPERATORS_H_
