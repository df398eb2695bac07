// SPDX-License-Identifier: Apache-2.0
#include "core/io/model_file.h"

#include <filesystem>
#include <utility>

#include "core/io/arrays.h"
#include "core/io/json_text.h"
#include "core/io/onnx_graph.h"
#include "core/io/tflite_graph.h"
#include "core/status.h"

namespace qualm::graph {

std::optional<Format> FormatOfFile(std::string_view path) {
  if (path.ends_with(".onnx")) return Format::kOnnx;
  if (path.ends_with(".tflite")) return Format::kTflite;
  return std::nullopt;
}

ModelFile ReadModelFile(const std::string& path) {
  const std::optional<Format> format = FormatOfFile(path);
  if (!format)
    throw InputError(OneLine(path) + ": name: expected one that ends in .onnx or .tflite");
  ModelFile file;
  file.bytes = std::make_unique<const std::string>(ReadBinaryFile(path, kMaxWeightFile));
  if (*format == Format::kOnnx) {
    file.graph = std::make_unique<const onnx::Graph>(
        *file.bytes, path, std::filesystem::path(path).parent_path().string());
  } else {
    file.graph = std::make_unique<const tflite::Graph>(*file.bytes, path);
  }
  if (file.graph->nodes().empty())
    file.graph->Fail("file", "has no nodes, expected a model that computes something");
  return file;
}

}  // namespace qualm::graph
