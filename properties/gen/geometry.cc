// SPDX-License-Identifier: Apache-2.0
#include "properties/gen/geometry.h"

#include <algorithm>
#include <array>

#include "properties/gen/layer.h"

namespace qualm::gen::internal {
namespace {

struct Axis {
  int64_t in = 0, kernel = 1, stride = 1, before = 0, after = 0, dilation = 1;
};

int64_t SpanOf(const Axis& axis) { return axis.dilation * (axis.kernel - 1) + 1; }

Axis SmallAxis(Rng& rng, bool dilated) {
  Axis axis;
  constexpr std::array<int64_t, 6> kKernels{1, 2, 3, 3, 3, 4};
  axis.kernel = rng.Pick(kKernels);
  axis.stride = rng.Between(1, 2);
  axis.before = rng.Between(0, axis.kernel / 2);
  axis.after = rng.Chance(3, 4) ? axis.before : rng.Between(0, axis.kernel / 2);
  if (dilated && rng.Chance(1, 4)) axis.dilation = 2;
  return axis;
}

Axis ExtremeAxis(Rng& rng, bool dilated) {
  Axis axis;
  axis.kernel = rng.Between(1, 3);
  switch (rng.Below(3)) {
    case 0:
      axis.before = axis.kernel + rng.Between(0, 2);
      axis.after = rng.Chance(1, 2) ? axis.before : rng.Between(0, 4);
      axis.stride = rng.Between(1, 3);
      break;
    case 1:
      axis.stride = axis.kernel + rng.Between(1, 3);
      axis.before = rng.Between(0, 1);
      axis.after = rng.Between(0, 2);
      break;
    default:
      if (dilated) axis.dilation = rng.Between(2, 6);
      axis.before = axis.dilation;
      axis.after = axis.dilation - rng.Between(0, 1);
      break;
  }
  return axis;
}

// All parameters of the two axes differ where the kernels leave room for it.
void DistinctAxes(Rng& rng, bool dilated, Axis& rows, Axis& columns) {
  rows.kernel = rng.Between(1, 4);
  columns.kernel = rows.kernel % 4 + 1;
  rows.stride = rng.Between(1, 3);
  columns.stride = rows.stride % 3 + 1;
  std::array<int64_t, 4> pads{0, 1, 2, 3};
  for (size_t i = pads.size() - 1; i > 0; --i) std::swap(pads[i], pads[rng.Below(i + 1)]);
  rows.before = std::min(pads[0], rows.kernel);
  rows.after = std::min(pads[1], rows.kernel);
  columns.before = std::min(pads[2], columns.kernel);
  columns.after = std::min(pads[3], columns.kernel);
  if (!dilated) return;
  rows.dilation = rng.Between(1, 3);
  columns.dilation = rows.dilation % 3 + 1;
}

// An input size that gives about `out` outputs; the rest behind the last window is drawn.
void DrawInput(Rng& rng, int64_t out, Axis& axis) {
  const int64_t left_over = rng.Between(0, axis.stride - 1);
  axis.in = (out - 1) * axis.stride + SpanOf(axis) - axis.before - axis.after + left_over;
  if (axis.in < 1) axis.in = rng.Between(1, 2);
}

}  // namespace

void DrawGeometry(Rng& rng, Theme theme, bool dilated, Window& v) {
  Axis rows, columns;
  bool one_line = false;
  const uint64_t style = rng.Below(theme == Theme::kMiddling ? 55 : 100);
  if (style < 12) {
    rows.stride = columns.stride = rng.Chance(2, 3) ? 1 : 2;
    if (rng.Chance(1, 5)) rows.before = rows.after = columns.before = columns.after = 1;
  } else if (style < 55) {
    rows = SmallAxis(rng, dilated);
    columns = rng.Chance(1, 2) ? rows : SmallAxis(rng, dilated);
    one_line = style < 14 && !HasSizesOfLayers(theme);
  } else if (style < 82) {
    DistinctAxes(rng, dilated, rows, columns);
  } else {
    rows = ExtremeAxis(rng, dilated);
    columns = rng.Chance(1, 2) ? ExtremeAxis(rng, dilated) : SmallAxis(rng, dilated);
  }
  OutputPixels out{rng.Between(1, 4), 0};
  out.w = rng.Between(1, theme == Theme::kTails ? 9 : 5);
  if (theme == Theme::kLayer) out = DrawLayerPixels(rng);
  if (theme == Theme::kMiddling) out = DrawMiddlingPixels(rng);
  // A long image of one line, of which a kernel of three rows sees only that one.
  if (one_line) out.w *= 4;
  DrawInput(rng, out.h, rows);
  DrawInput(rng, out.w, columns);
  if (one_line) rows = {.in = 1, .kernel = 3, .stride = 1, .before = 1, .after = 1, .dilation = 1};
  v.batch = HasSizesOfLayers(theme) || rng.Chance(1, 2) ? 1 : rng.Between(2, 3);
  if (theme == Theme::kEmpty) {
    switch (rng.Below(4)) {
      case 0: v.batch = 0; break;
      case 1: (rng.Chance(1, 2) ? rows : columns).in = 0; break;
      case 2:  // the kernel is larger than the padded image
        columns.kernel = std::max<int64_t>(columns.kernel, 2);
        columns.before = columns.after = 0;
        columns.in = SpanOf(columns) - 1;
        break;
      default: break;  // channels
    }
  }
  v.in_h = rows.in;
  v.kernel_h = rows.kernel;
  v.stride_h = rows.stride;
  v.pad_top = rows.before;
  v.pad_bottom = rows.after;
  v.dilation_h = rows.dilation;
  v.in_w = columns.in;
  v.kernel_w = columns.kernel;
  v.stride_w = columns.stride;
  v.pad_left = columns.before;
  v.pad_right = columns.after;
  v.dilation_w = columns.dilation;
}

}  // namespace qualm::gen::internal
