// SPDX-License-Identifier: Apache-2.0
// qualm identify: whose arithmetic is this?
#include "triage/identify.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <ranges>

#include "core/io/case_json.h"
#include "core/io/golden.h"
#include "core/io/shell_word.h"
#include "core/io/short_path.h"
#include "core/status.h"
#include "oracles/accepted.h"
#include "oracles/conventions/known_trees.h"
#include "oracles/golden/judge.h"
#include "properties/domain.h"
#include "tools/command.h"
#include "tools/ops.h"
#include "tools/progress.h"
#include "tools/session.h"
#include "tools/solve.h"
#include "tools/stop.h"
#include "tools/tree.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;
using triage::Comparison;
using triage::ConventionOrExact;
using triage::Identified;
using State = Comparison::State;

// Between two conventions one input is searched for: that takes more cases.
constexpr int64_t kCases = 1000, kCasesBetween = 4000;

struct Options : CommonOptions {
  std::vector<std::string> cases;
  std::vector<std::string> between;
  std::vector<std::string> conventions;
  OpWords ops;
  std::string out;
  bool solve = false;
  TreeOptions tree;
  triage::IdentifyOptions identify{.cases = 0};
};

// The arithmetic to be identified, and the conventions it is compared with.
struct Question {
  std::string name;  // for people: a subject, a convention, or who printed it
  std::vector<ConventionOrExact> conventions;
  std::vector<triage::ObservedCase> observed;  // of case files
  std::vector<Identified> results;
};

std::vector<Op> Ops(const Options& options) {
  const std::vector<Op> ops = OpsOf(options.ops);
  return ops.empty() ? std::vector<Op>(AllOps().begin(), AllOps().end()) : ops;
}

std::vector<ConventionOrExact> Conventions(const Options& options) {
  const auto all = triage::AllConventionsAndExact();
  if (options.conventions.empty()) return {all.begin(), all.end()};
  std::vector<ConventionOrExact> chosen;
  for (const std::string& name : options.conventions) {
    chosen.push_back(triage::FindConventionOrExact(name, "--convention"));
  }
  return chosen;
}

void RequireOneQuestion(const Options& options) {
  const int asked = (options.subjects.empty() ? 0 : 1) + (options.cases.empty() ? 0 : 1) +
                    (options.between.empty() ? 0 : 1);
  if (asked == 1) return;
  throw InputError(fmt::format("identify takes one of --subject S, CASE... and --between A B, {}",
                               asked == 0 ? "none was given" : "more than one was given"));
}

std::vector<triage::ObservedCase> ReadObserved(const Options& options) {
  std::vector<triage::ObservedCase> cases;
  const std::vector<Op> ops = Ops(options);
  for (const std::string& file : options.cases) {
    Case c = ReadCaseFile(file);
    if (!c.observed) {
      throw InputError(file + ": observed: is missing, expected the output to be identified");
    }
    if (std::ranges::find(ops, c.op) != ops.end()) cases.push_back({file, std::move(c)});
  }
  return cases;
}

