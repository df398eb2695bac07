// SPDX-License-Identifier: Apache-2.0
// The form that computes with floats.
#include "oracles/exact/observer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>

#include "oracles/exact/nearest_environment.h"
#include "oracles/exact/qparams_rule.h"

namespace qualm::exact {
namespace observer {

CodeRange Codes(const Observer& o) {
  if (!o.reduce_range) return {o.quant_min, o.quant_max};
  return {o.quant_min >> 1, o.quant_max >> 1};
}

int32_t SymmetricZeroPoint(const Observer& o) {
  if (o.dtype == DType::kS8) return 0;
  if (CodeRange{o.quant_min, o.quant_max} == RangeOf(o.dtype)) return 128;
  const CodeRange codes = Codes(o);
  return (codes.min + codes.max) >> 1;
}

std::span<const float> Values(const Case& c, int64_t b, int64_t m) {
  const int64_t count = c.per_channel ? c.N : c.M * c.N;
  return c.x.as<float>().subspan(static_cast<size_t>(b * c.M * c.N + m * c.N),
                                 static_cast<size_t>(count));
}

}  // namespace observer

namespace {

using observer::kBins;

ObservedRange MinMax(std::span<const float> values) {
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  return {*min, *max};
}

using Counts = std::array<float, kBins>;

// torch.histc. Values outside are left out.
Counts Histc(std::span<const float> values, float left, float right) {
  if (left == right) {
    const ObservedRange range = MinMax(values);
    left = range.min;
    right = range.max;
  }
  if (left == right) {
    left -= 1.0f;
    right += 1.0f;
  }
  Counts counts{};
  for (const float value : values) {
    if (value < left || value > right) continue;
    const float place = (value - left) * static_cast<float>(kBins) / (right - left);
    counts[static_cast<size_t>(std::min(static_cast<int64_t>(place), kBins - 1))] += 1.0f;
  }
  return counts;
}

// torch.sum of 2048 floats.
float Sum(const Counts& terms) {
  using observer::kSumBlock, observer::kSumChains, observer::kSumLanes;
  constexpr int64_t kStep = kSumLanes * kSumChains;
  std::array<float, kStep> sums{};
  for (int64_t block = 0; block < kBins; block += kStep * kSumBlock) {
    for (int64_t j = 0; j < kStep; ++j) {
      float sum = 0;
      for (int64_t i = 0; i < kSumBlock; ++i) {
        sum += terms[static_cast<size_t>(block + i * kStep + j)];
      }
      sums[static_cast<size_t>(j)] += sum;
    }
  }
  float total = 0;
  for (int64_t lane = 0; lane < kSumLanes; ++lane) {
    float sum = 0;
    for (int64_t chain = 0; chain < kSumChains; ++chain) {
      sum += sums[static_cast<size_t>(chain * kSumLanes + lane)];
    }
    total += sum;
  }
  return total;
}

// torch.div(a, b, rounding_mode="floor"), b > 0. Of a negative a it is rounded toward 0: then the
// code is 0 all the same.
float FloorDivide(float a, float b) {
  const float quotient = (a - std::fmod(a, b)) / b;
  const float floor = std::floor(quotient);
  return quotient - floor > 0.5f ? floor + 1.0f : floor;
}

// Until 1.13 observers cut the ends of the range to whole numbers.
Counts WholeHistc(std::span<const float> values, ObservedRange range) {
  return Histc(values, std::trunc(range.min), std::trunc(range.max));
}

class Histogram {
 public:
  void Add(std::span<const float> values) {
    // Also before the first batch, when both ends are 0.
    if (range_.min == range_.max) {
      range_ = MinMax(values);
      counts_ = WholeHistc(values, range_);
      return;
    }
    const ObservedRange now = MinMax(values);
    const ObservedRange all{std::min(now.min, range_.min), std::max(now.max, range_.max)};
    const float fine = (range_.max - range_.min) / static_cast<float>(kBins * observer::kUpsample);
    const float coarse = static_cast<float>(kBins) * fine;
    const float downsample = std::ceil((all.max - all.min) / coarse);
    const float excess = downsample * coarse - (all.max - all.min);
    const float start = std::nearbyint((range_.min - all.min) / fine);
    const ObservedRange combined{all.min, all.max + excess};
    Counts counts = WholeHistc(values, combined);
    if (combined.min == range_.min && combined.max == range_.max) {
      std::ranges::transform(counts, counts_, counts.begin(), std::plus<>());
    } else {
      AddResampled(static_cast<int64_t>(downsample), static_cast<int64_t>(start), &counts);
    }
    counts_ = counts;
    range_ = combined;
  }

