// SPDX-License-Identifier: Apache-2.0
// The catalogue of mistakes, corpus/causes: what a kernel with each cause answers, computed by
// hand. A cause that answers anything else is named for a wrong reason, or not named at all.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/case_json.h"
#include "oracles/exact/exact.h"
#include "triage/causes.h"
#include "triage/fault_test_util.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

struct Entry {
  std::string name;
  Case c;
  Hypothesis causes;  // of a kernel that answers as the file observed
};

std::vector<Entry> Entries() {
  std::vector<Entry> entries;
  for (const auto& file : std::filesystem::directory_iterator(QUALM_SOURCE_DIR "/corpus/causes")) {
    const std::string name = file.path().filename();
    if (name == "README.md") continue;
    Entry entry{name, ReadCaseFile(file.path()), {}};
    EXPECT_TRUE(entry.c.expected && entry.c.observed) << name;
    if (!entry.c.expected || !entry.c.observed) continue;
    std::string by;
    for (const Cause& cause : AllCauses()) {
      const std::string named = cause.NameFor(entry.c.op);
      if ((" + " + entry.c.observed->by + " + ").find(" + " + named + " + ") == std::string::npos)
        continue;
      entry.causes.push_back(&cause);
      by += (by.empty() ? "" : " + ") + named;
    }
    EXPECT_EQ(by.size(), entry.c.observed->by.size()) << name << ": observed.by: no such cause";
    entries.push_back(std::move(entry));
  }
  EXPECT_FALSE(entries.empty());
  return entries;
}

// NAME.not.case.json holds a case that the cause says nothing about: it would cost time, and fit an
// answer by chance.
bool IsAsked(const Entry& entry) { return !entry.name.ends_with(".not.case.json"); }

TEST(CauseCases, HaveTheStatedAnswers) {
  for (const Entry& entry : Entries()) {
    const Tensor right = Right(entry.c);
    EXPECT_EQ(right, *entry.c.expected) << entry.name;
    const std::optional<Tensor> y = Counterfactual(entry.c, entry.causes);
    EXPECT_EQ(y.has_value(), IsAsked(entry)) << entry.name;
    EXPECT_EQ(y.value_or(right), entry.c.observed->y) << entry.name;
  }
}

// Which conventions have the rule too changes with each one that the table gets.
std::string WithoutConventions(const std::string& diagnosis) {
  return std::regex_replace(diagnosis, std::regex(", (or computes )?as .* do(es)?$"), "");
}

// What the file says of its answer is what triage says, after the further cases that it draws.
TEST(CauseCases, AreNamedInTheStatedWords) {
  for (const Entry& entry : Entries()) {
    const Explanation& stated = entry.c.observed->why;
    if (stated.kind.empty()) continue;
    TestSubject subject = Kernel(entry.causes);
    const Attribution found = Attribute(ProblemOf(entry.c), entry.c.observed->y, subject);
    EXPECT_EQ(found.causes, entry.causes) << entry.name;
    EXPECT_EQ(WithoutConventions(found.diagnosis), WithoutConventions(stated.cause)) << entry.name;
    EXPECT_EQ(Name(found.kind), stated.kind) << entry.name;
  }
}

