// SPDX-License-Identifier: Apache-2.0
#include "properties/coverage.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "oracles/headroom/headroom.h"

namespace qualm {
namespace {

constexpr std::array<std::string_view, 20> kNames{
    "pair-saturates",   "int32-overflows", "exact-tie",     "near-tie",    "clamp-low",
    "clamp-high",       "min-code-run",    "k-tail",        "n-tail",      "m-tail",
    "zero-point-pair",  "empty",           "special-float", "per-channel", "padding",
    "padding-off-code", "groups",          "all-distinct",  "long-window", "multiplier-above-one"};

// Two neighbours of a row that are both the smallest code: -128 * -128 twice in one lane.
bool HasMinCodeRun(const Tensor& tensor, int64_t columns) {
  if (!IsCode(tensor.dtype())) return false;
  const auto low = static_cast<uint8_t>(RangeOf(tensor.dtype()).min);
  const std::span<const uint8_t> codes = tensor.bytes();
  for (size_t i = 0; i + 1 < codes.size(); ++i) {
    if (codes[i] == low && codes[i + 1] == low && (i + 1) % static_cast<size_t>(columns) != 0)
      return true;
  }
  return false;
}

bool IsSpecial(float value) {
  return !std::isfinite(value) || (value == 0.0f ? std::signbit(value) : !std::isnormal(value));
}

bool HasSpecialFloat(const Case& c) {
  if (c.x.dtype() == DType::kF32 && std::ranges::any_of(c.x.as<float>(), IsSpecial)) return true;
  for (const auto* scales : {&c.x_q.scale, &c.w_q.scale, &c.out_q.scale, &c.multiplier}) {
    if (std::ranges::any_of(*scales, IsSpecial)) return true;
  }
  return c.bias && std::ranges::any_of(*c.bias, IsSpecial);
}

// Elements that lie next to each other and are summed or compared together: of an image its lines.
int64_t RowOf(const Case& c) {
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
  const bool average = c.op == Op::kAvgPool || c.op == Op::kGlobalAvgPool;
  const bool moves = c.op == Op::kTable || c.op == Op::kRescale;
  if (!HasTwoInputs(c.op) && !average && !moves) return false;
  double scale = c.x_q.scale_at(0);
  if (HasTwoInputs(c.op)) {
    const double w = c.w_q.scale_at(0);
    scale = RowOf(c.op).combine == Combine::kProduct ? scale * w : std::max(scale, w);
  }
  return scale > double{c.out_q.scale_at(0)} * (average ? static_cast<double>(c.K) : 1.0);
}

}  // namespace

std::string_view Name(Hazard hazard) { return kNames[static_cast<size_t>(hazard)]; }

std::vector<Hazard> HazardsOf(const Case& c) {
  std::vector<Hazard> hazards;
  const auto add = [&](Hazard hazard, bool reached) {
    if (reached) hazards.push_back(hazard);
  };
  const bool sums = HasSums(c.op);
  const bool empty = c.M == 0 || c.N == 0 || (HasWeights(c.op) && c.K == 0);
  if (!empty) {
    const headroom::Headroom headroom = headroom::Measure(c);
    add(Hazard::kPairSaturates, headroom.pairs_saturating > 0);
    add(Hazard::kInt32Overflows, sums && headroom.acc_min < 0);
    add(Hazard::kExactTie, headroom.ties > 0);
    add(Hazard::kNearTie, headroom.ties == 0 && headroom.tie_min <= 0x1p-10);
    add(Hazard::kClampLow, headroom.clamped_low > 0);
    add(Hazard::kClampHigh, headroom.clamped_high > 0);
    add(Hazard::kMinCodeRun, HasMinCodeRun(c.x, RowOf(c)) && (!sums || HasMinCodeRun(c.w, c.K)));
    if (HasWindow(c.op)) AddWindowHazards(c, add);
  }
  // Behind at least one full block of the narrowest vector, as a tail needs a body to follow.
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