// Calls `begin` when all options are known to be right, before the first case runs.
Question Ask(const Options& options, const std::function<void()>& begin) {
  Question question;
  question.conventions = Conventions(options);
  if (!options.cases.empty()) {
    question.observed = ReadObserved(options);
    const std::vector<triage::ObservedCase>& cases = question.observed;
    begin();
    question.name = "observed";
    StepProgress progress("comparing: ");
    const auto compared = [&](size_t done) {
      progress.At(static_cast<double>(done) / static_cast<double>(cases.size()),
                  fmt::format("{} of {} answers", done, cases.size()));
    };
    compared(0);
    question.results = IdentifyObserved(cases, question.conventions, compared);
    return question;
  }
  triage::IdentifyOptions identify = options.identify;
  std::unique_ptr<Subject> subject;
  triage::Answerer answerer;
  if (!options.between.empty()) {
    const ConventionOrExact& one = triage::FindConventionOrExact(options.between[0], "--between");
    question.conventions = {triage::FindConventionOrExact(options.between[1], "--between")};
    answerer = triage::AnswererOf(one);
    if (identify.cases == 0) identify.cases = kCasesBetween;
  } else {
    const std::vector<std::string> names = SubjectNames(options.subjects, {});
    if (names.size() != 1) {
      throw InputError(fmt::format("--subject: {} subjects are named ({}), expected one",
                                   names.size(), fmt::join(options.subjects, ", ")));
    }
    subject = MakeInDomain(names.front());
    answerer = triage::AnswererOf(*subject);
    if (identify.cases == 0) identify.cases = kCases;
  }
  question.name = answerer.name;
  const std::vector<Op> ops = Ops(options);
  begin();
  StepProgress progress("identifying: ", identify.seconds);
  identify.seconds /= static_cast<double>(ops.size());
  identify.stopped = Stopped;
  Op asked = ops.front();
  int64_t answers = 0;  // of the operation that is asked, of all its phases
  const auto tell = [&] {
    const int64_t done = std::min(answers, identify.cases);
    const double part = static_cast<double>(done) / static_cast<double>(identify.cases);
    std::string at = fmt::format("{}, {} answers", Name(asked), answers);
    if (identify.seconds == 0) {
      at = fmt::format("{}, {} of {} cases{}", Name(asked), done, identify.cases,
                       answers > done ? ", then what rules out is made shorter" : "");
    }
    progress.At(
        (static_cast<double>(question.results.size()) + part) / static_cast<double>(ops.size()),
        std::move(at));
  };
  answerer.run = [run = answerer.run, &answers, &tell](const Case& c) {
    ++answers;
    tell();
    return run(c);
  };
  for (const Op op : ops) {
    asked = op;
    answers = 0;
    tell();
    question.results.push_back(Identify(answerer, op, question.conventions, identify));
  }
  return question;
}

// A name such as "fbgemm@avx2+nofma" is a legal part of a file name as it is.
void WriteWitnesses(const std::string& folder, std::vector<Identified>& results,
                    Deferred& deferred) {
  if (folder.empty()) return;
  deferred.Try([&] {
    MakeFolder("--output", folder);
    for (Identified& result : results) {
      for (Comparison& comparison : result.conventions) {
        if (!comparison.witness || !comparison.witness->file.empty()) continue;
        const std::string file = (fs::path(folder) / fmt::format("{}.{}.case.json", Name(result.op),
                                                                 comparison.convention))
                                     .string();
        WriteCaseFile(comparison.witness->c, file);
        comparison.witness->file = file;
      }
    }
  });
}

// Conventions ruled out by the same input share a paragraph.
std::string RuledOutText(const Identified& result, const std::string& name) {
  struct Group {
    const triage::Witness* witness;
    std::string gives;
  };
  std::vector<Group> groups;
  for (const Comparison& comparison : result.conventions) {
    if (!comparison.witness) continue;
    const triage::Witness& witness = *comparison.witness;
    const auto same = std::ranges::find_if(groups, [&](const Group& group) {
      return group.witness->divergence.index == witness.divergence.index &&
             ProblemOf(group.witness->c) == ProblemOf(witness.c);
    });
    const std::string gives =
        fmt::format("{} gives {}", comparison.convention, witness.divergence.expected);
    if (same == groups.end()) {
      groups.push_back({&witness, gives});
    } else {
      same->gives += ", " + gives;
    }
  }
  std::string text;
  for (const Group& group : groups) {
    const triage::Witness& witness = *group.witness;
    text += fmt::format("  ruled out by {}\n",
                        witness.file.empty() ? Describe(witness.c) : ShortPath(witness.file));
    if (const std::string brief = triage::Brief(witness.c); !brief.empty())
      text += "    " + brief + "\n";
    text += fmt::format("    at index {} {} is {}; {}\n", witness.divergence.index, name,
                        witness.divergence.actual, group.gives);
  }
  return text;
}

