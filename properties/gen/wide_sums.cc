// SPDX-License-Identifier: Apache-2.0
// Linear and convolutions of activations of 16 bits. What breaks them: sums that leave int32, the
// sign and the width of a code, and what breaks those of 8 bits.
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "properties/gen/sums.h"

namespace qualm::gen::internal {
namespace {

// The themes of the numbers around the sums.
constexpr std::array<Theme, 9> kThemes{Theme::kUniform,    Theme::kUniform,  Theme::kUniform,
                                       Theme::kUniform,    Theme::kTies,     Theme::kTies,
                                       Theme::kClampEdges, Theme::kNearTies, Theme::kZeroPoints};
// The themes of the sizes and of the first byte of each code. kWideTerms has sums so long that they
// leave int32, in convolutions too.
constexpr std::array<Theme, 10> kSizes{Theme::kUniform,    Theme::kUniform,   Theme::kBoundaryBytes,
                                       Theme::kAllExtreme, Theme::kTails,     Theme::kConstantRows,
                                       Theme::kWideTerms,  Theme::kWideTerms, Theme::kWideTerms,
                                       Theme::kEmpty};

// As a number from -32768 to 32767, of the code of 8 bits.
enum class Spread : uint8_t { kHighByte, kUniform, kAsBytes, kOneEnd, kEnds };
constexpr std::array<Spread, 6> kSpreads{Spread::kHighByte, Spread::kHighByte, Spread::kUniform,
                                         Spread::kAsBytes,  Spread::kOneEnd,   Spread::kEnds};

Tensor Spreaded(Rng& rng, const Tensor& bytes, DType to, Spread spread) {
  const int32_t lowest = RangeOf(bytes.dtype()).min, up = to == DType::kU16 ? 32768 : 0;
  const bool high = rng.Chance(1, 2);
  const auto within = [&] { return static_cast<int32_t>(rng.Between(INT16_MIN, INT16_MAX)); };
  const auto end = [&](bool top) {
    const auto off = static_cast<int32_t>(rng.Chance(1, 2) ? 0 : rng.Between(0, 255));
    return top ? INT16_MAX - off : INT16_MIN + off;
  };
  Tensor wide(to, bytes.shape());
  for (int64_t i = 0; i < bytes.size(); ++i) {
    const int32_t byte = bytes.IntAt(i) - lowest - 128;
    int32_t code = byte;
    switch (spread) {
      case Spread::kHighByte: code = byte * 256 + static_cast<int32_t>(rng.Below(256)); break;
      case Spread::kUniform: code = within(); break;
      case Spread::kAsBytes: break;
      case Spread::kOneEnd: code = end(high); break;
      case Spread::kEnds: code = end(rng.Chance(1, 2)); break;
    }
    wide.SetInt(i, code + up);
  }
  return wide;
}

// The products of each channel add up: mostly weights of one sign, and far from 0.
void AlignWeights(Rng& rng, Case& c) {
  const CodeRange range = RangeOf(c.w.dtype());
  for (int64_t n = 0; n < c.N; ++n) {
    const bool high = rng.Chance(1, 2);
    for (int64_t k = 0; k < c.K; ++k) {
      const auto off = static_cast<int32_t>(rng.Below(16));
      const bool other = rng.Chance(1, 32);
      c.w.SetInt(n * c.K + k, high != other ? range.max - off : range.min + off);
    }
  }
}

void DrawWideTypes(Rng& rng, Case& c) {
  const DType x = rng.Chance(4, 5) ? DType::kS16 : DType::kU16;
  const uint64_t out = rng.Below(20);
  c.out_dtype = out < 13   ? x
                : out < 14 ? OtherSign(x)
                : out < 16 ? DType::kS32
                : out < 18 ? DType::kF32
                : out < 19 ? DType::kS8
                           : DType::kU8;
  // Mostly weights as libraries have them beside such activations.
  if (c.w.dtype() == DType::kU8 && rng.Chance(4, 5)) {
    Tensor as_signed(DType::kS8, c.w.shape());
    for (int64_t i = 0; i < c.w.size(); ++i) as_signed.SetInt(i, c.w.IntAt(i) - 128);
    c.w = std::move(as_signed);
  }
  c.x = Spreaded(rng, c.x, x, rng.Pick(kSpreads));
}

}  // namespace

Case DrawWideSums(Rng& rng, Op op) {
  const Theme sizes = rng.Pick(kSizes);
  Case c = Draw(op, sizes, rng.Next());
  const bool is_long = sizes == Theme::kWideTerms;
  if (is_long) {  // its codes would be drawn for 8 bits
    FillBoundary(rng, c.x.dtype(), c.x.bytes());
    AlignWeights(rng, c);
  }
  DrawWideTypes(rng, c);
  if (is_long && rng.Chance(1, 2)) c.x = Spreaded(rng, c.x, c.x.dtype(), Spread::kOneEnd);
  const Case plain;
  c.x_q = c.w_q = c.out_q = plain.out_q;
  c.bias.reset();
  c.bias_i32.reset();
  c.relu = false;
  c.requant = Requant::kExact;
  DrawAroundSums(rng, rng.Pick(kThemes), c);
  return c;
}

}  // namespace qualm::gen::internal
