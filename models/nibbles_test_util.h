// SPDX-License-Identifier: Apache-2.0
// Weights of 4 bits as model files store them, for tests.
#ifndef QUALM_MODELS_NIBBLES_TEST_UTIL_H_
#define QUALM_MODELS_NIBBLES_TEST_UTIL_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace qualm::models::test {

// The codes -8, -7, ... 6 in a tensor of 15, and their bytes: two codes in each, the first one low;
// the last one is alone.
inline std::pair<Tensor, std::string> FifteenNibbles(std::vector<int64_t> shape) {
  Tensor codes(DType::kS8, std::move(shape));
  std::string packed;
  for (int32_t i = 0; i < 15; ++i) {
    codes.SetInt(i, i - 8);
    const auto nibble = static_cast<char>((i - 8) & 15);
    if (i % 2 == 0) packed.push_back(nibble);
    if (i % 2 == 1) packed.back() = static_cast<char>(packed.back() | nibble << 4);
  }
  return {std::move(codes), std::move(packed)};
}

}  // namespace qualm::models::test

#endif  // QUALM_MODELS_NIBBLES_TEST_UTIL_H_
