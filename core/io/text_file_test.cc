// SPDX-License-Identifier: Apache-2.0
// Files appear whole: under kills, on a full disk, between writers, and on file systems that have
// less than others (their calls are replaced below).
#include "core/io/text_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/status.h"
#include "core/text_test_util.h"

namespace {
bool links_fail = false, exchange_fails = false;
}  // namespace

// These take the place of the C library's functions. links_fail: a file system where a file without
// name gets none; exchange_fails: one that cannot exchange two names.
extern "C" int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  if (!links_fail)
    return static_cast<int>(syscall(SYS_linkat, from_folder, from, to_folder, to, flags));
  errno = EXDEV;
  return -1;
}
extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned flags) {
  if (!exchange_fails)
    return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  errno = EINVAL;
  return -1;
}

namespace qualm {
namespace {

namespace fs = std::filesystem;
using Set = std::set<std::string>;

// Each test runs twice: with the calls that modern file systems have, and with those calls failing.
class TextFile : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    links_fail = exchange_fails = GetParam();
    fs::create_directories(folder_);
  }
  void TearDown() override {
    links_fail = exchange_fails = false;
    fs::remove_all(folder_);
  }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string Read(const std::string& path) { return ReadTextFile(path, "test", 1 << 26); }
  Set Names(const std::string& below = "") const {
    Set names;
    for (const auto& entry : fs::directory_iterator(folder_ / below))
      names.insert(entry.path().filename().string());
    return names;
  }
  fs::path folder_ =
      fs::path(testing::TempDir()) / ("qualm-text-file-" + std::to_string(::getpid()));
};

TEST_P(TextFile, IsReplacedWhole) {
  const std::string path = Path("a");
  WriteTextFile(path, "one");
  EXPECT_EQ(Read(path), "one");
  ::chmod(path.c_str(), 0604);
  const std::ifstream reader(path);
  WriteTextFile(path, "two");
  EXPECT_EQ(Read(path), "two");
  struct stat status = {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0604u) << "the permissions of the earlier file";
  // A reader that holds the earlier file open reads it to its end.
  EXPECT_EQ((std::ostringstream() << reader.rdbuf()).str(), "one");
  EXPECT_EQ(Names(), Set{"a"});
}

