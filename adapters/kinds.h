// SPDX-License-Identifier: Apache-2.0
// The kinds of subjects that adapters/ makes itself, and the departures that it declares.
// registry.cc registers all of them.
#ifndef QUALM_ADAPTERS_KINDS_H_
#define QUALM_ADAPTERS_KINDS_H_

#include <vector>

#include "core/contract.h"
#include "core/subject.h"

namespace qualm {

// native.cc: "native" (the best instruction set here) and "native@TARGET", any case: the kernels of
// kernels/. They come in like any stranger's library, with no privileges. Contract exact.
SubjectKind NativeSubjects();

// conventions.cc: "model:NAME", a named convention run as if it were a library; "model:*" and
// "model:PREFIX*" stand for all that match. The contract is the convention itself.
SubjectKind ConventionSubjects();
// The cases in which OpenVINO leaves out a product with 1 (oracles/conventions/openvino.h).
bool OpenvinoMultipliesByOne(const Case& c);

// faulty/faults.cc: "faulty:ID" for every ID of ListFaults() (registry.h), implementations with one
// known fault each, and "faulty:none": the same implementation without a fault (the exact oracle),
// on which no property may fail. They are the canaries: a suite that does not catch them tests
// nothing.
SubjectKind FaultySubjects();

// contracts.cc: the departures from the exact meaning that are known, understood and documented
// upstream. One row per (subject, op, property, kind, library, shape, where).
std::vector<ExpectedDivergence> DeclaredDivergences();

}  // namespace qualm

#endif  // QUALM_ADAPTERS_KINDS_H_
