// SPDX-License-Identifier: Apache-2.0
// Recorded answers as text for people: of one case, and of a whole model layer by layer.
#ifndef QUALM_TOOLS_RECORDED_TEXT_H_
#define QUALM_TOOLS_RECORDED_TEXT_H_

#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/io/json_writer.h"
#include "triage/recorded.h"

namespace qualm::tools {

// One answer to the case of a file: of a model, a layer.
struct AnsweredLayer {
  std::string file;
  std::string who;  // "PyTorch 1.13.1, engine onednn", or a subject
  Op op = Op::kLinear;
  std::string far;  // FarText
  triage::RecordedAnswer answer;
  std::optional<triage::ErrorSplit> split;  // where the outputs are codes of real values

  // The file without folders and ".case.json".
  std::string name() const;
};

// The float32 outputs that somebody's unquantized model gave for this case: of `option` where that
// is not "", else of NAME.reference.npy beside NAME.case.json where it is there.
// Throws InputError for one that is not as long as the output.
std::optional<Tensor> ReferenceOf(const std::string& case_file, const Case& c,
                                  const std::string& option);

AnsweredLayer LayerOf(const std::string& file, const std::string& who, const Case& c,
                      const Tensor& y, const Tensor* reference,
                      const triage::PrintedAnswer* digits = nullptr);

// The part of the error that is left without the unavoidable parts, in a few lines; "" if there is
// nothing to split.
std::string SplitText(const AnsweredLayer& layer);
// A line for each layer, and one sentence about all of them.
std::string LayersText(const std::vector<AnsweredLayer>& layers);
JsonValue LayersJson(const std::vector<AnsweredLayer>& layers);

// How far an answer departs from the exact one at most: "3", of f32 outputs "3 ulp".
std::string FarText(const Case& c, const triage::RecordedAnswer& answer);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_RECORDED_TEXT_H_
