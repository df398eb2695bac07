// SPDX-License-Identifier: Apache-2.0
#include "core/content_name.h"

#include <cstdint>

namespace qualm {

std::string ContentName(std::string_view bytes) {
  using Hash = unsigned __int128;
  constexpr Hash kPrime = (Hash{1} << 88) + 0x13B;
  Hash hash = (Hash{0x6C62272E07BB0142} << 64) + 0x62B821756295C58D;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * kPrime;
  std::string name;
  for (int shift = 124; shift >= 0; shift -= 4) {
    name += "0123456789abcdef"[static_cast<unsigned>(hash >> shift) & 15];
  }
  return name;
}

}  // namespace qualm
