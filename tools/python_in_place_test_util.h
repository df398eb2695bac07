// SPDX-License-Identifier: Apache-2.0
// A small script in the place of the Python that has a library.
#ifndef QUALM_TOOLS_PYTHON_IN_PLACE_TEST_UTIL_H_
#define QUALM_TOOLS_PYTHON_IN_PLACE_TEST_UTIL_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "adapters/registry.h"
#include "core/status.h"
#include "core/subject.h"

namespace qualm {

class PythonInPlace : public testing::Test {
 protected:
  // `variable` names the Python of `subject`.
  PythonInPlace(const char* variable, std::string subject)
      : variable_(variable), subject_(std::move(subject)) {}

  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("python-" + std::to_string(getpid()) +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    setenv(variable_, (folder_ / "python").c_str(), 1);
    RegisterAllSubjects();  // looks for the library: not every machine has one besides
  }
  void TearDown() override {
    unsetenv(variable_);
    unsetenv("QUALM_TIME_LIMIT_MS");
    std::filesystem::remove_all(folder_);
  }

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  // The system's Python, which finds the packages in the folder first.
  void WritePython() const {
    Write("python", "#!/bin/sh\nPYTHONPATH=" + folder_.string() + " exec python3 \"$@\"\n");
  }
  std::unique_ptr<Subject> Make() const { return SubjectRegistry::Get().Make(subject_); }
  void ExpectAbsent(const std::string& reason) const {
    std::string why = "it is there";
    try {
      Make();
    } catch (const Unavailable& error) {
      why = error.what();
    }
    EXPECT_TRUE(why.starts_with("subject '" + subject_ + "': ")) << why;
    EXPECT_NE(why.find(reason), std::string::npos) << why;
    EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  }

 private:
  const char* variable_;
  std::string subject_;
  std::filesystem::path folder_;
};

}  // namespace qualm

#endif  // QUALM_TOOLS_PYTHON_IN_PLACE_TEST_UTIL_H_
