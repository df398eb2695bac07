// SPDX-License-Identifier: Apache-2.0
#include "properties/gen/layer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

namespace qualm::gen::internal {
namespace {

// The most products of most cases, and of the few that are as large as a real layer.
constexpr int64_t kMostProducts = int64_t{1} << 17;
constexpr int64_t kLargeProducts = int64_t{1} << 21;

int64_t DrawBudget(Rng& rng, uint64_t denominator) {
  return rng.Chance(1, denominator) ? kLargeProducts : kMostProducts;
}

// One of `places` or a neighbour of it. One expression with both draws would leave their order to
// the compiler.
template <size_t kCount>
int64_t Beside(Rng& rng, const std::array<int64_t, kCount>& places) {
  const int64_t place = rng.Pick(places);
  return place + rng.Between(-1, 1);
}

// Rows that one block of registers takes, or a block and some more.
int64_t FewRows(Rng& rng) { return rng.Between(1, rng.Chance(2, 3) ? 3 : 16); }

// Where blocks of a dimension begin and end.
int64_t BlockEdge(Rng& rng) {
  constexpr std::array<int64_t, 7> kBlocks{64, 96, 128, 192, 256, 384, 512};
  return Beside(rng, kBlocks);
}

// Lowers the numbers until their product fits the budget, `first` before `second`.
void Fit(int64_t budget, int64_t& first, int64_t& second, int64_t third) {
  if (first * second * third > budget) first = std::max<int64_t>(1, budget / (second * third));
  if (first * second * third > budget) second = std::max<int64_t>(1, budget / (first * third));
}

// The number of elements of a run: mostly some thousands. The ends of 15 and 16 bits and numbers
// beyond, which are the dearest, come about once in 2,000 cases.
int64_t DrawRun(Rng& rng) {
  constexpr std::array<int64_t, 4> kShort{512, 1024, 2048, 4096};
  constexpr std::array<int64_t, 4> kLong{8192, 16384, 16385, 32768};
  const uint64_t style = rng.Below(16);
  if (style < 4) return Beside(rng, kShort);
  if (style < 10) return LogBetween(rng, 300, 5000);
  if (style < 13) return Beside(rng, kLong);
  return rng.Chance(1, 3) ? 65536 + rng.Between(-1, 1) : rng.Between(66100, 70000);
}

// [rows, columns] repeated to [to_rows, to_columns].
Tensor Tiled(const Tensor& tensor, int64_t to_rows, int64_t to_columns) {
  const std::vector<int64_t>& shape = tensor.shape();
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  const int64_t batches = tensor.size() / std::max<int64_t>(1, rows * columns);
  std::vector<int64_t> to_shape = shape;
  to_shape[shape.size() - 2] = to_rows;
  to_shape.back() = to_columns;
  Tensor tiled(tensor.dtype(), to_shape);
  for (int64_t i = 0; i < batches * to_rows; ++i) {
    const int64_t row = i / to_rows * rows + i % to_rows % rows;
    for (int64_t j = 0; j < to_columns; j += columns)
      tiled.CopyFrom(tensor, row * columns, std::min(columns, to_columns - j), i * to_columns + j);
  }
  return tiled;
}

template <class T>
void Repeat(int64_t entries, std::vector<T>& list) {
  const size_t period = list.size();
  list.resize(static_cast<size_t>(entries));
  for (size_t i = period; i < list.size(); ++i) list[i] = list[i - period];
}

void RepeatLists(Case& c) {
  if (!c.per_channel || !HasChannelList(c.op)) return;
  QParams& q = ChannelQParams(c);
  if (!c.multiplier.empty()) {
    Repeat(c.N, c.multiplier);
    return;
  }
  Repeat(c.N, q.scale);
  Repeat(c.N, q.zero_point);
}

// Sets one value beyond all others, anywhere: repeated values have extremes in the first period.
void AddOutlier(Rng& rng, std::span<float> values) {
  const auto [low, high] = std::ranges::minmax(values);
  const float outlier = rng.Chance(1, 2) ? 2 * low : 2 * high;
  if (std::isfinite(outlier)) values[rng.Below(values.size())] = outlier;
}

// Whether no block of a power of two (but 1) divides the number of columns.
bool TellsIndices(int64_t columns) { return columns >= 3 && columns % 2 == 1; }

// More channels on one side than eight bits count. There are few on the other, so that a case costs
// no more than other layers.
void DrawWideChannels(Rng& rng, int64_t most_in, int64_t budget, int64_t& in, int64_t& out) {
  int64_t wide = LogBetween(rng, 257, 1100);
  int64_t few = rng.Between(1, 3);
  const bool inputs = rng.Chance(1, 3);
  int64_t& limited = inputs ? wide : few;
  limited = std::min(limited, most_in);
  Fit(std::max<int64_t>(1, budget), few, wide, 1);
  in = inputs ? wide : few;
  out = inputs ? few : wide;
}

int64_t DrawSoftmaxRow(Rng& rng) {
  constexpr std::array<int64_t, 4> kEdges{1024, 2048, 3072, 4096};
  if (!rng.Chance(1, 2)) return rng.Between(1101, 4096);
  const int64_t edge = rng.Pick(kEdges);
  return edge - rng.Between(0, 1);
}

}  // namespace

int64_t LogBetween(Rng& rng, int64_t low, int64_t high) {
  const auto bits = [](int64_t value) {
    return static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(value)));
  };
  const int64_t bit = rng.Between(bits(low), bits(high));
  const int64_t least = std::max(low, int64_t{1} << (bit - 1));
  return rng.Between(least, std::min(high, (int64_t{1} << bit) - 1));
}

