// SPDX-License-Identifier: Apache-2.0
#include "tools/environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

// "QUALM_NAME" in the quotes of a product source, with the file that has it. Macros of the plugin's
// interface are no variables, and QUALM_BENCH_TARGET and the mutants' are no user's.
std::set<std::string> NamesInSources() {
  std::set<std::string> names;
  const std::regex quoted("[\"']((QUALM|NO|GITHUB)_[A-Z_]+[A-Z])[\"']");
  for (const char* const room : {"adapters", "campaign", "core", "fuzz", "properties", "proofs",
                                 "python/qualm", "report", "tools", "triage"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(QUALM_SOURCE_DIR) / room)) {
      const fs::path path = entry.path();
      const std::string name = path.filename().string(), end = path.extension().string();
      if (end != ".cc" && end != ".h" && end != ".py" && end != ".mjs") continue;
      if (name.find("_test") != std::string::npos || name == "broken_plugin.cc" ||
          name == "environment.h") {
        continue;
      }
      std::ifstream file(path);
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      for (std::sregex_iterator found(text.begin(), text.end(), quoted), none; found != none;
           ++found)
        names.insert((*found)[1]);
    }
  }
  names.erase("QUALM_CAN_FLOAT_X");
  return names;
}

TEST(Environment, EveryVariableThatIsReadIsListed) {
  std::set<std::string> listed;
  for (const EnvironmentVariable& variable : kEnvironment) listed.emplace(variable.name);
  EXPECT_EQ(listed.size(), std::size(kEnvironment));
  EXPECT_TRUE(std::ranges::is_sorted(kEnvironment, {}, &EnvironmentVariable::name));
  const std::set<std::string> read = NamesInSources();
  EXPECT_GT(read.size(), 15u);
  for (const std::string& name : read) {
    // QUALM_LITERT_PYTHON is QUALM_NAME_PYTHON.
    if (name != "QUALM_PYTHON" && name.ends_with("_PYTHON")) continue;
    EXPECT_TRUE(listed.contains(name)) << name << " is read and not in tools/environment.h";
  }
  for (const std::string& name : listed) {
    EXPECT_TRUE(read.contains(name) || name == "QUALM_NAME_PYTHON") << name << " is read nowhere";
  }
}

}  // namespace
}  // namespace qualm::tools
