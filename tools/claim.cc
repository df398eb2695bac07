// SPDX-License-Identifier: Apache-2.0
#include "tools/claim.h"

#include <fmt/format.h>

#include "core/io/shell_word.h"
#include "core/io/short_path.h"
#include "core/status.h"
#include "oracles/exact/exact.h"
#include "properties/engine.h"
#include "properties/property.h"
#include "tools/command.h"
#include "tools/findings.h"
#include "tools/regressions.h"
#include "triage/identify.h"

namespace qualm::tools {
namespace {

std::string FailsText(const std::string& file, const Subject& subject, const Finding& finding,
                      const std::string& reason, bool exact, bool contract_named) {
  std::string beside;
  if (exact && finding.property == "matches_model")
    beside = fmt::format("  The answer is exact; {}, by which it is judged, gives another.\n",
                         subject.contract().text());
  else if (exact)
    beside = "  The answer to the case alone is exact; the claim asks for more than this answer.\n";
  return fmt::format(
      "{}, the claim of this file, {} on {}: {}.\n{}{}  to see it fail: qualm replay {} --subject "
      "{}{}\n",
      finding.full_property(), finding.expected_by_contract ? "fails as declared" : "fails",
      ShortSubject(std::string(subject.name())), reason,
      finding.declared.empty() ? "" : "  declared: " + finding.declared + "\n", beside,
      ShellWord(ShortPath(file)), ShellWord(ShortSubject(std::string(subject.name()))),
      contract_named ? " --contract " + ShellWord(subject.contract().text()) : "");
}

std::string HoldsText(const Case& c, const Property& property, const Subject& subject,
                      const Outcome& now) {
  std::string differs;
  if (c.observed) {
    if (const auto change = FirstDivergence(c.observed->y, now.y)) {
      differs = fmt::format(" It gave {} at index {} then, and gives {} now.", change->expected,
                            change->index, change->actual);
    }
  }
  return fmt::format("{}, the claim of this file, did not fail on {} this time.{}\n  {}\n",
                     FullName(c.op, property), subject.name(), differs, HiddenFailureText());
}

}  // namespace

void RequireContract(const Case& c, const std::string& file) {
  if (c.contract.empty()) return;
  if (const std::string why = WrongContracts({{}, {{c.op, ParseContract(c.contract)}}});
      !why.empty())
    throw InputError(file + ": contract: " + why);
}

Contract ContractOfClaim(const Case& c, const Subject& subject, bool own) {
  const Contract& promised = subject.contract(c.op);
  if (own) return promised;
  if (!c.contract.empty()) return ParseContract(c.contract);
  if (!IsReproducerOf(c, subject)) return promised;
  if (!c.property.ends_with("matches_model")) return {};
  if (!promised.exact() || !c.expected) return promised;
  // Any convention that gives this output gives the same verdict.
  const std::vector<std::string> names =
      triage::BitEqual(c, *c.expected, triage::AllConventionsAndExact().subspan(1));
  return names.empty() ? promised : Contract{names.front()};
}

ClaimAgain JudgeClaimAgain(const std::string& file, const Case& c, Subject& subject,
                           bool contract_named) {
  const Property& property = PropertyOf(c.property, c.op, file + ": property");
  RequireContract(c, file);
  const Contracts own = subject.contracts();
  subject.set_contract(ContractOfClaim(c, subject, contract_named));
  MemoSubject memo(subject);
  ClaimAgain again;
  const Outcome outcome = memo.Run(c, RunContext{});
  const Verdict verdict = Judge(property, c, memo);
  again.judgement = verdict.judgement;
  if (verdict.failed() && property.claim != "matches_exact") {
    again.finding = FindingOf(c, property, memo, verdict, file, own.of(c.op));
    if (again.finding->expected_by_contract) again.judgement = Judgement::kExpected;
    const bool exact = outcome.ok() && exact::Evaluate(c) == outcome.y;
    again.text = FailsText(file, subject, *again.finding, verdict.reason, exact, contract_named);
  } else if (verdict.judgement == Judgement::kPassed && outcome.ok() && MayHide(c, subject)) {
    again.text = HoldsText(c, property, subject, outcome);
  }
  subject.set_contracts(own);
  return again;
}

}  // namespace qualm::tools
