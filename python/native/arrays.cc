// SPDX-License-Identifier: Apache-2.0
#include "python/native/arrays.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/status.h"

namespace qualm::python {
namespace {

namespace py = pybind11;

// A module stays loaded as long as the interpreter: the reference is never given back.
const py::module_& Numpy() {
  static const auto* const numpy = new py::module_(py::module_::import("numpy"));
  return *numpy;
}

std::string ShapeText(const py::handle& shape) { return py::str(shape).cast<std::string>(); }

py::tuple TupleOf(const std::vector<int64_t>& shape) { return py::cast(shape); }

// The codes of a tensor of elements of less than a byte, one in each byte.
std::vector<uint8_t> Unpacked(const Tensor& tensor) {
  std::vector<uint8_t> codes(static_cast<size_t>(tensor.size()));
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<uint8_t>(tensor.BitsAt(static_cast<int64_t>(i)));
  return codes;
}

}  // namespace

py::dtype NumpyType(DType dtype) {
  switch (dtype) {
    case DType::kU8: return py::dtype::of<uint8_t>();
    case DType::kS8: return py::dtype::of<int8_t>();
    case DType::kS16: return py::dtype::of<int16_t>();
    case DType::kS32: return py::dtype::of<int32_t>();
    case DType::kF32: return py::dtype::of<float>();
    case DType::kF16: return py::dtype("float16");
    default: break;
  }
  return BitsOf(dtype) == 16 ? py::dtype::of<uint16_t>() : py::dtype::of<uint8_t>();
}

py::object Float32(float value) {
  static const auto* const type = new py::object(Numpy().attr("float32"));
  return (*type)(value);
}

py::array ArrayOf(const Tensor& tensor) {
  py::array array(NumpyType(tensor.dtype()), tensor.shape());
  if (BitsOf(tensor.dtype()) < 8) {
    std::ranges::copy(Unpacked(tensor), static_cast<uint8_t*>(array.mutable_data()));
  } else if (!tensor.bytes().empty()) {
    std::ranges::copy(tensor.bytes(), static_cast<uint8_t*>(array.mutable_data()));
  }
  array.attr("setflags")(py::arg("write") = false);
  return array;
}

Tensor TensorOf(const py::object& object, DType dtype, const std::vector<int64_t>& shape) {
  const py::dtype wanted = NumpyType(dtype);
  const std::string expected = "expected an array of " +
                               py::str(py::handle(wanted)).cast<std::string>() + " with shape " +
                               ShapeText(TupleOf(shape));
  if (object.is_none()) throw WrongType("None, " + expected);
  py::object made = object;
  if (!py::isinstance<py::array>(made)) {
    const bool lent = py::hasattr(made, "__dlpack__") && !py::hasattr(made, "__array__");
    made = Numpy().attr(lent ? "from_dlpack" : "asarray")(made);
    const bool is_list = py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object);
    if (is_list)
      throw WrongType("a " + std::string(py::str(py::type::of(object).attr("__name__"))) + ", " +
                      expected);
  }
  const py::object given = made.attr("dtype");
  if (!given.equal(wanted))
    throw WrongType("an array of " + py::str(given).cast<std::string>() + ", " + expected);
  const py::object laid = made.attr("shape");
  if (!laid.equal(TupleOf(shape)))
    throw InputError("an array with shape " + ShapeText(laid) + ", " + expected);
  // Views that are transposed, reversed or cut become dense.
  const py::array dense = Numpy().attr("ascontiguousarray")(made);
  Tensor tensor(dtype, shape);
  const auto* const from = static_cast<const uint8_t*>(dense.data());
  if (BitsOf(dtype) < 8) {
    const auto largest = static_cast<uint32_t>(RangeOf(dtype).max);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (from[i] > largest)
        throw InputError("the code " + std::to_string(from[i]) + ", expected codes of " +
                         std::string(Name(dtype)) + " up to " + std::to_string(largest));
      tensor.SetBits(i, from[i]);
    }
  } else if (tensor.size() != 0) {
    std::memcpy(tensor.bytes().data(), from, tensor.bytes().size());
  }
  return tensor;
}

Laid::Laid(const Tensor& tensor, const RunContext& context)
    : tensor_(tensor), poison_(context.poison) {
  if (IsPacked()) {
    const std::vector<uint8_t> codes = Unpacked(tensor);
    view_ = py::array_t<uint8_t>(tensor.shape(), codes.data());
    return;
  }
  const size_t element = SizeOf(tensor.dtype());
  const std::vector<int64_t>& shape = tensor.shape();
  const int64_t columns = shape.empty() ? 1 : shape.back();
  row_bytes_ = static_cast<size_t>(columns) * element;
  rows_ = row_bytes_ == 0 ? 0 : tensor.bytes().size() / row_bytes_;
  stride_ = row_bytes_ + static_cast<size_t>(context.x_row_gap) * element;
  constexpr size_t kAlignment = 64;
  memory_ = py::array_t<uint8_t>(static_cast<py::ssize_t>(rows_ * stride_ + 2 * kAlignment));
  auto* const memory = static_cast<uint8_t*>(memory_.mutable_data());
  const size_t offset = static_cast<size_t>(context.align_offset) / element * element;
  const size_t over = reinterpret_cast<uintptr_t>(memory) % kAlignment;
  begin_ = memory + (kAlignment - over) % kAlignment + offset;
  if (rows_ != 0) std::memset(begin_, poison_, rows_ * stride_);
  for (size_t row = 0; row < rows_; ++row)
    std::memcpy(begin_ + row * stride_, tensor_.bytes().data() + row * row_bytes_, row_bytes_);
  std::vector<py::ssize_t> strides(shape.size());
  auto step = static_cast<py::ssize_t>(element);
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = step;
    step = axis + 1 == shape.size() ? static_cast<py::ssize_t>(stride_)
                                    : step * static_cast<py::ssize_t>(shape[axis]);
  }
  view_ = py::array(NumpyType(tensor.dtype()), shape, strides, begin_, memory_);
}

bool Laid::Intact() const {
  if (IsPacked()) {
    const std::vector<uint8_t> codes = Unpacked(tensor_);
    return codes.empty() || std::memcmp(codes.data(), view_.data(), codes.size()) == 0;
  }
  const Tensor& tensor = tensor_;
  for (size_t row = 0; row < rows_; ++row) {
    const uint8_t* const at = begin_ + row * stride_;
    if (std::memcmp(at, tensor.bytes().data() + row * row_bytes_, row_bytes_) != 0) return false;
    if (std::any_of(at + row_bytes_, at + stride_, [&](uint8_t byte) { return byte != poison_; }))
      return false;
  }
  return true;
}

}  // namespace qualm::python
