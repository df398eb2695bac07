// SPDX-License-Identifier: Apache-2.0
#include "triage/code_length.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <optional>
#include <vector>

#include "core/op.h"
#include "core/slice.h"
#include "core/verdict.h"
#include "oracles/exact/exact.h"

namespace qualm::triage {
namespace {

// The sign of a departure and its size, in Elias's gamma code, but never more than the number
// takes.
double ValueBits(const Tensor& predicted, const Tensor& actual, int64_t i) {
  const double whole = BitsOf(actual.dtype());
  double distance = DistanceLsb(predicted, actual, i);
  if (predicted.dtype() == DType::kF32) {  // zero points stand beside scales in one output
    const float a = predicted.FloatAt(i), b = actual.FloatAt(i);
    const auto is_small = [](float v) { return std::abs(v) < 0x1p16f && v == std::trunc(v); };
    if (is_small(a) && is_small(b)) distance = std::abs(a - b);
  }
  if (!std::isfinite(distance) || distance < 1) return whole;  // NaN; or zeros of both signs
  return std::min(whole, 2.0 + 2 * std::ilogb(distance));
}

}  // namespace

double Log2Choose(int64_t n, int64_t k) {
  const auto ln = [](int64_t m) { return std::lgamma(static_cast<double>(m) + 1); };
  return (ln(n) - ln(k) - ln(n - k)) / std::numbers::ln2;
}

void CodeLength::Add(const Tensor& predicted, const Tensor& actual) {
  outputs_ += actual.size();
  for (int64_t i = 0; i < actual.size(); ++i) {
    if (predicted.SameAt(i, actual)) continue;
    ++departures_;
    values_ += ValueBits(predicted, actual, i);
  }
}

namespace {

double MostBits(const Case& c, const Tensor& right, const Tensor& actual) {
  if (!IsCode(actual.dtype())) return INFINITY;
  std::vector<size_t> departures;
  for (int64_t i = 0; i < actual.size(); ++i) {
    if (actual.SameAt(i, right)) continue;
    if (DistanceLsb(right, actual, i) > 1) return INFINITY;
    departures.push_back(static_cast<size_t>(i));
  }
  std::vector<double> ties;
  for (const std::optional<double>& tie : exact::TieDistances(c)) ties.push_back(tie.value_or(1));
  double farthest = 0, near = 0;
  for (const size_t i : departures) farthest = std::max(farthest, ties[i]);
  for (const double at : ties) near += at > farthest ? 0 : at == 0 ? 0.5 : 0.25;
  return 2 + near;
}

// The first of each of `count` things that are alike.
std::vector<int64_t> FirstOfAlike(int64_t count,
                                  const std::function<bool(int64_t a, int64_t b)>& alike) {
  constexpr size_t kMost = 16;  // it takes their square, of each answer that is weighed
  std::vector<int64_t> first;
  for (int64_t i = 0; i < count; ++i) {
    if (first.size() > kMost) return slice::Range(0, count);
    if (std::ranges::none_of(first, [&](int64_t f) { return alike(f, i); })) first.push_back(i);
  }
  return first;
}

// Rows of the same x, or columns of the same weights and parameters, that got the same answer say
// one thing. Of the first ones alone; nullopt where there are no others.
struct Apart {
  Case c;
  std::vector<Tensor> outputs;
};
std::optional<Apart> SaidOnce(const Case& c, const std::array<const Tensor*, 3>& outputs) {
  if (RowOf(c.op).layout != Layout::kProducts || RowOf(c.op).dynamic || c.M * c.N < 2)
    return std::nullopt;
  const auto same = [](const Tensor& t, int64_t a, int64_t b, int64_t step, int64_t length) {
    for (int64_t i = 0; i < length; ++i)
      if (!t.SameAt(a + i * step, t, b + i * step)) return false;
    return true;
  };
  const auto all_same = [&](int64_t a, int64_t b, int64_t step, int64_t length) {
    return std::ranges::all_of(outputs,
                               [&](const Tensor* y) { return same(*y, a, b, step, length); });
  };
  const auto rows = FirstOfAlike(c.M, [&](int64_t a, int64_t b) {
    return same(c.x, a * c.K, b * c.K, 1, c.K) && all_same(a * c.N, b * c.N, 1, c.N);
  });
  const auto columns = FirstOfAlike(c.N, [&](int64_t a, int64_t b) {
    const auto alike = [&](const auto& list) {
      return list.size() < 2 || list[static_cast<size_t>(a)] == list[static_cast<size_t>(b)];
    };
    return c.w_block == 0 && same(c.w, a * c.K, b * c.K, 1, c.K) && all_same(a, b, c.N, c.M) &&
           alike(c.w_q.scale) && alike(c.w_q.zero_point) && alike(c.multiplier) &&
           (!c.bias || alike(*c.bias)) && (!c.bias_i32 || alike(*c.bias_i32));
  });
  if (std::ssize(rows) == c.M && std::ssize(columns) == c.N) return std::nullopt;
  Apart apart{slice::Channels(slice::Rows(c, rows), columns), {}};
  for (const Tensor* y : outputs) {
    Tensor& part = apart.outputs.emplace_back(y->dtype(), apart.c.output_shape());
    int64_t to = 0;
    for (const int64_t m : rows)
      for (const int64_t n : columns) part.CopyFrom(*y, m * c.N + n, 1, to++);
  }
  return apart;
}

double BitsOfDistinct(const Case& c, const Tensor& right, const Tensor& predicted,
                      const Tensor& actual) {
  CodeLength without, with;
  without.Add(right, actual);
  with.Add(predicted, actual);
  const double saved = without.bits() - with.bits();
  return saved <= 0 ? saved : std::min(saved, MostBits(c, right, actual));
}

}  // namespace

double BitsSaved(const Case& c, const Tensor& right, const Tensor& predicted,
                 const Tensor& actual) {
  const std::optional<Apart> apart = SaidOnce(c, {&right, &predicted, &actual});
  if (!apart) return BitsOfDistinct(c, right, predicted, actual);
  return BitsOfDistinct(apart->c, apart->outputs[0], apart->outputs[1], apart->outputs[2]);
}

double CodeLength::bits() const {
  return std::log2(static_cast<double>(outputs_) + 1) + Log2Choose(outputs_, departures_) + values_;
}

}  // namespace qualm::triage
