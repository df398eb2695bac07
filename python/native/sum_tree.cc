// SPDX-License-Identifier: Apache-2.0
#include "python/native/sum_tree.h"

#include <pybind11/numpy.h>

#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "triage/reveal.h"

namespace qualm::python {
namespace {

namespace py = pybind11;

py::array_t<float> ArrayOf(std::span<const float> values) {
  return py::array_t<float>(static_cast<py::ssize_t>(values.size()), values.data());
}

// Nested tuples of the indices of products.
py::object Nested(const conventions::SumTree& tree) {
  if (tree.parts.empty()) return py::int_(tree.leaf);
  py::tuple parts(tree.parts.size());
  for (size_t i = 0; i < tree.parts.size(); ++i) parts[i] = Nested(tree.parts[i]);
  return parts;
}

py::dict Reveal(const py::object& function, int64_t products, int64_t cases, uint64_t seed) {
  if (cases < 1) throw InputError("cases: is " + std::to_string(cases) + ", expected 1 or more");
  const auto ask = [&](std::span<const float> a, std::span<const float> b) {
    const py::object answer = function(ArrayOf(a), ArrayOf(b));
    // Numbers of NumPy, PyTorch and JAX are numbers to Python too.
    PyObject* const number = PyNumber_Float(answer.ptr());
    if (number == nullptr) {
      PyErr_Clear();
      throw InputError("function: gives " + py::str(py::type::of(answer)).cast<std::string>() +
                       ", expected a number");
    }
    return static_cast<float>(py::reinterpret_steal<py::float_>(number).cast<double>());
  };
  const triage::RevealedSum sum =
      triage::RevealSum(ask, {.products = products, .cases = cases, .seed = seed});
  py::object witness = py::none();
  if (sum.witness) {
    witness = py::make_tuple(ArrayOf(sum.witness->a), ArrayOf(sum.witness->b),
                             sum.witness->expected, sum.witness->actual);
  }
  py::dict told;
  told["products"] = sum.products;
  told["text"] = sum.text();
  told["parts"] = sum.tree ? Nested(*sum.tree) : py::none();
  told["exact"] = sum.is_exact;
  told["order"] = sum.order;
  told["steps"] = sum.steps;
  told["compared"] = sum.compared;
  told["questions"] = sum.questions;
  told["witness"] = witness;
  told["report"] = triage::TextOf(sum);
  return told;
}

}  // namespace

void BindSumTree(py::module_& module) {
  module.def("tree", &Reveal, py::arg("function"), py::arg("products"), py::arg("cases"),
             py::arg("seed"));
}

}  // namespace qualm::python
