// SPDX-License-Identifier: Apache-2.0
#include "core/finding.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "core/content_name.h"
#include "core/subject.h"

namespace qualm {
namespace {

// A fingerprint is the name of a folder, and the name of a subject may be longer than a file system
// allows. The part that is cut off still counts, as a hash.
std::string Shortened(const std::string& subject) {
  constexpr size_t kMost = 120;
  if (subject.size() <= kMost) return subject;
  return subject.substr(0, kMost - 17) + "-" + ShortContentName(subject);
}

std::string Plain(std::string text, std::string_view also) {
  for (char& ch : text) {
    const bool plain = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
                       (ch >= '0' && ch <= '9') || also.find(ch) != std::string_view::npos;
    if (!plain) ch = '_';
  }
  return text;
}

std::mutex lasting_mutex;
std::map<std::string, std::string>& LastingNames() {
  static std::map<std::string, std::string> names;
  return names;
}

// "faulty:tail" lasts too, but a colon is no part of a file name everywhere.
std::string LastingName(const std::string& subject) {
  const std::scoped_lock lock(lasting_mutex);
  const auto at = LastingNames().find(subject);
  if (at != LastingNames().end()) return at->second;
  std::string name = subject;
  std::ranges::replace(name, ':', '-');
  return name;
}

}  // namespace

void SetLastingName(const std::string& name, const std::string& lasting) {
  const std::scoped_lock lock(lasting_mutex);
  std::map<std::string, std::string>& names = LastingNames();
  if (names.contains(name)) return;
  const auto taken = [&](const std::string& wanted) {
    return std::ranges::any_of(names, [&](const auto& entry) { return entry.second == wanted; });
  };
  std::string free = lasting;
  for (int number = 2; taken(free); ++number) free = lasting + "-" + std::to_string(number);
  names[name] = free;
}

Finding::Finding(std::string_view op_name, std::string_view claim, std::string_view subject_name,
                 const Verdict& verdict, std::string file)
    : op(op_name),
      property(claim),
      subject(subject_name),
      kind(verdict.kind.value_or(FindingKind::kUnknown)),
      case_file(std::move(file)),
      first_divergence(verdict.divergence),
      explanation(verdict.reason) {}

Finding::Finding(const Case& c, std::string_view claim, std::string_view subject_name,
                 const Verdict& verdict, std::string file)
    : Finding(Name(c.op), claim, subject_name, verdict, std::move(file)) {
  test_case = c;
}

std::string Finding::fingerprint() const {
  return Plain(
      full_property() + "-" + Shortened(LastingName(subject)) + "-" + std::string(Name(kind)),
      "-._@+");
}

std::string Finding::former_fingerprint() const {
  return Plain(full_property() + "-" + Shortened(subject) + "-" + std::string(Name(kind)),
               "-._@+:");
}

const ExpectedDivergence* DeclaredBy(const Finding& finding, const Subject& subject,
                                     const Contract& contract) {
  const auto rows = SubjectRegistry::Get().expected();
  const auto row = std::ranges::find_if(rows, [&](const ExpectedDivergence& each) {
    return Concerns(each, subject, contract, finding.op, finding.property) &&
           (each.kind == "*" ? finding.first_divergence.has_value()
                             : each.kind == Name(finding.kind)) &&
           Fits(each, finding.test_case, finding.explanation);
  });
  return row == rows.end() ? nullptr : &*row;
}

bool IsDeclared(const Finding& finding, const Subject& subject, const Contract& contract) {
  return DeclaredBy(finding, subject, contract) != nullptr;
}

}  // namespace qualm
