// SPDX-License-Identifier: Apache-2.0
// A convention differs from the exact meaning only in the ways that its row names. docs/backends.md
// names the same ways, and a committed case shows each.
#include "oracles/conventions/variations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/io/case_json.h"
#include "core/verdict.h"
#include "oracles/exact/exact.h"
#include "properties/gen/library.h"

namespace qualm {
namespace {

// NaN is permitted only if the interval has no bounds.
bool Holds(const Permitted& permitted, double value) {
  if (std::isnan(value)) return std::isinf(permitted.low) && std::isinf(permitted.high);
  return permitted.low <= value && value <= permitted.high;
}

// Conventions that are wrong in nearly every output.
bool HasUnconditional(const std::string& name) { return name == "numpy@float32+half_clip"; }

class Variations : public testing::TestWithParam<Op> {};

TEST_P(Variations, CoverEveryDifferenceOnDrawnCases) {
  const Op op = GetParam();
  std::map<std::string, int64_t> defined, bounded, outputs, differing;
  const auto unseen = [&](const Convention& convention) {
    return std::ranges::find(convention.ops, op) != convention.ops.end() &&
           !defined.contains(convention.name);
  };
  // Some conventions define few of the cases: these have a case more for themselves.
  constexpr uint64_t kCases = QUALM_VARIATION_CASES, kMost = 5000;
  for (uint64_t seed = 0;
       seed < kCases || (seed < kMost && std::ranges::any_of(AllConventions(), unseen)); ++seed) {
    const Case c = gen::DrawForLibraries(op, seed);
    if (c.M * c.N > 2000) continue;
    const Tensor exact = exact::Evaluate(c);
    for (const Convention& convention : AllConventions()) {
      if (seed >= kCases && !unseen(convention)) continue;
      if (!convention.cannot_run(c).empty()) continue;
      const Tensor y = convention.run(c).y;
      ++defined[convention.name];
      const std::vector<Permitted> permitted = PermittedOutputs(convention.variations, c);
      for (int64_t i = 0; i < y.size(); ++i) {
        const Permitted& range = permitted[static_cast<size_t>(i)];
        ++outputs[convention.name];
        // A code may be moved by its quotient and by the zero point that was chosen.
        bounded[convention.name] += range.high - range.low <= (c.codes ? 4.01 : 2) ? 1 : 0;
        differing[convention.name] += y.BitsAt(i) != exact.BitsAt(i) ? 1 : 0;
        // The exact value is always permitted.
        ASSERT_TRUE(Holds(range, exact.ValueAt(i)))
            << convention.name << " seed " << seed << " index " << i << " " << Describe(c);
        ASSERT_TRUE(Holds(range, y.ValueAt(i)))
            << convention.name << " seed " << seed << " index " << i << " " << Describe(c) << ": "
            << ElementText(y, i) << " not in " << range.low << ".." << range.high << ", exact "
            << ElementText(exact, i);
      }
    }
  }
  for (const Convention& convention : AllConventions()) {
    // A convention lists the operations that it computes, and no others.
    EXPECT_EQ(std::ranges::find(convention.ops, op) != convention.ops.end(),
              defined.contains(convention.name))
        << convention.name;
  }
  for (const auto& [name, count] : outputs) {
    // An interval that holds everything would prove nothing.
    if (!HasUnconditional(name)) {
      EXPECT_GT(bounded[name] * 10, count) << name;
    }
    RecordProperty(name, std::to_string(differing[name]) + " of " + std::to_string(count));
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Variations, testing::ValuesIn(AllOps()),
                         [](const auto& param) { return std::string(Name(param.param)); });

// A convention without its variation fails: one that must not pair, one that must round to even.
TEST(VariationsTest, WhatIsNotListedIsNotPermitted) {
  const auto fails_without = [](std::string_view name, std::string_view id, Op op) {
    Convention convention = *FindConvention(name);
    const auto before = convention.variations.size();
    std::erase(convention.variations, id);
    EXPECT_EQ(convention.variations.size() + 1, before) << name << " " << id;
    for (uint64_t seed = 0; seed < 4000; ++seed) {
      const Case c = gen::DrawForLibraries(op, seed);
      if (c.M * c.N > 2000 || !convention.cannot_run(c).empty()) continue;
      const Tensor y = convention.run(c).y;
      const std::vector<Permitted> permitted = PermittedOutputs(convention.variations, c);
      for (int64_t i = 0; i < y.size(); ++i) {
        if (!Holds(permitted[static_cast<size_t>(i)], y.ValueAt(i))) return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(fails_without("fbgemm@avx2", "V6", Op::kLinear));
  EXPECT_TRUE(fails_without("fbgemm@avx2+acc16", "V25", Op::kLinear));
  EXPECT_TRUE(fails_without("onednn3@vnni", "V3", Op::kQuantize));
  EXPECT_TRUE(fails_without("qnnpack", "V7", Op::kLinear));
  EXPECT_TRUE(fails_without("qnnpack", "V4", Op::kAdd));
  EXPECT_TRUE(fails_without("fbgemm@vnni", "V9", Op::kRequantize));
  EXPECT_TRUE(fails_without("onednn2@avx2", "V10", Op::kConv2d));
  EXPECT_TRUE(fails_without("tflite@double", "V12", Op::kRequantize));
  EXPECT_TRUE(fails_without("numpy@float32+half_clip", "V21", Op::kQuantize));
  EXPECT_TRUE(fails_without("observers@aten", "V23", Op::kChooseQParams));
  EXPECT_TRUE(fails_without("observers@torch2", "V36", Op::kChooseQParams));
  EXPECT_TRUE(fails_without("torch-qnnpack", "V27", Op::kMaxPool));
  EXPECT_TRUE(fails_without("onnxruntime@vnni", "V27", Op::kAvgPool));
  EXPECT_TRUE(fails_without("onnxruntime@vnni", "V29", Op::kSoftmax));
  EXPECT_TRUE(fails_without("torch-qnnpack", "V31", Op::kDynamicLinear));
  EXPECT_TRUE(fails_without("torch-qnnpack", "V32", Op::kDynamicLinear));
  EXPECT_TRUE(fails_without("torch-onednn@vnni", "V31", Op::kDynamicLinear));
  EXPECT_TRUE(fails_without("onnxruntime@vnni", "V31", Op::kDynamicLinear));
  EXPECT_TRUE(fails_without("xnnpack2024@avx2", "V33", Op::kRescale));
  EXPECT_TRUE(fails_without("tflite@builtin", "V37", Op::kAdd));
  EXPECT_TRUE(fails_without("tflite@builtin", "V38", Op::kDequantize));
  EXPECT_TRUE(fails_without("tflite@builtin", "V39", Op::kGlobalAvgPool));
  EXPECT_TRUE(fails_without("tflite@reference", "V40", Op::kGlobalAvgPool));
  EXPECT_TRUE(fails_without("tflite@reference", "V46", Op::kDynamicLinear));
}

// The page: a row "| V6 | ... |" for each variation with its name and bound, a row "| `convention`,
// `convention` | what they are |" for each convention.
std::vector<std::vector<std::string>> TableRows() {
  std::ifstream file(QUALM_SOURCE_DIR "/docs/backends.md");
  EXPECT_TRUE(file.is_open());
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| ")) continue;
    std::vector<std::string> cells;
    std::istringstream text(line.substr(2));
    for (std::string cell; std::getline(text, cell, '|');) {
      const size_t from = cell.find_first_not_of(' '), to = cell.find_last_not_of(' ');
      cells.push_back(from == std::string::npos ? "" : cell.substr(from, to - from + 1));
    }
    rows.push_back(std::move(cells));
  }
  return rows;
}

TEST(VariationsTest, ThePageAndTheRegistryAgree) {
  std::set<std::string> variations, conventions;
  for (const std::vector<std::string>& row : TableRows()) {
    if (const Variation* variation = FindVariation(row[0])) {
      EXPECT_TRUE(variations.insert(row[0]).second) << row[0];
      EXPECT_EQ(row[1], variation->name);
      EXPECT_EQ(row[2], variation->cause);
      EXPECT_EQ(row[3], variation->bound);
    } else if (row[0].starts_with("`")) {
      std::istringstream names(row[0]);
      for (std::string name; names >> name;) {
        name = name.substr(1, name.rfind('`') - 1);
        const Convention* convention = FindConvention(name);
        ASSERT_NE(convention, nullptr) << name;
        EXPECT_TRUE(conventions.insert(name).second) << name;
        // "…" stands for what is behind the @ of each name.
        const std::string any = "…", &about = convention->description;
        const size_t first = row[1].find(any), last = row[1].rfind(any);
        if (first == std::string::npos) {
          EXPECT_EQ(row[1], about) << name;
        } else {
          EXPECT_TRUE(about.starts_with(row[1].substr(0, first))) << name << ": " << about;
          EXPECT_TRUE(about.ends_with(row[1].substr(last + any.size()))) << name << ": " << about;
        }
      }
    }
  }
  for (const Variation& variation : AllVariations()) {
    EXPECT_TRUE(variations.contains(std::string(variation.id))) << variation.id;
  }
  std::set<std::string> entailed;
  for (const Convention& convention : AllConventions()) {
    EXPECT_TRUE(conventions.contains(convention.name)) << convention.name;
    for (const std::string& id : convention.variations) {
      EXPECT_NE(FindVariation(id), nullptr) << convention.name << " " << id;
      entailed.insert(id);
    }
  }
  for (const Variation& variation : AllVariations()) {
    EXPECT_TRUE(entailed.contains(std::string(variation.id))) << "no model has " << variation.id;
  }
}

// "V16-softmax.case.json" is a case in which a convention departs from exact by V16.
TEST(VariationsTest, TheWorstCasesAreThoseOfTheirConventions) {
  std::set<std::string> shown;
  for (const auto& entry :
       std::filesystem::directory_iterator(QUALM_SOURCE_DIR "/corpus/variations")) {
    const std::string file = entry.path().filename();
    if (!file.ends_with(".case.json")) continue;
    const std::string id = file.substr(0, file.find_first_of("-."));
    ASSERT_NE(FindVariation(id), nullptr) << file;
    shown.insert(id);
    const Case c = ReadCaseFile(entry.path());
    ASSERT_TRUE(c.expected && c.observed) << file;
    const std::string model = "model:";
    ASSERT_TRUE(c.observed->by.starts_with(model)) << file;
    const Convention* convention = FindConvention(c.observed->by.substr(model.size()));
    ASSERT_NE(convention, nullptr) << file;
    EXPECT_NE(std::ranges::find(convention->variations, id), convention->variations.end()) << file;
    const Case problem = ProblemOf(c);
    ASSERT_EQ(convention->cannot_run(problem), "") << file;
    const Tensor y = convention->run(problem).y, exact = exact::Evaluate(problem);
    EXPECT_EQ(y, c.observed->y) << file;
    EXPECT_EQ(exact, *c.expected) << file;
    int64_t worst = 0;
    for (int64_t i = 1; i < y.size(); ++i) {
      if (DistanceLsb(exact, y, i) > DistanceLsb(exact, y, worst)) worst = i;
    }
    EXPECT_GT(DistanceLsb(exact, y, worst), 0) << file;
    EXPECT_TRUE(Holds(PermittedOutputs(convention->variations, problem)[static_cast<size_t>(worst)],
                      y.ValueAt(worst)))
        << file;
  }
  for (const Variation& variation : AllVariations()) {
    EXPECT_TRUE(shown.contains(std::string(variation.id))) << variation.id;
  }
}

}  // namespace
}  // namespace qualm
