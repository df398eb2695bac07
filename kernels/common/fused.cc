// SPDX-License-Identifier: Apache-2.0
// Asks the code of this thread's target whether it has a fused multiply-add. No result depends on
// it, but a proof over intervals (intervals/intervals.h) must follow the arithmetic that runs.
#include "kernels/common/fused.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/fused.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {

bool Fuses() { return HWY_NATIVE_FMA != 0; }

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {
namespace internal {
HWY_EXPORT(Fuses);
}  // namespace internal

bool FusesMultiplyAdd() {
  using namespace internal;
  return QUALM_DISPATCH(Fuses)();
}

}  // namespace qualm::kernels
#endif  // HWY_ONCE
