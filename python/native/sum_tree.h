// SPDX-License-Identifier: Apache-2.0
// qualm.tree: in which order does a function add?
#ifndef QUALM_PYTHON_NATIVE_SUM_TREE_H_
#define QUALM_PYTHON_NATIVE_SUM_TREE_H_

#include <pybind11/pybind11.h>

namespace qualm::python {

void BindSumTree(pybind11::module_& module);

}  // namespace qualm::python

#endif  // QUALM_PYTHON_NATIVE_SUM_TREE_H_
