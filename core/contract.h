// SPDX-License-Identifier: Apache-2.0
// The contracts of a subject (what it promises), and the known departures from exact.
#ifndef QUALM_CORE_CONTRACT_H_
#define QUALM_CORE_CONTRACT_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/op.h"

namespace qualm {

struct Case;

inline constexpr std::string_view kTreeContract = "tree:";

// What is promised for an operation: "exact"; "sum", each output where sums in float32 of some
// order may bring it (oracles/conventions/float_sums.h), "sum+offsets", where they take out the
// zero points of weights too; "model:NAME", bit-equal to that named
// convention of oracles/conventions; "tree:{...}", bit-equal to sums along this tree
// (oracles/conventions/tree_contract.h); or "within:V1,V8", each output where these permitted
// variations (oracles/conventions/variations.h) may bring it. oracles/accepted.h judges by it.
struct Contract {
  std::string convention = {};               // of model:NAME; of a tree its whole text
  std::vector<std::string> variations = {};  // of within:
  bool sum = false;
  bool offsets = false;  // of sum+offsets

  bool exact() const { return convention.empty() && !permits_intervals(); }
  bool is_tree() const { return convention.starts_with(kTreeContract); }
  // Whether it judges what is added in float32.
  bool adds_floats() const { return sum || is_tree(); }
  bool permits_intervals() const { return sum || !variations.empty(); }
  std::string text() const;
  friend bool operator==(const Contract&, const Contract&) = default;
};

// The forms, for messages.
inline constexpr std::string_view kContractForms =
    "exact, sum, sum+offsets, tree:{...}, model:NAME or within:V1,V8";

// Parses the forms above; throws InputError for anything else.
Contract ParseContract(std::string_view text);

// A contract for each operation: "model:A,linear=within:V1,V8,add=exact".
struct Contracts {
  std::optional<Contract> rest;  // of the operations that are not named
  std::map<Op, Contract> by_op;

  const Contract& of(Op op) const;  // exact where nothing is said
  bool Say(Op op) const { return rest || by_op.contains(op); }
  // These, and where they say nothing those of `others`.
  Contracts Over(const Contracts& others) const;
  std::string text() const;
  friend bool operator==(const Contracts&, const Contracts&) = default;
};

// Parses contracts between commas, "OP=" before those of one operation; throws InputError for
// anything else, and for two contracts of one operation.
Contracts ParseContracts(std::string_view text);

// A known departure from the exact meaning, one row each in adapters/contracts.cc. `audit` fails
// when it sees a departure that no row declares. It also reports a row as vanished if no documented
// case shows its departure. It can say that only of rows whose subject it asks, and by whose claim
// it judges documented cases.
struct ExpectedDivergence {
  // A subject as on the command line, "onednn@avx2". Or a convention, "model:onednn2@avx2": such a
  // row also declares the departure for every subject that promises the convention.
  std::string subject;
  std::string op;        // "linear"
  std::string property;  // the claim, without the op: "matches_exact"; "*": any claim
  std::string kind;      // Name(FindingKind): "pair-saturation"; "*": any wrong output
  std::string reason;    // one sentence and where it is documented upstream
  // The library that has the fault: a prefix of "KIND: VERSION", e.g. "onednn: oneDNN 2.6.". "":
  // the convention itself departs, and so does every subject that keeps it.
  std::string library = {};
  // Words that the failure's sentence holds, e.g. "before the start of"; "": any sentence.
  std::string shape = {};
  // The cases that show the fault; nullptr: any case.
  bool (*where)(const Case& c) = nullptr;
};

}  // namespace qualm

#endif  // QUALM_CORE_CONTRACT_H_
