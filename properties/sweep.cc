// SPDX-License-Identifier: Apache-2.0
#include "properties/sweep.h"

#include <algorithm>
#include <utility>

#include "core/slice.h"
#include "core/status.h"
#include "oracles/exact/exact.h"

namespace qualm::sweep {
namespace {

// Bounds on twice the real value of a*x+b at one code; a missing bound is no constraint.
struct Segment {
  int64_t x = 0;
  std::optional<int64_t> low2;
  std::optional<int64_t> high2;
};

// Code as a u8*s8 pair kernel sees it.
int32_t KernelCode(const Case& base, int32_t code) {
  return base.x.dtype() == DType::kS8 ? code + 128 : code;
}

int64_t LossAt(const headroom::Kink& kink, int32_t kernel_code) {
  const int64_t sum = int64_t{kink.weight_sum} * kernel_code;
  return sum - std::clamp<int64_t>(sum, INT16_MIN, INT16_MAX);
}

// Outputs of channel `n` when the pairs of the kinks in `active` saturate and all else is exact.
std::vector<int32_t> Predict(const Case& expanded, const std::vector<__int128>& sums, int64_t n,
                             const std::vector<int32_t>& codes, const Case& base,
                             const std::vector<headroom::Kink>& active) {
  std::vector<__int128> moved = sums;
  for (size_t row = 0; row < codes.size(); ++row) {
    for (const headroom::Kink& kink : active) {
      moved[row * static_cast<size_t>(base.N) + static_cast<size_t>(n)] -=
          LossAt(kink, KernelCode(base, codes[row]));
    }
  }
  const Tensor y = exact::EvaluateFromSums(expanded, moved);
  std::vector<int32_t> column(codes.size());
  for (size_t row = 0; row < codes.size(); ++row) {
    column[row] = y.IntAt(static_cast<int64_t>(row) * base.N + n);
  }
  return column;
}

void ReportKinks(const Case& base, const Case& expanded, const std::vector<__int128>& sums,
                 const std::vector<int32_t>& codes, Curve& curve) {
  const std::vector<headroom::Kink> kinks = headroom::HasPairs(base)
                                                ? headroom::PredictKinks(base, curve.n)
                                                : std::vector<headroom::Kink>{};
  std::vector<int32_t> predicted = curve.exact;
  if (!kinks.empty()) predicted = Predict(expanded, sums, curve.n, codes, base, kinks);
  for (size_t i = 0; i < kinks.size(); ++i) {
    std::vector<headroom::Kink> others = kinks;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const bool shows = predicted != Predict(expanded, sums, curve.n, codes, base, others);
    curve.kinks.push_back({kinks[i], shows});
  }
  for (size_t row = 0; row < codes.size(); ++row) {
    if (curve.y[row] == curve.exact[row]) continue;
    const bool begun = std::any_of(kinks.begin(), kinks.end(), [&](const headroom::Kink& kink) {
      return LossAt(kink, KernelCode(base, codes[row])) != 0;
    });
    // A convention may round differently by one code; a kink moves the curve as predicted.
    const bool close = std::abs(curve.y[row] - predicted[row]) <= 1;
    if (!begun || !close) curve.unexplained.push_back(codes[row]);
  }
}

}  // namespace

Case OneRow(const Case& c) {
  if (!IsConv(c.op) || c.M == 0) return ProblemOf(c);
  int64_t best = 0;
  int64_t most = -1;
  for (int64_t m = 0; m < c.M / c.window.batch; ++m) {
    const std::vector<Tap> taps = TapsOf(c.window, m);
    const auto inside = static_cast<int64_t>(
        std::count_if(taps.begin(), taps.end(), [](const Tap& tap) { return tap.x_row >= 0; }));
    if (inside > most) {
      most = inside;
      best = m;
    }
  }
  return slice::Pixel(c, best);
}

Case Expand(const Case& base, const std::vector<int32_t>& codes) {
  QUALM_CHECK(HasSums(base));  // so x holds codes
  Case expanded = ProblemOf(base);
  const auto count = static_cast<int64_t>(codes.size());
  if (IsConv(base.op)) {
    Window& v = expanded.window;
    QUALM_CHECK_EQ(v.out_h() * v.out_w(), 1);
    v.batch = count;
    expanded.x = Tensor(base.x.dtype(), {count, v.in_h, v.in_w, v.in_c});
    DeriveSizes(&expanded);
  } else {
    expanded.M = count;
    expanded.x = Tensor(base.x.dtype(), {count, base.K});
  }
  const auto row = count == 0 ? 0 : static_cast<size_t>(expanded.x.size() / count);
  const size_t bytes = SizeOf(base.x.dtype());
  uint8_t* to = expanded.x.bytes().data();
  for (const int32_t code : codes) {
    QUALM_CHECK(code >= RangeOf(base.x.dtype()).min && code <= RangeOf(base.x.dtype()).max);
    for (size_t i = 0; i < row * bytes; ++i)
      *to++ = static_cast<uint8_t>(static_cast<uint32_t>(code) >> (i % bytes * 8));
  }
  return expanded;
}

std::vector<int32_t> Codes(const Case& base, int32_t from, int32_t to, int32_t step) {
  const CodeRange range = RangeOf(base.x.dtype());
  if (from < range.min || to > range.max || from > to || step < 1) {
    throw InputError("--from/--to/--step: expected " + std::to_string(range.min) +
                     " <= from <= to <= " + std::to_string(range.max) + " and step >= 1");
  }
  std::vector<int32_t> codes;
  for (int64_t code = from; code <= to; code += step) codes.push_back(static_cast<int32_t>(code));
  if (codes.size() < 3) {
    throw InputError("--from/--to/--step: leave " + std::to_string(codes.size()) +
                     " codes, expected at least 3: fewer never bend");
  }
  return codes;
}

std::vector<int32_t> Codes(const Case& base) {
  const CodeRange range = RangeOf(base.x.dtype());
  return Codes(base, range.min, range.max, StepOf(base.x.dtype()));
}

namespace {

// Eliminating b leaves, for every pair (i, j), low_i - high_j <= a (x_i - x_j). Start at some slope
// and move to the bound that the most violated pair demands: bounds only tighten in one direction,
// so a demand in the other direction proves that there is no slope. Slopes are exact fractions.
bool HasStabbingLine(const std::vector<Segment>& segments) {
  int64_t p = 0, q = 1;  // twice the slope, p / q with q > 0
  int moved = 0;         // sign of the moves so far
  while (true) {
    const Segment* highest = nullptr;  // maximises low - slope*x
    const Segment* lowest = nullptr;   // minimises high - slope*x
    int64_t highest_value = 0, lowest_value = 0;
    for (const Segment& segment : segments) {
      if (segment.low2) {
        const int64_t value = *segment.low2 * q - p * segment.x;
        if (highest == nullptr || value > highest_value) {
          highest = &segment;
          highest_value = value;
        }
      }
      if (segment.high2) {
        const int64_t value = *segment.high2 * q - p * segment.x;
        if (lowest == nullptr || value < lowest_value) {
          lowest = &segment;
          lowest_value = value;
        }
      }
    }
    if (highest == nullptr || lowest == nullptr || highest_value <= lowest_value) return true;
    const int64_t run = highest->x - lowest->x;
    const int64_t rise = *highest->low2 - *lowest->high2;
    if (run == 0) return false;
    const int direction = run > 0 ? 1 : -1;  // the pair wants a larger or a smaller slope
    if (moved != 0 && direction != moved) return false;
    moved = direction;
    p = run > 0 ? rise : -rise;
    q = run > 0 ? run : -run;
  }
}

}  // namespace

bool HasStabbingLine(const std::vector<int32_t>& x, const std::vector<int32_t>& y, int32_t lo,
                     int32_t hi) {
  QUALM_CHECK_EQ(x.size(), y.size());
  constexpr int32_t kMost = 1 << 20;  // 2^34 * 2^21 fits 64 bits
  std::vector<Segment> segments;
  segments.reserve(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    QUALM_CHECK(x[i] > -kMost && x[i] < kMost);
    Segment segment{x[i], std::nullopt, std::nullopt};
    if (y[i] > lo) segment.low2 = 2 * int64_t{y[i]} - 1;
    if (y[i] < hi) segment.high2 = 2 * int64_t{y[i]} + 1;
    segments.push_back(segment);
  }
  return HasStabbingLine(segments);
}

namespace {

// sum(w - zw) of channel n, over the taps in the image.
__int128 SumOfWeights(const Case& base, int64_t n) {
  std::vector<Tap> taps{{0, 0, 0}};
  if (IsConv(base.op)) taps = TapsOf(base.window, 0);
  const int64_t depth = base.K / static_cast<int64_t>(taps.size());
  __int128 sum = 0;
  for (size_t tap = 0; tap < taps.size(); ++tap) {
    if (taps[tap].x_row < 0) continue;
    const int64_t from = n * base.K + static_cast<int64_t>(tap) * depth;
    for (int64_t k = from; k < from + depth; ++k) {
      sum += int64_t{base.w.IntAt(k)} - base.w_q.zero_point_at(n);
    }
  }
  return sum;
}

}  // namespace

int Direction(const Case& base, int64_t n) {
  const __int128 sum = SumOfWeights(base, n);
  return sum > 0 ? 1 : sum < 0 ? -1 : 0;
}

Tensor ExactCurve(const Case& base, int64_t n, const std::vector<int32_t>& codes) {
  Case channel = slice::Channels(base, {&n, 1});
  channel.M = static_cast<int64_t>(codes.size());
  if (IsConv(channel.op)) channel.window.batch = channel.M;
  const __int128 weights = SumOfWeights(base, n);
  const int64_t bias = base.bias_i32 ? (*base.bias_i32)[static_cast<size_t>(n)] : 0;
  std::vector<__int128> sums;
  sums.reserve(codes.size());
  for (const int32_t code : codes)
    sums.push_back((int64_t{code} - base.x_q.zero_point_at(0)) * weights + bias);
  return exact::EvaluateFromSums(channel, sums);
}

Result Run(const Case& c, Subject& subject, const std::vector<int32_t>& codes) {
  if (HasFloatX(c)) throw InputError("x_dtype: sweeps know no " + std::string(kOfFloatX));
  if (!HasSums(c)) throw InputError("op: a sweep needs linear or a convolution");
  if (c.w_block != 0) throw InputError("w_block: sweeps know no " + std::string(kInBlocks));
  if (IsConv(c.op) && c.M == 0) throw InputError("M: a sweep needs an output pixel");
  const Case base = OneRow(c);
  Result result;
  result.subject = subject.name();
  result.codes = codes;
  if (IsFloat(base.out_dtype)) throw InputError("out_dtype: a sweep needs an integer output");
  const Case expanded = Expand(base, codes);
  result.skipped = subject.CannotRun(expanded);
  if (!result.skipped.empty()) return result;
  const Outcome outcome = subject.Run(expanded, RunContext{});
  if (!outcome.ok()) {
    result.skipped = std::string(Name(outcome.status)) + ": " + outcome.detail;
    return result;
  }
  const std::vector<__int128> sums = exact::CorrectedSums(expanded);
  const Tensor exact_y = exact::EvaluateFromSums(expanded, sums);
  for (int64_t n = 0; n < base.N; ++n) {
    Curve curve;
    curve.n = n;
    for (size_t row = 0; row < codes.size(); ++row) {
      const int64_t at = static_cast<int64_t>(row) * base.N + n;
      curve.y.push_back(outcome.y.IntAt(at));
      curve.exact.push_back(exact_y.IntAt(at));
    }
    const auto departure = std::ranges::mismatch(curve.y, curve.exact).in1 - curve.y.begin();
    if (departure > 0 && departure < std::ssize(codes))
      curve.last_exact_code = codes[static_cast<size_t>(departure - 1)];
    curve.direction = Direction(base, n);
    curve.monotone = !JudgeMonotone(base, n, codes, curve.y).failed();
    curve.linear = !JudgeLinear(base, n, codes, curve.y).failed();
    ReportKinks(base, expanded, sums, codes, curve);
    result.curves.push_back(std::move(curve));
  }
  return result;
}

}  // namespace qualm::sweep
