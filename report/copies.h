// SPDX-License-Identifier: Apache-2.0
// The copies that a reader of a fault can take away: each is a button of its section.
#ifndef QUALM_REPORT_COPIES_H_
#define QUALM_REPORT_COPIES_H_

#include <optional>
#include <string>

#include "core/case.h"
#include "core/io/result_reader.h"
#include "report/document.h"

namespace qualm::report {

// The commands, and the case in every form that exporters/ can write as one text. `file` is where
// the case lies, from the folder of the page; "" if it lies nowhere.
Blocks CopiesOf(const RecordedFinding& finding, const std::optional<Case>& c,
                const std::string& file, const RunFacts& run, const std::string& place);

}  // namespace qualm::report

#endif  // QUALM_REPORT_COPIES_H_
