// SPDX-License-Identifier: Apache-2.0
#include "python/native/subject.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "adapters/host/placement.h"
#include "adapters/qualm_plugin.h"
#include "core/nearest.h"
#include "core/status.h"
#include "python/native/arrays.h"
#include "python/native/case_object.h"

namespace qualm::python {
namespace {

namespace py = pybind11;

constexpr int64_t kFarthestRows = 4096;  // elements
constexpr std::string_view kReturns = "returns its output";

// The function returns an array of its own, so gaps and offsets are those of its inputs.
constexpr StateLimits kInPython = std::to_array<StateLimit>(
    {{""},                                                              // align_offset
     {""},                                                              // end_at_guard
     {""},                                                              // poison
     {"takes dense arrays only (no strides=True)", QUALM_CAN_STRIDES},  // x_row_gap
     {""},                                                              // y_row_gap
     {kReturns},                                                        // in_place
     {"takes dense weights"},                                           // w_row_gap
     {"takes dense images"},                                            // x_line_gap
     {kReturns},                                                        // over_w
     {""},                                                              // shared_inputs
     {""},                                                              // calls
     {"is called by one thread at a time"},                             // callers
     {"shares its process with the interpreter"},                       // watch
     {"is not told how many threads to use"},                           // threads
     {"runs in the rounding mode of the interpreter"},                  // rounding
     {"runs in the rounding mode of the interpreter"},                  // flush_denormals
     {""}});                                                            // want_acc

Outcome Ended(RunStatus status, std::string detail) {
  return {status, std::move(detail), {}, std::nullopt};
}

std::string Text(const py::handle& object) { return py::str(object).cast<std::string>(); }

// "ValueError: the first line of its message (kernel.py, line 12)".
std::string Told(const py::error_already_set& error) {
  constexpr size_t kMost = 200;
  std::string text = Text(error.type().attr("__name__"));
  std::string message = Text(error.value());
  message = message.substr(0, message.find('\n'));
  if (message.size() > kMost) message = message.substr(0, kMost) + "...";
  if (!message.empty()) text += ": " + message;
  py::object at = error.trace();
  if (!at || at.is_none()) return text;
  while (!at.attr("tb_next").is_none()) at = at.attr("tb_next");
  const std::string file = Text(at.attr("tb_frame").attr("f_code").attr("co_filename"));
  return text + " (" + file.substr(file.rfind('/') + 1) + ", line " + Text(at.attr("tb_lineno")) +
         ")";
}

// The outcome of a call that raised, or an Interruption.
Outcome Raised(py::error_already_set& error) {
  static const auto* const skip = new py::object(py::module_::import("qualm._errors").attr("Skip"));
  if (error.matches(*skip)) {
    const std::string why = Text(error.value());
    return Ended(RunStatus::kSkipped, why.empty() ? "gave no reason" : why);
  }
  if (error.matches(PyExc_Exception)) return Ended(RunStatus::kCrashed, "raised " + Told(error));
  throw Interruption{std::make_shared<py::error_already_set>(std::move(error))};
}

struct Reader {
  const py::dict& arguments;

  std::optional<py::object> Find(const char* key) const {
    if (!arguments.contains(key) || arguments[key].is_none()) return std::nullopt;
    return py::reinterpret_borrow<py::object>(arguments[key]);
  }
  [[noreturn]] static void Fail(const char* key, const py::object& given,
                                const std::string& expected) {
    throw InputError(std::string(key) + ": is " + py::repr(given).cast<std::string>() +
                     ", expected " + expected);
  }
  template <class T>
  T Read(const char* key, const std::string& expected) const {
    try {
      return Find(key)->cast<T>();
    } catch (const py::cast_error&) {
      Fail(key, *Find(key), expected);
    }
  }

  // A name, or several.
  uint32_t Types(const char* key, const DTypeList& known, DType absent) const {
    const auto bit = [](DType dtype) { return QUALM_TYPE_BIT(static_cast<uint32_t>(dtype)); };
    const std::optional<py::object> given = Find(key);
    if (!given) return bit(absent);
    const std::string expected = Join(known);
    uint32_t types = 0;
    const bool one = py::isinstance<py::str>(*given);
    const auto names = one ? std::vector<std::string>{given->cast<std::string>()}
                           : Read<std::vector<std::string>>(key, expected);
    for (const std::string& name : names) {
      const std::optional<DType> dtype = ParseDType(name);
      if (!dtype || !known.contains(*dtype)) Fail(key, *given, expected);
      types |= bit(*dtype);
    }
    if (types == 0) Fail(key, *given, expected);
    return types;
  }

  void Size(const char* key, int64_t* size) const {
    const std::optional<py::object> given = Find(key);
    if (!given) return;
    const std::string expected = "an integer, 0 for any";
    *size = Read<int64_t>(key, expected);
    if (*size < 0) Fail(key, *given, expected);
  }

