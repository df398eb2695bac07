// SPDX-License-Identifier: Apache-2.0
#include "report/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/escape.h"

namespace qualm::report {
namespace {

constexpr std::string_view kStyle =
    ".q-t{font:13px system-ui,sans-serif;fill:#1f2328}.q-s{font-size:12px;fill:#59636e}"
    ".q-axis{stroke:#8c959f;stroke-width:1}.q-grid{stroke:#d1d9e0;stroke-width:1}"
    ".q-exact{stroke:#8c959f;stroke-width:5;stroke-opacity:.55;fill:none}"
    ".q-a{stroke:#0969da;stroke-width:2;fill:none}"
    ".q-b{stroke:#8250df;stroke-width:2;stroke-dasharray:6 3;fill:none}"
    ".q-c{stroke:#1a7f37;stroke-width:2;stroke-dasharray:2 3;fill:none}"
    ".q-d{stroke:#9a6700;stroke-width:2;stroke-dasharray:9 3 2 3;fill:none}"
    ".q-bad{stroke:#cf222e;stroke-width:2;fill:none}"
    ".q-mark{stroke:#cf222e;stroke-width:1;stroke-dasharray:3 3}"
    ".q-faint{stroke:#8c959f;stroke-width:1;stroke-dasharray:2 4}"
    ".q-red{fill:#cf222e}.q-blue{fill:#0969da}.q-gray{fill:#d1d9e0}"
    "@media(prefers-color-scheme:dark){.q-t{fill:#f0f6fc}.q-s{fill:#9198a1}"
    ".q-axis{stroke:#656c76}.q-grid{stroke:#2f353d}.q-exact{stroke:#9198a1}.q-a{stroke:#4493f8}"
    ".q-b{stroke:#ab7df8}.q-c{stroke:#3fb950}.q-d{stroke:#d29922}.q-bad,.q-mark{stroke:#f85149}.q-"
    "red{fill:#f85149}.q-blue{fill:#4493f8}"
    ".q-gray{fill:#2f353d}}";

constexpr double kWidth = 520, kHeight = 320;
constexpr double kLeft = 54, kRight = 12, kTop = 64, kBottom = 64;
constexpr double kLetter = 6.6;  // a generous width of one in the small font
constexpr int kRows = 3;

// 1, 2 or 5 times a power of ten, so that about five of them make the range.
double StepOf(double range) {
  const double rough = std::max(range, 1e-9) / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= rough) return times * power;
  }
  return 10 * power;
}

std::string_view NameOf(Anchor anchor) {
  return anchor == Anchor::kStart ? "start" : anchor == Anchor::kMiddle ? "middle" : "end";
}

}  // namespace

std::string_view SvgStyle() { return kStyle; }

void Svg::Line(double x1, double y1, double x2, double y2, std::string_view style) {
  body_ +=
      fmt::format("<path class=\"{}\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>", style, x1, y1, x2, y2);
}

void Svg::Path(const Points& points, std::string_view style) {
  if (points.empty()) return;
  std::string d;
  for (const auto& [x, y] : points)
    d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", x, y);
  body_ += fmt::format("<path class=\"{}\" d=\"{}\"/>", style, d);
}

void Svg::Box(double x, double y, double w, double h, std::string_view style,
              std::string_view title) {
  body_ +=
      fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"",
                  style, x, y, w, h);
  body_ += title.empty() ? "/>" : fmt::format("><title>{}</title></rect>", Escape(title));
}

void Svg::Words(double x, double y, std::string_view text, std::string_view style, Anchor anchor) {
  body_ +=
      fmt::format("<text class=\"q-t {}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>",
                  style, x, y, NameOf(anchor), Escape(text));
}

std::string Svg::Element(std::string_view style) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">{3}{4}</svg>",
      width_, height_, Escape(says_), style.empty() ? "" : fmt::format("<style>{}</style>", style),
      body_);
}

std::string Svg::File() const { return Element(kStyle) + "\n"; }

