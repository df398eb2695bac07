// SPDX-License-Identifier: Apache-2.0
#include "tools/solve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <map>
#include <optional>
#include <ranges>

#include "core/float_text.h"
#include "core/io/case_json.h"
#include "core/io/json_writer.h"
#include "core/io/short_path.h"
#include "core/status.h"
#include "oracles/exact/exact.h"
#include "tools/progress.h"
#include "tools/recorded_text.h"
#include "tools/session.h"
#include "tools/stop.h"
#include "triage/identify.h"
#include "triage/solve.h"
#include "triage/triage.h"

namespace qualm::tools {
namespace {

using triage::Candidate;
using triage::ConventionOrExact;
using triage::Parameter;
using triage::Solution;
using Kind = Parameter::Kind;

// Products of codes that one question may cost: some seconds.
constexpr int64_t kMostWork = int64_t{1} << 31;

struct ToSolve {
  std::string file;
  Case c;
  // The numbers that are looked for together; several questions where each is one in turn.
  std::vector<std::vector<Parameter>> questions;
  bool in_turn = false;
};

// Arithmetics that have one solution in common.
struct Group {
  Solution solution;
  std::vector<std::string> names;
};
struct Answer {
  std::vector<Group> groups;
  bool too_large = false;  // for some arithmetic
  bool halved = false;     // a convention was asked, of which scales are found by halving
};

ToSolve Read(const std::string& file) {
  std::vector<UnknownNumber> unknown;
  ToSolve solve{file, ReadCaseFile(file, {.unknown = &unknown}), {}, unknown.empty()};
  const Case& c = solve.c;
  if (!c.observed || c.observed->y.empty()) {
    throw InputError(file + ": observed: " + (c.observed ? "is empty" : "is missing") +
                     ", expected the output that tells the number");
  }
  if (const std::string reason = triage::CannotSolve(c, {}); !reason.empty())
    throw InputError(file + ": " + reason);
  const std::vector<Parameter> all = triage::ParametersOf(c);
  if (all.empty()) {
    throw InputError(fmt::format(
        "{}: op: {} has no scale, zero point or bound that can be looked for in its outputs", file,
        Name(c.op)));
  }
  if (solve.in_turn) {
    for (const Parameter& parameter : all) solve.questions.push_back({parameter});
    return solve;
  }
  std::vector<Parameter>& together = solve.questions.emplace_back();
  for (const UnknownNumber& number : unknown) {
    if (!together.empty() && together.back().key == number.key) {
      together.back().entries.push_back(number.index);
      continue;
    }
    const auto found = std::ranges::find(all, number.key, &Parameter::key);
    if (found == all.end()) {
      throw InputError(
          fmt::format("{}: {}: is unknown (\"?\"), and the outputs of this case do not "
                      "tell it, expected a number",
                      file, number.key));
    }
    together.push_back(*found);
    together.back().entries = {number.index};
  }
  if (const std::string reason = triage::CannotSolve(c, together); !reason.empty())
    throw InputError(file + ": " + reason);
  return solve;
}

Answer Ask(const ToSolve& solve, const std::vector<Parameter>& question,
           std::span<const ConventionOrExact> arithmetics) {
  Answer answer;
  int64_t work = kMostWork;
  for (const ConventionOrExact& arithmetic : arithmetics) {
    // Of one number after the other, what libraries would do with it is not of interest where the
    // exact meaning has an answer.
    if (solve.in_turn && !answer.groups.empty() && answer.groups[0].names[0] == "exact") break;
    answer.halved = answer.halved || arithmetic.convention != nullptr;
    std::optional<Solution> solution =
        triage::Solve(solve.c, solve.c.observed->y, question, arithmetic, &work);
    answer.too_large = answer.too_large || work < 0;
    if (work < 0) break;
    if (!solution || !solution->found()) continue;
    const auto same = std::ranges::find(answer.groups, *solution, &Group::solution);
    if (same == answer.groups.end()) {
      answer.groups.push_back({std::move(*solution), {arithmetic.name}});
    } else {
      same->names.push_back(arithmetic.name);
    }
  }
  return answer;
}

// "3..7, 9".
std::string IntegersText(const std::vector<Candidate>& found) {
  constexpr size_t kMost = 8;
  std::vector<std::string> runs;
  for (size_t i = 0; i < found.size();) {
    size_t last = i;
    while (last + 1 < found.size() && found[last + 1].integers[0] == found[last].integers[0] + 1)
      ++last;
    runs.push_back(last == i
                       ? std::to_string(found[i].integers[0])
                       : fmt::format("{}..{}", found[i].integers[0], found[last].integers[0]));
    i = last + 1;
  }
  const size_t more = runs.size() > kMost ? runs.size() - kMost : 0;
  runs.resize(runs.size() - more);
  return fmt::format("{}{}", fmt::join(runs, ", "),
                     more == 0 ? "" : fmt::format(" and {} more", more));
}

std::string RangeText(const std::pair<float, float>& between) {
  const auto [low, high] = between;
  const bool from = low > FLT_TRUE_MIN && low > -FLT_MAX, to = high < FLT_MAX;
  if (low == high) return ShortestDecimal(low);
  if (from && to) return ShortestDecimal(low) + " to " + ShortestDecimal(high);
  if (to) return "up to " + ShortestDecimal(high);
  return from ? ShortestDecimal(low) + " and more" : "any";
}

// The values of one entry: of one number without its name.
std::string CandidatesText(const std::vector<Candidate>& found,
                           const std::vector<Parameter>& question) {
  if (question.size() == 1) {
    return found[0].between ? RangeText(*found[0].between) : IntegersText(found);
  }
  constexpr size_t kMost = 8;
  std::vector<std::string> all;
  for (const Candidate& candidate : found | std::views::take(kMost)) {
    std::string text;
    size_t integer = 0;
    for (const Parameter& parameter : question) {
      const bool scale = parameter.kind == Kind::kScale;
      text += fmt::format(
          "{}{} {}", text.empty() ? "" : " with ", parameter.key,
          scale ? RangeText(*candidate.between) : std::to_string(candidate.integers[integer]));
      integer += scale ? 0 : 1;
    }
    all.push_back(text);
  }
  if (found.size() > kMost) all.push_back(fmt::format("{} more", found.size() - kMost));
  return fmt::format("{}", fmt::join(all, "; "));
}

std::string EntriesText(const Solution& solution, const std::vector<Parameter>& question) {
  const std::vector<int64_t>& entries = question[0].entries;
  if (question[0].kind != Kind::kBiasFactor && entries.size() == 1)
    return CandidatesText(solution.entries[0], question);
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t e = 0; e < std::min(entries.size(), kMost); ++e) {
    text += fmt::format("{}[{}] {}", e == 0 ? "" : "; ", entries[e],
                        CandidatesText(solution.entries[e], question));
  }
  if (entries.size() > kMost) text += fmt::format(" ... ({} more)", entries.size() - kMost);
  return text;
}

// What a person sees in the numbers: a power of two times those written, a unit.
std::string Remark(const ToSolve& solve, const std::vector<Parameter>& question,
                   const Solution& solution) {
  const Parameter& parameter = question[0];
  if (!solution.units.empty())
    return fmt::format("; it may count in {}", fmt::join(solution.units, ", or "));
  if (question.size() != 1 || parameter.kind != Kind::kScale || !solve.in_turn) return "";
  const std::span<const float> written = ListOf(solve.c, parameter.list);
  const auto fits = [&](int power) {
    for (size_t e = 0; e < parameter.entries.size(); ++e) {
      const auto [low, high] = *solution.entries[e][0].between;
      const float scaled = std::ldexp(written[static_cast<size_t>(parameter.entries[e])], power);
      if (scaled < low || scaled > high) return false;
    }
    return true;
  };
  if (fits(0)) return "";
  for (int power = 1; power <= 32; ++power) {
    const bool up = fits(power);
    if (!up && !fits(-power)) continue;
    return fmt::format("; 2^{} times what is written is one", up ? power : -power);
  }
  return "";
}

std::string AnswerText(const ToSolve& solve, const std::vector<Parameter>& question,
                       const Answer& answer) {
  const auto keys = question | std::views::transform(&Parameter::key);
  const std::string what = fmt::format("    {}", fmt::join(keys, ", "));
  const bool bias = question[0].kind == Kind::kBiasFactor;
  std::string text;
  for (const Group& group : answer.groups) {
    text +=
        fmt::format("{}{}: {}: {}{} ({})\n", what, bias ? " times" : "",
                    group.solution.unique() ? "unique" : "these",
                    EntriesText(group.solution, question), Remark(solve, question, group.solution),
                    FewNames(fmt::format("{}", fmt::join(group.names, ", "))));
  }
  if (answer.too_large)
    return text + what + ": the case is too large to try more, expected fewer outputs or terms\n";
  const bool scale = std::ranges::any_of(
      question, [](const Parameter& parameter) { return parameter.kind == Kind::kScale; });
  return text.empty() ? what + (answer.halved && scale ? ": none found\n" : ": none\n") : text;
}

JsonValue CandidateJson(const Candidate& candidate) {
  const auto end = [](float value) { return JsonValue(FloatText(value)); };
  return JsonObject{{"integers", candidate.integers},
                    {"low", candidate.between ? end(candidate.between->first) : std::nullopt},
                    {"high", candidate.between ? end(candidate.between->second) : std::nullopt}};
}

JsonValue AnswerJson(const std::vector<Parameter>& question, const Answer& answer) {
  JsonList solutions;
  for (const Group& group : answer.groups) {
    JsonList entries;
    for (const std::vector<Candidate>& found : group.solution.entries)
      entries.Add(JsonValue(found | std::views::transform(CandidateJson)));
    solutions.Add(JsonObject{{"arithmetics", group.names},
                             {"unique", group.solution.unique()},
                             {"entries", entries},
                             {"units", group.solution.units}});
  }
  return JsonObject{{"numbers", question | std::views::transform(&Parameter::key)},
                    {"entries", question[0].entries},
                    {"too_large", answer.too_large},
                    {"solutions", solutions}};
}

}  // namespace

