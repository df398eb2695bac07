// SPDX-License-Identifier: Apache-2.0
// dynamic_linear of a library: it chooses a scale and zero point for x, quantizes x, and ends in a
// linear with a float32 output. And choose_qparams, where it ends in the codes of x.
#ifndef QUALM_ORACLES_CONVENTIONS_DYNAMIC_LINEAR_H_
#define QUALM_ORACLES_CONVENTIONS_DYNAMIC_LINEAR_H_

#include <functional>
#include <string>
#include <vector>

#include "core/case.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/dynamic_linear.h"

namespace qualm::conventions {

struct DynamicLinear {
  QParamsRule rule = QParamsRule::kAten;
  // Why a case of that rule is refused, where all rows share one choice and no x is NaN.
  std::function<std::string(const Case&)> cannot_run;
  // From the smallest and the largest x, widened to hold 0.
  std::function<exact::AtenChoice(const Case&, exact::ObservedRange)> choose;
  // The two stages that follow a choice: a convention of quantize, and one of linear.
  std::function<Convention(const exact::AtenChoice&)> quantize, linear;
  std::vector<std::string> satisfies, variations;
};

// A convention without a name.
Convention MakeDynamicLinear(DynamicLinear library);

// The same, of one that defines rows with scales of their own as so many cases of one row.
Convention RowByRow(Convention row);

// A choose_qparams with the codes that a convention of quantize gives for the scale and zero point
// that `choosing` chooses.
Convention WithCodesOf(Convention choosing, Convention quantize);

// The largest and smallest x, widened to hold 0. Infinities count.
exact::ObservedRange EndsOfX(const Case& c);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_DYNAMIC_LINEAR_H_
