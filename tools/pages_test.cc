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
      const Ran ran = Qualm(0, arguments);
      EXPECT_EQ(Lines(ran.out), std::vector<std::string>(line + 1, last))
          << page.path() << " is behind; run: scripts/tables";
      ++shown;
    }
  }
  EXPECT_EQ(shown, 4);
}

// [text](path) leads to a file of the repository.
TEST(PageLinks, LeadSomewhere) {
  namespace fs = std::filesystem;
  std::vector<fs::path> pages{QUALM_SOURCE_DIR "/README.md", QUALM_SOURCE_DIR "/CONTRIBUTING.md",
                              QUALM_SOURCE_DIR "/CHANGELOG.md",
                              QUALM_SOURCE_DIR "/kernels/README.md"};
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

// The cells of the table under a heading of a page, without its head.
std::vector<std::vector<std::string>> TableUnder(const std::string& page,
                                                 const std::string& heading) {
  std::ifstream file(page, std::ios::binary);
  std::vector<std::vector<std::string>> rows;
  std::string line;
  while (std::getline(file, line) && line != heading) continue;
  while (std::getline(file, line) && !line.starts_with("|")) continue;
  for (; line.starts_with("|"); std::getline(file, line)) {
    std::istringstream text(line.substr(1));
    rows.emplace_back();
    for (std::string cell; std::getline(text, cell, '|');) rows.back().push_back(cell);
  }
  if (rows.size() > 2) rows.erase(rows.begin(), rows.begin() + 2);
  return rows;
}

// What stands between backquotes.
std::vector<std::string> Quoted(const std::string& text) {
  std::vector<std::string> result;
  for (size_t at = text.find('`'); at != std::string::npos; at = text.find('`', at + 1)) {
    const size_t begin = at + 1;
    at = text.find('`', begin);
    result.push_back(text.substr(begin, at - begin));
  }
  return result;
}

TEST_F(Pages, NameTheInnerLoopOfEveryOperation) {
  namespace fs = std::filesystem;
  std::vector<std::string> listed, named;
  for (const std::string& line : Lines(Qualm({"list", "ops"}).out))
    listed.push_back(line.substr(0, line.find(' ')));
  for (const std::vector<std::string>& row :
       TableUnder(QUALM_SOURCE_DIR "/kernels/README.md", "## Inner loops")) {
    ASSERT_EQ(row.size(), 4);
    std::istringstream operations(row[0]);
    for (std::string word; operations >> word;) {
      if (word.ends_with(',')) word.pop_back();
      named.push_back(word);
    }
    for (size_t i = 1; i < row.size(); ++i) {
      EXPECT_FALSE(Quoted(row[i]).empty()) << row[0] << ": no file in '" << row[i] << "'";
      for (const std::string& path : Quoted(row[i]))
        EXPECT_TRUE(fs::is_regular_file(fs::path(QUALM_SOURCE_DIR "/kernels") / path)) << path;
    }
  }
  std::ranges::sort(listed);
  std::ranges::sort(named);
  EXPECT_EQ(named, listed);
}

// Not its includes: a reader who comes from the table learns first what the file computes, and why
// that is exact.
TEST(KernelFiles, BeginWithWhatTheyCompute) {
  namespace fs = std::filesystem;
  int64_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(QUALM_SOURCE_DIR "/kernels")) {
    if (entry.path().extension() != ".cc") continue;
    const std::string name = entry.path().stem().string();
    if (name.ends_with("_test") || name.ends_with("_testing")) continue;
    std::ifstream file(entry.path());
    std::string licence, first;
    std::getline(file, licence);
    std::getline(file, first);
    EXPECT_TRUE(Begins(first, "// ")) << entry.path() << " begins with: ";
    ++files;
  }
  EXPECT_GT(files, 30);
}

// The table of docs/triage.md names the passes of minimization as kPasses does, in its order.
TEST(TriagePage, NamesEveryPassInItsOrder) {
  std::ifstream file(QUALM_SOURCE_DIR "/triage/passes.cc", std::ios::binary);
  const std::string source{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string begin = "constexpr Pass kPasses[] = {";
  const size_t at = source.find(begin);
  ASSERT_NE(at, std::string::npos);
  const size_t first = at + begin.size();
  std::string list = source.substr(first, source.find('}', first) - first);
  std::ranges::replace(list, ',', ' ');
  std::istringstream words(list);
  const std::vector<std::string> passes{std::istream_iterator<std::string>(words), {}};
  std::vector<std::string> named;
  for (const std::vector<std::string>& row :
       TableUnder(QUALM_SOURCE_DIR "/docs/triage.md", "## How a case becomes small")) {
    for (const std::string& pass : Quoted(row[0])) named.push_back(pass);
  }
  EXPECT_EQ(named, passes);
  EXPECT_GT(passes.size(), 10u);
}

TEST_F(Pages, OnlyConventionsAndVariationsAreTables) {
  ExpectBadInput({"list", "ops", "--markdown"}, "--markdown: ");
}

}  // namespace
}  // namespace qualm::tools