void DrawLayerProducts(Rng& rng, Case& c) {
  const int64_t budget = DrawBudget(rng, 12);
  switch (rng.Below(6)) {
    case 0:  // a few blocks of K and of channels
    case 1:
      c.K = rng.Between(257, 640);
      c.N = LogBetween(rng, 4, 96);
      c.M = FewRows(rng);
      Fit(budget, c.M, c.N, c.K);
      break;
    case 2:  // a layer of a network, with few rows
      c.K = LogBetween(rng, 300, 4096);
      c.N = LogBetween(rng, 16, 512);
      c.M = FewRows(rng);
      Fit(budget, c.M, c.N, c.K);
      break;
    case 3:
      c.M = LogBetween(rng, 130, 4200);
      c.N = rng.Between(1, 12);
      c.K = rng.Between(1, 24);
      Fit(budget, c.N, c.K, c.M);
      break;
    case 4:
      c.N = LogBetween(rng, 130, 4200);
      c.M = FewRows(rng);
      c.K = rng.Between(1, 24);
      Fit(budget, c.M, c.K, c.N);
      break;
    default: {  // edges of blocks in two dimensions, the third is small
      std::array<int64_t, 3> dims{BlockEdge(rng), BlockEdge(rng), rng.Between(1, 9)};
      std::swap(dims[2], dims[rng.Below(3)]);
      c.M = dims[0];
      c.N = dims[1];
      c.K = dims[2];
      break;
    }
  }
}

void DrawMiddlingProducts(Rng& rng, Case& c) {
  const bool deep = rng.Chance(1, 5);
  c.M = LogBetween(rng, 4, 64);
  c.N = rng.Between(16, 64);
  c.K = deep ? rng.Between(257, 512) : rng.Between(32, 256);
  Fit(kMostProducts, c.M, c.K, c.N);
}

void DrawMiddlingChannels(Rng& rng, Case& c) {
  Window& v = c.window;
  const int64_t taps = v.kernel_h * v.kernel_w;
  c.N = rng.Between(16, 64);
  const int64_t terms = rng.Between(32, 256);
  if (c.op == Op::kDepthwise) {
    v.in_c = v.groups = c.N;
    return;
  }
  const int64_t pixels = std::max<int64_t>(1, v.out_h() * v.out_w());
  const int64_t most = std::max<int64_t>(32, kMostProducts / 2 / (pixels * c.N));
  v.in_c = (std::min(terms, most) + taps - 1) / taps;
}

