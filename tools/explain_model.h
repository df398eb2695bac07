// SPDX-License-Identifier: Apache-2.0
// qualm explain model.onnx: a model, layer by layer.
#ifndef QUALM_TOOLS_EXPLAIN_MODEL_H_
#define QUALM_TOOLS_EXPLAIN_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/command.h"

namespace qualm::tools {

// The options that explain has for a model alone.
struct ModelOptions {
  std::vector<std::string> inputs;    // NAME=x.npy
  std::vector<std::string> observed;  // NAME=y.npy
  uint64_t seed = 1;
  bool no_runtime = false;

  bool any() const { return !inputs.empty() || !observed.empty() || no_runtime; }
};
void AddModelOptions(Verb& verb, ModelOptions& options);

// `path` is a .onnx file. Exit status as of explain.
int RunExplainOnnx(const CommonOptions& common, const ModelOptions& options,
                   const std::string& path);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_EXPLAIN_MODEL_H_
