// SPDX-License-Identifier: Apache-2.0
// Pictures of answers: a sweep with its kinks, how far outputs are off, and where.
#ifndef QUALM_REPORT_PICTURES_H_
#define QUALM_REPORT_PICTURES_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
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
// `lines` have a value for each code. Five lines have colours of their own.
Svg SweepPicture(const std::string& title, const std::vector<int32_t>& codes,
                 const std::vector<int32_t>& exact, const std::vector<SweepLine>& lines,
                 const std::vector<SweepKink>& kinks);

// For each signed distance from the exact output, the number of outputs that have it. Distances are
// output codes or, of floats, representable values. Exact outputs and NaN are not counted. Empty
// for tensors of other shapes.
std::map<int64_t, int64_t> ErrorsOf(const Tensor& exact, const Tensor& answer);
// A histogram of the errors of `outputs` outputs. Empty where there are fewer than two distances.
Svg ErrorHistogram(const std::map<int64_t, int64_t>& errors, int64_t outputs,
                   std::string_view unit = "output codes");
Svg ErrorHistogram(const Tensor& exact, const Tensor& answer);

// Rows and columns of a large integer output: where it is too small, and where too large. Empty for
// a small output or one without errors.
Svg MismatchMap(const Tensor& exact, const Tensor& answer);

}  // namespace qualm::report

#endif  // QUALM_REPORT_PICTURES_H_
