// SPDX-License-Identifier: Apache-2.0
#include "report/overview.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "properties/coverage.h"
#include "report/svg.h"
#include "report/words.h"

namespace qualm::report {
namespace {

int64_t Of(const std::map<std::string, int64_t>& counts, const std::string& name) {
  const auto at = counts.find(name);
  return at == counts.end() ? 0 : at->second;
}

// The entry of the matrix for a subject and an operation.
struct Square {
  int64_t passed = 0, skipped = 0;
  std::vector<const Fault*> declared, fresh;
};

using Squares = std::map<std::string, Square>;  // by operation

std::map<std::string, Squares> SquaresOf(const ResultRecord& record,
                                         const std::vector<Fault>& faults) {
  std::map<std::string, Squares> squares;
  for (const RecordedVerdicts& verdicts : record.verdicts) {
    Square& square = squares[verdicts.subject][verdicts.op];
    square.passed += Of(verdicts.counts, "passed");
    square.skipped += Of(verdicts.counts, "skipped");
  }
  for (const Fault& fault : faults) {
    for (const std::string& subject : fault.subjects()) {
      Square& square = squares[subject][fault.op];
      (fault.is_new ? square.fresh : square.declared).push_back(&fault);
    }
  }
  return squares;
}

Cell CellOf(const Square& square) {
  const std::string passed = Count(square.passed, "verdict") + " passed";
  if (!square.fresh.empty()) {
    Cell cell(Link(fmt::format("✗ {}", square.fresh.size()), "#" + square.fresh.front()->id),
              Tone::kBad);
    cell.title = Count(static_cast<int64_t>(square.fresh.size()), "new fault") + "; " + passed;
    return cell;
  }
  if (!square.declared.empty()) {
    Cell cell(Link(fmt::format("~ {}", square.declared.size()), "#" + square.declared.front()->id),
              Tone::kDeclared);
    cell.title =
        Count(static_cast<int64_t>(square.declared.size()), "known departure") + "; " + passed;
    return cell;
  }
  if (square.passed > 0) {
    Cell cell("✓", Tone::kGood);
    cell.title = passed;
    return cell;
  }
  Cell cell("–", Tone::kMuted);
  cell.title = square.skipped > 0
                   ? "not judged: the subject or its contract does not take such cases"
                   : "not asked";
  return cell;
}

// Whether two rows of the matrix look the same.
bool SameRow(const Squares& a, const Squares& b, const std::vector<std::string>& ops) {
  return std::ranges::all_of(ops, [&](const std::string& op) {
    const auto left = a.find(op), right = b.find(op);
    const Square none;
    const Square& x = left == a.end() ? none : left->second;
    const Square& y = right == b.end() ? none : right->second;
    return x.declared == y.declared && x.fresh == y.fresh && (x.passed > 0) == (y.passed > 0);
  });
}

Table Matrix(const ResultRecord& record, const std::vector<Fault>& faults) {
  const std::map<std::string, Squares> squares = SquaresOf(record, faults);
  std::vector<std::string> ops;
  for (const auto& [subject, row] : squares) {
    for (const auto& [op, square] : row) {
      if (std::ranges::find(ops, op) == ops.end()) ops.push_back(op);
    }
  }
  std::ranges::sort(ops);
  // In the order of the run; a subject that only findings name comes last.
  std::vector<std::string> names;
  for (const auto& [name, contract] : record.subjects) names.push_back(name);
  for (const auto& [name, row] : squares) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  struct Row {
    std::vector<std::string> names;
    Squares squares;
  };
  std::vector<Row> rows;
  for (const std::string& name : names) {
    const auto at = squares.find(name);
    const Squares own = at == squares.end() ? Squares() : at->second;
    const auto same = std::ranges::find_if(rows, [&](const Row& row) {
      return FamilyOf(row.names.front()) == FamilyOf(name) && SameRow(row.squares, own, ops);
    });
    if (same == rows.end()) {
      rows.push_back({{name}, own});
      continue;
    }
    same->names.push_back(name);
    for (const auto& [op, square] : own) same->squares[op].passed += square.passed;
  }
  Table table{
      "Subjects by operations. ✓ clean, ~ known departures, ✗ new faults, – not judged; a "
      "number counts faults and leads to the first of them, a subject to what is wrong with it and "
      "what to type next. native: the kernels of qualm; model:NAME: the arithmetic of a library, "
      "computed again; all others: libraries as they are installed",
      {"subject"},
      {},
      Table::Form::kMatrix};
  for (const std::string& op : ops) table.head.emplace_back(op);
  for (const Row& row : rows) {
    const std::string& first = row.names.front();
    const std::string words =
        row.names.size() == 1
            ? first
            : fmt::format("{}, {} instruction sets", FamilyOf(first), row.names.size());
    const bool faulty = std::ranges::any_of(row.squares, [](const auto& square) {
      return !square.second.fresh.empty() || !square.second.declared.empty();
    });
    Cell name(faulty ? Link(words, "#" + SubjectAnchor(first)) : Text(words));
    name.title = fmt::format("{}", fmt::join(row.names, ", "));
    std::vector<Cell> cells{name};
    for (const std::string& op : ops) {
      const auto at = row.squares.find(op);
      cells.push_back(CellOf(at == row.squares.end() ? Square() : at->second));
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table FactsOf(const ResultRecord& record) {
  Table table{"", {}, {}};
  const auto add = [&](const char* name, const Text& value) {
    if (!value.empty()) table.rows.push_back({name, value});
  };
  const RunFacts& run = record.run;
  add("date", run.date);
  if (!run.version.empty())
    add("qualm", run.version + (run.commit.empty() ? "" : ", commit " + run.commit));
  add("processor", run.processor);
  add("compiler", run.compiler);
  if (!record.command.empty()) add("to repeat", Code(record.command));
  const auto& totals = record.totals;
  if (Of(totals, "cases") > 0) {
    int64_t verdicts = 0;
    for (const auto& [name, count] : totals) verdicts += name == "cases" ? 0 : count;
    add("asked", fmt::format("{} in {:.0f} s, {}: {} passed, {} failed, {} expected (known "
                             "departures); {} properties not judged, which a case or a subject "
                             "has no use for",
                             Count(Of(totals, "cases"), "case"), record.seconds,
                             Count(verdicts, "verdict"), Number(Of(totals, "passed")),
                             Number(Of(totals, "failed")), Number(Of(totals, "expected")),
                             Number(Of(totals, "skipped") + Of(totals, "vacuous") +
                                    Of(totals, "not_applicable"))));
  }
  return table;
}

Blocks ChangeOf(const ResultRecord& record) {
  if (!record.since) return {};
  const RecordedChange& since = *record.since;
  const std::string before =
      since.date.empty() ? "the last run in this folder" : "the run of " + since.date;
  if (since.appeared.empty() && since.gone.empty())
    return {Paragraph{Text("Since " + before + ": the same findings, none more and none less.")}};
  Blocks blocks{Paragraph{Strong("Since " + before) +
                          fmt::format(": {} came, {} are gone.",
                                      Count(static_cast<int64_t>(since.appeared.size()), "finding"),
                                      since.gone.size())}};
  Bullets list;
  for (const std::string& name : since.appeared) list.items.push_back("came: " + Code(name));
  for (const std::string& name : since.gone) list.items.push_back("gone: " + Code(name));
  blocks.push_back(Fold{"Which", "", {list}});
  return blocks;
}

}  // namespace

std::string VerdictSentence(const std::vector<Fault>& faults,
                            const std::vector<std::string>& missing) {
  const auto fresh = std::ranges::count_if(faults, [](const Fault& fault) { return fault.is_new; });
  const auto known = static_cast<int64_t>(faults.size()) - fresh;
  const std::string rest =
      known == 0 ? "" : fmt::format("; {}, folded by reason", Count(known, "known departure"));
  if (fresh == 0 && missing.empty()) return "OK: nothing new" + rest;
  std::string text = fresh == 0 ? "" : Count(fresh, "new fault");
  if (!missing.empty()) {
    const auto more = static_cast<int64_t>(missing.size()) - 1;
    text += fmt::format("{}nothing was judged of {}{}", text.empty() ? "" : "; ", missing.front(),
                        more == 0 ? "" : fmt::format(", and {} more", more));
  }
  return "NOT OK: " + text + rest;
}

Blocks FirstScreen(const ResultRecord& record, const std::vector<Fault>& faults) {
  const bool good = std::ranges::none_of(faults, &Fault::is_new) && record.missing.empty();
  Blocks blocks{Heading{1, "qualm report", ""},
                Paragraph{Text(VerdictSentence(faults, record.missing)),
                          good ? Tone::kGood : Tone::kBad, true}};
  Table facts = FactsOf(record);
  if (!facts.rows.empty()) blocks.push_back(std::move(facts));
  Append(blocks, ChangeOf(record));
  Table matrix = Matrix(record, faults);
  if (!matrix.rows.empty()) blocks.push_back(std::move(matrix));
  return blocks;
}

Blocks AgreementOf(const ResultRecord& record) {
  if (record.agreement.empty()) return {};
  Table table{"Subjects in one cell gave the same bits to every documented case that both can run",
              {"operation", "bit-equal", "differs from the first group, for example"},
              {}};
  std::string last;
  for (const RecordedGroup& group : record.agreement) {
    table.rows.push_back(
        {group.op == last ? "" : group.op,
         fmt::format("{} ({})", Subjects(group.subjects), Count(group.cases, "case")),
         group.witness.empty() ? "–" : group.witness});
    last = group.op;
  }
  return {Heading{2, "Who agrees with whom", "agreement"}, table};
}

namespace {

// A bar for each hazard for which qualm declares a minimum.
Svg HazardBars(const std::map<std::string, const RecordedHazards*>& rows) {
  struct Bar {
    const HazardRow* hazard;
    std::string op;
    double share;
    bool low;
  };
  std::vector<Bar> bars;
  for (const HazardRow& hazard : AllHazards()) {
    std::optional<Bar> least;
    for (const auto& [op, row] : rows) {
      const auto count = static_cast<double>(Of(row->reached, std::string(hazard.name)));
      const auto cases = static_cast<double>(row->cases);
      if (count == 0 || (least && least->share <= count / cases)) continue;
      // A lack within three standard deviations is chance.
      const double wanted = hazard.least * cases;
      least = {&hazard, op, count / cases, count < wanted - 3 * std::sqrt(wanted)};
    }
    if (least) bars.push_back(*least);
  }
  if (bars.empty()) return {};
  constexpr double kLeft = 170, kWidth = 360, kRow = 18;
  const auto at = [](double share) {  // 0.01 % .. 100 %
    return kLeft + kWidth * std::clamp(std::log10(share) / 4 + 1, 0.0, 1.0);
  };
  const auto low = std::ranges::count_if(bars, &Bar::low);
  const std::string says =
      low == 0 ? "Each is reached as often as declared, or misses it by no more than chance does."
               : fmt::format("{} of {} are reached less often than declared.", low, bars.size());
  Svg svg(kLeft + kWidth + 60, kRow * static_cast<double>(bars.size() + 1) + 8, says);
  for (size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const double y = kRow * static_cast<double>(i);
    svg.Words(kLeft - 6, y + 13, bar.hazard->name, "", Anchor::kEnd);
    svg.Box(kLeft, y + 3, std::max(at(bar.share) - kLeft, 1.0), kRow - 6,
            bar.low ? "q-red" : "q-blue",
            fmt::format("{}: {:.2f} % of {}; declared: {:.2f} % or more", bar.hazard->name,
                        100 * bar.share, bar.op, 100 * bar.hazard->least));
    svg.Line(at(bar.hazard->least), y + 1, at(bar.hazard->least), y + kRow - 1, "q-bad");
  }
  const double bottom = kRow * static_cast<double>(bars.size()) + 14;
  for (const double share : {0.0001, 0.001, 0.01, 0.1, 1.0})
    svg.Words(at(share), bottom, fmt::format("{:g} %", 100 * share), "", Anchor::kMiddle);
  return svg;
}

}  // namespace

Blocks HazardMatrix(const ResultRecord& record) {
  if (record.hazards.empty()) return {};
  // Instruction sets judge the same drawn cases: of each operation the row with most cases counts.
  std::map<std::string, const RecordedHazards*> rows;
  std::set<std::string> hazards;
  for (const RecordedHazards& row : record.hazards) {
    const RecordedHazards*& best = rows[row.op];
    if (best == nullptr || row.cases > best->cases) best = &row;
    for (const auto& [name, count] : row.reached) hazards.insert(name);
  }
  Table table{
      "Share of the judged cases that reach a place where kernels go wrong, in percent; "
      "darker is more; an empty cell: none",
      {"operation", "cases"},
      {},
      Table::Form::kMatrix};
  for (const std::string& name : hazards) table.head.emplace_back(name);
  for (const auto& [op, row] : rows) {
    std::vector<Cell> cells{op, Number(row->cases)};
    for (const std::string& name : hazards) {
      const double share = row->cases == 0 ? 0
                                           : static_cast<double>(Of(row->reached, name)) /
                                                 static_cast<double>(row->cases);
      Cell cell(share == 0 ? "" : share < 0.01 ? "<1" : fmt::format("{:.0f}", 100 * share));
      cell.title = fmt::format("{} {}: {:.2f} %", op, name, 100 * share);
      cell.shade = share == 0 ? 0 : 0.12 + 0.55 * std::sqrt(share);
      cells.push_back(cell);
    }
    table.rows.push_back(std::move(cells));
  }
  Blocks blocks{Heading{2, "What the drawn cases reached", "hazards"}, table};
  if (Svg bars = HazardBars(rows); !bars.empty()) {
    const std::string caption =
        "Of each hazard the operation that reaches it least, on a scale of powers of ten; the mark "
        "is the declared minimum. " +
        bars.says();
    blocks.push_back(Picture{std::move(bars), caption, "hazards"});
  }
  return blocks;
}

Blocks CourseOf(const ResultRecord& record) {
  constexpr size_t kFewest = 4;
  if (record.course.size() < kFewest) return {};
  const RecordedMoment& last = record.course.back();
  const std::pair<const char*, double> unit = last.seconds < 300    ? std::pair("seconds", 1.0)
                                              : last.seconds < 7200 ? std::pair("minutes", 60.0)
                                                                    : std::pair("hours", 3600.0);
  Blocks blocks{Heading{2, "This campaign over time", "course"}};
  const auto draw = [&](const char* what, const char* style, int64_t RecordedMoment::* member) {
    Svg::Points points;
    double most = 1;
    for (const RecordedMoment& one : record.course) {
      const auto value = static_cast<double>(one.*member);
      // As it was until then: a step.
      if (!points.empty()) points.emplace_back(one.seconds / unit.second, points.back().second);
      points.emplace_back(one.seconds / unit.second, value);
      most = std::max(most, value);
    }
    const std::string says = fmt::format("{} after {:.3g} {}", Count(last.*member, what),
                                         last.seconds / unit.second, unit.first);
    Chart chart({unit.first, 0, std::max(last.seconds / unit.second, 1e-3)},
                {fmt::format("{}s", what), 0, most}, says);
    chart.Curve(points, style);
    blocks.push_back(Picture{chart.svg(), says + ".", "course"});
  };
  draw("fault", "q-bad", &RecordedMoment::faults);
  draw("kept input", "q-a", &RecordedMoment::inputs);
  draw("execution", "q-a", &RecordedMoment::executions);
  return blocks;
}

Blocks RunsOf(const OutputFolder& folder) {
  Blocks blocks;
  const std::vector<RecordedRun>& history = folder.record.history;
  if (history.size() > 1) {
    const bool campaign = std::ranges::any_of(history, &RecordedRun::inputs);
    Table table{"Newest first", {"date", "commit", "seconds", "cases", "new faults", "known"}, {}};
    if (campaign) table.head.emplace_back("inputs kept");
    table.form = Table::Form::kNumbers;
    Svg::Points faults, inputs;
    double most = 1, most_inputs = 1;
    for (size_t i = 0; i < history.size(); ++i) {
      const RecordedRun& run = history[history.size() - 1 - i];
      std::vector<Cell> cells{run.date,
                              run.commit.substr(0, 9),
                              fmt::format("{:.0f}", run.seconds),
                              Number(run.cases),
                              Cell(Number(run.faults), run.faults > 0 ? Tone::kBad : Tone::kNone),
                              Number(run.known)};
      if (campaign) cells.emplace_back(Number(run.inputs));
      table.rows.push_back(std::move(cells));
      faults.emplace_back(i + 1, history[i].faults);
      inputs.emplace_back(i + 1, history[i].inputs);
      most = std::max(most, static_cast<double>(history[i].faults));
      most_inputs = std::max(most_inputs, static_cast<double>(history[i].inputs));
    }
    blocks = {Heading{2, "The runs in this folder", "runs"}, table};
    const auto last = static_cast<double>(history.size());
    const auto draw = [&](const char* what, const Svg::Points& points, double top) {
      Chart chart({"run", 1, last}, {what, 0, top},
                  fmt::format("{} of each of {} runs", what, history.size()));
      chart.Curve(points, "q-bad");
      blocks.push_back(Picture{chart.svg(), fmt::format("The {} of each run.", what), "runs"});
    };
    if (history.size() > 2) draw("new faults", faults, most);
    if (history.size() > 2 && campaign) draw("inputs kept", inputs, most_inputs);
  }
  if (!folder.earlier.empty()) {
    Bullets list;
    for (const std::string& name : folder.earlier) list.items.push_back(Code(name));
    blocks.push_back(Fold{
        Text(fmt::format("{} of earlier runs, not seen in this one",
                         Count(static_cast<int64_t>(folder.earlier.size()), "finding"))),
        "earlier",
        {Paragraph{"Their folders lie in findings/ still; qualm replay says whether they fail."},
         list}});
  }
  return blocks;
}

Blocks QuietDeclarations(const ResultRecord& record) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> rows;  // reason, state
  for (const RecordedDeclaration& row : record.declared) {
    if (row.state.starts_with("seen")) continue;
    rows[row.reason][row.state].push_back(row.subject + " " + row.op);
  }
  if (rows.empty()) return {};
  Table table{
      "Declared in adapters/contracts.cc for subjects or claims that this run did not judge "
      "on documented cases",
      {"reason", "state", "rows"},
      {}};
  for (const auto& [reason, states] : rows) {
    for (const auto& [state, names] : states) {
      std::set<std::string> once(names.begin(), names.end());
      table.rows.push_back(
          {WithUpstreamLinks(reason), state, fmt::format("{}", fmt::join(once, ", "))});
    }
  }
  return {
      Fold{Text("Other declared departures, not asked for here"), "declared-elsewhere", {table}}};
}

}  // namespace qualm::report