  ObservedRange range() const { return range_; }

  // The part of the range to quantize with the smallest error.
  ObservedRange Search() const {
    const double total = Sum(counts_);
    Counts below;
    double running = 0;
    std::ranges::transform(counts_, below.begin(), [&](float count) {
      running += count;
      return static_cast<float>(running);
    });
    double alpha = 0.0;
    double beta = 1.0;
    int64_t start = 0;
    int64_t end = kBins - 1;
    double least = INFINITY;
    while (alpha < beta) {
      const double next_alpha = alpha + observer::kStepSize;
      const double next_beta = beta - observer::kStepSize;
      const auto low = static_cast<float>(next_alpha * total);
      const auto high = static_cast<float>(next_beta * total);
      int64_t l = start;
      int64_t r = end;
      while (l < end && below[static_cast<size_t>(l)] < low) ++l;
      while (r > start && below[static_cast<size_t>(r)] > high) --r;
      int64_t next_start = start;
      int64_t next_end = end;
      if (l - start > end - r) {
        next_start = l;
        alpha = next_alpha;
      } else {
        next_end = r;
        beta = next_beta;
      }
      if (next_start == start && next_end == end) continue;
      const double error = Error(next_start, next_end);
      if (error > least) break;
      least = error;
      start = next_start;
      end = next_end;
    }
    const float width = (range_.max - range_.min) / static_cast<float>(kBins);
    return {range_.min + width * static_cast<float>(start),
            range_.min + width * static_cast<float>(end + 1)};
  }

 protected:
  ObservedRange range_;
  Counts counts_{};

 private:
  // Adds the old counts on the new grid: every bin in 128 equal parts, from part `start` on, summed
  // and read off at every `downsample`-th part.
  void AddResampled(int64_t downsample, int64_t start, Counts* counts) const {
    // torch would raise an error where the last part falls beyond the grid.
    start = std::min(start, kBins * (downsample - observer::kUpsample));
    std::array<double, kBins> integral{};
    double running = 0;
    int64_t at = start;
    int64_t next = start / downsample;  // whose integral is not known yet
    for (const float count : counts_) {
      for (int64_t part = 0; part < observer::kUpsample; ++part, ++at) {
        running += count;
        if ((at + 1) % downsample == 0) integral[static_cast<size_t>(next++)] = running;
      }
    }
    for (; next < kBins; ++next) integral[static_cast<size_t>(next)] = running;
    float before = 0;  // of float32, unlike the integral
    for (size_t i = 0; i < integral.size(); ++i) {
      const double part = (integral[i] - before) / static_cast<double>(observer::kUpsample);
      (*counts)[i] += static_cast<float>(part);
      before = static_cast<float>(integral[i]);
    }
  }

