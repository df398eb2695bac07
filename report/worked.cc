// SPDX-License-Identifier: Apache-2.0
#include "report/worked.h"

#include <fmt/format.h>

#include <algorithm>
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
    const int64_t zx = c.x_q.zero_point_at(0), zw = c.w_q.zero_point_at(n);
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
    return {name, ElementText(tensor, at), "", "",
            fmt::format("{:g}", tensor.as<float>()[static_cast<size_t>(at)])};
  const int64_t z = q.zero_point_at(channel), code = tensor.IntAt(at);
  const double scale = static_cast<double>(q.scale_at(channel));
  return {name, Number(code), Number(z), fmt::format("{:g}", scale),
          fmt::format("{:g}", scale * static_cast<double>(code - z))};
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
  if (HasSums(c.op) && c.x.dtype() != DType::kF32) return SumOperands(c, index);
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

Table StepTable(const Case& c, int64_t index, const Answer* answer) {
  const Trace exact = exact::Derive(c, index);
  const bool departs = answer != nullptr && !exact.empty() &&
                       ElementText(answer->y, index) != ElementText(exact::Evaluate(c), index);
  Table table{"Step by step", {"step", "exact"}, {}};
  if (!departs) {
    for (const TraceStep& step : exact)
      table.rows.push_back({std::string(Name(step.stage)), step.text});
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
  // All that the answer does in a stage stands beside the exact step of that stage.
  bool marked = false;
  std::vector<Stage> done;
  const auto add = [&](Stage stage, const std::string& left) {
    std::string right;
    bool lossy = false;
    if (std::ranges::find(done, stage) == done.end()) {
      for (const TraceStep& step : theirs) {
        if (step.stage != stage) continue;
        right += (right.empty() ? "" : "; then ") + step.text;
        lossy |= step.lossy;
      }
      done.push_back(stage);
    }
    const bool mark = lossy && !marked;
    marked |= mark;
    if (!beside) {
      table.rows.push_back({std::string(Name(stage)), left});
      return;
    }
    table.rows.push_back({std::string(Name(stage)), left,
                          Cell((mark ? Strong("first difference:") + " " : Text()) + right,
                               mark ? Tone::kBad : Tone::kNone)});
  };
  for (const TraceStep& step : exact) add(step.stage, step.text);
  for (const TraceStep& step : theirs) {
    if (std::ranges::find(done, step.stage) == done.end()) add(step.stage, "");
  }
  const Cell right(Strong(ElementText(answer->y, index)), Tone::kBad);
  if (beside) {
    table.rows.push_back({"output", Strong(ElementText(exact::Evaluate(c), index)), right});
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
  table.rows.push_back({"exact output", Strong(ElementText(exact::Evaluate(c), index))});
  table.rows.push_back({"answer", right});
  return table;
}

}  // namespace qualm::report
