// SPDX-License-Identifier: Apache-2.0
// qualm._native: what the package qualm (python/qualm) is made of.
#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/nearest.h"
#include "core/status.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/tree_contract.h"
#include "oracles/exact/exact.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "properties/suite.h"
#include "python/native/arrays.h"
#include "python/native/case_object.h"
#include "python/native/certify.h"
#include "python/native/exhaust.h"
#include "python/native/model.h"
#include "python/native/subject.h"
#include "python/native/sum_tree.h"
#include "triage/causes.h"
#include "triage/identify.h"
#include "triage/triage.h"

namespace qualm::python {
namespace {

namespace py = pybind11;
using Held = std::shared_ptr<CaseObject>;

Held Wrap(Case c) { return std::make_shared<CaseObject>(std::move(c)); }

Op OpNamed(const std::string& name) {
  if (const std::optional<Op> op = ParseOp(name)) return *op;
  std::vector<std::string_view> names;
  for (const Op op : AllOps()) names.push_back(Name(op));
  throw InputError("op: '" + name + "' is no operation, nearest is '" +
                   std::string(NearestName(name, names)) + "'");
}

// "numpy@float32" is short for "model:numpy@float32", in each part of the contract.
std::string ContractText(const std::string& given) {
  const std::string text = conventions::WithTreesOfFiles(given);
  if (text.empty() || text.find(':') != std::string::npos || text == "exact" || text == "sum" ||
      text == "sum+offsets")
    return text;
  if (FindConvention(text) != nullptr) return "model:" + text;
  triage::FindConventionOrExact(text, "contract");  // throws with the nearest name
  return text;
}

// Throws InputError for a contract that is none, or whose convention lacks the operation.
void CheckContract(const std::string& op_name, const std::string& text) {
  const Op op = OpNamed(op_name);
  const Contracts contracts{std::nullopt, {{op, ParseContracts(ContractText(text)).of(op)}}};
  if (const std::string why = WrongContracts(contracts); !why.empty())
    throw InputError("contract: " + why);
}

py::list Claims(const std::string& op_name) {
  const Op op = OpNamed(op_name);
  py::list claims;
  for (const Property* property : PropertiesAbout(op)) {
    claims.append(py::make_tuple(std::string(property->claim), std::string(property->sentence),
                                 Compares(*property)));
  }
  return claims;
}

std::shared_ptr<const Function> FunctionOf(const std::string& name, Op op,
                                           const py::dict& arguments, py::object call) {
  return std::make_shared<const Function>(Function{"python:" + name, op, LimitsOf(op, arguments),
                                                   DomainOf(op, arguments), std::move(call),
                                                   RulesOf(op, arguments)});
}

// A function under the claims of one operation.
class PythonSuite {
 public:
  PythonSuite(const std::string& name, const std::string& op_name, py::object function,
              const py::dict& limits, const std::string& contract, int64_t cases, uint64_t seed,
              const std::vector<Held>& first)
      : op_(OpNamed(op_name)),
        function_(FunctionOf(name, op_, limits, std::move(function))),
        suite_(op_, Making(function_), OptionsOf(contract, cases, seed, first)) {}

  py::dict Run(const std::string& claim) {
    const Property* const property = FindProperty(claim);
    if (property == nullptr || !property->about(op_))
      throw InputError("claim: '" + claim + "' is no claim about " + std::string(Name(op_)));
    AskNow(function_);
    SuiteResult result = Interruptible([&] { return suite_.Run(*property); });
    py::dict told;
    told["claim"] = std::string(property->claim);
    told["compares"] = Compares(*property);
    told["judgement"] = std::string(Name(result.judgement));
    told["text"] = result.text;
    told["kind"] = result.judgement == Judgement::kFailed ? std::string(Name(result.kind)) : "";
    told["judged"] = result.judged;
    told["wrong_type"] = function_->wrong_type;
    told["smallest"] = py::none();
    if (result.smallest) told["smallest"] = py::cast(Wrap(std::move(*result.smallest)));
    return told;
  }

