// SPDX-License-Identifier: Apache-2.0
// The part of the page about the run as a whole.
#ifndef QUALM_REPORT_OVERVIEW_H_
#define QUALM_REPORT_OVERVIEW_H_

#include <vector>

#include "report/document.h"
#include "report/faults.h"

namespace qualm::report {

// The first screen: the verdict, where and how it ran, what changed, subjects by operations.
Blocks FirstScreen(const ResultRecord& record, const std::vector<Fault>& faults);

// "OK: nothing new; ..." as the terminal and the page say it.
std::string VerdictSentence(const std::vector<Fault>& faults,
                            const std::vector<std::string>& missing = {});

// The subjects that are bit-equal, by operation; nothing if the run did not compare them.
Blocks AgreementOf(const ResultRecord& record);

// Operations by hazards, as dark as the share of cases that reach them.
Blocks HazardMatrix(const ResultRecord& record);

// What a campaign had when; nothing of a short one.
Blocks CourseOf(const ResultRecord& record);

// The runs that wrote into this folder, and the findings of earlier runs that still lie there.
Blocks RunsOf(const OutputFolder& folder);

// Rows of adapters/contracts.cc that no finding of this run shows.
Blocks QuietDeclarations(const ResultRecord& record);

}  // namespace qualm::report

#endif  // QUALM_REPORT_OVERVIEW_H_
