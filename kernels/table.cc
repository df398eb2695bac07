// SPDX-License-Identifier: Apache-2.0
// table: y = clamp(RNE(f(sx * (x - zx)) / sy) + zy). x has only 256 values: Fill makes a table of
// their answers, and common/code_table.cc looks each element up. Each answer is rounded once: relu
// and leaky relu are an integer times a rational scale (common/rescale.cc); for hard swish, doubles
// with an error bound give candidates, and exact integers decide between them; sigmoid and tanh
// have proven bounds (common/transcendental.h), and if both bounds do not round to the same code,
// Build refuses.
#include "kernels/table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

#include "hwy/base.h"
#include "kernels/common/exact_sum.h"
#include "kernels/common/fp_environment.h"
#include "kernels/common/rescale.h"
#include "kernels/common/transcendental.h"
#include "kernels/common/validate.h"

namespace qualm::kernels {
namespace internal {
namespace {

// The entries of one table, as codes. `difference` is x - x_zero_point.
class Entries {
 public:
  explicit Entries(const TableParams& params)
      : params_(params),
        bounds_(OutputBounds(params.y_type, params.range, params.y_q.zero_point)),
        scale_({params.x_q.scale, 1.0f, params.y_q.scale}),
        rescale_(With(scale_)),
        below_(params.function == TableFunction::kLeakyRelu && IsScale(params.negative_slope)
                   ? With({params.x_q.scale, params.negative_slope, params.y_q.scale})
                   : rescale_) {}

  // Nothing, where the error bound does not decide the rounding.
  std::optional<int32_t> At(int64_t difference) const {
    switch (params_.function) {
      case TableFunction::kRelu: return rescale_.CodeFromSum(std::max<int64_t>(difference, 0), 0);
      case TableFunction::kLeakyRelu: return LeakyRelu(difference);
      case TableFunction::kHardSwish: return HardSwish(difference);
      case TableFunction::kSigmoid:
      case TableFunction::kTanh: break;
    }
    return Real(difference);
  }

 private:
  Rescale With(const Multiplier& multiplier) const {
    return Rescale({&multiplier, 1}, {}, params_.y_q.zero_point, bounds_);
  }

  int32_t LeakyRelu(int64_t difference) const {
    if (difference >= 0) return rescale_.CodeFromSum(difference, 0);
    if (!IsScale(params_.negative_slope)) return rescale_.CodeFromSum(0, 0);
    return below_.CodeFromSum(difference, 0);
  }

  double Argument(int64_t difference) const {  // |difference| < 2^33: rounded once
    return static_cast<double>(difference) * static_cast<double>(params_.x_q.scale);
  }

  // Sign of x_scale * difference - bound.
  int Compare(int64_t difference, int bound) const {
    const double argument = Argument(difference);
    if (std::fabs(argument - bound) > (std::fabs(argument) + 1) * 0x1p-50)
      return argument > bound ? 1 : -1;
    ExactSum sum;
    sum.AddProduct(difference, params_.x_q.scale, 1.0f);
    sum.Add(-bound, 0);
    return sum.Sign();
  }

  // Between -3 and 3 ((s*d)^2 + 3*s*d) / (6*sy), against the halves between the bounds.
  int32_t HardSwish(int64_t difference) const {
    if (Compare(difference, -3) <= 0) return rescale_.CodeFromSum(0, 0);
    if (Compare(difference, 3) >= 0) return rescale_.CodeFromSum(difference, 0);
    const float s = params_.x_q.scale;
    // Each rounding is off by at most 2^-53 of a number up to 6 times the argument.
    const double argument = Argument(difference);
    const double y_scale = params_.y_q.scale;
    const double value = argument * (argument + 3) / (6 * y_scale);
    const double error = std::fabs(argument) / y_scale * 0x1p-47;
    const int64_t rounded =
        RoundBetween(Round(value - error), Round(value + error), [&](int64_t n) {
          ExactSum sum;
          sum.AddProduct(static_cast<__int128>(difference) * difference, s, s);
          sum.AddProduct(3 * difference, s, 1.0f);
          sum.AddHalves(-6 * (2 * static_cast<__int128>(n) + 1), params_.y_q.scale);
          return sum.Sign();
        });
    return static_cast<int32_t>(rounded + params_.y_q.zero_point);
  }

