// SPDX-License-Identifier: Apache-2.0
// Integer sums of linear and of convolutions for the fast form: one int64 dot product per output,
// zero points taken out with row and column sums afterwards (the definition multiplies the
// differences instead).
#include "oracles/exact/sums.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/status.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/reduction.h"

namespace qualm::exact {
namespace {

// The number of terms that int32 can sum, so that the inner loop vectorizes: with x of bytes, and
// with x of 16 bits.
constexpr int64_t kBlock = 32768;
static_assert(kBlock * 255 * 255 <= INT32_MAX);
constexpr int64_t kWideBlock = 256;
static_assert(kWideBlock * 32768 * 255 <= INT32_MAX);
int64_t BlockOf(const Case& c) { return IsWideCode(c.x.dtype()) ? kWideBlock : kBlock; }

int64_t Dot(const int16_t* x, const int16_t* w, int64_t k, int64_t block) {
  int64_t total = 0;
  for (int64_t start = 0; start < k; start += block) {
    const int64_t end = std::min(k, start + block);
    int32_t sum = 0;
    for (int64_t i = start; i < end; ++i) sum += int32_t{x[i]} * int32_t{w[i]};
    total += sum;
  }
  return total;
}

// Sums of `rows` consecutive stretches of `length` codes.
std::vector<int64_t> StretchSums(const std::vector<int16_t>& codes, int64_t rows, int64_t length) {
  std::vector<int64_t> sums(static_cast<size_t>(rows));
  const int16_t* row = codes.data();
  for (int64_t& sum : sums) {
    for (int64_t start = 0; start < length; start += kBlock) {
      const int64_t end = std::min(length, start + kBlock);
      sum += std::accumulate(row + start, row + end, int32_t{0});  // of 2^15 times 2^15
    }
    row += length;
  }
  return sums;
}

// Of x less its offset.
std::vector<int64_t> RawSums(const Case& c, const Reduction& lists) {
  const int64_t block = BlockOf(c);
  std::vector<int64_t> sums(static_cast<size_t>(c.M * c.N));
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      sums[static_cast<size_t>(m * c.N + n)] =
          Dot(lists.x.data() + lists.x_row(m, n) * c.K, lists.w.data() + n * c.K, c.K, block);
    }
  }
  return sums;
}

// The sums of a case before zero points and bias: all numbers that depend only on x, w and the
// window.
struct Parts {
  Reduction layout;               // without its lists
  std::vector<int64_t> raw;       // [M*N]
  std::vector<int64_t> x_sums;    // of each row of x
  std::vector<int64_t> w_sums;    // of each channel
  std::vector<int64_t> tap_sums;  // of each channel and tap, where there are taps
};

// Taps in the padding have x = 0 here, so they add nothing to the sums of x and of x*w.
Parts Compute(const Case& c) {
  Parts parts;
  parts.layout = ReductionOf(c, 0);
  Reduction& lists = parts.layout;
  parts.raw = RawSums(c, lists);
  parts.x_sums = StretchSums(lists.x, c.M * lists.groups, c.K);
  parts.w_sums = StretchSums(lists.w, c.N, c.K);
  if (lists.taps != 0) parts.tap_sums = StretchSums(lists.w, c.N * lists.taps, c.K / lists.taps);
  if (const int64_t offset = lists.x_offset; offset != 0) {
    for (size_t i = 0; i < parts.raw.size(); ++i)
      parts.raw[i] += offset * parts.w_sums[i % static_cast<size_t>(c.N)];
    for (int64_t& sum : parts.x_sums) sum += offset * c.K;
  }
  lists.x = {};
  lists.w = {};
  return parts;
}

// A case is drawn, judged and measured with the same sums, and properties mostly change what the
// sums do not depend on (scales, zero points, bias, clamp). So each thread keeps its last few.
const Parts& PartsOf(const Case& c) {
  struct Known {
    Window window;  // with the shapes of x and w it says all that the sums depend on
    Tensor x, w;
    Parts parts;
  };
  constexpr size_t kKept = 4;
  constexpr int64_t kLargest = 1 << 18;  // codes and sums of a case that is kept
  thread_local std::vector<Known> known;
  thread_local size_t oldest = 0;
  thread_local Parts large;
  if (c.x.size() + c.w.size() + c.M * c.N > kLargest) return large = Compute(c);
  for (const Known& one : known) {
    if (one.window == c.window && one.x == c.x && one.w == c.w) return one.parts;
  }
  Known fresh{c.window, c.x, c.w, Compute(c)};
  if (known.size() < kKept) return known.emplace_back(std::move(fresh)).parts;
  oldest = (oldest + 1) % kKept;
  known[oldest] = std::move(fresh);
  return known[oldest].parts;
}

