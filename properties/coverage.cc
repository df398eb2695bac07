// SPDX-License-Identifier: Apache-2.0
#include "properties/coverage.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "oracles/headroom/headroom.h"
#include "properties/distinct.h"

namespace qualm {
namespace {

// The operations that a hazard is about.
bool Any(Op) { return true; }
bool HasK(Op op) { return HasWeights(op) || IsPool(op); }
// Ties of casts lie between floats, where no distance is measured.
bool HasRounding(Op op) { return op != Op::kMaxPool && op != Op::kCast; }
bool HasPairSums(Op op) { return HasSums(op) || HasTwoInputs(op); }
bool HasClamp(Op op) { return RowOf(op).clamp || RowOf(op).relu; }
// Of casts Draw has none.
bool HasLists(Op op) { return RowOf(op).per_channel != PerChannel::kNone && !RowOf(op).cast; }
bool IsAverage(Op op) { return IsPool(op) && HasOutQParams(op); }
bool IsProduct(Op op) { return RowOf(op).layout == Layout::kProducts; }
bool ScalesCodes(Op op) {
  return HasTwoInputs(op) || IsAverage(op) || op == Op::kTable || op == Op::kRescale;
}
// Each output is a multiple of one integer, and the multiplier comes from the parameters.
bool HasMultiplier(Op op) {
  return HasSums(op) || RowOf(op).multiplier || op == Op::kRescale || op == Op::kMul ||
         AddsOperands(op) || RowOf(op).layout == Layout::kColumns || IsAverage(op);
}
bool IsConv2d(Op op) { return op == Op::kConv2d; }
bool IsSoftmax(Op op) { return RowOf(op).out_q == OutQParams::kFixed; }
bool IsRun(Op op) {
  return (RowOf(op).layout == Layout::kElements || HasTwoInputs(op)) && !IsSoftmax(op);
}
bool HasLongSums(Op op) { return HasWeights(op) && !RowOf(op).depthwise; }

constexpr std::array<HazardRow, 35> kHazards{{
    {Hazard::kPairSaturates, "pair-saturates", "a u8*s8 pair sum leaves int16", HasSums, 0.2},
    {Hazard::kInt32Overflows, "int32-overflows", "a corrected sum leaves int32", HasSums, 0.03},
    {Hazard::kExactTie, "exact-tie", "an output is an exact rounding tie", HasRounding, 0.02},
    {Hazard::kNearTie, "near-tie", "no tie, but an output within 2^-10 of one", HasRounding, 0.001},
    {Hazard::kClampLow, "clamp-low", "the clamp or relu raises an output", HasClamp, 0.05},
    {Hazard::kClampHigh, "clamp-high", "the clamp lowers an output", HasClamp, 0.03},
    {Hazard::kMinCodeRun, "min-code-run", "two neighbours are both the smallest code", Any, 0.05},
    {Hazard::kKTail, "k-tail", "K leaves a tail behind blocks of 4", HasK, 0.15},
    {Hazard::kNTail, "n-tail", "N leaves a tail behind vectors of 8", Any, 0.15},
    {Hazard::kMTail, "m-tail", "M leaves a tail behind blocks of 4", Any, 0.05},
    {Hazard::kZeroPointPair, "zero-point-pair", "both operands have a zero point other than 0",
     HasPairSums, 0.1},
    {Hazard::kEmpty, "empty", "a dimension is 0", Any, 0.008},
    {Hazard::kSpecialFloat, "special-float", "NaN, infinity, denormal or -0 among the floats", Any,
     0.003},
    {Hazard::kPerChannel, "per-channel", "parameters per channel, of several channels", HasLists,
     0.1},
    {Hazard::kPadding, "padding", "a window sees padding where the zero point is not 0", HasWindow,
     0.15},
    {Hazard::kPaddingOffCode, "padding-off-code",
     "a window sees padding, and the zero point is no code: no padded image stands for it",
     HasWindow, 0.008},
    {Hazard::kGroups, "groups", "more than one group, fewer than depthwise has", IsConv2d, 0.15},
    {Hazard::kAllDistinct, "all-distinct",
     "kernel and stride differ between the axes, pads between opposite sides", HasWindow, 0.05},
    {Hazard::kLongWindow, "long-window", "sums of a window can leave 16 bits", IsPool, 0.008},
    {Hazard::kMultiplierAboveOne, "multiplier-above-one",
     "an input step is more than an output step", ScalesCodes, 0.05},
    {Hazard::kBlocksOfK, "blocks-of-k", "K > 256 with more than 3 channels", HasLongSums, 0.002},
    {Hazard::kLargeLayer, "large-layer", "K of 300 or more with 16 channels or more", HasLongSums,
     0.0005},
    {Hazard::kLongM, "long-m", "more than 129 rows or output pixels",
     [](Op op) { return !RowOf(op).whole_image; }, 0.0003},
    {Hazard::kWideN, "wide-n", "more than 129 output channels or columns", Any, 0.0005},
    {Hazard::kBlockEdges, "block-edges",
     "two of M, N, K lie within 1 of 64, 96, 128, 192, 256, 384 or 512", IsProduct, 0.0005},
    {Hazard::kDeepChannels, "deep-channels",
     "32 channels or more in and out of a group, several taps, 8 output pixels or more", IsConv2d,
     0.0003},
    {Hazard::kManyGroups, "many-groups", "8 groups or more with parameters per channel", IsConv,
     0.0005},
    {Hazard::kWideImage, "wide-image", "more than 43 output pixels along an axis",
     [](Op op) { return HasWindow(op) && !RowOf(op).whole_image; }, 0.0005},
    {Hazard::kManyPlanes, "many-planes", "more than 131 channels, one group or pool for each",
     [](Op op) { return IsPool(op) || op == Op::kDepthwise; }, 0.0003},
    {Hazard::kLongRun, "long-run", "more than 4,096 elements", IsRun, 0.0003},
    {Hazard::kBeyond16Bits, "beyond-16-bits", "more than 65,535 elements", IsRun, 0.0001},
    {Hazard::kLongRow, "long-row", "a row of more than 1,100 elements", IsSoftmax, 0.002},
    {Hazard::kPowerOfTwo, "power-of-two", "a multiplier is a power of two of 2^-31 or less",
     HasMultiplier, 0.0005},
    {Hazard::kShiftEdge, "shift-edge",
     "a multiplier is a fraction shifted by 30 bits or more, to either side", HasMultiplier, 0.008},
    {Hazard::kTermAtEdge, "term-at-edge",
     "a term of the zero-point correction is an end of int32 or next to it", HasSums, 0.001},
}};
constexpr bool InOrder() {
  for (size_t i = 0; i < kHazards.size(); ++i) {
    if (kHazards[i].hazard != static_cast<Hazard>(i)) return false;
  }
  return true;
}
static_assert(InOrder());

// Two neighbours of a row that are both the smallest code: -128 * -128 twice in one lane.
bool HasMinCodeRun(const Tensor& tensor, int64_t columns) {
  if (!IsByteCode(tensor.dtype())) return false;
  const auto low = static_cast<uint8_t>(RangeOf(tensor.dtype()).min);
  const std::span<const uint8_t> codes = tensor.bytes();
  for (size_t i = 0; i + 1 < codes.size(); ++i) {
    const void* const next = std::memchr(&codes[i], low, codes.size() - 1 - i);
    if (next == nullptr) return false;
    i = static_cast<size_t>(static_cast<const uint8_t*>(next) - codes.data());
    if (codes[i + 1] == low && (i + 1) % static_cast<size_t>(columns) != 0) return true;
  }
  return false;
}

bool IsSpecial(float value) {
  return !std::isfinite(value) || (value == 0.0f ? std::signbit(value) : !std::isnormal(value));
}

bool HasSpecialFloat(const Case& c) {
  if (c.x.dtype() == DType::kF32 && std::ranges::any_of(c.x.as<float>(), IsSpecial)) return true;
  for (int64_t i = 0; RowOf(c.op).cast && i < c.x.size(); ++i) {
    if (IsSpecial(static_cast<float>(c.x.ValueAt(i)))) return true;
  }
  for (const auto* scales : {&c.x_q.scale, &c.w_q.scale, &c.out_q.scale, &c.multiplier}) {
    if (std::ranges::any_of(*scales, IsSpecial)) return true;
  }
  return c.bias && std::ranges::any_of(*c.bias, IsSpecial);
}

// Elements that lie next to each other and are summed or compared together: of an image its lines.
int64_t LineLength(const Case& c) {
  if (HasWindow(c.op)) return c.window.in_w * c.window.in_c;
  if (RowOf(c.op).layout == Layout::kColumns) return std::max<int64_t>(c.x.shape()[1], 1);
  return RowOf(c.op).layout == Layout::kProducts ? c.K : c.N;
}

// The case is not empty.
template <class Add>
void AddWindowHazards(const Case& c, const Add& add) {
  const Window& v = c.window;
  bool padded = false;
  for (int64_t m = 0; m < v.out_h() * v.out_w() && !padded; ++m) {
    const std::vector<Tap> taps = TapsOf(v, m);
    padded = std::ranges::any_of(taps, [](const Tap& tap) { return tap.x_row < 0; });
  }
  const int32_t zero = c.x_q.zero_point_at(0);
  const CodeRange range = RangeOf(c.x.dtype());
  add(Hazard::kPadding, padded && zero != 0);
  add(Hazard::kPaddingOffCode, padded && (zero < range.min || zero > range.max));
  add(Hazard::kGroups, v.groups > 1 && v.groups < v.in_c);
  add(Hazard::kAllDistinct, v.kernel_h != v.kernel_w && v.stride_h != v.stride_w &&
                                v.pad_top != v.pad_bottom && v.pad_left != v.pad_right);
  add(Hazard::kLongWindow, IsPool(c.op) && c.K > UINT16_MAX / 255);
}

bool MultiplierAboveOne(const Case& c) {
  if (!ScalesCodes(c.op)) return false;
  double scale = c.x_q.scale_at(0);
  if (HasTwoInputs(c.op)) {
    const double w = c.w_q.scale_at(0);
    scale = RowOf(c.op).combine == Combine::kProduct ? scale * w : std::max(scale, w);
  }
  return scale > double{c.out_q.scale_at(0)} * (IsAverage(c.op) ? static_cast<double>(c.K) : 1.0);
}

// The sizes of real layers and long runs. The case is not empty.
template <class Add>
void AddSizeHazards(const Case& c, const Add& add) {
  const Window& v = c.window;
  const auto at_edge = [](int64_t dim) {
    constexpr std::array<int64_t, 7> kBlocks{64, 96, 128, 192, 256, 384, 512};
    return std::ranges::any_of(kBlocks, [dim](int64_t b) { return dim >= b - 1 && dim <= b + 1; });
  };
  const bool weights = HasWeights(c.op);
  add(Hazard::kBlocksOfK, weights && c.K > 256 && c.N > 3);
  add(Hazard::kLargeLayer, weights && c.K >= 300 && c.N >= 16);
  add(Hazard::kLongM, c.M > 129);
  add(Hazard::kWideN, c.N > 129);
  add(Hazard::kBlockEdges, IsProduct(c.op) && at_edge(c.M) + at_edge(c.N) + at_edge(c.K) >= 2);
  if (IsConv(c.op)) {
    const int64_t in = v.in_c / v.groups, out = c.N / v.groups;
    add(Hazard::kDeepChannels, in >= 32 && out >= 32 && v.kernel_h * v.kernel_w > 1 && c.M >= 8);
    add(Hazard::kManyGroups, v.groups >= 8 && c.per_channel);
  }
  add(Hazard::kWideImage, HasWindow(c.op) && std::max(v.out_h(), v.out_w()) > 43);
  add(Hazard::kManyPlanes, (IsPool(c.op) || c.op == Op::kDepthwise) && v.in_c > 131);
  add(Hazard::kLongRun, IsRun(c.op) && c.M * c.N > 4096);
  add(Hazard::kBeyond16Bits, IsRun(c.op) && c.M * c.N > UINT16_MAX);
  add(Hazard::kLongRow, IsSoftmax(c.op) && c.N > 1100);
}

// The multipliers from integers to outputs, by channel; for two operands both.
std::vector<double> MultipliersOf(const Case& c) {
  std::vector<double> multipliers;
  if (!HasMultiplier(c.op) || !IsCode(c.out_dtype)) return multipliers;
  if (!c.multiplier.empty()) return {c.multiplier.begin(), c.multiplier.end()};
  const double ratio = double{c.x_q.scale_at(0)} / c.out_q.scale_at(0);
  const bool product = HasSums(c) || RowOf(c.op).multiplier || c.op == Op::kMul;
  if (!product) multipliers.push_back(ratio);
  if (product) {
    for (const float scale : c.w_q.scale) multipliers.push_back(ratio * scale);
  } else if (HasTwoInputs(c.op)) {
    multipliers.push_back(double{c.w_q.scale_at(0)} / c.out_q.scale_at(0));
  }
  return multipliers;
}

// Is value * factor an end of int32, or would it be if one of the two were 1 more or less?
bool AtInt32Edge(int64_t value, int64_t factor) {
  const double a = std::abs(static_cast<double>(value)), b = std::abs(static_cast<double>(factor));
  return a != 0 && b != 0 && std::abs(a * b - 0x1p31) <= std::min(a, b);
}

bool HasTermAtEdge(const Case& c) {
  const int64_t zx = c.x_q.zero_point_at(0);
  // With zero points that are codes no term comes near the edge: each is at most K * 256 * 256.
  const auto small = [](int64_t zero) { return zero >= -256 && zero <= 256; };
  if (c.K < 1 << 14 && small(zx) && std::ranges::all_of(c.w_q.zero_point, small)) return false;
  for (int64_t n = 0; n < c.N; ++n) {
    const int64_t zw = c.w_q.zero_point_at(n);
    int64_t sum = 0;
    for (int64_t k = 0; k < c.K; ++k) sum += c.w.IntAt(n * c.K + k);
    if (AtInt32Edge(zx, sum) || AtInt32Edge(zw, c.K * zx)) return true;
  }
  if (c.op != Op::kLinear) return false;
  for (int64_t m = 0; m < c.M; ++m) {
    int64_t sum = 0;
    for (int64_t k = 0; k < c.K; ++k) sum += c.x.IntAt(m * c.K + k);
    const auto at_edge = [&](int32_t zero) { return AtInt32Edge(zero, sum); };
    if (std::ranges::any_of(c.w_q.zero_point, at_edge)) return true;
  }
  return false;
}

template <class Add>
void AddParameterHazards(const Case& c, const Add& add) {
  bool power = false, shift = false;
  for (const double multiplier : MultipliersOf(c)) {
    int exponent = 0;
    const double mantissa = std::frexp(multiplier, &exponent);
    power = power || (mantissa == 0.5 && multiplier <= 0x1p-31);
    shift = shift || exponent >= 30 || exponent <= -30;
  }
  add(Hazard::kPowerOfTwo, power);
  add(Hazard::kShiftEdge, shift);
  add(Hazard::kTermAtEdge, HasSums(c) && c.w_block == 0 && HasTermAtEdge(c));
}

}  // namespace

std::span<const HazardRow> AllHazards() { return kHazards; }

std::string_view Name(Hazard hazard) { return kHazards[static_cast<size_t>(hazard)].name; }

std::vector<Hazard> HazardsOf(const Case& c) {
  std::vector<Hazard> hazards;
  const auto add = [&](Hazard hazard, bool reached) {
    if (reached) hazards.push_back(hazard);
  };
  const bool sums = HasSums(c);
  const bool empty = c.M == 0 || c.N == 0 || (HasWeights(c.op) && c.K == 0);
  if (!empty) {
    // Equal rows and columns reach the same.
    const std::optional<Distinct> distinct = DistinctPartsOf(c);
    const headroom::Reached reached = headroom::ReachedBy(distinct ? distinct->c : c, 0x1p-10);
    add(Hazard::kPairSaturates, reached.pair_saturates);
    add(Hazard::kInt32Overflows, reached.int32_overflows);
    add(Hazard::kExactTie, reached.tie);
    add(Hazard::kNearTie, reached.near_tie);
    add(Hazard::kClampLow, reached.clamped_low);
    add(Hazard::kClampHigh, reached.clamped_high);
    add(Hazard::kMinCodeRun,
        HasMinCodeRun(c.x, LineLength(c)) && (!sums || HasMinCodeRun(c.w, c.K)));
    if (HasWindow(c.op)) AddWindowHazards(c, add);
    AddSizeHazards(c, add);
    AddParameterHazards(c, add);
  }
  // A tail counts only behind at least one full block of the narrowest vector.
  add(Hazard::kKTail, c.K > 4 && c.K % 4 != 0);
  add(Hazard::kNTail, c.N > 8 && c.N % 8 != 0);
  add(Hazard::kMTail, c.M > 4 && c.M % 4 != 0);
  add(Hazard::kZeroPointPair,
      (sums || HasTwoInputs(c.op)) && c.x_q.zero_point_at(0) != 0 &&
          std::ranges::any_of(c.w_q.zero_point, [](int32_t zero) { return zero != 0; }));
  add(Hazard::kEmpty, empty);
  add(Hazard::kSpecialFloat, HasSpecialFloat(c));
  add(Hazard::kPerChannel, c.per_channel && c.N > 1);
  add(Hazard::kMultiplierAboveOne, !empty && MultiplierAboveOne(c));
  return hazards;
}

void HazardCoverage::Add(Op op, std::string_view instruction_set, std::span<const Hazard> hazards) {
  Row& row = rows_[{op, std::string(instruction_set)}];
  ++row.cases;
  for (Hazard hazard : hazards) ++row.reached[hazard];
}

void HazardCoverage::Merge(const HazardCoverage& other) {
  for (const auto& [key, from] : other.rows_) {
    Row& row = rows_[key];
    row.cases += from.cases;
    for (const auto& [hazard, count] : from.reached) row.reached[hazard] += count;
  }
}

}  // namespace qualm
