// SPDX-License-Identifier: Apache-2.0
// Runs the real command in a folder of its own. For tests only.
#ifndef QUALM_TOOLS_RUN_QUALM_TEST_UTIL_H_
#define QUALM_TOOLS_RUN_QUALM_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <source_location>
#include <string>
#include <vector>

#include "core/io/json_schema_test_util.h"
#include "core/process.h"
#include "core/text_test_util.h"

namespace qualm::tools {

// A JUnit document without the seconds, which differ from run to run.
std::string WithoutSeconds(const std::string& junit);

struct Ran {
  int status = -1;  // exit status; 128 + signal
  std::string out;
  std::string err;
};

// Every test runs in an empty folder that is removed after it.
class QualmTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // `environment`: "NAME=value" added to ours.
  Ran Qualm(const std::vector<std::string>& arguments,
            const std::vector<std::string>& environment = {});
  // The same, with the exit status that the test expects.
  Ran Qualm(int status, const std::vector<std::string>& arguments,
            const std::vector<std::string>& environment = {},
            std::source_location where = std::source_location::current());
  // Starts the command, whose output nobody reads.
  Process StartQualm(std::vector<std::string> arguments) const;
  // `path`: folders to look for programs in before all others.
  Ran Shell(const std::string& command, const std::string& path = "");
  // The one valid document that stdout must hold, and nothing else.
  test::Json Document(const Ran& ran);
  // Exit status 2, nothing on stdout and one line on stderr that begins so.
  void ExpectBadInput(const std::vector<std::string>& arguments, const std::string& begins);

  std::filesystem::path folder() const { return folder_; }
  // A file of that text in the folder; returns its path.
  std::string Write(const std::string& name, const std::string& text);
  std::string Read(const std::string& name) const;
  test::Json ReadJson(const std::string& name) const { return test::Json::parse(Read(name)); }

 private:
  Ran Run(const std::vector<std::string>& words, const std::vector<std::string>& environment);
  Process Start(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                const std::string& out, const std::string& err) const;
  std::filesystem::path folder_;
};

// A list of suppressions (--suppressions) of these fingerprints, until the end of June 2027.
test::Json Suppressions(const std::set<std::string>& fingerprints);
std::vector<std::string> Lines(const std::string& text);
// The text of a file of the source tree; fails the test where there is none.
std::string ReadSource(const std::string& name);
// A file of the corpus.
std::string Corpus(const std::string& name);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_RUN_QUALM_TEST_UTIL_H_
