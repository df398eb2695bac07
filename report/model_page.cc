// SPDX-License-Identifier: Apache-2.0
#include "report/model_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "core/io/json_text.h"
#include "models/told.h"
#include "report/html.h"
#include "report/pictures.h"
#include "report/words.h"

namespace qualm::report {
namespace {

using models::Judged;
using models::ModelRun;
using models::Row;
using triage::ErrorPart;

constexpr double kLeast = 0.01;  // codes, where the axis of bars begins

std::string CodesText(double codes) { return fmt::format("{:.3g}", codes); }
std::string PartText(const ErrorPart& part) {
  if (part.worst == 0) return "0";
  return fmt::format("{} (at most {})", CodesText(part.rms), CodesText(part.worst));
}

std::string Shortened(const std::string& name, size_t most) {
  const std::string line = OneLine(name);
  return line.size() <= most ? line : "…" + line.substr(line.size() - most + 1);
}

// What bars are drawn of.
struct BarRow {
  const ErrorPart triage::ErrorSplit::* part;
  std::string_view name, style;
};
constexpr std::array kBars{BarRow{&triage::ErrorSplit::quantization, "quantization", "q-blue"},
                           BarRow{&triage::ErrorSplit::kernel, "kernel error", "q-red"}};

Tone ToneOf(const Judged& judged) {
  if (judged.is_wrong() || judged.outside_sums) return Tone::kBad;
  return judged.right() ? Tone::kGood : Tone::kDeclared;
}

// Of all layers that are judged, the worst first.
Table LayerTable(const ModelRun& run) {
  Table table{"Layers, the worst first. Errors in output codes, root mean square.",
              {"layer", "operation", "output", "not exact", "SQNR", "cosine", "quantization",
               "kernel error", "whose arithmetic"},
              {}};
  for (const size_t i : models::WorstFirst(run)) {
    const Row& row = run.rows[i];
    const Judged& judged = *row.judged;
    std::vector<Cell> cells{
        Shortened(row.name, 60), row.op ? std::string(Name(*row.op)) : "-", row.shape,
        fmt::format("{} of {}", Number(judged.departing), Number(judged.outputs))};
    if (const auto& split = judged.split) {
      cells.emplace_back(fmt::format("{:.1f} dB", split->sqnr_db()));
      cells.emplace_back(fmt::format("{:.6f}", split->cosine()));
      cells.emplace_back(PartText(split->quantization));
      cells.emplace_back(PartText(split->kernel));
    } else {
      cells.insert(cells.end(), 4, Cell("-"));
    }
    cells.emplace_back(models::WhoseText(judged), ToneOf(judged));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

// Nodes that nobody judges, each with the reason.
Bullets Unjudged(const ModelRun& run) {
  Bullets list;
  for (const Row& row : run.rows) {
    if (row.judged) continue;
    list.items.push_back(Strong(Shortened(row.name, 60)) + " (" + OneLine(row.operators) +
                         "): " + OneLine(models::WhyNotJudged(row)));
  }
  return list;
}

Blocks LayerBlocks(const Row& row) {
  const Judged& judged = *row.judged;
  Blocks inside{Heading{3, Shortened(row.name, 120), ""}};
  inside.push_back(Paragraph{
      fmt::format("{} as {}, {}: {} of {} outputs are not exact, by {} codes at most. {}",
                  OneLine(row.operators), row.op ? Name(*row.op) : "-", row.shape,
                  Number(judged.departing), Number(judged.outputs), CodesText(judged.worst_lsb),
                  judged.conventions.empty()
                      ? ""
                      : "The arithmetic is that of " + models::WhoseText(judged) + ".")});
  if (!judged.diagnosis.empty()) inside.push_back(Paragraph{OneLine(judged.diagnosis)});
  if (Svg histogram = ErrorHistogram(judged.errors, judged.outputs); !histogram.empty())
    inside.push_back(Picture{std::move(histogram), "How often the layer is how far off.", ""});
  return inside;
}

}  // namespace

Svg LayerBars(const ModelRun& run) {
  std::vector<const Row*> rows;
  double most = 1;
  for (const Row& row : run.rows) {
    if (!row.judged || !row.judged->split) continue;
    rows.push_back(&row);
    for (const BarRow& bar : kBars) most = std::max(most, ((*row.judged->split).*bar.part).worst);
  }
  if (rows.empty()) return {};
  constexpr double kLeft = 170, kRight = 500, kTop = 44, kRow = 24, kBar = 9;
  const double decades = std::ceil(std::log10(most / kLeast) - 1e-9);
  const auto x = [&](double codes) {
    return kLeft + std::clamp(std::log10(std::max(codes, kLeast) / kLeast) / decades, 0.0, 1.0) *
                       (kRight - kLeft);
  };
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  Svg svg(kRight + 20, bottom + 40,
          fmt::format("error of {}: quantization beside the error of the kernel",
                      Count(std::ssize(rows), "layer")));
  double key = kLeft;
  for (const BarRow& bar : kBars) {
    svg.Box(key, 6, 10, 10, bar.style);
    svg.Words(key + 15, 15, bar.name, "q-s");
    key += 110;
  }
  svg.Words(key, 15, "line: the largest", "q-s");
  for (int decade = 0; decade <= static_cast<int>(decades); ++decade) {
    const double codes = kLeast * std::pow(10, decade);
    svg.Line(x(codes), kTop - 6, x(codes), bottom, "q-grid");
    svg.Words(x(codes), bottom + 16, fmt::format("{:g}", codes), "q-s", Anchor::kMiddle);
  }
  svg.Words((kLeft + kRight) / 2, bottom + 34, "error in output codes, root mean square", "q-s",
            Anchor::kMiddle);
  double y = kTop;
  for (const Row* const row : rows) {
    const triage::ErrorSplit& split = *row->judged->split;
    svg.Words(kLeft - 8, y + 14, Shortened(row->name, 24), "q-s", Anchor::kEnd);
    for (size_t i = 0; i < kBars.size(); ++i) {
      const ErrorPart& part = split.*kBars[i].part;
      const double at = y + 1 + (kBar + 1) * static_cast<double>(i);
      if (part.worst == 0) continue;
      svg.Box(kLeft, at, std::max(x(part.rms) - kLeft, 1.5), kBar, kBars[i].style,
              fmt::format("{}: {} {}", OneLine(row->name), kBars[i].name, PartText(part)));
      svg.Line(x(part.rms), at + kBar / 2, x(part.worst), at + kBar / 2, "q-axis");
      svg.Line(x(part.worst), at + 1, x(part.worst), at + kBar - 1, "q-axis");
    }
    y += kRow;
  }
  return svg;
}

std::string ModelPage(const ModelRun& run, const std::string& file,
                      const std::vector<std::string>& notes) {
  const bool bad = std::ranges::any_of(
      run.rows, [](const Row& row) { return row.judged && ToneOf(*row.judged) == Tone::kBad; });
  Blocks first{Heading{1, std::filesystem::path(file).filename().string(), ""},
               Paragraph{(run.by.empty() ? "exact: " : run.by + ": ") + models::SumText(run),
                         bad ? Tone::kBad : Tone::kGood, true}};
  if (!run.refused.empty())
    first.push_back(Paragraph{"The runtime refuses the model: " + run.refused});
  for (const std::string& note : notes) first.push_back(Paragraph{OneLine(note), Tone::kMuted});
  Blocks rest{Heading{2, "Layers", "layers"}};
  if (Svg bars = LayerBars(run); !bars.empty()) {
    rest.push_back(
        Picture{std::move(bars),
                "In the order of the graph, on a logarithmic axis. Quantization costs what "
                "it costs; nothing asks for an error of the kernel.",
                ""});
  }
  rest.push_back(LayerTable(run));
  Blocks details;
  for (const size_t i : models::WorstFirst(run)) {
    if (!run.rows[i].judged->exact())
      details.push_back(Section{"", ToneOf(*run.rows[i].judged), LayerBlocks(run.rows[i])});
  }
  if (!details.empty()) {
    rest.push_back(Heading{2, "Layers that are not exact", "not-exact"});
    Append(rest, std::move(details));
  }
  if (Bullets others = Unjudged(run); !others.items.empty()) {
    rest.push_back(Heading{2, "Not judged", "not-judged"});
    rest.push_back(std::move(others));
  }
  if (run.ends.empty()) return Html(first, rest);
  Bullets ends;
  for (const models::End& end : run.ends) {
    ends.items.push_back(
        Strong(OneLine(end.name)) +
        (!end.theirs ? Text(": " + (end.known ? end.shape : "not known"))
                     : Text(fmt::format(": {} of {} differ end to end, by {:.4g}{} at most",
                                        Number(end.departing), Number(end.elements), end.worst,
                                        end.real ? "" : " codes"))));
  }
  rest.push_back(Heading{2, "Outputs of the model", "outputs"});
  rest.push_back(std::move(ends));
  return Html(first, rest);
}

}  // namespace qualm::report
