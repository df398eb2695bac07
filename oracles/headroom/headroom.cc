// SPDX-License-Identifier: Apache-2.0
#include "oracles/headroom/headroom.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/slice.h"
#include "oracles/exact/evaluate.h"
#include "oracles/exact/observer.h"
#include "oracles/exact/reduction.h"

namespace qualm::headroom {
namespace {

// The code that a kernel finds in the padding of an image: the code of real 0, or, if no code is
// real 0, the code that the kernel treats as 0.
int16_t PaddingCode(const Case& c) {
  const int32_t zero_point = c.x_q.zero_point_at(0);
  const CodeRange range = RangeOf(c.x.dtype());
  const bool is_code = zero_point >= range.min && zero_point <= range.max;
  return static_cast<int16_t>(is_code ? zero_point : range.min);
}

// The operands as a pair-adding kernel lays them out, even and odd positions apart, so that the
// loop over pairs vectorizes. Rows are (K+1)/2 long; an odd K is padded with 0.
class Operands {
 public:
  explicit Operands(const Case& c)
      : Operands(exact::ReductionOf(c, PaddingCode(c)), c.x.dtype() == DType::kS8 ? 128 : 0) {}

  int64_t pairs() const { return pairs_; }

  int32_t Sum(int64_t m, int64_t n, int64_t t) const {
    const size_t x = XAt(m, n, t);
    const size_t w = WAt(n, t);
    return x_[0][x] * w_[0][w] + x_[1][x] * w_[1][w];
  }

  Pair PairAt(int64_t m, int64_t n, int64_t t) const {
    Pair pair;
    pair.m = m;
    pair.n = n;
    pair.k = 2 * t;
    pair.x0 = x_[0][XAt(m, n, t)];
    pair.w0 = w_[0][WAt(n, t)];
    pair.x1 = x_[1][XAt(m, n, t)];
    pair.w1 = w_[1][WAt(n, t)];
    pair.sum = Sum(m, n, t);
    pair.saturated = std::clamp(pair.sum, -32768, 32767);
    return pair;
  }

  struct Range {
    int32_t low = INT32_MAX;
    int32_t high = INT32_MIN;
    int32_t saturating = 0;
  };
  Range RangeOfSums(int64_t m, int64_t n) const {
    const int16_t* x0 = x_[0].data() + XAt(m, n, 0);
    const int16_t* x1 = x_[1].data() + XAt(m, n, 0);
    const int16_t* w0 = w_[0].data() + WAt(n, 0);
    const int16_t* w1 = w_[1].data() + WAt(n, 0);
    Range range;
    for (int64_t t = 0; t < pairs_; ++t) {
      const int32_t sum = x0[t] * w0[t] + x1[t] * w1[t];
      range.low = std::min(range.low, sum);
      range.high = std::max(range.high, sum);
      range.saturating += sum > 32767 || sum < -32768 ? 1 : 0;
    }
    return range;
  }

 private:
  using Halves = std::vector<int16_t>[2];

  Operands(exact::Reduction lists, int shift) : pairs_((lists.k + 1) / 2) {
    Fill(lists.x, lists.k, shift, &x_);
    Fill(lists.w, lists.k, 0, &w_);
    lists.x = {};  // from here on only the layout is used
    lists.w = {};
    layout_ = std::move(lists);
  }

  size_t XAt(int64_t m, int64_t n, int64_t t) const {
    return static_cast<size_t>(layout_.x_row(m, n) * pairs_ + t);
  }
  size_t WAt(int64_t n, int64_t t) const { return static_cast<size_t>(n * pairs_ + t); }

  // Rows of k > 0 codes.
  void Fill(const std::vector<int16_t>& codes, int64_t k, int shift, Halves* halves) {
    const auto length = static_cast<size_t>(k);
    const size_t rows = codes.size() / length;
    for (auto& half : *halves) half.assign(rows * static_cast<size_t>(pairs_), 0);
    for (size_t parity = 0; parity < 2; ++parity) {
      for (size_t row = 0; row < rows; ++row) {
        int16_t* to = (*halves)[parity].data() + row * static_cast<size_t>(pairs_);
        const int16_t* const from = codes.data() + row * length;
        for (size_t i = parity; i < length; i += 2) *to++ = static_cast<int16_t>(from[i] + shift);
      }
    }
  }

