// SPDX-License-Identifier: Apache-2.0
// Somebody's kernel under the properties in somebody's GoogleTest binary: each property is a test
// of its own. docs/embedding.md shows it at work.
#ifndef QUALM_PROPERTIES_GTEST_H_
#define QUALM_PROPERTIES_GTEST_H_

#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "properties/suite.h"

namespace qualm {

class PropertyTest : public testing::Test {
 public:
  PropertyTest(std::shared_ptr<Suite> suite, const Property& property)
      : suite_(std::move(suite)), property_(property) {}

  void TestBody() override {
    try {
      const SuiteResult result = suite_->Run(property_);
      if (result.judgement == Judgement::kFailed) FAIL() << result.text;
      if (result.judgement != Judgement::kPassed) GTEST_SKIP() << result.text;
    } catch (const std::exception& error) {
      FAIL() << error.what();
    }
  }

 private:
  std::shared_ptr<Suite> suite_;
  const Property& property_;
};

// Before RUN_ALL_TESTS. The macro below calls it.
inline bool RegisterPropertyTests(const char* name, const char* file, int line, Op op,
                                  MakeOwnSubject make, SuiteOptions options = {}) {
  const auto suite = std::make_shared<Suite>(op, std::move(make), std::move(options));
  for (const Property* property : PropertiesAbout(op, suite->options().properties)) {
    testing::RegisterTest(
        name, std::string(property->claim).c_str(), nullptr, nullptr, file, line,
        [suite, property]() -> PropertyTest* { return new PropertyTest(suite, *property); });
  }
  return true;
}

}  // namespace qualm

// QUALM_TEST_SUBJECT(Gemm, qualm::Op::kLinear, MakeGemm [, {.cases = 2000, ...}]): at namespace
// scope. MakeGemm gives a std::unique_ptr<qualm::Subject> (qualm::MakeSubject of
// adapters/function_subject.h makes one of a function). The tests are Gemm.matches_exact,
// Gemm.sweep_is_linear and so on, the options those of qualm::SuiteOptions. A failure shows the
// minimized case and what is wrong with it; a property that nothing could break is skipped, with
// the reason.
#define QUALM_TEST_SUBJECT(suite, op, ...)                 \
  [[maybe_unused]] static const bool qualm_tests_##suite = \
      ::qualm::RegisterPropertyTests(#suite, __FILE__, __LINE__, op, __VA_ARGS__)

#endif  // QUALM_PROPERTIES_GTEST_H_
