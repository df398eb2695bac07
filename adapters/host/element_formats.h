// SPDX-License-Identifier: Apache-2.0
// Quantize and dequantize on the blocks of llama.cpp: which cases a format has.
#ifndef QUALM_ADAPTERS_HOST_ELEMENT_FORMATS_H_
#define QUALM_ADAPTERS_HOST_ELEMENT_FORMATS_H_

#include <optional>
#include <string>

#include "core/case.h"
#include "core/weight_formats.h"

namespace qualm {

// How a format makes blocks of floats, where the scale is a quotient of their ends: codes from 0 to
// `highest`, of q8_0 from -127.
struct BlockQuantizer {
  DType dtype = DType::kU4;
  int32_t highest = 15;
};
// nullopt of formats that search for their scales, and of those whose codes do not follow each
// other.
std::optional<BlockQuantizer> QuantizerOf(const WeightFormat& format);

// Why a quantize or dequantize is none of the format, "" if it is. Of a quantize: each block has
// the scale, and the zero point, that ggml chooses for it.
std::string WhyNoElementsInFormat(const WeightFormat& format, const Case& c);
// The case with blocks of the format. Cases without elements stay as they are.
Case ElementsInsideFormat(const WeightFormat& format, const Case& c);

// A linear without rows of x whose weights are the codes of a dequantize in blocks.
Case CodesAsWeights(const Case& c);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_ELEMENT_FORMATS_H_
