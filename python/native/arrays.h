// SPDX-License-Identifier: Apache-2.0
// Tensors as NumPy arrays and back. Integers, f32 and f16 have their NumPy type. NumPy lacks the
// other floats: an array of these holds the code of each element, uint16 for bf16, else uint8.
#ifndef QUALM_PYTHON_NATIVE_ARRAYS_H_
#define QUALM_PYTHON_NATIVE_ARRAYS_H_

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/subject.h"
#include "core/tensor.h"

namespace qualm::python {

// The NumPy type of the elements.
pybind11::dtype NumpyType(DType dtype);
// np.float32(value).
pybind11::object Float32(float value);

// A C-ordered copy that nobody may write to.
pybind11::array ArrayOf(const Tensor& tensor);

// Thrown of what is no array of its element type.
struct WrongType : InputError {
  using InputError::InputError;
};

// The tensor of an array of NumpyType(dtype) and of this shape, in any order of elements. Throws
// InputError "what is wrong, expected what" for any other object. Objects that NumPy can make an
// array of (__array__, __dlpack__ on the host) are arrays.
Tensor TensorOf(const pybind11::object& object, DType dtype, const std::vector<int64_t>& shape);

// A writable copy of a tensor, laid as `context` asks: moved off its alignment, with gaps between
// its rows.
class Laid {
 public:
  Laid(const Tensor& tensor, const RunContext& context);
  const pybind11::array& view() const { return view_; }
  // Whether the elements and the gaps are as they were laid.
  bool Intact() const;

 private:
  bool IsPacked() const { return BitsOf(tensor_.dtype()) < 8; }

  Tensor tensor_;
  uint8_t poison_;
  size_t row_bytes_ = 0, stride_ = 0, rows_ = 0;
  uint8_t* begin_ = nullptr;
  pybind11::array memory_, view_;
};

}  // namespace qualm::python

#endif  // QUALM_PYTHON_NATIVE_ARRAYS_H_
