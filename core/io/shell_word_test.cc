// SPDX-License-Identifier: Apache-2.0
#include "core/io/shell_word.h"

#include <gtest/gtest.h>

namespace qualm {
namespace {

TEST(ShellWord, IsQuotedOnlyWhereAShellWouldChangeIt) {
  EXPECT_EQ(ShellWord("model:fbgemm@avx2"), "model:fbgemm@avx2");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("two words"), "'two words'");
  EXPECT_EQ(ShellWord("$HOME*"), "'$HOME*'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
}

TEST(ShellWord, StaysOneLine) {
  EXPECT_EQ(ShellWord("a\nb"), "$'a\\012b'");
  EXPECT_EQ(ShellWord("\x7F\\'"), "$'\\177\\\\\\''");
}

}  // namespace
}  // namespace qualm
