// SPDX-License-Identifier: Apache-2.0
// Conventions for tests: lookup, and tests that are run for each by name.
#ifndef QUALM_ORACLES_CONVENTIONS_TEST_UTIL_H_
#define QUALM_ORACLES_CONVENTIONS_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "oracles/conventions/convention.h"

namespace qualm {

// The convention of this name, which must exist.
inline const Convention& Get(std::string_view name) {
  const Convention* convention = FindConvention(name);
  QUALM_CHECK(convention != nullptr);
  return *convention;
}

// Whether the convention has the operation; it may refuse cases of it.
inline bool Has(const Convention& convention, Op op) {
  return std::ranges::find(convention.ops, op) != convention.ops.end();
}

inline std::vector<std::string> NamesOfConventions() {
  std::vector<std::string> names;
  for (const Convention& convention : AllConventions()) names.push_back(convention.name);
  return names;
}

// A parameter as the name of a test, which has letters, digits and underscores alone.
inline std::string TestName(const testing::TestParamInfo<std::string>& of) {
  std::string name = of.param;
  std::ranges::replace_if(name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace qualm

#endif  // QUALM_ORACLES_CONVENTIONS_TEST_UTIL_H_
