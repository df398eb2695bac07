// SPDX-License-Identifier: Apache-2.0
// The fields of a recorded line, each checked: a malformed field throws InputError that names the
// file, the line and the field.
#ifndef QUALM_ORACLES_GOLDEN_FIELDS_H_
#define QUALM_ORACLES_GOLDEN_FIELDS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/golden.h"

namespace qualm::golden {

constexpr int64_t kMaxElements = int64_t{1} << 28;

[[noreturn]] void Wrong(const GoldenRecord& record, std::string_view field,
                        const std::string& what);

// 0..kMaxElements.
int64_t Dimension(const GoldenRecord& record, const std::string& field);
int32_t Int32(const GoldenRecord& record, const std::string& field, int64_t low = INT32_MIN,
              int64_t high = INT32_MAX);
// 0 or 1; a missing field is 0.
bool Flag(const GoldenRecord& record, const std::string& field);
std::vector<int32_t> Int32s(const GoldenRecord& record, const std::string& field);
// u8 or s8, under any of its names (XNNPACK's qu8, qs8, qc8 too).
DType CodeType(const GoldenRecord& record, const std::string& field);

// The integers of a field, each inside the type, as many as the shape says. A list of another
// length throws before anything of the size of the shape is allocated.
Tensor Codes(const GoldenRecord& record, const std::string& field, DType dtype,
             const std::vector<int64_t>& shape);
Tensor Reals(const GoldenRecord& record, const std::string& field,
             const std::vector<int64_t>& shape);

}  // namespace qualm::golden

#endif  // QUALM_ORACLES_GOLDEN_FIELDS_H_
