// SPDX-License-Identifier: Apache-2.0
// Somebody's software that runs whole models, and the values that go in and come out.
#ifndef QUALM_CORE_IO_MODEL_RUNTIME_H_
#define QUALM_CORE_IO_MODEL_RUNTIME_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/model_graph.h"

namespace qualm::graph {

class ModelRuntime {
 public:
  virtual ~ModelRuntime() = default;
  virtual std::string name() const = 0;  // "ONNX Runtime 1.32.0"

  struct Answer {
    // Of the values asked for those whose type a Value holds.
    Values values;
    std::string error;  // one line; "" where it ran
  };
  // These values of the graph, outputs of it or between nodes. Never throws for what the runtime
  // does.
  virtual Answer Run(const Graph& graph, const Values& inputs,
                     const std::vector<std::string>& wanted) = 0;
  // The outputs of one node of the graph, run alone.
  virtual Answer RunNode(const Graph& graph, const Node& node, const Values& inputs) = 0;
};

// Filled by RegisterAllSubjects() (adapters/registry.h). `name`: which of the runtimes of the
// format, "" for the one that users get.
using MakeRuntime = std::function<std::unique_ptr<ModelRuntime>(Format, const std::string& name)>;
void SetModelRuntime(MakeRuntime make);
// Throws Unavailable with the reason where there is none, InputError for a name that is none.
std::unique_ptr<ModelRuntime> MakeModelRuntime(Format format, const std::string& name);

}  // namespace qualm::graph

#endif  // QUALM_CORE_IO_MODEL_RUNTIME_H_
