// SPDX-License-Identifier: Apache-2.0
// Is this code built with a sanitizer? One has a heap of its own, takes more addresses than a limit
// leaves, and handles signals on a stack of its own.
#ifndef QUALM_CORE_SANITIZED_H_
#define QUALM_CORE_SANITIZED_H_

namespace qualm {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(address_sanitizer) ||
                                   __has_feature(thread_sanitizer) ||
                                   __has_feature(memory_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace qualm

#endif  // QUALM_CORE_SANITIZED_H_
