// SPDX-License-Identifier: Apache-2.0
// Intervals where kernels read and write plain elements: the lower ends lie in the kernel's arrays,
// the upper ends at a fixed distance behind.
#ifndef QUALM_KERNELS_INTERVALS_MEMORY_H_
#define QUALM_KERNELS_INTERVALS_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace qualm::intervals {

struct Memory {
  static constexpr size_t kBytes = 64;
  alignas(64) std::array<unsigned char, 2 * kBytes> x{};
  alignas(64) std::array<unsigned char, 2 * kBytes> y{};
  std::array<bool, kBytes> stored{};  // of y, by a vector
};
// The memory of the run on this thread.
constinit inline thread_local Memory memory;

// The offset of `at` in `all`, an array of `memory`. Only these arrays have two ends, so a kernel
// that loads from elsewhere (from a list of parameters per column) cannot run over intervals:
// abort.
inline size_t OffsetIn(const std::array<unsigned char, 2 * Memory::kBytes>& all, const void* at,
                       size_t bytes) {
  const auto offset = reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(all.data());
  if (offset + bytes > Memory::kBytes || offset > Memory::kBytes) std::abort();
  return offset;
}

template <class T>
std::pair<T, T> Load(const T* from) {
  const size_t offset = OffsetIn(memory.x, from, sizeof(T));
  std::pair<T, T> ends;
  std::memcpy(&ends.first, &memory.x[offset], sizeof(T));
  std::memcpy(&ends.second, &memory.x[offset + Memory::kBytes], sizeof(T));
  return ends;
}

template <class T>
void Store(T* to, T lo, T hi) {
  const size_t offset = OffsetIn(memory.y, to, sizeof(T));
  std::memcpy(&memory.y[offset], &lo, sizeof(T));
  std::memcpy(&memory.y[offset + Memory::kBytes], &hi, sizeof(T));
  memory.stored[offset] = true;
}

}  // namespace qualm::intervals

#endif  // QUALM_KERNELS_INTERVALS_MEMORY_H_
