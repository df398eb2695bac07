// SPDX-License-Identifier: Apache-2.0
// The report: one HTML page from an output folder of audit, check or fuzz.
#ifndef QUALM_REPORT_PAGE_H_
#define QUALM_REPORT_PAGE_H_

#include <string>

namespace qualm::report {

struct BuiltReport {
  std::string path;
  std::string verdict;  // "OK: nothing new; ..."
};
// Writes DIR/index.html. `corpus` holds forum/, whose cases the page of an audit explains. Throws
// InputError where DIR holds nothing to report, where something in it is broken, and where an
// index.html of somebody else lies there.
BuiltReport BuildReport(const std::string& folder, const std::string& corpus);

// Throws where an index.html of somebody else lies in the folder.
void RequireOurPage(const std::string& folder);

}  // namespace qualm::report

#endif  // QUALM_REPORT_PAGE_H_
