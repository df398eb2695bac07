// SPDX-License-Identifier: Apache-2.0
// Drawn cases against the contract that a library promises.
#ifndef QUALM_TOOLS_DRAWN_CONTRACT_TEST_UTIL_H_
#define QUALM_TOOLS_DRAWN_CONTRACT_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/finding.h"
#include "core/subject.h"
#include "core/verdict.h"
#include "properties/engine.h"

namespace qualm {

struct DrawnContract {
  std::string subject;
  std::vector<Op> ops;
  int64_t cases = 0;                 // of each operation
  int64_t judged = 0;                // so many answers to each are judged by the contract, but
  std::map<Op, int64_t> fewer = {};  // of these, so many
  bool adapt = true;     // few cases have types, padding and bias as the library has them
  bool declared = true;  // what adapters/contracts.cc declares is no failure
  std::string claim = "matches_model";  // by which answers are judged
};

inline void ExpectContract(const DrawnContract& drawn) {
  CheckOptions options;
  options.subjects = {drawn.subject};
  // Declared is what properties name the kind of themselves.
  options.attribute = [](const Case&, const Verdict& verdict, Subject&) {
    return verdict.kind.value_or(FindingKind::kUnknown);
  };
  options.ops = drawn.ops;
  options.cases = drawn.cases;
  options.adapt = drawn.adapt;
  const CheckResult result = Check(options);
  for (const Finding& finding : result.findings) {
    if (finding.expected_by_contract && drawn.declared) continue;
    ADD_FAILURE() << drawn.subject << " " << finding.property << ": " << finding.explanation;
  }
  for (const Op op : drawn.ops) {
    const std::string property = std::string(Name(op)) + "." + drawn.claim;
    const auto at = result.by_property.find(property);
    ASSERT_NE(at, result.by_property.end()) << drawn.subject << " " << property;
    const auto fewer = drawn.fewer.find(op);
    EXPECT_GE(at->second.of(Judgement::kPassed),
              fewer == drawn.fewer.end() ? drawn.judged : fewer->second)
        << drawn.subject << " " << property;
  }
}

}  // namespace qualm

#endif  // QUALM_TOOLS_DRAWN_CONTRACT_TEST_UTIL_H_
