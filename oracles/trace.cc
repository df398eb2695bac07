// SPDX-License-Identifier: Apache-2.0
#include "oracles/trace.h"

#include <array>

namespace qualm {

std::string_view Name(Stage stage) {
  constexpr std::array<std::string_view, 7> kNames{"accumulate", "offset",     "bias", "scale",
                                                   "round",      "zero_point", "clamp"};
  return kNames[static_cast<size_t>(stage)];
}

}  // namespace qualm
