// SPDX-License-Identifier: Apache-2.0
// Linear, quantize and dequantize (element_formats.h) on the blocks of llama.cpp: which cases a
// format can store, and the bytes that it stores.
#ifndef QUALM_ADAPTERS_HOST_BLOCK_FORMATS_H_
#define QUALM_ADAPTERS_HOST_BLOCK_FORMATS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "core/weight_formats.h"

namespace qualm {

// A set of formats: bit i is kWeightFormats[i].
using FormatSet = uint32_t;
// Of names between spaces: "q8_0 q4_k". nullopt if one is none.
std::optional<FormatSet> FormatsNamed(std::string_view names);
// Bits QUALM_TYPE_BIT of the types of their codes.
uint32_t TypesOf(FormatSet formats);

// Why the format cannot store the operands of a linear, or the codes of a quantize or dequantize,
// "" if it can.
std::string WhyNotInFormat(const WeightFormat& format, const Case& c);
// The same of all formats of a set, which is not empty.
std::string WhyNotInFormats(FormatSet formats, const Case& c);
// That format of the set which stores the case; there is one.
const WeightFormat& FormatFor(FormatSet formats, const Case& c);

// The case with weights of the format: each the nearest of its codes, after the largest of all has
// become as large as they are, where some are none; zero points and scales those of the format.
// Cases without blocks stay as they are.
Case InsideFormat(const WeightFormat& format, const Case& c);
// Of that format of the set which has the type of the codes, else of the first.
Case InsideFormats(FormatSet formats, const Case& c);

// The f16 next to this number, from 2^-24 to 2^10.
float RoundedToHalf(float scale);

// Rows as the format stores them, one behind the other. A row is filled up to whole super-blocks: x
// with 0, w with its zero point or the first code that there is. Blocks that its super-block has
// beyond that have scale 0 and minimum 0.
struct PackedRows {
  std::vector<uint8_t> bytes;
  int64_t row_bytes = 0;
};
// Of a case that the format stores.
PackedRows PackedWeights(const WeightFormat& format, const Case& c);
PackedRows PackedActivations(const WeightFormat& format, const Case& c);
// Terms of a row that is filled up.
int64_t PackedDepth(const WeightFormat& format, int64_t depth);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_BLOCK_FORMATS_H_
