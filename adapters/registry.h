// SPDX-License-Identifier: Apache-2.0
// The one header of adapters that other folders may include, but for python/ and bench/.
#ifndef QUALM_ADAPTERS_REGISTRY_H_
#define QUALM_ADAPTERS_REGISTRY_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/op.h"
#include "core/verdict.h"

namespace qualm {

// Fills SubjectRegistry (core/subject.h) with every kind this build has, and the declared
// divergences. Called once from main; nothing registers itself, because the linker drops
// self-registering objects from archives.
void RegisterAllSubjects();

// The Python whose PyTorch the subjects torch@… ask: that of the environment variable QUALM_PYTHON,
// else of the virtual environment that scripts/install-wheel makes, else the system's.
std::string TorchPython();

// A planted fault: the canary that every feeder's suite must catch.
struct FaultInfo {
  std::string_view id;           // subject "faulty:ID"
  std::string_view modelled_on;  // the upstream bug: "PyTorch issue 44939"
  std::string_view description;  // one line: what it does wrong
  std::vector<Op> ops;           // where it was planted; other ops are skipped
  // The right diagnosis: the kind, and the cause (triage/causes.h), which is the fault itself; ""
  // for a fault of memory, order, state or environment.
  FindingKind kind = FindingKind::kUnknown;
  std::string_view cause = {};
};

// In the order of `qualm list faults`.
std::span<const FaultInfo> ListFaults();

}  // namespace qualm

#endif  // QUALM_ADAPTERS_REGISTRY_H_
