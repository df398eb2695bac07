// SPDX-License-Identifier: Apache-2.0
// Weights in blocks as llama.cpp stores them: which of the codes a format has, and which scales.
// An index into `values` is what a block stores. (ggml src/ggml-common.h, block_* and kvalues_*.)
#ifndef QUALM_CORE_WEIGHT_FORMATS_H_
#define QUALM_CORE_WEIGHT_FORMATS_H_

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"

namespace qualm {

// The scales of blocks of weights.
enum class BlockScales : uint8_t {
  kHalf,    // an f16
  kPowers,  // a power of two from 2^-128 to 2^126: half of what an e8m0 is
  kSmall,   // of each block half of a ue4m3: kSmallUnit times an integer
};

// The exponent of a scale of kPowers; nullopt if it is none.
inline constexpr int kLeastPower = -128, kMostPower = 126;
inline std::optional<int> PowerOf(float scale) {
  int exponent = 0;
  const bool is_power = std::frexp(scale, &exponent) == 0.5f;  // 0.5 * 2^exponent
  if (!is_power || exponent - 1 < kLeastPower || exponent - 1 > kMostPower) return std::nullopt;
  return exponent - 1;
}

// Half of the ue4m3 of this code, from 1 to 126, in units of 2^-10.
inline constexpr float kSmallUnit = 0x1p-10f;
inline constexpr int kSmallCodes = 126;
constexpr int32_t SmallFactor(int code) {
  const int exponent = code >> 3, fraction = code & 7;
  return exponent == 0 ? fraction : (8 + fraction) << (exponent - 1);
}
// The code of this factor; nullopt if there is none.
constexpr std::optional<uint8_t> SmallCodeOf(int32_t factor) {
  for (int code = 0; code <= kSmallCodes; ++code)
    if (SmallFactor(code) == factor) return static_cast<uint8_t>(code);
  return std::nullopt;
}

// The f16 that is this number, which is finite and not negative; nullopt if none is.
inline std::optional<uint16_t> HalfOf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  const uint32_t fraction = bits & 0x7FFFFF;
  if (bits == 0) return uint16_t{0};
  if (exponent > 15 || exponent < -24) return std::nullopt;
  if (exponent >= -14) {
    if ((fraction & 0x1FFF) != 0) return std::nullopt;
    return static_cast<uint16_t>((static_cast<uint32_t>(exponent + 15) << 10) | (fraction >> 13));
  }
  const int shift = 13 - 14 - exponent;
  const uint32_t whole = fraction | 0x800000;
  if ((whole & ((1u << shift) - 1)) != 0) return std::nullopt;
  return static_cast<uint16_t>(whole >> shift);
}

// What a super-block stores, one thing behind the other.
struct BlockPart {
  enum class Of : uint8_t {
    kScale,     // of the super-block
    kMinimum,   // f16, what its minima are multiples of
    kCodeBits,  // `bits` of each code, from bit `from` on
    kFactors,   // the same of the factors of the scales of its blocks, and behind these of the
                // minima
    kSixBits,   // 8 factors of scales and 8 of minima in 12 bytes
    kTrits,     // codes from number `from` on, five in each of `stride` bytes, to the base of 3
    kSmall,     // a ue4m3 for each block
  };
  Of of;
  // Number i lies in one of `stride` bytes that hold stride * 8 / bits numbers: the first of them
  // in the lowest bits.
  int bits = 0, from = 0, stride = 0;

  int Byte(int i) const { return i / (stride * 8 / bits) * stride + i % stride; }
  int Shift(int i) const { return i / stride % (8 / bits) * bits; }
};

// The activations: codes of s8 in super-blocks with one scale.
enum class BlockActivations : uint8_t {
  kQ8_0,  // blocks of 32 with f16 scales
  kQ8_1,  // and the scale times the sum of the codes, an f16
  kQ8K,   // f32 scales; and the sum of each 16 codes
};
inline constexpr std::array<std::string_view, 3> kActivationNames{"q8_0", "q8_1", "q8_K"};

