// SPDX-License-Identifier: Apache-2.0
// Curves as SVG, drawn by gnuplot.
#ifndef QUALM_TOOLS_PLOT_H_
#define QUALM_TOOLS_PLOT_H_

#include <string>
#include <vector>

#include "core/case.h"
#include "properties/sweep.h"

namespace qualm::tools {

// One panel per output: the exact line, each subject's codes, each predicted kink labelled with the
// k-pair that causes it. Subjects whose curves coincide share one legend entry.
// Throws Unavailable if gnuplot is not installed or fails.
std::string SweepSvg(const Case& base, const std::vector<sweep::Result>& results);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_PLOT_H_
