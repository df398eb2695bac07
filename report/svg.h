// SPDX-License-Identifier: Apache-2.0
// Small pictures: lines, boxes and words on a sheet, and a chart with axes. Colours are classes:
// the style of the page, or of a picture in a file of its own, has them light and dark.
#ifndef QUALM_REPORT_SVG_H_
#define QUALM_REPORT_SVG_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qualm::report {

enum class Anchor : uint8_t { kStart, kMiddle, kEnd };

class Svg {
 public:
  Svg() = default;
  // `says`: the picture in words, for readers who cannot see it.
  Svg(double width, double height, std::string says)
      : width_(width), height_(height), says_(std::move(says)) {}

  using Points = std::vector<std::pair<double, double>>;
  void Line(double x1, double y1, double x2, double y2, std::string_view style);
  void Path(const Points& points, std::string_view style);
  // `title` appears when the pointer is on the box.
  void Box(double x, double y, double w, double h, std::string_view style,
           std::string_view title = "");
  void Words(double x, double y, std::string_view text, std::string_view style = "",
             Anchor anchor = Anchor::kStart);
  // The sheet is at least so high.
  void Reach(double height) { height_ = std::max(height_, height); }

  // Inside a page, which brings the style.
  std::string Inline() const { return Element(""); }
  // A file of its own.
  std::string File() const;
  bool empty() const { return body_.empty(); }
  // Pictures of one size in two columns, line by line.
  static Svg Sheet(const std::vector<Svg>& pictures);
  const std::string& says() const { return says_; }

 private:
  std::string Element(std::string_view style) const;

  double width_ = 0, height_ = 0;
  std::string says_;
  std::string body_;
};
// The style for the classes that Svg draws with.
std::string_view SvgStyle();

// A sheet with two axes: values in, points on the sheet out.
class Chart {
 public:
  struct Axis {
    std::string title;
    double from = 0, to = 1;
  };
  Chart(Axis x, Axis y, std::string says);

  void Curve(const std::vector<std::pair<double, double>>& values, std::string_view style);
  // A box from the axis of x up to `y`.
  void Bar(double from, double to, double y, std::string_view style, std::string_view title);
  // An upright line at x, labelled at the top; labels of several marks do not overlap.
  void Mark(double x, const std::string& text, std::string_view style);
  // A key that names the lines; call it last.
  void Legend(const std::vector<std::pair<std::string, std::string>>& lines);  // words, style
  Svg& svg() { return svg_; }

 private:
  double X(double value) const;
  double Y(double value) const;
  struct Placed {
    double from = 0, to = 0;
    int row = 0;
  };

  Svg svg_;
  Axis x_, y_;
  std::vector<Placed> labels_;
};

}  // namespace qualm::report

#endif  // QUALM_REPORT_SVG_H_
