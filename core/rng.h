// SPDX-License-Identifier: Apache-2.0
// Our own generator and our own mappings, so that a seed gives the same cases with any compiler,
// standard library and number of jobs. xoshiro256** (Blackman, Vigna 2018) seeded by splitmix64.
#ifndef QUALM_CORE_RNG_H_
#define QUALM_CORE_RNG_H_

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "core/status.h"

namespace qualm {

// Mixes a sequence of numbers into one seed (order matters).
constexpr uint64_t MixSeed(uint64_t seed, uint64_t value) {
  uint64_t z = seed + 0x9e3779b97f4a7c15u * (value + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

class Rng {
 public:
  explicit Rng(uint64_t seed) {
    for (uint64_t i = 0; i < 4; ++i) state_[i] = MixSeed(seed, i);
  }

  uint64_t Next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Uniform in [0, n), n > 0, without bias (rejection).
  uint64_t Below(uint64_t n) {
    QUALM_CHECK(n != 0);
    uint64_t value = Next();
    // Only values this high can be among those to reject: few are divided twice.
    if (value > UINT64_MAX - n) {
      const uint64_t limit = UINT64_MAX - UINT64_MAX % n;
      while (value >= limit) value = Next();
    }
    return (n & (n - 1)) == 0 ? value & (n - 1) : value % n;
  }

  // Uniform in [low, high], both included; the difference must fit 63 bits.
  int64_t Between(int64_t low, int64_t high) {
    QUALM_CHECK_LE(low, high);
    return low + static_cast<int64_t>(
                     Below(static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1));
  }

  // True with probability numerator / denominator.
  bool Chance(uint64_t numerator, uint64_t denominator) { return Below(denominator) < numerator; }

  template <class T>
  const T& Pick(std::span<const T> items) {
    return items[Below(items.size())];
  }
  template <class T, size_t N>
  const T& Pick(const std::array<T, N>& items) {
    return items[Below(N)];
  }

  // Uniform in [0, 1) on the 2^-53 grid.
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  std::array<uint64_t, 4> state_{};
};

}  // namespace qualm

#endif  // QUALM_CORE_RNG_H_
