// SPDX-License-Identifier: Apache-2.0
// Which instruction set runs. Normally the best one this CPU has; tests force others.
#ifndef QUALM_KERNELS_TARGETS_H_
#define QUALM_KERNELS_TARGETS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qualm::kernels {

// Highway names of the targets compiled in and supported by this CPU, best first:
// "AVX3_DL", ..., "EMU128". Cached: CPUID leaves a virtual machine.
const std::vector<std::string>& SupportedTargets();

// Forces every kernel call of this thread to the named target for its lifetime (for tests).
// Weights must be packed and run under the same target.
class ScopedTarget {
 public:
  explicit ScopedTarget(std::string_view name);  // "" = best; aborts if not supported
  ~ScopedTarget();
  ScopedTarget(const ScopedTarget&) = delete;
  ScopedTarget& operator=(const ScopedTarget&) = delete;

 private:
  int64_t previous_;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_TARGETS_H_
