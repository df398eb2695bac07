// SPDX-License-Identifier: Apache-2.0
// One fault that a campaign found ("schema": "qualm.fault/1"): the file fault.json beside its case.
#ifndef QUALM_CORE_IO_FAULT_ROW_H_
#define QUALM_CORE_IO_FAULT_ROW_H_

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "core/op.h"
#include "core/subject.h"
#include "core/verdict.h"

namespace qualm {

// The result of running the case again, twice, each time in a new instance of the subject.
enum class Replayed : uint8_t {
  kNot,           // not run again yet
  kReproducible,  // failed both times
  kStateful,      // failed both times after the cases that came before it, and not without them
  kFlaky,         // anything else
};
inline constexpr std::array<std::string_view, 4> kReplayedNames{"not", "reproducible", "stateful",
                                                                "flaky"};
constexpr std::string_view Name(Replayed replayed) {
  return kReplayedNames[static_cast<size_t>(replayed)];
}

struct FaultRow {
  std::string subject;   // as named on the command line
  std::string identity;  // the subject in the fingerprint: IdentityOf
  Op op = Op::kLinear;
  FindingKind kind = FindingKind::kUnknown;
  std::string cause;  // as triage names it; "" if none is shown
  // Experiments have shown the kind of the subject, and not of this case alone.
  bool of_subject = false;
  // Claims that failed. Several claims that fail for one cause are one fault.
  std::set<std::string> properties;
  Replayed replayed = Replayed::kNot;
  bool minimized = false;  // or given up
  std::string explanation;
  std::string found;  // "2026-11-22T23:05:07Z", the first time

  // Subject, operation and cause: one fault has one fingerprint, on any machine. Also the name of
  // the folder of the row.
  std::string fingerprint() const;
  friend bool operator==(const FaultRow&, const FaultRow&) = default;
};

// The subject without the folders of this machine: its name, but for a plugin the name of the file,
// and for a program behind a pipe nothing of the command line. Behind each stands the version that
// the subject tells.
std::string IdentityOf(const Subject& subject);

// The present moment as `found` has it.
std::string UtcNow();

std::string FaultRowToJson(const FaultRow& row);
// `name` is what error lines begin with. Throws InputError "NAME: FIELD: what, expected what".
FaultRow ParseFaultRow(std::string_view text, std::string_view name);
FaultRow ReadFaultRowFile(const std::string& path);

}  // namespace qualm

#endif  // QUALM_CORE_IO_FAULT_ROW_H_
