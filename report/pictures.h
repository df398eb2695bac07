// SPDX-License-Identifier: Apache-2.0
// Pictures of answers: a sweep with its kinks, how far outputs are off, and where.
#ifndef QUALM_REPORT_PICTURES_H_
#define QUALM_REPORT_PICTURES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/headroom/headroom.h"
#include "report/svg.h"

namespace qualm::report {

// The curve of one output over input codes.
struct SweepLine {
  std::string who;
  std::vector<int32_t> y;
};
struct SweepKink {
  headroom::Kink kink;
  int32_t code = 0;  // after which the slope changes
  bool visible = false;
};
// `lines` have a value for each code. At most the first two lines are drawn in colour.
Svg SweepPicture(const std::string& title, const std::vector<int32_t>& codes,
                 const std::vector<int32_t>& exact, const std::vector<SweepLine>& lines,
                 const std::vector<SweepKink>& kinks);

// Signed distances of integer outputs from the exact ones, in output codes; the exact ones are not
// counted. Empty where there are fewer than two distances.
Svg ErrorHistogram(const Tensor& exact, const Tensor& answer);
// The same of how often each distance but 0 is there, among so many outputs.
Svg ErrorHistogram(const std::map<int64_t, int64_t>& counts, int64_t outputs);

// Rows and columns of a large integer output: where it is too small, and where too large. Empty for
// a small output or one without errors.
Svg MismatchMap(const Tensor& exact, const Tensor& answer);

}  // namespace qualm::report

#endif  // QUALM_REPORT_PICTURES_H_
