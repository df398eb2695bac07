// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/variation_facts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "oracles/exact/exact.h"

namespace qualm::variations {
namespace {

bool IsOneOfItsCodes(const QParams& q, DType dtype) {
  const CodeRange range = RangeOf(dtype);
  return std::ranges::all_of(q.zero_point,
                             [&](int32_t z) { return z >= range.min && z <= range.max; });
}

bool ZeroPointsAreCodes(const Case& c) {
  return (!IsCode(c.x.dtype()) || IsOneOfItsCodes(c.x_q, c.x.dtype())) &&
         (!HasW(c.op) || IsOneOfItsCodes(c.w_q, c.w.dtype())) &&
         (!IsCode(c.out_dtype) || IsOneOfItsCodes(c.out_q, c.out_dtype));
}

Facts Scaled(Facts f, long double sum, long double multiplier, bool is_exact) {
  const long double real = sum * multiplier;
  f.real = static_cast<double>(real);
  // 40 bits times the 24 of a float32.
  f.real_is_exact = is_exact && std::abs(sum) < 0x1p40L && static_cast<long double>(f.real) == real;
  f.terms = f.products = std::abs(f.real);
  f.sum = static_cast<double>(std::abs(sum));
  f.multiplier = static_cast<double>(multiplier);
  f.exact_multiplier = multiplier;
  return f;
}

long double Difference(const Tensor& codes, const QParams& q, int64_t index) {
  return static_cast<long double>(codes.IntAt(index)) - q.zero_point[0];
}

}  // namespace

float OutputScale(const Facts& f) {
  return IsCode(f.c->out_dtype) ? f.c->out_q.scale_at(f.channel) : 1.0f;
}

bool HasProductOfScales(Op op) { return HasSums(op) || op == Op::kMul || op == Op::kRequantize; }

float InputScales(const Case& c, int64_t channel) {
  if (c.op == Op::kQuantize) return 1;
  if (HasProductOfScales(c.op)) return c.x_q.scale_at(0) * c.w_q.scale_at(channel);
  return c.x_q.scale_at(c.op == Op::kDequantize ? channel : 0);
}

bool IsFloat(long double value) {
  return static_cast<long double>(static_cast<float>(value)) == value;
}

bool IsPowerOfTwo(float value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5f;
}

bool DividesExactly(long double value, float divisor) {
  const auto quotient = static_cast<float>(value / divisor);
  return std::isnormal(quotient) && static_cast<long double>(quotient) * divisor == value;
}

FactsOf::FactsOf(const Case& c) : c_(c), are_codes_(ZeroPointsAreCodes(c)) {
  if (HasSums(c.op)) sums_ = exact::CorrectedSums(c);
  if (c.op == Op::kChooseQParams) chosen_ = exact::Evaluate(c);
  if (c.op == Op::kSoftmax) AddRowsOfSoftmax();
}

Facts FactsOf::operator()(int64_t index) const {
  Facts f;
  f.c = &c_;
  f.index = index;
  f.channel = index % c_.N;
  f.zero_points_are_codes = are_codes_;
  const long double out = OutputScale(f);
  switch (c_.op) {
    case Op::kQuantize:
      return Scaled(f, c_.x.FloatAt(index), 1 / out, IsPowerOfTwo(OutputScale(f)));
    case Op::kDequantize:
      return Scaled(f,
                    static_cast<long double>(c_.x.IntAt(index)) - c_.x_q.zero_point_at(f.channel),
                    c_.x_q.scale_at(f.channel), true);
    case Op::kRequantize:
      if (!c_.multiplier.empty()) {
        const size_t at = c_.multiplier.size() == 1 ? 0 : static_cast<size_t>(f.channel);
        return Scaled(f, c_.x.IntAt(index), c_.multiplier[at], true);
      }
      return ScaledDown(f, c_.x.IntAt(index));
    case Op::kMul:
      return ScaledDown(f, Difference(c_.x, c_.x_q, index) * Difference(c_.w, c_.w_q, index));
    case Op::kAdd: return Added(f, out);
    case Op::kRescale: return Rescaled(f, c_.x, c_.x_q, index);
    case Op::kConcat: {
      const int64_t columns = c_.x.shape()[1], m = index / c_.N, n = index % c_.N;
      return n < columns ? Rescaled(f, c_.x, c_.x_q, m * columns + n)
                         : Rescaled(f, c_.w, c_.w_q, m * (c_.N - columns) + n - columns);
    }
    case Op::kMaxPool:
    case Op::kAvgPool:
    case Op::kGlobalAvgPool: return Pooled(f, out);
    case Op::kTable: return LookedUp(f, out);
    case Op::kSoftmax: return Share(f);
    case Op::kChooseQParams: return Chosen(f);
    default: break;  // sums
  }
  const auto sum = static_cast<long double>(sums_[static_cast<size_t>(index)]);
  f = c_.out_dtype == DType::kS32 ? Scaled(f, sum, 1, true) : ScaledDown(f, sum);
  f.products = 0;
  ForEachProduct(f, [&](int64_t x_code, int64_t w_code) {
    const double x = std::abs(static_cast<double>(x_code) - c_.x_q.zero_point_at(0));
    const double w = std::abs(static_cast<double>(w_code) - c_.w_q.zero_point_at(f.channel));
    f.products += x * w;
    f.largest_operand = std::max({f.largest_operand, x * static_cast<double>(c_.x_q.scale_at(0)),
                                  w * static_cast<double>(c_.w_q.scale_at(f.channel))});
  });
  f.products *= f.multiplier;
  if (c_.bias) {
    const long double bias = (*c_.bias)[static_cast<size_t>(f.channel)];
    f.real = static_cast<double>(f.real + bias / out);
    f.terms += static_cast<double>(std::abs(bias) / out);
    f.products += static_cast<double>(std::abs(bias) / out);
    f.real_is_exact = false;
    f.bias_units = static_cast<double>(std::abs(bias) / Product(f.channel));
  }
  return f;
}

// By the product of the input scales over the output's.
Facts FactsOf::ScaledDown(const Facts& f, long double sum) const {
  const long double product = Product(f.channel);
  return Scaled(f, sum, product / OutputScale(f), DividesExactly(product, OutputScale(f)));
}

long double FactsOf::Product(int64_t channel) const {
  return static_cast<long double>(c_.x_q.scale_at(0)) * c_.w_q.scale_at(channel);
}

Facts FactsOf::Added(Facts f, long double out) const {
  const long double a = Difference(c_.x, c_.x_q, f.index) * c_.x_q.scale[0] / out;
  const long double b = Difference(c_.w, c_.w_q, f.index) * c_.w_q.scale[0] / out;
  f.real = static_cast<double>(a + b);
  f.real_is_exact = IsPowerOfTwo(OutputScale(f)) && (a + b) - a == b && (a + b) - b == a &&
                    static_cast<long double>(f.real) == a + b;
  f.terms = f.products = static_cast<double>(std::abs(a) + std::abs(b));
  f.multiplier = 1;
  return f;
}

Facts FactsOf::Rescaled(Facts f, const Tensor& codes, const QParams& q, int64_t at) const {
  const long double difference = Difference(codes, q, at);
  f.largest_operand = static_cast<double>(std::abs(difference) * q.scale[0]);
  return Scaled(f, difference, q.scale[0] / static_cast<long double>(OutputScale(f)),
                DividesExactly(q.scale[0], OutputScale(f)));
}

Facts FactsOf::Pooled(Facts f, long double out) const {
  const Window& v = c_.window;
  const int64_t m = f.index / c_.N;
  long double sum = 0, magnitudes = 0, largest = -std::numeric_limits<long double>::infinity();
  for (const Tap& tap : TapsOf(v, m)) {
    if (tap.x_row < 0) continue;
    const long double difference = Difference(c_.x, c_.x_q, tap.x_row + f.channel);
    sum += difference;
    magnitudes += std::abs(difference);
    largest = std::max(largest, difference);
    ++f.count;
  }
  if (c_.op == Op::kMaxPool) return Scaled(f, largest, 1, true);
  if (v.count_include_pad) {
    const int64_t top = m / v.out_w() % v.out_h() * v.stride_h;
    const int64_t left = m % v.out_w() * v.stride_w;
    f.count = std::min(v.kernel_h, v.pad_top + v.in_h + v.pad_bottom - top) *
              std::min(v.kernel_w, v.pad_left + v.in_w + v.pad_right - left);
  }
  const auto count = static_cast<float>(f.count);
  f.is_linear = IsPowerOfTwo(count);
  const long double multiplier = c_.x_q.scale[0] / (out * count);
  const bool is_exact = DividesExactly(c_.x_q.scale[0], OutputScale(f)) && f.is_linear;
  f = Scaled(f, sum, multiplier, is_exact);
  f.terms = f.products = static_cast<double>(magnitudes * multiplier);
  return f;
}

Facts FactsOf::LookedUp(Facts f, long double out) const {
  const long double v = Difference(c_.x, c_.x_q, f.index) * c_.x_q.scale[0];
  f.largest_operand = static_cast<double>(std::abs(v));
  f.is_linear = c_.function == Function::kRelu || c_.function == Function::kLeakyRelu;
  const auto value = [&]() -> long double {
    switch (c_.function) {
      case Function::kRelu: return std::max(v, 0.0L);
      case Function::kLeakyRelu: return v < 0 ? v * c_.negative_slope : v;
      case Function::kHardSwish: return v * std::clamp(v + 3, 0.0L, 6.0L) / 6;
      case Function::kSigmoid: return 1 / (1 + std::exp(-v));
      case Function::kTanh: break;
    }
    return std::tanh(v);
  };
  return Scaled(f, value(), 1 / out, f.is_linear && IsPowerOfTwo(OutputScale(f)));
}

// 256 * t / sum t, rounded half up.
Facts FactsOf::Share(Facts f) const {
  f.is_linear = false;
  const Row& row = rows_[static_cast<size_t>(f.index / c_.N)];
  f = Scaled(f, 256 * NumeratorOf(row, f.index) / row.sum, 1, false);
  f.sum = static_cast<double>(row.sum);
  return f;
}

// t = round(q * exp(..)), as docs/quantization.md has it. Where long double cannot tell on which
// side of a tie that lies t may be off by one, which moves the share by less than it may anyway.
void FactsOf::AddRowsOfSoftmax() {
  const double q = std::min(static_cast<double>(UINT32_MAX) / static_cast<double>(c_.N),
                            static_cast<double>((1 << 23) - 1));
  for (size_t below = 0; below < numerators_.size(); ++below) {
    const long double exponent = static_cast<long double>(c_.x_q.scale[0]) * below;
    numerators_[below] = std::nearbyint(q * std::exp(-exponent));
  }
  for (int64_t first = 0; first < c_.x.size(); first += c_.N) {
    Row row;
    for (int64_t i = first; i < first + c_.N; ++i) row.most = std::max(row.most, c_.x.IntAt(i));
    for (int64_t i = first; i < first + c_.N; ++i) row.sum += NumeratorOf(row, i);
    rows_.push_back(row);
  }
}

long double FactsOf::NumeratorOf(const Row& row, int64_t i) const {
  return numerators_[static_cast<size_t>(row.most - c_.x.IntAt(i))];
}

Facts FactsOf::Chosen(Facts f) const {
  f.chosen_scale = static_cast<double>(chosen_.FloatAt(f.index % chosen_.shape()[1]));
  return Scaled(f, chosen_.FloatAt(f.index), 1, true);
}

}  // namespace qualm::variations
