// SPDX-License-Identifier: Apache-2.0
// Scales and zero points follow from the values, not from their order; they scale with the values,
// and 0 is a code. Where codes stand behind them, each goes with its value. No oracle: the subject
// is compared with itself, or its answer with the values.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>
#include <vector>

#include "core/float_format.h"
#include "core/float_text.h"
#include "core/rng.h"
#include "core/slice.h"
#include "properties/list.h"
#include "properties/relation.h"

namespace qualm {
namespace {

using relation::Answer;
using relation::Ask;
using Kind = Observer::Kind;

// The least scale that the rule chooses.
float LeastScale(const Case& c) {
  switch (c.rule) {
    case QParamsRule::kAten: return 6.1e-5f;
    case QParamsRule::kOnnx: return FLT_TRUE_MIN;
    case QParamsRule::kObserver: return 0x1p-23f;
    default: return 0x1p-127f;  // MX
  }
}

// Scales and zero points of an answer, by column, and the code of value i of x.
struct QParamsOf {
  QParamsOf(const Case& c, const Tensor& tensor) : y(tensor), columns(ChosenCount(c)) {}
  float scale(int64_t m) const { return y.FloatAt(m); }
  float zero_point(int64_t m) const { return y.FloatAt(columns + m); }
  float code(int64_t i) const { return y.FloatAt(2 * columns + i); }

  const Tensor& y;
  int64_t columns;
};

// The column by which value i of x gets its code.
int64_t ColumnOf(const Case& c, int64_t i) { return c.per_channel ? i / c.N % c.M : 0; }

CodeRange CodesOf(const Observer& o) {
  if (!o.reduce_range) return {o.quant_min, o.quant_max};
  return {o.quant_min >> 1, o.quant_max >> 1};
}

// out[b, m, n] = value(b, m, n).
template <class Value>
Case WithValues(const Case& c, int64_t batches, int64_t columns, Value value) {
  Case follow_up = ProblemOf(c);
  follow_up.N = columns;
  follow_up.x = Tensor(DType::kF32, {batches, c.M, columns});
  size_t at = 0;
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t m = 0; m < c.M; ++m) {
      for (int64_t n = 0; n < columns; ++n) follow_up.x.as<float>()[at++] = value(b, m, n);
    }
  }
  return follow_up;
}

int64_t PlaceOf(const Case& c, int64_t b, int64_t m, int64_t n) { return (b * c.M + m) * c.N + n; }
float ValueAt(const Case& c, int64_t b, int64_t m, int64_t n) {
  return c.x.FloatAt(PlaceOf(c, b, m, n));
}

// The claim that scales and zero points of both cases are the same. So are, with codes, those of
// value i of the second case and value places[i] of the first; -1: nothing is said of that value.
Verdict SameChoice(const Case& c, const Case& second, const std::vector<int64_t>& places,
                   Subject& subject, const std::string& otherwise) {
  if (!c.codes) return relation::SameAnswer(c, second, subject, otherwise);
  const Answer before = Ask(subject, c);
  if (before.verdict) return *before.verdict;
  const Answer after = Ask(subject, second);
  if (after.verdict) return *after.verdict;
  Tensor expected = after.y;
  const QParamsOf of(c, before.y);
  const int64_t numbers = 2 * of.columns;
  expected.CopyFrom(before.y, 0, numbers, 0);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] < 0) continue;
    expected.as<float>()[static_cast<size_t>(numbers) + i] = of.code(places[i]);
  }
  return relation::Difference(second, expected, after.y, otherwise).value_or(Verdict::Passed());
}

Verdict ValuePermutation(const Case& c, Subject& subject) {
  Rng rng(relation::Hash(c));
  const int64_t batches = c.x.shape()[0];
  // Values stay in their batch, except for min_max; with a scale per row they stay in their row.
  const std::vector<int64_t> order =
      relation::Permutation(rng, c.observer.kind == Kind::kMinMax ? batches : 1);
  std::vector<std::vector<int64_t>> columns;
  const int64_t movable = c.per_channel ? c.N : c.M * c.N;
  for (int64_t i = 0; i < batches * (c.per_channel ? c.M : 1); ++i) {
    columns.push_back(relation::Permutation(rng, movable));
  }
  std::vector<int64_t> places;
  const Case permuted = WithValues(c, batches, c.N, [&](int64_t b, int64_t m, int64_t n) {
    const int64_t from = order.size() > 1 ? order[static_cast<size_t>(b)] : b;
    if (c.per_channel) {
      n = columns[static_cast<size_t>(b * c.M + m)][static_cast<size_t>(n)];
    } else {
      const int64_t i = columns[static_cast<size_t>(b)][static_cast<size_t>(m * c.N + n)];
      m = i / c.N, n = i % c.N;
    }
    places.push_back(PlaceOf(c, from, m, n));
    return c.x.FloatAt(places.back());
  });
  if (permuted.x == c.x) return Verdict::Vacuous("the permutation changes nothing");
  return SameChoice(c, permuted, places, subject, "permuting values changes scale or zero point");
}

