// SPDX-License-Identifier: Apache-2.0
// A Python callable as a subject. It runs in this process and on this thread, with the
// interpreter's lock held, so a crash of native code that it calls, or a hang, ends the process: a
// pipe (docs/pipe.md) survives both.
#ifndef QUALM_PYTHON_NATIVE_SUBJECT_H_
#define QUALM_PYTHON_NATIVE_SUBJECT_H_

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "adapters/host/plugin_limits.h"
#include "core/io/pipe_json.h"
#include "core/own_subject.h"
#include "core/subject.h"
#include "properties/domain.h"

namespace qualm::python {

// A Python exception that is no answer of the function, but ends the run: KeyboardInterrupt,
// SystemExit, pytest.skip. No std::exception, so that no judge takes it for a failure.
struct Interruption {
  std::shared_ptr<pybind11::error_already_set> error;
};
// Runs `body`. An Interruption in it goes on as the Python exception that it is.
template <class Body>
auto Interruptible(Body&& body) {
  try {
    return body();
  } catch (Interruption& interruption) {
    interruption.error->restore();
    interruption.error.reset();
  }
  throw pybind11::error_already_set();
}

// A function of a case and its limits. A thread keeps some subjects until it ends, after the
// interpreter (relation::NewInstances): then there is nobody to give the function back to.
struct Function {
  ~Function() {
    if (Py_IsInitialized() == 0) call.release();
  }
  std::string name;      // of the subject: "python:test_quantize"
  std::optional<Op> op;  // nullopt: any, the case says which
  PluginLimits limits;
  Domain domain;
  pybind11::object call;
  QParamsRules rules = ~QParamsRules();
  // What it last returned in place of an array of the output's type: "None, expected ...".
  mutable std::string wrong_type = {};
};

// The limits of keyword arguments: element types of x, w and out, features by name, ranges of zero
// points, largest sizes and multiples. Throws InputError "FIELD: what is wrong, what was expected".
PluginLimits LimitsOf(Op op, const pybind11::dict& arguments);
// The domain of the keyword argument `domain`: {"x_scale": (1e-6, 1e3), "shapes": ["64x512x1024"]}.
// Throws InputError likewise.
Domain DomainOf(Op op, const pybind11::dict& arguments);
// Those of the keyword argument `rules`, else all; of choose_qparams the observers'. Likewise.
QParamsRules RulesOf(Op op, const pybind11::dict& arguments);

class PythonSubject final : public BasicSubject {
 public:
  explicit PythonSubject(std::shared_ptr<const Function> function)
      : function_(std::move(function)) {}

  std::string_view name() const override { return function_->name; }
  std::string CannotRun(const Case& c) const override;
  bool Offers(Op op) const override { return !function_->op || op == *function_->op; }
  Case Inside(const Case& c) const override;
  Outcome Run(const Case& c, const RunContext& context) override;

 private:
  std::shared_ptr<const Function> function_;
};

// Makes subjects of the function. Triage asks for new instances by name, and several tests may call
// their functions alike: the registry makes subjects of the function that was asked last.
MakeOwnSubject Making(std::shared_ptr<const Function> function);
// From now on the registry's subject of this name is of this function.
void AskNow(const std::shared_ptr<const Function>& function);

}  // namespace qualm::python

#endif  // QUALM_PYTHON_NATIVE_SUBJECT_H_
