// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "core/float_format.h"

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
  if (shape() != other.shape()) return false;
  if (std::ranges::equal(bytes(), other.bytes())) return true;
  if (!any_nan_ && !other.any_nan_) return false;
  for (int64_t i = 0; i < size_; ++i) {
    if (!SameAt(i, other)) return false;
  }
  return true;
}

const std::vector<int64_t>& Tensor::ShapeOfNone() {
  static const std::vector<int64_t> none{0};
  return none;
}

int32_t Tensor::SmallIntAt(size_t at) const {
  QUALM_CHECK(dtype_ != DType::kF32);
  const auto bits = static_cast<unsigned>(BitsOf(dtype_));
  const size_t first = at * bits / 8, last = (at * bits + bits - 1) / 8;
  const auto word = static_cast<uint32_t>(Data()[first] | Data()[last] << (last - first) * 8);
  const uint32_t code = word >> (at * bits % 8) & ((1u << bits) - 1);
  if (InfoOf(dtype_).format != DTypeRow::Format::kSigned) return static_cast<int32_t>(code);
  const uint32_t sign = 1u << (bits - 1);
  return static_cast<int32_t>(code ^ sign) - static_cast<int32_t>(sign);
}

void Tensor::SetInt(int64_t i, int32_t value) {
  QUALM_CHECK(i >= 0 && i < size_);
  QUALM_CHECK(dtype_ != DType::kF32);
  const auto at = static_cast<size_t>(i);
  const CodeRange range = RangeOf(dtype_);
  QUALM_CHECK_LE(range.min, value);
  QUALM_CHECK_LE(value, range.max);
  switch (dtype_) {
    case DType::kU8: as<uint8_t>()[at] = static_cast<uint8_t>(value); return;
    case DType::kS8: as<int8_t>()[at] = static_cast<int8_t>(value); return;
    case DType::kS32: as<int32_t>()[at] = value; return;
    default: break;
  }
  const auto bits = static_cast<unsigned>(BitsOf(dtype_));
  const size_t first = at * bits / 8, last = (at * bits + bits - 1) / 8;
  const uint32_t mask = ((1u << bits) - 1) << (at * bits % 8);
  uint8_t* const bytes = OwnData();
  auto word = static_cast<uint32_t>(bytes[first] | bytes[last] << (last - first) * 8);
  word = (word & ~mask) | (static_cast<uint32_t>(value) << (at * bits % 8) & mask);
  bytes[first] = static_cast<uint8_t>(word);
  if (last != first) bytes[last] = static_cast<uint8_t>(word >> 8);
}

double Tensor::ValueAt(int64_t i) const {
  if (dtype_ == DType::kF32) return FloatAt(i);
  return IsFloat(dtype_) ? DecodeFloat(dtype_, BitsAt(i)) : static_cast<double>(IntAt(i));
}

uint32_t Tensor::BitsAt(int64_t i) const {
  if (dtype_ == DType::kF32) return std::bit_cast<uint32_t>(FloatAt(i));
  return static_cast<uint32_t>(IntAt(i));
}

void Tensor::SetBits(int64_t i, uint32_t bits) {
  if (dtype_ == DType::kF32) {
    as<float>()[static_cast<size_t>(i)] = std::bit_cast<float>(bits);
  } else {
    SetInt(i, static_cast<int32_t>(bits));
  }
}

void Tensor::CopyFrom(const Tensor& from, int64_t at, int64_t count, int64_t to) {
  QUALM_CHECK(dtype_ == from.dtype_);
  QUALM_CHECK(at >= 0 && to >= 0 && count <= from.size_ - at && count <= size_ - to);
  any_nan_ |= from.any_nan_;  // what is right of the elements goes with them
  if (BitsOf(dtype_) < 8) {
    for (int64_t i = 0; i < count; ++i) SetInt(to + i, from.IntAt(at + i));
  } else if (count > 0) {
    const size_t size = SizeOf(dtype_);
    std::memmove(OwnData() + static_cast<size_t>(to) * size,
                 from.Data() + static_cast<size_t>(at) * size, static_cast<size_t>(count) * size);
  }
}

bool Tensor::IsNanAt(int64_t i) const { return IsNanCode(dtype_, BitsAt(i)); }

Tensor OtherSign(const Tensor& codes) {
  Tensor other(OtherSign(codes.dtype()), codes.shape());
  std::ranges::copy(codes.bytes(), other.bytes().begin());
  return other;
}

Tensor InBytes(const Tensor& codes) {
  if (!IsSmallCode(codes.dtype())) return codes;
  Tensor wide(ByteOf(codes.dtype()), codes.shape());
  for (int64_t i = 0; i < codes.size(); ++i) wide.SetInt(i, codes.IntAt(i));
  return wide;
}

}  // namespace qualm
