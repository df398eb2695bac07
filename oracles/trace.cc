// SPDX-License-Identifier: Apache-2.0
#include "oracles/trace.h"

namespace qualm {

std::string_view Name(Stage stage) {
  switch (stage) {
    case Stage::kAccumulate: return "accumulate";
    case Stage::kOffset: return "offset";
    case Stage::kBias: return "bias";
    case Stage::kScale: return "scale";
    case Stage::kRound: return "round";
    case Stage::kZeroPoint: return "zero_point";
    case Stage::kClamp: return "clamp";
  }
  return "";
}

}  // namespace qualm
