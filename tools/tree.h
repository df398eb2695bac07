// SPDX-License-Identifier: Apache-2.0
// qualm identify --tree: in which order a program, or a linear of blocks, adds in floating point.
#ifndef QUALM_TOOLS_TREE_H_
#define QUALM_TOOLS_TREE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/command.h"

namespace qualm::tools {

struct TreeOptions {
  std::string subject;
  std::vector<std::string> forms;  // of a subject that answers linears; none: those that it takes
  int64_t products = 0;            // 0: 64, or eight blocks
  int64_t cases = 10'000;
  uint64_t seed = 1;
  std::string svg;  // a file; "": none
  std::string out;  // of the tree as a contract; "": none
};

// Returns the exit status: 1 if the answers fit no tree, or no known steps along it.
int RunTree(const CommonOptions& options, const TreeOptions& tree);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_TREE_H_
