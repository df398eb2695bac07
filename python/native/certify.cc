// SPDX-License-Identifier: Apache-2.0
#include "python/native/certify.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/io/layers.h"
#include "core/status.h"
#include "proofs/certify.h"
#include "proofs/scheme.h"
#include "python/native/arrays.h"
#include "python/native/case_object.h"

namespace qualm::python {
namespace {

namespace py = pybind11;

// The layer of an array of codes: [N,K], or [N,R,S,C/groups]. It has no images or rows.
Case LayerOfCodes(const py::array& w, int64_t groups, DType x, int32_t x_zp, int32_t w_zp) {
  DType dtype = DType::kS8;
  if (w.dtype().equal(NumpyType(DType::kU8))) dtype = DType::kU8;
  std::vector<int64_t> shape(w.shape(), w.shape() + w.ndim());
  if (shape.size() != 2 && shape.size() != 4)
    throw InputError("w: has " + std::to_string(shape.size()) + " dimensions, expected 2 or 4");
  const Tensor codes = [&] {
    try {
      return TensorOf(w, dtype, shape);
    } catch (const InputError& error) {
      throw InputError(std::string("w: is ") + error.what());
    }
  }();
  Case layer = LayerOf(codes, {.groups = groups, .channels_last = true}, "w");
  layer.M = 0;
  layer.window.batch = 0;
  if (IsConv(layer.op)) DeriveSizes(&layer);
  layer.x = Tensor(x, ShapeOfX(layer));
  layer.x_q.zero_point = {x_zp};
  layer.w_q.zero_point = {w_zp};
  return layer;
}

py::list Certified(const py::array& w, const std::string& x_type,
                   const std::optional<std::pair<int32_t, int32_t>>& x_range, int32_t x_zp,
                   int32_t w_zp, int64_t groups,
                   const std::optional<std::vector<std::string>>& names) {
  const std::optional<DType> x = ParseDType(x_type);
  if (!x || !IsCode(*x)) throw InputError("x: is '" + x_type + "', expected u8 or s8");
  const CodeRange type = RangeOf(*x);
  const auto [least, most] = x_range.value_or(std::pair(type.min, type.max));
  if (least < type.min || least > most || most > type.max)
    throw InputError("x_range: is (" + std::to_string(least) + ", " + std::to_string(most) +
                     "), expected a pair inside " + std::to_string(type.min) + ".." +
                     std::to_string(type.max));
  const Case layer = LayerOfCodes(w, groups, *x, x_zp, w_zp);
  const proofs::Codes codes = proofs::WithPadding(layer, {least, most});
  std::vector<proofs::Scheme> schemes;
  if (names) {
    for (const std::string& name : *names) schemes.push_back(proofs::SchemeOf(name, layer));
  } else {
    schemes = proofs::SchemesOfConventions(layer);
  }
  py::list certificates;
  for (const proofs::Scheme& scheme : schemes) {
    const proofs::Proof proof = proofs::Certify(layer, scheme, codes);
    py::list unsafe;
    for (const proofs::UnsafeChannel& channel : proof.unsafe)
      unsafe.append(py::make_tuple(channel.n, channel.sums, channel.corner));
    py::object witness = py::none();
    if (!proof.safe()) {
      if (const auto found = proofs::WitnessOf(layer, scheme, codes, proof.unsafe.front()))
        witness = py::cast(std::make_shared<CaseObject>(proofs::WitnessCase(layer, *found)));
    }
    py::dict one;
    one["scheme"] = scheme.name;
    one["conventions"] = scheme.conventions;
    one["channels"] = proof.channels;
    one["sums"] = proof.sums;
    one["unsafe"] = unsafe;
    one["accumulators"] = py::make_tuple(proof.least, proof.most);
    one["witness"] = witness;
    certificates.append(one);
  }
  return certificates;
}

}  // namespace

void BindCertify(py::module_& module) {
  module.def("certify", &Certified, py::arg("w"), py::arg("x"), py::arg("x_range"), py::arg("x_zp"),
             py::arg("w_zp"), py::arg("groups"), py::arg("schemes"));
}

}  // namespace qualm::python
