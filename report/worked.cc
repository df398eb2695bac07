// SPDX-License-Identifier: Apache-2.0
#include "report/worked.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <vector>

#include "oracles/exact/exact.h"
#include "oracles/headroom/headroom.h"
#include "report/words.h"
#include "triage/triage.h"

namespace qualm::report {
namespace {

constexpr size_t kMostTerms = 24;

// A product of a sum: the places of its two operands in their tensors, -1 in the padding.
struct Term {
  std::string name;
  int64_t x = -1, w = -1;
};

std::vector<Term> TermsOf(const Case& c, int64_t index) {
  const int64_t m = index / c.N, n = index % c.N;
  std::vector<Term> terms;
  if (!IsConv(c.op)) {
    for (int64_t k = 0; k < c.K; ++k)
      terms.push_back({fmt::format("k={}", k), m * c.K + k, n * c.K + k});
    return terms;
  }
  const int64_t channels = c.window.in_c / c.window.groups;
  const int64_t first = n / (c.N / c.window.groups) * channels;
  int64_t k = 0;
  for (const Tap& tap : TapsOf(c.window, m)) {
    for (int64_t i = 0; i < channels; ++i, ++k) {
      terms.push_back({fmt::format("tap ({},{}), channel {}", tap.r, tap.s, first + i),
                       tap.x_row < 0 ? -1 : tap.x_row + first + i, n * c.K + k});
    }
  }
  return terms;
}

Table SumOperands(const Case& c, int64_t index) {
  const int64_t n = index % c.N;
  Table table{
      "The products of the sum; a code minus its zero point is what the code stands for, "
      "in steps of its scale",
      {"", "x code", "w code", "x − zero point", "w − zero point", "product of the codes"},
      {},
      Table::Form::kNumbers};
  size_t zeros = 0, more = 0;
  for (const Term& term : TermsOf(c, index)) {
    const int64_t zx = c.x_q.zero_point[XEntry(c, index / c.N, term.x % c.K)];
    const int64_t zw = c.w_q.zero_point[WEntry(c, n, term.w - n * c.K)];
    const bool padding = term.x < 0;
    const int64_t x = padding ? zx : c.x.IntAt(term.x), w = c.w.IntAt(term.w);
    if (x * w == 0 && (x - zx) * (w - zw) == 0) {
      ++zeros;
    } else if (table.rows.size() == kMostTerms) {
      ++more;
    } else {
      table.rows.push_back({term.name, padding ? "padding" : Number(x), Number(w), Number(x - zx),
                            Number(w - zw), Number(x * w)});
    }
  }
  if (more > 0)
    table.caption += fmt::format("; {} not shown", Count(static_cast<int64_t>(more), "more term"));
  if (zeros > 0)
    table.caption +=
        fmt::format("; {} that add nothing left out", Count(static_cast<int64_t>(zeros), "term"));
  return table;
}

// A code and the real number that it stands for.
std::vector<Cell> OperandRow(const std::string& name, const Tensor& tensor, const QParams& q,
                             int64_t at, int64_t channel) {
  if (tensor.dtype() == DType::kF32)
    return {name, "", "", "", WithDecimals(ElementText(tensor, at))};
  const int64_t z = q.zero_point_at(channel), code = tensor.IntAt(at);
  const double scale = static_cast<double>(q.scale_at(channel));
  return {name, Number(code), Number(z), fmt::format("{:g}", scale),
          fmt::format("{:g}", scale * static_cast<double>(code - z))};
}

bool Has(const Trace& trace, Stage stage) {
  return std::ranges::find(trace, stage, &TraceStep::stage) != trace.end();
}

// All that a trace does in a stage.
std::string TextOf(const Trace& trace, Stage stage) {
  std::string text;
  for (const TraceStep& step : trace) {
    if (step.stage == stage) text += (text.empty() ? "" : "; then ") + step.text;
  }
  return text;
}

struct StepRow {
  Stage stage;
  std::string exact, theirs;
};

// The exact steps in their order. All that the answer does in a stage stands beside the first exact
// step of that stage, and a stage that only the answer has before the one that follows there.
std::vector<StepRow> Beside(const Trace& exact, const Trace& theirs) {
  std::vector<StepRow> rows;
  std::vector<Stage> done;
  const auto take = [&](Stage stage) {
    if (std::ranges::find(done, stage) != done.end()) return std::string();
    done.push_back(stage);
    return TextOf(theirs, stage);
  };
  // Takes the stages that only the answer has, up to its first step of a stage.
  const auto take_until = [&](auto end) {
    for (auto step = theirs.begin(); step != end; ++step) {
      if (Has(exact, step->stage)) continue;
      if (std::string text = take(step->stage); !text.empty())
        rows.push_back({step->stage, "", std::move(text)});
    }
  };
  for (const TraceStep& step : exact) {
    const auto first = std::ranges::find(theirs, step.stage, &TraceStep::stage);
    if (first != theirs.end()) take_until(first);
    rows.push_back({step.stage, step.text, take(step.stage)});
  }
  take_until(theirs.end());
  return rows;
}

// The value after the last step of a stage: "3", "7/2" or "0x1.8p+0"; NaN where there is none.
double ValueAfter(const Trace& trace, Stage stage) {
  double value = std::nan("");
  for (const TraceStep& step : trace) {
    if (step.stage != stage || step.value.empty()) continue;
    const size_t slash = step.value.find('/');
    value = std::strtod(step.value.c_str(), nullptr);
    if (slash != std::string::npos) value /= std::strtod(step.value.c_str() + slash + 1, nullptr);
  }
  return value;
}

// The stage at which the answer first departs from exact: where a step loses something; where the
// answer does a step before another one that comes first exactly; or where another number comes
// out.
std::optional<Stage> FirstDifference(const Trace& exact, const Trace& theirs) {
  for (const TraceStep& step : theirs) {
    if (step.lossy) return step.stage;
  }
  const auto place = [&](Stage stage) {
    return std::ranges::find(exact, stage, &TraceStep::stage) - exact.begin();
  };
  for (size_t i = 0; i < theirs.size(); ++i) {
    const bool early = std::any_of(
        theirs.begin() + static_cast<std::ptrdiff_t>(i), theirs.end(), [&](const TraceStep& later) {
          return Has(exact, later.stage) && place(later.stage) < place(theirs[i].stage);
        });
    if (Has(exact, theirs[i].stage) && early) return theirs[i].stage;
  }
  // Sums and products are in units of their own, unless nothing is rounded or the number is real.
  for (const TraceStep& step : theirs) {
    const double ours = ValueAfter(exact, step.stage), other = ValueAfter(theirs, step.stage);
    const bool real = step.stage == Stage::kScale && step.value.find("0x") != std::string::npos;
    const bool same_unit = step.stage >= Stage::kRound || real || !Has(exact, Stage::kRound);
    if (same_unit && std::fabs(ours - other) > 1e-6 * std::fabs(ours)) return step.stage;
  }
  return std::nullopt;
}

bool IsElementwise(const Case& c) {
  return c.x.size() == c.output_shape().front() * c.output_shape().back() && !HasWindow(c.op) &&
         c.op != Op::kConcat && c.op != Op::kSoftmax;
}

}  // namespace

std::string PlaceOf(const Case& c, int64_t index) {
  if (HasWindow(c.op)) {
    const int64_t m = index / c.N, w = std::max<int64_t>(c.window.out_w(), 1),
                  h = std::max<int64_t>(c.window.out_h(), 1);
    return fmt::format("image {}, row {}, column {}, channel {}", m / w / h, m / w % h, m % w,
                       index % c.N);
  }
  const int64_t columns = std::max<int64_t>(c.output_shape().back(), 1);
  return fmt::format("row {}, column {}", index / columns, index % columns);
}

Table OperandTable(const Case& c, int64_t index) {
  if (HasSums(c) && c.x.dtype() != DType::kF32) return SumOperands(c, index);
  Table table{"What goes in: real value = scale × (code − zero point)",
              {"", "code", "zero point", "scale", "real value"},
              {},
              Table::Form::kNumbers};
  if (!IsElementwise(c)) return table;
  const int64_t channel = c.N > 0 ? index % c.N : 0;
  table.rows.push_back(OperandRow(c.w.empty() ? "x" : "a", c.x, c.x_q, index, channel));
  if (c.w.size() == c.x.size()) table.rows.push_back(OperandRow("b", c.w, c.w_q, index, channel));
  return table;
}

Table OwnSteps(const Case& c, int64_t index, const Answer& answer) {
  Table table{"Step by step, as " + answer.who + " computes in the usual environment",
              {"step", answer.who},
              {}};
  for (const TraceStep& step : answer.convention->trace(c, index))
    table.rows.push_back({std::string(Name(step.stage)), WithDecimals(step.text)});
  table.rows.push_back({"output", Strong(WithDecimals(ElementText(answer.y, index)))});
  return table;
}

Table StepTable(const Case& c, int64_t index, const Answer* answer) {
  const Trace exact = exact::Derive(c, index);
  const bool departs = answer != nullptr && !exact.empty() &&
                       ElementText(answer->y, index) != ElementText(exact::Evaluate(c), index);
  Table table{"Step by step", {"step", "exact"}, {}};
  if (!departs) {
    for (const TraceStep& step : exact)
      table.rows.push_back({std::string(Name(step.stage)), WithDecimals(step.text)});
    return table;
  }
  const Trace theirs =
      answer->convention != nullptr ? answer->convention->trace(c, index) : Trace{};
  const bool beside = !theirs.empty();
  if (beside) {
    table.caption = "Step by step; the first step that is not exact is marked";
    table.head.emplace_back(answer->who);
  } else {
    table.caption = "Step by step, exactly; what happens inside " + answer->who + " is not known";
  }
  const std::optional<Stage> marked = FirstDifference(exact, theirs);
  for (const StepRow& row : Beside(exact, theirs)) {
    table.rows.push_back({std::string(Name(row.stage)), WithDecimals(row.exact)});
    if (!beside) continue;
    const bool mark = row.stage == marked && !row.theirs.empty();
    table.rows.back().emplace_back(
        (mark ? Strong("first difference:") + " " : Text()) + WithDecimals(row.theirs),
        mark ? Tone::kBad : Tone::kNone);
  }
  const Cell right(Strong(WithDecimals(ElementText(answer->y, index))), Tone::kBad);
  if (beside) {
    table.rows.push_back(
        {"output", Strong(WithDecimals(ElementText(exact::Evaluate(c), index))), right});
    return table;
  }
  if (headroom::HasPairs(c)) {
    for (const headroom::Pair& pair : headroom::SaturatingPairs(c, index / c.N, index % c.N)) {
      table.rows.push_back(
          {"in 16 bits", fmt::format("{} × {} + {} × {} = {} would be cut off at {}, {} lost",
                                     pair.x0, pair.w0, pair.x1, pair.w1, Number(pair.sum),
                                     Number(pair.saturated), Number(pair.lost()))});
    }
  }
  table.rows.push_back(
      {"exact output", Strong(WithDecimals(ElementText(exact::Evaluate(c), index)))});
  table.rows.push_back({"answer", right});
  return table;
}

}  // namespace qualm::report
