// SPDX-License-Identifier: Apache-2.0
// Whether this thread's target has a fused multiply-add: proofs over intervals ask.
#ifndef QUALM_KERNELS_COMMON_FUSED_H_
#define QUALM_KERNELS_COMMON_FUSED_H_

namespace qualm::kernels {

// Whether the kernels round a product and the sum it goes into once, on this thread's target.
bool FusesMultiplyAdd();

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_COMMON_FUSED_H_
