// SPDX-License-Identifier: Apache-2.0
#include "models/plan.h"

#include "models/plan_of.h"

namespace qualm::models {

std::string Layer::name() const { return node->name.empty() ? out.codes : node->name; }

std::string Layer::operators() const {
  std::string text;
  for (const graph::Node* const one : inside) text += (text.empty() ? "" : ", ") + one->op;
  return text;
}

std::vector<Step> PlanOf(const graph::Graph& graph) {
  if (graph.format() == graph::Format::kOnnx) return PlanOfOnnx(graph);
  return PlanOfTflite(static_cast<const tflite::Graph&>(graph));
}

std::optional<Layer> LayerOfNode(const graph::Graph& graph, const graph::Node& node) {
  if (graph.format() == graph::Format::kOnnx) return OnnxLayerOfNode(node);
  return TfliteLayerOfNode(static_cast<const tflite::Graph&>(graph), node);
}

}  // namespace qualm::models
