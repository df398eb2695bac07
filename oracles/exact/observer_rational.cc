// SPDX-License-Identifier: Apache-2.0
// The form that computes with rationals and rounds where a step of PyTorch's does. Bins without a
// value are not looked at: their error is 0 and they add nothing.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

#include "oracles/exact/arithmetic/rational.h"
#include "oracles/exact/observer.h"
#include "oracles/exact/qparams_rule.h"

namespace qualm::exact {
namespace {

using observer::kBins;

// Rounded to float32, which does not overflow.
Rational Single(const Rational& value) { return ToRational(RoundToFloat32(value)); }

Integer Truncated(const Rational& value) {
  return Integer(numerator(value)) / Integer(denominator(value));
}

struct Range {
  Rational min, max;
};

Range MinMax(const std::vector<Rational>& values) {
  Range range{values.front(), values.front()};
  for (const Rational& value : values) {
    if (value < range.min) range.min = value;
    if (value > range.max) range.max = value;
  }
  return range;
}

// Bins with values, by number.
using Counts = std::map<int64_t, Rational>;

Counts Histc(const std::vector<Rational>& values, const Range& between) {
  Rational left{Truncated(between.min)};
  Rational right{Truncated(between.max)};
  if (left == right) {
    const Range range = MinMax(values);
    left = range.min;
    right = range.max;
  }
  if (left == right) {
    left = Single(left - 1);
    right = Single(right + 1);
  }
  Counts counts;
  for (const Rational& value : values) {
    if (value < left || value > right) continue;
    const Rational scaled = Single(Single(value - left) * kBins);
    const Integer place = Truncated(Single(scaled / Single(right - left)));
    ++counts[std::min(static_cast<int64_t>(place), kBins - 1)];
  }
  return counts;
}

// Thirty-two sums side by side: vectors of eight, four of them in turn, in blocks of sixteen; then
// the four of a lane, then the lanes.
Rational Sum(const Counts& terms) {
  using observer::kSumBlock, observer::kSumChains, observer::kSumLanes;
  constexpr int64_t kStep = kSumLanes * kSumChains;
  std::map<std::pair<int64_t, int64_t>, Rational> blocks;  // by lane and chain, then block
  for (const auto& [i, term] : terms) {
    Rational& sum = blocks[{i % kStep, i / (kStep * kSumBlock)}];
    sum = Single(sum + term);
  }
  std::map<int64_t, Rational> sums;
  for (const auto& [place, block] : blocks) {
    sums[place.first] = Single(sums[place.first] + block);
  }
  std::map<int64_t, Rational> lanes;
  for (const auto& [i, sum] : sums) {
    lanes[i % kSumLanes] = Single(lanes[i % kSumLanes] + sum);
  }
  Rational total = 0;
  for (const auto& [lane, sum] : lanes) total = Single(total + sum);
  return total;
}

class Histogram {
 public:
  void Add(const std::vector<Rational>& values) {
    const Range now = MinMax(values);
    if (!range_ || range_->min == range_->max) {
      range_ = now;
      counts_ = Histc(values, now);
      return;
    }
    const Range all{std::min(now.min, range_->min), std::max(now.max, range_->max)};
    const Rational span = Single(range_->max - range_->min);
    const Rational fine = Single(span / (kBins * observer::kUpsample));
    const Rational coarse = Single(fine * kBins);
    const Rational width = Single(all.max - all.min);
    const Rational ratio = Single(width / coarse);
    Integer downsample = Truncated(ratio);
    if (Rational(downsample) != ratio) ++downsample;
    const Rational excess = Single(Single(Rational(downsample) * coarse) - width);
    const Rational offset = Single(Single(range_->min - all.min) / fine);
    const Range combined{all.min, Single(all.max + excess)};
    Counts counts = Histc(values, combined);
    if (combined.min == range_->min && combined.max == range_->max) {
      for (const auto& [i, count] : counts_) counts[i] = Single(counts[i] + count);
    } else {
      Resample(static_cast<int64_t>(downsample), static_cast<int64_t>(RoundHalfEven(offset)),
               &counts);
    }
    counts_ = std::move(counts);
    range_ = combined;
  }

