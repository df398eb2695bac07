// SPDX-License-Identifier: Apache-2.0
// Who chooses scales and zero points, as models: PyTorch's observers, ATen, FBGEMM. And recordings
// of the observers.
#ifndef QUALM_ORACLES_CONVENTIONS_OBSERVERS_H_
#define QUALM_ORACLES_CONVENTIONS_OBSERVERS_H_

#include <cstdint>
#include <vector>

#include "core/io/golden.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/families.h"
#include "oracles/exact/observer.h"

namespace qualm::conventions {

// What the observer of a record gives: op observer and observer_quantize one result, op
// observer_per_channel one for each row of x. Throws InputError for a record that is none.
std::vector<exact::ObserverResult> ObserveRecord(const GoldenRecord& record);

// Codes of x [rows, columns], each row by its own result, as ATen quantizes them. `dtype` is that
// of the record, u8 if it names none.
Tensor QuantizeRecord(const GoldenRecord& record,
                      const std::vector<exact::ObserverResult>& results);

// The codes' values, as ATen dequantizes them.
Tensor DequantizeRecord(const Tensor& codes, const std::vector<exact::ObserverResult>& results);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_OBSERVERS_H_
