// SPDX-License-Identifier: Apache-2.0
// Subject kind "faulty": implementations with one known fault each. They are the canaries: a suite
// that does not catch them tests nothing.
#ifndef QUALM_ADAPTERS_FAULTY_FAULTS_H_
#define QUALM_ADAPTERS_FAULTY_FAULTS_H_

#include "core/subject.h"

namespace qualm {

// "faulty:ID" for every ID of ListFaults() (adapters/registry.h), and "faulty:none": the same
// implementation without a fault, on which no property may fail.
SubjectKind FaultySubjects();

}  // namespace qualm

#endif  // QUALM_ADAPTERS_FAULTY_FAULTS_H_
