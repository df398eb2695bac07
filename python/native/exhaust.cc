// SPDX-License-Identifier: Apache-2.0
#include "python/native/exhaust.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/contract.h"
#include "core/io/certificate_json.h"
#include "core/status.h"
#include "proofs/domain.h"
#include "proofs/reference.h"
#include "proofs/run.h"
#include "python/native/case_object.h"
#include "python/native/subject.h"

namespace qualm::python {
namespace {

namespace py = pybind11;
using Held = std::shared_ptr<CaseObject>;

// The parameters of the cases, or those of their parts that compute `op`, "" for the cases' own.
std::vector<Case> ProblemsOf(const std::vector<Held>& cases, const std::string& op_name) {
  std::vector<Case> problems;
  for (const Held& object : cases) {
    const Case c = ProblemOf(object->problem());
    const std::optional<Op> op = op_name.empty() ? std::optional(c.op) : ParseOp(op_name);
    if (!op) throw InputError("op: is '" + op_name + "', expected an operation");
    for (Case& problem : proofs::ProblemsFor(c, *op)) problems.push_back(std::move(problem));
  }
  return problems;
}

// The smallest case of an output that is wrong, with what the function gives for it.
py::object CaseOf(const Certificate& certificate, const Certificate::Wrong& wrong,
                  Subject& subject) {
  const proofs::Domain domain(proofs::ProblemAt(certificate, wrong.set));
  Case alone = domain.Alone(static_cast<uint64_t>(wrong.number)).first;
  Outcome outcome = subject.Run(alone, RunContext{});
  if (outcome.ok()) alone.observed = Observed{std::string(subject.name()), std::move(outcome.y)};
  return py::cast(std::make_shared<CaseObject>(std::move(alone)));
}

py::dict Exhaust(const std::vector<Held>& cases, const std::string& op_name, py::object function,
                 const std::string& name, const std::optional<py::dict>& limits,
                 const std::string& contract, const std::string& method,
                 const std::optional<py::object>& progress) {
  Certificate certificate;
  certificate.qualm = QUALM_VERSION;
  certificate.contract = contract;
  proofs::Plan(ProblemsOf(cases, op_name),
               method == "each"   ? Certificate::Method::kEach
               : method == "full" ? Certificate::Method::kFull
                                  : Certificate::Method::kSteps,
               &certificate);
  const Op op = certificate.problems.front().op;
  const auto asked = std::make_shared<const Function>(
      Function{"python:" + name, op, limits ? LimitsOf(op, *limits) : AllCases(), Domain(),
               std::move(function)});
  AskNow(asked);
  const std::unique_ptr<Subject> subject = Making(asked)();
  certificate.subject = subject->name();
  certificate.version = subject->Version();
  certificate.instruction_set = subject->InstructionSet();
  proofs::RunOptions options;
  options.make = Making(asked);
  if (progress) {
    options.progress = [&](int64_t done, int64_t all, int64_t wrong) {
      try {
        (*progress)(done, all, wrong);
      } catch (py::error_already_set& error) {
        throw Interruption{std::make_shared<py::error_already_set>(std::move(error))};
      }
    };
  }
  // A contract that cannot say what is right here is no failure of the function.
  const proofs::Domain domain(proofs::ProblemAt(certificate, 0));
  proofs::Reference(domain, ParseContract(contract));
  return Interruptible([&] {
    const std::string failed = proofs::Exhaust(&certificate, options);
    py::dict told;
    told["op"] = std::string(Name(op));
    told["failed"] = failed;
    told["text"] = failed.empty() ? proofs::SummaryOf(certificate) : failed;
    told["judged"] = certificate.judged;
    told["asked"] = certificate.asked;
    told["wrong"] = certificate.wrong;
    told["wrong_nan"] = certificate.wrong_nan;
    told["monotone"] = certificate.monotone;
    told["certificate"] = failed.empty() ? CertificateToJson(certificate) : "";
    told["worst"] =
        certificate.worst ? CaseOf(certificate, *certificate.worst, *subject) : py::none();
    told["first"] =
        certificate.first ? CaseOf(certificate, *certificate.first, *subject) : py::none();
    return told;
  });
}

}  // namespace

void BindExhaust(py::module_& module) {
  module.def("exhaust", &Exhaust, py::arg("cases"), py::arg("op"), py::arg("function"),
             py::arg("name"), py::arg("limits"), py::arg("contract"), py::arg("method"),
             py::arg("progress"));
}

}  // namespace qualm::python