TEST_P(TextFile, LinksAreFollowedAndDevicesStay) {
  fs::create_symlink("target", folder_ / "link");
  fs::create_symlink("link", folder_ / "second");
  for (const char* const text : {"dangling", "not any more"}) {
    WriteTextFile(Path("second"), text);
    EXPECT_TRUE(fs::is_symlink(folder_ / "second") && fs::is_symlink(folder_ / "link"));
    EXPECT_EQ(Read(Path("target")), text);
  }
  fs::create_symlink("/dev/full", folder_ / "full");
  EXPECT_TRUE(Refusal([&] {
                WriteTextFile(Path("full"), "x");
              }).starts_with(Path("full") + ": file: cannot be written (No space"));
  WriteTextFile("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(Names(), (Set{"full", "link", "second", "target"}));
}

TEST_P(TextFile, WhatIsNoFileIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  const auto error = [](const std::string& path) { return Refusal([&] { Read(path); }); };
  EXPECT_EQ(error(Path("pipe")), Path("pipe") + ": file: is no regular file, expected a test file");
  EXPECT_EQ(error("/dev/zero"), "/dev/zero: file: is no regular file, expected a test file");
  EXPECT_EQ(error(Path("")), Path("") + ": file: is a directory, expected a test file");
  EXPECT_EQ(error(Path("none")), Path("none") +
                                     ": file: cannot be opened (No such file or directory), "
                                     "expected a readable test file");
}

TEST_P(TextFile, AFullDiskLeavesTheEarlierFile) {
  const std::string path = Path("a"), other = Path("folder"), long_text(100'000, 'n');
  WriteTextFile(path, "earlier");
  WriteFolder(other, {{"x", "earlier"}});
  struct rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string file_error = Refusal([&] { WriteTextFile(path, long_text); });
  const std::string folder_error = Refusal([&] { WriteFolder(other, {{"x", long_text}}); });
  const std::string new_error = Refusal([&] { WriteFolder(Path("new"), {{"x", long_text}}); });
  setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  const std::string why = ": file: cannot be written (File too large), expected a writable path";
  EXPECT_EQ(file_error, path + why);
  EXPECT_TRUE(folder_error.ends_with(why)) << folder_error;
  EXPECT_TRUE(new_error.ends_with(why)) << new_error;
  EXPECT_EQ(Read(path), "earlier");
  EXPECT_EQ(Read(other + "/x"), "earlier");
  EXPECT_EQ(Names(), (Set{"a", "folder"}));
}

TEST_P(TextFile, FoldersAppearWhole) {
  const std::string path = Path("found");
  WriteFolder(path, {{"case", "1"}, {"small", "1"}, {"empty", ""}});
  EXPECT_EQ(Names("found"), (Set{"case", "small"}));
  // Files that others put into the folder stay; files of ours that the new list lacks go.
  WriteTextFile(path + "/notes", "mine");
  fs::create_directory(path + "/deeper");
  WriteTextFile(path + "/deeper/notes", "mine too");
  WriteFolder(path, {{"case", "2"}, {"small", ""}});
  EXPECT_EQ(Names("found"), (Set{"case", "deeper", "notes"}));
  EXPECT_EQ(Read(path + "/case") + Read(path + "/notes") + Read(path + "/deeper/notes"),
            "2minemine too");
  EXPECT_EQ(Names(), Set{"found"});
  RemoveFolder(path);
  RemoveFolder(path);
  EXPECT_EQ(Names(), Set{});
  EXPECT_TRUE(Refusal([&] {
                WriteFolder(Path("no/where"), {{"case", "1"}});
              }).starts_with(Path("no/where") + ": file: cannot be created"));
}

TEST_P(TextFile, TemporariesOfTheDeadGo) {
  fs::create_directories(folder_ / ".dead.qualm-tmp/deep");
  std::ofstream(Path(".dead-too.qualm-tmp")) << "half";
  std::ofstream(Path(".mine")) << "whole";
  RemoveTemporaries(folder_.string());
  EXPECT_EQ(Names(), Set{".mine"});
  // Temporaries of the dead do not stand in the way of a new writer.
  std::ofstream(Path(".a.qualm-tmp")) << "half of an earlier text";
  fs::create_directories(folder_ / ".b.qualm-tmp/deep");
  WriteTextFile(Path("a"), "whole");
  WriteTextFile(Path("a"), "again");
  WriteFolder(Path("b"), {{"case", "1"}});
  EXPECT_EQ(Read(Path("a")), "again");
  EXPECT_EQ(Names("b"), Set{"case"});
  EXPECT_EQ(Names(), (Set{".mine", "a", "b"}));
  RemoveTemporaries(Path("nowhere"));
}

std::string Long(char letter) { return std::string(200'000, letter); }

// Writes files and folders whose texts repeat one letter, without end.
void WriteForEver(const std::string& folder) {
  for (char letter = 'a';; letter = letter == 'z' ? 'a' : static_cast<char>(letter + 1)) {
    WriteTextFile(folder + "/file", Long(letter));
    WriteFolder(folder + "/found", {{"one", Long(letter)}, {"two", Long(letter)}});
    RemoveFolder(folder + "/new-" + letter);
    WriteFolder(folder + "/new-" + letter, {{"one", Long(letter)}, {"two", Long(letter)}});
  }
}

// Expects every file to have its full length and one letter, the same in both files of a folder.
void ExpectWhole(const fs::path& folder) {
  const auto text = [](const fs::path& path) {
    return ReadTextFile(path.string(), "test", 1 << 20);
  };
  const auto whole = [](const std::string& read) {
    return read == Long(read.empty() ? 'a' : read[0]);
  };
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (IsTemporary(entry.path().filename().string())) continue;
    if (!entry.is_directory()) {
      EXPECT_TRUE(whole(text(entry.path()))) << entry.path();
    } else {
      const std::string one = text(entry.path() / "one");
      EXPECT_TRUE(whole(one) && one == text(entry.path() / "two")) << entry.path();
    }
  }
}

TEST_P(TextFile, KillsLeaveNothingHalf) {
  int temporaries = 0;
  for (int round = 0; round < 60; ++round) {
    const pid_t writer = ::fork();
    ASSERT_GE(writer, 0);
    if (writer == 0) WriteForEver(folder_.string());
    ::usleep(static_cast<useconds_t>(500 + round * 300));
    ::kill(writer, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(writer, &status, 0), writer);
    EXPECT_TRUE(WIFSIGNALED(status));
    ExpectWhole(folder_);
    for (const std::string& name : Names()) temporaries += IsTemporary(name) ? 1 : 0;
  }
  RecordProperty("temporaries", temporaries);
  RemoveTemporaries(folder_.string());
  for (const std::string& name : Names()) EXPECT_FALSE(IsTemporary(name)) << name;
  EXPECT_TRUE(fs::exists(folder_ / "file"));
}

TEST_P(TextFile, WritersOfOneNameDoNotDisturbEachOther) {
  std::vector<std::thread> writers;
  for (char letter = 'a'; letter < 'e'; ++letter) {
    writers.emplace_back([&, letter] {
      for (int round = 0; round < 15; ++round) {
        WriteTextFile(Path("file"), Long(letter));
        WriteFolder(Path("found"), {{"one", Long(letter)}, {"two", Long(letter)}});
        RemoveTemporaries(folder_.string());  // as a run does that begins meanwhile
        RemoveFolder(Path("removed"));
        WriteFolder(Path("removed"), {{"one", Long(letter)}, {"two", Long(letter)}});
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  ExpectWhole(folder_);
  EXPECT_EQ(Names(), (Set{"file", "found", "removed"}));
}

INSTANTIATE_TEST_SUITE_P(FileSystems, TextFile, testing::Bool(), [](const auto& instance) {
  return instance.param ? "withoutUnnamedFiles" : "modern";
});

}  // namespace
}  // namespace qualm
