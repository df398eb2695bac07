// SPDX-License-Identifier: Apache-2.0
// For the tests of kernels/: a loop over all targets, buffers that end at a guard page, and exact
// references. The references find each rounding by bisection with comparisons of big integers, a
// method the kernels do not use.
#ifndef QUALM_KERNELS_COMMON_TEST_SUPPORT_H_
#define QUALM_KERNELS_COMMON_TEST_SUPPORT_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/targets.h"
#include "kernels/types.h"

namespace qualm::kernels::test {

// Runs `body(target name)` under each instruction set of this machine.
template <class Body>
void ForEachTarget(const Body& body) {
  for (const std::string& name : SupportedTargets()) {
    SCOPED_TRACE(name);
    const ScopedTarget target(name);
    body(name);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Every task on a new thread, which rounds in a direction of its own.
class TestPool final : public ThreadPool {
 public:
  explicit TestPool(int64_t threads) : threads_(threads) {}
  int64_t Threads() const override { return threads_; }
  void Run(int64_t tasks, void (*fn)(void* arg, int64_t task), void* arg) override {
    std::vector<std::thread> threads;
    for (int64_t task = 0; task < tasks; ++task) {
      threads.emplace_back([=] {
        std::fesetround(task % 2 == 0 ? FE_UPWARD : FE_DOWNWARD);
        fn(arg, task);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  int64_t threads_;
};

// `size` elements directly before (or, at_start, directly after) an inaccessible page.
template <class T>
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t size, bool at_start = false) : size_(size) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inner = (size * sizeof(T) + page - 1) / page * page;
    bytes_ = inner + 2 * page;
    base_ =
        static_cast<uint8_t*>(mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) std::abort();
    if (inner != 0 && mprotect(base_ + page, inner, PROT_READ | PROT_WRITE) != 0) std::abort();
    uint8_t* first = base_ + page + (at_start ? 0 : inner - size * sizeof(T));
    data_ = reinterpret_cast<T*>(first);
  }
  ~GuardedBuffer() { munmap(base_, bytes_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  T* data() { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  void Assign(std::span<const T> values) {
    ASSERT_EQ(values.size(), size_);
    std::copy(values.begin(), values.end(), data_);
  }

 private:
  uint8_t* base_;
  T* data_;
  size_t size_;
  size_t bytes_;
};

// Small deterministic generator (SplitMix64), the same with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int64_t Between(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(Next() % (static_cast<uint64_t>(hi - lo) + 1));
  }
  // Any finite float32 > 0 with an exponent in [lo, hi].
  float Scale(int lo, int hi) {
    const float mantissa = 1.0f + static_cast<float>(Next() & 0x7FFFFF) * 0x1p-23f;
    return std::ldexp(mantissa, static_cast<int>(Between(lo, hi)));
  }

 private:
  uint64_t state_;
};

// One term of an exact sum: mantissa * 2^exponent.
struct Term {
  __int128 mantissa;
  int exponent;
};

// A float32 as an integer and a power of two, by ldexp rather than by its bits.
inline Term Exactly(float value) {
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(value), &exponent);
  return {static_cast<__int128>(std::ldexp(fraction, 24)), exponent - 24};
}
inline Term operator*(Term a, Term b) { return {a.mantissa * b.mantissa, a.exponent + b.exponent}; }

// Sign of the sum of the terms: all positive ones in one natural number, all negative ones in
// another, both over the smallest power of two.
inline int SignOfSum(const std::vector<Term>& terms) {
  int lowest = INT32_MAX;
  for (const Term& t : terms) lowest = std::min(lowest, t.exponent);
  std::vector<uint32_t> sums[2];
  for (const Term& t : terms) {
    std::vector<uint32_t>& sum = sums[t.mantissa < 0];
    unsigned __int128 m = static_cast<unsigned __int128>(t.mantissa);
    if (t.mantissa < 0) m = -m;
    const size_t shift = static_cast<size_t>(t.exponent - lowest);
    size_t digit = shift / 32;
    uint64_t carry = 0;
    uint32_t previous = 0;
    for (int i = 0; i < 5 || carry != 0; ++i, ++digit) {
      if (digit >= sum.size()) sum.resize(digit + 1);
      const uint32_t part = i < 4 ? static_cast<uint32_t>(m >> (32 * i)) : 0;
      const uint64_t pair = (uint64_t{part} << 32 | previous) << (shift % 32);
      carry += sum[digit] + (pair >> 32);
      previous = part;
      sum[digit] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
  }
  const size_t size = std::max(sums[0].size(), sums[1].size());
  sums[0].resize(size);
  sums[1].resize(size);
  for (size_t i = size; i-- > 0;) {
    if (sums[0][i] != sums[1][i]) return sums[0][i] > sums[1][i] ? 1 : -1;
  }
  return 0;
}

// clamp(RNE(sum of `numerator` / denominator) + zero_point) to [lo, hi]; denominator > 0.
inline int32_t ReferenceCode(const std::vector<Term>& numerator, Term denominator,
                             int32_t zero_point, int32_t lo, int32_t hi) {
  int64_t low = int64_t{lo} - zero_point;
  int64_t high = int64_t{hi} - zero_point;
  while (low < high) {  // largest n with value >= n - 1/2, ties to even
    const int64_t n = low + (high - low + 1) / 2;
    std::vector<Term> difference = numerator;
    difference.push_back(Term{1 - 2 * n, -1} * denominator);
    const int sign = SignOfSum(difference);
    if (sign > 0 || (sign == 0 && n % 2 == 0)) {
      low = n;
    } else {
      high = n - 1;
    }
  }
  return static_cast<int32_t>(low + zero_point);
}

// The sum of the terms, rounded once to float32, half to even; an exact zero is +0.
inline float ReferenceFloat(const std::vector<Term>& terms) {
  const int sign = SignOfSum(terms);
  if (sign == 0) return 0.0f;
  // Bisects the bits, which are ordered like floats >= 0: |sum| rounds to the largest float whose
  // midpoint with the float below it is not above |sum|. Infinity stands for 2^128.
  uint32_t low = 0;
  uint32_t high = 0x7F800000;
  while (low < high) {
    const uint32_t middle =
        low + (high - low + 1) / 2;  // is |sum| >= midpoint(middle - 1, middle)?
    const auto term = [](uint32_t bits) {
      return bits == 0x7F800000 ? Term{1, 128} : Exactly(std::bit_cast<float>(bits));
    };
    std::vector<Term> difference = terms;
    if (sign < 0) {
      for (Term& t : difference) t.mantissa = -t.mantissa;
    }
    for (const uint32_t neighbour : {middle - 1, middle}) {
      Term half = term(neighbour);
      difference.push_back({-half.mantissa, half.exponent - 1});
    }
    const int side = SignOfSum(difference);
    if (side > 0 || (side == 0 && middle % 2 == 0)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const float magnitude = std::bit_cast<float>(low);
  return sign < 0 ? -magnitude : magnitude;
}

// a^-1 modulo m; a and m coprime.
inline int64_t InverseModulo(int64_t a, int64_t m) {
  // Invariant: coefficient * a == rest (mod m), for both pairs.
  int64_t rest = a % m, coefficient = 1;
  int64_t previous_rest = m, previous_coefficient = 0;
  while (rest != 1) {
    const int64_t quotient = previous_rest / rest;
    previous_rest -= quotient * rest;
    previous_coefficient -= quotient * coefficient;
    std::swap(rest, previous_rest);
    std::swap(coefficient, previous_coefficient);
  }
  return (coefficient % m + m) % m;
}

}  // namespace qualm::kernels::test

#endif  // QUALM_KERNELS_COMMON_TEST_SUPPORT_H_
