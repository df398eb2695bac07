// SPDX-License-Identifier: Apache-2.0
// What a text says; a test that fails shows the text.
#ifndef QUALM_CORE_TEXT_TEST_UTIL_H_
#define QUALM_CORE_TEXT_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <string_view>

namespace qualm {

inline testing::AssertionResult Shown(bool holds, std::string_view text, std::string_view part) {
  return testing::AssertionResult(holds) << "'" << part << "', in:\n" << text;
}
inline testing::AssertionResult Has(std::string_view text, std::string_view part) {
  return Shown(text.find(part) != std::string_view::npos, text, part);
}
inline testing::AssertionResult Begins(std::string_view text, std::string_view part) {
  return Shown(text.starts_with(part), text, part);
}
inline testing::AssertionResult Ends(std::string_view text, std::string_view part) {
  return Shown(text.ends_with(part), text, part);
}

}  // namespace qualm

#endif  // QUALM_CORE_TEXT_TEST_UTIL_H_
