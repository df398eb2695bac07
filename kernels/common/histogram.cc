// SPDX-License-Identifier: Apache-2.0
// Adds values to a histogram, and searches the range whose quantization error is smallest. The
// contract is the arithmetic of PyTorch 1.13.1: HistogramObserver in
// torch/ao/quantization/observer.py, and what it calls: histc
// (aten/src/ATen/native/cpu/HistogramKernel.cpp), floor division (BinaryOpsKernel.cpp), sum
// (SumKernel.cpp, with the eight lanes of AVX2), cumsum (ReduceOpsKernel.cpp, float64 inside).
// Scalar, and the same everywhere: what PyTorch rounds is rounded here, in its order. Empty bins
// are passed over where all they could add is 0.
#include "kernels/common/histogram.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace qualm::kernels::internal {
namespace {

constexpr int64_t kBins = HistogramState::kBins;
constexpr int64_t kParts = 128;  // of a bin, where ranges differ
// docs/quantization.md takes values that span up to 2^10 times the first batch. The histogram is no
// narrower than that batch, so such values never make it more than 1 + 2^10 times as wide.
constexpr float kMostGrowth = 0x1p11f;
constexpr float kLeastSpan = 0x1p-60f;
constexpr double kQuantileStep = 1e-5;
constexpr double kCodes = 256;

using Bins = std::array<float, kBins>;

// Counts the values between the whole parts of `low` and `high`, or where they are the same one,
// between the ends of the batch.
void Count(const ConstMatrix& batch, float low, float high, float min, float max, Bins* counts) {
  float left = std::trunc(low);
  float right = std::trunc(high);
  if (left == right) {
    left = min;
    right = max;
    if (left == right) {
      left -= 1.0f;
      right += 1.0f;
    }
  }
  counts->fill(0);
  const float width = right - left;
  const auto* row = static_cast<const float*>(batch.data);
  for (int64_t i = 0; i < batch.rows; ++i, row += batch.row_stride) {
    for (int64_t j = 0; j < batch.columns; ++j) {
      if (!(row[j] >= left && row[j] <= right)) continue;
      const float place = (row[j] - left) * static_cast<float>(kBins) / width;
      const auto bin = std::min(static_cast<size_t>(place), static_cast<size_t>(kBins - 1));
      (*counts)[bin] += 1.0f;
    }
  }
}

// Adds old counts, on a grid `parts` times as fine as theirs from its part `start` on, to the
// counts on bins of `parts_per_bin` such parts.
void AddRegridded(const Bins& old, int64_t parts_per_bin, int64_t start, Bins* counts) {
  double integral = 0;
  float shifted = 0;  // PyTorch keeps the integral up to the bin before in float32
  int64_t bin = 0;
  int64_t left_in_bin = parts_per_bin - start % parts_per_bin;
  const auto finish_bin = [&] {
    const double difference = integral - shifted;
    (*counts)[static_cast<size_t>(bin++)] +=
        static_cast<float>(difference / static_cast<double>(kParts));
    shifted = static_cast<float>(integral);
    left_in_bin = parts_per_bin;
  };
  bin = start / parts_per_bin;
  for (const float count : old) {
    if (count == 0) {
      for (int64_t parts = kParts; parts > 0;) {
        const int64_t step = std::min(parts, left_in_bin);
        parts -= step;
        left_in_bin -= step;
        if (left_in_bin == 0) finish_bin();
      }
      continue;
    }
    for (int64_t part = 0; part < kParts; ++part) {
      integral += count;
      if (--left_in_bin == 0) finish_bin();
    }
  }
  while (bin < kBins) finish_bin();
}

// In PyTorch's order. Sum j of 32 adds the terms j, j + 32, j + 64, ..., sixteen at a time. Then
// lane l of 8 adds the sums l, l + 8, l + 16 and l + 24. Then the lanes are added.
float Sum(const Bins& terms) {
  std::array<float, 32> sums{};
  for (size_t block = 0; block < terms.size(); block += 512) {
    std::array<float, 32> inner{};
    for (size_t i = block; i < block + 512; i += 32) {
      for (size_t j = 0; j < 32; ++j) inner[j] += terms[i + j];
    }
    for (size_t j = 0; j < 32; ++j) sums[j] += inner[j];
  }
  float total = 0;
  for (size_t lane = 0; lane < 8; ++lane) {
    total += sums[lane] + sums[lane + 8] + sums[lane + 16] + sums[lane + 24];
  }
  return total;
}

// floor(a / step) the way ATen computes it, as one of the codes. step > 0.
float CodeAt(float a, float step) {
  const float rest = std::fmod(a, step);
  float quotient = (a - rest) / step;
  if (rest < 0) quotient -= 1.0f;
  float code = std::floor(quotient);
  if (quotient - code > 0.5f) code += 1.0f;
  return std::min(std::max(code, 0.0f), static_cast<float>(kCodes - 1));
}

// Integral of x^2 between two distances from a code.
float Moment(float from, float to) { return (to * to * to - from * from * from) / 3.0f; }

// The squared error where bins first..last are spread over the codes.
float ErrorOf(const HistogramState& state, int64_t first, int64_t last) {
  const double width = (static_cast<double>(state.max) - static_cast<double>(state.min)) / kBins;
  const double step = width * static_cast<double>(last - first + 1) / kCodes;
  if (step == 0) return 0;
  const auto bin_width = static_cast<float>(width);
  const auto code_width = static_cast<float>(step);
  const auto half = static_cast<float>(step / 2);
  const float whole_code = Moment(-half, half);
  Bins errors{};
  for (int64_t i = 0; i < kBins; ++i) {
    const float count = state.counts[static_cast<size_t>(i)];
    if (count == 0) continue;
    const float density = count / bin_width;
    const float begin = static_cast<float>(i - first) * bin_width;
    const float end = begin + bin_width;
    const float begin_code = CodeAt(begin, code_width);
    const float end_code = CodeAt(end, code_width);
    const float from = begin - (begin_code + 0.5f) * code_width;
    const float to = end - (end_code * code_width + half);
    const float between = end_code - begin_code - 1.0f;
    errors[static_cast<size_t>(i)] = density * Moment(from, half) +
                                     between * (density * whole_code) + density * Moment(-half, to);
  }
  return Sum(errors);
}

}  // namespace

