// SPDX-License-Identifier: Apache-2.0
// Calls the version of a kernel compiled for this thread's instruction set. Internal to kernels/.
//
// Highway's own HWY_DYNAMIC_DISPATCH has one global chosen target: a test that forces a target on
// one thread would change it for all. Here the choice is thread-local (see ScopedTarget), and the
// default is computed once per process.
//
//   HWY_EXPORT(Func);                    // in #if HWY_ONCE
//   ... QUALM_DISPATCH(Func)(arguments)
#ifndef QUALM_KERNELS_COMMON_DISPATCH_H_
#define QUALM_KERNELS_COMMON_DISPATCH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hwy/highway.h"
#include "kernels/common/quad_sum.h"

namespace qualm::kernels::internal {

// Index into the tables made by HWY_EXPORT. All files of this library are compiled with the same
// HWY_TARGETS, so one index serves all tables. One thread-local load when nothing is forced.
size_t TargetIndex();

// The position of the thread's target in SupportedTargets(). Several targets may have one index.
int64_t TargetId();

QuadSum TargetQuadSum();

// The targets of this build, whether or not this CPU has them.
std::vector<std::string> CompiledTargets();

}  // namespace qualm::kernels::internal

#define QUALM_DISPATCH(FUNC) \
  (*(HWY_DISPATCH_TABLE(FUNC)[::qualm::kernels::internal::TargetIndex()]))

#endif  // QUALM_KERNELS_COMMON_DISPATCH_H_