  int64_t pairs_;
  exact::Reduction layout_;
  Halves x_;
  Halves w_;
};

void MeasurePairs(const Case& c, Headroom* result) {
  const Operands operands(c);
  int64_t worst_m = -1;
  int64_t worst_n = -1;
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      const Operands::Range range = operands.RangeOfSums(m, n);
      result->pairs_saturating += range.saturating;
      const int32_t headroom = std::min(PairHeadroom(range.low), PairHeadroom(range.high));
      if (headroom < result->pair_min) {
        result->pair_min = headroom;
        worst_m = m;
        worst_n = n;
      }
    }
  }
  if (worst_m < 0) return;
  int64_t t = 0;
  while (PairHeadroom(operands.Sum(worst_m, worst_n, t)) != result->pair_min) ++t;
  result->pair_worst = operands.PairAt(worst_m, worst_n, t);
}

// Does any pair of the case saturate? A last term without a partner never does.
bool SomePairSaturates(const Case& c) {
  exact::Reduction lists = exact::ReductionOf(c, PaddingCode(c));
  const auto k = static_cast<size_t>(lists.k);
  if (c.x.dtype() == DType::kS8) {
    for (int16_t& code : lists.x) code = static_cast<int16_t>(code + 128);
  }
  // Sums lie between those of one code, the largest, with the weights of one sign alone.
  const int32_t largest = lists.x.empty() ? 0 : *std::ranges::max_element(lists.x);
  const auto could_saturate = [&](const int16_t* w) {
    int32_t low = 0, high = 0;
    for (size_t at = 0; at + 1 < k; at += 2) {
      const int32_t a = w[at], b = w[at + 1];
      low = std::min(low, std::min(a, 0) + std::min(b, 0));
      high = std::max(high, std::max(a, 0) + std::max(b, 0));
    }
    return PairHeadroom(low * largest) < 0 || PairHeadroom(high * largest) < 0;
  };
  for (int64_t n = 0; n < c.N; ++n) {
    const int16_t* const w = lists.w.data() + static_cast<size_t>(n) * k;
    if (!could_saturate(w)) continue;
    for (int64_t m = 0; m < c.M; ++m) {
      const int16_t* const x = lists.x.data() + static_cast<size_t>(lists.x_row(m, n)) * k;
      // Other than 0 as soon as one sum is not in [-32768, 32767].
      uint32_t outside = 0;
      for (size_t i = 0; i + 1 < k; i += 2) {
        const int32_t sum = x[i] * w[i] + x[i + 1] * w[i + 1];
        outside |= static_cast<uint32_t>(sum + 32768) >> 16;
      }
      if (outside != 0) return true;
    }
  }
  return false;
}

}  // namespace

int32_t PairHeadroom(int32_t sum) { return std::min(32767 - sum, sum + 32768); }

bool HasPairs(const Case& c) {
  return HasSums(c) && IsByteCode(c.x.dtype()) && c.w.dtype() == DType::kS8 && c.K >= 1;
}

std::vector<Pair> SaturatingPairs(const Case& c, int64_t m, int64_t n) {
  std::vector<Pair> saturating;
  if (!HasPairs(c)) return saturating;
  const Operands operands(slice::OneOutput(c, m * c.N + n));
  for (int64_t t = 0; t < operands.pairs(); ++t) {
    if (PairHeadroom(operands.Sum(0, 0, t)) >= 0) continue;
    Pair pair = operands.PairAt(0, 0, t);
    pair.m = m;
    pair.n = n;
    saturating.push_back(pair);
  }
  return saturating;
}

