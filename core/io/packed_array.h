// SPDX-License-Identifier: Apache-2.0
// Arrays that a recording keeps short: base64 of zlib of the elements, little endian
// (corpus/golden/README.md).
#ifndef QUALM_CORE_IO_PACKED_ARRAY_H_
#define QUALM_CORE_IO_PACKED_ARRAY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace qualm {

// The bytes, exactly `size` of them. Throws InputError without a place: "not base64", "not zlib",
// "holds another number of bytes than dtype and shape say". Allocates at most some thousand times
// what it is given.
std::string Unpack(std::string_view text, size_t size);

std::string ToBase64(std::span<const uint8_t> bytes);

}  // namespace qualm

#endif  // QUALM_CORE_IO_PACKED_ARRAY_H_
