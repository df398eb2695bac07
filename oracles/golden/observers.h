// SPDX-License-Identifier: Apache-2.0
// Recordings of PyTorch's observers, and of the codes that ATen makes with what they chose.
#ifndef QUALM_ORACLES_GOLDEN_OBSERVERS_H_
#define QUALM_ORACLES_GOLDEN_OBSERVERS_H_

#include <vector>

#include "core/io/golden.h"
#include "oracles/exact/observer.h"

namespace qualm::golden {

// What the observer of a record chooses: one result for op observer and observer_quantize, one for
// each row of x for op observer_per_channel. Throws InputError for a record of another op.
std::vector<exact::ObserverResult> ObserveRecord(const GoldenRecord& record);

// The codes of x [rows, columns] that ATen makes, each row with its own result. Their type is the
// `dtype` of the record, u8 where it names none.
Tensor QuantizeRecord(const GoldenRecord& record,
                      const std::vector<exact::ObserverResult>& results);

// The numbers that ATen makes of such codes.
Tensor DequantizeRecord(const Tensor& codes, const std::vector<exact::ObserverResult>& results);

}  // namespace qualm::golden

#endif  // QUALM_ORACLES_GOLDEN_OBSERVERS_H_
