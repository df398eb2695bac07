// SPDX-License-Identifier: Apache-2.0
// The vocabulary of the public kernel interface: plain C++, no SIMD types, nothing of the harness.
#ifndef QUALM_KERNELS_TYPES_H_
#define QUALM_KERNELS_TYPES_H_

#include <cstdint>
#include <span>
#include <string>

namespace qualm::kernels {

enum class ElementType : uint8_t { kU8, kS8, kS32, kF32 };

// "" is success; otherwise one sentence: which argument, what is wrong, what was expected.
// A bad argument is returned, never undefined behaviour, and nothing has been written.
struct [[nodiscard]] Status {
  std::string error;
  bool ok() const { return error.empty(); }
};

// Rows of a matrix: element (i, j) at data[i * row_stride + j]; stride in elements, >= columns.
// data is a multiple of the element's size, and is not looked at where there are no elements.
struct ConstMatrix {
  const void* data = nullptr;
  ElementType type = ElementType::kU8;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;
};
struct MutableMatrix {
  void* data = nullptr;
  ElementType type = ElementType::kU8;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;
};

// Clamp of integer outputs. relu raises the lower bound to the output zero point (0 for s32, f32).
struct OutputRange {
  int32_t min = INT32_MIN;  // intersected with the type's range
  int32_t max = INT32_MAX;
  bool relu = false;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_TYPES_H_
