// SPDX-License-Identifier: Apache-2.0
// What is told of the run of a model: words and JSON.
#ifndef QUALM_MODELS_TOLD_H_
#define QUALM_MODELS_TOLD_H_

#include <optional>
#include <string>
#include <vector>

#include "core/io/json_writer.h"
#include "models/run.h"
#include "triage/recorded.h"

namespace qualm::models {

// Whose arithmetic a layer has: "exact", "onednn2@avx2, onednn2@sse41 and 7 more".
std::string WhoseText(const Judged& judged);

// Why a row is not judged: "not run: ...", "ran by ..."; of a judged one "".
std::string WhyNotJudged(const Row& row);

// "of 12 layers: 11 exact, 1 WRONG: conv1." in one line.
std::string SumText(const ModelRun& run);
// What a reader should know besides: where the runtime computes otherwise when it is looked at.
std::vector<std::string> NotesOf(const ModelRun& run);
// The rows that are judged, the worst first: those that no known arithmetic gives, then by the
// error of the kernel, then by that of all. Where nothing is split, by what is not exact.
std::vector<size_t> WorstFirst(const ModelRun& run);

// The block "model" of results (core/io/result.schema.json). `inputs`: what DrawInputs told;
// `files`: the case files of each row.
JsonValue ModelJson(const ModelRun& run, const std::string& path,
                    const std::vector<std::string>& inputs,
                    const std::vector<std::vector<std::string>>& files);
JsonValue SplitJson(const std::optional<triage::ErrorSplit>& split);

}  // namespace qualm::models

#endif  // QUALM_MODELS_TOLD_H_
