// SPDX-License-Identifier: Apache-2.0
// The options of certify and repair that both have: layers, scheme of sums, activations.
#ifndef QUALM_TOOLS_LAYER_OPTIONS_H_
#define QUALM_TOOLS_LAYER_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/io/json_writer.h"
#include "core/io/layers.h"
#include "proofs/certify.h"
#include "proofs/scheme.h"
#include "tools/command.h"

namespace qualm::tools {

struct LayerOptions : CommonOptions {
  std::vector<std::string> paths;
  std::string x_range, x_type, pairing, quantize, only;
  std::vector<std::string> schemes;
  LayerReading reading;
};
void AddLayerOptions(Verb& verb, LayerOptions& options);

// A layer that is judged, with the name that people see: the file and, where it has several, the
// name in it.
struct Layer {
  std::string file;
  std::string name;
  Case layer;
  proofs::Codes x;
  std::vector<proofs::Scheme> schemes;

  std::string title() const { return name.empty() ? file : file + ": " + name; }
  // The title as part of a file name.
  std::string stem() const;
};
// The layers of the files that the options name, in order.
std::vector<Layer> ReadLayers(const LayerOptions& options);

// "pairs (fbgemm@avx2, onnxruntime@avx2)".
std::string SchemeText(const proofs::Scheme& scheme);
// "x in 0..255".
std::string RangeText(proofs::Codes x);
JsonValue RangeJson(proofs::Codes x);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_LAYER_OPTIONS_H_
