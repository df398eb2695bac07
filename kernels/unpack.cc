// SPDX-License-Identifier: Apache-2.0
// Integer i lies in the bits [i * bits, (i + 1) * bits) of the stream; the lowest bit of a byte is
// the first one. A signed code c of b bits is (c ^ 2^(b-1)) - 2^(b-1).
#include "kernels/unpack.h"

#include <cstddef>

namespace qualm::kernels {
namespace {

template <unsigned kBits>
void UnpackBits(const uint8_t* from, unsigned sign, std::span<uint8_t> to) {
  constexpr size_t kPerByte = 8 / kBits;
  constexpr unsigned kMask = (1u << kBits) - 1;
  const auto unpack = [sign](uint8_t byte, size_t count, uint8_t* codes) {
    for (size_t i = 0; i < count; ++i) {
      const unsigned code = byte >> (i * kBits) & kMask;
      codes[i] = static_cast<uint8_t>((code ^ sign) - sign);
    }
  };
  const size_t whole = to.size() / kPerByte, rest = to.size() % kPerByte;
  for (size_t i = 0; i < whole; ++i) unpack(from[i], kPerByte, &to[i * kPerByte]);
  if (rest != 0) unpack(from[whole], rest, &to[whole * kPerByte]);
}

template <unsigned kBits>
void PackBits(std::span<const uint8_t> from, uint8_t* to) {
  constexpr size_t kPerByte = 8 / kBits;
  constexpr unsigned kMask = (1u << kBits) - 1;
  const auto pack = [](const uint8_t* codes, size_t count) {
    unsigned byte = 0;
    for (size_t i = 0; i < count; ++i) byte |= (codes[i] & kMask) << (i * kBits);
    return static_cast<uint8_t>(byte);
  };
  const size_t whole = from.size() / kPerByte, rest = from.size() % kPerByte;
  for (size_t i = 0; i < whole; ++i) to[i] = pack(&from[i * kPerByte], kPerByte);
  if (rest != 0) to[whole] = pack(&from[whole * kPerByte], rest);
}

}  // namespace

void Pack(std::span<const uint8_t> from, int bits, uint8_t* to) {
  if (bits == 4) {
    PackBits<4>(from, to);
  } else {
    PackBits<2>(from, to);
  }
}

void Unpack(const PackedIntegers& from, std::span<uint8_t> to) {
  const unsigned sign = from.is_signed ? 1u << (from.bits - 1) : 0;
  if (from.bits == 4) {
    UnpackBits<4>(from.data, sign, to);
  } else {
    UnpackBits<2>(from.data, sign, to);
  }
}

}  // namespace qualm::kernels
