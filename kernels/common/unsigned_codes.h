// SPDX-License-Identifier: Apache-2.0
// Codes of either type as unsigned numbers, for streams (code_stream-inl.h). Internal to kernels/.
#ifndef QUALM_KERNELS_COMMON_UNSIGNED_CODES_H_
#define QUALM_KERNELS_COMMON_UNSIGNED_CODES_H_

#include <cstdint>

#include "kernels/common/validate.h"

namespace qualm::kernels::internal {

// Codes as unsigned numbers: those of s8 outputs are shifted by 128.
struct UnsignedCodes {
  uint8_t lo = 0, hi = 255;
  uint8_t flip = 0;  // 0x80 for s8
  uint8_t zero_point = 0;
};

// Whether a stream can write codes in `bounds`: the zero point must be one of their type.
inline bool IsStreamable(Bounds bounds, int64_t zero_point) {
  const int64_t least = bounds.lo < 0 || zero_point < 0 ? -128 : 0;
  return zero_point >= least && zero_point <= least + 255 && bounds.hi <= least + 255;
}

inline UnsignedCodes ToUnsignedCodes(Bounds bounds, int32_t zero_point) {
  const int64_t shift = bounds.lo < 0 || zero_point < 0 ? 128 : 0;  // any zero point: no overflow
  return {static_cast<uint8_t>(bounds.lo + shift), static_cast<uint8_t>(bounds.hi + shift),
          static_cast<uint8_t>(shift), static_cast<uint8_t>(zero_point + shift)};
}

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_COMMON_UNSIGNED_CODES_H_
