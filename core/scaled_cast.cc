// SPDX-License-Identifier: Apache-2.0
#include "core/scaled_cast.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/float_format.h"

namespace qualm {
namespace {

constexpr int kDigits = 24;

// value = digits * 2^exponent, for values > 0 of at most 24 significant bits.
struct Digits {
  explicit Digits(double value) {
    digits = static_cast<uint64_t>(std::ldexp(std::frexp(value, &exponent), kDigits));
    exponent -= kDigits;
  }
  uint64_t digits = 0;
  int exponent = 0;
};

}  // namespace

bool IsScaledCast(const Case& c) {
  static const QParams none;
  return RowOf(c.op).cast && (c.per_channel || c.x_block != 0 || c.x_q.scale != none.scale ||
                              c.out_q.scale != none.scale);
}

Quotient QuotientOf(double x, float x_scale, float out_scale) {
  if (!std::isfinite(x) || x == 0) return {x, true};
  const Digits of_x(std::abs(x)), by(static_cast<double>(x_scale)),
      over(static_cast<double>(out_scale));
  const uint64_t product = of_x.digits * by.digits;
  const int up = std::countl_zero(product);
  const uint64_t shifted = product << up, whole = shifted / over.digits;
  const bool exact = whole * over.digits == shifted;
  // No float is nearer to a limit between two of them than the bits that were cut.
  const auto kept = static_cast<double>(exact ? whole : whole | 1);
  const int exponent = of_x.exponent + by.exponent - over.exponent - up;
  return {std::copysign(std::ldexp(kept, exponent), x), exact};
}

Quotient QuotientOf(const Case& cast, int64_t index) {
  const size_t entry = ElementEntry(cast, index);
  return QuotientOf(DecodeFloat(cast.x.dtype(), cast.x.BitsAt(index)), cast.x_q.scale[entry],
                    cast.out_q.scale[entry]);
}

Case WithQuotients(const Case& cast, bool* all_exact) {
  Case plain = cast;
  Tensor x(DType::kF32, cast.x.shape());
  bool exact = true;
  for (int64_t i = 0; i < x.size(); ++i) {
    const Quotient quotient = QuotientOf(cast, i);
    const auto nearest = static_cast<float>(quotient.value);
    const bool is_nan = std::isnan(quotient.value);
    exact = exact && (is_nan || (quotient.exact && double{nearest} == quotient.value));
    x.as<float>()[static_cast<size_t>(i)] = nearest;
  }
  plain.x = std::move(x);
  plain.x_q = plain.out_q = QParams{};
  plain.per_channel = false;
  plain.x_block = 0;
  if (all_exact != nullptr) *all_exact = exact;
  return plain;
}

}  // namespace qualm
