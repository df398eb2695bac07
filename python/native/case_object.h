// SPDX-License-Identifier: Apache-2.0
// A case as Python sees it: attributes, and arrays that are made when they are first asked for.
#ifndef QUALM_PYTHON_NATIVE_CASE_OBJECT_H_
#define QUALM_PYTHON_NATIVE_CASE_OBJECT_H_

#include <pybind11/pybind11.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "adapters/host/block_formats.h"
#include "core/case.h"
#include "core/subject.h"
#include "python/native/arrays.h"

namespace qualm::python {

class CaseObject {
 public:
  // The arrays of a case are read-only. Those of a case under test (`context`) are writable, since
  // kernels get them so, and Damaged tells what the function did to them.
  // Packed() is of that format of `formats` which stores the case.
  explicit CaseObject(Case c, const RunContext* context = nullptr, FormatSet formats = 0)
      : case_(std::move(c)),
        context_(context == nullptr ? std::nullopt : std::optional(*context)),
        format_(formats == 0 ? nullptr : &FormatFor(formats, case_)) {}

  const Case& problem() const { return case_; }

  pybind11::object X() { return ArrayNamed("x", case_.x); }
  pybind11::object W();
  // A number of the whole tensor, or an array with one entry per channel.
  pybind11::object Scale(const char* name, const QParams& q, bool per_channel);
  pybind11::object ZeroPoint(const char* name, const QParams& q, bool per_channel);
  pybind11::object Multiplier();
  // The format of the operands of a function that declares w_formats. Throws attribute_error.
  const WeightFormat& Format() const;
  // Rows of bytes, as the format stores them.
  pybind11::object Packed(const char* name, PackedRows (*pack)(const WeightFormat&, const Case&));
  pybind11::object Floats(const char* name, const std::vector<float>& list);
  pybind11::object Ints(const char* name, const std::vector<int32_t>& list);

  // "" or the array of the case that is not as it was made: "x", "bias".
  std::string Damaged() const;

 private:
  pybind11::object ArrayNamed(const std::string& name, const Tensor& tensor);

  Case case_;
  std::optional<RunContext> context_;
  const WeightFormat* format_;
  std::map<std::string, pybind11::object> arrays_;
  std::map<std::string, Laid> laid_;
};

// The class qualm.Case.
void BindCase(pybind11::module_& module);

}  // namespace qualm::python

#endif  // QUALM_PYTHON_NATIVE_CASE_OBJECT_H_
