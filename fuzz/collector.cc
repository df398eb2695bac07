// SPDX-License-Identifier: Apache-2.0
#include "fuzz/collector.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <vector>

#include "core/content_name.h"
#include "core/finding.h"
#include "core/io/case_json.h"
#include "core/io/fault_row.h"
#include "core/io/text_file.h"
#include "triage/causes.h"
#include "triage/triage.h"

namespace qualm::fuzz {
namespace {

namespace fs = std::filesystem;

std::string CausesText(const triage::Attribution& attribution) {
  std::string text(Name(attribution.kind));
  for (const triage::Cause* cause : attribution.causes) text += "+" + std::string(cause->name);
  return text;
}

// Writes the failure into held/ and returns its name there.
std::string Hold(const fs::path& state, const Finding& finding, const std::string& identity,
                 const RecentRuns& subject) {
  FaultRow row;
  row.subject = finding.subject;
  row.identity = identity;
  row.op = finding.test_case.op;
  row.kind = finding.kind;
  row.properties = {finding.property};
  row.explanation = finding.explanation;
  row.found = UtcNow();
  Case c = finding.test_case;
  c.property = finding.full_property();
  c.contract = subject.contract().text();
  const std::string text = CaseToJson(c);
  // Another process may hold the same failure at the same time.
  const std::string name =
      ContentName(row.subject + "\n" + text) + "-" + std::to_string(::getpid());
  WriteFolder((state / kHeld / name).string(), {{"case.json", text},
                                                {"fault.json", FaultRowToJson(row)},
                                                {"before.cases", subject.Lines()}});
  return name;
}

}  // namespace

void HandOver(const fs::path& state, const std::string& name) {
  std::error_code exists;  // the same failure was handed over before
  fs::rename(state / kHeld / name, state / kInbox / name.substr(0, name.find('-')), exists);
  if (exists) RemoveFolder((state / kHeld / name).string());
}

int HolderOf(std::string_view name) {
  int process = 0;
  const size_t dash = name.find('-');
  if (dash != std::string_view::npos)
    std::from_chars(name.data() + dash + 1, name.data() + name.size(), process);
  return process;
}

Collector::Collector(fs::path state) : state_(std::move(state)) {}

void Collector::Take(const Case& c, const Property& property, RecentRuns& subject,
                     const Verdict& verdict) {
  Clock::duration& looked = looked_[{std::string(subject.name()), std::string(property.claim)}];
  const Clock::time_point now = Clock::now();
  if (4 * static_cast<int64_t>(looked_.size()) * looked > now - start_) return;
  Look(c, property, subject, verdict);
  looked += Clock::now() - now;
}

void Collector::Look(const Case& c, const Property& property, RecentRuns& subject,
                     const Verdict& verdict) {
  Finding finding(c, property.claim, subject.name(), verdict);
  const std::string identity = IdentityOf(subject);
  const std::string held = Hold(state_, finding, identity, subject);
  const triage::Attribution cause = triage::Attribute(c, verdict, subject);
  finding.kind = cause.kind;
  const std::string claim_and_cause =
      finding.full_property() + "\n" + identity + "\n" + CausesText(cause);
  const std::string place =
      IsDeclared(finding, subject, subject.contract()) ? "" : PlaceOf(claim_and_cause);
  if (place.empty()) {
    RemoveFolder((state_ / kHeld / held).string());
    return;
  }
  HandOver(state_, held);
  std::ofstream(state_ / kSeen / place).flush();
}

std::string Collector::PlaceOf(const std::string& claim_and_cause) {
  constexpr int kPlaces = 3;
  if (full_.contains(claim_and_cause)) return "";
  const std::string name = ContentName(claim_and_cause);
  for (int i = 0; i < kPlaces; ++i) {
    std::string place = name + "-" + std::to_string(i);
    if (!fs::exists(state_ / kSeen / place)) return place;
  }
  full_.insert(claim_and_cause);
  return "";
}

}  // namespace qualm::fuzz
