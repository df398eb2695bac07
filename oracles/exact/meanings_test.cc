// SPDX-License-Identifier: Apache-2.0
// Every operation has a row, and the two exact forms of an operation share nothing.
#include "oracles/exact/meanings.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>

namespace qualm::exact {
namespace {

TEST(Meanings, EveryRowIsComplete) {
  for (const Op op : AllOps()) {
    const Meaning& meaning = MeaningOf(op);
    EXPECT_EQ(meaning.op, op) << Name(op);
    EXPECT_TRUE(meaning.definition.value != nullptr || meaning.definition.outputs != nullptr);
    EXPECT_TRUE((meaning.fast.integers != nullptr && meaning.fast.line != nullptr) ||
                meaning.fast.outputs != nullptr);
    EXPECT_TRUE(meaning.fast.rounded == nullptr || meaning.fast.scaled != nullptr) << Name(op);
    EXPECT_TRUE(meaning.told.steps != nullptr) << Name(op);
  }
}

// The text between "namespace NAME {" and its end, without comments.
std::string Code(const std::filesystem::path& file, const std::string& name) {
  std::ifstream in(file);
  std::string code;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line == "}  // namespace " + name) inside = false;
    if (inside) code += line.substr(0, line.find("//")) + "\n";
    if (line == "namespace " + name + " {") inside = true;
  }
  return code;
}

void ExpectNone(const std::filesystem::path& file, const std::string& name,
                std::initializer_list<const char*> words) {
  const std::string code = Code(file, name);
  for (const char* word : words) {
    EXPECT_EQ(code.find(word), std::string::npos) << file << ": namespace " << name << ": " << word;
  }
}

TEST(Meanings, FormsAreIndependent) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(QUALM_SOURCE_DIR "/oracles/exact")) {
    if (entry.path().extension() != ".cc" || Code(entry.path(), "definition").empty()) continue;
    ++files;
    ExpectNone(entry.path(), "definition",
               {"fast::", "Line", "Round(", "Rounded ", "Dyadic", "Decode", "Difference(",
                "Integers", "CorrectedSums", "RawSums"});
    ExpectNone(entry.path(), "fast",
               {"definition::", "Rational ", "Rational(", "Integer ", "Integer(", "RoundHalfEven",
                "RoundToFloat32", "RoundReal(", "Enclose"});
  }
  EXPECT_GE(files, 10);
}

}  // namespace
}  // namespace qualm::exact
