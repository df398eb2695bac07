// SPDX-License-Identifier: Apache-2.0
// Every variation reaches as far as it did when its bound was last worked out. What a bound means
// is in variation_bounds_test.cc, by examples. Here every number that a bound is made of is held: a
// row for each variation and operation with a digest of its reach over drawn cases, and rows for
// the facts and for the intervals of outputs. A row that changes without intent is a bound that has
// come away from its derivation.
//
// After an intended change the failing tests print the rows as they are now; they replace all rows
// of the same operation:
//   variation_digests_test | sed -n 's/^now //p'
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/kept_rows_test_util.h"
#include "core/random_case_test_util.h"
#include "core/rng.h"
#include "oracles/conventions/variation_facts.h"
#include "oracles/conventions/variations.h"

namespace qualm {
namespace {

// "VARIATION OPERATION" to the rest of the line.
using Rows = test::KeptRows;

constexpr int64_t kMostOutputs = 64;

// The rows of a dynamic_linear share one choice.
std::vector<Case> CasesOf(Op op) {
  std::vector<Case> cases;
  auto few = test::RandomCase::OfBytes(MixSeed(31, static_cast<uint64_t>(op)));
  while (cases.size() < 400) {
    Case c = few.Draw(op);
    c.x_gran = Granularity::kTensor;
    if (c.M * c.N > kMostOutputs) continue;
    EXPECT_EQ(Validate(c), "");
    cases.push_back(std::move(c));
  }
  return cases;
}

// All digits. NaNs are one: compilers make different ones.
std::string Text(long double value) {
  if (std::isnan(value)) return "nan ";
  char text[64];
  std::snprintf(text, sizeof text, "%La ", value);
  return text;
}

// "N bounded, N unbounded, DIGEST", or "0" where no output is reached.
std::string ReachRow(std::string_view id, const std::vector<Case>& cases) {
  int64_t bounded = 0, unbounded = 0;
  std::string text;
  for (const Case& c : cases) {
    for (const double reach : Reach(id, c)) {
      (std::isinf(reach) ? unbounded : bounded) += reach != 0 ? 1 : 0;
      text += Text(reach);
    }
  }
  if (bounded + unbounded == 0) return "0";
  return std::to_string(bounded) + " bounded, " + std::to_string(unbounded) + " unbounded, " +
         test::RowDigest(text);
}

std::string FactsRow(const std::vector<Case>& cases) {
  std::string text;
  for (const Case& c : cases) {
    const variations::FactsOf facts_of(c);
    for (const variations::Facts& f : facts_of.All()) {
      for (const long double number :
           {static_cast<long double>(f.real), static_cast<long double>(f.terms),
            static_cast<long double>(f.products), static_cast<long double>(f.sum),
            static_cast<long double>(f.multiplier), f.exact_multiplier,
            static_cast<long double>(f.largest_operand), static_cast<long double>(f.bias_units),
            static_cast<long double>(f.chosen_scale)})
        text += Text(number);
      text += std::to_string(f.index) + " " + std::to_string(f.channel) + " " +
              std::to_string(f.count) + (f.zero_points_are_codes ? " codes" : "") +
              (f.real_is_exact ? " exact" : "") + (f.is_linear ? " linear\n" : "\n");
    }
  }
  return test::RowDigest(text);
}

// Of conventions with no variation, with a tie, with a multiple of the value, and with one that
// nothing bounds.
std::string PermittedRow(const std::vector<Case>& cases) {
  std::string text;
  for (const Case& c : cases) {
    for (const std::vector<std::string>& ids : std::vector<std::vector<std::string>>{
             {}, {"V4"}, {"V23"}, {"V1", "V14", "V19"}, {"V21"}}) {
      Convention convention;
      convention.variations = ids;
      for (const Permitted& permitted : PermittedOutputs(convention.variations, c))
        text += Text(permitted.low) + Text(permitted.high);
    }
  }
  return test::RowDigest(text);
}

Rows RowsOf(Op op) {
  const std::vector<Case> cases = CasesOf(op);
  const std::string name = " " + std::string(Name(op));
  Rows rows{{"facts" + name, FactsRow(cases)}, {"permitted" + name, PermittedRow(cases)}};
  for (const Variation& variation : AllVariations()) {
    const std::string row = ReachRow(variation.id, cases);
    if (row != "0") rows[std::string(variation.id) + name] = row;
  }
  return rows;
}

// Of the operation.
Rows Kept(Op op) {
  Rows rows = test::ReadKeptRows(QUALM_SOURCE_DIR "/oracles/conventions/variation_digests.txt");
  std::erase_if(rows, [op](const auto& row) {
    return row.first.substr(row.first.find(' ') + 1) != Name(op);
  });
  return rows;
}

class VariationDigestsTest : public testing::TestWithParam<Op> {};

TEST_P(VariationDigestsTest, AreAsKept) {
  const Rows now = RowsOf(GetParam()), kept = Kept(GetParam());
  for (const auto& [name, row] : now)
    EXPECT_EQ(row, kept.contains(name) ? kept.at(name) : "no row") << name;
  for (const auto& [name, row] : kept) EXPECT_TRUE(now.contains(name)) << name << " is gone";
  if (!HasFailure()) return;
  for (const auto& [name, row] : now) std::cout << "now " << name << ": " << row << "\n";
}

INSTANTIATE_TEST_SUITE_P(Ops, VariationDigestsTest, testing::ValuesIn(AllOps()),
                         [](const auto& of) { return std::string(Name(of.param)); });

}  // namespace
}  // namespace qualm
