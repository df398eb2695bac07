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
    if (!Has(Fault::kRangeWithoutZero)) {
      all = {std::min(all.low, 0.0), std::max(all.high, 0.0)};
    }
    const int shift = o.reduce_range && !Has(Fault::kReduceRangeIgnored) ? 1 : 0;
    const int32_t least = o.quant_min >> shift;
    const int32_t most = o.quant_max >> shift;
    const double steps = most - least;
    double scale = o.symmetric ? Single(Single(std::max(-all.low, all.high)) / (steps / 2))
                               : Single(Single(all.high - all.low) / steps);
    if (!Has(Fault::kNoScaleFloor)) scale = std::max(scale, 0x1p-23);
    double zero_point = 0;
    if (!o.symmetric) {
      const double low = Single(all.low / scale);
      // Without the floor 0/0 may be asked for, and codes far outside.
      zero_point = std::isnan(low) ? least : least - std::nearbyint(low);
      zero_point = std::clamp<double>(zero_point, least, most);
    } else if (o.dtype == DType::kU8) {
      const bool whole = CodeRange{o.quant_min, o.quant_max} == RangeOf(o.dtype);
      zero_point = whole ? 128 : std::floor((least + most) / 2.0);
    }
    scales[m] = static_cast<float>(scale);
    scales[p.y_stride + m] = static_cast<float>(zero_point + 0.0);
  }
}

}  // namespace qualm::faulty