Status AddToHistogram(const ConstMatrix& batch, float min, float max, HistogramState* state) {
  if (state->empty || state->min == state->max) {
    if (min != max && max - min < kLeastSpan)
      return {"x spans less than 2^-60, which leaves no width for bins"};
    Count(batch, min, max, min, max, &state->counts);
    state->min = min;
    state->max = max;
    state->empty = false;
    return {};
  }
  const float low = std::min(min, state->min);
  const float high = std::max(max, state->max);
  const float span = high - low;
  const float old_span = state->max - state->min;
  if (span > kMostGrowth * old_span) return {"x is more than 2^11 times as wide as the histogram"};
  const float part = old_span / static_cast<float>(kBins * kParts);
  const float row_of_parts = static_cast<float>(kBins) * part;  // one part of each bin
  const float parts_per_bin = std::ceil(span / row_of_parts);
  const float start = std::nearbyint((state->min - low) / part);
  const float end = high + (parts_per_bin * row_of_parts - span);

  Bins counts;
  Count(batch, low, end, min, max, &counts);
  if (low == state->min && end == state->max) {
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += state->counts[i];
  } else {
    const auto parts = static_cast<int64_t>(parts_per_bin);
    // Where rounding puts the last old part beyond the last bin, which PyTorch refuses.
    const int64_t last_start = kBins * (parts - kParts);
    AddRegridded(state->counts, parts, std::min(static_cast<int64_t>(start), last_start), &counts);
  }
  state->counts = counts;
  state->min = low;
  state->max = end;
  return {};
}

void SearchHistogram(const HistogramState& state, float* min, float* max) {
  const double total = Sum(state.counts);
  Bins below;  // values up to and with each bin
  double running = 0;
  for (size_t i = 0; i < below.size(); ++i) {
    running += state.counts[i];
    below[i] = static_cast<float>(running);
  }
  double alpha = 0, beta = 1;
  int64_t first = 0, last = kBins - 1;
  int64_t l = first, r = last;  // they only move inwards, with the quantiles
  double least = HUGE_VAL;
  while (alpha < beta) {
    const double next_alpha = alpha + kQuantileStep;
    const double next_beta = beta - kQuantileStep;
    const auto low = static_cast<float>(next_alpha * total);
    const auto high = static_cast<float>(next_beta * total);
    l = std::clamp(l, first, last);
    r = std::clamp(r, first, last);
    while (l < last && below[static_cast<size_t>(l)] < low) ++l;
    while (r > first && below[static_cast<size_t>(r)] > high) --r;
    int64_t next_first = first, next_last = last;
    if (l - first > last - r) {
      next_first = l;
      alpha = next_alpha;
    } else {
      next_last = r;
      beta = next_beta;
    }
    if (next_first == first && next_last == last) continue;
    const double error = ErrorOf(state, next_first, next_last);
    if (error > least) break;
    least = error;
    first = next_first;
    last = next_last;
  }
  const float width = (state.max - state.min) / static_cast<float>(kBins);
  *min = state.min + width * static_cast<float>(first);
  *max = state.min + width * static_cast<float>(last + 1);
}

}  // namespace qualm::kernels::internal
