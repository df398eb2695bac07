// SPDX-License-Identifier: Apache-2.0
// A page of docs/ that shows what the command prints, between <!-- qualm ARGUMENTS --> and
// <!-- end -->, shows what it prints today.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

class Pages : public QualmTest {};

TEST_F(Pages, ShowWhatTheCommandPrints) {
  const std::string begin = "<!-- qualm ", end = " -->";
  int64_t shown = 0;
  for (const auto& page : std::filesystem::directory_iterator(QUALM_SOURCE_DIR "/docs")) {
    if (page.path().extension() != ".md") continue;
    std::ifstream file(page.path(), std::ios::binary);
    const std::vector<std::string> lines =
        Lines({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
    for (auto line = lines.begin(); line != lines.end(); ++line) {
      if (!line->starts_with(begin)) continue;
      std::istringstream text(line->substr(begin.size(), line->size() - begin.size() - end.size()));
      const std::vector<std::string> arguments{std::istream_iterator<std::string>(text), {}};
      const auto last = std::find(line, lines.end(), "<!-- end -->");
      ASSERT_NE(last, lines.end()) << page.path() << ": " << *line << " has no end";
      const Ran ran = Qualm(arguments);
      EXPECT_EQ(ran.status, 0) << ran.err;
      EXPECT_EQ(Lines(ran.out), std::vector<std::string>(line + 1, last))
          << page.path() << " is behind; run: scripts/tables";
      ++shown;
    }
  }
  EXPECT_EQ(shown, 3);
}

// [text](path) leads to a file of the repository.
TEST(PageLinks, LeadSomewhere) {
  namespace fs = std::filesystem;
  std::vector<fs::path> pages{QUALM_SOURCE_DIR "/README.md", QUALM_SOURCE_DIR "/CONTRIBUTING.md"};
  for (const auto& page : fs::directory_iterator(QUALM_SOURCE_DIR "/docs")) {
    if (page.path().extension() == ".md") pages.push_back(page.path());
  }
  int64_t links = 0;
  for (const fs::path& page : pages) {
    std::ifstream file(page, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    for (size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 2)) {
      const size_t end = text.find(')', at);
      std::string path = text.substr(at + 2, end - at - 2);
      path = path.substr(0, path.find('#'));
      // On this page, on the web, or a lambda of an example.
      if (path.empty() || path.find_first_of(": &") != std::string::npos) continue;
      EXPECT_TRUE(fs::exists(page.parent_path() / path)) << page << ": " << path;
      ++links;
    }
  }
  EXPECT_GT(links, 30);
}

TEST_F(Pages, OnlyConventionsAndVariationsAreTables) {
  ExpectBadInput({"list", "ops", "--markdown"}, "--markdown: ");
}

}  // namespace
}  // namespace qualm::tools
