// SPDX-License-Identifier: Apache-2.0
// Order, symmetry and additivity. No oracle: the subject is compared with itself.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "core/rng.h"
#include "core/slice.h"
#include "oracles/exact/exact.h"
#include "properties/list.h"
#include "properties/relation.h"

namespace qualm {
namespace {

using relation::Answer;
using relation::Ask;

bool Less(const Tensor& x, int64_t a, int64_t b) {
  return x.dtype() == DType::kF32 ? x.FloatAt(a) < x.FloatAt(b) : x.IntAt(a) < x.IntAt(b);
}

// Raises about half of the codes of x. No output may go down: unlike sorting it moves each window,
// and each pair of operands, on its own.
Verdict RaisedIsNotLower(const Case& c, Subject& subject) {
  Case raised = ProblemOf(c);
  Rng rng(relation::Hash(c));
  const int64_t most = RangeOf(c.x.dtype()).max;
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const int64_t by = rng.Chance(1, 2) ? 0 : rng.Chance(1, 2) ? 1 : rng.Between(1, 255);
    raised.x.SetInt(i, static_cast<int32_t>(std::min(most, c.x.IntAt(i) + by)));
  }
  if (raised.x == c.x) return Verdict::Vacuous("no code can be raised");
  const Answer before = Ask(subject, c);
  if (before.verdict) return *before.verdict;
  if (before.y.empty()) return Verdict::Vacuous("the output is empty");
  const Answer after = Ask(subject, raised);
  if (after.verdict) return *after.verdict;
  for (int64_t i = 0; i < before.y.size(); ++i) {
    if (after.y.IntAt(i) >= before.y.IntAt(i)) continue;
    return relation::FailedAt(c, i, "at least " + std::to_string(before.y.IntAt(i)),
                              ElementText(after.y, i), double(before.y.IntAt(i)) - after.y.IntAt(i),
                              "raised inputs lower an output");
  }
  return Verdict::Passed();
}

Verdict IsMonotone(const Case& c, Subject& subject) {
  // Sorting would tear windows and pairs of operands apart.
  if (HasWindow(c.op) || HasTwoInputs(c.op)) return RaisedIsNotLower(c, subject);
  if (c.op == Op::kTable && c.function == Function::kHardSwish)
    return Verdict::Vacuous("hardswish is not monotone");
  if (exact::RequantMayOverflow(c)) return Verdict::NotApplicable(relation::kRequantOverflows);
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
  const size_t bytes = SizeOf(c.x.dtype());
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
      std::memcpy(&to[static_cast<size_t>(places[i]) * bytes],
                  &from[static_cast<size_t>(order[i]) * bytes], bytes);
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
    return relation::FailedAt(c, i, "at least " + std::to_string(before), std::to_string(after),
                              double(before) - after, "not monotone on the sorted input");
  }
  return Verdict::Passed();
}

// The case with x mirrored about real 0. A code whose mirror image is no code becomes the zero
// point first, in `c` too; false if the zero point is no code.
bool Mirror(Case& c, Case& mirrored) {
  const CodeRange range = RangeOf(c.x.dtype());
  const int64_t zero = c.x_q.zero_point_at(0);
  const auto is_code = [&](int64_t code) { return code >= range.min && code <= range.max; };
  if (!is_code(zero)) return false;
  mirrored = c;
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const int64_t image = 2 * zero - c.x.IntAt(i);
    if (!is_code(image)) c.x.SetInt(i, static_cast<int32_t>(zero));
    mirrored.x.SetInt(i, static_cast<int32_t>(is_code(image) ? image : zero));
  }
  return true;
}

