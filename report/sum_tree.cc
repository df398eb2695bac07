// SPDX-License-Identifier: Apache-2.0
#include "report/sum_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace qualm::report {
namespace {

using conventions::LeavesOf;
using conventions::SumTree;

constexpr double kBetween = 18;  // two leaves
constexpr double kMargin = 24, kTop = 40, kBottom = 28;
constexpr double kMostLevel = 22, kMostHeight = 720;

int HeightOf(const SumTree& tree) {
  int height = 0;
  for (const SumTree& part : tree.parts) height = std::max(height, HeightOf(part) + 1);
  return height;
}
int64_t FirstLeafOf(const SumTree& tree) {
  int64_t first = tree.parts.empty() ? tree.leaf : INT64_MAX;
  for (const SumTree& part : tree.parts) first = std::min(first, FirstLeafOf(part));
  return first;
}

class Drawer {
 public:
  Drawer(Svg& svg, double bottom, double level) : svg_(svg), bottom_(bottom), level_(level) {}

  struct Place {
    double x, y;
  };
  Place Draw(const SumTree& tree) {
    if (tree.parts.empty()) {
      const double x = kMargin + kBetween * static_cast<double>(leaves_++);
      svg_.Words(x, bottom_ + 16, std::to_string(tree.leaf), "q-s", Anchor::kMiddle);
      return {x, bottom_};
    }
    std::vector<const SumTree*> parts;
    for (const SumTree& part : tree.parts) parts.push_back(&part);
    std::ranges::sort(parts, {}, [](const SumTree* part) { return FirstLeafOf(*part); });
    std::vector<Place> places;
    for (const SumTree* part : parts) places.push_back(Draw(*part));
    const double y = bottom_ - level_ * HeightOf(tree);
    for (const Place& place : places) svg_.Line(place.x, place.y, place.x, y, "q-a");
    const double left = places.front().x, right = places.back().x;
    svg_.Line(left, y, right, y, parts.size() > 2 ? "q-exact" : "q-a");
    return {(left + right) / 2, y};
  }

 private:
  Svg& svg_;
  double bottom_, level_;
  int64_t leaves_ = 0;
};

}  // namespace

Svg SumTreePicture(const SumTree& tree, const std::string& title) {
  const int levels = std::max(HeightOf(tree), 1);
  const double level = std::min(kMostLevel, kMostHeight / levels);
  const double bottom = kTop + level * (levels + 1);
  const double width =
      std::max(2 * kMargin + kBetween * static_cast<double>(LeavesOf(tree) - 1), 420.0);
  Svg svg(width, bottom + kBottom, title + ": " + TextOf(tree));
  svg.Words(kMargin, 22, title);
  const auto root = Drawer(svg, bottom, level).Draw(tree);
  svg.Line(root.x, root.y, root.x, root.y - level / 2, "q-a");
  return svg;
}

}  // namespace qualm::report