 private:
  static SuiteOptions OptionsOf(const std::string& contract, int64_t cases, uint64_t seed,
                                const std::vector<Held>& first) {
    if (cases < 1) throw InputError("cases: is " + std::to_string(cases) + ", expected 1 or more");
    SuiteOptions options{.cases = cases, .seed = seed, .contract = ContractText(contract)};
    for (const Held& one : first) options.first.push_back(one->problem());
    return options;
  }

  Op op_;
  std::shared_ptr<const Function> function_;
  Suite suite_;
};

Case WithObserved(const Case& c, const py::object& y, const std::string& by) {
  Case answered = c;
  try {
    answered.observed = Observed{by, TensorOf(y, c.out_dtype, c.output_shape())};
  } catch (const InputError& error) {
    throw InputError(std::string("y: is ") + error.what());
  }
  return answered;
}

// {text, exact, y, kind, cause, evidence, conventions} of what one answer departs by.
py::dict Told(const triage::Explained& explained, const Case& c, const Tensor& y) {
  py::dict told;
  told["text"] = explained.text;
  told["y"] = ArrayOf(y);
  const triage::Attribution* const why = explained.Of(y);
  told["exact"] = exact::Evaluate(c) == y;
  told["kind"] = why == nullptr ? "" : std::string(Name(why->kind));
  told["cause"] = why == nullptr ? "" : why->diagnosis;
  told["evidence"] = why == nullptr ? std::vector<std::string>{} : why->evidence;
  told["conventions"] = triage::BitEqual(c, y, triage::AllConventionsAndExact().subspan(1));
  return told;
}

void RequireIndex(const Case& c, int64_t index) {
  const int64_t outputs = Tensor(c.out_dtype, c.output_shape()).size();
  if (index >= outputs || index < -1)
    throw InputError("index: is " + std::to_string(index) + ", expected less than " +
                     std::to_string(outputs));
}

py::dict ExplainAnswer(const Held& object, const py::object& y, const std::string& by,
                       int64_t index) {
  RequireIndex(object->problem(), index);
  const Case c = WithObserved(object->problem(), y, by);
  return Told(triage::ExplainAnswers(c, {}, {.index = index}), c, c.observed->y);
}

py::dict ExplainFunction(const Held& object, py::object function, const std::string& name,
                         const std::optional<py::dict>& limits, int64_t index) {
  const Case c = ProblemOf(object->problem());
  RequireIndex(c, index);
  const auto asked = limits
                         ? FunctionOf(name, c.op, *limits, function)
                         : std::make_shared<const Function>(Function{
                               "python:" + name, c.op, AllCases(), Domain(), std::move(function)});
  AskNow(asked);
  const std::unique_ptr<Subject> subject = Making(asked)();
  return Interruptible([&] {
    const Outcome outcome = subject->Run(c, RunContext{});
    if (!outcome.ok())
      throw InputError(name + ": " + std::string(Name(outcome.status)) + ": " + outcome.detail);
    return Told(triage::ExplainAnswers(c, {subject.get()}, {.index = index}), c, outcome.y);
  });
}

// [(convention, "bit-equal" | "ruled out" | "no verdict", cases, reason, witness or None)].
py::dict IdentifiedAs(const triage::Identified& found) {
  py::list rows;
  for (const triage::Comparison& one : found.conventions) {
    using State = triage::Comparison::State;
    const char* const state = one.state == State::kBitEqual   ? "bit-equal"
                              : one.state == State::kRuledOut ? "ruled out"
                                                              : "no verdict";
    py::object witness = py::none();
    std::string reason = one.reason;
    if (one.witness) {
      witness = py::cast(Wrap(one.witness->c));
      const Divergence& d = one.witness->divergence;
      reason =
          "it gives " + d.expected + ", seen " + d.actual + ", at index " + std::to_string(d.index);
    }
    rows.append(py::make_tuple(one.convention, state, one.cases, reason, witness));
  }
  py::dict told;
  told["op"] = std::string(Name(found.op));
  told["drawn"] = found.drawn;
  told["answered"] = found.answered;
  told["breakage"] = found.breakage;
  told["rows"] = rows;
  return told;
}

py::dict IdentifyFunction(const std::string& op_name, py::object function, const std::string& name,
                          const py::dict& limits, int64_t cases, uint64_t seed) {
  const Op op = OpNamed(op_name);
  if (cases < 1) throw InputError("cases: is " + std::to_string(cases) + ", expected 1 or more");
  const auto asked = FunctionOf(name, op, limits, std::move(function));
  AskNow(asked);
  const std::unique_ptr<Subject> subject = Making(asked)();
  return Interruptible([&] {
    return IdentifiedAs(triage::Identify(triage::AnswererOf(*subject), op,
                                         triage::AllConventionsAndExact(),
                                         {.seed = seed, .cases = cases}));
  });
}

py::list IdentifyCases(const std::vector<Held>& cases) {
  std::vector<triage::ObservedCase> observed;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (!cases[i]->problem().observed)
      throw InputError("cases: number " + std::to_string(i) +
                       " has no observed output, expected one that has");
    observed.push_back({"case " + std::to_string(i), cases[i]->problem()});
  }
  py::list list;
  for (const triage::Identified& found :
       triage::IdentifyObserved(observed, triage::AllConventionsAndExact()))
    list.append(IdentifiedAs(found));
  return list;
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "The native part of the package qualm.";
#if PYBIND11_VERSION_MAJOR == 2 && PYBIND11_VERSION_MINOR < 12
  // The descriptors of types lie elsewhere in NumPy 2: arrays would be read wrongly.
  const auto numpy = py::module_::import("numpy").attr("__version__").cast<std::string>();
  if (std::stoi(numpy) >= 2) {
    throw py::import_error(
        "qualm: its native module was built with pybind11 before 2.12, which "
        "cannot read the arrays of NumPy " +
        numpy + ": 'pip install ./python' builds one that can");
  }
#endif
  const py::object errors = py::module_::import("qualm._errors");
  static const auto* const input_error = new py::object(errors.attr("InputError"));
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const InputError& error) {
      PyErr_SetString(input_error->ptr(), error.what());
    }
  });
  BindCase(module);
  BindCertify(module);
  BindExhaust(module);
  BindModel(module);
  BindSumTree(module);
  py::class_<PythonSuite>(module, "Suite")
      .def(py::init<const std::string&, const std::string&, py::object, const py::dict&,
                    const std::string&, int64_t, uint64_t, const std::vector<Held>&>(),
           py::arg("name"), py::arg("op"), py::arg("function"), py::arg("limits"),
           py::arg("contract"), py::arg("cases"), py::arg("seed"), py::arg("first"))
      .def("run", &PythonSuite::Run, py::arg("claim"));
  module.def("claims", &Claims, py::arg("op"));
  module.def("ops", [] {
    std::vector<std::string> names;
    for (const Op op : AllOps()) names.emplace_back(Name(op));
    return names;
  });
  module.def("check_limits", [](const std::string& op, const py::dict& limits) {
    LimitsOf(OpNamed(op), limits);
    DomainOf(OpNamed(op), limits);
    RulesOf(OpNamed(op), limits);
  });
  module.def("check_contract", &CheckContract);
  module.def("contract_text", [](const std::string& op, const std::string& text) {
    CheckContract(op, text);
    return ParseContracts(ContractText(text)).of(OpNamed(op)).text();
  });
  module.def("draw", [](const std::string& op, uint64_t seed) {
    return Wrap(gen::Draw(OpNamed(op), CaseSeed(seed, OpNamed(op), 0)));
  });
  module.def("exact",
             [](const Held& object) { return ArrayOf(exact::Evaluate(object->problem())); });
  module.def("derive", [](const Held& object, int64_t index) {
    RequireIndex(object->problem(), index);
    return triage::Explain(ProblemOf(object->problem()), {}, {.index = index});
  });
  module.def("explain_answer", &ExplainAnswer);
  module.def("explain_function", &ExplainFunction);
  module.def("identify_function", &IdentifyFunction);
  module.def("identify_cases", &IdentifyCases);
}

}  // namespace qualm::python