// Answers of public reports that were given a false headline.
TEST(OneAnswer, OfAReportIsNotSaidToBeMoreThanItShows) {
  struct Row {
    const char* report;
    std::string c;
    const char* diagnosis;  // as it begins
    FindingKind kind;
  };
  const std::string ones = "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]";
  const Row rows[] = {
      {"pytorch/pytorch#37343: 21 and 22 bits of the ratios of scales",
       R"("op": "add", "M": 1, "N": 1, "x_dtype": "u8", "out_dtype": "u8", "a_zp": 112, "b_zp": 126,
          "a_scale": 0.040562573820352554, "b_scale": 0.08881603181362152, "out_zp": 124,
          "out_scale": 0.09029635787010193, "a": [158], "b": [136],
          "observed": {"by": "qnnpack", "y": [155]})",
       "the subject computes as qnnpack", FindingKind::kRounding},
      {"microsoft/onnxruntime#16105: pairs that saturate, and then a float32 product",
       R"("op": "linear", "M": 1, "N": 1, "K": 3, "x_dtype": "u8", "w_dtype": "s8",
          "out_dtype": "f32", "x_scale": 0.01, "x_zp": 0, "w_scale": 0.01, "w_zp": 0,
          "x": [210, 198, 234], "w": [-81, -80, 127], "bias": [0.0],
          "observed": {"by": "onnxruntime", "y": [-0.3050000071525574]})",
       "the subject adds u8*s8 products in pairs in a saturating int16 (vpmaddubsw), as "
       "fbgemm@avx2",
       FindingKind::kPairSaturation},
      {"pytorch/pytorch#139464: a tie, and a product with a reciprocal that is too large",
       R"("op": "quantize", "gran": "channel", "M": 1, "N": 1, "out_dtype": "s8",
          "out_scale": [15.0], "out_zp": [0], "x": [757.5],
          "observed": {"by": "PyTorch", "y": [51]})",
       "the subject rounds ties away from zero, or rounds ties up, as ggml@c, tflite@reference do, "
       "or "
       "computes as ",
       FindingKind::kRounding},
      {"a blog's absmax over 127: FBGEMM's scale, and that of who leaves a code out",
       R"("op": "choose_qparams", "observer": "min_max", "symmetric": true, "dtype": "s8",
          "batches": 1, "M": 1, "N": 8, "x": [1.2, -0.5, -4.3, 1.2, -3.1, 0.8, 2.4, 5.4],
          "observed": {"by": "a blog", "y": [0.04251968488097191, 0]})",
       "the subject computes as observers@fbgemm does, or leaves the highest code out: computes "
       "with quant_max one lower, or leaves the lowest code out",
       FindingKind::kRounding},
      {"microsoft/BitBLAS#313: ones alone, which all ask the same",
       R"("op": "linear", "M": 2, "N": 2, "K": 8, "x_dtype": "s8", "w_dtype": "s8", "x_zp": 0,
          "out_dtype": "f32", "x_scale": 1, "w_scale": 1, "w_zp": 0, "x": )" +
           ones + R"(, "w": )" + ones + R"(, "observed": {"by": "BitBLAS", "y": [16, 16, 16, 16]})",
       "not enough to tell", FindingKind::kUnknown}};
  for (const Row& row : rows) {
    const Case c = ParseCase(R"({"qualm_case": 1, )" + row.c + "}", row.report);
    const Attribution found = Attribute(ProblemOf(c), c.observed->y);
    EXPECT_TRUE(found.diagnosis.starts_with(row.diagnosis))
        << row.report << ": " << found.diagnosis;
    EXPECT_EQ(found.kind, row.kind) << row.report;
  }
}

// The members of a family differ in a number.
std::string FamilyOf(std::string_view name) {
  std::string family;
  for (const char letter : name) {
    const bool is_digit = letter >= '0' && letter <= '9';
    if (!is_digit || !family.ends_with('#')) family += is_digit ? '#' : letter;
  }
  return family;
}

TEST(CauseCases, AreThereForEachCause) {
  // Families whose smallest case has thousands of codes: causes_test.cc makes them.
  std::set<std::string> told{"column sum in # int# lanes that wrap",
                             "column sum in # int# lanes that wrap, emptied every # additions",
                             "row sum in # int# lanes that wrap",
                             "row sum in # int# lanes that wrap, emptied every # additions",
                             "input offset modulo #",
                             "weights offset modulo #"};
  for (const Entry& entry : Entries()) {
    if (entry.causes.size() != 1 || !IsAsked(entry)) continue;
    if (entry.c.observed->y != *entry.c.expected) told.insert(FamilyOf(entry.causes[0]->name));
  }
  for (const Cause& cause : AllCauses()) {
    EXPECT_TRUE(told.contains(FamilyOf(cause.name)))
        << cause.name << ": corpus/causes has no case that shows it";
  }
}

}  // namespace
}  // namespace qualm::triage
