// SPDX-License-Identifier: Apache-2.0
// For tests of the parts of the command that do not start it. For tests only.
#ifndef QUALM_TOOLS_TOOLS_TEST_UTIL_H_
#define QUALM_TOOLS_TOOLS_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/finding.h"
#include "tools/known.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {

// What `act` says on stderr.
template <class Act>
std::string Told(const Act& act) {
  testing::internal::CaptureStderr();
  act();
  return testing::internal::GetCapturedStderr();
}

class KnowingTest : public QualmTest {
 protected:
  // Suppresses these findings, on a day when the suppressions hold.
  KnownFindings Knowing(const std::vector<Finding>& findings) {
    std::set<std::string> fingerprints;
    for (const Finding& finding : findings) fingerprints.insert(finding.fingerprint());
    KnownOptions options;
    options.suppressions = Write("list.json", Suppressions(fingerprints).dump());
    options.today = "2027-01-01";
    return KnownFindings(options);
  }
};

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_TOOLS_TEST_UTIL_H_