int64_t DrawFarLength(Rng& rng) {
  const auto block = int64_t{32} << rng.Below(8);
  return block + rng.Between(1, block / 2);
}

int64_t FarPlace(Rng& rng, int64_t length) {
  const int64_t last = length - 1;
  if (length <= 32 || rng.Chance(1, 2)) return last - std::min(last, rng.Between(0, 7));
  const auto bits = static_cast<uint64_t>(std::bit_width(static_cast<uint64_t>(last)));
  const auto block = int64_t{32} << rng.Below(bits - 5);
  return std::min(last, block + rng.Between(0, 1));
}

OutputPixels DrawLayerPixels(Rng& rng) {
  OutputPixels pixels{rng.Between(2, 4), rng.Between(4, 5)};
  const uint64_t style = rng.Below(8);
  // One line of as many pixels as registers hold: oneDNN 2.6 has a fault at five.
  if (style > 5) pixels = {1, rng.Between(1, 16)};
  if (style > 3) return pixels;
  pixels = {rng.Between(1, 2), LogBetween(rng, 44, 1100)};
  if (style > 1) std::swap(pixels.h, pixels.w);
  return pixels;
}

OutputPixels DrawMiddlingPixels(Rng& rng) {
  OutputPixels pixels{rng.Between(2, 8), 0};
  pixels.w = rng.Between(2, 8);
  return pixels;
}

void DrawLayerChannels(Rng& rng, Case& c) {
  Window& v = c.window;
  const int64_t pixels = v.batch * v.out_h() * v.out_w();
  const int64_t taps = v.kernel_h * v.kernel_w;
  const int64_t places = std::max<int64_t>(1, pixels) * taps;
  const int64_t budget = std::max<int64_t>(1, DrawBudget(rng, 4) / places);
  const int64_t image = std::max<int64_t>(1, v.batch * v.in_h * v.in_w);
  const int64_t most = std::max<int64_t>(1, (int64_t{1} << 18) / image);  // input channels
  if (c.op == Op::kDepthwise) {
    const int64_t multiplier = rng.Between(1, 3);
    v.in_c = rng.Chance(1, 2) ? BlockEdge(rng) : LogBetween(rng, 32, 1024);
    v.in_c = std::min({v.in_c, most, std::max<int64_t>(1, budget / multiplier)});
    v.groups = v.in_c;
    c.N = v.in_c * multiplier;
    return;
  }
  int64_t depth = 1, per_group = 1;
  if (rng.Chance(1, 4)) {
    v.groups = rng.Chance(2, 3) ? rng.Between(8, 64) : rng.Between(65, 300);
    depth = rng.Between(1, 4);
    per_group = rng.Between(1, rng.Chance(2, 3) ? 4 : 16);
  } else if (rng.Chance(1, 3)) {
    depth = BlockEdge(rng);
    per_group = rng.Between(1, 9);
    if (rng.Chance(1, 2)) std::swap(depth, per_group);
  } else if (rng.Chance(1, 4)) {
    DrawWideChannels(rng, most, kLargeProducts / places, v.in_c, c.N);
    return;
  } else {
    depth = LogBetween(rng, 32, 256);
    per_group = LogBetween(rng, 32, 256);
  }
  v.groups = std::min(v.groups, most);
  depth = std::min(depth, std::max<int64_t>(1, most / v.groups));
  if (rng.Chance(1, 2)) {
    Fit(budget, depth, per_group, v.groups);
  } else {
    Fit(budget, per_group, depth, v.groups);
  }
  v.in_c = depth * v.groups;
  c.N = per_group * v.groups;
}

void DrawLayerList(Rng& rng, Case& c) {
  if (c.window.groups > 1 || c.N > 256) c.per_channel = rng.Chance(4, 5);
}

