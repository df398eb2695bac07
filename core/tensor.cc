// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.h"

#include <bit>
#include <utility>

namespace qualm {

int64_t ElementCount(std::span<const int64_t> shape, int64_t limit) {
  int64_t count = 1;
  for (int64_t dim : shape) {
    if (dim == 0) return 0;
  }
  for (int64_t dim : shape) {
    if (dim < 0 || count > limit / dim) return -1;
    count *= dim;
  }
  return count;
}

Tensor::Tensor(DType dtype, std::vector<int64_t> shape)
    : dtype_(dtype), shape_(std::move(shape)), size_(ElementCount(shape_, int64_t{1} << 40)) {
  QUALM_CHECK_LE(0, size_);
  bytes_.resize(BytesFor(dtype, static_cast<size_t>(size_)));
}

void Tensor::SetInt(int64_t i, int32_t value) {
  QUALM_CHECK(i >= 0 && i < size_);
  const auto at = static_cast<size_t>(i);
  const CodeRange range = RangeOf(dtype_);
  QUALM_CHECK_LE(range.min, value);
  QUALM_CHECK_LE(value, range.max);
  switch (dtype_) {
    case DType::kU8: as<uint8_t>()[at] = static_cast<uint8_t>(value); return;
    case DType::kS8: as<int8_t>()[at] = static_cast<int8_t>(value); return;
    case DType::kS32: as<int32_t>()[at] = value; return;
    case DType::kU4:
    case DType::kS4: {
      uint8_t& byte = bytes_[at / 2];
      const unsigned shift = at % 2 * 4;
      byte = static_cast<uint8_t>((byte & (0xF0u >> shift)) | (static_cast<unsigned>(value) & 0xFu)
                                                                  << shift);
      return;
    }
    case DType::kF32: break;
  }
  QUALM_CHECK(!"SetInt of a float tensor");
}

uint32_t Tensor::BitsAt(int64_t i) const {
  if (dtype_ == DType::kF32) return std::bit_cast<uint32_t>(FloatAt(i));
  return static_cast<uint32_t>(IntAt(i));
}

}  // namespace qualm
