// SPDX-License-Identifier: Apache-2.0
// The file of a model, whose name says its format.
#ifndef QUALM_CORE_IO_MODEL_FILE_H_
#define QUALM_CORE_IO_MODEL_FILE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/io/model_graph.h"

namespace qualm::graph {

// By the end of the name: .onnx, .tflite.
std::optional<Format> FormatOfFile(std::string_view path);

struct ModelFile {
  std::unique_ptr<const std::string> bytes;  // that the graph views
  std::unique_ptr<const Graph> graph;
};
// Throws InputError "PATH: FIELD: what, expected what", of a model without nodes too.
ModelFile ReadModelFile(const std::string& path);

}  // namespace qualm::graph

#endif  // QUALM_CORE_IO_MODEL_FILE_H_
