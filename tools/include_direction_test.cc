// SPDX-License-Identifier: Apache-2.0
// The house rule of docs/architecture.md as a test: which folder may include which. A line in the
// wrong room is found here, not in review.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::set<std::string>> kMayInclude{
    {"core", {"core"}},
    {"kernels", {"kernels"}},
    {"oracles", {"oracles", "core"}},
    {"adapters", {"adapters", "core"}},
    {"properties", {"properties", "oracles", "core"}},
    {"triage", {"triage", "properties", "oracles", "core"}},
    {"proofs", {"proofs", "properties", "oracles", "core"}},
    {"models", {"models", "triage", "properties", "oracles", "core"}},
    {"fuzz", {"fuzz", "triage", "properties", "oracles", "core"}},
    {"campaign", {"campaign", "fuzz", "triage", "properties", "oracles", "core"}},
    {"exporters", {"exporters", "triage", "properties", "oracles", "core"}},
    {"report",
     {"report", "exporters", "models", "proofs", "triage", "properties", "oracles", "core"}},
    {"tools",
     {"tools", "report", "exporters", "campaign", "fuzz", "models", "proofs", "triage",
      "properties", "oracles", "core"}},
    {"python", {"python", "report", "models", "proofs", "triage", "properties", "oracles", "core"}},
    {"bench", {"bench", "kernels"}},
    {"examples", {}},  // programs of users: installed headers in angle brackets only
};

// Single lines that the table above would forbid, and why they are right.
bool IsAllowedException(const std::string& file, const std::string& included) {
  if (included == "adapters/registry.h") return true;  // how an executable gets its subjects
  if (file == "adapters/native.cc") return included.starts_with("kernels/");
  if (file == "adapters/conventions.cc") return included.starts_with("oracles/conventions/");
  // A planted fault of arithmetic is a cause that is applied to the exact computation.
  if (file.starts_with("adapters/faulty/") && !file.ends_with("_test.cc"))
    return included == "triage/causes.h" || included == "triage/stages.h" ||
           included == "oracles/exact/evaluate.h";
  // A Python function is a thing under test, with the limits, the blocks and the places of data of
  // adapters.
  if (file.starts_with("python/native/subject.") || file == "python/native/case_object.h")
    return included == "adapters/host/plugin_limits.h" || included == "adapters/host/placement.h" ||
           included == "adapters/host/block_formats.h" || included == "adapters/qualm_plugin.h";
  // What oneDNN 2 and 3 take differently stands once.
  if (file == "bench/onednn.cc") return included == "adapters/libraries/onednn/ops.h";
  // The binding for GoogleTest prints a failure minimized and explained.
  if (file == "properties/suite.cc" || file == "properties/rapidcheck_test.cc")
    return included.starts_with("triage/");
  return false;
}

// Angle-bracket includes that make a file depend on a library; the rest is the standard library.
std::string ThirdParty(const std::string& header) {
  static const std::map<std::string, std::string> kPrefixes{{"boost/", "boost"},
                                                            {"hwy/", "highway"},
                                                            {"nlohmann/", "json"},
                                                            {"fmt/", "fmt"},
                                                            {"CLI/", "CLI11"},
                                                            {"dnnl", "oneDNN"},
                                                            {"oneapi/", "oneDNN"},
                                                            {"xnnpack", "XNNPACK"},
                                                            {"gemmlowp", "gemmlowp"},
                                                            {"mpfr", "MPFR"},
                                                            {"protozero/", "protozero"},
                                                            {"xxhash", "xxHash"},
                                                            {"zlib", "zlib"},
                                                            {"fbgemm/", "FBGEMM"},
                                                            {"ruy/", "ruy"},
                                                            {"benchmark/", "Google Benchmark"},
                                                            {"pybind11/", "pybind11"}};
  for (const auto& [prefix, name] : kPrefixes) {
    if (header.starts_with(prefix)) return name;
  }
  return "";
}

struct Include {
  std::string file;  // relative to the root
  int line = 0;
  std::string header;
  bool quoted = false;
};

std::vector<Include> AllIncludes() {
  const fs::path root(QUALM_SOURCE_DIR);
  std::vector<Include> includes;
  for (const auto& [folder, unused] : kMayInclude) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".hpp" && extension != ".cc" && extension != ".c")
        continue;
      std::ifstream file(entry.path());
      std::string line;
      for (int number = 1; std::getline(file, line); ++number) {
        if (!line.starts_with("#include ") || line.size() < 12) continue;
        const char close = line[9] == '"' ? '"' : '>';
        const size_t end = line.find(close, 10);
        if (end == std::string::npos) continue;  // a macro, as Highway's foreach_target uses
        includes.push_back({fs::relative(entry.path(), root).string(), number,
                            line.substr(10, end - 10), line[9] == '"'});
      }
    }
  }
  return includes;
}

