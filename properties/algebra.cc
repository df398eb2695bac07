// SPDX-License-Identifier: Apache-2.0
// Order, symmetry and additivity. No oracle: the subject is compared with itself.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "properties/derive.h"
#include "properties/list.h"

namespace qualm {
namespace {

using derive::Answer;
using derive::Ask;

bool Less(const Tensor& x, int64_t a, int64_t b) {
  return x.dtype() == DType::kF32 ? x.FloatAt(a) < x.FloatAt(b) : x.IntAt(a) < x.IntAt(b);
}

Verdict IsMonotone(const Case& c, Subject& subject) {
  Case sorted = ProblemOf(c);
  if (sorted.x.dtype() == DType::kF32) {
    for (float& x : sorted.x.as<float>()) {
      if (std::isnan(x)) x = 0.0f;  // NaN has no place in the order
    }
  }
  // With parameters per channel only values of one channel can be compared.
  const int64_t groups = c.per_channel ? c.N : 1;
  const int64_t size = c.x.size();
  const Tensor unsorted = sorted.x;
  const auto from = unsorted.bytes();
  const auto to = sorted.x.bytes();
  int64_t pairs = 0;
  std::vector<int64_t> order;
  for (int64_t group = 0; group < groups; ++group) {
    order.clear();
    for (int64_t i = group; i < size; i += groups) order.push_back(i);
    std::vector<int64_t> places = order;
    std::ranges::sort(order, [&](int64_t a, int64_t b) {
      return Less(unsorted, a, b) || (!Less(unsorted, b, a) && a < b);
    });
    for (size_t i = 0; i < order.size(); ++i) {
      std::memcpy(&to[static_cast<size_t>(places[i]) * 4], &from[static_cast<size_t>(order[i]) * 4],
                  4);
      if (i > 0 && Less(unsorted, order[i - 1], order[i])) ++pairs;
    }
  }
  if (pairs == 0) return Verdict::Vacuous("no two different inputs to compare");
  const Answer answer = Ask(subject, sorted);
  if (answer.verdict) return *answer.verdict;
  for (int64_t i = groups; i < size; ++i) {
    const int32_t before = answer.y.IntAt(i - groups);
    const int32_t after = answer.y.IntAt(i);
    if (after >= before) continue;
    return derive::FailedAt(c, i, "at least " + std::to_string(before), std::to_string(after),
                            double(before) - after, "not monotone on the sorted input");
  }
  return Verdict::Passed();
}

Verdict Negation(const Case& c, Subject& subject) {
  Case negated = ProblemOf(c);
  for (int64_t i = 0; i < c.x.size(); ++i) {
    if (c.x.dtype() == DType::kF32) {
      negated.x.as<float>()[static_cast<size_t>(i)] = -c.x.FloatAt(i);
    } else {
      const int32_t acc = c.x.IntAt(i);
      negated.x.SetInt(i, acc == INT32_MIN ? 0 : -acc);
    }
  }
  const Answer plus = Ask(subject, c);
  if (plus.verdict) return *plus.verdict;
  const Answer minus = Ask(subject, negated);
  if (minus.verdict) return *minus.verdict;
  int64_t judged = 0;
  for (int64_t i = 0; i < c.x.size(); ++i) {
    if (c.x.dtype() == DType::kS32 && c.x.IntAt(i) == INT32_MIN) continue;
    const int64_t n = derive::ChannelOf(c, i);
    const auto inside = [&](int32_t y) { return y > derive::LowEnd(c, n) && y < c.out_max; };
    if (!inside(plus.y.IntAt(i)) || !inside(minus.y.IntAt(i))) continue;
    ++judged;
    const int64_t zero = c.out_q.zero_point_at(n);
    const int64_t mirrored = 2 * zero - plus.y.IntAt(i);
    if (minus.y.IntAt(i) == mirrored) continue;
    return derive::FailedAt(c, i, std::to_string(mirrored), ElementText(minus.y, i),
                            static_cast<double>(std::abs(mirrored - minus.y.IntAt(i))),
                            "the negated input does not give the mirrored code");
  }
  return judged == 0 ? Verdict::Vacuous("no output strictly inside the clamp with its mirror image")
                     : Verdict::Passed();
}

// Raw accumulators: an s32 output without bias, activation or clamp.
Case AccumulatorsOf(const Case& c) {
  Case raw = ProblemOf(c);
  raw.bias.reset();
  raw.bias_i32.reset();
  raw.relu = false;
  raw.out_dtype = DType::kS32;
  raw.out_q = QParams{};
  raw.out_min = INT32_MIN;
  raw.out_max = INT32_MAX;
  return raw;
}

Verdict SplitK(const Case& c, Subject& subject) {
  if (c.K < 2) return Verdict::Vacuous("fewer than 2 summands");
  const Case whole = AccumulatorsOf(c);
  // An odd cut also tears the pairs that pairwise kernels add first.
  const auto halves = static_cast<uint64_t>(c.K / 2);
  const auto cut = static_cast<int64_t>(derive::Hash(c) % halves) * 2 + 1;
  std::vector<int64_t> terms(static_cast<size_t>(c.K));
  std::iota(terms.begin(), terms.end(), int64_t{0});
  const std::span<const int64_t> all(terms);
  const auto at = static_cast<size_t>(cut);
  Tensor sums[3];
  const Case cases[3] = {whole, derive::Terms(whole, all.first(at)),
                         derive::Terms(whole, all.subspan(at))};
  for (int i = 0; i < 3; ++i) {
    Answer answer = Ask(subject, cases[i]);
    if (answer.verdict) return *answer.verdict;
    sums[i] = std::move(answer.y);
  }
  int64_t judged = 0;
  for (int64_t i = 0; i < sums[0].size(); ++i) {
    const auto inside = [&](int which) {
      return sums[which].IntAt(i) != INT32_MIN && sums[which].IntAt(i) != INT32_MAX;
    };
    if (!inside(0) || !inside(1) || !inside(2)) continue;
    ++judged;
    const int64_t sum = int64_t{sums[1].IntAt(i)} + sums[2].IntAt(i);
    if (sum == sums[0].IntAt(i)) continue;
    return derive::FailedAt(
        c, i, std::to_string(sum), ElementText(sums[0], i),
        static_cast<double>(std::abs(sum - sums[0].IntAt(i))),
        "accumulators of k < " + std::to_string(cut) + " and the rest do not add up to the whole");
  }
  return judged == 0 ? Verdict::Vacuous("no accumulator strictly inside int32") : Verdict::Passed();
}

}  // namespace

std::vector<Property> AlgebraProperties() {
  return {
      {"is_monotone",
       "Sorted inputs (per channel where parameters are) give sorted outputs; NaN left out.",
       {Op::kQuantize, Op::kRequantize},
       false,
       "CVT, FXP, CLP; M23",
       IsMonotone},
      {"negation",
       "y(-a) - z == -(y(a) - z) where both lie strictly inside the clamp and a is not INT32_MIN.",
       {Op::kQuantize, Op::kRequantize},
       false,
       "RND, SGN; M12, M15",
       Negation},
      {"split_k",
       "Accumulators of two parts of K add up to those of the whole, strictly inside int32.",
       {Op::kLinear},
       false,
       "ISAT, ACC, KTL, ZPC; M01, M31, M40",
       SplitK},
  };
}

}  // namespace qualm
