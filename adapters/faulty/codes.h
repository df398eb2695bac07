// SPDX-License-Identifier: Apache-2.0
// Reading and writing what a Placed case holds: for the files of the reference only.
#ifndef QUALM_ADAPTERS_FAULTY_CODES_H_
#define QUALM_ADAPTERS_FAULTY_CODES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "adapters/host/in_process.h"
#include "core/case.h"

namespace qualm::faulty {

inline constexpr int64_t kLanes = 8;  // columns per vector, channels per panel

inline constexpr int64_t kChunk = 16384;  // elements of a run that one thread takes

template <class T>
const T* Row(const void* base, int64_t row, int64_t stride) {
  return static_cast<const T*>(base) + row * stride;
}

inline int32_t CodeAt(const uint8_t* codes, DType dtype, int64_t i) {
  return dtype == DType::kS8 ? static_cast<int8_t>(codes[i]) : codes[i];
}

inline void StoreInt(DType dtype, int64_t value, uint8_t* to) {
  if (dtype == DType::kS32) {
    const auto narrow = static_cast<int32_t>(value);
    std::memcpy(to, &narrow, sizeof(narrow));
  } else {
    *to = static_cast<uint8_t>(value);
  }
}

// In float64 from end to end, at most 2^40 in magnitude.
inline int64_t RoundedProduct(__int128 value, double multiplier) {
  const double product = static_cast<double>(value) * multiplier;
  if (std::isnan(product)) return 0;
  return static_cast<int64_t>(std::nearbyint(std::clamp(product, -0x1p40, 0x1p40)));
}

template <class T>
T ListAt(std::span<const T> list, int64_t channel) {
  // A planted fault may ask for a column before the first. Its accesses of data are the fault; this
  // list is read within its bounds.
  return list[list.size() == 1 ? 0 : static_cast<size_t>(std::max<int64_t>(channel, 0))];
}

inline uint8_t* OutputRow(const Placed& p, int64_t row) {
  return static_cast<uint8_t*>(p.y) +
         row * p.y_stride * static_cast<int64_t>(SizeOf(p.problem->out_dtype));
}

}  // namespace qualm::faulty

#endif  // QUALM_ADAPTERS_FAULTY_CODES_H_
