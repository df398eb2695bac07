// SPDX-License-Identifier: Apache-2.0
#include "proofs/fast_codes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace qualm::proofs {
namespace {

// Every value below is a product or a sum of at most two products of at most four factors, each
// rounded once: fewer than eight roundings of 2^-53 of the largest term.
constexpr double kErrorBound = 0x1p-49;
// Beyond this no int32 zero point brings a value back to a code.
constexpr double kFar = 0x1p40;

struct Clamp {
  double zero_point, lo, hi;
  explicit Clamp(const Case& c)
      : zero_point(c.out_q.zero_point_at(0)),
        lo(static_cast<double>(LowerBound(c))),
        hi(c.out_max) {}
  int32_t operator()(double integer) const {
    return static_cast<int32_t>(std::min(std::max(integer + zero_point, lo), hi));
  }
};

// `value_of(i, &term)` gives the value of output i and the magnitude of its largest term. Blocks
// keep the loop over doubles free of branches.
template <class Code, class ValueOf>
std::vector<uint32_t> DecideAs(const Clamp& clamp, const ValueOf& value_of,
                               std::span<uint8_t> bytes) {
  constexpr size_t kBlock = 256;
  constexpr double kRound = 0x1.8p52;  // added and subtracted: to the nearest integer, half to even
  const size_t count = bytes.size() / sizeof(Code);
  auto* const codes = reinterpret_cast<Code*>(bytes.data());
  std::vector<uint32_t> open;
  std::array<uint8_t, kBlock> doubtful;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    uint8_t any = 0;
    for (size_t i = 0; i < size; ++i) {
      double term = 0;
      const double value = value_of(begin + i, &term);
      const double near = std::min(std::max(value, -kFar), kFar);
      const double integer = (near + kRound) - kRound;
      const double to_tie = std::fabs(std::fabs(near - integer) - 0.5);
      codes[begin + i] = static_cast<Code>(clamp(integer));
      const double error = term * kErrorBound;
      // Comparisons that hold where it is sure: a NaN leaves the output open.
      doubtful[i] = !((to_tie > error) | (std::fabs(value) > kFar + error));
      any |= doubtful[i];
    }
    if (any == 0) continue;
    for (size_t i = 0; i < size; ++i) {
      if (doubtful[i] != 0) open.push_back(static_cast<uint32_t>(begin + i));
    }
  }
  return open;
}

template <class ValueOf>
std::vector<uint32_t> Decide(const Case& c, const ValueOf& value_of, std::span<uint8_t> codes) {
  return IsWideCode(c.out_dtype) ? DecideAs<uint16_t>(Clamp(c), value_of, codes)
                                 : DecideAs<uint8_t>(Clamp(c), value_of, codes);
}

template <class T>
T At(std::span<const uint8_t> bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// The value is a multiple of x.
template <class T>
std::vector<uint32_t> OfOne(const Case& c, double factor, double x_zero_point,
                            std::span<const uint8_t> x, std::span<uint8_t> codes) {
  const auto value_of = [=](size_t i, double* term) {
    const double value = (static_cast<double>(At<T>(x, i)) - x_zero_point) * factor;
    *term = std::fabs(value);
    return value;
  };
  return Decide(c, value_of, codes);
}

template <class T>
std::vector<uint32_t> OfTwo(const Case& c, std::span<const uint8_t> x, std::span<const uint8_t> w,
                            std::span<uint8_t> codes) {
  const double scale_a = c.x_q.scale_at(0), scale_b = c.w_q.scale_at(0);
  const double out = c.out_q.scale_at(0);
  const double zero_a = c.x_q.zero_point_at(0), zero_b = c.w_q.zero_point_at(0);
  const auto a = [=](size_t i) { return static_cast<double>(At<T>(x, i)) - zero_a; };
  const auto b = [=](size_t i) { return static_cast<double>(At<T>(w, i)) - zero_b; };
  switch (RowOf(c.op).combine) {
    case Combine::kProduct: {
      const double factor = scale_a * scale_b / out;
      const auto value_of = [=](size_t i, double* term) {
        const double value = a(i) * b(i) * factor;
        *term = std::fabs(value);
        return value;
      };
      return Decide(c, value_of, codes);
    }
    case Combine::kSum:
    case Combine::kDifference: {
      const double factor_a = scale_a / out, factor_b = SignOfSecond(c.op) * scale_b / out;
      const auto value_of = [=](size_t i, double* term) {
        const double of_a = a(i) * factor_a, of_b = b(i) * factor_b;
        *term = std::fabs(of_a) + std::fabs(of_b);
        return of_a + of_b;
      };
      return Decide(c, value_of, codes);
    }
    case Combine::kNone: break;
  }
  QUALM_CHECK(!"no two operands");
  return {};
}

// Does OfTwo compute the operation?
bool IsOfTwo(Op op) {
  switch (RowOf(op).combine) {
    case Combine::kSum:
    case Combine::kDifference:
    case Combine::kProduct: return true;
    case Combine::kNone: return false;
  }
  return false;
}

}  // namespace

bool HasNearest(const Case& c) {
  const bool elementwise =
      c.op == Op::kQuantize || c.op == Op::kRequantize || c.op == Op::kRescale || IsOfTwo(c.op);
  return elementwise && !c.per_channel && c.requant == Requant::kExact;
}

std::vector<uint32_t> Nearest(const Case& c, std::span<const uint8_t> x, std::span<const uint8_t> w,
                              std::span<uint8_t> codes) {
  const bool is_signed = c.x.dtype() == DType::kS8;
  if (IsOfTwo(c.op))
    return is_signed ? OfTwo<int8_t>(c, x, w, codes) : OfTwo<uint8_t>(c, x, w, codes);
  const double out = c.out_q.scale_at(0);
  if (c.op == Op::kQuantize) return OfOne<float>(c, 1 / out, 0, x, codes);
  if (c.op == Op::kRequantize) {
    const double factor = UsesMultiplier(c) ? static_cast<double>(c.multiplier[0])
                                            : static_cast<double>(c.x_q.scale_at(0)) *
                                                  static_cast<double>(c.w_q.scale_at(0)) / out;
    return OfOne<int32_t>(c, factor, 0, x, codes);
  }
  const double factor = static_cast<double>(c.x_q.scale_at(0)) / out;
  const double zero = c.x_q.zero_point_at(0);
  return is_signed ? OfOne<int8_t>(c, factor, zero, x, codes)
                   : OfOne<uint8_t>(c, factor, zero, x, codes);
}

}  // namespace qualm::proofs