std::string FolderOf(const std::string& path) { return path.substr(0, path.find('/')); }

TEST(IncludeDirection, NothingPointsBack) {
  const std::vector<Include> includes = AllIncludes();
  ASSERT_GT(includes.size(), 200u) << "the scan found too little to mean anything";
  for (const Include& include : includes) {
    const std::string target = FolderOf(include.header);
    if (!include.quoted || !kMayInclude.contains(target)) continue;
    if (kMayInclude.at(FolderOf(include.file)).contains(target)) continue;
    EXPECT_TRUE(IsAllowedException(include.file, include.header))
        << include.file << ":" << include.line << " includes " << include.header;
  }
}

TEST(IncludeDirection, QuotedIncludesNameTheFolder) {
  const fs::path root(QUALM_SOURCE_DIR);
  for (const Include& include : AllIncludes()) {
    if (!include.quoted || include.header.starts_with("hwy/")) continue;
    if (FolderOf(include.file) == "examples") continue;  // their own files
    EXPECT_TRUE(fs::exists(root / include.header))
        << include.file << ":" << include.line << ": \"" << include.header
        << "\" is no path from the root";
  }
}

// <qualm/FOLDER/NAME.h> is FOLDER/NAME.h, installed.
TEST(IncludeDirection, ExamplesIncludeInstalledHeaders) {
  const fs::path root(QUALM_SOURCE_DIR);
  int installed = 0;
  for (const Include& include : AllIncludes()) {
    const bool ours = include.header.starts_with("qualm/");
    EXPECT_TRUE(!ours || FolderOf(include.file) == "examples")
        << include.file << ":" << include.line << " includes the installed " << include.header;
    if (!ours) continue;
    ++installed;
    EXPECT_FALSE(include.quoted) << include.file << ":" << include.line;
    EXPECT_TRUE(fs::exists(root / include.header.substr(6)))
        << include.file << ":" << include.line << ": no " << include.header.substr(6);
  }
  EXPECT_GE(installed, 4);
}

TEST(IncludeDirection, CoreAndKernelsDependOnLittle) {
  for (const Include& include : AllIncludes()) {
    const std::string library = ThirdParty(include.header);
    const std::string folder = FolderOf(include.file);
    if (library == "MPFR") {  // a reference nothing that ships may need
      EXPECT_EQ(folder, "oracles") << include.file << ":" << include.line;
    }
    if (library.empty() || include.file.ends_with("_test.cc")) continue;
    if (folder == "core") {
      const std::set<std::string> readers{"boost", "json", "protozero", "zlib"};
      EXPECT_TRUE(readers.contains(library) && include.file.starts_with("core/io/"))
          << include.file << ":" << include.line << ": " << library;
    } else if (folder == "kernels") {
      EXPECT_EQ(library, "highway") << include.file << ":" << include.line;
    }
  }
}

// The inner folders of kernels/ include, of the headers on top, only the vocabulary, and that
// includes no inner header: each operation is read from its header down, never back up.
TEST(IncludeDirection, InnerFoldersOfKernelsIncludeNoOperation) {
  const std::set<std::string> vocabulary = {"kernels/block_format.h", "kernels/images.h",
                                            "kernels/layer.h",        "kernels/targets.h",
                                            "kernels/types.h",        "kernels/window.h"};
  for (const Include& include : AllIncludes()) {
    const bool common = include.file.starts_with("kernels/common/");
    if (!common && !include.file.starts_with("kernels/sums/")) continue;
    if (!include.header.starts_with("kernels/") || vocabulary.contains(include.header)) continue;
    if (include.file.find("test") != std::string::npos) continue;
    EXPECT_TRUE(include.header.starts_with("kernels/common/") ||
                (!common && include.header.starts_with("kernels/sums/")))
        << include.file << ":" << include.line << " includes " << include.header;
  }
}

TEST(IncludeDirection, AnAdapterFileKnowsOneLibrary) {
  std::map<std::string, std::set<std::string>> libraries;
  for (const Include& include : AllIncludes()) {
    const std::string library = ThirdParty(include.header);
    if (FolderOf(include.file) == "adapters" && !library.empty()) {
      libraries[include.file].insert(library);
    }
  }
  for (const auto& [file, used] : libraries) EXPECT_LE(used.size(), 1u) << file;
}

// Plain text rules that keep the tree usable everywhere.
TEST(Tidy, EverySourceBeginsWithItsLicence) {
  const fs::path root(QUALM_SOURCE_DIR);
  for (const auto& [folder, unused] : kMayInclude) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".hpp" && extension != ".cc" && extension != ".c")
        continue;
      std::ifstream file(entry.path());
      std::string line;
      std::getline(file, line);
      EXPECT_NE(line.find("SPDX-License-Identifier: Apache-2.0"), std::string::npos)
          << entry.path();
    }
  }
}

