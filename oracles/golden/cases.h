// SPDX-License-Identifier: Apache-2.0
// A recorded line as a case: one reader per kind of record. A reader throws InputError where the
// record lacks a field or the case is not valid.
#ifndef QUALM_ORACLES_GOLDEN_CASES_H_
#define QUALM_ORACLES_GOLDEN_CASES_H_

#include "core/io/golden.h"

namespace qualm::golden {

Case AtenStyleLinear(const GoldenRecord& record);  // float bias, u8 output
Case I32BiasLinear(const GoldenRecord& record);
Case RealLinear(const GoldenRecord& record);    // float bias, f32 output
Case DirectMatmul(const GoldenRecord& record);  // oneDNN's own: output_scales are the multipliers
Case OrtMatmul(const GoldenRecord& record);
Case XnnpackLinear(const GoldenRecord& record);
Case TfliteLinear(const GoldenRecord& record);

Case AtenStyleConv(const GoldenRecord& record);
Case OrtConv(const GoldenRecord& record);
Case DirectConv(const GoldenRecord& record);  // oneDNN's own: the sums, no zero points

Case AddCase(const GoldenRecord& record);
Case QuantizeCase(const GoldenRecord& record);
// The dequantize of `codes`, which are the output of `quantize`.
Case DequantizeCase(const GoldenRecord& record, const Case& quantize, const Tensor& codes);
Case RequantizeCase(const GoldenRecord& record);

// Throws InputError, naming the record, unless the case is valid.
void CheckCase(const GoldenRecord& record, const Case& c);

}  // namespace qualm::golden

#endif  // QUALM_ORACLES_GOLDEN_CASES_H_
