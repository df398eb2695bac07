// SPDX-License-Identifier: Apache-2.0
// Weights in blocks as llama.cpp stores them: which of the codes a format has, and which scales.
// An index into `values` is what a block stores. (ggml src/ggml-common.h, block_* and kvalues_*.)
#ifndef QUALM_CORE_WEIGHT_FORMATS_H_
#define QUALM_CORE_WEIGHT_FORMATS_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/types.h"

namespace qualm {

// The scales of blocks of weights.
enum class BlockScales : uint8_t {
  kHalf,    // an f16
  kPowers,  // a power of two from 2^-128 to 2^126: half of what an e8m0 is
};

// The exponent of a scale of kPowers; nullopt if it is none.
inline constexpr int kLeastPower = -128, kMostPower = 126;
inline std::optional<int> PowerOf(float scale) {
  int exponent = 0;
  const bool is_power = std::frexp(scale, &exponent) == 0.5f;  // 0.5 * 2^exponent
  if (!is_power || exponent - 1 < kLeastPower || exponent - 1 > kMostPower) return std::nullopt;
  return exponent - 1;
}

struct WeightFormat {
  std::string_view name;  // "q5_0"
  DType dtype = DType::kS8;
  int32_t zero_point = 0;
  std::span<const int8_t> values = {};  // the codes that there are; empty: every code of the type
  BlockScales scales = BlockScales::kHalf;
  int32_t block = 32;

  bool Has(int32_t code) const {
    return values.empty() || std::ranges::find(values, code) != values.end();
  }
};

namespace internal {
template <int8_t kLowest, size_t kCount>
constexpr std::array<int8_t, kCount> CodesFrom() {
  std::array<int8_t, kCount> codes{};
  for (size_t i = 0; i < kCount; ++i)
    codes.at(i) = static_cast<int8_t>(kLowest + static_cast<int>(i));
  return codes;
}
}  // namespace internal

inline constexpr std::array<int8_t, 32> kValuesOfQ5_0 = internal::CodesFrom<-16, 32>();
inline constexpr std::array<int8_t, 16> kValuesOfIq4Nl{-127, -104, -83, -65, -49, -35, -22, -10,
                                                       1,    13,   25,  38,  53,  69,  89,  113};
// e2m1, doubled.
inline constexpr std::array<int8_t, 16> kValuesOfMxfp4{0, 1,  2,  3,  4,  6,  8,  12,
                                                       0, -1, -2, -3, -4, -6, -8, -12};

inline constexpr WeightFormat kQ8_0{.name = "q8_0"};
inline constexpr WeightFormat kQ4_0{.name = "q4_0", .dtype = DType::kU4, .zero_point = 8};
inline constexpr WeightFormat kQ5_0{.name = "q5_0", .values = kValuesOfQ5_0};
inline constexpr WeightFormat kIq4Nl{.name = "iq4_nl", .values = kValuesOfIq4Nl};
inline constexpr WeightFormat kMxfp4{
    .name = "mxfp4", .values = kValuesOfMxfp4, .scales = BlockScales::kPowers};

// Those that a subject of ggml has by name: their codes are some of s8, so that no type tells them.
inline constexpr std::array<const WeightFormat*, 3> kNamedFormats{&kQ5_0, &kIq4Nl, &kMxfp4};

}  // namespace qualm

#endif  // QUALM_CORE_WEIGHT_FORMATS_H_