std::string NoVerdictText(const Identified& result) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const Comparison& comparison : result.conventions) {
    if (comparison.state == State::kNoVerdict) {
      by_reason[comparison.reason].push_back(comparison.convention);
    }
  }
  std::string text;
  for (const auto& [reason, names] : by_reason) {
    text += fmt::format("  not defined here ({}): {}\n", reason, fmt::join(names, ", "));
  }
  return text;
}

// Several files that no one arithmetic gives may each follow one: "a.case.json to exact; ...".
// "" unless one of them does.
std::string FileByFile(const Question& question, Op op) {
  constexpr size_t kMostNames = 4, kMostFiles = 16;
  std::vector<std::string> lines;
  bool any = false;
  for (const triage::ObservedCase& file : question.observed) {
    if (file.c.op != op) continue;
    std::vector<std::string> names =
        triage::BitEqual(file.c, file.c.observed->y, question.conventions);
    any |= !names.empty();
    if (names.size() > kMostNames) {
      const size_t more = names.size() - kMostNames;
      names.resize(kMostNames);
      names.back() += fmt::format(" ({} more)", more);
    }
    lines.push_back(
        fmt::format("{} to {}", fs::path(file.file).filename().string(),
                    names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  if (!any || lines.size() < 2 || lines.size() > kMostFiles) return "";
  return fmt::format("{}", fmt::join(lines, "; "));
}

// Whether a convention that no answer rules out defines all of them. A subject may be asked for
// what it does not define; of files that somebody wrote each counts.
bool GivesAll(const Question& question, const Identified& result, const Comparison& comparison) {
  return comparison.state == State::kBitEqual &&
         (question.observed.empty() || comparison.cases == result.answered);
}
std::vector<std::string> BitEqualOf(const Question& question, const Identified& result) {
  std::vector<std::string> names;
  for (const Comparison& comparison : result.conventions)
    if (GivesAll(question, result, comparison)) names.push_back(comparison.convention);
  return names;
}

// Whether the files hold so few outputs that the one convention which gives them all may do so by
// chance: each output rules out some, and there are a hundred.
bool MayFitByChance(const Question& question, const Identified& result) {
  constexpr int64_t kFewOutputs = 8;
  int64_t outputs = 0;
  for (const triage::ObservedCase& file : question.observed) {
    if (file.c.op == result.op) outputs += file.c.observed->y.size();
  }
  return BitEqualOf(question, result).size() == 1 && outputs < kFewOutputs;
}

// That no output is beyond the bound of float32 sums in any order, or the first that is. "" where a
// file's output is no such sum.
std::string FloatSumsText(const Question& question, Op op) {
  std::string none;
  for (const char* const name : {"sum", "sum+offsets"}) {
    const Contract contract = ParseContract(name);
    const triage::ObservedCase* outside = nullptr;
    std::optional<Divergence> first;
    int64_t outputs = 0, undecided = 0;
    for (const triage::ObservedCase& file : question.observed) {
      if (file.c.op != op || outside != nullptr) continue;
      if (!WhyNotJudged(contract, file.c).empty()) return "";
      const Accepted accepted = AcceptedBy(contract, file.c);
      outputs += file.c.observed->y.size();
      undecided += accepted.undecided();
      first = accepted.First(file.c.observed->y);
      if (first) outside = &file;
    }
    if (outside == nullptr) {
      if (undecided == outputs) return "";
      return fmt::format(
          "  no output is beyond what float32 sums in any order can give (contract {})\n", name);
    }
    none = fmt::format(
        "  no order of float32 additions gives output {} of {}: it is {}, expected {} ({})\n",
        first->index, fs::path(outside->file).filename().string(), first->actual, first->expected,
        name);
  }
  return none;
}

// The known summation trees that give the outputs of all files.
std::vector<const conventions::KnownTree*> TreesOf(const Question& question, Op op) {
  std::optional<std::vector<const conventions::KnownTree*>> all;
  for (const triage::ObservedCase& file : question.observed) {
    if (file.c.op != op) continue;
    const auto trees = conventions::TreesThatGive(file.c, file.c.observed->y);
    if (all) {
      std::erase_if(
          *all, [&](const auto* tree) { return std::ranges::find(trees, tree) == trees.end(); });
    } else {
      all = trees;
    }
  }
  return all.value_or(std::vector<const conventions::KnownTree*>{});
}

// `files`: FileByFile of the operation.
std::string ResultText(const Question& question, const Identified& result, bool between,
                       const std::string& files,
                       const std::vector<const conventions::KnownTree*>& trees) {
  std::string text =
      fmt::format("{}: {} of {} cases answered{}\n", Name(result.op), result.answered, result.drawn,
                  result.out_of_time ? ", then the time was up" : "");
  if (result.answered == 0) {
    for (const auto& [reason, count] : result.unanswered) {
      return text + fmt::format("  none: {}\n", reason);
    }
    return text;
  }
  if (result.broken != 0) {
    text += fmt::format("  {} not answered, the first: {}\n", result.broken, result.breakage);
  }
  if (result.remembered) {
    const Divergence& divergence = result.remembered->divergence;
    text += fmt::format("  its answers depend on what it was asked before: {}\n",
                        Describe(result.remembered->c));
    text += fmt::format("    at index {} it gave {} after other cases, {} in a new start\n",
                        divergence.index, divergence.actual, divergence.expected);
  }
  std::string equal, partly;
  for (const Comparison& comparison : result.conventions) {
    if (comparison.state != State::kBitEqual) continue;
    if (!GivesAll(question, result, comparison)) {
      partly += fmt::format("{}{} ({} of {})", partly.empty() ? "" : ", ", comparison.convention,
                            comparison.cases, result.answered);
      continue;
    }
    equal += fmt::format("{}{} ({} cases)", equal.empty() ? "" : ", ", comparison.convention,
                         comparison.cases);
    if (between) equal += "\n    searched: " + comparison.domain.Text();
  }
  if (!equal.empty()) {
    if (!files.empty())
      equal += "; so few outputs may as well follow one arithmetic in each file: " + files;
    text += "  bit-equal to " + equal + "\n";
  }
  if (equal.empty() && !between && result.any_compared()) {
    if (!trees.empty()) {
      text += "  added along a known summation tree: " + conventions::TextOf(trees) + "\n";
    } else {
      text += files.empty() ? "  bit-equal to no known convention\n"
                            : "  bit-equal to no one convention: " + files + "\n";
      text += FloatSumsText(question, result.op);
    }
  }
  if (!partly.empty()) text += "  bit-equal in all cases that it defines: " + partly + "\n";
  return text + RuledOutText(result, question.name) + NoVerdictText(result);
}

JsonValue WitnessJson(const triage::Witness& witness) {
  return JsonObject{{"index", witness.divergence.index},
                    {"output", JsonValue::Element(witness.divergence.actual)},
                    {"convention_output", JsonValue::Element(witness.divergence.expected)},
                    {"case_file", JsonValue::OrNull(witness.file)},
                    {"case", JsonValue::Written(CaseToJsonLine(witness.c))}};
}

JsonValue ComparisonJson(const Comparison& comparison) {
  constexpr std::string_view kStates[] = {"bit_equal", "ruled_out", "not_defined"};
  const bool no_verdict = comparison.state == State::kNoVerdict;
  return JsonObject{
      {"name", comparison.convention},
      {"state", kStates[static_cast<size_t>(comparison.state)]},
      {"cases", comparison.cases},
      {"reason", no_verdict ? JsonValue(comparison.reason) : std::nullopt},
      {"witness", comparison.witness ? WitnessJson(*comparison.witness) : std::nullopt}};
}

JsonValue QuestionJson(const Question& question) {
  JsonList ops;
  for (const Identified& result : question.results) {
    ops.Add(JsonObject{{"op", Name(result.op)},
                       {"drawn", result.drawn},
                       {"answered", result.answered},
                       {"broken", result.broken},
                       {"remembers", result.remembered.has_value()},
                       {"conventions", std::views::transform(result.conventions, ComparisonJson)}});
  }
  return JsonObject{{"of", question.name}, {"ops", ops}};
}

// The name of the convention, or "exact".
std::string ConventionOf(const Contract& contract) {
  return triage::FindConventionOrExact(contract.text(), "--contract").name;
}

// The finding of one operation, if there is one: the subject broke, has an arithmetic without a
// name, or not the one that --contract names; or two conventions differ.
std::optional<Finding> FindingOfArithmetic(const Question& question, const Identified& result,
                                           const Options& options, const std::string& files,
                                           bool in_a_known_order) {
  const bool between = !options.between.empty();
  const auto finding = [&](const std::string& why, const triage::Witness* witness = nullptr) {
    Finding found(Name(result.op), between ? "same_arithmetic" : "named_arithmetic", question.name,
                  Verdict::Failed(why));
    if (witness != nullptr) {
      found.first_divergence = witness->divergence;
      found.case_file = witness->file;
      found.test_case = witness->c;
    }
    return found;
  };
  const auto finding_of = [&](const Comparison& comparison, const std::string& why) {
    return finding(why, comparison.witness ? &*comparison.witness : nullptr);
  };
  if (result.broken != 0) return finding(result.breakage);
  if (result.answered == 0) return std::nullopt;
  if (result.remembered) {
    Finding found = finding("the answer depends on what was asked before");
    found.kind = FindingKind::kNondeterminism;
    found.first_divergence = result.remembered->divergence;
    found.test_case = result.remembered->c;
    return found;
  }
  if (between) {
    const Comparison& comparison = result.conventions.front();
    if (comparison.state != State::kRuledOut) return std::nullopt;
    return finding_of(comparison, fmt::format("differs from {}", comparison.convention));
  }
  if (NamesContract(options, result.op)) {
    const std::string wanted = ConventionOf(ContractFor(options, result.op, Contract{}));
    for (const Comparison& comparison : result.conventions) {
      if (comparison.convention != wanted || comparison.state != State::kRuledOut) continue;
      return finding_of(comparison, "is not bit-equal to " + wanted);
    }
    return std::nullopt;
  }
  if (!BitEqualOf(question, result).empty() || !result.any_compared()) return std::nullopt;
  if (in_a_known_order) return std::nullopt;
  return finding(files.empty() ? "is bit-equal to no known convention"
                               : "is bit-equal to no one convention: " + files);
}

// Why nothing was compared: the first reason.
std::string WhyNothing(const Identified& result) {
  if (result.answered == 0) return result.unanswered.empty() ? "" : result.unanswered.front().first;
  for (const Comparison& comparison : result.conventions) {
    if (comparison.cases == 0) return comparison.convention + ": " + comparison.reason;
  }
  return "";
}

// That nothing was compared with the convention of --contract, and why; "" if something was, or if
// the subject does not have the operation.
std::string NotCompared(const Identified& result, const Options& options) {
  if (result.answered == 0 || !NamesContract(options, result.op)) return "";
  const std::string wanted = ConventionOf(ContractFor(options, result.op, Contract{}));
  for (const Comparison& comparison : result.conventions) {
    if (comparison.convention != wanted || comparison.cases != 0) continue;
    return fmt::format("{}: nothing was compared with {}{}{}", Name(result.op), wanted,
                       comparison.reason.empty() ? "" : ": ", comparison.reason);
  }
  return "";
}

// Recordings of products of floats: in which ways their outputs may have been added.
int RunIdentifyRecords(const Options& options) {
  if (!options.subjects.empty() || !options.between.empty() || !options.contract.empty() ||
      !options.ops.empty() || options.solve || !options.conventions.empty())
    throw InputError("a recording (.jsonl) is asked alone, expected no other option beside it");
  Session session(options);
  session.Begin();
  std::string text;
  for (const std::string& path : options.cases) {
    ForEachGoldenRecord(path, [&](const GoldenRecord& record) {
      ++session.totals.cases;
      const auto ways = GoldenArithmetics(record);
      if (!ways) {
        session.totals.Add(Judgement::kSkipped);
        return;
      }
      const bool known = !ways->empty();
      session.totals.Add(known ? Judgement::kPassed : Judgement::kFailed);
      const std::string said =
          known ? fmt::format("{}", fmt::join(*ways, ", or ")) : "none of the known ways of adding";
      text += fmt::format("{}: {}: {}\n", record.where, record.op, said);
      if (!known) {
        session.document.findings.emplace_back(record.op, "named_arithmetic", "observed",
                                               Verdict::Failed("is added in " + said),
                                               record.where);
      }
    });
  }
  session.Print("{}", text);
  session.document.extra.emplace_back("explanation", text);
  session.Write();
  if (!session.Judged("no record is a product of floats; qualm replay judges others"))
    return kBadInput;
  return session.document.findings.empty() ? kClean : kFindings;
}

int RunIdentify(Options options) {
  if (std::ranges::any_of(options.cases,
                          [](const std::string& path) { return path.ends_with(".jsonl"); }))
    return RunIdentifyRecords(options);
  if (!options.tree.subject.empty()) {
    if (!options.subjects.empty() || !options.between.empty() || !options.contract.empty() ||
        !options.ops.empty() || options.solve)
      throw InputError(
          "--tree asks one subject alone, expected --products, --cases, --seed, --svg and "
          "--output beside it");
    options.tree.out = options.out;
    options.tree.forms = options.cases;
    if (options.identify.cases != 0) options.tree.cases = options.identify.cases;
    options.tree.seed = options.identify.seed;
    return RunTree(options, options.tree);
  }
  if (options.solve) {
    if (options.cases.empty() || !options.subjects.empty() || !options.between.empty() ||
        !options.contract.empty() || !options.out.empty() || !options.ops.empty()) {
      throw InputError("--solve is about case files alone, expected CASE... and --convention");
    }
    return RunSolve(options, options.cases, Conventions(options));
  }
  Session session(options);
  RequireOneQuestion(options);
  for (const Op op : AllOps()) {
    if (!NamesContract(options, op)) continue;
    const std::string wanted = ConventionOf(ContractFor(options, op, Contract{}));
    if (!options.conventions.empty() &&
        std::ranges::find(options.conventions, wanted) == options.conventions.end()) {
      options.conventions.push_back(wanted);
    }
  }
  RequireWritable(options, {}, options.cases);
  const bool draws = options.cases.empty(), between = !options.between.empty();
  const std::optional<uint64_t> seed = draws ? std::optional(options.identify.seed) : std::nullopt;
  Question question = Ask(options, [&] {
    session.Begin(draws ? fmt::format("seed {}; ", options.identify.seed) : "", seed);
  });
  WriteWitnesses(options.out, question.results, session.deferred);

  Totals& totals = session.totals;
  std::vector<Finding>& findings = session.document.findings;
  std::string text, why;
  std::vector<std::string> missing;
  int64_t compared = 0;
  for (const Identified& result : question.results) {
    totals.cases += result.drawn;
    if (why.empty()) why = WhyNothing(result);
    if (std::string not_compared = NotCompared(result, options); !not_compared.empty())
      missing.push_back(std::move(not_compared));
    for (const Comparison& comparison : result.conventions) compared += comparison.cases;
    const std::string files =
        BitEqualOf(question, result).empty() || MayFitByChance(question, result)
            ? FileByFile(question, result.op)
            : std::string();
    const auto trees = BitEqualOf(question, result).empty()
                           ? TreesOf(question, result.op)
                           : std::vector<const conventions::KnownTree*>{};
    if (const auto finding =
            FindingOfArithmetic(question, result, options, files, !trees.empty())) {
      totals.Add(Judgement::kFailed);
      findings.push_back(*finding);
    } else {
      totals.Add(result.answered == 0 ? Judgement::kSkipped : Judgement::kPassed);
    }
    // A subject that is asked for every operation has few of them: the others are not worth a line.
    if (result.answered != 0 || result.broken != 0 || !options.ops.empty()) {
      text += ResultText(question, result, between, files, trees);
    }
  }
  session.Print("{}", text);
  if (!options.subjects.empty()) {
    session.document.subjects.emplace_back(
        question.name, SubjectRegistry::Get().Make(question.name)->contracts().text());
  }
  session.document.extra.emplace_back("identify", QuestionJson(question));
  session.Write();
  if (!findings.empty()) return StatusOfStopped(kFindings);
  // A convention names no order of additions; a tree does.
  const auto name_the_tree = [&] {
    const bool sums = std::ranges::any_of(question.results, [](const Identified& result) {
      return result.op == Op::kLinear && result.answered == 0;
    });
    if (sums && !options.subjects.empty() &&
        SubjectRegistry::Get().Make(question.name)->contract(Op::kLinear).adds_floats())
      TellLine(fmt::format("it adds floats: qualm identify --tree {}", ShellWord(question.name)));
  };
  if ((compared != 0 && missing.empty()) || Stopped()) {
    name_the_tree();
    return StatusOfStopped(kClean);
  }
  for (const std::string& line : missing) TellLine(line);
  if (compared != 0) return kBadInput;
  TellLine(fmt::format("nothing was compared{}{}", why.empty() ? "" : ": ", why));
  name_the_tree();
  return kBadInput;
}

}  // namespace

void AddIdentify(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(
      app, run, "identify", "whose arithmetic it is: which named conventions are bit-equal",
      "Exit status 1: of some operation the arithmetic is no known one (with --contract: not that\n"
      "one), or the subject broke; with --between: the two differ; with --tree: the answers fit "
      "no\n"
      "tree, or no known steps along it.\n"
      "Example: qualm identify --subject onednn@avx2 --op linear\n"
      "Example: qualm identify corpus/forum/004-add.case.json\n"
      "Example: qualm identify --solve corpus/forum/004-add.case.json\n"
      "Example: qualm identify --between fbgemm@vnni qnnpack --op linear\n"
      "Example: qualm identify --tree 'pipe:python3 examples/pipe/numpy_dot.py'\n"
      "Example: qualm identify --tree ggml@haswell q8_0");
  verb.Texts("CASE", options->cases,
             "case files with observed outputs; with --tree forms of linear, such as q8_0");
  AddSubjectOption(verb, *options, false);
  verb.Flag("--solve", options->solve,
            "look for the numbers that the case files leave open (\"?\"), else for each in turn");
  verb.Texts("--between", options->between,
             "two conventions: an input that tells them apart, or what was searched")
      .TakesMany(2);
  const VerbOption tree =
      verb.Text(
              "--tree", options->tree.subject,
              "in which order this program adds the products of floats, or this subject the blocks "
              "of a linear (docs/sums.md)")
          .Called("SUBJECT");
  verb.Integer("--products", options->tree.products, 2, 1024,
               "of such a sum (default 64, or eight blocks)")
      .Needs(tree);
  verb.Text("--svg", options->tree.svg, "write the tree to this file as a picture")
      .Called("FILE")
      .Needs(tree);
  verb.Texts("--convention", options->conventions,
             "compare with this one only (repeatable; default: exact and every model)");
  AddOpOption(verb, options->ops, "only these operations; default: all");
  const VerbOption cases = verb.Integer(
      "--cases,-n", options->identify.cases, 1, INT32_MAX,
      "answered cases per operation (default 1000, between 4000); random sums of a tree "
      "(default 10000)");
  verb.Duration("--time", options->identify.seconds,
                "draw and shorten until the time is up, e.g. 60s")
      .Excludes(cases);
  verb.Flag("--worst", options->identify.worst,
            "of all cases the one with the largest difference, instead of the first");
  verb.Seed(options->identify.seed);
  verb.Text("-o,--output", options->out,
            "write each ruling-out input to DIR/OP.CONVENTION.case.json; with --tree the tree to "
            "this file, for --contract tree:FILE");
  AddOutputOptions(verb, *options);
  verb.Text("--contract", options->contract,
            "exact or model:NAME: fail unless it is bit-equal to that one; OP=CONTRACT for one "
            "operation (repeatable)")
      .Joined();
  verb.Does([options] { return RunIdentify(*options); });
}

}  // namespace qualm::tools
