// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/limits.h"
#include "core/slice.h"
#include "triage/passes.h"

namespace qualm::triage {
namespace {

// Takes `steps` pixels away from one side: padding first, then image.
struct Side {
  int64_t pad = 0;
  int64_t crop = 0;
};
Side Take(int64_t pad, int64_t steps) {
  return {std::max<int64_t>(0, pad - steps), std::max<int64_t>(0, steps - pad)};
}

// Only the taps [from, to) of one axis, each over the same pixels as before.
Case KeepTaps(const Case& c, bool rows, int64_t from, int64_t to) {
  const Window& v = c.window;
  const int64_t dilation = rows ? v.dilation_h : v.dilation_w;
  const int64_t count = rows ? v.kernel_h : v.kernel_w;
  const Side before = Take(rows ? v.pad_top : v.pad_left, from * dilation);
  const Side after = Take(rows ? v.pad_bottom : v.pad_right, (count - to) * dilation);
  Case smaller = rows ? slice::Taps(c, slice::Range(from, to), slice::Range(0, v.kernel_w))
                      : slice::Taps(c, slice::Range(0, v.kernel_h), slice::Range(from, to));
  (rows ? smaller.window.pad_top : smaller.window.pad_left) = before.pad;
  (rows ? smaller.window.pad_bottom : smaller.window.pad_right) = after.pad;
  return rows ? slice::Crop(smaller, before.crop, after.crop, 0, 0)
              : slice::Crop(smaller, 0, 0, before.crop, after.crop);
}

// All outputs of the groups in `keep`, or the outputs in `keep` of every group.
std::vector<int64_t> Outputs(const Case& c, const std::vector<int64_t>& groups,
                             const std::vector<int64_t>& within) {
  std::vector<int64_t> columns;
  for (int64_t group : groups) {
    for (int64_t i : within) columns.push_back(group * (c.N / c.window.groups) + i);
  }
  return columns;
}

}  // namespace

void WindowParameters(const Case& c, const Visit& visit) {
  if (!HasWindow(c.op)) return;
  const auto offer = [&](const auto& edit) {
    Case simpler = ProblemOf(c);
    edit(simpler.window);
    // A stride of 1 between large paddings may mean any number of outputs.
    if (!WindowWithinLimits(simpler)) return false;
    DeriveSizes(&simpler);
    return simpler.window != c.window && visit(simpler);
  };
  if (offer([](Window& v) {
        v.drop_padding();
        v.stride_h = v.stride_w = v.dilation_h = v.dilation_w = 1;
        v.ceil_mode = v.count_include_pad = false;
      }))
    return;
  if (offer([](Window& v) { v.drop_padding(); })) return;
  constexpr std::array<int64_t Window::*, 4> kPads{&Window::pad_top, &Window::pad_bottom,
                                                   &Window::pad_left, &Window::pad_right};
  constexpr std::array<int64_t Window::*, 4> kSteps{&Window::dilation_h, &Window::dilation_w,
                                                    &Window::stride_h, &Window::stride_w};
  for (int64_t Window::* pad : kPads) {
    if (offer([&](Window& v) { v.*pad = 0; })) return;
  }
  for (int64_t Window::* step : kSteps) {
    if (offer([&](Window& v) { v.*step = 1; })) return;
  }
  // Smaller numbers, unless the output grows by them.
  for (int64_t Window::* pad : kPads) {
    if (c.window.*pad > 1 && offer([&](Window& v) { --(v.*pad); })) return;
  }
  for (int64_t Window::* step : kSteps) {
    if (c.window.*step > 2 && offer([&](Window& v) { --(v.*step); })) return;
  }
}

void WindowOutputs(const Case& c, const Visit& visit) {
  const Window& v = c.window;
  const auto columns = [&](const std::vector<int64_t>& keep) {
    return visit(slice::Channels(c, keep));
  };
  if (v.groups > 1) {
    const int64_t per_group = c.N / v.groups;
    if (Shrink(v.groups, [&](const std::vector<int64_t>& keep) {
          return columns(Outputs(c, keep, slice::Range(0, per_group)));
        }))
      return;
    if (per_group > 1 && Shrink(per_group, [&](const std::vector<int64_t>& keep) {
          return columns(Outputs(c, slice::Range(0, v.groups), keep));
        }))
      return;
  } else if (c.N > 1 && Shrink(c.N, columns)) {
    return;
  }
  if (v.batch > 1 && Shrink(v.batch, [&](const std::vector<int64_t>& keep) {
        return visit(slice::Batches(c, keep));
      }))
    return;
  if (c.M > 1) {
    for (int64_t m = 0; m < std::min<int64_t>(c.M, 64); ++m) {
      if (visit(slice::Pixel(c, m))) return;
    }
  }
  // Half of the image, then lines of it.
  for (int64_t lines : {v.in_h / 2, int64_t{1}}) {
    if (lines == 0 || lines >= v.in_h) continue;
    if (visit(slice::Crop(c, lines, 0, 0, 0)) || visit(slice::Crop(c, 0, lines, 0, 0))) return;
  }
  for (int64_t lines : {v.in_w / 2, int64_t{1}}) {
    if (lines == 0 || lines >= v.in_w) continue;
    if (visit(slice::Crop(c, 0, 0, lines, 0)) || visit(slice::Crop(c, 0, 0, 0, lines))) return;
  }
}

void WindowTerms(const Case& c, const Visit& visit) {
  const Window& v = c.window;
  if (c.op == Op::kGlobalAvgPool) return;  // its window is its image
  for (bool rows : {true, false}) {
    const int64_t count = rows ? v.kernel_h : v.kernel_w;
    for (int64_t block = (count + 1) / 2; block >= 1 && block < count; block = block / 2) {
      for (int64_t from = 0; from + block <= count; ++from) {
        if (visit(KeepTaps(c, rows, from, from + block))) return;
      }
    }
    if (count > 1 && (visit(KeepTaps(c, rows, 1, count)) || visit(KeepTaps(c, rows, 0, count - 1))))
      return;
  }
  if (!IsConv(c.op) || v.in_c / v.groups < 2) return;
  Shrink(v.in_c / v.groups,
         [&](const std::vector<int64_t>& keep) { return visit(slice::Terms(c, keep)); });
}

std::optional<Case> LineOf(const Case& c) {
  if (!HasWindow(c.op) || c.M != 1) return std::nullopt;
  const std::vector<Tap> taps = TapsOf(c.window, 0);
  if (std::ranges::any_of(taps, [](const Tap& tap) { return tap.x_row < 0; })) return std::nullopt;
  Case line = ProblemOf(c);
  Window& v = line.window;
  v.drop_padding();
  v.stride_h = v.stride_w = v.dilation_h = v.dilation_w = 1;
  v.in_h = v.kernel_h = std::ssize(taps);
  v.in_w = v.kernel_w = 1;
  line.x = Tensor(c.x.dtype(), ShapeOfX(line));
  for (size_t i = 0; i < taps.size(); ++i) {
    line.x.CopyFrom(c.x, taps[i].x_row, v.in_c, static_cast<int64_t>(i) * v.in_c);
  }
  line.w = Tensor(c.w.dtype(), ShapeOfW(line));
  std::ranges::copy(c.w.bytes(), line.w.bytes().begin());
  return line;
}

Case LineTaps(const Case& line, slice::Places items) {
  Case smaller = slice::Taps(line, items, slice::Range(0, 1));
  const int64_t channels = line.window.in_c;
  smaller.window.in_h = smaller.window.kernel_h = std::ssize(items);
  smaller.x = Tensor(line.x.dtype(), ShapeOfX(smaller));
  for (size_t i = 0; i < items.size(); ++i) {
    QUALM_CHECK_LT(items[i], line.window.kernel_h);
    smaller.x.CopyFrom(line.x, items[i] * channels, channels, static_cast<int64_t>(i) * channels);
  }
  DeriveSizes(&smaller);
  return smaller;
}

void WindowLine(const Case& c, const Visit& visit) {
  const std::optional<Case> line = LineOf(c);
  if (!line || visit(*line)) return;
  Shrink(line->window.kernel_h,
         [&](const std::vector<int64_t>& keep) { return visit(LineTaps(*line, keep)); });
}

}  // namespace qualm::triage
