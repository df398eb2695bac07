// SPDX-License-Identifier: Apache-2.0
#include "python/native/model.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/io/arrays.h"
#include "core/io/asked_runtime.h"
#include "core/io/model_file.h"
#include "core/io/onnx_graph.h"
#include "core/io/text_file.h"
#include "core/io/tflite_graph.h"
#include "core/status.h"
#include "models/run.h"
#include "models/told.h"
#include "python/native/arrays.h"
#include "python/native/case_object.h"
#include "python/native/subject.h"
#include "report/model_page.h"

namespace qualm::python {
namespace {

namespace py = pybind11;
using graph::Value;
using graph::Values;

std::vector<int64_t> ShapeOf(const py::array& array) {
  return {array.shape(), array.shape() + array.ndim()};
}

// What code elsewhere calls the integers that no tensor holds.
template <class Integer>
std::optional<Value> IntegersOf(const py::array& array, int64_t type) {
  if (!array.dtype().equal(py::dtype::of<Integer>())) return std::nullopt;
  const auto dense = py::array_t<Integer, py::array::c_style>::ensure(array);
  return Value::Of(type, ShapeOf(array),
                   std::vector<int64_t>(dense.data(), dense.data() + dense.size()));
}

// Throws InputError "FIELD: is what, expected what".
Value ValueOf(const std::string& field, const py::object& object) {
  const auto array = py::array::ensure(object);
  if (!array) {
    PyErr_Clear();
    throw InputError(field + ": is no array, expected one");
  }
  for (const DType dtype :
       {DType::kF32, DType::kU8, DType::kS8, DType::kU16, DType::kS16, DType::kS32}) {
    if (array.dtype().equal(NumpyType(dtype)))
      return Value::Of(TensorOf(array, dtype, ShapeOf(array)));
  }
  if (auto value = IntegersOf<int64_t>(array, graph::kInt64)) return *std::move(value);
  if (auto value = IntegersOf<bool>(array, graph::kBool)) return *std::move(value);
  throw InputError(field + ": is an array of " + py::str(array.dtype()).cast<std::string>() +
                   ", expected float32, uint8, int8, uint16, int16, int32, int64 or bool");
}

template <class Integer>
py::array IntegersArray(const Value& value) {
  py::array_t<Integer> array(value.shape);
  std::ranges::transform(value.integers, array.mutable_data(),
                         [](int64_t one) { return static_cast<Integer>(one); });
  return array;
}
py::array ArrayOfValue(const Value& value) {
  if (value.holds_tensor()) return ArrayOf(value.tensor);
  if (value.type == graph::kBool) return IntegersArray<bool>(value);
  return IntegersArray<int64_t>(value);
}

Values ValuesOf(const std::string& field, const py::dict& arrays) {
  Values values;
  for (const auto& [key, array] : arrays) {
    const auto name = py::str(key).cast<std::string>();
    values[name] = ValueOf(field + " " + name, py::reinterpret_borrow<py::object>(array));
  }
  return values;
}

// A Python object with `name` and `run(question)`, as adapters/libraries/models_child.py asks it.
class PythonRuntime : public graph::AskedRuntime {
 public:
  explicit PythonRuntime(py::object runtime) : runtime_(std::move(runtime)) {}
  std::string name() const override { return py::str(runtime_.attr("name")); }

 private:
  Values Ask(const graph::Graph& graph, const Question& asked, const Values& inputs,
             const std::vector<std::string>& outputs) override {
    py::dict arrays;
    for (const auto& [name, value] : inputs)
      arrays[py::str(NameFor(graph, name))] = ArrayOfValue(value);
    py::list wanted;
    for (const std::string& name : outputs) wanted.append(NameFor(graph, name));
    Values values;
    try {
      const py::object question = py::module_::import("types").attr("SimpleNamespace")(
          py::arg("model") = py::bytes(asked.model.data(), asked.model.size()),
          py::arg("folder") = asked.folder.empty() ? "." : asked.folder,
          py::arg("node") = asked.node, py::arg("inputs") = arrays, py::arg("wanted") = wanted);
      const py::list given(runtime_.attr("run")(question));
      for (size_t i = 0; i < std::min(outputs.size(), given.size()); ++i) {
        if (!py::isinstance<py::array>(given[i])) continue;
        try {
          values[outputs[i]] = ValueOf(outputs[i], given[i]);
        } catch (const InputError&) {  // of a type that no Value holds
        }
      }
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_Exception))
        throw Interruption{std::make_shared<py::error_already_set>(error)};
      const py::object words = py::str(error.value()).attr("split")();
      throw Unavailable(py::str(" ").attr("join")(words).cast<std::string>());
    }
    return values;
  }