Verdict ZeroAppend(const Case& c, Subject& subject) {
  if (c.observer.kind != Kind::kMinMax) return Verdict::Vacuous("0 moves averages and histograms");
  std::vector<int64_t> places;
  const Case appended =
      WithValues(c, c.x.shape()[0] + 1, c.N + 1, [&](int64_t b, int64_t m, int64_t n) {
        const bool is_new = b == c.x.shape()[0] || n == c.N;
        places.push_back(is_new ? -1 : PlaceOf(c, b, m, n));
        return is_new ? 0.0f : ValueAt(c, b, m, n);
      });
  return SameChoice(c, appended, places, subject, "zeros among the values change the result");
}

Verdict Negation(const Case& c, Subject& subject) {
  if (!c.observer.symmetric) return Verdict::Vacuous("not symmetric");
  if (c.observer.kind == Kind::kHistogram) return Verdict::Vacuous("bins are not symmetric");
  Case negated = ProblemOf(c);
  for (float& x : negated.x.as<float>()) x = -x;
  return relation::SameAnswer(c, negated, subject, "negating all values changes the result");
}

// hi - lo of a column (per tensor: of 0, the only one) in float32, as in the definition: it may
// overflow though no value does.
float RangeOfColumn(const Case& c, int64_t column) {
  float lo = 0, hi = 0;
  for (int64_t batch = 0; batch < c.x.shape()[0]; ++batch) {
    for (int64_t m = column; m < (c.per_channel ? column + 1 : c.M); ++m) {
      for (int64_t n = 0; n < c.N; ++n) {
        lo = std::min(lo, ValueAt(c, batch, m, n));
        hi = std::max(hi, ValueAt(c, batch, m, n));
      }
    }
  }
  return hi - lo;
}

// Whether the scale of a column (per tensor: 0, the only one) follows from the range alone, rounded
// as a normal float32.
bool FollowsFromRange(const Case& c, int64_t column, float scale) {
  if (!(scale > LeastScale(c))) return false;
  return c.rule == QParamsRule::kObserver ||
         RangeOfColumn(c, column) > 256 * std::max(LeastScale(c), FLT_MIN);
}

Verdict Doubling(const Case& c, Subject& subject) {
  if (c.observer.kind != Kind::kMinMax)
    return Verdict::Vacuous("averages round near 0, histograms to whole numbers");
  Case doubled = ProblemOf(c);
  bool finite = true;
  for (float& x : doubled.x.as<float>()) {
    x *= 2.0f;
    finite = finite && std::isfinite(x);
  }
  if (!finite) return Verdict::Vacuous("a doubled value overflows");
  const Answer base = Ask(subject, c);
  if (base.verdict) return *base.verdict;
  const Answer twice = Ask(subject, doubled);
  if (twice.verdict) return *twice.verdict;
  const QParamsOf q(c, base.y);
  Tensor expected = twice.y;  // stays so where nothing is claimed
  int64_t judged = 0;
  for (int64_t m = 0; m < q.columns; ++m) {
    if (!FollowsFromRange(c, m, q.scale(m)) || !std::isfinite(RangeOfColumn(doubled, m))) continue;
    ++judged;
    expected.as<float>()[static_cast<size_t>(m)] = q.scale(m) * 2.0f;
    expected.as<float>()[static_cast<size_t>(q.columns + m)] = q.zero_point(m);
    for (int64_t i = 0; c.codes && i < c.x.size(); ++i) {
      if (ColumnOf(c, i) == m)
        expected.as<float>()[static_cast<size_t>(2 * q.columns + i)] = q.code(i);
    }
  }
  if (judged == 0) return Verdict::Vacuous("all scales are at the floor");
  return relation::Difference(doubled, expected, twice.y, "doubled values do not double the scale")
      .value_or(Verdict::Passed());
}