// Whether this is a function of the C library, for any type, whose last bits IEEE 754 does not fix.
bool HasLooseBits(std::string name) {
  static const std::set<std::string> kNames{
      "acos", "acosh", "asin",   "asinh", "atan", "atan2", "atanh", "cbrt",  "cos",   "cosh",
      "erf",  "erfc",  "exp",    "exp10", "exp2", "expm1", "hypot", "log",   "log10", "log1p",
      "log2", "pow",   "lgamma", "sin",   "sinh", "tan",   "tanh",  "tgamma"};
  if (kNames.contains(name)) return true;
  if (!name.ends_with('f') && !name.ends_with('l')) return false;
  name.pop_back();
  return kNames.contains(name);
}

// The functions with loose bits that a line of code names.
std::vector<std::string> LooseFunctions(const std::string& line) {
  const auto in_name = [](char c) {
    return c == '_' || std::isalnum(static_cast<unsigned char>(c));
  };
  std::vector<std::string> found;
  for (size_t at = 0; at < line.size();) {
    if (line.compare(at, 2, "//") == 0) break;
    if (line[at] == '"') {
      for (++at; at < line.size() && line[at] != '"'; ++at) at += line[at] == '\\' ? 1 : 0;
      ++at;
      continue;
    }
    if (!in_name(line[at])) {
      ++at;
      continue;
    }
    const size_t begin = at;
    while (at < line.size() && in_name(line[at])) ++at;
    const std::string name = line.substr(begin, at - begin);
    const std::string before = line.substr(0, begin);
    const bool of_std = before.ends_with("std::");
    const bool ours = before.ends_with('.') || before.ends_with("->") ||
                      (before.ends_with("::") && begin > 2 && in_name(line[begin - 3]) && !of_std);
    const size_t next = line.find_first_not_of(' ', at);
    const bool called = next != std::string::npos && line[next] == '(';
    if (HasLooseBits(name) && !ours && (called || of_std)) found.push_back(name);
  }
  return found;
}

TEST(Tidy, LooseFunctionsAreFound) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(LooseFunctions("  return std::exp(x) + tanhf (y);"), (Names{"exp", "tanhf"}));
  EXPECT_EQ(LooseFunctions("Apply(std::log2, ::powl(2, 3));"), (Names{"log2", "powl"}));
  EXPECT_EQ(LooseFunctions("\"exp(x) \\\" exp(\" + Text(log) + mpfr_exp(y);  // exp(x)"), Names{});
  EXPECT_EQ(LooseFunctions("std::floor(a.log(b)) + std::sqrt(c) + std::fma(a, b, c)"), Names{});
}

// exp, log, tanh and their like differ in the last bits from one C library to the next. Where they
// decide, a convention, a case or a minimized case is another one on another machine. What has to
// be known of them comes from oracles/exact/arithmetic/real.h.
TEST(Tidy, NoLooseFunctionDecides) {
  std::map<std::pair<std::string, std::string>, int> allowed{
      // An estimate, whose error bound leaves room for 2^12 units in the last place.
      {{"oracles/exact/arithmetic/fixed_point.cc", "exp"}, 0},
      {{"oracles/exact/arithmetic/fixed_point.cc", "tanh"}, 0},
      // Lengths of descriptions in bits, which are compared with margins of whole bits.
      {{"triage/code_length.cc", "lgamma"}, 0},
      {{"triage/code_length.cc", "log2"}, 0},
      {{"triage/examine.cc", "log2"}, 0},
      {{"triage/traits.cc", "log2"}, 0},
      // Decibels, which are printed and decide nothing.
      {{"triage/recorded.cc", "log10"}, 0},
      // A number of bits, printed to two digits.
      {{"proofs/repair.cc", "log2"}, 0}};
  const fs::path root(QUALM_SOURCE_DIR);
  for (const char* folder :
       {"core", "oracles", "properties", "triage", "proofs", "models", "fuzz", "campaign"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string name = fs::relative(entry.path(), root).string();
      if (!name.ends_with(".h") && !name.ends_with(".cc")) continue;
      if (name.find("_test") != std::string::npos) continue;
      std::ifstream file(entry.path());
      std::string line;
      for (int number = 1; std::getline(file, line); ++number) {
        for (const std::string& function : LooseFunctions(line)) {
          const auto known = allowed.find({name, function});
          EXPECT_NE(known, allowed.end()) << name << ":" << number << " calls " << function;
          if (known != allowed.end()) ++known->second;
        }
      }
    }
  }
  for (const auto& [what, times] : allowed) {
    EXPECT_EQ(times, 1) << what.first << " calls " << what.second;
  }
}

}  // namespace
