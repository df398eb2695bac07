// SPDX-License-Identifier: Apache-2.0
#include "report/faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "core/contract.h"
#include "core/io/case_json.h"
#include "core/io/shell_word.h"
#include "core/status.h"
#include "oracles/exact/exact.h"
#include "properties/sweep.h"
#include "report/copies.h"
#include "report/pictures.h"
#include "report/words.h"
#include "report/worked.h"
#include "triage/triage.h"

namespace qualm::report {
namespace {

Aspect AspectOf(const RecordedFinding& finding) {
  if (finding.claim.find(".vanished-") != std::string::npos) return Aspect::kVanished;
  if (finding.claim == "environment") return Aspect::kEnvironment;
  if (finding.kind == "memory") return Aspect::kMemory;
  return Aspect::kNumbers;
}

// What the subject promised for the operation; "" if the record does not tell.
std::string ContractOf(const ResultRecord& record, const std::string& subject,
                       std::string_view operation) {
  const std::optional<Op> op = ParseOp(operation);
  const auto at =
      std::ranges::find(record.subjects, subject, &std::pair<std::string, std::string>::first);
  if (!op || at == record.subjects.end()) return "";
  try {
    return ParseContracts(at->second).of(*op).text();
  } catch (const InputError&) {
    return "";  // a record that another qualm wrote
  }
}

// The reason of an expected finding, from the row of adapters/contracts.cc that declares it.
std::string ReasonOf(const ResultRecord& record, const RecordedFinding& finding) {
  if (!finding.expected_by_contract) return finding.known;
  const std::string contract = ContractOf(record, finding.subject, finding.op);
  for (const RecordedDeclaration& row : record.declared) {
    if ((row.subject == finding.subject || row.subject == contract) && row.op == finding.op &&
        row.claim == finding.claim && row.kind == finding.kind)
      return row.reason;
  }
  return "declared in adapters/contracts.cc";
}

std::string_view WordsOf(Aspect aspect, const std::string& kind) {
  switch (aspect) {
    case Aspect::kEnvironment:
      return "lets the caller's floating-point environment (rounding mode, flushing of denormals) "
             "change its numbers";
    case Aspect::kVanished: return "no longer departs where a departure is declared";
    case Aspect::kNumbers:
    case Aspect::kMemory: break;
  }
  return report::WordsOf(kind);
}

// Whether the run calls it the finding that shows its fault best.
bool IsBest(const RecordedFinding& finding) {
  return !finding.fault.empty() && finding.fault == finding.fingerprint;
}

// How well a finding shows its fault, where the run does not say: smaller is better.
int RankOf(const RecordedFinding& finding, const OutputFolder& folder) {
  const auto at = folder.evidence.find(finding.fingerprint);
  const int evidence = at == folder.evidence.end() ? 2 : at->second.minimized ? 0 : 1;
  const int claim = finding.claim == "matches_exact" ? 0 : finding.claim == "matches_model" ? 1 : 2;
  return 3 * evidence + claim;
}

// The finding of a section: the one that shows the fault best, and its cases.
struct Shown {
  const RecordedFinding* finding = nullptr;
  const Evidence* evidence = nullptr;
  std::optional<Case> small, large;

