// SPDX-License-Identifier: Apache-2.0
// Arrays with names, which is what the readers of weight files return, and their bounds.
#ifndef QUALM_CORE_IO_ARRAYS_H_
#define QUALM_CORE_IO_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace qualm {

inline constexpr size_t kMaxWeightFile = size_t{1} << 34;
inline constexpr int64_t kMaxArray = int64_t{1} << 28;  // elements, as of a tensor in a case file

struct NamedArray {
  std::string name;
  Tensor values;
  bool half = false;  // F16 or BF16 in the file
};

// A tensor of exactly these bytes. Throws InputError "NAME: shape: ..." if the shape does not fit
// the bytes; nothing is allocated before that is known.
Tensor TensorOfBytes(DType dtype, const std::vector<int64_t>& shape, std::string_view bytes,
                     std::string_view name);

// A regular file. Throws InputError "PATH: file: ...".
std::string ReadBinaryFile(const std::string& path, size_t most);

// The bytes [offset, offset + length) of a regular file; without `length` all from `offset` on.
std::string ReadPartOfFile(const std::string& path, uint64_t offset,
                           std::optional<uint64_t> length);

// The arrays of a .safetensors file with elements I8, U8, I32 or F32, in the order of the file; F16
// and BF16 become F32.
// Throws InputError "NAME: FIELD: what, expected what".
std::vector<NamedArray> ParseSafetensors(std::string_view bytes, std::string_view name);

}  // namespace qualm

#endif  // QUALM_CORE_IO_ARRAYS_H_
