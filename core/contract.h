// SPDX-License-Identifier: Apache-2.0
// What a subject promises, and the departures from exact that are known and declared.
#ifndef QUALM_CORE_CONTRACT_H_
#define QUALM_CORE_CONTRACT_H_

#include <string>
#include <string_view>
#include <vector>

namespace qualm {

// "exact", or "model:NAME": bit-equal to that named convention of oracles/conventions.
struct Contract {
  std::string convention;  // "" means exact

  bool exact() const { return convention.empty(); }
  std::string text() const { return exact() ? "exact" : "model:" + convention; }
  friend bool operator==(const Contract&, const Contract&) = default;
};

// Parses the two forms above; throws InputError for anything else.
Contract ParseContract(std::string_view text);

// A known departure from the exact meaning: `audit` expects to see it, and fails when it vanishes
// as well as when one appears that is not declared. One row each in adapters/contracts.cc.
struct ExpectedDivergence {
  std::string subject;   // as named on the command line, e.g. "onednn@avx2"
  std::string op;        // "linear"
  std::string property;  // the claim, without the op: "matches_exact"
  std::string kind;      // Name(FindingKind): "pair-saturation"
  std::string reason;    // one sentence and where it is documented upstream
};

// Does the row speak of this claim of a subject? It names the subject itself, or the convention
// that the subject promises.
inline bool Concerns(const ExpectedDivergence& row, std::string_view subject,
                     const Contract& contract, std::string_view op, std::string_view claim) {
  return (row.subject == subject || row.subject == contract.text()) && row.op == op &&
         row.property == claim;
}

}  // namespace qualm

#endif  // QUALM_CORE_CONTRACT_H_
