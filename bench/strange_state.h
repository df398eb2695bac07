// SPDX-License-Identifier: Apache-2.0
// The floating-point state of strange kernels on blocks (bench/strangers), on x86.
#ifndef QUALM_BENCH_STRANGE_STATE_H_
#define QUALM_BENCH_STRANGE_STATE_H_

#include <qualm_plugin.h>
#include <xmmintrin.h>

#include <cstdint>

namespace strange {

// Runs a kernel to the nearest, denormals kept, whatever the caller has set.
template <auto kRun>
int32_t InPlainState(const qualm_problem* p) {
  constexpr unsigned kPlain = 0x1F80;
  const unsigned set = _mm_getcsr();
  _mm_setcsr(kPlain);
  const int32_t status = kRun(p);
  _mm_setcsr(set);
  return status;
}

}  // namespace strange

#endif  // QUALM_BENCH_STRANGE_STATE_H_
