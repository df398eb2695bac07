// SPDX-License-Identifier: Apache-2.0
// S = sum_k (x_mk - zx) * (w_nk - zw_n) + bias_i32_n
//   u8, s8: y = clamp(RNE((S * sx * sw_n + bias_n) / sy) + z)
//   s32:    y = clamp(S)
//   f32:    y = S * sx * sw_n + bias_n, rounded once
// With weights in blocks of w_block terms, weight k of channel n has the scale and zero point of
// block b = k / w_block of that channel, and S * sx * sw_n is sx * sum_b S_b * sw_nb. Where x lies
// in such blocks too, x_mk has those of block b of row m: sum_b S_b * sx_mb * sw_nb.
// f32 x stands for itself: sx is 1 and zx 0.
#include "oracles/exact/sums.h"

namespace qualm::exact {

Rational ScaledSum(const Case& c, int64_t n, const Integer& sum) {
  if (c.out_dtype == DType::kS32) return Rational(sum);
  const Rational sx = ToRational(c.x_q.scale_at(0));
  const Rational sw = ToRational(c.w_q.scale_at(n));
  Rational real = Rational(sum) * sx * sw;
  if (c.bias) real += ToRational((*c.bias)[static_cast<size_t>(n)]);
  if (c.out_dtype == DType::kF32) return real;
  return real / ToRational(c.out_q.scale_at(0));
}

namespace {
namespace definition {

Integer Sum(const Case& c, int64_t m, int64_t n) {
  const Integer zx = c.x_q.zero_point_at(0);
  const Integer zw = c.w_q.zero_point_at(n);
  Integer sum = 0;
  for (int64_t k = 0; k < c.K; ++k) {
    const Integer x = c.x.IntAt(m * c.K + k);
    const Integer w = c.w.IntAt(n * c.K + k);
    sum += (x - zx) * (w - zw);
  }
  if (c.bias_i32) sum += (*c.bias_i32)[static_cast<size_t>(n)];
  return sum;
}

// The entry that term k has of row n, each row of K terms having one for each of its blocks.
size_t EntryInBlocks(const Case& c, int64_t n, int64_t k) {
  const int64_t blocks = c.K / c.w_block + (c.K % c.w_block != 0 ? 1 : 0);
  return static_cast<size_t>(n * blocks + k / c.w_block);
}
// The entry of w_q that term k of channel n has, and that of x_q of row m.
size_t EntryOf(const Case& c, int64_t n, int64_t k) {
  if (!c.per_channel) return 0;
  return c.w_block == 0 ? static_cast<size_t>(n) : EntryInBlocks(c, n, k);
}
size_t EntryOfX(const Case& c, int64_t m, int64_t k) {
  return c.x_block == 0 ? 0 : EntryInBlocks(c, m, k);
}

// The sum of block b of row m and channel n.
Integer BlockSum(const Case& c, int64_t m, int64_t n, int64_t b) {
  const int64_t first = b * c.w_block;
  const Integer zx = c.x_q.zero_point[EntryOfX(c, m, first)];
  const Integer zw = c.w_q.zero_point[EntryOf(c, n, first)];
  Integer sum = 0;
  for (int64_t k = first; k < c.K && k < (b + 1) * c.w_block; ++k)
    sum += (c.x.IntAt(m * c.K + k) - zx) * (c.w.IntAt(n * c.K + k) - zw);
  return sum;
}

// The sum of all blocks of channel n, each times its scale; where x lies in blocks, times both.
Rational BlocksTotal(const Case& c, int64_t m, int64_t n) {
  Rational total = 0;
  for (int64_t b = 0; b * c.w_block < c.K; ++b) {
    const int64_t first = b * c.w_block;
    Rational term = Rational(BlockSum(c, m, n, b)) * ToRational(c.w_q.scale[EntryOf(c, n, first)]);
    if (c.x_block != 0) term *= ToRational(c.x_q.scale[EntryOfX(c, m, first)]);
    total += term;
  }
  return total;
}

// Term k of a linear of f32 x.
Rational FloatTerm(const Case& c, int64_t m, int64_t n, int64_t k) {
  const size_t entry = EntryOf(c, n, k);
  const Integer w = Integer(c.w.IntAt(n * c.K + k)) - c.w_q.zero_point[entry];
  return ToRational(c.x.FloatAt(m * c.K + k)) * Rational(w) * ToRational(c.w_q.scale[entry]);
}

Rational FloatTotal(const Case& c, int64_t m, int64_t n) {
  Rational total = 0;
  for (int64_t k = 0; k < c.K; ++k) total += FloatTerm(c, m, n, k);
  return total;
}

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  if (HasFloatX(c)) {
    Rational real = FloatTotal(c, m, n);
    if (c.bias) real += ToRational((*c.bias)[static_cast<size_t>(n)]);
    return real;
  }
  if (c.w_block == 0) return ScaledSum(c, n, Sum(c, m, n));
  Rational real = BlocksTotal(c, m, n);
  if (c.x_block == 0) real *= ToRational(c.x_q.scale_at(0));
  if (c.bias) real += ToRational((*c.bias)[static_cast<size_t>(n)]);
  return c.out_dtype == DType::kF32 ? real : real / ToRational(c.out_q.scale_at(0));
}

}  // namespace definition
namespace told {

void BlockSteps(Teller& t) {
  const Case& c = t.c;
  std::string sums;
  const auto blocks = std::ssize(c.w_q.scale);
  for (int64_t b = 0; b < blocks; ++b) {
    const auto entry = static_cast<size_t>(b);
    const Rational sum(definition::BlockSum(c, 0, 0, b));
    std::string term = Parenthesized(sum) + "*" + Short(c.w_q.scale[entry]);
    if (c.x_block != 0) term += "*" + Short(c.x_q.scale[entry]);
    AppendTerm(&sums, b, blocks, " + ", term);
  }
  Rational value = definition::BlocksTotal(c, 0, 0);
  t.Step(Stage::kAccumulate,
         "sum of (x - x_zp)*(w - w_zp) over each block of " + std::to_string(c.w_block) +
             " terms, times the block's w_scale" + (c.x_block != 0 ? " and x_scale: " : ": ") +
             sums,
         value);
  if (c.x_block == 0) {
    value *= ToRational(c.x_q.scale_at(0));
    t.Step(Stage::kScale, "multiply by x_scale " + Short(c.x_q.scale_at(0)), value);
  }
  if (c.bias) {
    const float bias = c.bias->front();
    const std::string text = "add the bias: " + Readable(value) + " + " + Short(bias);
    value += ToRational(bias);
    t.Step(Stage::kBias, text, value);
  }
  if (c.out_dtype == DType::kF32) return t.RoundToReal(value);
  const std::string text =
      "divide by out_scale: " + Readable(value) + " / " + Short(c.out_q.scale_at(0));
  value /= ToRational(c.out_q.scale_at(0));
  t.Step(Stage::kScale, text, value);
  t.RoundToCode(value);
}

void FloatSteps(Teller& t) {
  const Case& c = t.c;
  std::string terms;
  for (int64_t k = 0; k < c.K; ++k) {
    const size_t entry = definition::EntryOf(c, 0, k);
    const Integer w = Integer(c.w.IntAt(k)) - c.w_q.zero_point[entry];
    AppendTerm(&terms, k, c.K, " + ",
               Parenthesized(ToRational(c.x.FloatAt(k))) + "*" + Parenthesized(Rational(w)) + "*" +
                   Short(c.w_q.scale[entry]));
  }
  Rational value = definition::FloatTotal(c, 0, 0);
  t.Step(Stage::kAccumulate,
         c.K == 0 ? "no terms, the sum is 0" : "sum of x*(w - w_zp)*w_scale over k: " + terms,
         value);
  if (c.bias) {
    const std::string text = "add the bias: " + Readable(value) + " + " + Short(c.bias->front());
    value += ToRational(c.bias->front());
    t.Step(Stage::kBias, text, value);
  }
  t.RoundToReal(value);
}

void Steps(Teller& t) {
  if (HasFloatX(t.c)) return FloatSteps(t);
  if (t.c.w_block != 0) return BlockSteps(t);
  TermsTold terms{"k", {}};
  for (int64_t k = 0; k < t.c.K; ++k) terms.xw.emplace_back(t.c.x.IntAt(k), t.c.w.IntAt(k));
  TellSum(t, terms);
}

}  // namespace told
}  // namespace

extern constexpr Meaning kLinear{
    .op = Op::kLinear,
    .definition = {.value = definition::Value, .accumulator = definition::Sum},
    .fast = {.integers = SumsOf, .line = LineOfSum},
    .told = {.steps = Alone<told::Steps>}};

}  // namespace qualm::exact
