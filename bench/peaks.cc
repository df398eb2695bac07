// SPDX-License-Identifier: Apache-2.0
// The most that the core can do, measured beside every row: loops of one instruction on registers,
// and copies. x86 only; elsewhere there are only the copies.
#include <cstring>

#include "bench/bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace qualm::bench {
namespace {

#if defined(__x86_64__)

constexpr int64_t kSteps = 2000;  // of 12 chains each: more than latency times ports

// The empty asm keeps sums in registers and the compiler from folding the loop.
#define QUALM_KEEP(v) __asm__ volatile("" : "+v"(v))

__attribute__((target("avx512f,avx512vnni"))) void Vpdpbusd512() {
  __m512i a = _mm512_set1_epi8(1), b = a, sums[12] = {};
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (__m512i& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, a, b);
      QUALM_KEEP(sum);
    }
  }
}

__attribute__((target("avx2"))) void Vpmaddubsw256() {
  __m256i a = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1), sums[12] = {};
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) {
      QUALM_KEEP(a);  // or the product leaves the loop
      __m256i pairs = _mm256_maddubs_epi16(a, a);
      QUALM_KEEP(pairs);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
      QUALM_KEEP(sum);
    }
  }
}

#undef QUALM_KEEP

#endif

void JoinCopy(int64_t bytes) {
  Join("peak/copy", std::to_string(bytes), static_cast<double>(bytes), [bytes] {
    return Run([bytes, from = Codes(bytes, 1), to = Zeros<uint8_t>(bytes)] {
      std::memcpy(to->data(), from->data(), static_cast<size_t>(bytes));
      __asm__ volatile("" ::: "memory");
    });
  });
}

}  // namespace

void JoinPeaks() {
#if defined(__x86_64__)
  // Multiply-adds of one vector: a byte each.
  if (__builtin_cpu_supports("avx512vnni")) {
    Join("peak/multiply", "vpdpbusd", 2.0 * 64 * 12 * kSteps, [] { return Run(Vpdpbusd512); });
  }
  if (__builtin_cpu_supports("avx2")) {
    Join("peak/multiply", "vpmaddubsw", 2.0 * 32 * 12 * kSteps, [] { return Run(Vpmaddubsw256); });
  }
#endif
  for (const int64_t bytes : {int64_t{1} << 12, int64_t{1} << 18, int64_t{1} << 26})
    JoinCopy(bytes);
}

}  // namespace qualm::bench