Svg Svg::Sheet(const std::vector<Svg>& pictures) {
  Svg sheet;
  for (size_t i = 0; i < pictures.size(); ++i) {
    const Svg& picture = pictures[i];
    const double x = i % 2 == 0 ? 0 : picture.width_;
    const double y = static_cast<double>(i / 2) * picture.height_;
    sheet.body_ +=
        fmt::format("<g transform=\"translate({:.0f},{:.0f})\">{}</g>", x, y, picture.body_);
    sheet.width_ = std::max(sheet.width_, x + picture.width_);
    sheet.Reach(y + picture.height_);
    sheet.says_ += (i == 0 ? "" : "; ") + picture.says_;
  }
  return sheet;
}

Chart::Chart(Axis x, Axis y, std::string says)
    : svg_(kWidth, kHeight, std::move(says)), x_(std::move(x)), y_(std::move(y)) {
  if (x_.to <= x_.from) x_.to = x_.from + 1;
  if (y_.to <= y_.from) y_.to = y_.from + 1;
  const double bottom = kHeight - kBottom;
  const double dx = StepOf(x_.to - x_.from), dy = StepOf(y_.to - y_.from);
  for (double at = std::ceil(x_.from / dx) * dx; at <= x_.to + dx / 1e6; at += dx) {
    svg_.Words(X(at), bottom + 16, fmt::format("{:g}", at), "q-s", Anchor::kMiddle);
    svg_.Line(X(at), bottom, X(at), bottom + 4, "q-axis");
  }
  for (double at = std::ceil(y_.from / dy) * dy; at <= y_.to + dy / 1e6; at += dy) {
    svg_.Line(kLeft, Y(at), kWidth - kRight, Y(at), "q-grid");
    svg_.Words(kLeft - 6, Y(at) + 4, fmt::format("{:g}", at), "q-s", Anchor::kEnd);
  }
  svg_.Line(kLeft, bottom, kWidth - kRight, bottom, "q-axis");
  svg_.Words((kLeft + kWidth - kRight) / 2, bottom + 34, x_.title, "q-s", Anchor::kMiddle);
  svg_.Words(4, 14, y_.title, "q-s");
}

double Chart::X(double value) const {
  return kLeft + (value - x_.from) / (x_.to - x_.from) * (kWidth - kLeft - kRight);
}
double Chart::Y(double value) const {
  return kHeight - kBottom - (value - y_.from) / (y_.to - y_.from) * (kHeight - kTop - kBottom);
}

void Chart::Curve(const std::vector<std::pair<double, double>>& values, std::string_view style) {
  Svg::Points points;
  for (const auto& [x, y] : values) points.emplace_back(X(x), Y(y));
  svg_.Path(points, style);
}

void Chart::Bar(double from, double to, double y, std::string_view style, std::string_view title) {
  const double least = y > 0 ? 1.5 : 0;  // what is there is seen
  const double height = std::max(Y(y_.from) - Y(y), least);
  svg_.Box(X(from), Y(y_.from) - height, std::max(X(to) - X(from) - 1, 1.0), height, style, title);
}

void Chart::Mark(double x, const std::string& text, std::string_view style) {
  svg_.Line(X(x), kTop, X(x), kHeight - kBottom, style);
  const double width = kLetter * static_cast<double>(text.size());
  const double from = std::clamp(X(x) - width / 2, kLeft, kWidth - kRight - width);
  const auto taken = [&](int row) {
    return std::ranges::any_of(labels_, [&](const Placed& placed) {
      return placed.row == row && from < placed.to + 6 && placed.from < from + width + 6;
    });
  };
  int row = 0;
  while (row < kRows && taken(row)) ++row;
  if (row == kRows) return;  // the table below the picture has them all
  labels_.push_back({from, from + width, row});
  svg_.Words(from, 30 + 14 * row, text, "q-s");
}

void Chart::Legend(const std::vector<std::pair<std::string, std::string>>& lines) {
  double at = kLeft, height = kHeight;
  for (const auto& [text, style] : lines) {
    const double width = 46 + 1.15 * kLetter * static_cast<double>(text.size());
    if (at > kLeft && at + width > kWidth) at = kLeft, height += 16;
    svg_.Line(at, height - 12, at + 22, height - 12, style);
    svg_.Words(at + 27, height - 8, text, "q-s");
    at += width;
  }
  svg_.Reach(height);
}

}  // namespace qualm::report
