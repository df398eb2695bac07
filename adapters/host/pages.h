// SPDX-License-Identifier: Apache-2.0
// What guarded memory asks of pages and of the bytes in them.
#ifndef QUALM_ADAPTERS_HOST_PAGES_H_
#define QUALM_ADAPTERS_HOST_PAGES_H_

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace qualm {

inline size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

inline bool AllEqual(const uint8_t* from, const uint8_t* to, uint8_t value) {
  const auto count = static_cast<size_t>(to - from);
  // Compared with itself one byte further on: memcmp is vectorised, a loop under ASan is not.
  return count == 0 || (*from == value && std::memcmp(from, from + 1, count - 1) == 0);
}

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_PAGES_H_
