// SPDX-License-Identifier: Apache-2.0
// Findings that somebody knows already: those of an earlier run (a baseline, qualm.result/1) and
// those that a person suppresses (qualm.suppressions/1, docs/ci.md and suppressions.schema.json).
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

// "2027-03-01"; nullopt for anything else, days that no calendar has among them.
std::optional<Date> ParseDate(std::string_view text);
std::string DateText(const Date& date);

// The fingerprints of the findings of a result document, but for those that were suppressed in that
// run: an expired suppression must not live on in a baseline. `name` is what error lines begin
// with. Throws InputError "NAME: FIELD: what, expected what".
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
