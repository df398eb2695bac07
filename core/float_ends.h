// SPDX-License-Identifier: Apache-2.0
// The float32 numbers next to a real one; itself, if it is one of them. Finite.
#ifndef QUALM_CORE_FLOAT_ENDS_H_
#define QUALM_CORE_FLOAT_ENDS_H_

#include <cmath>
#include <limits>

namespace qualm {

inline float FloatAtLeast(double value) {
  const auto nearest = static_cast<float>(value);
  return nearest < value ? std::nextafter(nearest, std::numeric_limits<float>::max()) : nearest;
}
inline float FloatAtMost(double value) {
  const auto nearest = static_cast<float>(value);
  return nearest > value ? std::nextafter(nearest, std::numeric_limits<float>::lowest()) : nearest;
}

}  // namespace qualm

#endif  // QUALM_CORE_FLOAT_ENDS_H_
