// SPDX-License-Identifier: Apache-2.0
// A finding: a failed verdict with its subject, case, kind and fingerprint.
#ifndef QUALM_CORE_FINDING_H_
#define QUALM_CORE_FINDING_H_

#include <optional>
#include <string>
#include <string_view>

#include "core/case.h"
#include "core/contract.h"
#include "core/verdict.h"

namespace qualm {

class Subject;

// A failure worth telling: what failed, on what, why, and where the evidence lies.
struct Finding {
  // `claim` fails on `subject` for the case `c`, in the words of `verdict`.
  Finding(const Case& c, std::string_view claim, std::string_view subject_name,
          const Verdict& verdict, std::string file = "");
  // The same without a case. A recording may name an operation that is no Op.
  Finding(std::string_view op_name, std::string_view claim, std::string_view subject_name,
          const Verdict& verdict, std::string file = "");

  std::string op;
  std::string property;  // the claim: "sweep_is_monotone"
  std::string subject;
  FindingKind kind = FindingKind::kUnknown;
  bool expected_by_contract = false;
  std::string declared;   // and the reason of the row that declares it, if a row does
  std::string case_file;  // "" until written
  std::optional<Divergence> first_divergence;
  std::string explanation;
  Case test_case;

  // (op, property, subject, kind): the identity of a finding while minimizing and deduplicating.
  // Also the name of its folder, so it has no colon and nothing of a path.
  std::string fingerprint() const;
  // The fingerprint of older versions, with the subject as the user typed it. Lists of known
  // findings may contain it.
  std::string former_fingerprint() const;
  // "linear.sweep_is_monotone", as people and --property name it.
  std::string full_property() const { return op + "." + property; }
};

// Replaces `name` by `lasting` in the fingerprints made from now on: a path or a command says where
// a plugin or a program is on this machine, not what it is. If another subject has that lasting
// name already, this one gets a number behind it. Any thread.
void SetLastingName(const std::string& name, const std::string& lasting);

// Does a declared divergence (core/contract.h) speak of this claim of the subject under `contract`,
// and name the kind of the finding and its shape?
bool IsDeclared(const Finding& finding, const Subject& subject, const Contract& contract);
// The row that says so, or null.
const ExpectedDivergence* DeclaredBy(const Finding& finding, const Subject& subject,
                                     const Contract& contract);

}  // namespace qualm

#endif  // QUALM_CORE_FINDING_H_