int64_t DrawLayerPlanes(Rng& rng, const Case& c) {
  const Window& v = c.window;
  const int64_t outputs = std::max<int64_t>(1, v.batch * v.out_h() * v.out_w());
  const int64_t image = std::max<int64_t>(1, v.batch * v.in_h * v.in_w);
  const int64_t most =
      std::min((int64_t{1} << 16) / image, kMostProducts / (outputs * v.kernel_h * v.kernel_w));
  const int64_t planes = rng.Chance(1, 2) ? BlockEdge(rng) : LogBetween(rng, 8, 1024);
  return std::clamp<int64_t>(planes, 1, std::max<int64_t>(1, most));
}

void FillLayer(Rng& rng, int64_t columns, Tensor& codes) {
  if (codes.empty()) return;
  const DType dtype = codes.dtype();
  const auto bytes = codes.bytes();
  const uint64_t style = rng.Below(5);
  if (style < 3) {
    constexpr std::array<size_t, 7> kPeriods{3, 5, 7, 11, 13, 17, 31};
    const size_t period = rng.Pick(kPeriods);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = i < period ? static_cast<uint8_t>(BoundaryCode(rng, dtype)) : bytes[i - period];
    }
  } else if (style == 3) {
    const auto row = static_cast<size_t>(std::max<int64_t>(1, columns));
    for (size_t i = 0; i < bytes.size(); i += row) {
      std::memset(&bytes[i], BoundaryCode(rng, dtype), std::min(row, bytes.size() - i));
    }
  } else {
    std::memset(bytes.data(), BoundaryCode(rng, dtype), bytes.size());
  }
  const int64_t others = std::min<int64_t>(64, 1 + codes.size() / 256);
  for (int64_t i = 0; i < others; ++i) {
    const int64_t at = rng.Between(0, codes.size() - 1);
    codes.SetInt(at, UniformCode(rng, dtype));
  }
}

Theme ThemeOfLayer(Rng& rng) {
  constexpr std::array<Theme, 6> kThemes{Theme::kUniform,    Theme::kUniform, Theme::kTies,
                                         Theme::kClampEdges, Theme::kUniform, Theme::kZeroPoints};
  return rng.Pick(kThemes);
}

bool CanRepeat(const Case& small) {
  if (small.x.empty() && small.w.empty()) return false;
  if (RowOf(small.op).layout != Layout::kColumns) return TellsIndices(small.N);
  return TellsIndices(small.x.shape()[1]) || TellsIndices(small.w.shape()[1]);
}

Case Repeated(Rng& rng, const Case& small) {
  Case c = small;
  const Layout layout = RowOf(c.op).layout;
  const int64_t batches = layout == Layout::kBatches ? c.x.shape()[0] : 1;
  const int64_t run = DrawRun(rng) / batches;
  // A row that is longer than 16 bits count shows an index into the row and one into the tensor.
  const bool in_one_row = run > 65536 && rng.Chance(3, 4);
  const uint64_t style = in_one_row ? 0 : rng.Below(4);
  if (c.op == Op::kSoftmax) {
    c.M = style < 3 ? rng.Between(1, 3) : BlockEdge(rng);
    c.N = style < 3 ? DrawSoftmaxRow(rng) : rng.Between(3, 129);
  } else if (style < 2) {  // long rows
    c.M = in_one_row ? 1 : rng.Between(1, 2);
    c.N = std::max<int64_t>(1, run / c.M);
  } else if (style == 2) {
    c.M = std::min(run, BlockEdge(rng));
    c.N = std::max<int64_t>(1, run / c.M);
  } else {  // many short rows
    c.N = rng.Between(1, 5);
    c.M = std::max<int64_t>(1, run / c.N);
  }
  // The inputs of a concat keep their shares.
  const int64_t first = layout == Layout::kColumns ? c.N * small.x.shape()[1] / small.N : c.N;
  if (layout == Layout::kColumns && (first == 0) != small.x.empty()) return small;
  c.x = Tiled(small.x, c.M, first);
  if (HasW(c.op)) c.w = Tiled(small.w, c.M, layout == Layout::kColumns ? c.N - first : c.N);
  RepeatLists(c);
  if (layout == Layout::kBatches) AddOutlier(rng, c.x.as<float>());
  return Validate(c).empty() ? c : small;
}

}  // namespace qualm::gen::internal
