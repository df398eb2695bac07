// SPDX-License-Identifier: Apache-2.0
// qualm explain MODEL: an ONNX or TensorFlow Lite model, layer by layer.
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
  std::string runtime;  // which one; "" for that of the format
  std::string page;     // a file of HTML; "" for none

  bool any() const {
    return !inputs.empty() || !observed.empty() || no_runtime || !runtime.empty() || !page.empty();
  }
};
void AddModelOptions(Verb& verb, ModelOptions& options);

// `path` is a .onnx or .tflite file. Exit status as of explain.
int RunExplainGraph(const CommonOptions& common, const ModelOptions& options,
                    const std::string& path);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_EXPLAIN_MODEL_H_
