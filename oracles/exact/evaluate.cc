// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/status.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/fixed_point.h"
#include "oracles/exact/observer.h"

namespace qualm::exact {
namespace {

Line LineOf(const Case& c, int64_t n) {
  const auto channel = static_cast<size_t>(n);
  switch (c.op) {
    case Op::kQuantize:  // the gain exponent is that of each x
      return Over(Line(), c.out_q.scale_at(n));
    case Op::kDequantize: return Scale(c.x_q.scale_at(n));
    case Op::kRequantize:
      if (!c.multiplier.empty()) return Scale(c.multiplier[c.multiplier.size() == 1 ? 0 : channel]);
      return Over(Scale(c.x_q.scale_at(0), c.w_q.scale_at(n)), c.out_q.scale_at(0));
    case Op::kLinear:
    case Op::kConv2d:
    case Op::kDepthwise: {
      Line line = Scale(c.x_q.scale_at(0), c.w_q.scale_at(n));
      if (c.bias) line = Plus(line, (*c.bias)[channel]);
      return c.out_dtype == DType::kF32 ? line : Over(line, c.out_q.scale_at(0));
    }
    case Op::kMul: return Over(Scale(c.x_q.scale_at(0), c.w_q.scale_at(0)), c.out_q.scale_at(0));
    case Op::kAdd:  // the offset is that of each b
    case Op::kRescale: return Over(Scale(c.x_q.scale_at(0)), c.out_q.scale_at(0));
    case Op::kAvgPool:
    case Op::kGlobalAvgPool:  // the divisor grows by the count of each window
      return Over(Scale(c.x_q.scale_at(0)), c.out_q.scale_at(0));
    case Op::kConcat: {
      const QParams& q = n < c.x.shape()[1] ? c.x_q : c.w_q;
      return Over(Scale(q.scale_at(0)), c.out_q.scale_at(0));
    }
    case Op::kMaxPool:
    case Op::kTable:  // by code: TableAt
    case Op::kSoftmax: return Line();
    case Op::kChooseQParams: break;
  }
  QUALM_CHECK(!"unknown operation");
  return {};
}

// Sums, or maxima, of x - zx over the window of each output; counts of average pools.
void Pool(const Case& c, std::vector<__int128>* results, std::vector<int64_t>* counts) {
  const Window& v = c.window;
  const bool max = c.op == Op::kMaxPool;
  const auto channels = static_cast<size_t>(c.N);
  const int64_t zx = c.x_q.zero_point_at(0);
  std::vector<int64_t> row(channels);
  for (int64_t m = 0; m < c.M; ++m) {
    std::fill(row.begin(), row.end(), max ? INT64_MIN : 0);
    int64_t inside = 0;
    for (const Tap& tap : TapsOf(v, m)) {
      if (tap.x_row < 0) continue;
      ++inside;
      for (size_t n = 0; n < channels; ++n) {
        const int64_t value = c.x.IntAt(tap.x_row + static_cast<int64_t>(n)) - zx;
        row[n] = max ? std::max(row[n], value) : row[n] + value;
      }
    }
    results->insert(results->end(), row.begin(), row.end());
    if (max) continue;
    if (v.count_include_pad) {
      // Windows start inside the padded image; what hangs over its end does not count.
      const int64_t top = m / v.out_w() % v.out_h() * v.stride_h;
      const int64_t left = m % v.out_w() * v.stride_w;
      inside = std::min(v.kernel_h, v.pad_top + v.in_h + v.pad_bottom - top) *
               std::min(v.kernel_w, v.pad_left + v.in_w + v.pad_right - left);
    }
    counts->push_back(inside);
  }
}

// t of each element, and their sums over each row.
void SoftmaxRows(const Case& c, std::vector<__int128>* numerators, std::vector<int64_t>* sums) {
  std::array<std::optional<uint32_t>, 256> table;
  for (int64_t m = 0; m < c.M; ++m) {
    const int64_t row = m * c.N;
    int32_t largest = INT32_MIN;
    for (int64_t n = 0; n < c.N; ++n) largest = std::max(largest, c.x.IntAt(row + n));
    int64_t sum = 0;  // N * (q + 1/2) < 2^32 + N / 2
    for (int64_t n = 0; n < c.N; ++n) {
      const int32_t below = largest - c.x.IntAt(row + n);
      std::optional<uint32_t>& t = table[static_cast<size_t>(below)];
      if (!t) t = SoftmaxNumerator(c.x_q.scale_at(0), below, c.N);
      numerators->push_back(*t);
      sum += *t;
    }
    sums->push_back(sum);
  }
}

// s * difference >= bound > 0, exactly. |difference| < 2^33.
bool AtLeast(const Dyadic& s, int64_t difference, int64_t bound) {
  if (difference <= 0) return false;
  const __int128 product = static_cast<__int128>(s.mantissa) * difference;  // < 2^57
  if (s.exponent >= 0) return s.exponent > 8 || (product << s.exponent) >= bound;
  if (s.exponent < -60) return false;  // product * 2^exponent < 1/8
  return product >= static_cast<__int128>(bound) << -s.exponent;
}

}  // namespace

Outputs::Outputs(const Case& c)
    : Outputs(c, Integers{HasSums(c.op) ? CorrectedSums(c) : std::vector<__int128>{}, {}}) {
  if (IsPool(c.op)) Pool(c, &integers_.values, &integers_.counts);
  if (c.op == Op::kSoftmax) SoftmaxRows(c, &integers_.values, &integers_.counts);
}

Outputs::Outputs(const Case& c, Integers integers) : c_(c), integers_(std::move(integers)) {
  const bool codes = IsCode(c.out_dtype);
  for (int64_t n = 0; n < c.N; ++n) {
    if (c.out_dtype != DType::kS32) lines_.push_back(LineOf(c, n));
    if (c.requant != Requant::kExact) backend_.emplace_back(c, n);
    lo_.push_back(LowerBound(c, n));
    zero_.push_back(codes ? c.out_q.zero_point_at(n) : 0);
  }
}

__int128 Outputs::IntegerAt(int64_t m, int64_t n) const {
  const int64_t index = m * c_.N + n;
  if (!integers_.values.empty()) return integers_.values[static_cast<size_t>(index)];
  if (c_.op == Op::kConcat) {
    const int64_t a = c_.x.shape()[1];
    return n < a ? int64_t{c_.x.IntAt(m * a + n)} - c_.x_q.zero_point_at(0)
                 : int64_t{c_.w.IntAt(m * (c_.N - a) + n - a)} - c_.w_q.zero_point_at(0);
  }
  const int64_t x = c_.x.IntAt(index);
  switch (c_.op) {
    case Op::kRequantize: return x;
    case Op::kDequantize: return x - c_.x_q.zero_point_at(n);
    default: break;
  }
  const int64_t a = x - c_.x_q.zero_point_at(0);
  return c_.op == Op::kMul ? __int128{a} * SecondAt(index) : __int128{a};
}

Line Outputs::LineAt(int64_t m, int64_t n) const {
  const Line& line = lines_[static_cast<size_t>(n)];
  switch (c_.op) {
    case Op::kAdd: return Plus(line, c_.w_q.scale_at(0), SecondAt(m * c_.N + n));
    case Op::kAvgPool:
    case Op::kGlobalAvgPool:
      return Over(line, c_.out_q.scale_at(0), counts()[static_cast<size_t>(m)]);
    default: return line;
  }
}

int64_t Outputs::SecondAt(int64_t index) const {
  return int64_t{c_.w.IntAt(index)} - c_.w_q.zero_point_at(0);
}

Rounded Outputs::TableAt(int64_t difference) const {
  const float s = c_.x_q.scale_at(0);
  const float out = c_.out_q.scale_at(0);
  switch (c_.function) {
    case Function::kRelu: return Round(Over(Scale(s), out), std::max<int64_t>(difference, 0));
    case Function::kLeakyRelu:
      return Round(Over(difference < 0 ? Scale(s, c_.negative_slope) : Scale(s), out), difference);
    case Function::kHardSwish: {
      const Dyadic scale = Decode(s);
      if (AtLeast(scale, -difference, 3)) return Round(Line(), 0);
      if (AtLeast(scale, difference, 3)) return Round(Over(Scale(s), out), difference);
      // ((s*d)^2 + 3*s*d) / (6 * sy)
      const Line line = Over(Plus(Scale(s, s), s, 3 * difference), out, 6);
      return Round(line, static_cast<__int128>(difference) * difference);
    }
    case Function::kSigmoid:
    case Function::kTanh: break;
  }
  return RoundRealFunction(c_.function, s, difference, out);
}

// min(255, floor((256 * t + floor(sum / 2)) / sum)): half up.
Rounded Outputs::SoftmaxAt(int64_t m, int64_t n) const {
  const auto t = static_cast<int64_t>(IntegerAt(m, n));
  const int64_t sum = counts()[static_cast<size_t>(m)];
  const int64_t share = (256 * t + sum / 2) / sum;
  const int64_t rest = 256 * t - share * sum;  // |rest| <= sum / 2
  const int sign = share > 255 ? 1 : (rest > 0 ? 1 : 0) - (rest < 0 ? 1 : 0);
  return {std::min<int64_t>(share, 255),
          static_cast<double>(sum - 2 * std::abs(rest)) / static_cast<double>(sum), sign};
}

Code Outputs::CodeAt(int64_t m, int64_t n) const {
  const auto channel = static_cast<size_t>(n);
  Code code;
  code.lo = lo_[channel];
  if (c_.out_dtype == DType::kS32) {
    code.value = IntegerAt(m, n);
    return code;
  }
  Rounded rounded;
  if (c_.op == Op::kQuantize) {
    const float x = c_.x.FloatAt(m * c_.N + n);
    if (std::isinf(x)) {
      rounded.integer = std::signbit(x) ? -kFar : kFar;
    } else if (!std::isnan(x)) {  // NaN: real 0, without a distance
      const Dyadic dyadic = Decode(x);
      Line line = lines_[channel];
      line.gain_exponent = dyadic.exponent;
      rounded = Round(line, dyadic.mantissa);
    }
  } else if (c_.op == Op::kTable) {
    const auto difference = static_cast<int64_t>(IntegerAt(m, n));
    const auto [at, is_new] = table_.try_emplace(difference);
    if (is_new) at->second = TableAt(difference);
    rounded = at->second;
  } else if (c_.op == Op::kSoftmax) {
    rounded = SoftmaxAt(m, n);
  } else {
    rounded = Round(LineAt(m, n), IntegerAt(m, n));
  }
  code.value = backend_.empty() ? __int128{rounded.integer} + zero_[channel]
                                : backend_[channel].CodeOf(IntegerAt(m, n));
  code.tie_distance = rounded.tie_distance;
  code.rest = rounded.rest;
  return code;
}

float Outputs::UnclampedFloatAt(int64_t m, int64_t n) const {
  return RoundToFloat(lines_[static_cast<size_t>(n)], IntegerAt(m, n));
}

float Outputs::FloatAt(int64_t m, int64_t n) const {
  const float value = UnclampedFloatAt(m, n);
  // By the sign bit: a comparison would let a negative denormal through under DAZ.
  return c_.relu && std::signbit(value) ? 0.0f : value;
}

namespace {

Tensor Clamped(const Case& c, const Outputs& outputs) {
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      const int64_t index = m * c.N + n;
      if (c.out_dtype == DType::kF32) {
        y.as<float>()[static_cast<size_t>(index)] = outputs.FloatAt(m, n);
        continue;
      }
      const Code code = outputs.CodeAt(m, n);
      const __int128 value = std::max<__int128>(code.value, code.lo);
      y.SetInt(index, static_cast<int32_t>(std::min<__int128>(value, c.out_max)));
    }
  }
  return y;
}

}  // namespace

