// SPDX-License-Identifier: Apache-2.0
// Judges native on every operation, on every instruction set that kernels/targets.txt lists for
// this compiler and that this processor has. The test fails if an instruction set silently drops
// out, and if native offers one that the file lacks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/op.h"
#include "core/subject.h"
#include "properties/engine.h"
#include "properties/processor_test_util.h"

namespace qualm {
namespace {

using Names = std::vector<std::string>;

#if defined(__x86_64__)
constexpr const char* kArchitecture = "x86-64";
#elif defined(__aarch64__)
constexpr const char* kArchitecture = "aarch64";
#endif
#if defined(__clang__)
constexpr const char* kCompiler = "clang";
#elif __GNUC__ < 14  // Highway's portable target is then SCALAR
constexpr const char* kCompiler = "gcc-before-14";
#else
constexpr const char* kCompiler = "gcc";
#endif

std::string SectionName() { return std::string(kArchitecture) + " " + kCompiler; }

// "compiled" and the operations of this compiler's section -> instruction sets.
std::map<std::string, Names> ReadSection() {
  std::ifstream file(QUALM_SOURCE_DIR "/kernels/targets.txt");
  EXPECT_TRUE(file.good());
  std::map<std::string, Names> section;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '[') {
      inside = line == "[" + SectionName() + "]";
      continue;
    }
    if (!inside) continue;
    std::istringstream words(line);
    std::string key;
    words >> key;
    Names& names = section[key];
    EXPECT_TRUE(names.empty()) << "two lines for " << key;
    for (std::string name; words >> name;) names.push_back(name);
  }
  return section;
}

// A build may leave instruction sets out, but only by saying so.
Names Chosen() {
  std::istringstream list(QUALM_HIGHWAY_TARGETS);
  Names names;
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

// The name that subjects use: the portable target has one name with all compilers.
std::string SubjectsName(const std::string& target) {
  return target == "EMU128" || target == "SCALAR" ? "PORTABLE" : target;
}

bool Contains(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Highway's target whose code runs on `target`: AVX2 for AVX2_VNNI.
std::string HighwayName(const std::string& target) {
  for (const std::string suffix : {"_VNNI", "_I8MM", "_DOT"}) {
    if (target.ends_with(suffix)) return target.substr(0, target.size() - suffix.size());
  }
  return target;
}

// The targets that this build must offer here, and the rest of `compiled` with the reasons why not.
struct Expected {
  std::set<std::string> offered;
  std::map<std::string, std::string> absent;
};

Expected Expect(const Names& compiled) {
  Expected expected;
  const Names chosen = Chosen();
  for (const std::string& target : compiled) {
    std::string why = !chosen.empty() && !Contains(chosen, HighwayName(target))
                          ? "left out of this build (QUALM_HIGHWAY_TARGETS)"
                          : test::WhyCannotRun(target);
    if (why.empty()) {
      expected.offered.insert(SubjectsName(target));
    } else {
      expected.absent.emplace(target, std::move(why));
    }
  }
  return expected;
}

std::string Joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += " " + name;
  return text;
}

TEST(NativeTargets, EveryOperationIsJudgedOnEveryTargetOfTheFile) {
  RegisterAllSubjects();
  std::map<std::string, std::string> instruction_set_of;  // subject -> AVX2
  for (const std::string& name : SubjectRegistry::Get().Expand("native@all")) {
    instruction_set_of[name] = SubjectRegistry::Get().Make(name)->InstructionSet();
  }
  std::set<std::string> offered;
  Names subjects;
  for (const auto& [name, instruction_set] : instruction_set_of) {
    offered.insert(instruction_set);
    subjects.push_back(name);
  }
  const std::map<std::string, Names> section = ReadSection();
  if (section.empty()) {
    GTEST_SKIP() << "kernels/targets.txt has no section [" << SectionName()
                 << "]; here every operation would read" << Joined(offered);
  }
  ASSERT_TRUE(section.contains("compiled"));
  const Names& compiled = section.at("compiled");
  const Expected expected = Expect(compiled);
  for (const auto& [target, why] : expected.absent) {
    std::cout << "not judged here: " << target << ": " << why << "\n";
  }
  for (const std::string& target : expected.offered) {
    EXPECT_TRUE(offered.contains(target))
        << target << " dropped out: this processor has it, and native no longer offers it";
  }
  for (const std::string& target : offered) {
    EXPECT_TRUE(expected.offered.contains(target))
        << "native offers " << target << ", which kernels/targets.txt does not know: add it to "
        << "\"compiled\" in [" << SectionName() << "], and to every operation once this passes";
  }

  std::set<std::string> news;
  for (const Op op : AllOps()) {
    SCOPED_TRACE(Name(op));
    const auto line = section.find(std::string(Name(op)));
    if (line == section.end()) {
      ADD_FAILURE() << "kernels/targets.txt has no line for it in [" << SectionName()
                    << "]; to add: " << Name(op) << Joined(offered);
      continue;
    }
    CheckOptions options;
    options.subjects = subjects;
    options.ops = {op};
    options.property_glob = "matches_exact";
    options.seed = 20;
    options.cases = 12;
    const CheckResult result = Check(options);
    EXPECT_EQ(result.findings.size(), 0u);
    std::set<std::string> judged;
    for (const auto& [subject, totals] : result.by_subject) {
      // Judged, not skipped; and passed, so it ran.
      if (totals.of(Judgement::kPassed) >= 6 && totals.of(Judgement::kFailed) == 0) {
        judged.insert(instruction_set_of.at(subject));
      }
    }
    for (const std::string& target : line->second) {
      EXPECT_TRUE(Contains(compiled, target)) << target << " is not among \"compiled\"";
      if (expected.absent.contains(target)) continue;
      EXPECT_TRUE(judged.contains(SubjectsName(target))) << target << " was not judged";
    }
    for (const std::string& target : compiled) {
      if (Contains(line->second, target) || !judged.contains(SubjectsName(target))) continue;
      news.insert(target);
    }
    for (const std::string& target : judged) {
      EXPECT_TRUE(offered.contains(target)) << target;
    }
  }
  for (const std::string& target : news) {
    std::cout << "judged here for the first time: " << target
              << ": kernels/targets.txt may list it\n";
  }
  for (const auto& [key, names] : section) {
    EXPECT_TRUE(key == "compiled" || ParseOp(key)) << "no operation: " << key;
  }
}

// The reasons above excuse a target; they must not excuse a target that native can run.
TEST(NativeTargets, WhatNativeOffersCanRunHere) {
  RegisterAllSubjects();
  for (const std::string& name : SubjectRegistry::Get().Expand("native@all")) {
    const std::string target = SubjectRegistry::Get().Make(name)->InstructionSet();
    EXPECT_EQ(test::WhyCannotRun(target == "PORTABLE" ? "EMU128" : target), "") << target;
  }
  EXPECT_THROW(test::WhyCannotRun("AVX9000"), std::invalid_argument);
}

}  // namespace
}  // namespace qualm
