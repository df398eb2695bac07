// SPDX-License-Identifier: Apache-2.0
// Observers without a histogram. A step on float32 operands computed in double and rounded once
// more is the step in float32: 53 bits are more than twice 24 and two (Figueroa 1995).
#include <algorithm>
#include <cmath>

#include "adapters/faulty/codes.h"
#include "adapters/faulty/reference.h"

namespace qualm::faulty {
namespace {

double Single(double value) { return static_cast<double>(static_cast<float>(value)); }

struct Span {
  double low, high;
};

}  // namespace

Reference::Chosen Reference::Choose(const Observer& o, double low, double high) const {
  if (!Has(Fault::kRangeWithoutZero)) {
    low = std::min(low, 0.0);
    high = std::max(high, 0.0);
  }
  const int shift = o.reduce_range && !Has(Fault::kReduceRangeIgnored) ? 1 : 0;
  const int32_t least = o.quant_min >> shift;
  const int32_t most = o.quant_max >> shift;
  const double steps = most - least;
  double scale = o.symmetric ? Single(Single(std::max(-low, high)) / (steps / 2))
                             : Single(Single(high - low) / steps);
  scale = Has(Fault::kNoScaleFloor) ? std::fabs(scale) : std::max(scale, 0x1p-23);  // no -0
  double zero_point = 0;
  if (!o.symmetric) {
    const double first = Single(low / scale);
    // Without the floor 0/0 may be asked for, and codes far outside.
    zero_point = std::isnan(first) ? least : least - std::nearbyint(first);
    zero_point = std::clamp<double>(zero_point, least, most);
  } else if (o.dtype == DType::kU8) {
    const bool whole = CodeRange{o.quant_min, o.quant_max} == RangeOf(o.dtype);
    zero_point = whole ? 128 : std::floor((least + most) / 2.0);
  }
  return {scale, zero_point};
}

void Reference::ChooseQParams(const Placed& p) {
  const Case& c = *p.problem;
  const Observer& o = c.observer;
  const int64_t columns = c.output_shape()[1];
  const int64_t rows = c.per_channel ? 1 : c.M;
  auto* const scales = static_cast<float*>(p.y);
  const auto step = [&](double value) {
    return Has(Fault::kAveragingInDouble) ? value : Single(value);
  };
  for (int64_t m = 0; m < columns; ++m) {
    Span all{};
    for (int64_t b = 0; b < c.x.shape()[0]; ++b) {
      Span now{HUGE_VAL, -HUGE_VAL};
      for (int64_t i = 0; i < rows; ++i) {
        const float* const x = Row<float>(p.x, b * c.M + m + i, p.x_stride);
        for (int64_t j = 0; j < c.N; ++j) {
          if (Has(Fault::kObserverFirstBlock) && i * c.N + j >= 4096) break;
          now = {std::min<double>(now.low, x[j]), std::max<double>(now.high, x[j])};
        }
      }
      if (b == 0) {
        all = now;
      } else if (o.kind == Observer::Kind::kMinMax) {
        all = {std::min(all.low, now.low), std::max(all.high, now.high)};
      } else {
        const double share = o.averaging_constant;
        all.low = step(all.low + step(share * step(now.low - all.low)));
        all.high = step(all.high + step(share * step(now.high - all.high)));
      }
    }
    const Chosen chosen = Choose(o, all.low, all.high);
    scales[m] = static_cast<float>(chosen.scale);
    scales[p.y_stride + m] = static_cast<float>(chosen.zero_point + 0.0);
  }
}

// The rule of observers; each group of rows becomes codes, and those a linear.
void Reference::DynamicLinear(const Placed& p) {
  const Case& c = *p.problem;
  const int64_t together = c.x_gran == Granularity::kTensor ? c.M : 1;
  sums_of_ = Case{};
  sums_of_.N = c.N;
  sums_of_.K = c.K;
  sums_of_.w = Tensor(c.w.dtype(), {0});
  sums_of_.w_q = c.w_q;
  sums_of_.per_channel = c.per_channel;
  sums_of_.relu = c.relu;
  Case quantize;
  quantize.out_dtype = c.observer.dtype;
  OpenClamp(&quantize);
  sums_of_.x = Tensor(quantize.out_dtype, {0});
  sums_of_.out_dtype = DType::kF32;
  for (int64_t first = 0; first < c.M; first += together) {
    Span all{HUGE_VAL, -HUGE_VAL};
    for (int64_t m = first; m < first + together; ++m) {
      const float* const x = Row<float>(p.x, m, p.x_stride);
      for (int64_t k = 0; k < c.K; ++k) {
        all = {std::min<double>(all.low, x[k]), std::max<double>(all.high, x[k])};
      }
    }
    if (c.K == 0) all = {0, 0};
    const Chosen chosen = Choose(c.observer, all.low, all.high);
    const auto scale = static_cast<float>(std::min(chosen.scale, 0x1.fffffep127));
    const auto zero_point = static_cast<int32_t>(chosen.zero_point);
    codes_.assign(static_cast<size_t>(together * c.K), 0);
    for (int64_t i = 0; i < together * c.K; ++i) {
      const float value = Row<float>(p.x, first + i / c.K, p.x_stride)[i % c.K];
      codes_[static_cast<size_t>(i)] = static_cast<uint8_t>(
          QuantizeOne(value, scale, zero_point, RoundTo::kNearestEven, quantize));
    }
    sums_of_.M = together;
    if (first == 0 || !Has(Fault::kScaleOfRow0)) sums_of_.x_q.scale = {scale};
    if (first == 0 || !Has(Fault::kZeroPointOfRow0)) sums_of_.x_q.zero_point = {zero_point};
    Placed rows = p;
    rows.problem = &sums_of_;
    rows.x = codes_.data();
    rows.x_stride = c.K;
    rows.y = static_cast<float*>(p.y) + first * p.y_stride;
    Linear(rows);
  }
}

}  // namespace qualm::faulty