Tensor Evaluate(const Case& c) {
  if (c.op == Op::kChooseQParams) return ChooseQParams(c);
  return Clamped(c, Outputs(c));
}

Tensor EvaluateFromSums(const Case& c, std::span<const __int128> sums) {
  QUALM_CHECK(HasSums(c.op));
  QUALM_CHECK_EQ(sums.size(), static_cast<size_t>(c.M * c.N));
  return EvaluateFrom(c, {{sums.begin(), sums.end()}, {}});
}

Integers IntegersOf(const Case& c) {
  if (c.op == Op::kQuantize || c.op == Op::kChooseQParams) return {};
  const Outputs outputs(c);
  Integers integers{outputs.sums(), outputs.counts()};
  for (int64_t i = 0; i < c.M * c.N && outputs.sums().empty(); ++i)
    integers.values.push_back(outputs.IntegerAt(i / c.N, i % c.N));
  return integers;
}

std::vector<Code> CodesFrom(const Case& c, Integers integers) {
  const Outputs outputs(c, std::move(integers));
  std::vector<Code> codes;
  for (int64_t i = 0; i < c.M * c.N; ++i) codes.push_back(outputs.CodeAt(i / c.N, i % c.N));
  return codes;
}

Tensor EvaluateFrom(const Case& c, Integers integers) {
  return Clamped(c, Outputs(c, std::move(integers)));
}

