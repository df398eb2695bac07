// SPDX-License-Identifier: Apache-2.0
// Vectors and the rest give what the definition gives, on every target and for every length.
#include "kernels/unpack.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/targets.h"

namespace qualm::kernels {
namespace {

TEST(Unpack, IsTheDefinitionAndPackItsInverse) {
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    for (const int bits : {4, 2}) {
      const size_t per_byte = 8 / static_cast<size_t>(bits);
      for (size_t length = 0; length < 600; ++length) {
        std::vector<uint8_t> packed((length + per_byte - 1) / per_byte);
        for (size_t i = 0; i < packed.size(); ++i)
          packed[i] = static_cast<uint8_t>(37 * i + length);
        for (const bool is_signed : {false, true}) {
          std::vector<uint8_t> expected, codes(length);
          for (size_t i = 0; i < length; ++i) {
            int code = packed[i / per_byte] >> (i % per_byte * static_cast<size_t>(bits));
            code &= (1 << bits) - 1;
            if (is_signed && code >> (bits - 1) != 0) code -= 1 << bits;
            expected.push_back(static_cast<uint8_t>(code));
          }
          Unpack({packed.data(), bits, is_signed}, codes);
          ASSERT_EQ(codes, expected) << target << " " << bits << " bits, " << length;
          std::vector<uint8_t> again(packed.size());
          Pack(codes, bits, again.data());
          // Bits behind the last integer are 0.
          if (const size_t rest = length % per_byte; rest != 0)
            packed.back() &= static_cast<uint8_t>((1 << rest * static_cast<size_t>(bits)) - 1);
          ASSERT_EQ(again, packed) << target << " " << bits << " bits, " << length;
        }
      }
    }
  }
}

}  // namespace
}  // namespace qualm::kernels
