// SPDX-License-Identifier: Apache-2.0
#include "report/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/verdict.h"
#include "report/words.h"

namespace qualm::report {
namespace {

constexpr std::array<const char*, 5> kColours{"q-bad", "q-a", "q-b", "q-c", "q-d"};

std::vector<std::pair<double, double>> PointsOf(const std::vector<int32_t>& codes,
                                                const std::vector<int32_t>& y) {
  std::vector<std::pair<double, double>> points;
  for (size_t i = 0; i < codes.size(); ++i) points.emplace_back(codes[i], y[i]);
  return points;
}

bool AreCodes(const Tensor& exact, const Tensor& answer) {
  return !IsFloat(exact.dtype()) && exact.dtype() == answer.dtype() &&
         exact.size() == answer.size();
}

int64_t ErrorAt(const Tensor& exact, const Tensor& answer, int64_t i) {
  return int64_t{answer.IntAt(i)} - exact.IntAt(i);
}

}  // namespace

Svg SweepPicture(const std::string& title, const std::vector<int32_t>& codes,
                 const std::vector<int32_t>& exact, const std::vector<SweepLine>& lines,
                 const std::vector<SweepKink>& kinks) {
  int32_t least = *std::ranges::min_element(exact), most = *std::ranges::max_element(exact);
  for (const SweepLine& line : lines) {
    least = std::min(least, *std::ranges::min_element(line.y));
    most = std::max(most, *std::ranges::max_element(line.y));
  }
  Chart chart({"input code (every element of the input)", static_cast<double>(codes.front()),
               static_cast<double>(codes.back())},
              {title + ": output code", static_cast<double>(least), static_cast<double>(most)},
              fmt::format("{}: output code over input code, exact and {}", title,
                          lines.empty() ? "nothing else" : lines.front().who));
  std::vector<std::pair<std::string, std::string>> legend{{"exact", "q-exact"}};
  chart.Curve(PointsOf(codes, exact), "q-exact");
  for (size_t i = 0; i < lines.size(); ++i) {
    const char* colour = kColours[i % kColours.size()];
    chart.Curve(PointsOf(codes, lines[i].y), colour);
    legend.emplace_back(lines[i].who, colour);
  }
  for (const bool visible : {true, false}) {  // the visible ones have the first choice of places
    for (const SweepKink& kink : kinks) {
      if (kink.visible != visible) continue;
      chart.Mark(kink.code, fmt::format("w{}+w{} at {}", kink.kink.k, kink.kink.k + 1, kink.code),
                 visible ? "q-mark" : "q-faint");
    }
  }
  chart.Legend(legend);
  return chart.svg();
}

std::map<int64_t, int64_t> ErrorsOf(const Tensor& exact, const Tensor& answer) {
  std::map<int64_t, int64_t> errors;
  if (exact.dtype() != answer.dtype() || exact.size() != answer.size()) return errors;
  for (int64_t i = 0; i < exact.size(); ++i) {
    const double e = exact.ValueAt(i), a = answer.ValueAt(i);
    if (exact.SameAt(i, answer) || std::isnan(e) || std::isnan(a)) continue;
    const double distance = DistanceLsb(exact, answer, i);
    ++errors[static_cast<int64_t>(a < e ? -distance : distance)];
  }
  return errors;
}

Svg ErrorHistogram(const Tensor& exact, const Tensor& answer) {
  return ErrorHistogram(ErrorsOf(exact, answer), exact.size(),
                        IsFloat(exact.dtype()) ? "representable values" : "output codes");
}

Svg ErrorHistogram(const std::map<int64_t, int64_t>& counts, int64_t outputs,
                   std::string_view unit) {
  if (counts.size() < 2) return {};
  int64_t wrong = 0, widest = 1;
  for (const auto& [error, count] : counts) {
    wrong += count;
    widest = std::max(widest, std::abs(error));
  }
  // Bars are so wide that no more than 41 are drawn.
  const int64_t step = (2 * widest + 41) / 41;
  std::map<int64_t, int64_t> bars;
  for (const auto& [error, count] : counts) {
    bars[static_cast<int64_t>(
        std::floor(static_cast<double>(error) / static_cast<double>(step)))] += count;
  }
  const int64_t most =
      std::ranges::max_element(bars, {}, [](const auto& bar) { return bar.second; })->second;
  const auto edge = static_cast<double>(widest + step);
  Chart chart({fmt::format("error: answer − exact, in {}", unit), -edge, edge},
              {"number of outputs", 0, static_cast<double>(most)},
              fmt::format("histogram of {} wrong outputs of {}, the largest error is {}",
                          Number(wrong), Number(outputs), Number(widest)));
  for (const auto& [bar, count] : bars) {
    const auto from = static_cast<double>(bar * step);
    const std::string which = step == 1
                                  ? fmt::format("{:+}", bar)
                                  : fmt::format("{:+} to {:+}", bar * step, bar * step + step - 1);
    const double half = step == 1 ? 0.5 : 0;
    chart.Bar(from - half, from + static_cast<double>(step) - half, static_cast<double>(count),
              bar < 0 ? "q-blue" : "q-red", fmt::format("{}: {}", which, Count(count, "output")));
  }
  return chart.svg();
}

Svg MismatchMap(const Tensor& exact, const Tensor& answer) {
  constexpr int64_t kMost = 96, kSmall = 64;
  if (!AreCodes(exact, answer) || exact.size() < kSmall || exact.shape().empty()) return {};
  const int64_t columns = std::max<int64_t>(exact.shape().back(), 1), rows = exact.size() / columns;
  // A cell stands for a block of outputs where there are too many.
  const int64_t high = (rows + kMost - 1) / kMost, wide = (columns + kMost - 1) / kMost;
  struct Place {
    int64_t wrong = 0, sum = 0;
  };
  std::map<std::pair<int64_t, int64_t>, Place> cells;
  int64_t wrong = 0;
  for (int64_t i = 0; i < exact.size(); ++i) {
    const int64_t error = ErrorAt(exact, answer, i);
    if (error == 0) continue;
    Place& cell = cells[{i / columns / high, i % columns / wide}];
    ++cell.wrong;
    cell.sum += error;
    ++wrong;
  }
  if (wrong == 0) return {};
  // The longer side lies.
  const bool turned = rows > columns;
  const int64_t in_rows = (rows + high - 1) / high, in_columns = (columns + wide - 1) / wide;
  const int64_t across = turned ? in_rows : in_columns, down = turned ? in_columns : in_rows;
  const double w = std::clamp(440.0 / static_cast<double>(across), 3.0, 16.0);
  const double h = std::clamp(200.0 / static_cast<double>(down), 4.0, 16.0);
  constexpr double kLeft = 78, kTop = 26;
  Svg svg(kLeft + 12 + std::max(w * static_cast<double>(across), 300.0),
          kTop + h * static_cast<double>(down) + 30,
          fmt::format("map of {} wrong outputs over {} and {}", Number(wrong), Count(rows, "row"),
                      Count(columns, "column")));
  svg.Words(kLeft, 14, turned ? "rows →" : "columns (output channels) →", "q-s");
  svg.Words(0, kTop + 12, turned ? "columns ↓" : "rows ↓", "q-s");
  svg.Box(kLeft, kTop, w * static_cast<double>(across), h * static_cast<double>(down), "q-gray");
  for (const auto& [place, cell] : cells) {
    const auto [row, column] = place;
    svg.Box(kLeft + w * static_cast<double>(turned ? row : column),
            kTop + h * static_cast<double>(turned ? column : row), std::max(w - 0.5, 1.0),
            std::max(h - 0.5, 1.0), cell.sum < 0 ? "q-blue" : "q-red",
            fmt::format("row {}, column {}: {} wrong, {:+} in all", row * high, column * wide,
                        Number(cell.wrong), cell.sum));
  }
  const double below = kTop + h * static_cast<double>(down) + 20;
  svg.Box(kLeft, below - 9, 10, 10, "q-red");
  svg.Words(kLeft + 15, below, "too large", "q-s");
  svg.Box(kLeft + 90, below - 9, 10, 10, "q-blue");
  svg.Words(kLeft + 105, below, "too small", "q-s");
  svg.Box(kLeft + 180, below - 9, 10, 10, "q-gray");
  svg.Words(kLeft + 195, below, "exact", "q-s");
  return svg;
}

}  // namespace qualm::report