bool RequantMayOverflow(const Case& c) {
  if (c.requant != Requant::kFloat32 && c.requant != Requant::kFixedQ31) return false;
  constexpr double kSafe = 0x1p29;
  const bool has_multiplier = !c.multiplier.empty();
  std::vector<double> multipliers;
  for (const float scale : has_multiplier ? c.multiplier : c.w_q.scale) {
    // x_scale*w_scale may overflow in float32 where the quotient is small.
    if (!has_multiplier && static_cast<double>(scale) * c.x_q.scale_at(0) >= 0x1p127) return true;
    multipliers.push_back(has_multiplier ? scale
                                         : static_cast<double>(scale) * c.x_q.scale_at(0) /
                                               c.out_q.scale_at(0));
    if (multipliers.back() >= 0x1p127) return true;
  }
  if (std::abs(static_cast<double>(c.out_q.zero_point_at(0))) > kSafe) return true;
  const Outputs outputs(c);
  for (int64_t i = 0; i < c.M * c.N; ++i) {
    const double accumulator =
        HasSums(c.op) ? static_cast<double>(outputs.sums()[static_cast<size_t>(i)]) : c.x.IntAt(i);
    const double fitting = std::clamp(accumulator, -0x1p31, 0x1p31);
    const size_t channel = multipliers.size() == 1 ? 0 : static_cast<size_t>(i % c.N);
    if (std::abs(fitting) * multipliers[channel] >= kSafe) return true;
  }
  return false;
}

std::optional<double> TieDistance(const Case& c, int64_t index) {
  if (!IsCode(c.out_dtype)) return std::nullopt;
  const Case one = OneOutput(c, index);
  return Outputs(one).CodeAt(0, 0).tie_distance;
}

}  // namespace qualm::exact
