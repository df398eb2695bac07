// SPDX-License-Identifier: Apache-2.0
#include "tools/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "core/io/case_json.h"
#include "core/status.h"
#include "properties/property.h"
#include "properties/triage/triage.h"

namespace qualm::tools {
namespace {

std::vector<std::string>& CommandLine() {
  static std::vector<std::string> words;
  return words;
}

std::string ShellWord(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789@%+=:,./-_") == std::string::npos;
  if (plain) return word;
  std::string quoted = "'";
  for (char ch : word) quoted += ch == '\'' ? std::string("'\\''") : std::string(1, ch);
  return quoted + "'";
}

}  // namespace

void SetCommandLine(int argc, char** argv) { CommandLine().assign(argv + 1, argv + argc); }

std::string CanonicalCommand() {
  // Where results go and how many threads find them does not belong to what is repeated.
  static const std::set<std::string> kVolatile{"--json", "--junit", "--jobs", "-j",
                                               "--out",  "--plot",  "-o"};
  std::string command = "qualm";
  const std::vector<std::string>& words = CommandLine();
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string option = words[i].substr(0, words[i].find('='));
    if (kVolatile.contains(option)) {
      if (option == words[i]) ++i;  // its value is the next word
      continue;
    }
    command += " " + ShellWord(words[i]);
  }
  return command;
}

void AddSubjectOption(CLI::App& app, CommonOptions& options, bool required) {
  CLI::Option* option = app.add_option("--subject,-s", options.subjects,
                                       "who is judged (repeatable; see qualm list subjects)");
  option->allow_extra_args(false);
  if (required) option->required();
}

void AddOutputOptions(CLI::App& app, CommonOptions& options) {
  app.add_option("--json", options.json, "write the result document to FILE, - for stdout");
}

void AddContractOption(CLI::App& app, CommonOptions& options) {
  app.add_option("--contract", options.contract,
                 "judge against exact or model:NAME instead of each subject's own contract");
}

std::vector<std::string> SubjectNames(const std::vector<std::string>& named,
                                      const std::vector<std::string>& defaults) {
  const SubjectRegistry& registry = SubjectRegistry::Get();
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& pattern : named) {
    for (const std::string& name : registry.Expand(pattern)) add(name);
  }
  if (!named.empty()) return names;
  for (const std::string& pattern : defaults) {
    try {
      for (const std::string& name : registry.Expand(pattern)) {
        registry.Make(name);
        add(name);
      }
    } catch (const Unavailable& error) {
      fmt::print(stderr, "qualm: left out: {}\n", error.what());
    } catch (const InputError&) {
      fmt::print(stderr, "qualm: left out: this build has no subject '{}'\n", pattern);
    }
  }
  return names;
}

std::vector<std::unique_ptr<Subject>> MakeSubjects(const std::vector<std::string>& names,
                                                   const std::string& contract) {
  std::vector<std::unique_ptr<Subject>> subjects;
  for (const std::string& name : names) {
    subjects.push_back(SubjectRegistry::Get().Make(name));
    if (!contract.empty()) subjects.back()->set_contract(ParseContract(contract));
  }
  return subjects;
}

std::vector<Subject*> Pointers(const std::vector<std::unique_ptr<Subject>>& subjects) {
  std::vector<Subject*> pointers;
  for (const auto& subject : subjects) pointers.push_back(subject.get());
  return pointers;
}

bool IsDeclared(const Finding& finding, const Contract& contract) {
  const auto rows = SubjectRegistry::Get().expected();
  return std::any_of(rows.begin(), rows.end(), [&](const ExpectedDivergence& row) {
    return Concerns(row, finding.subject, contract, finding.op, finding.property) &&
           row.kind == Name(finding.kind);
  });
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw InputError(path + ": cannot be written");
}

