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
  // As named on the command line, e.g. "onednn@avx2"; or a convention, "model:onednn2@avx2", and
  // then also for subjects that promise it.
  std::string subject;
  std::string op;        // "linear"
  std::string property;  // the claim, without the op: "matches_exact"
  std::string kind;      // Name(FindingKind): "pair-saturation"
  std::string reason;    // one sentence and where it is documented upstream
  // Whose fault it is, of those that promise the convention: what "KIND: VERSION" begins with, e.g.
  // "onednn: oneDNN 2.6.". "" where the convention itself departs, so that all who keep it do.
  std::string library = {};
  std::string shape =
      {};  // what the words of the failure hold, e.g. "before the start of"; "": any
};

}  // namespace qualm

#endif  // QUALM_CORE_CONTRACT_H_
