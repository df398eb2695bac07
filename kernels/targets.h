// SPDX-License-Identifier: Apache-2.0
// Which instruction set runs. Normally the best one this CPU has; tests force others.
#ifndef QUALM_KERNELS_TARGETS_H_
#define QUALM_KERNELS_TARGETS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qualm::kernels {

// The targets compiled in and supported by this CPU, best first: "AVX3_DL", ..., "EMU128". Names
// are Highway's. Where a processor has an instruction for sums of products that Highway's target
// lacks, there is another target before that one: "AVX2_VNNI" (AVX-VNNI), "NEON_DOT" (sdot), and
// "_I8MM" (usdot) behind the names of SVE and NEON_BF16. Computed once: CPUID is slow in a virtual
// machine.
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
  const void* previous_;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_TARGETS_H_