  py::object runtime_;
};

struct Ran {
  models::ModelRun run;
  std::string file;
  std::vector<std::string> drawn;

  std::string Json() const {
    return models::ModelJson(run, file, drawn,
                             std::vector<std::vector<std::string>>(run.rows.size()))
        .text();
  }
  // The rows of this number, as cases with what was given in `observed`, where it is not exact.
  py::list CasesOf(size_t row) const {
    py::list cases;
    const auto& judged = run.rows.at(row).judged;
    if (!judged) return cases;
    for (const Case& c : judged->differing) cases.append(std::make_shared<CaseObject>(c));
    return cases;
  }
};

class Model {
 public:
  explicit Model(const std::string& path) : path_(path), file_(graph::ReadModelFile(path)) {}

  bool is_onnx() const { return file_.graph->format() == graph::Format::kOnnx; }
  // Those that somebody has to give.
  std::vector<std::string> Inputs() const {
    std::vector<std::string> names;
    for (const graph::Port& port : file_.graph->inputs()) {
      if (file_.graph->FindConstant(port.name) == nullptr) names.push_back(port.name);
    }
    return names;
  }

  // The inputs, random where they are not given, and what was drawn.
  std::pair<py::dict, std::vector<std::string>> Draw(const py::dict& given, uint64_t seed) const {
    std::vector<std::string> told;
    py::dict inputs;
    for (const auto& [name, value] : models::DrawInputs(graph(), Fitted(given), seed, &told))
      inputs[py::str(name)] = ArrayOfValue(value);
    return {inputs, told};
  }

  // What the runtime gives for every value that a node makes, as the reference of this model after
  // it was `quantized`. Throws InputError where it refuses.
  py::dict ReferenceFor(const Model& quantized, const py::dict& inputs,
                        const py::object& runtime) const {
    std::vector<std::string> wanted;
    for (const graph::Node& node : graph().nodes()) {
      std::ranges::copy_if(node.outputs, std::back_inserter(wanted),
                           [](const std::string& name) { return !name.empty(); });
    }
    PythonRuntime asked(runtime);
    // A model that takes codes had reals before, under the same name.
    Values reals = ValuesOf("inputs", inputs);
    for (const graph::Port& port : graph().inputs()) {
      const auto at = reals.find(port.name);
      if (at == reals.end()) continue;
      if (port.type == graph::kFloat) quantized.Dequantize(port.name, &at->second);
      models::FitInput(graph(), port, "inputs", &at->second);
    }
    auto answer = Interruptible([&] { return asked.Run(graph(), reals, wanted); });
    if (!answer.error.empty())
      throw InputError(path_ + ": " + asked.name() + " refuses it: " + answer.error);
    // A quantizer drops a Relu or Clip that the range of codes does, and keeps the name before it.
    for (const graph::Node& node : graph().nodes()) {
      const auto after = answer.values.find(node.Output(0));
      if ((node.Is("Relu") || node.Is("Clip")) && after != answer.values.end() &&
          !quantized.Makes(node.Output(0)) && !quantized.Makes(node.Output(0) + "_quantized"))
        answer.values[node.Input(0)] = after->second;
    }
    py::dict values;
    for (const auto& [name, value] : answer.values) values[py::str(name)] = ArrayOfValue(value);
    return values;
  }

  Ran Run(const py::dict& inputs, const py::object& runtime, const py::dict& observed,
          const py::dict& reference, const std::vector<std::string>& drawn,
          const py::object& function, const std::string& by) const {
    models::ModelOptions options;
    options.inputs = Fitted(inputs);
    options.recorded = ValuesOf("observed", observed);
    for (const auto& [name, value] : options.recorded) {
      if (graph().MakerOf(name) == nullptr)
        throw InputError("observed " + name +
                         ": is no value of the model, expected one that a "
                         "node makes");
    }
    options.by = "observed";
    options.reference = ValuesOf("reference", reference);
    options.split = true;
    std::optional<PythonRuntime> asked;
    if (!runtime.is_none()) options.runtime = &asked.emplace(runtime);
    std::unique_ptr<Subject> subject;
    if (!function.is_none()) {
      const auto any = std::make_shared<const Function>(
          Function{"python:" + by, std::nullopt, AllCases(), Domain(), function});
      AskNow(any);
      subject = Making(any)();
      options.subject = subject.get();
    }
    // Ctrl-C ends a long run between two rows.
    options.progress = [](size_t, size_t) {
      if (PyErr_CheckSignals() != 0) throw Interruption{std::make_shared<py::error_already_set>()};
    };
    return {Interruptible([&] { return models::RunModel(graph(), options); }), path_, drawn};
  }

