// SPDX-License-Identifier: Apache-2.0
// rescale, concat, add, sub and mul of the reference, and their faults.
#include <array>
#include <cmath>

#include "adapters/faulty/codes.h"
#include "adapters/faulty/reference.h"
#include "core/status.h"

namespace qualm::faulty {
namespace {

// A multiplier from 1 on is a fraction below 1 and a shift to the left; without that shift the
// value is smaller by a power of two.
Dyadic WithoutLeftShift(Dyadic value, double multiplier) {
  int shift = 0;
  (void)std::frexp(multiplier, &shift);
  if (shift > 0) value.exponent -= shift;
  return value;
}

}  // namespace

uint8_t Reference::RescaleOne(const Case& c, const QParams& q, int32_t code) const {
  if (Has(Fault::kMultiplierInDouble)) {
    const double multiplier = static_cast<double>(q.scale[0]) / c.out_q.scale[0];
    const int64_t product = RoundedProduct(int64_t{code} - q.zero_point[0], multiplier);
    return static_cast<uint8_t>(Finish(c, product, c.out_q.zero_point[0]));
  }
  const Dyadic real = Product(FromInt(int64_t{code} - q.zero_point[0]), FromFloat(q.scale[0]));
  const int64_t rounded = RoundQuotient(real, FromFloat(c.out_q.scale[0]), RoundTo::kNearestEven);
  return static_cast<uint8_t>(Finish(c, rounded, c.out_q.zero_point[0]));
}

void Reference::Rescale(const Placed& p) {
  const Case& c = *p.problem;
  for (int64_t m = 0; m < c.M; ++m) {
    const uint8_t* const x = Row<uint8_t>(p.x, m, p.x_stride);
    uint8_t* const y = OutputRow(p, m);
    const auto vector = [&](int64_t j) {
      std::array<uint8_t, kLanes> codes;
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        codes[static_cast<size_t>(lane)] = RescaleOne(c, c.x_q, CodeAt(x, c.x.dtype(), j + lane));
      }
      std::memcpy(y + j, codes.data(), codes.size());
    };
    int64_t j = 0;
    for (; j + kLanes <= c.N; j += kLanes) vector(j);
    // A last vector that overlaps the one before would read what has been written in place.
    if (Has(Fault::kOverlappedTailInPlace) && j != 0 && j < c.N) {
      vector(c.N - kLanes);
      continue;
    }
    for (; j < c.N; ++j) y[j] = RescaleOne(c, c.x_q, CodeAt(x, c.x.dtype(), j));
  }
}

void Reference::Concat(const Placed& p) {
  const Case& c = *p.problem;
  const int64_t first = c.x.shape()[1];
  const QParams& second_q = Has(Fault::kConcatFirstParameters) ? c.x_q : c.w_q;
  for (int64_t m = 0; m < c.M; ++m) {
    const uint8_t* const a = Row<uint8_t>(p.x, m, p.x_stride);
    const uint8_t* const b = Row<uint8_t>(p.w, m, p.w_stride);
    uint8_t* const y = OutputRow(p, m);
    for (int64_t j = 0; j < first; ++j) y[j] = RescaleOne(c, c.x_q, CodeAt(a, c.x.dtype(), j));
    for (int64_t j = first; j < c.N; ++j) {
      y[j] = RescaleOne(c, second_q, CodeAt(b, c.w.dtype(), j - first));
    }
  }
}

uint8_t Reference::TwoOperandsOne(const Case& c, int32_t a, int32_t b) const {
  const int64_t da = int64_t{a} - c.x_q.zero_point[0];
  const int64_t db = SignOfSecond(c.op) * (int64_t{b} - c.w_q.zero_point[0]);
  const float a_scale = c.x_q.scale[0];
  const float b_scale = c.w_q.scale[0];
  const double y_scale = c.out_q.scale[0];
  const bool drop = Has(Fault::kLeftShiftDropped);
  Dyadic real;
  switch (RowOf(c.op).combine) {
    case Combine::kSum:
    case Combine::kDifference: {
      Dyadic left = Product(FromInt(da), FromFloat(a_scale));
      Dyadic right = Product(FromInt(db), FromFloat(b_scale));
      if (drop) {
        left = WithoutLeftShift(left, a_scale / y_scale);
        right = WithoutLeftShift(right, b_scale / y_scale);
      }
      // CannotCompute has made sure, but for shifts that are missing.
      if (!Sum(left, right, &real)) QUALM_CHECK(drop);
      break;
    }
    case Combine::kProduct: {
      __int128 product = static_cast<__int128>(da) * db;
      if (Has(Fault::kProductInt16)) product = static_cast<int16_t>(product);
      if (Has(Fault::kMultiplierInDouble)) {
        const double multiplier = static_cast<double>(a_scale) * b_scale / y_scale;
        return static_cast<uint8_t>(
            Finish(c, RoundedProduct(product, multiplier), c.out_q.zero_point[0]));
      }
      real = Product(FromInt(product), Product(FromFloat(a_scale), FromFloat(b_scale)));
      if (drop) real = WithoutLeftShift(real, static_cast<double>(a_scale) * b_scale / y_scale);
      break;
    }
    case Combine::kNone: QUALM_CHECK(!"no two operands");
  }
  const int64_t rounded = RoundQuotient(real, FromFloat(c.out_q.scale[0]), RoundTo::kNearestEven);
  return static_cast<uint8_t>(Finish(c, rounded, c.out_q.zero_point[0]));
}

void Reference::TwoOperands(const Placed& p) {
  Case one;  // of operands that are one buffer
  const bool shared = Has(Fault::kSharedFirstParameters) && p.x == p.w;
  if (shared) {
    one = *p.problem;
    one.w_q = one.x_q;
  }
  const Case& c = shared ? one : *p.problem;
  // A last vector that overlaps the one before: its first operand is kept, the second is read
  // again.
  const int64_t last = c.N - kLanes;
  const bool again = Has(Fault::kSecondReadAgain) && last > 0 && c.N % kLanes != 0;
  std::array<int32_t, kLanes> first{};
  for (int64_t m = 0; m < c.M; ++m) {
    const uint8_t* const a = Row<uint8_t>(p.x, m, p.x_stride);
    const uint8_t* const b = Row<uint8_t>(p.w, m, p.w_stride);
    uint8_t* const y = OutputRow(p, m);
    const auto one_output = [&](int64_t j, int32_t code) {
      const int64_t from = Has(Fault::kElementIndexU16) ? j % 65536 : j;
      y[j] = TwoOperandsOne(c, code, CodeAt(b, c.w.dtype(), from));
    };
    for (int64_t j = 0; j < c.N; ++j) {
      const int32_t code = CodeAt(a, c.x.dtype(), j);
      if (again && j >= last) first[static_cast<size_t>(j - last)] = code;
      one_output(j, code);
    }
    for (int64_t j = last; again && j < c.N; ++j)
      one_output(j, first[static_cast<size_t>(j - last)]);
  }
}

}  // namespace qualm::faulty
