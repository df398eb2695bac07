// SPDX-License-Identifier: Apache-2.0
// Every public entry point runs under round-to-nearest-even without flush-to-zero, whatever the
// caller has set, and restores the caller's control word.
#ifndef QUALM_KERNELS_COMMON_FP_ENVIRONMENT_H_
#define QUALM_KERNELS_COMMON_FP_ENVIRONMENT_H_

#include <cstdint>

namespace qualm::kernels {

class ScopedFpEnvironment {
 public:
  ScopedFpEnvironment();
  ~ScopedFpEnvironment();
  ScopedFpEnvironment(const ScopedFpEnvironment&) = delete;
  ScopedFpEnvironment& operator=(const ScopedFpEnvironment&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_COMMON_FP_ENVIRONMENT_H_
