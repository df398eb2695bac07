// SPDX-License-Identifier: Apache-2.0
// The order in which passes try which of `count` items to keep.
#ifndef QUALM_TRIAGE_SHRINK_H_
#define QUALM_TRIAGE_SHRINK_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/slice.h"

namespace qualm::triage {

// Everything except [from, to).
inline std::vector<int64_t> Without(int64_t count, int64_t from, int64_t to) {
  std::vector<int64_t> list = slice::Range(0, from);
  for (int64_t i = to; i < count; ++i) list.push_back(i);
  return list;
}

// Calls keep(items) until it returns true: each half alone, each quarter alone, ... down to single
// items, then everything but one half, everything but one quarter, ... Returns whether it did.
template <class Keep>
bool Shrink(int64_t count, int64_t smallest, const Keep& keep) {
  for (int64_t block = (count + 1) / 2; block >= smallest; block = (block + 1) / 2) {
    for (int64_t from = 0; from < count; from += block) {
      if (keep(slice::Range(from, std::min(count, from + block)))) return true;
    }
    if (block == 1) break;
    if (count / block > 16) break;  // drop blocks first; singles come when little is left
  }
  for (int64_t block = (count + 1) / 2; block >= 1; block = (block + 1) / 2) {
    for (int64_t from = 0; from < count; from += block) {
      if (block < count && keep(Without(count, from, std::min(count, from + block)))) return true;
    }
    if (block == 1) break;
  }
  return false;
}

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_SHRINK_H_
