// SPDX-License-Identifier: Apache-2.0
// Subject kind "native": the kernels of kernels/, on one instruction set each. They come in like
// any stranger's library, with no privileges.
#ifndef QUALM_ADAPTERS_NATIVE_H_
#define QUALM_ADAPTERS_NATIVE_H_

#include "core/subject.h"

namespace qualm {

// "native" (the best instruction set here) and "native@TARGET", any case. Contract exact.
SubjectKind NativeSubjects();

}  // namespace qualm

#endif  // QUALM_ADAPTERS_NATIVE_H_
