// SPDX-License-Identifier: Apache-2.0
// What a text says, and what an error says; a test that fails shows the text.
#ifndef QUALM_CORE_TEXT_TEST_UTIL_H_
#define QUALM_CORE_TEXT_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "core/status.h"

namespace qualm {

// `text` with `from` replaced once; the test fails if `from` is not there.
inline std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}
// The message of the error that `work` ends with; "" if it ends well.
template <class Error = InputError>
std::string Refusal(const auto& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

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