// A weight is scale * (code - zero point). Each block has a scale, which is that of its super-block
// times an integer factor.
struct WeightFormat {
  std::string_view name;  // "q5_0"
  DType dtype = DType::kS8;
  int32_t zero_point = 0;
  std::span<const int8_t> values = {};  // the codes that there are; empty: every code of the type
  BlockScales scales = BlockScales::kHalf;
  int32_t block = 32;
  int32_t super_block = 32;
  int32_t most_factor = 1;
  // A factor may be negative; then the codes have the other sign. The last of the values is the
  // negative of the first and stored so, and no block has both.
  bool either_sign = false;
  int32_t factor_offset = 0;  // what is added to a factor that is stored
  // Zero points of blocks are any that are not negative, as far as minima = zero point * scale are
  // multiples of one f16 by such factors too.
  bool minima = false;
  bool offsets_apart = false;  // the contract is sum+offsets, see docs/sums.md
  BlockActivations x = BlockActivations::kQ8_0;
  std::span<const BlockPart> parts;

  bool Has(int32_t code) const {
    return values.empty() || std::ranges::find(values, code) != values.end();
  }
  int32_t blocks() const { return super_block / block; }
  // Blocks that have one scale of x.
  int32_t blocks_of_x() const {
    return x == BlockActivations::kQ8K ? blocks() : std::max(1, 32 / block);
  }
};

constexpr std::string_view NameOfActivations(const WeightFormat& format) {
  return kActivationNames.at(static_cast<size_t>(format.x));
}

// Numbers that are multiples of one f16.
struct Multiples {
  float unit = 0;
  std::vector<int32_t> factors;
};
// With factors up to `most`, as large as they can be: ggml's quantizers make them so. nullopt if
// these numbers, none of them negative, are no such multiples.
inline std::optional<Multiples> MultiplesOf(std::span<const double> numbers, int32_t most) {
  Multiples multiples{0, std::vector<int32_t>(numbers.size())};
  const double largest = std::ranges::max(numbers);
  if (largest == 0) return multiples;
  int exponent = INT_MAX;  // all are multiples of 2^exponent
  for (const double number : numbers) {
    if (number == 0) continue;
    const auto whole = static_cast<uint64_t>(std::ldexp(number, 52 - std::ilogb(number)));
    exponent = std::min(exponent, std::ilogb(number) - 52 + std::countr_zero(whole));
  }
  if (std::ilogb(largest) - exponent > 60) return std::nullopt;
  const auto whole = [&](double number) {
    return static_cast<int64_t>(std::ldexp(number, -exponent));
  };
  int64_t divisor = 0;  // odd
  for (const double number : numbers) divisor = std::gcd(divisor, whole(number));
  const int64_t least = whole(largest) / divisor;  // of the largest factor
  for (int64_t times = most / least; times > 0; --times) {
    const int zeros = std::countr_zero(static_cast<uint64_t>(times));
    const int64_t odd = divisor / (times >> zeros);
    if (divisor % (times >> zeros) != 0 || odd >= 1 << 11) continue;
    multiples.unit = std::ldexp(static_cast<float>(odd), exponent - zeros);
    if (!HalfOf(multiples.unit)) continue;
    for (size_t i = 0; i < numbers.size(); ++i)
      multiples.factors[i] = static_cast<int32_t>(whole(numbers[i]) / divisor * times);
    return multiples;
  }
  return std::nullopt;
}

