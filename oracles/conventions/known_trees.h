// SPDX-License-Identifier: Apache-2.0
// Whose summation trees are known: what `qualm identify --tree` found of linears of blocks.
#ifndef QUALM_ORACLES_CONVENTIONS_KNOWN_TREES_H_
#define QUALM_ORACLES_CONVENTIONS_KNOWN_TREES_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"

namespace qualm::conventions {

struct KnownTree {
  std::string_view subject;  // that adds so, and others with it: "ggml@haswell"
  std::string_view as_well;  // "ggml@zen4", or "". q5_0 adds as q8_0, mxfp4 as iq4_nl.
  std::string_view tree;     // what ParseTreeContract takes
};
std::span<const KnownTree> KnownTrees();

// Those that give all of these outputs.
std::vector<const KnownTree*> TreesThatGive(const Case& c, const Tensor& y);
// "ggml@haswell, ggml@zen4 add: tree:{...}; ...", "" of none.
std::string TextOf(const std::vector<const KnownTree*>& trees);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_KNOWN_TREES_H_
