// SPDX-License-Identifier: Apache-2.0
// Integers of 4 and 2 bits into bytes and back, for kernels that take and give whole bytes.
#ifndef QUALM_KERNELS_UNPACK_H_
#define QUALM_KERNELS_UNPACK_H_

#include <cstdint>
#include <span>

namespace qualm::kernels {

// Integers one behind the other, the first one in the lowest bits of a byte.
struct PackedIntegers {
  const uint8_t* data = nullptr;
  int bits = 4;  // 4 or 2
  bool is_signed = true;
};

// Writes as many integers as `to` has bytes, signed ones as int8. Reads no byte beyond the last
// one that holds an integer.
void Unpack(const PackedIntegers& from, std::span<uint8_t> to);

// The inverse: the lowest `bits` (4 or 2) of each byte one behind the other. Bits of the last byte
// that hold no integer are 0.
void Pack(std::span<const uint8_t> from, int bits, uint8_t* to);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_UNPACK_H_