  // The case that is shown, from the folder of the page; "" if the run wrote none.
  std::string File() const {
    if (evidence == nullptr) return "";
    return fmt::format("findings/{}/{}case.json", finding->fingerprint, small ? "minimized." : "");
  }
};

std::optional<Case> ReadCase(const std::string& path) {
  try {
    return ReadCaseFile(path);
  } catch (const InputError&) {
    return std::nullopt;  // a path of another machine
  }
}

Shown Show(const Fault& fault, const OutputFolder& folder) {
  Shown shown;
  shown.finding =
      *std::ranges::min_element(fault.findings, {}, [&](const RecordedFinding* finding) {
        return std::pair(!IsBest(*finding), RankOf(*finding, folder));
      });
  const auto at = folder.evidence.find(shown.finding->fingerprint);
  if (at != folder.evidence.end()) {
    shown.evidence = &at->second;
    shown.small = at->second.minimized;
    shown.large = at->second.found;
  } else if (!shown.finding->case_file.empty()) {
    shown.large = ReadCase(shown.finding->case_file);
  }
  return shown;
}

// The convention that a subject is, or promises to be.
const Convention* ConventionOf(const ResultRecord& record, const RecordedFinding& finding) {
  constexpr std::string_view kModel = "model:";
  const std::string name = finding.subject.starts_with(kModel)
                               ? finding.subject
                               : ContractOf(record, finding.subject, finding.op);
  return name.starts_with(kModel) ? FindConvention(name.substr(kModel.size())) : nullptr;
}

// The subject's answer to the case: the recorded answer, else that of its convention.
std::optional<Answer> AnswerOf(const Case& c, bool recorded, const std::string& subject,
                               const Convention* convention) {
  const bool defined = convention != nullptr && convention->cannot_run(c).empty();
  std::optional<Tensor> model;
  if (defined) model = convention->run(c).y;
  if (recorded && c.observed) {
    const bool same = model && *model == c.observed->y;
    return Answer{subject, c.observed->y, same ? convention : nullptr};
  }
  if (!model) return std::nullopt;
  return Answer{subject, std::move(*model), convention};
}

// Sentences begin with a capital and end in one period.
std::string Sentence(std::string text) {
  if (!text.empty() && text.front() >= 'a' && text.front() <= 'z')
    text.front() = static_cast<char>(text.front() - 'a' + 'A');
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  return text + ".";
}

// Whether the words name a cause. A departure that is declared has its reason beside it; that no
// cause of ours gives every output says nothing then.
bool IsCause(const Fault& fault, std::string_view words) {
  return !words.empty() && (fault.reason.empty() || !words.starts_with("no known cause"));
}

// In an environment finding "expected" is the answer in the usual environment, and "actual" the
// answer in another one. Neither says whether the number is exact.
Blocks WhatHappened(const Fault& fault, const RecordedFinding& finding) {
  const std::string what = finding.explanation.substr(0, finding.explanation.find("; "));
  if (fault.aspect != Aspect::kEnvironment || !finding.divergence) {
    if (fault.sentence.starts_with(what)) return {};  // it is said already
    return {Paragraph{Text(WithDecimals(Sentence("in the case as it was found: " + what)))}};
  }
  std::string change = Sentence(what.substr(0, what.find(':')));
  change.pop_back();
  return {Paragraph{Text(
      fmt::format("{}: output {} is {} in the environment that programs start with, and {} "
                  "in the other one. On the found case; the claim is that both are equal.",
                  change, finding.divergence->index, WithDecimals(finding.divergence->expected),
                  WithDecimals(finding.divergence->actual)))}};
}

Table SeenBy(const Fault& fault) {
  std::map<std::string, std::vector<std::string>> subjects;  // by claim
  for (const RecordedFinding* finding : fault.findings)
    subjects[finding->claim].push_back(finding->subject);
  Table table{"Properties that saw it, and on which subjects", {"property", "subjects"}, {}};
  for (const auto& [claim, names] : subjects)
    table.rows.push_back({Code(fmt::format("{}.{}", fault.op, claim)), Subjects(names)});
  return table;
}

void AddWorked(const Shown& shown, const Convention* convention, const Fault& fault,
               Blocks& blocks) {
  const std::optional<Case>& c = shown.small ? shown.small : shown.large;
  if (!c || c->output_shape().empty()) return;
  const Tensor exact = exact::Evaluate(*c);
  if (exact.empty()) return;
  const auto answer = AnswerOf(*c, shown.small.has_value(), shown.finding->subject, convention);
  const auto departs = answer ? FirstDivergence(exact, answer->y) : std::optional<Divergence>();
  const int64_t index = departs ? departs->index : 0;
  blocks.push_back(
      Heading{4, shown.small ? "The smallest case that shows it" : "A case that shows it", ""});
  Text about = Code(Describe(*c));
  about += fmt::format(" — {}.", PlaceOf(*c, index));
  if (shown.small && IsCause(fault, c->note)) about += " " + WithDecimals(Sentence(c->note));
  if (answer && !departs && fault.aspect == Aspect::kNumbers)
    about += " The answer to this very case is exact; the claim compares it with another answer.";
  if (fault.aspect == Aspect::kEnvironment)
    about += departs ? " In the usual environment the answer is not exact either, which is another "
                       "fault."
                     : " In the usual environment the answer is the exact one, worked out here.";
  blocks.push_back(Paragraph{about});
  Table operands = OperandTable(*c, index);
  if (!operands.rows.empty()) blocks.push_back(std::move(operands));
  const bool own_steps =
      fault.aspect == Aspect::kEnvironment && departs && answer->convention != nullptr;
  blocks.push_back(own_steps ? OwnSteps(*c, index, *answer)
                             : StepTable(*c, index, departs ? &*answer : nullptr));
}

// The first output of the sweep over `base` that bends.
void AddSweep(const Case& base, const std::string& who, const Convention& convention,
              Blocks& blocks) {
  if (base.op != Op::kLinear || base.K < 2 || base.N == 0 || base.x.dtype() == DType::kF32) return;
  if (base.out_dtype == DType::kF32) return;
  const std::vector<int32_t> codes = sweep::Codes(base);
  const Case expanded = sweep::Expand(base, codes);
  if (!convention.cannot_run(expanded).empty()) return;
  const Tensor y = convention.run(expanded).y;
  for (int64_t n = 0; n < base.N; ++n) {
    const Tensor curve = sweep::ExactCurve(base, n, codes);
    std::vector<int32_t> exact, theirs;
    for (size_t i = 0; i < codes.size(); ++i) {
      exact.push_back(curve.IntAt(static_cast<int64_t>(i)));
      theirs.push_back(y.IntAt(static_cast<int64_t>(i) * base.N + n));
    }
    if (exact == theirs) continue;
    std::vector<SweepKink> kinks;
    for (const headroom::Kink& kink : headroom::PredictKinks(base, n)) {
      const int32_t code = kink.last_exact_code - (base.x.dtype() == DType::kS8 ? 128 : 0);
      kinks.push_back({kink, code, true});
    }
    blocks.push_back(
        Picture{SweepPicture(fmt::format("channel {}", n), codes, exact, {{who, theirs}}, kinks),
                "All elements of the input have the same code. The exact line is straight; each "
                "red line is "
                "where a pair of weights leaves 16 bits.",
                "sweep"});
    return;
  }
}

void AddPictures(const Shown& shown, const Convention* convention, const Fault& fault,
                 Blocks& blocks) {
  const std::optional<Case>& c = shown.large ? shown.large : shown.small;
  if (!c || fault.aspect != Aspect::kNumbers) return;
  const std::string who = WithoutFolders(shown.finding->subject);
  if (fault.kind == "pair-saturation" && convention != nullptr)
    AddSweep(*c, who, *convention, blocks);
  // A case of the user may hold what somebody else gave.
  const bool recorded = !shown.large || (c->observed && c->observed->by == shown.finding->subject);
  const auto answer = AnswerOf(*c, recorded, who, convention);
  if (!answer) return;
  const Tensor exact = exact::Evaluate(*c);
  if (const auto errors = ErrorsOf(exact, answer->y); errors.size() == 1) {
    const auto& [error, count] = *errors.begin();
    blocks.push_back(Paragraph{
        Text(fmt::format("On the case as it was found, {} is off in {} of {}, by {:+} {}.", who,
                         Number(count), Count(exact.size(), "output"), error,
                         IsFloat(exact.dtype()) ? "in the last place"
                         : std::abs(error) == 1 ? "code"
                                                : "codes"))});
  }
  if (Svg histogram = ErrorHistogram(exact, answer->y); !histogram.empty()) {
    std::string caption =
        "How far " + who + " is off on the case as it was found: " + histogram.says();
    blocks.push_back(Picture{std::move(histogram), caption, "errors"});
  }
  if (Svg map = MismatchMap(exact, answer->y); !map.empty()) {
    std::string caption = "Where it is off: " + map.says();
    blocks.push_back(Picture{std::move(map), caption, "places"});
  }
}

}  // namespace

std::string Fault::Title() const {
  switch (aspect) {
    case Aspect::kEnvironment: return fmt::format("{}, {}: depends on the environment", family, op);
    case Aspect::kVanished: return fmt::format("{}, {}: a declared departure is gone", family, op);
    case Aspect::kNumbers:
    case Aspect::kMemory: break;
  }
  return fmt::format("{}, {}: {}", family, op, cause.empty() ? kind : cause);
}

std::vector<std::string> Fault::subjects() const {
  std::vector<std::string> names;
  for (const RecordedFinding* finding : findings) {
    if (std::ranges::find(names, finding->subject) == names.end())
      names.push_back(finding->subject);
  }
  return names;
}

namespace {

// Whether a finding of the same subject and operation shows this fault.
bool IsOne(const Fault& fault, const RecordedFinding& finding, Aspect aspect) {
  const RecordedFinding& first = *fault.findings.front();
  if (finding.fault.empty() || first.fault.empty())
    return finding.fault == first.fault && fault.kind == finding.kind && fault.aspect == aspect;
  if (finding.fault == first.fault) return true;
  return finding.subject != first.subject && !finding.cause.empty() && finding.cause == fault.cause;
}

}  // namespace

std::vector<Fault> FaultsOf(const ResultRecord& record) {
  std::vector<Fault> faults;
  for (const RecordedFinding& finding : record.findings) {
    const std::string family = FamilyOf(finding.subject), reason = ReasonOf(record, finding);
    const Aspect aspect = AspectOf(finding);
    const auto same = std::ranges::find_if(faults, [&](const Fault& fault) {
      return fault.family == family && fault.op == finding.op && fault.is_new == finding.is_new() &&
             fault.reason == reason && IsOne(fault, finding, aspect);
    });
    if (same != faults.end()) {
      same->findings.push_back(&finding);
      if (IsBest(finding)) {  // it says what kind of fault it is
        same->kind = finding.kind;
        same->aspect = aspect;
      }
      if (same->sentence.size() < finding.sentence.size()) same->sentence = finding.sentence;
      continue;
    }
    Fault fault;
    fault.family = family;
    fault.op = finding.op;
    fault.kind = finding.kind;
    fault.cause = finding.cause;
    fault.sentence = finding.sentence;
    fault.aspect = aspect;
    fault.is_new = finding.is_new();
    fault.reason = reason;
    fault.findings = {&finding};
    faults.push_back(std::move(fault));
  }
  // New ones first, then those whose cause is known, else in the order in which they were found.
  std::vector<Fault> ordered;
  for (const auto& [fresh, unknown] : {std::pair(true, false), std::pair(true, true),
                                       std::pair(false, false), std::pair(false, true)}) {
    std::ranges::copy_if(faults, std::back_inserter(ordered), [&](const Fault& fault) {
      return fault.is_new == fresh && (fault.kind == Name(FindingKind::kUnknown)) == unknown;
    });
  }
  std::set<std::string> ids;
  for (Fault& fault : ordered) {
    const std::string slug = Slug("fault " + fault.Title());
    fault.id = slug;
    for (int n = 2; !ids.insert(fault.id).second; ++n) fault.id = fmt::format("{}-{}", slug, n);
  }
  return ordered;
}

namespace {

// How wrong a fault is: output codes, added up over the cases that showed it.
double WeightOf(const Fault& fault) {
  double weight = 0;
  for (const RecordedFinding* finding : fault.findings) {
    if (finding->divergence) weight += finding->divergence->distance_lsb;
  }
  return weight;
}

// "expected 129, got 128", in the smallest case that is known.
std::string ExpectedAndGot(const Fault& fault, const OutputFolder& folder) {
  const Shown shown = Show(fault, folder);
  std::optional<Divergence> divergence = shown.finding->divergence;
  if (shown.small && shown.small->expected && shown.small->observed) {
    if (auto small = FirstDivergence(*shown.small->expected, shown.small->observed->y))
      divergence = std::move(small);
  }
  if (fault.aspect != Aspect::kNumbers || !divergence) return "";
  return WithDecimals(
      fmt::format(" (expected {}, got {})", divergence->expected, divergence->actual));
}

// The command that shows the fault on this subject, in the folder of the page.
std::string CommandFor(const Fault& fault, const std::string& subject, const OutputFolder& folder) {
  const Shown shown = Show(fault, folder);
  if (shown.evidence == nullptr) return "";
  return fmt::format("qualm explain {} --subject {}\n", ShellWord(shown.File()),
                     ShellWord(SubjectFrom(folder.place, subject)));
}

// Faults of one subject that are the same in words, in several operations.
struct SameWords {
  std::string words;
  bool is_new = false;
  Aspect aspect = Aspect::kNumbers;
  double weight = 0;
  std::vector<const Fault*> faults = {};  // the heaviest first
};

// What is wrong comes before what may be, and heavy before light.
std::vector<SameWords> ByWords(std::vector<const Fault*> faults) {
  std::ranges::sort(faults, {}, [](const Fault* fault) {  // the last key: in the order of the list
    return std::pair(-WeightOf(*fault), fault);
  });
  std::vector<SameWords> rows;
  for (const Fault* fault : faults) {
    const std::string words(WordsOf(fault->aspect, fault->kind));
    auto row = std::ranges::find_if(rows, [&](const SameWords& other) {
      return other.words == words && other.is_new == fault->is_new;
    });
    if (row == rows.end()) row = rows.insert(rows.end(), {words, fault->is_new, fault->aspect});
    row->weight += WeightOf(*fault);
    row->faults.push_back(fault);
  }
  std::ranges::sort(rows, {}, [](const SameWords& row) {
    return std::tuple(!row.is_new, row.aspect != Aspect::kNumbers, -row.weight, row.words);
  });
  return rows;
}

Fold SubjectFold(const std::string& name, const std::vector<const Fault*>& faults,
                 const OutputFolder& folder) {
  const std::vector<SameWords> rows = ByWords(faults);
  std::vector<std::string> ops;
  for (const Fault* fault : rows.front().faults) ops.push_back(fault->op);
  Text summary =
      Strong(WithoutFolders(name)) + fmt::format(" {}, in {}", rows.front().words, List(ops));
  auto others = static_cast<int64_t>(rows.size()) - 1;
  // What may end a program is not left to the list, whatever its weight.
  const auto grave = std::ranges::find_if(rows.begin() + 1, rows.end(), [](const SameWords& row) {
    const std::string& kind = row.faults.front()->kind;
    return kind == "memory" || kind == "crash" || kind == "hang";
  });
  if (grave != rows.end()) {
    std::vector<std::string> there;
    for (const Fault* fault : grave->faults) there.push_back(fault->op);
    summary += fmt::format("; {}, in {}", grave->words, List(there));
    --others;
  }
  summary += others == 0 ? "." : fmt::format("; and {}.", Count(others, "other thing"));
  Bullets list;
  std::string commands;
  for (const SameWords& row : rows) {
    Text item(row.is_new ? "New: it " : "It ");
    item += row.words + ", in ";
    for (size_t i = 0; i < row.faults.size(); ++i) {
      item += i == 0 ? "" : ", ";
      item += Link(row.faults[i]->op, "#" + row.faults[i]->id);
      if (i == 0) item += ExpectedAndGot(*row.faults[i], folder);
    }
    list.items.push_back(item + ".");
    constexpr int kMostCommands = 3;
    if (std::ranges::count(commands, '\n') < kMostCommands)
      commands += CommandFor(*row.faults.front(), name, folder);
  }
  Blocks inside{list};
  if (!commands.empty()) {
    commands.pop_back();
    inside.push_back(Paragraph{"What to type, in the folder of this page:"});
    inside.push_back(Verbatim{commands, "copy the commands"});
  }
  return Fold{std::move(summary), SubjectAnchor(name), std::move(inside)};
}

}  // namespace

std::string SubjectAnchor(const std::string& subject) { return "subject-" + Slug(subject); }

Blocks SubjectBySubject(const std::vector<Fault>& faults, const OutputFolder& folder) {
  std::vector<std::string> names, clean;
  for (const auto& [name, contract] : folder.record.subjects) names.push_back(name);
  std::map<std::string, std::vector<const Fault*>> by_subject;
  for (const Fault& fault : faults) {
    for (const std::string& name : fault.subjects()) {
      by_subject[name].push_back(&fault);
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  if (by_subject.empty()) return {};
  Blocks blocks{Heading{2, "Subject by subject", "subjects"}};
  std::string commands;
  for (const std::string& name : names) {
    if (const auto at = by_subject.find(name); at != by_subject.end())
      commands += CommandFor(*ByWords(at->second).front().faults.front(), name, folder);
  }
  if (!commands.empty()) {
    commands.pop_back();
    blocks.push_back(
        Paragraph{"What to type next, in the folder of this page, to see step by step "
                  "what is wrong with each:"});
    blocks.push_back(Verbatim{commands, "copy the commands"});
  }
  for (const std::string& name : names) {
    if (const auto at = by_subject.find(name); at != by_subject.end()) {
      blocks.push_back(SubjectFold(name, at->second, folder));
      continue;
    }
    const bool judged =
        std::ranges::any_of(folder.record.verdicts, [&](const RecordedVerdicts& verdicts) {
          return verdicts.subject == name && verdicts.counts.contains("passed");
        });
    if (judged) clean.push_back(name);
  }
  if (!clean.empty())
    blocks.push_back(Paragraph{Text("Nothing was found on ") + Strong(Subjects(clean)) + "."});
  return blocks;
}

Block FaultSection(const Fault& fault, const OutputFolder& folder) {
  const Shown shown = Show(fault, folder);
  const Convention* convention = ConventionOf(folder.record, *shown.finding);
  const std::vector<std::string> names = fault.subjects();
  Section section{fault.id, fault.is_new ? Tone::kBad : Tone::kDeclared, {}};
  Blocks& blocks = section.inside;
  blocks.push_back(Heading{3, Text(fault.Title()), ""});
  blocks.push_back(Paragraph{Strong(Subjects(names)) +
                             fmt::format(" {} in ", WordsOf(fault.aspect, fault.kind)) +
                             Code(fault.op) + "."});
  if (IsCause(fault, fault.sentence)) {
    const std::string sentence = WithDecimals(Sentence(WithoutFolders(fault.sentence)));
    blocks.push_back(Paragraph{Text(sentence)});
  }
  Append(blocks, WhatHappened(fault, *shown.finding));
  AddWorked(shown, convention, fault, blocks);
  AddPictures(shown, convention, fault, blocks);
  blocks.push_back(SeenBy(fault));
  blocks.push_back(Heading{4, "See it again", ""});
  Append(blocks, CopiesOf(*shown.finding, shown.small ? shown.small : shown.large, shown.File(),
                          folder.record.run, folder.place));
  if (shown.evidence != nullptr && !shown.evidence->explanation.empty()) {
    blocks.push_back(Fold{"Everything that triage tried",
                          "",
                          {Verbatim{WithoutFolders(shown.evidence->explanation), ""}}});
  }
  return section;
}

}  // namespace qualm::report
