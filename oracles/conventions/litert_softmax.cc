// SPDX-License-Identifier: Apache-2.0
// TensorFlow Lite's softmax of codes (LiteRT v2.2.0 tflite/kernels). The reference
// (internal/reference/softmax.h; internal/common.h, GetReciprocal; internal/quantization_util.cc,
// PreprocessSoftmaxScaling and CalculateInputRadius; gemmlowp e844ffd fixedpoint/fixedpoint.h)
// computes in fixed point: differences to the largest code in 5.26 bits, exponentials in 0.31,
// their sum in 12.19. The optimized kernel (internal/optimized/optimized_ops.h,
// PopulateSoftmaxLookupTable, Softmax) sums expf in float32.
#include "oracles/conventions/litert_softmax.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "oracles/conventions/requirements.h"
#include "oracles/exact/arithmetic/real.h"

namespace qualm::conventions {
namespace {

constexpr int32_t kDiffBits = 26, kSumBits = 12;

int32_t HighMul(int32_t a, int32_t b) { return SaturatingRoundingDoublingHighMul(a, b); }
int32_t SaturatingLeft(int32_t x, int32_t shift) { return Sat32(x * (int64_t{1} << shift)); }

// exp of a in [-1/4, 0), in 0.31 bits: a polynomial around -1/8.
int32_t ExpOfQuarter(int32_t a) {
  constexpr int32_t kExpOfMinusEighth = 1895147668, kThird = 715827883;
  const int32_t x = a + (1 << 28);
  const int32_t x2 = HighMul(x, x), x3 = HighMul(x2, x), x4 = HighMul(x2, x2);
  const int32_t tail =
      RoundingDivideByPot(HighMul(RoundingDivideByPot(x4, 2) + x3, kThird) + x2, 1);
  return kExpOfMinusEighth + HighMul(kExpOfMinusEighth, x + tail);
}

// exp of a <= 0 in 5.26 bits.
int32_t ExpOfNegative(int32_t a) {
  if (a == 0) return INT32_MAX;
  constexpr int32_t kQuarter = 1 << (kDiffBits - 2);
  const int32_t rest = (a & (kQuarter - 1)) - kQuarter;
  int32_t result = ExpOfQuarter(SaturatingLeft(rest, 5));
  const int32_t quarters = rest - a;
  // exp of -1/4, -1/2, -1 ... -16.
  constexpr int32_t kFactors[] = {1672461947, 1302514674, 790015084, 290630308,
                                  39332535,   720401,     242};
  for (size_t i = 0; i < std::size(kFactors); ++i) {
    if (quarters & (1 << (kDiffBits - 2 + static_cast<int32_t>(i))))
      result = HighMul(result, kFactors[i]);
  }
  return result;
}

// 1/(1 + a) of a in [0, 1), in 0.31 bits: three steps of Newton's.
int32_t OneOverOnePlus(int32_t a) {
  constexpr int32_t k48Over17 = 1515870810, kMinus32Over17 = -1010580540;
  const auto half = static_cast<int32_t>((int64_t{a} + INT32_MAX + 1) / 2);
  int32_t x = k48Over17 + HighMul(half, kMinus32Over17);
  for (int i = 0; i < 3; ++i) {
    const int32_t rest = (1 << 29) - HighMul(half, x);
    x += SaturatingLeft(HighMul(x, rest), 2);
  }
  return SaturatingLeft(x, 1);
}

FixedMultiplier DiffMultiplier(const Case& c) {
  const double multiplier =
      std::min(static_cast<double>(c.x_q.scale[0]) * (1 << kDiffBits), 0x1p31 - 1);
  return QuantizeMultiplier(multiplier, false);
}

class Rows {
 public:
  explicit Rows(const Case& c) : case_(c) {}
  // Whether the row of this output is another one than before; then `largest` is of that.
  bool Enter(int64_t index) {
    if (index / case_.N == row_) return false;
    row_ = index / case_.N;
    largest_ = INT32_MIN;
    for (int64_t n = 0; n < case_.N; ++n) largest_ = std::max(largest_, Code(n));
    return true;
  }
  int32_t Code(int64_t n) const { return case_.x.IntAt(row_ * case_.N + n); }
  int32_t largest() const { return largest_; }

 private:
  const Case& case_;
  int64_t row_ = -1;
  int32_t largest_ = 0;
};

class FixedShares {
 public:
  explicit FixedShares(const Case& c)
      : case_(c),
        rows_(c),
        multiplier_(DiffMultiplier(c)),
        least_(
            -static_cast<int32_t>(std::floor(31.0 * 0x1p26 / std::ldexp(1.0, multiplier_.shift)))) {
  }