  // Squared error of the codes if bins `start` to `end` are spread over them.
  double Error(int64_t start, int64_t end) const {
    const double width =
        (static_cast<double>(range_.max) - static_cast<double>(range_.min)) / kBins;
    const double step = width * static_cast<double>(end - start + 1) / observer::kCodes;
    if (step == 0.0) return 0.0;
    const auto width32 = static_cast<float>(width);
    const auto step32 = static_cast<float>(step);
    const auto half = static_cast<float>(step / 2);
    const auto third = [](float from, float to) {
      return (to * to * to - from * from * from) / 3.0f;
    };
    const auto code_of = [&](float at) {
      return std::clamp(FloorDivide(at, step32), 0.0f, static_cast<float>(observer::kCodes - 1));
    };
    Counts errors;
    for (int64_t i = 0; i < kBins; ++i) {
      const float density = counts_[static_cast<size_t>(i)] / width32;
      const float from = static_cast<float>(i - start) * width32;
      const float to = from + width32;
      const float first = code_of(from);
      const float last = code_of(to);
      float error = density * third(from - (first + 0.5f) * step32, half);
      error += (last - first - 1.0f) * (density * third(-half, half));
      error += density * third(-half, to - (last * step32 + half));
      errors[static_cast<size_t>(i)] = error;
    }
    return Sum(errors);
  }
};

// Element `index` of torch.linspace(range.min, range.max, steps + 1), whose kernel is contracted.
float LinSpace(ObservedRange range, int64_t steps, int64_t index) {
  const float step = (range.max - range.min) / static_cast<float>(steps);
  if (index < (steps + 1) / 2) return std::fma(step, static_cast<float>(index), range.min);
  return std::fma(-step, static_cast<float>(steps - index), range.max);
}

// observer.py of PyTorch 2.13; the search is that of 1.13.
class Histogram2 : public Histogram {
 public:
  void Add(std::span<const float> values) {
    const ObservedRange now = MinMax(values);
    if (!begun_) {
      begun_ = true;
      range_ = now;
      counts_ = Histc(values, now.min, now.max);
      return;
    }
    const ObservedRange all{std::min(now.min, range_.min), std::max(now.max, range_.max)};
    const bool same = all.min == range_.min && all.max == range_.max;
    const Counts old = same ? counts_ : OnGrid(all);
    counts_ = Histc(values, all.min, all.max);
    std::ranges::transform(counts_, old, counts_.begin(), std::plus<>());
    range_ = all;
  }

 private:
  // The counts on the bins of a wider range (_combine_histograms).
  Counts OnGrid(ObservedRange wide) const {
    if (range_.min == range_.max) {
      Counts counts = Histc(std::span(&range_.min, 1), wide.min, wide.max);
      const float total = Sum(counts_);
      for (float& count : counts) count *= total;
      return counts;
    }
    constexpr int64_t kParts = 16;
    std::array<float, kBins + 1> ends;
    for (int64_t i = 0; i <= kBins; ++i) ends[static_cast<size_t>(i)] = LinSpace(wide, kBins, i);
    const float half = 0.5f * ((range_.max - range_.min) / static_cast<float>(kBins * kParts));
    Counts counts{};
    for (int64_t i = 0; i < kBins * kParts; ++i) {
      const float middle = LinSpace(range_, kBins * kParts, i) + half;
      const int64_t bin = std::ranges::upper_bound(ends, middle) - ends.begin() - 1;
      counts[static_cast<size_t>(std::clamp<int64_t>(bin, 0, kBins - 1))] +=
          counts_[static_cast<size_t>(i / kParts)] / static_cast<float>(kParts);
    }
    return counts;
  }

