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
  EXPECT_EQ(shown, 2);
}

TEST_F(Pages, OnlyConventionsAndVariationsAreTables) {
  ExpectBadInput({"list", "ops", "--markdown"}, "--markdown: ");
}

}  // namespace
}  // namespace qualm::tools