  Range Search() const {
    const auto total = static_cast<double>(RoundToFloat32(Sum(counts_)));
    std::vector<float> below;
    Rational running = 0;
    for (int64_t i = 0; i < kBins; ++i) {
      if (const auto at = counts_.find(i); at != counts_.end()) {
        running = NearestFloat64(running + at->second);
      }
      below.push_back(RoundToFloat32(running));
    }
    if (range_->min == range_->max) return *range_;  // bins of no width, wherever the search ends
    // Quantiles are double numbers in PyTorch, too.
    double alpha = 0.0, beta = 1.0;
    int64_t start = 0, end = kBins - 1;
    std::optional<Rational> least;
    int64_t l = start, r = end;  // further than last time, as the quantiles are
    while (alpha < beta) {
      const double next_alpha = alpha + observer::kStepSize;
      const double next_beta = beta - observer::kStepSize;
      const auto low = static_cast<float>(next_alpha * total);
      const auto high = static_cast<float>(next_beta * total);
      l = std::clamp(l, start, end);
      r = std::clamp(r, start, end);
      while (l < end && below[static_cast<size_t>(l)] < low) ++l;
      while (r > start && below[static_cast<size_t>(r)] > high) --r;
      const bool move_start = l - start > end - r;
      const int64_t next_start = move_start ? l : start;
      const int64_t next_end = move_start ? end : r;
      (move_start ? alpha : beta) = move_start ? next_alpha : next_beta;
      if (next_start == start && next_end == end) continue;
      const Rational error = Error(next_start, next_end);
      if (error > least.value_or(error)) break;
      least = error;
      start = next_start;
      end = next_end;
    }
    const Rational width = Single(Single(range_->max - range_->min) / kBins);
    return {Single(range_->min + Single(width * start)),
            Single(range_->min + Single(width * (end + 1)))};
  }

 private:
  void Resample(int64_t downsample, int64_t start, Counts* counts) const {
    start = std::min(start, kBins * (downsample - observer::kUpsample));
    // The integral at the end of each new bin, where it is another than at the one before.
    std::map<int64_t, Rational> integral;
    Rational running = 0;
    for (const auto& [i, count] : counts_) {
      for (int64_t part = 0; part < observer::kUpsample; ++part) {
        running = NearestFloat64(running + count);
        integral[(start + i * observer::kUpsample + part) / downsample] = running;
      }
    }
    // What is subtracted was rounded to float32, and so leaves a rest, also in bins without a
    // count.
    Rational before = 0, rest = 0;
    for (const int64_t i : std::views::iota(int64_t{0}, kBins)) {
      Rational difference = rest;
      if (const auto at = integral.find(i); at != integral.end()) {
        difference = NearestFloat64(at->second - before);
        before = Single(at->second);
        rest = NearestFloat64(at->second - before);
      }
      if (difference == 0) continue;
      Rational& count = (*counts)[i];
      count = Single(count + Single(difference / observer::kUpsample));
    }
  }

  // Of a negative a it is rounded toward 0: then the code is 0 all the same.
  static Rational FloorDivide(const Rational& a, const Rational& b) {
    const Rational rest = a - b * Rational(Truncated(a / b));
    const Rational quotient = Single(Single(a - rest) / b);
    Integer floor = Truncated(quotient);
    if (Single(quotient - Rational(floor)) > Rational(1, 2)) ++floor;
    return Single(Rational(floor));
  }

  static Rational Cube(const Rational& x) { return Single(Single(x * x) * x); }
  static Rational Third(const Rational& from, const Rational& to) {
    return Single(Single(Cube(to) - Cube(from)) / 3);
  }

