// SPDX-License-Identifier: Apache-2.0
// softmax of a row of N codes, the convention of QNNPACK's u8lut32norm (pytorch/pytorch,
// aten/src/ATen/native/quantized/cpu/qnnpack/src/softargmax.c and src/u8lut32norm/scalar.c), with
// the table in the real numbers instead of double, and the sum in integers instead of modulo 2^32:
//   q = min((2^32 - 1) / N, 2^23 - 1)
//   t_n = RNE(q * e^-(s * (max - x_n)))        max: the largest code of the row
//   y_n = clamp(min(255, floor((256 * t_n + floor(sum t / 2)) / sum t)) + z)
// The quotient is 256 * t_n / sum t rounded half up. For s8 x and y, z is -128, for u8 it is 0.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <string>

#include "core/status.h"
#include "oracles/exact/arithmetic/fixed_point.h"
#include "oracles/exact/arithmetic/real.h"
#include "oracles/exact/definition.h"
#include "oracles/exact/meanings.h"
#include "oracles/exact/told.h"

namespace qualm::exact {
namespace {
namespace definition {

// The table entries t of the elements of one row, and the sum of t.
struct Row {
  Rational q;
  int32_t largest = 0;
  std::vector<Integer> t;
  Integer sum = 0;
  // floor((256 * t + floor(sum / 2)) / sum) of element n.
  Integer Share(int64_t n) const { return (256 * t[static_cast<size_t>(n)] + sum / 2) / sum; }
};

// t of each distance to the largest code, computed once: no more than 256 distances occur.
class Numerators {
 public:
  explicit Numerators(const Case& c) : s_(ToRational(c.x_q.scale_at(0))) {
    const Integer sum_limit = (Integer(1) << 32) - 1;
    const Integer one_limit = (Integer(1) << 23) - 1;
    q_ = std::min(Rational(sum_limit, Integer(c.N)), Rational(one_limit));
  }
  Integer At(int32_t below) {
    const auto [at, is_new] = known_.try_emplace(below, 0);
    if (is_new) at->second = RoundReal(RealFunction::kExp, s_ * Rational(-below), q_);
    return at->second;
  }
  const Rational& q() const { return q_; }

 private:
  Rational s_;
  Rational q_;
  std::map<int32_t, Integer> known_;
};

Row RowWith(const Case& c, int64_t m, Numerators* numerators) {
  Row row;
  row.q = numerators->q();
  row.largest = c.x.IntAt(m * c.N);
  for (int64_t n = 1; n < c.N; ++n) row.largest = std::max(row.largest, c.x.IntAt(m * c.N + n));
  for (int64_t n = 0; n < c.N; ++n) {
    row.t.push_back(numerators->At(row.largest - c.x.IntAt(m * c.N + n)));
    row.sum += row.t.back();
  }
  QUALM_CHECK(row.sum > 0);  // 0 only if N is beyond 2^32
  return row;
}

Row RowOf(const Case& c, int64_t m) {
  Numerators numerators(c);
  return RowWith(c, m, &numerators);
}

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  const Row row = RowOf(c, m);
  return Rational(Integer(256 * row.t[static_cast<size_t>(n)]), row.sum);
}

Tensor All(const Case& c) {
  Tensor y(c.out_dtype, c.output_shape());
  if (y.empty()) return y;
  const Integer zero_point = c.out_q.zero_point_at(0);
  Numerators numerators(c);
  for (int64_t m = 0; m < c.M; ++m) {
    const Row row = RowWith(c, m, &numerators);
    for (int64_t n = 0; n < c.N; ++n) {
      const Integer share = std::min(Integer(255), row.Share(n));
      y.SetInt(m * c.N + n, Clamp(share + zero_point, LowerBound(c), c.out_max));
    }
  }
  return y;
}

}  // namespace definition
namespace fast {

// t of each element, and their sums over each row.
void NumeratorsAndSums(const Case& c, Integers* integers) {
  // Kept from case to case: the same scale and row length are asked about many times.
  struct Known {
    float s = 0;
    int64_t n = 0;
    std::array<std::optional<uint32_t>, 256> numerators;
  };
  thread_local Known known;
  if (known.s != c.x_q.scale_at(0) || known.n != c.N) known = {c.x_q.scale_at(0), c.N, {}};
  for (int64_t m = 0; m < c.M; ++m) {
    const int64_t row = m * c.N;
    int32_t largest = INT32_MIN;
    for (int64_t n = 0; n < c.N; ++n) largest = std::max(largest, c.x.IntAt(row + n));
    int64_t sum = 0;  // N * (q + 1/2) < 2^32 + N / 2
    for (int64_t n = 0; n < c.N; ++n) {
      const int32_t below = largest - c.x.IntAt(row + n);
      std::optional<uint32_t>& t = known.numerators[static_cast<size_t>(below)];
      if (!t) t = SoftmaxNumerator(known.s, below, c.N);
      integers->values.push_back(*t);
      sum += *t;
    }
    integers->counts.push_back(sum);
  }
}

void ShareOf(const Case&, const Integers& integers, int64_t m, int64_t, Scaled* t) {
  t->line.gain = 256;
  t->line.divisor = integers.counts[static_cast<size_t>(m)];
}

// min(255, floor((256 * t + floor(sum / 2)) / sum)): half up.
Rounded RoundShare(const Case&, const Integers& integers, int64_t m, int64_t,
                   const Scaled& numerator) {
  const auto t = static_cast<int64_t>(numerator.integer);
  const int64_t sum = integers.counts[static_cast<size_t>(m)];
  const int64_t share = (256 * t + sum / 2) / sum;
  const int64_t rest = 256 * t - share * sum;  // |rest| <= sum / 2
  return {std::min<int64_t>(share, 255),
          static_cast<double>(sum - 2 * std::abs(rest)) / static_cast<double>(sum),
          share > 255 ? 1 : (rest > 0 ? 1 : 0) - (rest < 0 ? 1 : 0)};
}

}  // namespace fast
namespace told {

void Steps(Teller& t) {
  const Case& c = t.c;
  const definition::Row row = definition::RowOf(c, 0);
  const int32_t code = c.x.IntAt(0);
  const int32_t below = row.largest - code;
  t.Step(Stage::kOffset,
         "distance from the largest of the row's " + std::to_string(c.N) +
             " codes: " + std::to_string(row.largest) + " - " + Parenthesized(code),
         Rational(below));
  t.Step(Stage::kScale,
         "t = q*exp(-distance*x_scale), rounded to the nearest integer, where q = min((2^32-1)/N, "
         "2^23-1) = " +
             Readable(row.q),
         Rational(row.t[0]));
  t.Step(Stage::kAccumulate, "sum of t over the row", Rational(row.sum));
  const Integer share = row.Share(0);
  t.Step(Stage::kRound,
         "floor((256*t + floor(sum/2)) / sum): (256*" + row.t[0].str() + " + " +
             Integer(row.sum / 2).str() + ") / " + row.sum.str(),
         Rational(share));
  const Integer most = 255;
  if (share > most) t.Step(Stage::kClamp, "at most 255", Rational(most));
  t.AddZeroPoint(std::min(share, most));
}

}  // namespace told
}  // namespace

extern constexpr Meaning kSoftmax{
    .op = Op::kSoftmax,
    .definition = {.value = definition::Value, .outputs = definition::All},
    .fast = {.integers = fast::NumeratorsAndSums,
             .line = IdentityLine,
             .scaled = fast::ShareOf,
             .rounded = fast::RoundShare},
    .told = {.steps = Alone<told::Steps>}};

}  // namespace qualm::exact