// The numbers that a super-block stores beside codes. Blocks that a shorter row does not have have
// factors 0.
struct SuperBlock {
  float scale = 0, minimum = 0;
  std::vector<int32_t> factors;  // of the scales, and of minima behind them
};
// Of scales and zero points of its blocks, at least one; nullopt if the format has none.
inline std::optional<SuperBlock> SuperBlockOf(const WeightFormat& format,
                                              std::span<const float> scales,
                                              std::span<const int32_t> zero_points) {
  if (format.scales == BlockScales::kPowers)
    return PowerOf(scales[0]) ? std::optional(SuperBlock{scales[0], 0, {1}}) : std::nullopt;
  if (format.scales == BlockScales::kSmall) {
    SuperBlock small{kSmallUnit, 0, std::vector<int32_t>(static_cast<size_t>(format.blocks()))};
    for (size_t i = 0; i < scales.size(); ++i) {
      const float factor = scales[i] / kSmallUnit;
      if (!(factor <= static_cast<float>(SmallFactor(kSmallCodes)))) return std::nullopt;
      small.factors[i] = static_cast<int32_t>(factor);
      if (static_cast<float>(small.factors[i]) != factor || !SmallCodeOf(small.factors[i]))
        return std::nullopt;
    }
    return small;
  }
  const std::vector<double> numbers(scales.begin(), scales.end());
  std::optional<Multiples> of_scales = MultiplesOf(numbers, format.most_factor);
  if (!of_scales) return std::nullopt;
  SuperBlock block{of_scales->unit, 0, std::move(of_scales->factors)};
  block.factors.resize(static_cast<size_t>(format.blocks()));
  if (!format.minima) return block;
  if (std::ranges::any_of(zero_points, [](int32_t z) { return z < 0 || z > 1 << 20; }))
    return std::nullopt;
  std::vector<double> minima;
  for (size_t i = 0; i < scales.size(); ++i) minima.push_back(numbers[i] * zero_points[i]);
  const std::optional<Multiples> of_minima = MultiplesOf(minima, format.most_factor);
  if (!of_minima) return std::nullopt;
  block.minimum = of_minima->unit;
  block.factors.insert(block.factors.end(), of_minima->factors.begin(), of_minima->factors.end());
  block.factors.resize(2 * static_cast<size_t>(format.blocks()));
  return block;
}

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
inline constexpr std::array<int8_t, 2> kValuesOfQ1_0{-1, 1};
inline constexpr std::array<int8_t, 4> kValuesOfQ2_0{-1, 0, 1, 2};
inline constexpr std::array<int8_t, 3> kValuesOfTq{-1, 0, 1};
inline constexpr std::array<int8_t, 32> kValuesOf5Bits = internal::CodesFrom<0, 32>();
inline constexpr std::array<int8_t, 9> kValuesOfQ3K = internal::CodesFrom<-4, 9>();
inline constexpr std::array<int8_t, 65> kValuesOfQ6K = internal::CodesFrom<-32, 65>();

namespace internal {
using Part = BlockPart::Of;
inline constexpr BlockPart kScale{Part::kScale}, kMinimum{Part::kMinimum}, kSixBits{Part::kSixBits};
inline constexpr BlockPart kNibbles{Part::kCodeBits, 4, 0, 16};
inline constexpr BlockPart kFifthBits{Part::kCodeBits, 1, 4, 1};
inline constexpr std::array kBytesOfBlock{kScale, BlockPart{Part::kCodeBits, 8, 0, 32}};
inline constexpr std::array kNibblesOfBlock{kScale, kNibbles};
inline constexpr std::array kPartsOfQ5_0{kScale, kFifthBits, kNibbles};
inline constexpr std::array kPartsOfQ4_1{kScale, kMinimum, kNibbles};
inline constexpr std::array kPartsOfQ5_1{kScale, kMinimum, kFifthBits, kNibbles};
inline constexpr std::array kPartsOfQ2K{BlockPart{Part::kFactors, 4, 0, 16},
                                        BlockPart{Part::kCodeBits, 2, 0, 32}, kScale, kMinimum};
inline constexpr std::array kPartsOfQ3K{
    BlockPart{Part::kCodeBits, 1, 2, 32}, BlockPart{Part::kCodeBits, 2, 0, 32},
    BlockPart{Part::kFactors, 4, 0, 8}, BlockPart{Part::kFactors, 2, 4, 4}, kScale};
inline constexpr std::array kPartsOfQ4K{kScale, kMinimum, kSixBits,
                                        BlockPart{Part::kCodeBits, 4, 0, 32}};
inline constexpr std::array kPartsOfQ5K{kScale, kMinimum, kSixBits,
                                        BlockPart{Part::kCodeBits, 1, 4, 32},
                                        BlockPart{Part::kCodeBits, 4, 0, 32}};
inline constexpr std::array kPartsOfQ6K{BlockPart{Part::kCodeBits, 4, 0, 64},
                                        BlockPart{Part::kCodeBits, 2, 4, 32},
                                        BlockPart{Part::kFactors, 8, 0, 16}, kScale};
inline constexpr std::array kPartsOfIq4Xs{kScale, BlockPart{Part::kFactors, 2, 4, 1},
                                          BlockPart{Part::kFactors, 4, 0, 1}, kNibbles};
inline constexpr std::array kPartsOfTq1_0{BlockPart{Part::kTrits, 0, 0, 32},
                                          BlockPart{Part::kTrits, 0, 160, 16},
                                          BlockPart{Part::kTrits, 0, 240, 4}, kScale};
inline constexpr std::array kPartsOfTq2_0{BlockPart{Part::kCodeBits, 2, 0, 32}, kScale};
inline constexpr std::array kPartsOfQ1_0{kScale, BlockPart{Part::kCodeBits, 1, 0, 1}};
inline constexpr std::array kPartsOfQ2_0{kScale, BlockPart{Part::kCodeBits, 2, 0, 1}};
inline constexpr std::array kPartsOfNvfp4{BlockPart{Part::kSmall},
                                          BlockPart{Part::kCodeBits, 4, 0, 8}};
}  // namespace internal

