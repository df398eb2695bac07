// SPDX-License-Identifier: Apache-2.0
// The start of every target that runs subjects.
#include "adapters/registry.h"
#include "fuzz/check_all.h"

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  qualm::RegisterAllSubjects();
  qualm::fuzz::OpenChecker();
  return 0;
}
