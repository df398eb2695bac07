// SPDX-License-Identifier: Apache-2.0
// Sets the control word that the proofs of the kernels need: half to even, no flush to zero, no
// traps. One version for each kind of control word; on processors without a version of their own
// only the rounding is set. The destructor restores the caller's.
#include "kernels/common/fp_environment.h"

#if defined(__x86_64__) || defined(_M_X64) || defined(__SSE2__)
#include <xmmintrin.h>
#define QUALM_FP_MXCSR 1
#elif defined(__aarch64__)
#define QUALM_FP_FPCR 1
#else
#include <cfenv>
#endif

namespace qualm::kernels {

// The empty asm statements keep the compiler from moving memory accesses, and with them the
// arithmetic on what they load, across the switch of the control word.
#if defined(QUALM_FP_MXCSR)

// All exceptions masked, round to nearest even, no flush-to-zero, no denormals-are-zero: the reset
// value. A caller that unmasked exceptions must not receive them from our speculative arithmetic.
constexpr uint32_t kMxcsrDefault = 0x1F80;

constexpr uint32_t kMxcsrFlags = 0x3F;  // sticky: what has happened, not what is wanted

// Writing the word and then computing may cost as much as a small layer: it is left alone where
// only flags differ.
ScopedFpEnvironment::ScopedFpEnvironment() : saved_(_mm_getcsr()) {
  if ((saved_ & ~uint64_t{kMxcsrFlags}) != kMxcsrDefault) _mm_setcsr(kMxcsrDefault);
  __asm__ volatile("" ::: "memory");
}

// Restores the sticky exception flags too: a kernel leaves no trace in them. Nothing is compared:
// reading the word takes longer than writing it, 5 ns on Zen 5.
ScopedFpEnvironment::~ScopedFpEnvironment() {
  __asm__ volatile("" ::: "memory");
  _mm_setcsr(static_cast<uint32_t>(saved_));
}

#elif defined(QUALM_FP_FPCR)

// FPCR = 0: round to nearest even, no flush-to-zero, no default NaN, no traps.
ScopedFpEnvironment::ScopedFpEnvironment() {
  uint64_t fpcr = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  saved_ = fpcr;
  __asm__ volatile("msr fpcr, %0" : : "r"(uint64_t{0}) : "memory");
}

ScopedFpEnvironment::~ScopedFpEnvironment() {
  __asm__ volatile("msr fpcr, %0" : : "r"(saved_) : "memory");
}

#else

// Elsewhere only the rounding mode is portable; such targets have no flush-to-zero set by default.
ScopedFpEnvironment::ScopedFpEnvironment() : saved_(static_cast<uint64_t>(std::fegetround())) {
  std::fesetround(FE_TONEAREST);
}

ScopedFpEnvironment::~ScopedFpEnvironment() { std::fesetround(static_cast<int>(saved_)); }

#endif

}  // namespace qualm::kernels
