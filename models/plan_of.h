// SPDX-License-Identifier: Apache-2.0
// The plan of each file format, which plan.cc chooses.
#ifndef QUALM_MODELS_PLAN_OF_H_
#define QUALM_MODELS_PLAN_OF_H_

#include <optional>
#include <vector>

#include "core/io/tflite_graph.h"
#include "models/plan.h"

namespace qualm::models {

std::vector<Step> PlanOfOnnx(const graph::Graph& graph);
std::optional<Layer> OnnxLayerOfNode(const graph::Node& node);

// One operator is one layer: nothing is between codes but operators of codes.
std::vector<Step> PlanOfTflite(const tflite::Graph& graph);
std::optional<Layer> TfliteLayerOfNode(const tflite::Graph& graph, const graph::Node& node);

}  // namespace qualm::models

#endif  // QUALM_MODELS_PLAN_OF_H_
