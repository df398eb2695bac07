// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a .npy, a .safetensors, an .onnx and a .tflite file: an InputError on one
// line, or layers that are valid, and a graph all of whose values can be read or are refused. Traps
// at anything else.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/arrays.h"
#include "core/io/layers.h"
#include "core/io/npy.h"
#include "core/io/onnx_graph.h"
#include "core/io/tflite_graph.h"
#include "core/status.h"
#include "fuzz/reads_or_refuses.h"

using namespace qualm;
using fuzz::ReadsOrRefuses;

namespace {

void Valid(const Case& layer) {
  QUALM_CHECK(HasSums(layer));
  if (layer.w.dtype() != DType::kF32) QUALM_CHECK_EQ(Validate(layer), "");
}

void ReadConstants(const graph::Graph& graph) {
  for (const auto& [name, stored] : graph.constants()) {
    ReadsOrRefuses([&] { graph.Read(name, stored); }, "fuzz: ");
    ReadsOrRefuses([&] { graph.ReadIntegers(name, stored); }, "fuzz: ");
  }
}

// What a node reads and makes is known, with its scale.
void ReadTflite(std::string_view bytes) {
  const tflite::Graph graph(bytes, "fuzz");
  ReadConstants(graph);
  for (const graph::Node& node : graph.nodes()) {
    for (const auto* const names : {&node.inputs, &node.outputs}) {
      for (const std::string& name : *names) {
        if (name.empty()) continue;
        const tflite::Known* const known = graph.Find(name);
        QUALM_CHECK(known != nullptr);
        QUALM_CHECK(known->scale.empty() || graph.FindConstant(known->scale) != nullptr);
      }
    }
  }
}

// Every value of a graph is read or refused, and the graph stays what it is when values are shown.
void ReadGraph(std::string_view bytes) {
  const onnx::Graph graph(bytes, "fuzz");
  std::vector<std::string> values;
  ReadConstants(graph);
  for (const graph::Node& node : graph.nodes()) {
    if (graph.MakerOf(node.Output(0)) != nullptr) values.push_back(node.Output(0));
    const std::vector<int64_t> types(node.inputs.size(), graph::kFloat);
    const std::string alone = onnx::ModelOfNode(graph, node, types);
    const onnx::Graph again(alone, "again");
    QUALM_CHECK_EQ(again.nodes().size(), size_t{1});
    QUALM_CHECK(again.nodes()[0].outputs == node.outputs);
  }
  const std::string shown = onnx::WithOutputs(bytes, values);
  const onnx::Graph more(shown, "more");
  QUALM_CHECK_EQ(more.nodes().size(), graph.nodes().size());
  QUALM_CHECK_EQ(more.outputs().size(), graph.outputs().size() + values.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ReadsOrRefuses(
      [&] {
        const Tensor array = ParseNpy(bytes, "fuzz");
        QUALM_CHECK(ParseNpy(NpyOf(array), "fuzz") == array);
        Valid(LayerOf(array, {.groups = 2}, "fuzz"));
      },
      "fuzz: ");
  ReadsOrRefuses(
      [&] {
        for (const NamedArray& array : ParseSafetensors(bytes, "fuzz")) {
          Valid(LayerOf(array.values, {}, "fuzz"));
        }
      },
      "fuzz: ");
  ReadsOrRefuses(
      [&] {
        for (const NamedLayer& layer : ParseOnnx(bytes, "fuzz")) Valid(layer.layer);
      },
      "fuzz: ");
  ReadsOrRefuses([&] { ReadGraph(bytes); }, "fuzz: ");
  ReadsOrRefuses([&] { ReadTflite(bytes); }, "fuzz: ");
  return 0;
}