std::vector<Finding> Triage(std::vector<Finding> raw, const std::string& out,
                            const std::string& contract) {
  std::vector<Finding> kept;
  std::set<std::string> seen;
  for (Finding& finding : raw) {
    const Property* property = FindProperty(finding.property);
    QUALM_CHECK(property != nullptr);
    const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make(finding.subject);
    if (!contract.empty()) subject->set_contract(ParseContract(contract));
    const Verdict verdict = Judge(*property, finding.test_case, *subject);
    if (verdict.failed()) {
      triage::Complete(finding, *subject, verdict);
    } else {
      // It failed once and does not fail again: that is the finding.
      finding.kind = FindingKind::kNondeterminism;
      finding.explanation += "; did not fail when it was run again";
    }
    if (!seen.insert(finding.fingerprint()).second) continue;
    if (!out.empty()) {
      const std::filesystem::path folder =
          std::filesystem::path(out) / "findings" / finding.fingerprint();
      std::error_code error;
      std::filesystem::create_directories(folder, error);
      if (error) throw InputError("--out: cannot make " + folder.string() + ": " + error.message());
      Case written = finding.test_case;
      written.property = finding.full_property();
      WriteCaseFile(written, (folder / "case.json").string());
      finding.case_file = (folder / "case.json").string();
      std::string explanation = FindingText(finding);
      if (verdict.failed()) {
        const triage::MinimizeResult small =
            triage::Minimize(finding.test_case, *subject, *property);
        if (small.reproduced) {
          const std::string path = (folder / "minimized.case.json").string();
          WriteCaseFile(small.minimized, path);
          finding.case_file = path;
          explanation += fmt::format("\nminimized in {} subject calls\n", small.calls);
          explanation += triage::Explain(small.minimized, {subject.get()});
        }
      }
      WriteFile((folder / "explanation.txt").string(), explanation);
    }
    kept.push_back(std::move(finding));
  }
  return kept;
}

void SetTotals(ResultDocument& document, const Totals& totals) {
  document.totals["cases"] = totals.cases;
  for (Judgement judgement :
       {Judgement::kPassed, Judgement::kFailed, Judgement::kExpected, Judgement::kSkipped,
        Judgement::kVacuous, Judgement::kNotApplicable}) {
    document.totals[std::string(Name(judgement))] = totals.of(judgement);
  }
}

void WriteResults(const CommonOptions& options, const ResultDocument& document,
                  const std::vector<JUnitTest>& tests) {
  std::string failure;
  if (!options.json.empty()) {
    const std::string json = ResultToJson(document);
    if (options.json == "-") {
      std::fwrite(json.data(), 1, json.size(), stdout);
      std::fflush(stdout);
    } else {
      try {
        WriteFile(options.json, json);
      } catch (const InputError& error) {
        failure = std::string("--json: ") + error.what();
      }
    }
  }
  if (!options.junit.empty()) {
    try {
      WriteFile(options.junit, ToJUnit(tests));
    } catch (const InputError& error) {
      failure = std::string("--junit: ") + error.what();
    }
  }
  if (!failure.empty()) throw InputError(failure);
}

CLI::Validator DurationUnits() {
  return CLI::AsNumberWithUnit(std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}},
                               CLI::AsNumberWithUnit::CASE_SENSITIVE);
}

std::string TotalsLine(const Totals& totals) {
  return fmt::format(
      "{} cases: {} passed, {} failed, {} expected, {} skipped, {} vacuous, {} not applicable",
      totals.cases, totals.of(Judgement::kPassed), totals.of(Judgement::kFailed),
      totals.of(Judgement::kExpected), totals.of(Judgement::kSkipped),
      totals.of(Judgement::kVacuous), totals.of(Judgement::kNotApplicable));
}

std::string FindingText(const Finding& finding) {
  std::string text = fmt::format("{}: {} fails on {} [{}]\n",
                                 finding.expected_by_contract ? "expected" : "FINDING",
                                 finding.full_property(), finding.subject, Name(finding.kind));
  if (finding.first_divergence) {
    const Divergence& d = *finding.first_divergence;
    text += fmt::format("  at index {}: expected {}, actual {} ({} lsb)\n", d.index, d.expected,
                        d.actual, d.distance_lsb);
  }
  if (!finding.explanation.empty()) text += "  " + finding.explanation + "\n";
  if (!finding.case_file.empty()) text += "  case: " + finding.case_file + "\n";
  return text;
}

}  // namespace qualm::tools
