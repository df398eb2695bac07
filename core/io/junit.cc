// SPDX-License-Identifier: Apache-2.0
// JUnit XML, the dialect that CI servers agree on: testsuites / testsuite / testcase.
#include <array>
#include <charconv>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "core/io/json_text.h"
#include "core/io/result_json.h"

namespace qualm {
namespace {

// XML 1.0 has no way to write most control characters, U+FFFE and U+FFFF at all.
std::string XmlText(std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
  std::string xml;
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8Length(text, at);
    const std::string_view character = text.substr(at, length == 0 ? 1 : length);
    at += character.size();
    const auto first = static_cast<uint8_t>(character[0]);
    if (length == 0 || first == 0x7F || character == "\xEF\xBF\xBE" ||
        character == "\xEF\xBF\xBF") {
      xml += kReplacement;
    } else if (character == "&") {
      xml += "&amp;";
    } else if (character == "<") {
      xml += "&lt;";
    } else if (character == ">") {
      xml += "&gt;";
    } else if (character == "\"") {
      xml += "&quot;";
    } else if (first == '\n' || first == '\t' || first == '\r') {
      xml += "&#" + std::to_string(first) + ";";  // attributes would normalise it to a space
    } else if (first < 0x20) {
      xml += kReplacement;
    } else {
      xml += character;
    }
  }
  return xml;
}

struct Suite {
  int64_t tests = 0, failures = 0, skipped = 0;
  double seconds = 0;
  std::string body;
};

std::string TimeAttribute(double seconds) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), seconds,
                                 std::chars_format::fixed, 3);
  return " time=\"" + std::string(digits.data(), end.ptr) + "\"";
}

}  // namespace

std::string ToJUnit(const std::vector<JUnitTest>& tests) {
  std::vector<const JUnitTest*> ordered;
  for (const bool failed : {true, false}) {
    for (const JUnitTest& test : tests) {
      if ((test.status == "failed") == failed) ordered.push_back(&test);
    }
  }
  std::map<std::string, Suite> suites;
  for (const JUnitTest* const one : ordered) {
    const JUnitTest& test = *one;
    Suite& suite = suites[test.suite];
    ++suite.tests;
    suite.seconds += test.seconds;
    suite.body += "    <testcase classname=\"" + XmlText(test.suite) + "\" name=\"" +
                  XmlText(test.name) + "\"" + TimeAttribute(test.seconds);
    const std::string message = XmlText(test.message);
    if (test.status == "failed") {
      ++suite.failures;
      suite.body += "><failure message=\"" + message + "\"/></testcase>\n";
    } else if (test.status == "passed") {
      suite.body += "/>\n";
    } else if (test.status == "expected") {
      // A failure that the subject's contract row declares does not fail the run.
      suite.body += "><system-out>expected: " + message + "</system-out></testcase>\n";
    } else {
      ++suite.skipped;
      suite.body += "><skipped message=\"" + XmlText(test.status) +
                    (message.empty() ? "" : ": " + message) + "\"/></testcase>\n";
    }
  }
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const auto& [name, suite] : suites) {
    xml += "  <testsuite name=\"" + XmlText(name) + "\" tests=\"" + std::to_string(suite.tests) +
           "\" failures=\"" + std::to_string(suite.failures) + "\" skipped=\"" +
           std::to_string(suite.skipped) + "\"" + TimeAttribute(suite.seconds) + ">\n" +
           suite.body + "  </testsuite>\n";
  }
  return xml + "</testsuites>\n";
}

}  // namespace qualm
