// SPDX-License-Identifier: Apache-2.0
#include "core/io/short_path.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

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
  ::setenv("PWD", here.c_str(), 1);  // ctest leaves that of its caller
  EXPECT_EQ(ShortPath((here / "a.json").string()), "a.json");
  EXPECT_EQ(ShortProgram((here / "mine.so").string()), "./mine.so");
}

TEST(ShortPath, StartsFromTheFolderOfTheShell) {
  const std::filesystem::path here = std::filesystem::current_path();
  const char* const pwd = std::getenv("PWD");
  const std::string before = pwd == nullptr ? "" : pwd;
  const std::string name = here.filename().string();
  ::setenv("PWD", here.parent_path().c_str(), 1);
  EXPECT_EQ(ShortPath((here / "a.json").string()), name + "/a.json");
  EXPECT_EQ(ShortPath("out/a.json"), name + "/out/a.json");
  EXPECT_EQ(ShortProgram("./mine.so"), name + "/mine.so");
  EXPECT_EQ(ShortProgram("qualm"), "qualm");  // one of PATH
  EXPECT_EQ(ShortSubject("plugin:./mine.so"), "plugin:" + name + "/mine.so");
  EXPECT_EQ(ShortSubject("native@avx2"), "native@avx2");
  for (const char* const nothing : {"/no/such/folder", "relative", here.c_str()}) {
    ::setenv("PWD", nothing, 1);
    EXPECT_EQ(ShortPath("out/a.json"), "out/a.json") << nothing;
    EXPECT_EQ(ShortSubject("plugin:./mine.so"), "plugin:./mine.so") << nothing;
  }
  ::setenv("PWD", before.c_str(), 1);
}

}  // namespace
}  // namespace qualm
