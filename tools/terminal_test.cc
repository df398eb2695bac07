// SPDX-License-Identifier: Apache-2.0
#include "tools/terminal.h"

#include <gtest/gtest.h>

#include <string>

namespace qualm::tools {
namespace {

TEST(Terminal, LongLinesGoOnBeneathWhatTheyBeganWith) {
  EXPECT_EQ(Wrapped("one two three four\n", 9), "one two\n  three\n  four\n");
  EXPECT_EQ(Wrapped("  one two three", 9), "  one two\n    three");
  EXPECT_EQ(Wrapped("a    one two three\nb    four\n", 10),
            "a    one\n     two\n     three\nb    four\n");
  // The second column is too far to the right to leave room.
  EXPECT_EQ(Wrapped("long-name  one two\n", 12), "long-name\n  one two\n");
  // What fits stays as it is, and so do a word that never fits and spaces inside a row.
  EXPECT_EQ(Wrapped("one  two\n\nthree\n", 8), "one  two\n\nthree\n");
  EXPECT_EQ(Wrapped("a-long-word\n", 4), "a-long-word\n");
  EXPECT_EQ(Wrapped("a  b  c d e\n", 8), "a  b  c\n   d e\n");
  EXPECT_EQ(Wrapped("äöü äöü äöü\n", 7), "äöü äöü\n  äöü\n");
  EXPECT_EQ(Wrapped("one two\n", 0), "one two\n");
}

TEST(Terminal, LinesToCopyStayWhole) {
  for (const std::string line :
       {"{\"op\": \"linear\", \"M\": 1}\n", "  \"note\": \"one two three\"\n",
        "  next: qualm explain small.case.json\n", "        qualm replay small.case.json\n"}) {
    EXPECT_EQ(Wrapped(line, 12), line);
  }
  EXPECT_EQ(Wrapped("cases of qualm are small\n", 12), "cases of\n  qualm are\n  small\n");
}

}  // namespace
}  // namespace qualm::tools
