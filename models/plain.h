// SPDX-License-Identifier: Apache-2.0
// Nodes between layers: those that move elements, and float operators of one rounding, which every
// runtime computes alike.
#ifndef QUALM_MODELS_PLAIN_H_
#define QUALM_MODELS_PLAIN_H_

#include <vector>

#include "core/io/model_graph.h"
#include "core/io/model_runtime.h"
#include "models/cases.h"

namespace qualm::models {

// The outputs of the node, in its order. Throws NotRun for a node that is none of these.
std::vector<graph::Value> RunPlain(const graph::Graph& graph, const graph::Node& node,
                                   const Lookup& of);

}  // namespace qualm::models

#endif  // QUALM_MODELS_PLAIN_H_
