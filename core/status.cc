// SPDX-License-Identifier: Apache-2.0
#include "core/status.h"

#include <cstdio>
#include <cstdlib>

namespace qualm::internal {

void CheckFailed(const char* file, int line, const char* condition, const std::string& operands) {
  std::fprintf(stderr, "qualm: %s:%d: internal check failed: %s%s%s\n", file, line, condition,
               operands.empty() ? "" : ": ", operands.c_str());
  std::abort();
}

}  // namespace qualm::internal
