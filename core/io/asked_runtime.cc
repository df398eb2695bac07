// SPDX-License-Identifier: Apache-2.0
#include "core/io/asked_runtime.h"

#include <algorithm>
#include <exception>
#include <iterator>

#include "core/io/json_text.h"
#include "core/io/onnx_graph.h"
#include "core/io/tflite_graph.h"

namespace qualm::graph {
namespace {

template <class Ask>
ModelRuntime::Answer Answered(Ask ask) {
  ModelRuntime::Answer answer;
  try {
    answer.values = ask();
  } catch (const std::exception& error) {
    answer.error = OneLine(error.what());
  }
  return answer;
}

}  // namespace

ModelRuntime::Answer AskedRuntime::Run(const Graph& graph, const Values& inputs,
                                       const std::vector<std::string>& wanted) {
  return Answered([&] {
    Question question;
    question.model = graph.bytes();
    std::string shown;
    if (const auto* const onnx = dynamic_cast<const onnx::Graph*>(&graph)) {
      std::vector<std::string> more;
      for (const std::string& name : wanted) {
        if (std::ranges::find(graph.outputs(), name, &Port::name) == graph.outputs().end())
          more.push_back(name);
      }
      shown = onnx::WithOutputs(graph.bytes(), more);
      if (!more.empty()) question.model = shown;
      question.folder = onnx->folder().value_or("");
    }
    return Ask(graph, question, inputs, wanted);
  });
}

ModelRuntime::Answer AskedRuntime::RunNode(const Graph& graph, const Node& node,
                                           const Values& inputs) {
  return Answered([&] {
    Question question;
    question.model = graph.bytes();
    std::string alone;
    if (const auto* const onnx = dynamic_cast<const onnx::Graph*>(&graph)) {
      std::vector<int64_t> types;
      for (const std::string& input : node.inputs) {
        if (!input.empty()) types.push_back(inputs.at(input).type);
      }
      question.model = alone = onnx::ModelOfNode(*onnx, node, types);
      question.folder = onnx->folder().value_or("");
    } else {
      question.node = &node - graph.nodes().data();
    }
    std::vector<std::string> outputs;
    std::ranges::copy_if(node.outputs, std::back_inserter(outputs),
                         [](const std::string& name) { return !name.empty(); });
    return Ask(graph, question, inputs, outputs);
  });
}

std::string AskedRuntime::NameFor(const Graph& graph, const std::string& value) {
  const auto* const lite = dynamic_cast<const tflite::Graph*>(&graph);
  return lite == nullptr ? value : std::to_string(lite->Find(value)->index);
}

}  // namespace qualm::graph