  // One zero point, or the smallest and the largest.
  CodeRange ZeroPoints(const char* key, CodeRange absent) const {
    const std::optional<py::object> given = Find(key);
    if (!given) return absent;
    const std::string expected = "an integer, or a pair of the smallest and the largest";
    if (py::isinstance<py::int_>(*given)) {
      const auto only = Read<int32_t>(key, expected);
      return {only, only};
    }
    const auto [least, most] = Read<std::pair<int32_t, int32_t>>(key, expected);
    if (least > most) Fail(key, *given, expected);
    return {least, most};
  }
};

// Whether all these types of weights are signed.
bool AreSigned(uint32_t types) {
  return std::ranges::none_of(kWeightCodes, [&](DType dtype) {
    return (types & QUALM_TYPE_BIT(static_cast<uint32_t>(dtype))) != 0 && RangeOf(dtype).min == 0;
  });
}

}  // namespace

PluginLimits LimitsOf(Op op, const py::dict& arguments) {
  const OpRow& row = RowOf(op);
  const Reader reader{arguments};
  const DTypeList& out_types = KeepsType(op) ? row.x_types : row.out_types;
  PluginLimits limits;
  limits.x_dtypes =
      reader.Types("x", row.float_x ? kCodesOrFloat : row.x_types, row.x_types.front());
  limits.w_dtypes =
      HasTwoInputs(op) ? limits.x_dtypes : reader.Types("w", kWeightCodes, kWeightCodes.front());
  limits.out_dtypes = KeepsType(op) && !reader.Find("out")
                          ? limits.x_dtypes
                          : reader.Types("out", out_types, out_types.front());
  reader.Size("m_max", &limits.m_max);
  reader.Size("n_max", &limits.n_max);
  reader.Size("k_max", &limits.k_max);
  reader.Size("n_multiple", &limits.n_multiple);
  reader.Size("k_multiple", &limits.k_multiple);
  if (const std::optional<py::object> given = reader.Find("w_formats")) {
    const std::string expected = "some of " + AllFormatNames();
    if (op != Op::kLinear) Reader::Fail("w_formats", *given, "none: it is of linear alone");
    const bool one = py::isinstance<py::str>(*given);
    std::string names = one ? given->cast<std::string>() : "";
    if (!one) {
      for (const auto& name : reader.Read<std::vector<std::string>>("w_formats", expected))
        names += name + " ";
    }
    const std::optional<FormatSet> formats = FormatsNamed(names);
    if (!formats || *formats == 0) Reader::Fail("w_formats", *given, expected);
    limits.TakeFormats(*formats);
    return limits;
  }
  const CodeRange any{INT32_MIN, INT32_MAX};
  // The zero point of signed weights is 0 where nothing else is said, as in most frameworks.
  const bool is_signed = HasWeights(op) && AreSigned(limits.w_dtypes);
  const CodeRange x = reader.ZeroPoints("x_zp", any);
  const CodeRange w = reader.ZeroPoints("w_zp", is_signed ? CodeRange{0, 0} : any);
  const CodeRange out = reader.ZeroPoints("out_zp", any);
  limits.x_zero_point_min = x.min, limits.x_zero_point_max = x.max;
  limits.w_zero_point_min = w.min, limits.w_zero_point_max = w.max;
  limits.out_zero_point_min = out.min, limits.out_zero_point_max = out.max;

  std::vector<std::string_view> known{"strides"};
  for (size_t i = 0; i < kPipeFeatureCount; ++i) known.push_back(Name(static_cast<PipeFeature>(i)));
  std::vector<std::string> features;
  if (reader.Find("features"))
    features = reader.Read<std::vector<std::string>>("features", "a list of features");
  for (const std::string& feature : features) {
    const auto at = std::ranges::find(known, feature);
    if (at == known.end())
      throw InputError("features: holds '" + feature + "', expected one of the known features, " +
                       "nearest is '" + std::string(NearestName(feature, known)) + "'");
    limits.features |= at == known.begin()
                           ? QUALM_CAN_STRIDES
                           : FeatureBit(static_cast<PipeFeature>(at - known.begin() - 1));
  }
  // Of operations on elements the blocks are those of a row.
  if (row.layout == Layout::kElements && (limits.features & QUALM_CAN_PER_BLOCK) != 0)
    limits.features |= QUALM_CAN_X_PER_BLOCK;
  // Whoever names the type takes it, and the other way round.
  const uint32_t f32 = QUALM_TYPE_BIT(static_cast<uint32_t>(DType::kF32));
  if (row.float_x && (limits.x_dtypes & f32) != 0) limits.features |= QUALM_CAN_FLOAT_X;
  if (row.float_x && (limits.features & QUALM_CAN_FLOAT_X) != 0) limits.x_dtypes |= f32;
  return limits;
}

Domain DomainOf(Op op, const py::dict& arguments) {
  Domain domain;
  const Reader reader{arguments};
  const std::optional<py::object> argument = reader.Find("domain");
  if (!argument) return domain;
  if (!py::isinstance<py::dict>(*argument))
    Reader::Fail("domain", *argument, "a dict of ranges, and of shapes");
  const auto given = py::reinterpret_borrow<py::dict>(*argument);
  for (const auto& [key, value] : given) {
    const std::string name = Text(key);
    const Reader entry{given};
    try {
      if (name == "shapes") {
        for (const auto& shape :
             entry.Read<std::vector<std::string>>(name.c_str(), "a list of texts"))
          domain.AddShape(op, shape);
      } else {
        const auto [least, most] =
            entry.Read<std::pair<double, double>>(name.c_str(), "a pair of the least and the most");
        domain.AddRange(op, name, least, most);
      }
    } catch (const InputError& error) {
      throw InputError(std::string("domain: ") + error.what());
    }
  }
  return domain;
}

QParamsRules RulesOf(Op op, const py::dict& arguments) {
  const Reader reader{arguments};
  const std::optional<py::object> given = reader.Find("rules");
  if (!given) return RulesUnlessSaid(op);
  const std::string expected = "some of observer, aten, onnx";
  if (!RowOf(op).rule)
    Reader::Fail("rules", *given, "none: they are of choose_qparams and dynamic_linear");
  const bool one = py::isinstance<py::str>(*given);
  const auto names = one ? std::vector<std::string>{given->cast<std::string>()}
                         : reader.Read<std::vector<std::string>>("rules", expected);
  QParamsRules rules;
  for (const std::string& name : names) {
    const std::optional<QParamsRule> rule = Parse<QParamsRule>(name);
    if (!rule) Reader::Fail("rules", *given, expected);
    rules.set(static_cast<size_t>(*rule));
  }
  if (rules.none()) Reader::Fail("rules", *given, expected);
  return rules;
}

std::string PythonSubject::CannotRun(const Case& c) const {
  const Function& f = *function_;
  if (!Offers(c.op)) return f.name + " does not offer " + std::string(Name(c.op));
  if (const std::string missing = NotTold(kToldWithCases, c); !missing.empty())
    return "Python functions have no " + missing;
  if (const std::string why = OutsideLimits(f.limits, c); !why.empty())
    return f.name + " does not offer " + why;
  if (RowOf(c.op).rule && !f.rules[static_cast<size_t>(c.rule)])
    return f.name + " does not offer qparams_rule " + std::string(Name(c.rule));
  if (f.limits.w_formats != 0) {
    const std::string why = WhyNotInFormats(f.limits.w_formats, c);
    return why.empty() ? f.domain.WhyOutside(c) : why;
  }
  const bool beyond = !BeyondCodes("x", c.x_q, c.x.dtype()).empty() ||
                      !BeyondCodes("out", c.out_q, c.out_dtype).empty() ||
                      (HasW(c.op) && !BeyondCodes("w", c.w_q, c.w.dtype()).empty());
  return beyond ? f.name + " does not offer zero points beyond the codes" : f.domain.WhyOutside(c);
}

Case PythonSubject::Inside(const Case& c) const {
  const FormatSet formats = function_->limits.w_formats;
  return function_->domain.Inside(formats == 0 ? c : InsideFormats(formats, c));
}

Outcome PythonSubject::Run(const Case& c, const RunContext& context) {
  std::string why = CannotRun(c);
  if (why.empty()) why = Refused(kInPython, context, function_->limits.features);
  if (why.empty()) why = WhyNotLaid(c, context);
  if (why.empty() && std::max(context.x_row_gap, context.y_row_gap) > kFarthestRows)
    why = "takes no rows that lie far apart";
  if (!why.empty()) return Ended(RunStatus::kSkipped, std::move(why));
  Outcome outcome;
  for (int call = 0; call < context.calls; ++call) {
    const auto object = std::make_shared<CaseObject>(c, &context, function_->limits.w_formats);
    try {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      const py::object y = function_->call(object);
      if (const std::string damaged = object->Damaged(); !damaged.empty())
        return Ended(RunStatus::kModifiedInput, "modified " + damaged);
      outcome.y = TensorOf(y, c.out_dtype, c.output_shape());
    } catch (py::error_already_set& error) {
      return Raised(error);
    } catch (const WrongType& error) {
      function_->wrong_type = error.what();
      return Ended(RunStatus::kGarbage, "returned " + function_->wrong_type);
    } catch (const InputError& error) {
      return Ended(RunStatus::kGarbage, std::string("returned ") + error.what());
    }
  }
  return outcome;
}

namespace {

// Never freed: the registry outlives the interpreter.
std::map<std::string, std::shared_ptr<const Function>>& AskedLast() {
  static auto& asked = *new std::map<std::string, std::shared_ptr<const Function>>();
  return asked;
}

}  // namespace

MakeOwnSubject Making(std::shared_ptr<const Function> function) {
  return [function = std::move(function)] { return std::make_unique<PythonSubject>(function); };
}

void AskNow(const std::shared_ptr<const Function>& function) {
  AskedLast()[function->name] = function;
  AddOwnSubject(
      [name = function->name] { return std::make_unique<PythonSubject>(AskedLast().at(name)); });
}

}  // namespace qualm::python