  Rational Error(int64_t start, int64_t end) const {
    const Rational width = NearestFloat64(NearestFloat64(range_->max - range_->min) / kBins);
    const Rational step =
        NearestFloat64(NearestFloat64(width * (end - start + 1)) / observer::kCodes);
    const Rational width32 = Single(width), step32 = Single(step), half = Single(step / 2);
    const auto code_of = [&](const Rational& at) {
      const Rational code = FloorDivide(at, step32);
      return std::clamp<Rational>(code, 0, observer::kCodes - 1);
    };
    Counts errors;
    for (const auto& [i, count] : counts_) {
      const Rational density = Single(count / width32);
      const Rational from = Single(width32 * (i - start));
      const Rational to = Single(from + width32);
      const Rational first = code_of(from), last = code_of(to);
      const Rational first_centre = Single(Single(first + Rational(1, 2)) * step32);
      const Rational last_centre = Single(Single(last * step32) + half);
      const Rational at_first = Single(density * Third(Single(from - first_centre), half));
      const Rational whole = Single(density * Third(-half, half));
      const Rational at_last = Single(density * Third(-half, Single(to - last_centre)));
      const Rational between = Single(Single(Single(last - first) - 1) * whole);
      errors[i] = Single(Single(at_first + between) + at_last);
    }
    return Sum(errors);
  }

  std::optional<Range> range_;
  Counts counts_;
};

Range Observe(const Case& c, int64_t m) {
  const Observer& o = c.observer;
  std::optional<Range> range;
  Histogram histogram;
  for (int64_t b = 0; b < c.x.shape()[0]; ++b) {
    std::vector<Rational> values;
    for (const float value : observer::Values(c, b, m)) values.push_back(ToRational(value));
    if (o.kind == Observer::Kind::kHistogram) {
      histogram.Add(values);
      continue;
    }
    const Range now = MinMax(values);
    if (!range) {
      range = now;
    } else if (o.kind == Observer::Kind::kMinMax) {
      range = Range{std::min(range->min, now.min), std::max(range->max, now.max)};
    } else {
      const Rational share = ToRational(o.averaging_constant);
      const auto moved = [&](const Rational& old, const Rational& to) {
        return Single(old + Single(share * Single(to - old)));
      };
      range = Range{moved(range->min, now.min), moved(range->max, now.max)};
    }
  }
  return o.kind == Observer::Kind::kHistogram ? histogram.Search() : *range;
}

}  // namespace

ChosenQParams FromRangeRational(const Observer& o, float min, float max) {
  const CodeRange codes = observer::Codes(o);
  const Rational divisor =
      o.symmetric ? Rational(codes.max - codes.min) / 2 : Rational(codes.max - codes.min);
  const Rational low = ToRational(min), high = ToRational(max);
  // Either may pass the largest float32: then the scale is infinite, and min / scale is 0.
  const float width =
      RoundToFloat32(o.symmetric ? std::max<Rational>(-low, high) : Rational(high - low));
  float scale = std::isinf(width) ? width : RoundToFloat32(ToRational(width) / divisor);
  scale = std::max(scale, observer::kEps);
  if (o.symmetric) return {scale, observer::SymmetricZeroPoint(o)};
  Integer zero_point = codes.min;
  if (!std::isinf(scale)) zero_point -= RoundHalfEven(Single(low / ToRational(scale)));
  return {scale, static_cast<int32_t>(std::clamp<Integer>(zero_point, codes.min, codes.max))};
}

Tensor ChooseQParamsRational(const Case& c) {
  const int64_t columns = ChosenCount(c);
  Tensor y(DType::kF32, {2, columns});
  const auto floats = y.as<float>();
  for (int64_t m = 0; m < columns; ++m) {
    const Range range = Observe(c, m);
    const ChosenQParams chosen = ChosenForRational(
        c, {std::min(RoundToFloat32(range.min), 0.0f), std::max(RoundToFloat32(range.max), 0.0f)});
    floats[static_cast<size_t>(m)] = chosen.scale;
    floats[static_cast<size_t>(columns + m)] = static_cast<float>(chosen.zero_point);
  }
  return y;
}

}  // namespace qualm::exact
