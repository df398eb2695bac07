// SPDX-License-Identifier: Apache-2.0
// A runtime of models that is asked one question at a time, whoever carries it: which model, which
// inputs, which values.
#ifndef QUALM_CORE_IO_ASKED_RUNTIME_H_
#define QUALM_CORE_IO_ASKED_RUNTIME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/model_runtime.h"

namespace qualm::graph {

class AskedRuntime : public ModelRuntime {
 public:
  Answer Run(const Graph& graph, const Values& inputs,
             const std::vector<std::string>& wanted) final;
  Answer RunNode(const Graph& graph, const Node& node, const Values& inputs) final;

 protected:
  struct Question {
    std::string_view model;       // the bytes of its file
    std::string folder;           // of data outside of the model
    std::optional<int64_t> node;  // the only one to run
  };
  // The values of `outputs` whose type a Value holds. What it throws is the answer's error.
  virtual Values Ask(const Graph& graph, const Question& asked, const Values& inputs,
                     const std::vector<std::string>& outputs) = 0;
  // What questions call a value: a tensor of TensorFlow Lite by its index.
  static std::string NameFor(const Graph& graph, const std::string& value);
};

}  // namespace qualm::graph

#endif  // QUALM_CORE_IO_ASKED_RUNTIME_H_