  std::optional<int32_t> Real(int64_t difference) const {
    const bool tanh = params_.function == TableFunction::kTanh;
    if (difference == 0) {  // 0 or 1/2: rational, and maybe a tie
      return With({0.5f, 1.0f, params_.y_q.scale}).CodeFromSum(tanh ? 0 : 1, 0);
    }
    const double t = static_cast<double>(std::abs(difference)) * params_.x_q.scale;
    const Interval value = tanh ? Tanh(t, difference < 0) : Sigmoid(t, difference < 0);
    const double y_scale = params_.y_q.scale;
    // The quotient adds one rounding. 1 is not reached, so that a tie there goes down.
    const int64_t lo = Round(Outwards(value.lo / y_scale, -1));
    const int64_t hi =
        Round(std::fabs(value.hi) == 1 ? value.hi / y_scale : Outwards(value.hi / y_scale, 1));
    if (lo != hi) return std::nullopt;
    return static_cast<int32_t>(lo + params_.y_q.zero_point);
  }

  static double Outwards(double value, int direction) {
    return value + std::fabs(value) * 0x1p-51 * direction;
  }

  // RNE inside the bounds.
  int64_t Round(double value) const {
    constexpr double kInteger = 0x1.8p52;
    const double lo = static_cast<double>(int64_t{bounds_.lo} - params_.y_q.zero_point);
    const double hi = static_cast<double>(int64_t{bounds_.hi} - params_.y_q.zero_point);
    const double clamped = std::min(std::max(value, lo - 1), hi + 1);
    const double rounded = (clamped + kInteger) - kInteger;
    return static_cast<int64_t>(std::min(std::max(rounded, lo), hi));
  }

  const TableParams& params_;
  Bounds bounds_;
  Multiplier scale_;
  Rescale rescale_;
  Rescale below_;  // leaky relu: of negative differences
};

// Not inlined: else the compiler may move arithmetic in front of ScopedFpEnvironment.
HWY_NOINLINE Status Fill(const TableParams& params, CodeTable* table) {
  const Entries entries(params);
  const int32_t first = TypeBounds(params.x_type).lo;
  for (int32_t code = first; code < first + 256; ++code) {
    const std::optional<int32_t> y = entries.At(int64_t{code} - params.x_q.zero_point);
    if (!y) {
      return {"the value of code " + std::to_string(code) +
              " is so close to a rounding boundary that double cannot tell on which side"};
    }
    table->bytes[static_cast<uint8_t>(code)] = static_cast<uint8_t>(*y);
  }
  return {};
}

Status ValidateTable(const TableParams& params) {
  if (params.function > TableFunction::kTanh) {
    return {"function is " + std::to_string(static_cast<int>(params.function)) +
            ", expected one of TableFunction"};
  }
  // Slope 0 makes relu of leaky relu; a negative slope would not be monotone. The slope of the
  // other functions is not looked at.
  const auto slope = std::bit_cast<uint32_t>(params.negative_slope);
  if (params.function == TableFunction::kLeakyRelu && slope != 0 &&
      !IsScale(params.negative_slope)) {
    return {"negative_slope is " + Text(params.negative_slope) + ", expected a finite number >= 0"};
  }
  if (Status s = CheckCode("x", params.x_type); !s.ok()) return s;
  if (Status s = CheckScale("x_q.scale", params.x_q.scale); !s.ok()) return s;
  if (Status s = CheckCode("y", params.y_type); !s.ok()) return s;
  if (Status s = CheckScale("y_q.scale", params.y_q.scale); !s.ok()) return s;
  return CheckRange("range", params.range, params.y_type);
}

Status ValidateTableRun(ElementType x_type, ElementType y_type, const ConstMatrix& x,
                        const MutableMatrix& y) {
  if (Status s = CheckType("x", x.type, x_type); !s.ok()) return s;
  if (Status s = CheckMatrix("x", x); !s.ok()) return s;
  if (Status s = CheckType("y", y.type, y_type); !s.ok()) return s;
  if (Status s = CheckMatrix("y", y); !s.ok()) return s;
  return CheckSameShape(x, y);
}

}  // namespace
}  // namespace internal

Status PackedTable::Build(const TableParams& params, PackedTable* table) {
  const ScopedFpEnvironment environment;
  if (Status s = internal::ValidateTable(params); !s.ok()) return s;
  PackedTable built;
  built.x_type_ = params.x_type;
  built.y_type_ = params.y_type;
  if (Status s = internal::Fill(params, &built.table_); !s.ok()) return s;
  *table = built;
  return {};
}

Status PackedTable::Run(const ConstMatrix& x, const MutableMatrix& y) const {
  if (Status s = internal::ValidateTableRun(x_type_, y_type_, x, y); !s.ok()) return s;
  if (x.rows == 0 || x.columns == 0) return {};
  internal::ForEachRowOfCodes(x, y, [&](const uint8_t* in, size_t count, uint8_t* out) {
    internal::LookUp(table_, in, count, out);
  });
  return {};
}

}  // namespace qualm::kernels