int RunSolve(const CommonOptions& options, const std::vector<std::string>& files,
             std::span<const ConventionOrExact> arithmetics) {
  Session session(options);
  RequireWritable(options, {}, files);
  std::vector<ToSolve> all;
  for (const std::string& file : files) all.push_back(Read(file));
  session.Begin();
  auto progress = std::make_unique<StepProgress>("looking: ");
  std::string text;
  JsonList json;
  double done = 0, questions = 0;
  for (const ToSolve& solve : all) questions += static_cast<double>(solve.questions.size());
  for (const ToSolve& solve : all) {
    if (Stopped()) break;
    const Case& c = solve.c;
    const Observed& observed = *c.observed;
    ++session.totals.cases;
    text += fmt::format("{}: {}\n", ShortPath(solve.file), Describe(c));
    text += fmt::format("  observed ({}): ", observed.by);
    if (solve.in_turn) {
      const bool exact = exact::Evaluate(c) == observed.y;
      const std::string whose = triage::BitEqualConventions(c, observed.y);
      text += exact            ? "exact as written"
              : !whose.empty() ? "as written not exact, but that of " + FewNames(whose)
                               : "as written not exact";
      text += "; one number at a time, all else as written:\n";
    } else {
      text += "what it tells of the unknown numbers:\n";
    }
    bool found = false;
    JsonList asked;
    for (const std::vector<Parameter>& question : solve.questions) {
      if (Stopped()) break;
      progress->At(done++ / questions,
                   fmt::format("{} of {}", question[0].key, ShortPath(solve.file)));
      const Answer answer = Ask(solve, question, arithmetics);
      found = found || !answer.groups.empty();
      text += AnswerText(solve, question, answer);
      asked.Add(AnswerJson(question, answer));
    }
    json.Add(JsonObject{{"file", solve.file},
                        {"by", observed.by},
                        {"in_turn", solve.in_turn},
                        {"questions", asked}});
    session.totals.Add(found ? Judgement::kPassed : Judgement::kFailed);
    if (found) continue;
    session.document.findings.emplace_back(
        c, "solvable", "observed",
        Verdict::Failed("no value of the numbers that were tried gives the observed output"),
        solve.file);
  }
  progress.reset();
  session.Print("{}", text);
  session.document.extra.emplace_back("solve", json);
  session.Write();
  return StatusOfStopped(session.document.findings.empty() ? kClean : kFindings);
}

}  // namespace qualm::tools
