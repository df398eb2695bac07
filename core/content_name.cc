// SPDX-License-Identifier: Apache-2.0
#include "core/content_name.h"

#include <cstdint>

namespace qualm {
namespace {

template <class Hash>
std::string Fnv1a(std::string_view bytes, Hash hash, Hash prime) {
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * prime;
  std::string name;
  for (int shift = 8 * int{sizeof(Hash)} - 4; shift >= 0; shift -= 4) {
    name += "0123456789abcdef"[static_cast<unsigned>(hash >> shift) & 15];
  }
  return name;
}

}  // namespace

std::string ContentName(std::string_view bytes) {
  using Hash = unsigned __int128;
  return Fnv1a<Hash>(bytes, (Hash{0x6C62272E07BB0142} << 64) + 0x62B821756295C58D,
                     (Hash{1} << 88) + 0x13B);
}

std::string ShortContentName(std::string_view bytes) {
  return Fnv1a<uint64_t>(bytes, 0xCBF29CE484222325, 0x100000001B3);
}

}  // namespace qualm
