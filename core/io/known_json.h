// SPDX-License-Identifier: Apache-2.0
// Findings that are known already, from two kinds of files (docs/ci.md): a baseline holds the
// findings of an earlier run (qualm.result/1), a list of suppressions holds findings that a person
// excuses (qualm.suppressions/1, suppressions.schema.json).
#ifndef QUALM_CORE_IO_KNOWN_JSON_H_
#define QUALM_CORE_IO_KNOWN_JSON_H_

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace qualm {

using Date = std::chrono::year_month_day;

// "2027-03-01"; nullopt for any other text, and for days that no calendar has.
std::optional<Date> ParseDate(std::string_view text);
std::string DateText(const Date& date);

// The fingerprints of the findings of a result document. Findings that were suppressed in that run
// are left out: an expired suppression must not live on in a baseline. `name` is what error lines
// begin with. Throws InputError "NAME: FIELD: what, expected what".
std::set<std::string> ParseBaseline(std::string_view text, std::string_view name);
std::set<std::string> ReadBaselineFile(const std::string& path);

struct Suppression {
  std::string fingerprint;
  std::string reason;
  Date expires;  // the last day on which it holds, UTC
};
// In the order of the file. Throws InputError likewise.
std::vector<Suppression> ParseSuppressions(std::string_view text, std::string_view name);
std::vector<Suppression> ReadSuppressionsFile(const std::string& path);

}  // namespace qualm

#endif  // QUALM_CORE_IO_KNOWN_JSON_H_
