// SPDX-License-Identifier: Apache-2.0
// A summation tree as a picture: products at the bottom, in which order they meet above.
#ifndef QUALM_REPORT_SUM_TREE_H_
#define QUALM_REPORT_SUM_TREE_H_

#include <string>

#include "oracles/conventions/sum_orders.h"
#include "report/svg.h"

namespace qualm::report {

// A node that is rounded once is a thick line. `title` stands above.
Svg SumTreePicture(const conventions::SumTree& tree, const std::string& title);

}  // namespace qualm::report

#endif  // QUALM_REPORT_SUM_TREE_H_
