// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/tensor_cores.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/float_format.h"
#include "core/float_text.h"
#include "core/status.h"

namespace qualm::conventions {
namespace {

using Result = FusedSum::Result;

// TellingSums: where lines go, and the number of the first product of the sum that comes next.
thread_local std::vector<std::string>* told = nullptr;
thread_local size_t next_product = 0;

constexpr TensorCoreType Of(DType dtype) { return {InfoOf(dtype).floating}; }

// An operand: (-1)^negative * digits * 2^(exponent - fraction bits of its type). Subnormals keep
// the smallest exponent, as a unit that does not normalize has them.
struct Operand {
  enum class Kind : uint8_t { kNumber, kInfinity, kNan };
  Kind kind = Kind::kNumber;
  bool negative = false;
  int64_t digits = 0;
  int exponent = 0;
  bool is_zero() const { return kind == Kind::kNumber && digits == 0; }
};

Operand OperandOf(const FloatFormat& f, uint32_t code) {
  const uint32_t fraction = code & ((1u << f.fraction_bits) - 1);
  const uint32_t exponent = (code >> f.fraction_bits) & ((1u << f.exponent_bits) - 1);
  Operand operand;
  operand.negative = (code >> (f.exponent_bits + f.fraction_bits) & 1) != 0;
  if (exponent == (1u << f.exponent_bits) - 1) {
    if (f.top == FloatFormat::Top::kIeee) {
      operand.kind = fraction == 0 ? Operand::Kind::kInfinity : Operand::Kind::kNan;
      return operand;
    }
    if (fraction == (1u << f.fraction_bits) - 1) {
      operand.kind = Operand::Kind::kNan;
      return operand;
    }
  }
  operand.digits = exponent == 0 ? fraction : fraction | 1u << f.fraction_bits;
  operand.exponent = std::max<int>(static_cast<int>(exponent), 1) - f.bias;
  return operand;
}
Operand OperandOf(const TensorCoreType& type, uint32_t code) {
  return OperandOf(type.format, code >> type.unread_bits);
}

// One term of a fused sum: digits * 2^(exponent - fraction_bits).
struct Term {
  bool negative = false;
  int64_t digits = 0;
  int exponent = 0;
  int fraction_bits = 0;
};

// The exponent to which terms are cut is never below this one. It shows with bf16 and tf32 alone,
// whose products may be smaller.
constexpr int kLeastExponent = -133;

constexpr DType TypeOf(Result result) { return result == Result::kF16 ? DType::kF16 : DType::kF32; }
constexpr uint32_t NanOf(Result result) { return result == Result::kF16 ? 0x7FFF : 0x7FFFFFFF; }

// total * 2^exponent as the unit writes it; a zero is +0.
uint32_t Converted(Result result, int64_t total, int exponent) {
  BinaryReal real{total < 0, static_cast<uint64_t>(total < 0 ? -total : total), exponent};
  if (result != Result::kF16) {
    const FloatFormat& f = InfoOf(DType::kF32).floating;
    const int kept = result == Result::kF32 ? f.fraction_bits : 13;
    const int top = std::bit_width(real.mantissa) - 1 + exponent;
    const int cut = std::max(top, 1 - f.bias) - kept - exponent;
    if (cut >= 64) return 0;
    if (cut > 0) {
      real.mantissa >>= cut;
      real.exponent += cut;
    }
  }
  const uint32_t code =
      EncodeFloat(TypeOf(result), real, FloatRounding::kNearestEven, FloatOverflow::kInfinity);
  return code == SignOf(TypeOf(result)) ? 0 : code;
}

// (-1)^negative * digits * 2^exponent, exactly.
std::string NumberText(bool negative, int64_t digits, int exponent) {
  return DoubleText(std::ldexp(static_cast<double>(negative ? -digits : digits), exponent));
}
std::string CodeText(Result result, uint32_t code) {
  return DoubleText(DecodeFloat(TypeOf(result), code));
}

// `terms`: c, and the products that are numbers; `numbers`: which product each of these is.
void TellFuse(const FusedSum& sum, size_t products, const std::vector<Term>& terms,
              const std::vector<size_t>& numbers, int unit, int64_t total, uint32_t c,
              uint32_t result) {
  told->push_back("products " + std::to_string(next_product) + " to " +
                  std::to_string(next_product + products - 1) + " and " + CodeText(sum.result, c) +
                  ", cut at 2^" + std::to_string(unit) + ", are " +
                  NumberText(total < 0, std::abs(total), unit) + ", written " +
                  CodeText(sum.result, result));
  for (size_t i = 0; i < terms.size(); ++i) {
    const Term& term = terms[i];
    const int lowest = term.exponent - term.fraction_bits;
    const int lost = unit - lowest;
    if (term.digits == 0 || lost <= 0) continue;
    const int64_t kept = lost > 62 ? 0 : term.digits >> lost << lost;
    if (kept == term.digits) continue;
    const std::string name = i == 0 ? "the addend" : "product " + std::to_string(numbers[i - 1]);
    told->push_back("  " + name + ", " + NumberText(term.negative, term.digits, lowest) +
                    ", is cut to " + NumberText(term.negative, kept, lowest));
  }
}

// One fused sum of all these products and of c.
uint32_t Fuse(const FusedSum& sum, const FloatFormat& a_format, std::span<const Operand> a,
              const FloatFormat& b_format, std::span<const Operand> b, uint32_t c) {
  const FloatFormat& c_format = InfoOf(TypeOf(sum.result)).floating;
  const Operand addend = OperandOf(c_format, c);
  bool nan = addend.kind == Operand::Kind::kNan;
  bool positive = addend.kind == Operand::Kind::kInfinity && !addend.negative;
  bool negative = addend.kind == Operand::Kind::kInfinity && addend.negative;
  std::vector<Term> terms{
      {addend.negative, addend.digits, addend.exponent, c_format.fraction_bits}};
  std::vector<size_t> numbers;
  for (size_t i = 0; i < a.size(); ++i) {
    const Operand &x = a[i], &y = b[i];
    const bool below = x.negative != y.negative;
    if (x.kind != Operand::Kind::kNumber || y.kind != Operand::Kind::kNumber) {
      nan |= x.kind == Operand::Kind::kNan || y.kind == Operand::Kind::kNan || x.is_zero() ||
             y.is_zero();
      (below ? negative : positive) = true;
      continue;
    }
    terms.push_back({below, x.digits * y.digits, x.exponent + y.exponent,
                     a_format.fraction_bits + b_format.fraction_bits});
    if (told != nullptr) numbers.push_back(next_product + i);
  }
  if (nan || (positive && negative)) return NanOf(sum.result);
  const DType type = TypeOf(sum.result);
  if (positive || negative)
    return EncodeFloat(type, negative ? -std::numeric_limits<double>::infinity()
                                      : std::numeric_limits<double>::infinity());
  std::optional<int> largest;  // a product of zero has no exponent
  for (const Term& term : terms) {
    if (term.digits != 0) largest = std::max(largest.value_or(term.exponent), term.exponent);
  }
  if (!largest) return 0;
  const int unit = std::max(*largest, kLeastExponent) - sum.fraction_bits;
  int64_t total = 0;
  for (const Term& term : terms) {
    const int shift = term.exponent - term.fraction_bits - unit;
    const int64_t cut = shift >= 0 ? term.digits << shift : shift > -63 ? term.digits >> -shift : 0;
    total += term.negative ? -cut : cut;
  }
  const uint32_t result = Converted(sum.result, total, unit);
  if (told != nullptr) {
    TellFuse(sum, a.size(), terms, numbers, unit, total, c, result);
    next_product += a.size();
  }
  return result;
}

std::vector<Operand> OperandsOf(const TensorCoreType& type, std::span<const uint32_t> codes) {
  std::vector<Operand> operands;
  operands.reserve(codes.size());
  for (const uint32_t code : codes) operands.push_back(OperandOf(type, code));
  return operands;
}

// Float8 operands as f16, whose subnormals are normal numbers there, in the order in which mma.sync
// takes those of 32 products: k % 4 < 2, then the others.
std::vector<Operand> AsF16(DType type, std::span<const uint32_t> codes) {
  std::vector<Operand> operands;
  for (const bool second : {false, true}) {
    for (size_t k = 0; k < codes.size(); ++k) {
      if ((k % 4 >= 2) != second) continue;
      operands.push_back(OperandOf(InfoOf(DType::kF16).floating,
                                   EncodeFloat(DType::kF16, DecodeFloat(type, codes[k]))));
    }
  }
  return operands;
}

constexpr size_t kFloat8Products = 32;

// The two fused sums of 32 products, the first one with c.
uint32_t TwoSums(const FusedSum& sum, DType a_type, std::span<const uint32_t> a, DType b_type,
                 std::span<const uint32_t> b, uint32_t c) {
  const FloatFormat& f16 = InfoOf(DType::kF16).floating;
  const std::vector<Operand> x = AsF16(a_type, a), y = AsF16(b_type, b);
  if (told != nullptr)
    told->push_back("as f16, the products of k % 4 < 2 first: products are numbered in this order");
  for (size_t at = 0; at < x.size(); at += kFloat8Products / 2) {
    const size_t count = std::min(kFloat8Products / 2, x.size() - at);
    c = Fuse(sum, f16, std::span(x).subspan(at, count), f16, std::span(y).subspan(at, count), c);
  }
  return c;
}

}  // namespace

TellingSums::TellingSums(std::vector<std::string>* lines) {
  told = lines;
  next_product = 0;
}
TellingSums::~TellingSums() { told = nullptr; }

std::optional<TensorCoreType> FindTensorCoreType(std::string_view name) {
  if (name == "tf32") return kTf32;
  if (name == "f16") return Of(DType::kF16);
  if (name == "bf16") return Of(DType::kBF16);
  if (name == "e4m3" || name == "e4m3fn") return Of(DType::kF8E4M3FN);
  if (name == "e5m2") return Of(DType::kF8E5M2);
  return std::nullopt;
}

uint32_t Chain(const FusedSum& sum, const TensorCoreType& a_type, std::span<const uint32_t> a,
               const TensorCoreType& b_type, std::span<const uint32_t> b, uint32_t c) {
  QUALM_CHECK_EQ(a.size(), b.size());
  const std::vector<Operand> x = OperandsOf(a_type, a), y = OperandsOf(b_type, b);
  const auto terms = static_cast<size_t>(sum.terms);
  for (size_t k = 0; k < x.size(); k += terms) {
    const size_t count = std::min(terms, x.size() - k);
    c = Fuse(sum, a_type.format, std::span(x).subspan(k, count), b_type.format,
             std::span(y).subspan(k, count), c);
  }
  return c;
}

uint32_t Float8ByF16(bool f16_result, DType a_type, std::span<const uint32_t> a, DType b_type,
                     std::span<const uint32_t> b, uint32_t c) {
  FusedSum sum;
  if (f16_result) sum.result = Result::kF16;
  const uint32_t products = TwoSums(sum, a_type, a, b_type, b, 0);
  const DType type = TypeOf(sum.result);
  if (!f16_result) return BitsOfSum(std::bit_cast<float>(products) + std::bit_cast<float>(c));
  const double both = DecodeFloat(type, products) + DecodeFloat(type, c);  // exact
  return std::isnan(both) ? NanOf(sum.result) : EncodeFloat(type, both);
}

uint32_t Float8ByF16InSums(DType a_type, std::span<const uint32_t> a, DType b_type,
                           std::span<const uint32_t> b, uint32_t c) {
  for (size_t k = 0; k < a.size(); k += kFloat8Products) {
    const size_t count = std::min(kFloat8Products, a.size() - k);
    c = TwoSums({}, a_type, a.subspan(k, count), b_type, b.subspan(k, count), c);
  }
  return c;
}

float Promoted(const FusedSum& sum, int64_t every, const TensorCoreType& a_type,
               std::span<const uint32_t> a, const TensorCoreType& b_type,
               std::span<const uint32_t> b) {
  if (every <= 0) return std::bit_cast<float>(Chain(sum, a_type, a, b_type, b, 0));
  float total = 0;
  const auto step = static_cast<size_t>(every);
  for (size_t k = 0; k < a.size(); k += step) {
    const size_t count = std::min(step, a.size() - k);
    const auto part = std::bit_cast<float>(
        Chain(sum, a_type, a.subspan(k, count), b_type, b.subspan(k, count), 0));
    total = k == 0 ? part : total + part;
    if (told != nullptr) told->push_back("added in float32: " + DoubleText(total));
  }
  return total;
}

int32_t IntegerSum(std::span<const int64_t> a, std::span<const int64_t> b, int64_t c,
                   bool saturates) {
  __int128 sum = c;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<__int128>(a[i]) * b[i];
  if (saturates)
    sum = std::clamp<__int128>(sum, std::numeric_limits<int32_t>::min(),
                               std::numeric_limits<int32_t>::max());
  return static_cast<int32_t>(static_cast<uint32_t>(sum));
}

uint32_t BitsOfSum(float value) {
  return std::isnan(value) ? NanOf(Result::kF32) : std::bit_cast<uint32_t>(value);
}

}  // namespace qualm::conventions