// The number of terms of an output that are not padding, and the sum of their weights per channel.
class RealTerms {
 public:
  RealTerms(const Case& c, const Parts& parts) : c_(c), parts_(parts) {}

  // Of output row m; the sums are valid until the next call.
  struct Row {
    int64_t count = 0;
    const std::vector<int64_t>& w_sums;
  };
  Row At(int64_t m) {
    const int64_t all = parts_.layout.taps;
    const uint8_t* inside = parts_.layout.inside.data() + m * all;
    const int64_t taps = std::accumulate(inside, inside + all, int64_t{0});
    if (taps == all) return {c_.K, parts_.w_sums};  // linear, and windows inside the image
    inside_sums_.assign(static_cast<size_t>(c_.N), 0);
    const int64_t* sum = parts_.tap_sums.data();
    for (int64_t& total : inside_sums_) {
      for (int64_t t = 0; t < all; ++t) total += inside[t] != 0 ? sum[t] : 0;
      sum += all;
    }
    return {taps * (c_.K / all), inside_sums_};
  }

 private:
  const Case& c_;
  const Parts& parts_;
  std::vector<int64_t> inside_sums_;
};

// sum (x-zx)(w-zw) = sum xw - zx sum w - zw sum x + count zx zw, in integers of type T.
template <class T>
void Correct(const Case& c, const Parts& parts, std::vector<__int128>& sums) {
  RealTerms terms(c, parts);
  const T zx = c.x_q.zero_point_at(0);
  const size_t one_zw = c.w_q.zero_point.size() == 1 ? 0 : 1;
  size_t i = 0;
  for (int64_t m = 0; m < c.M; ++m) {
    const RealTerms::Row row = terms.At(m);
    for (int64_t n = 0; n < c.N; ++n, ++i) {
      const auto channel = static_cast<size_t>(n);
      const T zw = c.w_q.zero_point[channel * one_zw];
      T sum = parts.raw[i] - zx * row.w_sums[channel] -
              zw * parts.x_sums[static_cast<size_t>(parts.layout.x_row(m, n))] +
              row.count * zx * zw;
      if (c.bias_i32) sum += (*c.bias_i32)[channel];
      sums[i] = sum;
    }
  }
}

// The same for linear, whose terms are those of every row. What a channel adds to all of its sums
// is computed once, and with one zero point for all weights the inner loop only adds.
void CorrectLinear(const Case& c, const Parts& parts, std::vector<__int128>& sums) {
  const auto channels = static_cast<size_t>(c.N);
  const std::vector<int32_t>& zw = c.w_q.zero_point;
  const int64_t zx = c.x_q.zero_point_at(0);
  std::vector<int64_t> added(channels);
  for (size_t n = 0; n < channels; ++n) {
    added[n] = c.K * zx * zw[zw.size() == 1 ? 0 : n] - zx * parts.w_sums[n];
    if (c.bias_i32) added[n] += (*c.bias_i32)[n];
  }
  const int64_t* raw = parts.raw.data();
  __int128* sum = sums.data();
  for (int64_t m = 0; m < c.M; ++m, raw += channels, sum += channels) {
    const int64_t x_sum = parts.x_sums[static_cast<size_t>(m)];
    if (zw.size() == 1) {
      const int64_t of_row = zw[0] * x_sum;
      for (size_t n = 0; n < channels; ++n) sum[n] = raw[n] + added[n] - of_row;
    } else {
      for (size_t n = 0; n < channels; ++n) sum[n] = raw[n] + added[n] - zw[n] * x_sum;
    }
  }
}

}  // namespace

std::vector<int64_t> RawSums(const Case& c) { return PartsOf(c).raw; }

std::vector<__int128> CorrectedSums(const Case& c) {
  QUALM_CHECK(c.w_block == 0);
  const Parts& parts = PartsOf(c);
  std::vector<__int128> sums(parts.raw.size());
  // With these bounds every term below is less than 2^61, and so are their sums.
  constexpr int64_t kNarrow = int64_t{1} << 20;
  const auto narrow = [](int32_t zero) { return zero > -kNarrow && zero < kNarrow; };
  if (c.K < kNarrow && narrow(c.x_q.zero_point_at(0)) &&
      std::ranges::all_of(c.w_q.zero_point, narrow)) {
    if (c.op == Op::kLinear) {
      CorrectLinear(c, parts, sums);
    } else {
      Correct<int64_t>(c, parts, sums);
    }
  } else {
    Correct<__int128>(c, parts, sums);
  }
  return sums;
}

