// SPDX-License-Identifier: Apache-2.0
// A dense row-major tensor, a value: no views, no broadcasting. Copies share their bytes until one
// of them is asked for bytes to write, so that a copy of a case copies no tensor. Elements of fewer
// than 8 bits are packed as one stream of bits, the lowest first (of 4 bits the even element in the
// low half of a byte), without a gap between rows; unused bits of the last byte are 0. This file is
// the one place that knows.
#ifndef QUALM_CORE_TENSOR_H_
#define QUALM_CORE_TENSOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/types.h"

namespace qualm {

// C++ type <-> DType.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kS8;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::kU16;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType value = DType::kS16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kS32;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};

class Tensor {
 public:
  Tensor() = default;
  // Zero-filled. Dimensions must be >= 0 and their product times the element size fit in memory:
  // readers check the sizes that a file states before they come here.
  Tensor(DType dtype, std::vector<int64_t> shape);
  Tensor(const Tensor& other) noexcept
      : dtype_(other.dtype_),
        any_nan_(other.any_nan_),
        size_(other.size_),
        storage_(other.storage_) {
    if (storage_ != nullptr) storage_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  // What is moved from is empty.
  Tensor(Tensor&& other) noexcept
      : dtype_(other.dtype_),
        any_nan_(other.any_nan_),
        size_(std::exchange(other.size_, 0)),
        storage_(std::exchange(other.storage_, nullptr)) {}
  Tensor& operator=(Tensor other) noexcept {
    std::swap(dtype_, other.dtype_);
    std::swap(any_nan_, other.any_nan_);
    std::swap(size_, other.size_);
    std::swap(storage_, other.storage_);
    return *this;
  }
  ~Tensor() {
    if (storage_ != nullptr) Release();
  }

  template <class T>
  static Tensor Of(std::vector<int64_t> shape, std::span<const T> values) {
    Tensor tensor(DTypeOf<T>::value, std::move(shape));
    QUALM_CHECK_EQ(static_cast<size_t>(tensor.size()), values.size());
    if (!values.empty()) std::memcpy(tensor.Data(), values.data(), values.size_bytes());
    return tensor;
  }

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const {
    return storage_ == nullptr ? ShapeOfNone() : storage_->shape;
  }
  int64_t size() const { return size_; }  // elements
  bool empty() const { return size_ == 0; }

  std::span<const uint8_t> bytes() const { return {Data(), ByteCount()}; }
  // Bytes to write, for as long as this tensor is not copied: a copy made meanwhile shares them.
  std::span<uint8_t> bytes() { return {OwnData(), ByteCount()}; }

  // Typed view of the elements, as with bytes(); T must be the element type.
  template <class T>
  std::span<const T> as() const {
    QUALM_CHECK(DTypeOf<T>::value == dtype_);
    return {reinterpret_cast<const T*>(Data()), static_cast<size_t>(size_)};
  }
  template <class T>
  std::span<T> as() {
    QUALM_CHECK(DTypeOf<T>::value == dtype_);
    return {reinterpret_cast<T*>(OwnData()), static_cast<size_t>(size_)};
  }

  // Calls visit(std::span<const T>) with T the element type, for loops over all elements. Only
  // types that C++ has.
  template <class Visit>
  decltype(auto) VisitElements(Visit&& visit) const {
    switch (dtype_) {
      case DType::kU8: return visit(as<uint8_t>());
      case DType::kS8: return visit(as<int8_t>());
      case DType::kU16: return visit(as<uint16_t>());
      case DType::kS16: return visit(as<int16_t>());
      case DType::kS32: return visit(as<int32_t>());
      default: break;
    }
    QUALM_CHECK(dtype_ == DType::kF32);  // C++ lacks the others
    return visit(as<float>());
  }

  // Integer element i of a tensor of integers. Of floats other than f32 the code: code that counts,
  // compares, copies or shrinks codes takes them as unsigned integers.
  int32_t IntAt(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    QUALM_CHECK(i >= 0 && i < size_);
    switch (dtype_) {
      case DType::kU8: return Data()[at];
      case DType::kS8: return static_cast<int8_t>(Data()[at]);
      case DType::kS32: return as<int32_t>()[at];
      default: return SmallIntAt(at);
    }
  }
  // Stores an integer that fits the element type, or a code (checked).
  void SetInt(int64_t i, int32_t value);
  float FloatAt(int64_t i) const { return as<float>()[static_cast<size_t>(i)]; }
  // The real value of element i of any tensor, or its NaN or infinity: a double holds each of them.
  double ValueAt(int64_t i) const;
  // The 32 bits of element i: a float's pattern, an integer's two's complement value.
  uint32_t BitsAt(int64_t i) const;
  // Stores what BitsAt gives.
  void SetBits(int64_t i, uint32_t bits);
  // Elements [at, at + count) of a tensor of this type take the places from `to` on.
  void CopyFrom(const Tensor& from, int64_t at, int64_t count, int64_t to);

  // Every NaN is right where this tensor has one: what the exact meaning gives
  // (docs/quantization.md, cast). Comparisons of outputs go by it: == and SameAt below, whichever
  // side says it.
  void AcceptAnyNan() { any_nan_ = IsFloat(dtype_); }
  // Whether element i is the same output as element j of `other`, a tensor of this type.
  bool SameAt(int64_t i, const Tensor& other, int64_t j) const {
    return BitsAt(i) == other.BitsAt(j) ||
           ((any_nan_ || other.any_nan_) && IsNanAt(i) && other.IsNanAt(j));
  }
  bool SameAt(int64_t i, const Tensor& other) const { return SameAt(i, other, i); }

  // Same type, shape and bits (so -0 and +0 differ, and NaN equals itself; AcceptAnyNan).
  friend bool operator==(const Tensor& a, const Tensor& b) {
    if (a.dtype_ != b.dtype_ || a.size_ != b.size_) return false;
    return a.storage_ == b.storage_ || a.EqualContents(b);
  }

 private:
  // Stands in front of the bytes of one or more tensors, of one allocation. Only a tensor that owns
  // it alone writes.
  struct alignas(16) Storage {
    std::atomic<size_t> owners{1};
    std::vector<int64_t> shape;
    size_t byte_count = 0;
    uint8_t* data() { return reinterpret_cast<uint8_t*>(this + 1); }
    static Storage* Make(std::vector<int64_t> shape, size_t byte_count);
  };

  size_t ByteCount() const { return storage_ == nullptr ? 0 : storage_->byte_count; }
  const uint8_t* Data() const { return storage_ == nullptr ? nullptr : storage_->data(); }
  uint8_t* Data() { return storage_ == nullptr ? nullptr : storage_->data(); }
  uint8_t* OwnData() {
    // Acquire: what another owner read, it has read before it let go.
    if (storage_ != nullptr && storage_->owners.load(std::memory_order_acquire) != 1) Separate();
    return Data();
  }
  void Separate();
  void Release() noexcept;
  bool EqualContents(const Tensor& other) const;
  static const std::vector<int64_t>& ShapeOfNone();
  int32_t SmallIntAt(size_t at) const;
  bool IsNanAt(int64_t i) const;

  DType dtype_ = DType::kU8;
  bool any_nan_ = false;
  int64_t size_ = 0;
  Storage* storage_ = nullptr;  // none: shape [0]
};

// Codes of u8 with the same bytes as s8, or the reverse; so too those of 16, 4 and 2 bits.
Tensor OtherSign(const Tensor& codes);
// Integers of fewer than 8 bits as the same numbers of 8 bits; other tensors as they are.
Tensor InBytes(const Tensor& codes);

// Product of dimensions, or -1 where it passes `limit` (so that no size is computed unchecked).
int64_t ElementCount(std::span<const int64_t> shape, int64_t limit);

}  // namespace qualm

#endif  // QUALM_CORE_TENSOR_H_
