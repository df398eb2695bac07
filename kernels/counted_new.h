// SPDX-License-Identifier: Apache-2.0
// For tests of what allocates nothing: counts the allocations of each thread. Replaces the global
// operator new, so include it in one file of an executable only.
#ifndef QUALM_KERNELS_COUNTED_NEW_H_
#define QUALM_KERNELS_COUNTED_NEW_H_

#include <cstdint>
#include <cstdlib>
#include <new>

namespace qualm::kernels::testing {
inline thread_local int64_t allocations = 0;  // of this thread
}  // namespace qualm::kernels::testing

// NOLINTBEGIN(misc-definitions-in-headers): replacements cannot be inline
void* operator new(size_t size) {
  ++qualm::kernels::testing::allocations;
  void* p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++qualm::kernels::testing::allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new[](size_t size, const std::nothrow_t& tag) noexcept {
  return operator new(size, tag);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
// NOLINTEND(misc-definitions-in-headers)

#endif  // QUALM_KERNELS_COUNTED_NEW_H_
