// SPDX-License-Identifier: Apache-2.0
// Arrays of NumPy's .npy format, versions 1 to 3.
#ifndef QUALM_CORE_IO_NPY_H_
#define QUALM_CORE_IO_NPY_H_

#include <string>
#include <string_view>

#include "core/tensor.h"

namespace qualm {

// An array of int8, uint8, int16, uint16, int32 or float32 of the machine's byte order, in C order
// or Fortran's. Throws InputError "NAME: FIELD: what, expected what" for anything else.
Tensor ParseNpy(std::string_view bytes, std::string_view name);

// The bytes that numpy.load reads back.
std::string NpyOf(const Tensor& tensor);

}  // namespace qualm

#endif  // QUALM_CORE_IO_NPY_H_