Verdict Negation(const Case& c, Subject& subject) {
  if (c.requant == Requant::kFixedQ31 || c.requant == Requant::kFixedRndnu) {
    return Verdict::NotApplicable(std::string(Name(c.requant)) + " rounds some halves upwards");
  }
  if (exact::RequantMayOverflow(c)) return Verdict::NotApplicable(relation::kRequantOverflows);
  Case straight = ProblemOf(c);
  Case negated = straight;
  if (IsCode(c.x.dtype())) {
    if (!Mirror(straight, negated)) return Verdict::Vacuous("real 0 is not a code of x");
    if (AddsOperands(c.op)) {
      Case other = straight;  // b is mirrored too: both operands change sign
      std::swap(other.x, other.w);
      std::swap(other.x_q, other.w_q);
      Case other_negated;
      if (!Mirror(other, other_negated)) return Verdict::Vacuous("real 0 is not a code of b");
      straight.w = other.x;
      negated.w = other_negated.x;
    }
    if (straight.x == negated.x && straight.w == negated.w)
      return Verdict::Vacuous("every input is real 0");
  }
  for (int64_t i = 0; i < c.x.size(); ++i) {
    if (c.x.dtype() == DType::kF32) {
      negated.x.as<float>()[static_cast<size_t>(i)] = -c.x.FloatAt(i);
    } else if (c.x.dtype() == DType::kS32) {
      const int32_t acc = c.x.IntAt(i);
      negated.x.SetInt(i, acc == INT32_MIN ? 0 : -acc);
    }
  }
  const Answer plus = Ask(subject, straight);
  if (plus.verdict) return *plus.verdict;
  const Answer minus = Ask(subject, negated);
  if (minus.verdict) return *minus.verdict;
  int64_t judged = 0;
  for (int64_t i = 0; i < plus.y.size(); ++i) {
    if (c.x.dtype() == DType::kS32 && c.x.IntAt(i) == INT32_MIN) continue;
    const int64_t n = relation::ChannelOf(c, i);
    const auto inside = [&](int32_t y) { return y > relation::LowEnd(c, n) && y < c.out_max; };
    if (!inside(plus.y.IntAt(i)) || !inside(minus.y.IntAt(i))) continue;
    ++judged;
    const int64_t zero = c.out_q.zero_point_at(n);
    const int64_t mirrored = 2 * zero - plus.y.IntAt(i);
    if (minus.y.IntAt(i) == mirrored) continue;
    return relation::FailedAt(c, i, std::to_string(mirrored), ElementText(minus.y, i),
                              static_cast<double>(std::abs(mirrored - minus.y.IntAt(i))),
                              "the negated input does not give the mirrored code");
  }
  return judged == 0 ? Verdict::Vacuous("no output strictly inside the clamp with its mirror image")
                     : Verdict::Passed();
}

// Two cases whose sums add up to the sums of the whole case. A convolution with one input channel
// per group has no channels to split: there each weight is real 0 in one of the two. `what` says in
// messages what was split.
struct Halves {
  Case first, second;
  std::string what;
};
std::optional<Halves> SplitOf(const Case& whole) {
  const int64_t terms = whole.op == Op::kLinear ? whole.K : whole.window.in_c / whole.window.groups;
  const uint64_t hash = relation::Hash(whole);
  if (terms >= 2) {
    // An odd cut also tears the pairs that pairwise kernels add first.
    const auto cut = static_cast<size_t>(hash % static_cast<uint64_t>(terms / 2)) * 2 + 1;
    std::vector<int64_t> list(static_cast<size_t>(terms));
    std::iota(list.begin(), list.end(), int64_t{0});
    const std::span<const int64_t> all(list);
    return Halves{slice::Terms(whole, all.first(cut)), slice::Terms(whole, all.subspan(cut)),
                  "k < " + std::to_string(cut) + " and the rest"};
  }
  const CodeRange range = RangeOf(whole.w.dtype());
  Halves halves{whole, whole, "two parts of the taps"};
  Rng rng(hash);
  for (int64_t i = 0; i < whole.w.size(); ++i) {
    const int32_t zero = whole.w_q.zero_point_at(i / whole.K);
    if (zero < range.min || zero > range.max) return std::nullopt;
    (rng.Chance(1, 2) ? halves.first : halves.second).w.SetInt(i, zero);
  }
  return halves;
}

Verdict SplitK(const Case& c, Subject& subject) {
  if (c.K < 2) return Verdict::Vacuous("fewer than 2 summands");
  const Case whole = slice::SumsOf(c);
  const std::optional<Halves> halves = SplitOf(whole);
  if (!halves) return Verdict::Vacuous("a zero point of the weights is no code");
  Tensor sums[3];
  const Case cases[3] = {whole, halves->first, halves->second};
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
    return relation::FailedAt(c, i, std::to_string(sum), ElementText(sums[0], i),
                              static_cast<double>(std::abs(sum - sums[0].IntAt(i))),
                              "accumulators of " + halves->what + " do not add up to the whole");
  }
  return judged == 0 ? Verdict::Vacuous("no accumulator strictly inside int32") : Verdict::Passed();
}

}  // namespace

std::vector<Property> AlgebraProperties() {
  return {
      {"is_monotone",
       "Sorted inputs (per channel where parameters are) give sorted outputs; NaN and tables of "
       "hardswish left out. Pools, add, sub and concat: raising codes of x lowers no output. Not "
       "where float32 or fixed_q31 overflow.",
       OpsWhere(RisesWithX), false, IsMonotone},
      {"negation",
       "y(-a) - z == -(y(a) - z) where both lie strictly inside the clamp and -a is representable; "
       "of add and sub both operands change sign, of mul one. Not under fixed_q31 and fixed_rndnu, "
       "which round halves upwards, nor where float32 overflows.",
       OpsWhere(MirrorsX), false, Negation},
      {"split_k",
       "Accumulators of two parts of K add up to those of the whole, strictly inside int32.",
       OpsWhere(HasSums), false, SplitK, kInTurn},
  };
}

}  // namespace qualm
