// SPDX-License-Identifier: Apache-2.0
#include "triage/code_length.h"

#include <algorithm>
#include <cmath>
#include <numbers>

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

}  // namespace

double BitsSaved(const Case& c, const Tensor& right, const Tensor& predicted,
                 const Tensor& actual) {
  CodeLength without, with;
  without.Add(right, actual);
  with.Add(predicted, actual);
  const double saved = without.bits() - with.bits();
  return saved <= 0 ? saved : std::min(saved, MostBits(c, right, actual));
}

double CodeLength::bits() const {
  return std::log2(static_cast<double>(outputs_) + 1) + Log2Choose(outputs_, departures_) + values_;
}

}  // namespace qualm::triage
