// SPDX-License-Identifier: Apache-2.0
#include "core/io/short_path.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace qualm {
namespace {

TEST(ShortPath, IsRelativeWhereThatIsShorter) {
  EXPECT_EQ(ShortPath("/home/me/work/out/a.json", "/home/me/work"), "out/a.json");
  EXPECT_EQ(ShortPath("/home/me/work/out/a.json", "/home/me/work/out"), "a.json");
  EXPECT_EQ(ShortPath("/home/me/lib/a.json", "/home/me/work"), "../lib/a.json");
  EXPECT_EQ(ShortPath("/tmp/a.json", "/home/me/work"), "/tmp/a.json");
  EXPECT_EQ(ShortPath("/home/me/work", "/home/me/work"), ".");
  EXPECT_EQ(ShortPath("/home/me/workbench/a", "/home/me/work"), "../workbench/a");
}

TEST(ShortPath, KeepsWhatIsRelativeOrUnclear) {
  for (const char* path : {"", "a.json", "./a.json", "../a.json", "-"}) {
    EXPECT_EQ(ShortPath(path, "/home/me"), path);
  }
  EXPECT_EQ(ShortPath("/home/me/link/../a.json", "/home/me"), "/home/me/link/../a.json");
  EXPECT_EQ(ShortPath("/home/me/a.json", ""), "/home/me/a.json");  // the folder is gone
}

TEST(ShortPath, OfAProgramHasASlash) {
  EXPECT_EQ(ShortProgram("/home/me/mine.so", "/home/me"), "./mine.so");
  EXPECT_EQ(ShortProgram("/home/me/build/mine.so", "/home/me"), "build/mine.so");
  EXPECT_EQ(ShortProgram("mine.so", "/home/me"), "mine.so");
  EXPECT_EQ(ShortProgram("/opt/mine.so", "/home/me/work"), "/opt/mine.so");
}

TEST(ShortPath, StartsFromTheCurrentFolder) {
  const std::filesystem::path here = std::filesystem::current_path();
  EXPECT_EQ(ShortPath((here / "a.json").string()), "a.json");
  EXPECT_EQ(ShortProgram((here / "mine.so").string()), "./mine.so");
}

}  // namespace
}  // namespace qualm