Verdict RowsAreTensors(const Case& c, Subject& subject) {
  if (!c.per_channel) return Verdict::Vacuous("per tensor");
  const Answer whole = Ask(subject, c);
  if (whole.verdict) return *whole.verdict;
  const QParamsOf q(c, whole.y);
  for (int64_t m :
       {c.M - 1, static_cast<int64_t>(relation::Hash(c) % static_cast<uint64_t>(c.M))}) {
    Case row = slice::Rows(c, {&m, 1});
    row.per_channel = false;
    std::vector<float> expected{q.scale(m), q.zero_point(m)};
    for (int64_t i = 0; c.codes && i < c.x.size(); ++i) {
      if (ColumnOf(c, i) == m) expected.push_back(q.code(i));
    }
    const Verdict verdict =
        relation::Expect(row, Tensor::Of<float>(row.output_shape(), expected), subject,
                         "a row per channel differs from it per tensor");
    if (verdict.judgement != Judgement::kPassed) return verdict;
  }
  return Verdict::Passed();
}

Verdict ZeroIsRepresentable(const Case& c, Subject& subject) {
  const Answer answer = Ask(subject, c);
  if (answer.verdict) return *answer.verdict;
  const QParamsOf q(c, answer.y);
  // The default zero point of symmetric u8 stays 128 whatever the codes are.
  const CodeRange codes = CodesOf(c.observer);
  for (int64_t m = 0; m < q.columns; ++m) {
    const float scale = q.scale(m), zero_point = q.zero_point(m);
    if (!(scale >= LeastScale(c))) {
      return relation::FailedAt(c, m, ">= " + FloatText(LeastScale(c)), ElementText(answer.y, m), 0,
                                "a scale lies below its floor");
    }
    if (zero_point != std::trunc(zero_point) || zero_point < static_cast<float>(codes.min) ||
        zero_point > static_cast<float>(codes.max) || std::signbit(zero_point) != (zero_point < 0))
      return relation::FailedAt(
          c, q.columns + m,
          "a code of [" + std::to_string(codes.min) + ", " + std::to_string(codes.max) + "]",
          ElementText(answer.y, q.columns + m), 0, "no code stands for 0");
  }
  return Verdict::Passed();
}

Verdict RangeIsCovered(const Case& c, Subject& subject) {
  const Observer& o = c.observer;
  if (o.kind != Kind::kMinMax) return Verdict::Vacuous("only min_max covers all values");
  if (IsMx(c.rule)) return Verdict::Vacuous("the largest elements of MX may saturate");
  const bool whole = CodeRange{o.quant_min, o.quant_max} == RangeOf(o.dtype);
  if (o.symmetric && !whole) return Verdict::Vacuous("the codes are not symmetric");
  const Answer answer = Ask(subject, c);
  if (answer.verdict) return *answer.verdict;
  const QParamsOf q(c, answer.y);
  const CodeRange codes = CodesOf(o);
  // Half a step for the rounded zero point, the rest for the float32 steps.
  constexpr double kSlack = 0.5 + 0x1p-10;
  int64_t judged = 0;
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const int64_t m = ColumnOf(c, i);
    if (std::isinf(q.scale(m)) || q.scale(m) < FLT_MIN) continue;  // a denormal one has few bits
    ++judged;
    const double code = double{c.x.FloatAt(i)} / double{q.scale(m)} + double{q.zero_point(m)};
    if (code >= codes.min - kSlack && code <= codes.max + kSlack) continue;
    return relation::FailedAt(c, m, "a scale that holds " + ElementText(c.x, i),
                              ElementText(answer.y, m), 0, "a value lies outside the codes");
  }
  return judged == 0 ? Verdict::Vacuous("the scale is infinite or denormal") : Verdict::Passed();
}

Verdict ReduceRangeHalves(const Case& c, Subject& subject) {
  if (c.observer.kind == Kind::kHistogram)
    return Verdict::Vacuous("a histogram need not keep its range");
  Case other = ProblemOf(c);
  other.observer.reduce_range = !c.observer.reduce_range;
  if (!Validate(other).empty()) return Verdict::Vacuous("reduce_range is not possible here");
  const Case& full = c.observer.reduce_range ? other : c;
  const Case& reduced = c.observer.reduce_range ? c : other;
  const Answer whole = Ask(subject, full);
  if (whole.verdict) return *whole.verdict;
  const Answer half = Ask(subject, reduced);
  if (half.verdict) return *half.verdict;
  const CodeRange full_codes = CodesOf(full.observer), half_codes = CodesOf(reduced.observer);
  const double full_steps = full_codes.max - full_codes.min;
  const double half_steps = half_codes.max - half_codes.min;
  int64_t judged = 0;
  for (int64_t m = 0; m < ChosenCount(c); ++m) {
    const double a = whole.y.FloatAt(m), b = half.y.FloatAt(m);
    if (!FollowsFromRange(c, m, whole.y.FloatAt(m)) || std::isinf(b)) continue;
    ++judged;
    const double ratio = b * half_steps / (a * full_steps);
    if (std::abs(ratio - 1) <= 0x1p-22) continue;  // each is rounded once
    return relation::FailedAt(reduced, m, "the range of " + ElementText(whole.y, m),
                              ElementText(half.y, m), 0, "half the codes span another range");
  }
  return judged == 0 ? Verdict::Vacuous("all scales are at the floor") : Verdict::Passed();
}

