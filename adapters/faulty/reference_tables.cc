// SPDX-License-Identifier: Apache-2.0
// table and softmax of the reference, and their faults. Rational functions are exact. The others
// come from the C library in long double, whose error is taken to be below 2^-56 of the value, a
// hundred times and more what any such library has. A case that this error leaves undecided is not
// computed.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "adapters/faulty/codes.h"
#include "adapters/faulty/reference.h"

namespace qualm::faulty {
namespace {

constexpr long double kError = 0x1p-56L;

// The nearest integer, if it is the same for all values within the error.
std::optional<int64_t> RoundReal(long double value) {
  const long double low = std::rint(value - std::fabs(value) * kError);
  const long double high = std::rint(value + std::fabs(value) * kError);
  if (std::fabs(value) > 0x1p40L) return value < 0 ? -kHuge : kHuge;
  if (low != high) return std::nullopt;
  return static_cast<int64_t>(low);
}

// v (v + 3) / 6 between -3 and 3, over the scale.
std::optional<int64_t> HardSwish(const Dyadic& v, const Dyadic& y_scale, RoundTo rule) {
  const long double about = std::ldexp(static_cast<long double>(v.mantissa), v.exponent);
  if (about <= -3) return 0;
  if (about >= 3) return RoundQuotient(v, y_scale, rule);
  Dyadic shifted;
  if (!Sum(v, FromInt(3), &shifted) ||
      BitLength(v.mantissa) + BitLength(shifted.mantissa) > kMantissaBits) {
    return std::nullopt;
  }
  return RoundQuotient(Product(v, shifted), Product(FromInt(6), y_scale), rule);
}

// f(v) / y_scale of one code, rounded.
std::optional<int64_t> TableValue(const Case& c, int32_t code, RoundTo rule) {
  const int64_t difference = int64_t{code} - c.x_q.zero_point[0];
  const Dyadic v = Product(FromInt(difference), FromFloat(c.x_q.scale[0]));
  const Dyadic y_scale = FromFloat(c.out_q.scale[0]);
  switch (c.function) {
    case Function::kRelu: return difference < 0 ? 0 : RoundQuotient(v, y_scale, rule);
    case Function::kLeakyRelu:
      if (difference >= 0) return RoundQuotient(v, y_scale, rule);
      return RoundQuotient(Product(v, FromFloat(c.negative_slope)), y_scale, rule);
    case Function::kHardSwish: return HardSwish(v, y_scale, rule);
    case Function::kSigmoid:
    case Function::kTanh: break;
  }
  const bool tanh = c.function == Function::kTanh;
  if (difference == 0) return tanh ? 0 : RoundQuotient(Dyadic{1, -1}, y_scale, rule);
  const long double real = static_cast<long double>(c.x_q.scale[0]) * difference;  // exact
  const long double f = tanh ? std::tanh(real) : 1 / (1 + std::exp(-real));
  return RoundReal(f / static_cast<long double>(c.out_q.scale[0]));
}

// The numerator of a code at this distance from the largest one, of which `count` share the sum.
std::optional<int64_t> Numerator(float scale, int64_t distance, int64_t count) {
  constexpr int64_t kSum = (int64_t{1} << 32) - 1;
  constexpr int64_t kMost = (int64_t{1} << 23) - 1;
  const bool shared = kSum < kMost * count;
  if (distance == 0) {
    return shared ? RoundQuotient(FromInt(kSum), FromInt(count), RoundTo::kNearestEven) : kMost;
  }
  const long double q =
      shared ? static_cast<long double>(kSum) / static_cast<long double>(count) : kMost;
  return RoundReal(q * std::exp(-static_cast<long double>(scale) * distance));
}

std::set<int32_t> CodesOf(const Tensor& x) {
  std::set<int32_t> codes;
  for (int64_t i = 0; i < x.size(); ++i) codes.insert(x.IntAt(i));
  return codes;
}

constexpr const char* kUndecided =
    "long double does not decide a rounding of the function at these scales";

}  // namespace

std::string CannotTabulate(const Case& c) {
  for (const int32_t code : CodesOf(c.x)) {
    if (!TableValue(c, code, RoundTo::kNearestEven)) return kUndecided;
  }
  return "";
}

std::string CannotSoftmax(const Case& c) {
  // Any distance: some faults take others than those of the rows.
  for (int64_t distance = 0; distance < 256 && !c.x.empty(); ++distance) {
    if (!Numerator(c.x_q.scale[0], distance, c.N)) return kUndecided;
  }
  return "";
}

void Reference::Table(const Placed& p) {
  const Case& c = *p.problem;
  const RoundTo rule = Has(Fault::kTableTiesAway) ? RoundTo::kNearestAway : RoundTo::kNearestEven;
  const bool wrong_index = Has(Fault::kTableIndexOffset) && c.x.dtype() == DType::kS8;
  for (int64_t m = 0; m < c.M; ++m) {
    const uint8_t* const x = Row<uint8_t>(p.x, m, p.x_stride);
    uint8_t* const y = OutputRow(p, m);
    for (int64_t j = 0; j < c.N; ++j) {
      const int32_t code = wrong_index ? x[j] - 128 : CodeAt(x, c.x.dtype(), j);
      const int64_t rounded = TableValue(c, code, rule).value_or(0);
      y[j] = static_cast<uint8_t>(Finish(c, rounded, c.out_q.zero_point[0]));
    }
  }
}

void Reference::Softmax(const Placed& p) {
  const Case& c = *p.problem;
  if (c.N == 0) return;
  std::array<int64_t, 256> numerators{};
  for (size_t distance = 0; distance < numerators.size(); ++distance) {
    numerators[distance] =
        Numerator(c.x_q.scale[0], static_cast<int64_t>(distance), c.N).value_or(0);
  }
  for (int64_t m = 0; m < c.M; ++m) {
    const uint8_t* const x = Row<uint8_t>(p.x, m, p.x_stride);
    uint8_t* const y = OutputRow(p, m);
    int32_t largest = RangeOf(c.x.dtype()).min;
    for (int64_t j = 0; j < c.N; ++j) largest = std::max(largest, CodeAt(x, c.x.dtype(), j));
    if (Has(Fault::kSoftmaxMaxNotSubtracted)) largest = RangeOf(c.x.dtype()).max;
    const auto numerator = [&](int64_t j) {
      int32_t distance = largest - CodeAt(x, c.x.dtype(), j);
      if (Has(Fault::kSoftmaxDistanceInt8)) distance = std::min(distance, 127);
      return numerators[static_cast<size_t>(distance)];
    };
    int64_t sum = 0;
    for (int64_t j = 0; j < c.N; ++j) {
      if (Has(Fault::kSoftmaxRowBlock) && j % 2048 == 0) sum = 0;  // each block begins anew
      sum += numerator(j);
    }
    const int64_t half = Has(Fault::kSoftmaxNoHalf) ? 0 : sum / 2;
    for (int64_t j = 0; j < c.N; ++j) {
      // The sum is 0 only where a fault has made it so.
      const int64_t share = sum == 0 ? 0 : (256 * numerator(j) + half) / sum;
      y[j] = static_cast<uint8_t>(Finish(c, std::min<int64_t>(share, 255), c.out_q.zero_point[0]));
    }
  }
}

}  // namespace qualm::faulty
