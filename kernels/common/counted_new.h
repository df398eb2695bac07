// SPDX-License-Identifier: Apache-2.0
// For tests that a call allocates nothing: counts the allocations of each thread. Replaces the
// global operator new, so include it in one file of an executable only. ThreadSanitizer brings its
// own operator new, which reports allocations to a hook.
#ifndef QUALM_KERNELS_COMMON_COUNTED_NEW_H_
#define QUALM_KERNELS_COMMON_COUNTED_NEW_H_

#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_THREAD__)
#define QUALM_NEW_TELLS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define QUALM_NEW_TELLS 1
#endif
#endif
#ifdef QUALM_NEW_TELLS
#include <sanitizer/allocator_interface.h>
#endif

namespace qualm::kernels::testing {
inline thread_local int64_t allocations = 0;  // of this thread
}  // namespace qualm::kernels::testing

#ifdef QUALM_NEW_TELLS

inline const int hooks_of_counted_new = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, size_t) { ++qualm::kernels::testing::allocations; },
    [](const volatile void*) {});

#else

// NOLINTBEGIN(misc-definitions-in-headers): replacements cannot be inline
#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 sees malloc or free through an inlined replacement and takes the pair for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
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

#endif  // QUALM_NEW_TELLS

#endif  // QUALM_KERNELS_COMMON_COUNTED_NEW_H_
