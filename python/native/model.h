// SPDX-License-Identifier: Apache-2.0
// A model of a file, run layer by layer beside a runtime that is a Python object.
#ifndef QUALM_PYTHON_NATIVE_MODEL_H_
#define QUALM_PYTHON_NATIVE_MODEL_H_

#include <pybind11/pybind11.h>

namespace qualm::python {

// The classes _native.Model and _native.ModelRun.
void BindModel(pybind11::module_& module);

}  // namespace qualm::python

#endif  // QUALM_PYTHON_NATIVE_MODEL_H_