inline constexpr WeightFormat kQ8_0{.name = "q8_0", .parts = internal::kBytesOfBlock};
inline constexpr WeightFormat kQ4_0{
    .name = "q4_0", .dtype = DType::kU4, .zero_point = 8, .parts = internal::kNibblesOfBlock};
inline constexpr WeightFormat kQ5_0{
    .name = "q5_0", .values = kValuesOfQ5_0, .parts = internal::kPartsOfQ5_0};
inline constexpr WeightFormat kIq4Nl{
    .name = "iq4_nl", .values = kValuesOfIq4Nl, .parts = internal::kNibblesOfBlock};
inline constexpr WeightFormat kMxfp4{.name = "mxfp4",
                                     .values = kValuesOfMxfp4,
                                     .scales = BlockScales::kPowers,
                                     .parts = internal::kNibblesOfBlock};
inline constexpr WeightFormat kQ4_1{.name = "q4_1",
                                    .dtype = DType::kU4,
                                    .minima = true,
                                    .offsets_apart = true,
                                    .x = BlockActivations::kQ8_1,
                                    .parts = internal::kPartsOfQ4_1};
inline constexpr WeightFormat kQ5_1{.name = "q5_1",
                                    .dtype = DType::kU8,
                                    .values = kValuesOf5Bits,
                                    .minima = true,
                                    .offsets_apart = true,
                                    .x = BlockActivations::kQ8_1,
                                    .parts = internal::kPartsOfQ5_1};
inline constexpr WeightFormat kQ2K{.name = "q2_k",
                                   .dtype = DType::kU2,
                                   .block = 16,
                                   .super_block = 256,
                                   .most_factor = 15,
                                   .minima = true,
                                   .offsets_apart = true,
                                   .x = BlockActivations::kQ8K,
                                   .parts = internal::kPartsOfQ2K};
inline constexpr WeightFormat kQ3K{.name = "q3_k",
                                   .values = kValuesOfQ3K,
                                   .block = 16,
                                   .super_block = 256,
                                   .most_factor = 31,
                                   .either_sign = true,
                                   .factor_offset = 32,
                                   .x = BlockActivations::kQ8K,
                                   .parts = internal::kPartsOfQ3K};
inline constexpr WeightFormat kQ4K{.name = "q4_k",
                                   .dtype = DType::kU4,
                                   .super_block = 256,
                                   .most_factor = 63,
                                   .minima = true,
                                   .offsets_apart = true,
                                   .x = BlockActivations::kQ8K,
                                   .parts = internal::kPartsOfQ4K};
