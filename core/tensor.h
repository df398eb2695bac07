// SPDX-License-Identifier: Apache-2.0
// A dense row-major tensor that owns its bytes. Small on purpose: no views, no broadcasting.
// Elements of 4 bits are packed two to a byte, the even element in the low half, without a gap
// between rows; the unused half of the last byte is 0. This file is the one place that knows.
#ifndef QUALM_CORE_TENSOR_H_
#define QUALM_CORE_TENSOR_H_

#include <cstdint>
#include <cstring>
#include <span>
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

  template <class T>
  static Tensor Of(std::vector<int64_t> shape, std::span<const T> values) {
    Tensor tensor(DTypeOf<T>::value, std::move(shape));
    QUALM_CHECK_EQ(static_cast<size_t>(tensor.size()), values.size());
    if (!values.empty()) std::memcpy(tensor.bytes_.data(), values.data(), values.size_bytes());
    return tensor;
  }

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t size() const { return size_; }  // elements
  bool empty() const { return size_ == 0; }

  std::span<const uint8_t> bytes() const { return bytes_; }
  std::span<uint8_t> bytes() { return bytes_; }

  // Typed view of the elements; T must be the element type.
  template <class T>
  std::span<const T> as() const {
    QUALM_CHECK(DTypeOf<T>::value == dtype_);
    return {reinterpret_cast<const T*>(bytes_.data()), static_cast<size_t>(size_)};
  }
  template <class T>
  std::span<T> as() {
    QUALM_CHECK(DTypeOf<T>::value == dtype_);
    return {reinterpret_cast<T*>(bytes_.data()), static_cast<size_t>(size_)};
  }

  // Calls visit(std::span<const T>) with T the element type, for loops over all elements. Only
  // types of whole bytes.
  template <class Visit>
  decltype(auto) VisitElements(Visit&& visit) const {
    switch (dtype_) {
      case DType::kU8: return visit(as<uint8_t>());
      case DType::kS8: return visit(as<int8_t>());
      case DType::kS32: return visit(as<int32_t>());
      case DType::kF32: return visit(as<float>());
      case DType::kU4:
      case DType::kS4: break;
    }
    QUALM_CHECK(!"VisitElements of a type without whole bytes");
    return visit(as<float>());
  }

  // Integer element i of a tensor of integers.
  int32_t IntAt(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    QUALM_CHECK(i >= 0 && i < size_);
    switch (dtype_) {
      case DType::kU8: return bytes_[at];
      case DType::kS8: return static_cast<int8_t>(bytes_[at]);
      case DType::kS32: return as<int32_t>()[at];
      case DType::kU4: return NibbleAt(at);
      case DType::kS4: return (NibbleAt(at) ^ 8) - 8;
      case DType::kF32: break;
    }
    QUALM_CHECK(!"IntAt of a float tensor");
    return 0;
  }
  // Stores an integer that fits the element type (checked).
  void SetInt(int64_t i, int32_t value);
  float FloatAt(int64_t i) const { return as<float>()[static_cast<size_t>(i)]; }
  // The 32 bits of element i: a float's pattern, an integer's two's complement value.
  uint32_t BitsAt(int64_t i) const;

  // Same type, shape and bits (so -0 and +0 differ, and NaN equals itself).
  friend bool operator==(const Tensor&, const Tensor&) = default;

 private:
  int32_t NibbleAt(size_t at) const { return bytes_[at / 2] >> (at % 2 * 4) & 0xF; }

  DType dtype_ = DType::kU8;
  std::vector<int64_t> shape_ = {0};
  int64_t size_ = 0;
  std::vector<uint8_t> bytes_;  // operator new aligns to 16 >= any element
};

// Product of dimensions, or -1 where it passes `limit` (so that no size is computed unchecked).
int64_t ElementCount(std::span<const int64_t> shape, int64_t limit);

}  // namespace qualm

#endif  // QUALM_CORE_TENSOR_H_