  bool Makes(const std::string& value) const { return graph().MakerOf(value) != nullptr; }

  // Codes of a tensor of TensorFlow Lite, which knows its scale, become reals.
  void Dequantize(const std::string& name, Value* value) const {
    const auto* const lite = dynamic_cast<const tflite::Graph*>(&graph());
    const tflite::Known* const known = lite == nullptr ? nullptr : lite->Find(name);
    if (known == nullptr || known->scale.empty() || !value->holds_tensor() ||
        !IsCode(value->tensor.dtype()))
      return;
    const auto number = [&](const std::string& constant) {
      return graph().Read(constant, *graph().FindConstant(constant)).ValueAt(0);
    };
    const double scale = number(known->scale), zero = number(known->zero_point);
    Tensor reals(DType::kF32, value->shape);
    for (int64_t i = 0; i < reals.size(); ++i)
      reals.as<float>()[static_cast<size_t>(i)] =
          static_cast<float>(scale * (value->tensor.IntAt(i) - zero));
    *value = Value::Of(std::move(reals));
  }

 private:
  const graph::Graph& graph() const { return *file_.graph; }
  Values Fitted(const py::dict& given) const {
    Values inputs = ValuesOf("inputs", given);
    for (const graph::Port& port : graph().inputs()) {
      const auto at = inputs.find(port.name);
      if (at != inputs.end()) models::FitInput(graph(), port, "inputs", &at->second);
    }
    return inputs;
  }

  std::string path_;
  graph::ModelFile file_;
};

// Layers that were recorded one by one: (name, operators, case with what was observed, None or its
// float32 outputs before it was quantized).
Ran Recorded(const std::string& file, const std::string& by, const py::list& layers) {
  Ran ran{{}, file, {}};
  ran.run.by = by;
  for (const auto& layer : layers) {
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    const auto [name, operators, held, array] =
        layer.cast<std::tuple<std::string, std::string, std::shared_ptr<CaseObject>, py::object>>();
    std::optional<Tensor> reference;
    if (!array.is_none()) reference = ValueOf(name + ": reference", array).tensor;
    ran.run.rows.push_back(
        models::RecordedRow(name, operators, held->problem(), reference ? &*reference : nullptr));
  }
  return ran;
}

}  // namespace

void BindModel(py::module_& module) {
  py::class_<Ran>(module, "ModelRun")
      .def_property_readonly("json", &Ran::Json)
      .def_property_readonly("summary", [](const Ran& ran) { return models::SumText(ran.run); })
      .def_property_readonly("notes", [](const Ran& ran) { return models::NotesOf(ran.run); })
      .def_property_readonly("worst_first",
                             [](const Ran& ran) { return models::WorstFirst(ran.run); })
      .def_property_readonly("why_not_judged",
                             [](const Ran& ran) {
                               std::vector<std::string> reasons;
                               for (const models::Row& row : ran.run.rows)
                                 reasons.push_back(models::WhyNotJudged(row));
                               return reasons;
                             })
      .def("cases", &Ran::CasesOf, py::arg("row"))
      .def("bars", [](const Ran& ran) { return report::LayerBars(ran.run).File(); })
      .def(
          "page",
          [](const Ran& ran, const std::vector<std::string>& notes) {
            return report::ModelPage(ran.run, ran.file, notes);
          },
          py::arg("notes"));
  py::class_<Model>(module, "Model")
      .def(py::init<const std::string&>(), py::arg("path"))
      .def_property_readonly("is_onnx", &Model::is_onnx)
      .def_property_readonly("inputs", &Model::Inputs)
      .def("draw", &Model::Draw, py::arg("inputs"), py::arg("seed"))
      .def("reference_for", &Model::ReferenceFor, py::arg("quantized"), py::arg("inputs"),
           py::arg("runtime"))
      .def("run", &Model::Run, py::arg("inputs"), py::arg("runtime"), py::arg("observed"),
           py::arg("reference"), py::arg("drawn"), py::arg("subject"), py::arg("name"));
  module.def("read_tensor", [](const std::string& path) {
    return ArrayOfValue(onnx::ReadTensorProto(ReadBinaryFile(path, kMaxWeightFile), path));
  });
  module.def("recorded", &Recorded, py::arg("file"), py::arg("by"), py::arg("layers"));
}

}  // namespace qualm::python