  bool begun_ = false;
};

// The result for an observed range and the part of that range to quantize.
ObserverResult ResultOf(const Observer& o, ObservedRange observed, ObservedRange part) {
  const double min = std::min(part.min, 0.0f);
  const double max = std::max(part.max, 0.0f);
  const ChosenQParams chosen = FromRange(o, min, max);
  return {observed, part, chosen.scale, chosen.zero_point};
}

using Batches = std::span<const std::span<const float>>;

// Not inlined: else the compiler may move arithmetic in front of NearestEnvironment.
template <class HistogramOfVersion>
[[gnu::noinline]] ObserverResult ObserveNearest(const Observer& o, Batches batches) {
  if (o.kind == Observer::Kind::kHistogram) {
    HistogramOfVersion histogram;
    for (const std::span<const float> batch : batches) histogram.Add(batch);
    return ResultOf(o, histogram.range(), histogram.Search());
  }
  ObservedRange range = MinMax(batches[0]);
  for (const std::span<const float> batch : batches.subspan(1)) {
    const ObservedRange now = MinMax(batch);
    if (o.kind == Observer::Kind::kMinMax) {
      range = {std::min(range.min, now.min), std::max(range.max, now.max)};
    } else {
      range.min += o.averaging_constant * (now.min - range.min);
      range.max += o.averaging_constant * (now.max - range.max);
    }
  }
  return ResultOf(o, range, range);
}

using ObserveFunction = ObserverResult (*)(const Observer&, Batches);

ObserverResult ObserveColumn(const Case& c, int64_t m, ObserveFunction observe = Observe) {
  std::vector<std::span<const float>> batches;
  for (int64_t b = 0; b < c.x.shape()[0]; ++b) batches.push_back(observer::Values(c, b, m));
  return observe(c.observer, batches);
}

Tensor ChooseBy(const Case& c, ObserveFunction observe) {
  const NearestEnvironment environment;
  const int64_t columns = ChosenCount(c);
  Tensor y(DType::kF32, {2, columns});
  for (int64_t m = 0; m < columns; ++m) {
    const ObserverResult result = ObserveColumn(c, m, observe);
    ChosenQParams chosen{result.scale, result.zero_point};
    if (c.rule != QParamsRule::kObserver) chosen = ChosenFor(c, WithZero(result.range));
    y.as<float>()[static_cast<size_t>(m)] = chosen.scale;
    y.as<float>()[static_cast<size_t>(columns + m)] = static_cast<float>(chosen.zero_point);
  }
  return y;
}

}  // namespace

// Steps on floats, computed in double and rounded once more, are the steps in float: 53 bits are
// more than twice 24 and two (Figueroa 1995).
ChosenQParams FromRange(const Observer& o, double min, double max, float least_scale) {
  const CodeRange codes = observer::Codes(o);
  const auto steps = static_cast<float>(codes.max - codes.min);
  const float span = o.symmetric ? static_cast<float>(std::max(-min, max)) / (steps / 2.0f)
                                 : static_cast<float>(max - min) / steps;
  const float scale = span > least_scale ? span : least_scale;  // never -0
  if (o.symmetric) return {scale, observer::SymmetricZeroPoint(o)};
  const auto first = static_cast<float>(min / static_cast<double>(scale));
  if (std::isnan(first)) return {scale, codes.min};  // 0 / 0
  const double zero_point = codes.min - static_cast<double>(std::nearbyint(first));
  return {scale, static_cast<int32_t>(std::clamp<double>(zero_point, codes.min, codes.max))};
}

ObserverResult Observe(const Observer& observer, Batches batches) {
  const NearestEnvironment environment;
  return ObserveNearest<Histogram>(observer, batches);
}

ObserverResult ObserveHistogram2(const Observer& observer, Batches batches) {
  const NearestEnvironment environment;
  return ObserveNearest<Histogram2>(observer, batches);
}

ObservedRange WithZero(ObservedRange range) {
  const NearestEnvironment environment;  // denormals are told from 0
  return {std::min(range.min, 0.0f), std::max(range.max, 0.0f)};
}

std::vector<ObservedRange> ObservedRanges(const Case& c) {
  std::vector<ObservedRange> ranges;
  for (int64_t m = 0; m < ChosenCount(c); ++m) ranges.push_back(ObserveColumn(c, m).range);
  return ranges;
}

ObservedRange SearchedRange(const Case& c) { return ObserveColumn(c, 0).searched; }

Tensor ChooseQParams(const Case& c) { return ChooseBy(c, Observe); }
Tensor ChooseQParams2(const Case& c) { return ChooseBy(c, ObserveHistogram2); }

}  // namespace qualm::exact