  Value operator()(int64_t index, Trace* trace) {
    if (rows_.Enter(index)) Sum();
    const int64_t lowest = RangeOf(case_.out_dtype).min;
    const int32_t difference = rows_.Code(index % case_.N) - rows_.largest();
    int64_t code = lowest;
    if (difference >= least_)
      code += RoundingDivideByPot(HighMul(reciprocal_, Exp(difference)), bits_over_unit_ + 31 - 8);
    Value value;
    value.SetInt(code);
    Note(trace, Stage::kScale,
         "exp of " + std::to_string(difference) + " codes over the row's sum, in fixed point",
         ValueText(value), true);
    return value;
  }

  // A sum from 512 on ends the process (TFLITE_CHECK of the last shift).
  bool Fits() {
    for (int64_t m = 0; m < case_.M; ++m) {
      rows_.Enter(m * case_.N);
      Sum();
      if (bits_over_unit_ > 8) return false;
    }
    return true;
  }

 private:
  int32_t Exp(int32_t difference) const {
    return ExpOfNegative(HighMul(Wrap32(int64_t{difference} * (int64_t{1} << multiplier_.shift)),
                                 multiplier_.value));
  }
  void Sum() {
    int32_t sum = 0;
    for (int64_t n = 0; n < case_.N; ++n) {
      const int32_t difference = rows_.Code(n) - rows_.largest();
      if (difference >= least_)
        sum = Wrap32(int64_t{sum} + RoundingDivideByPot(Exp(difference), kSumBits));
    }
    const int32_t headroom = std::countl_zero(static_cast<uint32_t>(sum));
    bits_over_unit_ = kSumBits - headroom;
    reciprocal_ = OneOverOnePlus(
        static_cast<int32_t>((static_cast<uint32_t>(sum) << headroom) - (uint32_t{1} << 31)));
  }

  const Case& case_;
  Rows rows_;
  FixedMultiplier multiplier_;
  int32_t least_;
  int32_t bits_over_unit_ = 0, reciprocal_ = 0;
};

// `side` moves each exponential by an ulp, and their sum the other way.
class FloatShares {
 public:
  explicit FloatShares(const Case& c, int side = 0) : case_(c), rows_(c), side_(side) {}

  Value operator()(int64_t index, Trace* trace) {
    if (rows_.Enter(index)) Sum();
    const float share = Exp(rows_.Code(index % case_.N), side_) * inverse_;
    const bool u8 = case_.out_dtype == DType::kU8;
    Value value;
    value.SetInt(u8 ? static_cast<int64_t>(std::floor(share + 0.5f))
                    : static_cast<int64_t>(std::round(share)) + RangeOf(DType::kS8).min);
    Note(trace, Stage::kScale,
         "share of the row's sum in output codes " + std::to_string(share) + ", rounded, half up",
         ValueText(value), true);
    return value;
  }

 private:
  float Exp(int32_t code, int side) const {
    const float scale = -case_.x_q.scale[0];
    const float power = exact::RoundedExp(scale * static_cast<float>(rows_.largest() - code));
    return code == rows_.largest() ? power : Beside(power, side * kExpUlps);
  }
  void Sum() {
    float sum = 0;
    for (int64_t n = 0; n < case_.N; ++n) sum += Exp(rows_.Code(n), -side_);
    inverse_ = 1.0f / (sum * 0x1p-8f);
  }

  const Case& case_;
  Rows rows_;
  int side_;
  float inverse_ = 0;
};

bool AreSharesDecided(const Case& c) {
  FloatShares low(c, -1), high(c, 1);
  for (int64_t i = 0; i < c.x.size(); ++i) {
    if (low(i, nullptr).integer != high(i, nullptr).integer) return false;
  }
  return true;
}

}  // namespace

Definition::Gatherer LitertShares(const Case& c) { return FixedShares(c); }
Definition::Gatherer LitertSharesInFloat(const Case& c) { return FloatShares(c); }

std::string LitertCannotShare(const Case& c, bool in_float) {
  if (in_float) return Require(AreSharesDecided(c), kUndecided);
  return FirstReason(
      {Require(c.x_q.scale[0] > 0x1p-26f, "the scale of x must be above 2^-26"),
       Require(c.N < 1 << kSumBits, "a row has at most 4095 codes"),
       Require(FixedShares(c).Fits(), "a row's exponentials must sum to less than 512")});
}

}  // namespace qualm::conventions