inline constexpr WeightFormat kQ5K{.name = "q5_k",
                                   .dtype = DType::kU8,
                                   .values = kValuesOf5Bits,
                                   .super_block = 256,
                                   .most_factor = 63,
                                   .minima = true,
                                   .offsets_apart = true,
                                   .x = BlockActivations::kQ8K,
                                   .parts = internal::kPartsOfQ5K};
// -32 times the sum of x is added to the sum of the codes 0 to 63, in other lanes of float32.
inline constexpr WeightFormat kQ6K{.name = "q6_k",
                                   .values = kValuesOfQ6K,
                                   .block = 16,
                                   .super_block = 256,
                                   .most_factor = 127,
                                   .either_sign = true,
                                   .offsets_apart = true,
                                   .x = BlockActivations::kQ8K,
                                   .parts = internal::kPartsOfQ6K};

// A factor may be negative in a block of ggml; a case has the others.
inline constexpr WeightFormat kIq4Xs{.name = "iq4_xs",
                                     .values = kValuesOfIq4Nl,
                                     .super_block = 256,
                                     .most_factor = 31,
                                     .factor_offset = 32,
                                     .x = BlockActivations::kQ8K,
                                     .parts = internal::kPartsOfIq4Xs};
// The sum of x is taken from the sum of the codes 0 to 2 in other lanes of int32.
inline constexpr WeightFormat kTq1_0{.name = "tq1_0",
                                     .values = kValuesOfTq,
                                     .block = 256,
                                     .super_block = 256,
                                     .offsets_apart = true,
                                     .x = BlockActivations::kQ8K,
                                     .parts = internal::kPartsOfTq1_0};
inline constexpr WeightFormat kTq2_0{.name = "tq2_0",
                                     .values = kValuesOfTq,
                                     .block = 256,
                                     .super_block = 256,
                                     .offsets_apart = true,
                                     .x = BlockActivations::kQ8K,
                                     .parts = internal::kPartsOfTq2_0};
inline constexpr WeightFormat kQ1_0{
    .name = "q1_0", .values = kValuesOfQ1_0, .super_block = 128, .parts = internal::kPartsOfQ1_0};
inline constexpr WeightFormat kQ2_0{
    .name = "q2_0", .values = kValuesOfQ2_0, .super_block = 64, .parts = internal::kPartsOfQ2_0};
inline constexpr WeightFormat kNvfp4{.name = "nvfp4",
                                     .values = kValuesOfMxfp4,
                                     .scales = BlockScales::kSmall,
                                     .block = 16,
                                     .super_block = 64,
                                     .parts = internal::kPartsOfNvfp4};

inline constexpr std::array<const WeightFormat*, 18> kWeightFormats{
    &kQ8_0, &kQ4_0, &kQ5_0, &kIq4Nl, &kMxfp4, &kQ4_1,  &kQ5_1, &kQ2K,  &kQ3K,
    &kQ4K,  &kQ5K,  &kQ6K,  &kIq4Xs, &kTq1_0, &kTq2_0, &kQ1_0, &kQ2_0, &kNvfp4};
// "q8_0, q4_0, ...": all there are.
inline std::string AllFormatNames() {
  std::string all;
  for (const WeightFormat* format : kWeightFormats)
    all += (all.empty() ? "" : ", ") + std::string(format->name);
  return all;
}
// Those that a subject of ggml has by name: no type of codes tells them.
inline constexpr std::span kNamedFormats = std::span(kWeightFormats).subspan(2);
// Those whose scale is a quotient of the ends of a block: ggml's quantizers search for the others'.
inline constexpr std::array<const WeightFormat*, 5> kQuantizedFormats{&kQ8_0, &kQ4_0, &kQ4_1,
                                                                      &kQ5_0, &kQ5_1};
// Those that ggml multiplies by eight rows in turn on x86 (src/ggml-cpu/repack.cpp).
inline constexpr std::array<const WeightFormat*, 5> kRepackedFormats{&kQ4_0, &kIq4Nl, &kMxfp4,
                                                                     &kQ2K, &kQ4K};

}  // namespace qualm

#endif  // QUALM_CORE_WEIGHT_FORMATS_H_
