// SPDX-License-Identifier: Apache-2.0
#include "properties/gen/float_ties.h"

#include <bit>
#include <cmath>
#include <limits>

namespace qualm::gen::internal {
namespace {

using Wide = unsigned __int128;

uint64_t Mantissa(float value) {
  int exponent = 0;
  return static_cast<uint64_t>(std::ldexp(std::frexp(value, &exponent), 24));
}

}  // namespace

std::optional<uint64_t> FirstBetween(uint64_t factor, uint64_t modulus, uint64_t low,
                                     uint64_t high) {
  if (low == 0) return 0;
  if (factor == 0) return std::nullopt;
  const uint64_t x = (low - 1) / factor + 1;
  if (Wide{x} * factor <= high) return x;
  // No multiple of the factor lies between low and high. So factor * x = modulus * y + t with the
  // least y for which -t is modulus * y mod factor: Euclid's algorithm on the two.
  const auto y = FirstBetween(modulus % factor, factor, (factor - high % factor) % factor,
                              (factor - low % factor) % factor);
  if (!y) return std::nullopt;
  return static_cast<uint64_t>((Wide{low} + Wide{modulus} * *y + factor - 1) / factor);
}

std::optional<int32_t> SumBesideFloatTie(Rng& rng, float x_scale, float w_scale) {
  const uint64_t scale = Mantissa(x_scale) * Mantissa(w_scale);
  const auto least = static_cast<uint64_t>(rng.Between(int64_t{1} << 28, int64_t{1} << 30));
  // The products have 75 bits or more.
  const auto bits_of = [&](uint64_t sum) -> int {
    return 32 + std::bit_width(static_cast<uint64_t>(Wide{scale} * sum >> 32));
  };
  const int bits = bits_of(least);
  // float32 keeps 24 of the bits, double 53.
  const uint64_t modulus = uint64_t{1} << (bits - 24);
  const uint64_t near = uint64_t{1} << (bits - 54);
  const uint64_t at_least = static_cast<uint64_t>(Wide{scale} * least % modulus);
  const uint64_t low = (modulus / 2 - near - at_least) % modulus;
  const uint64_t high = (modulus / 2 + near - at_least) % modulus;
  if (low > high) return std::nullopt;
  const auto further = FirstBetween(scale % modulus, modulus, low, high);
  if (!further || *further > std::numeric_limits<int32_t>::max() - least) return std::nullopt;
  const uint64_t sum = least + *further;
  if (bits_of(sum) != bits) return std::nullopt;
  return static_cast<int32_t>(sum);
}

}  // namespace qualm::gen::internal
