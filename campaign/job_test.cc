// SPDX-License-Identifier: Apache-2.0
#include "campaign/job.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "core/io/text_file.h"

namespace qualm::campaign {
namespace {

std::string WordsOf(const std::string& log) {
  const std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / ("qualm-words-" + std::to_string(::getpid()));
  WriteTextFile(file.string(), log);
  std::string words = LastWords(file.string());
  std::filesystem::remove(file);
  return words;
}

TEST(Job, LastWordsSayWhyItEnded) {
  const std::string many(5000, '.');
  const std::string died = WordsOf(many + "\nqualm: reference.cc:330: internal check failed\n" +
                                   "==42== ERROR: libFuzzer: deadly signal\n" + many);
  EXPECT_EQ(died.find("qualm: reference.cc:330: internal check failed\n==42== ERROR: "), 0u)
      << died;
  EXPECT_EQ(died.size(), 400u);
  EXPECT_EQ(WordsOf("==42==ERROR: AddressSanitizer: heap-use-after-free\n"),
            "==42==ERROR: AddressSanitizer: heap-use-after-free\n");
  EXPECT_EQ(WordsOf("qualm: started\n" + many + "\nno such subject\n").find("no such subject"),
            384u);
  EXPECT_EQ(WordsOf("short"), "short");
}

}  // namespace
}  // namespace qualm::campaign
