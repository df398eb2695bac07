// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.h"

#include <algorithm>
#include <bit>
#include <new>
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

Tensor::Storage* Tensor::Storage::Make(std::vector<int64_t> shape, size_t byte_count) {
  auto* const storage = new (::operator new(sizeof(Storage) + byte_count)) Storage;
  storage->shape = std::move(shape);
  storage->byte_count = byte_count;
  return storage;
}

Tensor::Tensor(DType dtype, std::vector<int64_t> shape)
    : dtype_(dtype), size_(ElementCount(shape, int64_t{1} << 40)) {
  QUALM_CHECK_LE(0, size_);
  storage_ = Storage::Make(std::move(shape), BytesFor(dtype, static_cast<size_t>(size_)));
  std::memset(storage_->data(), 0, storage_->byte_count);
}

void Tensor::Separate() {
  Storage* const own = Storage::Make(storage_->shape, storage_->byte_count);
  std::memcpy(own->data(), storage_->data(), own->byte_count);
  Release();
  storage_ = own;
}

void Tensor::Release() noexcept {
  if (storage_->owners.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  storage_->~Storage();
  ::operator delete(storage_);
}

bool Tensor::EqualContents(const Tensor& other) const {
  return shape() == other.shape() && std::ranges::equal(bytes(), other.bytes());
}

const std::vector<int64_t>& Tensor::ShapeOfNone() {
  static const std::vector<int64_t> none{0};
  return none;
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
      uint8_t& byte = OwnData()[at / 2];
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

Tensor OtherSign(const Tensor& codes) {
  Tensor other(codes.dtype() == DType::kU8 ? DType::kS8 : DType::kU8, codes.shape());
  std::ranges::copy(codes.bytes(), other.bytes().begin());
  return other;
}

}  // namespace qualm
