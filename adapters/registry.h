// SPDX-License-Identifier: Apache-2.0
// The one adapters header that other folders may include.
#ifndef QUALM_ADAPTERS_REGISTRY_H_
#define QUALM_ADAPTERS_REGISTRY_H_

namespace qualm {

// Fills SubjectRegistry (core/subject.h) with every kind this build has, and the declared
// divergences. Called once from main; nothing registers itself, because the linker drops
// self-registering objects from archives.
void RegisterAllSubjects();

}  // namespace qualm

#endif  // QUALM_ADAPTERS_REGISTRY_H_