Verdict CodesAreNear(const Case& c, Subject& subject) {
  if (!c.codes) return Verdict::Vacuous("no codes");
  const Answer answer = Ask(subject, c);
  if (answer.verdict) return *answer.verdict;
  const QParamsOf q(c, answer.y);
  // Half a step, and what float32 steps may lose.
  constexpr double kSlack = 0.5 + 0x1p-10;
  const CodeRange codes = RangeOf(c.observer.dtype);
  for (int64_t i = 0; i < c.x.size() && IsMx(c.rule); ++i) {
    const DType element = c.observer.dtype;
    const double real = double{c.x.FloatAt(i)} / double{q.scale(ColumnOf(c, i))};
    const auto nearest = static_cast<float>(DecodeFloat(
        element,
        EncodeFloat(element, real, FloatRounding::kNearestEven, FloatOverflow::kSaturate)));
    if (q.code(i) == nearest || std::isnan(real)) continue;
    const int64_t at = 2 * q.columns + i;
    return relation::FailedAt(c, at, FloatText(nearest), ElementText(answer.y, at), 0,
                              "not the element next to the value over its scale");
  }
  if (IsMx(c.rule)) return Verdict::Passed();
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const int64_t m = ColumnOf(c, i), at = 2 * q.columns + i;
    const double code = q.code(i);
    const double real = double{c.x.FloatAt(i)} / double{q.scale(m)} + double{q.zero_point(m)};
    const double nearest = std::clamp<double>(real, codes.min, codes.max);
    const bool is_code = code == std::trunc(code) && code >= codes.min && code <= codes.max;
    // Of a scale of 0 or NaN no code is the nearest.
    if (is_code && !(std::abs(code - nearest) > kSlack)) continue;
    return relation::FailedAt(c, at, "a code next to " + FloatText(static_cast<float>(nearest)),
                              ElementText(answer.y, at), 0,
                              is_code ? "a code lies far from its value" : "no code of the type");
  }
  return Verdict::Passed();
}

}  // namespace

std::vector<Property> ObserverProperties() {
  const std::vector<Op> ops{Op::kChooseQParams};
  return {
      {"value_permutation",
       "Permuting the values of a batch (per channel: of a row), and batches of min_max, changes "
       "nothing.",
       ops, false, ValuePermutation},
      {"zero_append", "Zeros in every row, and a batch of them, change nothing for min_max.", ops,
       false, ZeroAppend},
      {"symmetric_negation",
       "Negating all values changes nothing in symmetric quantization, but for histograms.", ops,
       false, Negation},
      {"doubling",
       "Doubled values double the scale and keep the zero point, for min_max, where the scale is "
       "above its floor and nothing overflows.",
       ops, false, Doubling},
      {"rows_are_tensors",
       "Per channel, a row gets the scale and zero point that it gets as a tensor of its own.", ops,
       false, RowsAreTensors},
      {"zero_is_representable",
       "The zero point is one of the codes (with reduce_range: of the halved range), and the scale "
       "is not below its floor: 2^-23, of the rule aten 6.1e-5, of onnx 2^-149.",
       ops, false, ZeroIsRepresentable},
      {"range_is_covered",
       "Every value of min_max lies within half a step of what the codes span. Symmetric "
       "quantization: only with all codes of the type.",
       ops, false, RangeIsCovered},
      {"reduce_range_halves",
       "The codes span the same range with and without reduce_range, but for one rounding of each "
       "scale. Histograms need not.",
       ops, false, ReduceRangeHalves},
      {"codes_are_near",
       "With codes, that of every value is a code of the type, and no more than half a step, and a "
       "little for float32, from x / scale + zero point, or from the end of the codes beyond it.",
       ops, false, CodesAreNear},
  };
}

}  // namespace qualm