Headroom Measure(const Case& c) {
  Headroom result;
  if (c.op == Op::kChooseQParams) {  // no sums, and codes only behind what is chosen
    if (c.codes) result = Measure(exact::ExactCodesCaseOf(c, exact::ChooseQParams(c)));
    result.outputs += 2 * ChosenCount(c);
    return result;
  }
  result.outputs = c.M * c.N;
  if (c.op == Op::kCast) return result;
  if (HasElementBlocks(c)) return Measure(slice::BlocksAsChannels(c));
  if (HasPairs(c)) MeasurePairs(c, &result);
  const exact::Outputs outputs(c);
  if (HasSums(c)) {
    for (const __int128 sum : outputs.integers().values) {
      const __int128 distance = std::min<__int128>(INT32_MAX - sum, sum - INT32_MIN);
      // |sum| < 2^110: only a sum with astronomic zero points does not fit int64.
      result.acc_min =
          static_cast<int64_t>(std::clamp<__int128>(distance, INT64_MIN, result.acc_min));
    }
  }
  // An exact distance costs as much as many estimates. So compute the values first, and a bound of
  // the distance where an estimate decides the value; then the exact distance where it is least;
  // then the exact distances whose bound leaves room for a smaller one.
  constexpr double kKnown = 4;  // above every distance and bound
  std::vector<double> bounds;
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      if (c.out_dtype == DType::kF32) {
        if (c.relu && std::signbit(outputs.UnclampedFloatAt(m, n))) ++result.clamped_low;
        continue;
      }
      double& bound = bounds.emplace_back(kKnown);
      const exact::Code code = outputs.CodeAt(m, n, &bound);
      if (code.value < code.lo) {
        ++result.clamped_low;
      } else if (code.value > c.out_max) {
        ++result.clamped_high;
      }
      if (!code.tie_distance) continue;
      result.tie_min = std::min(result.tie_min, *code.tie_distance);
      if (*code.tie_distance == 0.0) ++result.ties;
    }
  }
  const auto measure = [&](std::vector<double>::iterator at) {
    if (*at >= result.tie_min) return;
    *at = kKnown;
    const int64_t index = at - bounds.begin();
    const exact::Code code = outputs.CodeAt(index / c.N, index % c.N);
    result.tie_min = std::min(result.tie_min, *code.tie_distance);  // far values have the bound 2
  };
  if (!bounds.empty()) measure(std::ranges::min_element(bounds));
  for (auto at = bounds.begin(); at != bounds.end(); ++at) measure(at);
  return result;
}

Reached ReachedBy(const Case& c, double near) {
  Reached reached;
  if (c.codes) {  // the range is chosen so that values fit the codes
    const Reached by_codes = ReachedBy(exact::ExactCodesCaseOf(c, exact::ChooseQParams(c)), near);
    reached.tie = by_codes.tie;
    reached.near_tie = by_codes.near_tie;
    return reached;
  }
  if (c.op == Op::kChooseQParams || c.op == Op::kCast) return reached;
  if (HasElementBlocks(c)) return ReachedBy(slice::BlocksAsChannels(c), near);
  reached.pair_saturates = HasPairs(c) && SomePairSaturates(c);
  const exact::Outputs outputs(c);
  if (HasSums(c)) {
    reached.int32_overflows = std::ranges::any_of(
        outputs.integers().values, [](__int128 sum) { return static_cast<int32_t>(sum) != sum; });
  }
  if (IsCode(c.out_dtype)) {
    const exact::Ends ends = outputs.EndsReached(near);
    reached.clamped_low = ends.below;
    reached.clamped_high = ends.above;
    reached.tie = ends.tie;
    reached.near_tie = ends.near_tie;
    return reached;
  }
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      if (c.out_dtype == DType::kF32) {
        if (!c.relu) return reached;
        reached.clamped_low = std::signbit(outputs.UnclampedFloatAt(m, n));
        if (reached.clamped_low) return reached;
      } else {
        const exact::Code code = outputs.CodeAt(m, n);
        const bool low = code.value < code.lo;
        reached.clamped_low = reached.clamped_low || low;
        reached.clamped_high = reached.clamped_high || (!low && code.value > c.out_max);
      }
    }
  }
  return reached;
}

}  // namespace qualm::headroom
