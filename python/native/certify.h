// SPDX-License-Identifier: Apache-2.0
// qualm.certify: can a narrow sum of a layer overflow?
#ifndef QUALM_PYTHON_NATIVE_CERTIFY_H_
#define QUALM_PYTHON_NATIVE_CERTIFY_H_

#include <pybind11/pybind11.h>

namespace qualm::python {

void BindCertify(pybind11::module_& module);

}  // namespace qualm::python

#endif  // QUALM_PYTHON_NATIVE_CERTIFY_H_
