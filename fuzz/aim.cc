// SPDX-License-Identifier: Apache-2.0
#include "fuzz/aim.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "core/op.h"
#include "core/slice.h"
#include "oracles/exact/evaluate.h"

namespace qualm::fuzz {
namespace {

int64_t AnyIndex(Rng& rng, int64_t count) {
  return static_cast<int64_t>(rng.Below(static_cast<uint64_t>(count)));
}

// The place of term k of output (m, n) in x; -1 in the padding. Its weight lies at n*K + k.
int64_t TermInX(const Case& c, int64_t m, int64_t n, int64_t k) {
  if (c.op == Op::kLinear) return m * c.K + k;
  const Window& v = c.window;
  const int64_t channels = v.in_c / v.groups;
  const int64_t row = TapsOf(v, m)[static_cast<size_t>(k / channels)].x_row;
  return row < 0 ? -1 : row + n / (c.N / v.groups) * channels + k % channels;
}

// The operand of concat that column n comes from, and the place of (m, n) in it.
struct Part {
  const Tensor* codes;
  QParams* q;
  int64_t i;
};
Part PartOf(Case& c, int64_t m, int64_t n) {
  const int64_t of_x = c.x.shape()[1];
  if (n < of_x) return {&c.x, &c.x_q, m * of_x + n};
  return {&c.w, &c.w_q, m * (c.N - of_x) + n - of_x};
}

// Sets a zero point such that code - zero point is `difference`, where an int32 holds it.
bool SetDifference(int64_t code, int64_t difference, QParams& q) {
  const int64_t zero_point = code - difference;
  if (zero_point < INT32_MIN || zero_point > INT32_MAX) return false;
  q.zero_point[0] = static_cast<int32_t>(zero_point);
  return true;
}

// Makes the average an odd number of halves: scales 1 and powers of two, but for the divisor.
void AimAverageAtTie(Case& c, int64_t i, Rng& rng) {
  const auto zero_point = static_cast<int32_t>(rng.Between(-300, 300));
  Case one = slice::OneOutput(c, i);
  one.x_q.zero_point = {zero_point};
  const exact::Integers integers = exact::IntegersOf(one);
  const auto sum = static_cast<int64_t>(integers.values[0]);
  if (sum == 0) return;
  c.x_q = {{static_cast<float>(integers.counts[0])}, {zero_point}};
  c.out_q.scale[0] = std::ldexp(1.0f, std::countr_zero(static_cast<uint64_t>(sum)) + 1);
}

// The int32 bias of output n takes the difference between the sum and `target`.
void AimSumAtTie(Case& c, int64_t m, int64_t n, int64_t target, float code) {
  __int128 bias = target - exact::CorrectedSums(c)[static_cast<size_t>(m * c.N + n)];
  if (c.bias_i32) bias += (*c.bias_i32)[static_cast<size_t>(n)];
  if (bias < INT32_MIN || bias > INT32_MAX) return;
  c.x_q.scale[0] = c.w_q.scale[static_cast<size_t>(c.per_channel ? n : 0)] = 1.0f;
  c.out_q.scale[0] = code;
  c.bias.reset();
  if (!c.bias_i32) c.bias_i32.emplace(static_cast<size_t>(c.N), 0);
  (*c.bias_i32)[static_cast<size_t>(n)] = static_cast<int32_t>(bias);
}

}  // namespace

void ExtremePair(Case& c, Rng& rng) {
  if (!HasSums(c) || c.M * c.N * c.K == 0) return;
  const int64_t m = AnyIndex(rng, c.M);
  const int64_t n = AnyIndex(rng, c.N);
  const int64_t k = AnyIndex(rng, c.K) & ~int64_t{1};
  const CodeRange x_range = RangeOf(c.x.dtype());
  const CodeRange w_range = RangeOf(c.w.dtype());
  const bool high = rng.Chance(1, 2);
  for (int64_t i = k; i < std::min(k + 2, c.K); ++i) {
    const auto code = static_cast<int32_t>(x_range.max - rng.Between(0, 1));
    if (const int64_t at = TermInX(c, m, n, i); at >= 0) c.x.SetInt(at, code);
    c.w.SetInt(n * c.K + i, high ? w_range.max : w_range.min);
  }
}

void AimAtCode(Case& c, Rng& rng) {
  if (c.M == 0 || c.N == 0 || !IsCode(c.out_dtype)) return;
  const int64_t m = AnyIndex(rng, c.M);
  const int64_t n = AnyIndex(rng, c.N);
  const double codes = static_cast<double>(rng.Between(1, 511)) * 0.5;
  if (c.op == Op::kQuantize) {
    const auto target = static_cast<float>(codes * c.out_q.scale_at(n));
    c.x.as<float>()[static_cast<size_t>(m * c.N + n)] = rng.Chance(1, 2) ? target : -target;
    return;
  }
  if (!c.multiplier.empty()) {
    const double factor = c.multiplier[c.per_channel ? static_cast<size_t>(n) : 0];
    const double acc = std::nearbyint(codes / factor);
    if (std::fabs(acc) > 2e9) return;
    c.x.SetInt(m * c.N + n, static_cast<int32_t>(rng.Chance(1, 2) ? acc : -acc));
    return;
  }
  if (RowOf(c.op).out_q != OutQParams::kOwn) return;
  // Brings the output near the aim; the single steps of ChangeScale do the rest.
  Case one = slice::OneOutput(c, m * c.N + n);
  one.out_q.scale = {1.0f};
  const double real = exact::Outputs(one).RealAt(0, 0).value;
  const auto scale = static_cast<float>(std::fabs(real) / codes);
  if (std::isfinite(scale) && scale > 0) c.out_q.scale[0] = scale;
}

void AimAtTie(Case& c, Rng& rng) {
  if (c.w_block != 0 || c.M == 0 || c.N == 0 || !IsCode(c.out_dtype)) return;
  const int64_t m = AnyIndex(rng, c.M);
  const int64_t n = AnyIndex(rng, c.N);
  const int64_t i = m * c.N + n;
  const auto at = static_cast<size_t>(c.per_channel ? n : 0);
  // Scales become powers of two, and the value an odd multiple of half a code. Or the output scale
  // becomes an odd number times a power: float64 misses some of those ties (49 * (1/49) < 1).
  const int shift = static_cast<int>(rng.Between(1, 10));
  const bool over_odd = c.op != Op::kQuantize && c.multiplier.empty() && rng.Chance(1, 2);
  const int64_t odd = !over_odd ? 1 : rng.Chance(1, 3) ? 49 : 2 * rng.Between(1, 63) + 1;
  const int64_t half = odd << (shift - 1);
  const auto code = static_cast<float>(2 * half);  // what one output code is worth
  const int64_t target = (2 * rng.Between(-256, 255) + 1) * half;
  if (c.op == Op::kQuantize) {
    c.out_q.scale[at] = code;
    c.x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(target);
  } else if (UsesMultiplier(c)) {
    c.x.SetInt(i, static_cast<int32_t>(target));
    c.multiplier[at] = 1.0f / code;
  } else if (RowOf(c.op).multiplier) {
    c.x.SetInt(i, static_cast<int32_t>(target));
    c.x_q.scale[0] = c.w_q.scale[at] = 1.0f;
    c.out_q.scale[0] = code;
  } else if (HasSums(c)) {
    AimSumAtTie(c, m, n, target, code);
  } else if (c.op == Op::kRescale) {
    if (!SetDifference(c.x.IntAt(i), target, c.x_q)) return;
    c.x_q.scale[0] = 1.0f;
    c.out_q.scale[0] = code;
  } else if (HasTwoOperands(c.op)) {
    // The target is a + b or a - b, where b stays as it is, or a * b, where b becomes 1.
    int64_t a = target, b = int64_t{c.w.IntAt(i)} - c.w_q.zero_point[0];
    switch (RowOf(c.op).combine) {
      case Combine::kSum: a = target - b; break;
      case Combine::kDifference: a = target + b; break;
      case Combine::kProduct: b = 1; break;
      case Combine::kNone: return;
    }
    QParams a_q = c.x_q, b_q = c.w_q;
    if (!SetDifference(c.x.IntAt(i), a, a_q) || !SetDifference(c.w.IntAt(i), b, b_q)) return;
    c.x_q = {{1.0f}, a_q.zero_point};
    c.w_q = {{1.0f}, b_q.zero_point};
    c.out_q.scale[0] = code;
  } else if (RowOf(c.op).layout == Layout::kColumns) {
    const Part part = PartOf(c, m, n);
    if (!SetDifference(part.codes->IntAt(part.i), target, *part.q)) return;
    part.q->scale[0] = 1.0f;
    c.out_q.scale[0] = code;
  } else if (IsPool(c.op) && RowOf(c.op).out_q == OutQParams::kOwn) {
    AimAverageAtTie(c, i, rng);
  }
  // Other operations do not round, or not in a way that can be aimed at.
}

}  // namespace qualm::fuzz
