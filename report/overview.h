// SPDX-License-Identifier: Apache-2.0
// What the page says of the run as a whole.
#ifndef QUALM_REPORT_OVERVIEW_H_
#define QUALM_REPORT_OVERVIEW_H_

#include <vector>

#include "report/document.h"
#include "report/faults.h"

namespace qualm::report {

// The first screen: the verdict, where and how it ran, what changed, subjects by operations.
Blocks FirstScreen(const ResultRecord& record, const std::vector<Fault>& faults);

// "OK: nothing new; ..." as the terminal and the page say it.
std::string VerdictSentence(const std::vector<Fault>& faults);

// Which subjects are bit-equal, by operation; nothing where the run did not compare them.
Blocks AgreementOf(const ResultRecord& record);

// Operations by hazards, as dark as the share of cases that reach them.
Blocks HazardMatrix(const ResultRecord& record);

// How the runs that wrote into this folder went, and findings of earlier ones that lie there still.
Blocks RunsOf(const OutputFolder& folder);

// Rows of adapters/contracts.cc that no finding stands for.
Blocks QuietDeclarations(const ResultRecord& record);

}  // namespace qualm::report

#endif  // QUALM_REPORT_OVERVIEW_H_
