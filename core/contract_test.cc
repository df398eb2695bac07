// SPDX-License-Identifier: Apache-2.0
#include "core/contract.h"

#include <gtest/gtest.h>

#include "core/status.h"

namespace qualm {
namespace {

TEST(Contract, ReadsItsOwnText) {
  for (const char* text : {"exact", "model:fbgemm@avx2"}) {
    EXPECT_EQ(ParseContract(text).text(), text);
  }
  EXPECT_TRUE(ParseContract("exact").exact());
  EXPECT_EQ(ParseContract("model:fbgemm@avx2").convention, "fbgemm@avx2");
}

TEST(Contract, RefusesAnythingElse) {
  for (const char* text : {"", "Exact", "exact ", "model", "model:", "within 1 lsb"}) {
    EXPECT_THROW(ParseContract(text), InputError) << text;
  }
}

}  // namespace
}  // namespace qualm