std::vector<__int128> BlockSums(const Case& c) {
  QUALM_CHECK(c.w_block > 0);
  const Reduction lists = ReductionOf(c, 0);
  const int64_t blocks = RowBlocks(c), block_of_sum = BlockOf(c);
  std::vector<__int128> sums;
  sums.reserve(static_cast<size_t>(c.M * c.N * blocks));
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = block * c.w_block, count = std::min<int64_t>(c.w_block, c.K - first);
        const int16_t* const x = lists.x.data() + m * c.K + first;
        const int16_t* const w = lists.w.data() + n * c.K + first;
        const __int128 zx = c.x_q.zero_point[XEntry(c, m, first)] - int64_t{lists.x_offset};
        const __int128 zw = c.w_q.zero_point[static_cast<size_t>(n * blocks + block)];
        const int64_t x_sum = std::accumulate(x, x + count, int64_t{0});
        const int64_t w_sum = std::accumulate(w, w + count, int64_t{0});
        sums.push_back(Dot(x, w, count, block_of_sum) - zx * w_sum - zw * x_sum + count * zx * zw);
      }
    }
  }
  return sums;
}

FloatBlockSums SumsOfFloats(const Case& c, Signs signs) {
  QUALM_CHECK(HasFloatX(c));
  const bool dropped = signs == Signs::kDropped;
  std::vector<Dyadic> x;
  int lowest = INT_MAX, highest = INT_MIN;
  for (const float value : c.x.as<float>()) {
    const Dyadic& number = x.emplace_back(Decode(dropped ? std::abs(value) : value));
    if (number.mantissa == 0) continue;
    lowest = std::min(lowest, number.exponent);
    highest = std::max(highest, number.exponent);
  }
  FloatBlockSums sums;
  if (lowest <= highest) {
    sums.unit = lowest;
    sums.levels = (highest - lowest) / FloatBlockSums::kLevelBits + 1;
  }
  const int64_t blocks = RowBlocks(c), size = c.w_block == 0 ? c.K : c.w_block;
  std::vector<int64_t> w(static_cast<size_t>(c.N * c.K));
  for (int64_t i = 0; i < c.N * c.K; ++i) {
    const size_t entry = WEntry(c, i / c.K, i % c.K);
    const int64_t difference = int64_t{c.w.IntAt(i)} - c.w_q.zero_point[entry];
    w[static_cast<size_t>(i)] = dropped ? std::abs(difference) : difference;
  }
  sums.values.assign(static_cast<size_t>(c.M * c.N * blocks * sums.levels), 0);
  for (int64_t i = 0; i < c.M * c.N; ++i) {
    const Dyadic* const row = x.data() + i / c.N * c.K;
    const int64_t* const channel = w.data() + i % c.N * c.K;
    for (int64_t k = 0; k < c.K; ++k) {
      if (row[k].mantissa == 0) continue;
      const int up = row[k].exponent - sums.unit;
      const int64_t level = up / FloatBlockSums::kLevelBits;
      const int64_t integer = row[k].mantissa * (int64_t{1} << up % FloatBlockSums::kLevelBits);
      sums.values[static_cast<size_t>((i * blocks + k / size) * sums.levels + level)] +=
          __int128{integer} * channel[k];
    }
  }
  return sums;
}

void SumsOf(const Case& c, Integers* integers) {
  if (HasFloatX(c)) {
    FloatBlockSums sums = SumsOfFloats(c);
    integers->values = std::move(sums.values);
    integers->unit = sums.unit;
    integers->levels = sums.levels;
    return;
  }
  integers->values = c.w_block == 0 ? CorrectedSums(c) : BlockSums(c);
}

Line LineOfSum(const Case& c, int64_t n) {
  Line line = Scale(c.x_q.scale_at(0), c.w_q.scale_at(n));
  if (c.bias) line = Plus(line, (*c.bias)[static_cast<size_t>(n)]);
  return c.out_dtype == DType::kF32 ? line : Over(line, c.out_q.scale_at(0));
}

}  // namespace qualm::exact
