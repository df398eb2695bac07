// SPDX-License-Identifier: Apache-2.0
#include "adapters/registry.h"

#include <cstdlib>
#include <utility>

#include "adapters/host/pipe.h"
#include "adapters/host/plugin_subjects.h"
#include "adapters/kinds.h"
#include "adapters/libraries/libraries.h"
#include "core/subject.h"

namespace qualm {

void RegisterAllSubjects() {
  static const bool once = [] {
    SubjectRegistry& registry = SubjectRegistry::Get();
    registry.Add(NativeSubjects());
    registry.Add(ConventionSubjects());
    RegisterLibraries();
    RegisterPluginSubjects();
    RegisterPipeSubjects();
    RegisterModelRuntime();
    registry.Add(FaultySubjects());
    if (const char* const undeclared = std::getenv("QUALM_UNDECLARED");
        undeclared == nullptr || *undeclared == 0) {
      for (ExpectedDivergence& row : DeclaredDivergences())
        registry.AddExpectedDivergence(std::move(row));
    }
    return true;
  }();
  (void)once;
}

}  // namespace qualm
