// SPDX-License-Identifier: Apache-2.0
// The permitted variations: every way in which a named convention may differ from the exact meaning
// (docs/backends.md). A difference that none of a convention's own variations explains is a
// failure.
#ifndef QUALM_ORACLES_CONVENTIONS_VARIATIONS_H_
#define QUALM_ORACLES_CONVENTIONS_VARIATIONS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "oracles/conventions/convention.h"

namespace qualm {

struct Variation {
  std::string_view id;     // "V6"
  std::string_view name;   // "saturating pairs"
  std::string_view cause;  // what the code does instead
  std::string_view bound;  // how far the value before rounding moves; "none" beyond a condition
};

// In numerical order.
std::span<const Variation> AllVariations();
// nullptr if there is none of that id.
const Variation* FindVariation(std::string_view id);

// By how much the variation may move the value of each output before it is rounded, in output codes
// (real units of f32 outputs): 0 where it does not apply, infinity where nothing bounds it.
std::vector<double> Reach(std::string_view id, const Case& c);

// The outputs that variations permit, as an interval, both ends included: output
// codes, or the float32 value. All that the output type holds where nothing bounds a variation that
// applies: a NaN on the way passes every clamp.
struct Permitted {
  double low = 0;
  double high = 0;
};
// One interval for each output of a case, where these variations (ids) may move it.
std::vector<Permitted> PermittedOutputs(std::span<const std::string> variations, const Case& c);

}  // namespace qualm

#endif  // QUALM_ORACLES_CONVENTIONS_VARIATIONS_H_
