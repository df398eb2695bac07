// SPDX-License-Identifier: Apache-2.0
// A Python function on every input of an operation (proofs/run.h).
#ifndef QUALM_PYTHON_NATIVE_EXHAUST_H_
#define QUALM_PYTHON_NATIVE_EXHAUST_H_

#include <pybind11/pybind11.h>

namespace qualm::python {

void BindExhaust(pybind11::module_& module);

}  // namespace qualm::python

#endif  // QUALM_PYTHON_NATIVE_EXHAUST_H_
