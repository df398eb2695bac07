// SPDX-License-Identifier: Apache-2.0
// The page of a model: what of each layer's error is quantization, what the kernel, and whose
// arithmetic it is.
#ifndef QUALM_REPORT_MODEL_PAGE_H_
#define QUALM_REPORT_MODEL_PAGE_H_

#include <string>
#include <vector>

#include "models/run.h"
#include "report/document.h"

namespace qualm::report {

// Two bars for each layer with a split error, in the order of the graph: root mean square, with a
// line to the largest. Empty where there is none.
Svg LayerBars(const models::ModelRun& run);

// A whole page of HTML. `file` is the model; `notes` what was drawn for its inputs and the like.
std::string ModelPage(const models::ModelRun& run, const std::string& file,
                      const std::vector<std::string>& notes);

}  // namespace qualm::report

#endif  // QUALM_REPORT_MODEL_PAGE_H_
