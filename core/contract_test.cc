// SPDX-License-Identifier: Apache-2.0
#include "core/contract.h"

#include <gtest/gtest.h>

#include "core/status.h"
#include "core/subject.h"

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

TEST(Refused, NamesTheFirstStateThatASubjectCannotBeGiven) {
  StateLimits limits{};
  limits[3] = {"has no strides", 4};  // x_row_gap
  limits[13] = {"has one thread"};    // threads
  EXPECT_EQ(Refused(limits, {}), "");
  EXPECT_EQ(Refused(limits, {.align_offset = 1, .poison = 3}), "");
  EXPECT_EQ(Refused(limits, {.x_row_gap = 1, .threads = 2}), "has no strides");
  EXPECT_EQ(Refused(limits, {.x_row_gap = 1, .threads = 2}, 4), "has one thread");
  EXPECT_EQ(Refused(limits, {.x_row_gap = 1}, 6), "");
}

}  // namespace
}  // namespace qualm
