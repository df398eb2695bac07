// SPDX-License-Identifier: Apache-2.0
// Operations on the command line, spelled the same for every verb.
#ifndef QUALM_TOOLS_OPS_H_
#define QUALM_TOOLS_OPS_H_

#include <string>
#include <vector>

#include "core/op.h"
#include "tools/verb.h"

namespace qualm::tools {

// The words of the user: "linear", "linear,conv2d".
struct OpWords {
  std::vector<std::string> option, positional;
  bool empty() const { return option.empty() && positional.empty(); }
};

// --op OP,...: repeatable.
VerbOption AddOpOption(Verb& verb, OpWords& words, const std::string& about);
// The same, and operations without an option: `qualm fuzz linear conv2d`.
void AddOps(Verb& verb, OpWords& words, const std::string& about);

// Each operation once, in the order of the words. Throws InputError, with the nearest name.
std::vector<Op> OpsOf(const OpWords& words);
// One operation; `where` stands before the message of the InputError.
Op OpNamed(const std::string& name, const std::string& where);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_OPS_H_
