// SPDX-License-Identifier: Apache-2.0
#include "tools/run_qualm_test_util.h"

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <utility>

namespace qualm::tools {
namespace {

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

std::string WithoutSeconds(const std::string& junit) {
  static const std::regex time(" time=\"[0-9.]+\"");
  return std::regex_replace(junit, time, "");
}

void QualmTest::SetUp() {
  std::string pattern = (std::filesystem::temp_directory_path() / "qualm-test-XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
}

void QualmTest::TearDown() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Ran QualmTest::Qualm(const std::vector<std::string>& arguments,
                     const std::vector<std::string>& environment) {
  std::vector<std::string> words{QUALM_BINARY_DIR "/bin/qualm"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return Run(words, environment);
}

Ran QualmTest::Qualm(int status, const std::vector<std::string>& arguments,
                     const std::vector<std::string>& environment, std::source_location where) {
  Ran ran = Qualm(arguments, environment);
  const testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()),
                                   testing::PrintToString(arguments));
  EXPECT_EQ(ran.status, status) << ran.out << ran.err;
  return ran;
}

Ran QualmTest::Shell(const std::string& command, const std::string& path) {
  const std::string first = path.empty() ? "" : "'" + path + "':";
  return Run({"/bin/sh", "-c",
              "PATH=" + first + "'" QUALM_BINARY_DIR "/bin':\"$PATH\"; export PATH\n" + command},
             {});
}

test::Json QualmTest::Document(const Ran& ran) {
  const test::Json document = test::Json::parse(ran.out, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << ran.out.substr(0, 400);
  if (document.is_discarded()) return test::Json::object();
  const test::Json schema = test::ReadJsonFile(QUALM_SOURCE_DIR "/core/io/result.schema.json");
  EXPECT_EQ(test::JsonSchema(schema).Check(document), "");
  return document;
}

void QualmTest::ExpectBadInput(const std::vector<std::string>& arguments,
                               const std::string& begins) {
  const Ran ran = Qualm(arguments);
  EXPECT_EQ(ran.status, 2) << testing::PrintToString(arguments) << "\n" << ran.err;
  EXPECT_EQ(ran.out, "") << testing::PrintToString(arguments);
  const std::vector<std::string> lines = Lines(ran.err);
  ASSERT_EQ(lines.size(), 1u) << testing::PrintToString(arguments) << "\n" << ran.err;
  EXPECT_TRUE(lines[0].starts_with("qualm: " + begins)) << lines[0] << "\nwant: " << begins;
}

Ran QualmTest::Run(const std::vector<std::string>& words,
                   const std::vector<std::string>& environment) {
  // Outside the folder, because the files that the command leaves in it are under test.
  const std::string out = folder_.string() + ".out", err = folder_.string() + ".err";
  const int status = Start(words, environment, out, err).Wait();
  Ran ran;
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ran.out = ReadAll(out);
  ran.err = ReadAll(err);
  std::filesystem::remove(out);
  std::filesystem::remove(err);
  return ran;
}

Process QualmTest::Start(const std::vector<std::string>& words,
                         const std::vector<std::string>& environment, const std::string& out,
                         const std::string& err) const {
  Process::Setting setting{{}, out, err, folder_.string()};
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    setting.environment.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return Process::Start(words, setting);
}

Process QualmTest::StartQualm(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), QUALM_BINARY_DIR "/bin/qualm");
  return Start(arguments, {}, "/dev/null", "/dev/null");
}

std::string QualmTest::Write(const std::string& name, const std::string& text) {
  const std::string path = (folder_ / name).string();
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string QualmTest::Read(const std::string& name) const { return ReadAll(folder_ / name); }

test::Json Suppressions(const std::set<std::string>& fingerprints) {
  test::Json list = test::Json::array();
  for (const std::string& fingerprint : fingerprints) {
    list.push_back(
        {{"fingerprint", fingerprint}, {"reason", "issue 7"}, {"expires", "2027-06-30"}});
  }
  return {{"schema", "qualm.suppressions/1"}, {"suppressions", list}};
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string ReadSource(const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(QUALM_SOURCE_DIR) / name;
  EXPECT_TRUE(std::filesystem::is_regular_file(path)) << path;
  return ReadAll(path);
}

std::string Corpus(const std::string& name) { return QUALM_SOURCE_DIR "/corpus/" + name; }

}  // namespace qualm::tools
