// SPDX-License-Identifier: Apache-2.0
#include "core/memory_limit.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/status.h"

namespace qualm {
namespace {

TEST(MemoryLimit, IsReadExactly) {
  for (const auto& [text, bytes] :
       std::vector<std::pair<const char*, uint64_t>>{{"64M", uint64_t{64} << 20},
                                                     {"65536K", uint64_t{64} << 20},
                                                     {"67108864", uint64_t{64} << 20},
                                                     {"4G", uint64_t{4} << 30},
                                                     {"1024G", uint64_t{1} << 40}}) {
    EXPECT_EQ(ParseMemoryLimit(text, "--memory"), bytes) << text;
  }
}

TEST(MemoryLimit, WhatIsNoneIsRefused) {
  for (const std::string text : {"", "M", "4g", "4 G", "-1G", "1.5G", "63M", "67108863", "1025G",
                                 "18446744073709551615G", "99999999999999999999", "0x40000000"}) {
    try {
      ParseMemoryLimit(text, "--memory");
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_EQ(error.what(), "--memory: '" + text +
                                  "' is no size of memory, expected 64M to 1024G, as 512M or 4G");
    }
  }
}

}  // namespace
}  // namespace qualm
