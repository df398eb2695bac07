// SPDX-License-Identifier: Apache-2.0
#include "triage/stages.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "core/slice.h"
#include "core/status.h"
#include "oracles/exact/arithmetic/fixed_point.h"
#include "oracles/exact/dynamic_linear.h"

namespace qualm::triage {
namespace {

struct Matrix {
  int64_t columns = 0;
  std::vector<int32_t> codes;
  std::vector<bool> padding;  // of an input: which codes stand for the padding; empty for none

  Codes row(int64_t at) const {
    return Codes(codes).subspan(static_cast<size_t>(at * columns), static_cast<size_t>(columns));
  }
  std::vector<int64_t> RowSums(int64_t rows) const {
    std::vector<int64_t> sums;
    for (int64_t at = 0; at < rows; ++at) {
      const Codes of = row(at);
      sums.push_back(std::accumulate(of.begin(), of.end(), int64_t{0}));
    }
    return sums;
  }
};

Matrix MatrixOf(const Case& c, const Tensor& tensor) {
  Matrix matrix{c.K, {}, {}};
  for (int64_t i = 0; i < tensor.size(); ++i) matrix.codes.push_back(tensor.IntAt(i));
  return matrix;
}

// The row and the column of the image, or of what lies around it, that a tap reads.
std::pair<int64_t, int64_t> Position(const Window& v, int64_t m, const Tap& tap) {
  return {m / v.out_w() % v.out_h() * v.stride_h - v.pad_top + tap.r * v.dilation_h,
          m % v.out_w() * v.stride_w - v.pad_left + tap.s * v.dilation_w};
}

// Row m*groups + g holds the codes that meet the weights of group g for output pixel m, in order.
Matrix InputMatrix(const Case& c, const SumSteps& steps) {
  if (c.op == Op::kLinear) return MatrixOf(c, c.x);
  const Window& v = c.window;
  const int32_t zero = c.x_q.zero_point_at(0);
  const auto padding_at = [&](int64_t m, const Tap& tap) {
    if (!steps.padding_code) return zero;
    const auto [y, x] = Position(v, m, tap);
    return steps.coded_padding == nullptr || steps.coded_padding(v, y, x) ? *steps.padding_code
                                                                          : zero;
  };
  const int64_t channels = v.in_c / v.groups;
  Matrix matrix{c.K, {}, {}};
  for (int64_t m = 0; m < c.M; ++m) {
    const std::vector<Tap> taps = TapsOf(v, m);
    for (int64_t group = 0; group < v.groups; ++group) {
      for (const Tap& tap : taps) {
        const int64_t x_row = steps.x_row ? steps.x_row(v, m, tap) : tap.x_row;
        for (int64_t i = 0; i < channels; ++i) {
          matrix.codes.push_back(x_row < 0 ? padding_at(m, tap)
                                           : c.x.IntAt(x_row + group * channels + i));
          matrix.padding.push_back(x_row < 0);
        }
      }
    }
  }
  return matrix;
}

int64_t Dot(Codes x, Codes w) {
  int64_t sum = 0;
  for (size_t k = 0; k < x.size(); ++k) sum += int64_t{x[k]} * w[k];
  return sum;
}

// The matrix as the products read it.
Matrix Read(const Matrix& matrix,
            const std::function<int64_t(int64_t row, int64_t term, int64_t columns)>& from) {
  Matrix read{matrix.columns, {}, {}};
  const auto size = static_cast<int64_t>(matrix.codes.size());
  for (int64_t i = 0; i < size; ++i) {
    const int64_t at = from(i / matrix.columns, i % matrix.columns, matrix.columns);
    read.codes.push_back(at < 0 || at >= size ? 0 : matrix.codes[static_cast<size_t>(at)]);
  }
  return read;
}

int64_t PaddingWeights(const Matrix& x, int64_t row, Codes w) {
  int64_t sum = 0;
  for (size_t k = 0; k < w.size() && !x.padding.empty(); ++k)
    sum += x.padding[static_cast<size_t>(row * x.columns) + k] ? w[k] : 0;
  return sum;
}

std::vector<__int128> SumsOf(const Case& c, const SumSteps& steps) {
  QUALM_CHECK(c.w_block == 0);
  const Matrix x = InputMatrix(c, steps), w = MatrixOf(c, c.w);
  Case read = c;
  if (steps.other_sign_in_products) read.x = OtherSign(c.x);
  Matrix left_factors = steps.other_sign_in_products ? InputMatrix(read, steps) : x;
  if (steps.read_x) left_factors = Read(left_factors, steps.read_x);
  const Matrix right_factors = steps.read_w ? Read(w, steps.read_w) : w;
  const int64_t groups = c.window.groups;
  const std::vector<int64_t> x_sums = x.RowSums(c.M * groups), w_sums = w.RowSums(c.N);
  auto first = static_cast<size_t>(std::min(steps.first_added, c.K));
  auto added = static_cast<size_t>(std::min(steps.added, c.K - static_cast<int64_t>(first)));
  if (steps.changed_terms) {
    const auto [from, to] = steps.changed_terms(c.K);
    first = static_cast<size_t>(from), added = static_cast<size_t>(to - from);
  }
  const std::vector<int32_t> ones(static_cast<size_t>(c.K), 1);
  std::vector<__int128> sums;
  sums.reserve(static_cast<size_t>(c.M * c.N));
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      const auto channel = static_cast<size_t>(n);
      const int64_t row = m * groups + (steps.group_modulo ? n % groups : n / (c.N / groups));
      const Codes left = left_factors.row(row).subspan(first, added);
      const Codes right = right_factors.row(n).subspan(first, added);
      SumTerms terms;
      terms.products = steps.add ? steps.add(read.x.dtype(), left, right) : Dot(left, right);
      if (steps.changed_terms)
        terms.products += Dot(x.row(row).first(first), w.row(n).first(first)) +
                          Dot(x.row(row).subspan(first + added), w.row(n).subspan(first + added));
      terms.x_sum = x_sums[static_cast<size_t>(row)];
      terms.w_sum = w_sums[channel];
      terms.count = c.K;
      terms.zx = c.x_q.zero_point_at(0);
      terms.zw = c.w_q.zero_point_at(n);
      if (c.bias_i32) terms.bias = (*c.bias_i32)[channel];
      if (steps.edit_terms || steps.edit_bias || steps.add_differences) {
        terms.x_dtype = c.x.dtype(), terms.w_dtype = c.w.dtype();
        terms.x = x.row(row), terms.w = w.row(n);
        terms.x_sums = steps.row_sums.empty() ? x_sums : steps.row_sums, terms.w_sums = w_sums;
        terms.row = steps.first_row + row, terms.channel = n;
        terms.padding_w_sum = PaddingWeights(x, row, terms.w);
        terms.padding_taps = PaddingWeights(x, row, ones);
      }
      if (steps.add_differences) {
        terms.products = static_cast<int64_t>(steps.add_differences(terms));
        terms.x_sum = terms.w_sum = terms.count = 0;
      }
      if (steps.edit_terms) steps.edit_terms(terms);
      if (steps.edit_bias) steps.edit_bias(terms);
      sums.push_back(terms.corrected());
    }
  }
  return sums;
}

std::vector<__int128> MovedBlockSums(const Stages& stages) {
  const Case& c = stages.c;
  const int64_t blocks = RowBlocks(c);
  const int64_t moving = stages.moves_whole_pairs ? blocks - blocks % 2 : blocks;
  const Matrix x = MatrixOf(c, c.x), w = MatrixOf(c, c.w);
  std::vector<__int128> sums = exact::BlockSums(c);
  auto sum = sums.begin();
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n, sum += blocks) {
      const auto alike = [&](int64_t a, int64_t b) {
        const auto scale = [&](int64_t at) {
          return static_cast<double>(c.w_q.scale[WEntry(c, n, at)]) * c.x_q.scale[XEntry(c, m, at)];
        };
        return scale(a) == scale(b) &&
               c.w_q.zero_point[WEntry(c, n, a)] == c.w_q.zero_point[WEntry(c, n, b)];
      };
      for (int64_t k = 0, end; k < std::min(c.K, moving * c.w_block); k = end) {
        end = k + c.w_block;
        while (stages.joins_blocks && end < c.K && alike(k, end)) end += c.w_block;
        const auto first = static_cast<size_t>(k);
        const auto count = static_cast<size_t>(std::min(end, c.K) - k);
        sum[k / c.w_block] +=
            stages.block_moved(x.row(m).subspan(first, count), w.row(n).subspan(first, count),
                               c.w_q.zero_point[WEntry(c, n, k)]);
      }
    }
  }
  return sums;
}

PoolWindow WindowUnder(const Case& c, int64_t m, int64_t n) {
  const Window& v = c.window;
  PoolWindow window;
  window.positions = c.K;
  window.height = v.kernel_h, window.width = v.kernel_w;
  window.dtype = c.x.dtype();
  window.zero_point = c.x_q.zero_point_at(0);
  for (const Tap& tap : TapsOf(v, m)) {
    const auto [y, x] = Position(v, m, tap);
    window.with_padding += y < v.in_h + v.pad_bottom && x < v.in_w + v.pad_right ? 1 : 0;
    window.not_before += y >= 0 && x >= 0 ? 1 : 0;
    if (tap.x_row < 0) continue;
    const int32_t code = c.x.IntAt(tap.x_row + n);
    window.sum += code;
    window.codes.push_back(code);
    window.largest = std::max<int64_t>(window.largest, code);
    const auto otherwise = [&](int64_t of) {  // in the order of the other type
      return c.x.dtype() == DType::kS8 ? of & 0xFF : of ^ 0x80;
    };
    if (window.inside == 0 || otherwise(code) > otherwise(window.largest_of_other_sign))
      window.largest_of_other_sign = code;
    ++window.inside;
  }
  window.terms = window.inside;
  window.divisor = v.count_include_pad ? window.with_padding : window.inside;
  return window;
}

int32_t LargestOf(const Case& c, int64_t m, const SoftmaxHooks& hooks) {
  int32_t largest = hooks.largest_of_type ? RangeOf(c.x.dtype()).max : hooks.least_largest;
  const int64_t left_out = hooks.largest_of_blocks == 0 ? 0 : c.N % hooks.largest_of_blocks;
  for (int64_t n = 0; n < c.N - left_out; ++n) largest = std::max(largest, c.x.IntAt(m * c.N + n));
  return largest;
}

struct Range {
  double low = 0, high = 0;
};

Range AveragedInDouble(const Case& c, int64_t column) {
  const double share = c.observer.averaging_constant;
  Range seen;
  for (int64_t b = 0; b < c.x.shape()[0]; ++b) {
    const auto [low, high] = std::ranges::minmax(exact::observer::Values(c, b, column));
    if (b == 0) seen = {low, high};
    seen.low += share * (low - seen.low);
    seen.high += share * (high - seen.high);
  }
  return seen;
}

// The range of the finite values, which may leave 0 out.
exact::ObservedRange PlainRange(std::span<const float> values) {
  std::vector<float> finite;
  std::ranges::copy_if(values, std::back_inserter(finite),
                       [](float x) { return std::isfinite(x); });
  if (finite.empty()) return {};
  const auto [min, max] = std::ranges::minmax(finite);
  return {min, max};
}

}  // namespace

Factors FactorsOf(const RealOutput& o) {
  const exact::Scaled scaled = o.outputs.ScaledAt(o.index / o.c.N, o.channel());
  const exact::Line& line = scaled.line;
  const std::vector<int64_t>& divisors = o.outputs.integers().counts;
  Factors f;
  f.sum = static_cast<double>(scaled.integer);
  f.multiplier = std::ldexp(static_cast<double>(line.gain), line.gain_exponent);
  f.offset = std::ldexp(static_cast<double>(line.offset), line.offset_exponent);
  if (!divisors.empty())
    f.divisor = static_cast<double>(divisors[static_cast<size_t>(o.index / o.c.N)]);
  f.y = std::ldexp(static_cast<double>(line.divisor), line.divisor_exponent) / f.divisor;
  return f;
}

exact::Integers Stages::IntegersOfStages() const {
  exact::Integers integers;
  // Another cause may have left no term, and with it no block.
  if (block_moved != nullptr && c.w_block != 0) {
    integers.values = MovedBlockSums(*this);
  } else if (sums) {
    integers.values = SumsOf(c, *sums);
  } else if (pool != PoolHooks{}) {
    for (int64_t i = 0; i < c.M * c.N; ++i) {
      PoolWindow window = WindowUnder(c, i / c.N, i % c.N);
      if (pool.under_window) pool.under_window(window);
      if (pool.window_padding) pool.window_padding(window);
      const int64_t zx = window.zero_point;
      integers.values.push_back(c.op == Op::kMaxPool
                                    ? __int128{window.largest - zx}
                                    : window.sum - static_cast<__int128>(window.terms) * zx);
      if (c.op != Op::kMaxPool && i % c.N == 0) integers.counts.push_back(window.divisor);
    }
  } else if (softmax != SoftmaxHooks{}) {
    std::array<std::optional<uint32_t>, 256> known;
    for (int64_t m = 0; m < c.M; ++m) {
      const int32_t largest = LargestOf(c, m, softmax);
      int64_t sum = 0;
      for (int64_t n = 0; n < c.N; ++n) {
        int32_t below = std::clamp(largest - c.x.IntAt(m * c.N + n), 0, softmax.most_distance);
        if (softmax.distance_wraps && below > 128) below = 0;
        std::optional<uint32_t>& t = known[static_cast<size_t>(below)];
        if (!t) t = exact::SoftmaxNumerator(c.x_q.scale_at(0), below, c.N);
        integers.values.push_back(*t);
        if (softmax.summed_block != 0 && n % softmax.summed_block == 0) sum = 0;
        const bool left_out = softmax.whole_blocks != 0 && n >= c.N - c.N % softmax.whole_blocks;
        sum += left_out ? 0 : *t;
      }
      // Without the row's own largest code every numerator that is added may be 0.
      integers.counts.push_back(std::max<int64_t>(sum, 1));
    }
  } else {
    integers = exact::IntegersOf(c);
  }
  for (__int128& value : integers.values) value += added;
  if (integer) {
    for (__int128& value : integers.values) value = integer(value);
  }
  return integers;
}

Tensor Stages::CodesOf(const exact::Integers& integers) const {
  Tensor y(c.out_dtype, c.output_shape());
  const exact::Outputs outputs(c, integers);
  for (int64_t i = 0; i < y.size(); ++i) {
    const RealOutput output{c, outputs, i, outputs.CodeAt(i / c.N, i % c.N)};
    RoundedOutput code = codes.round ? codes.round(output) : RoundedOutput{output.rounded()};
    if (codes.convert) code.value = codes.convert(code.value);
    // 0 times a reciprocal that overflowed.
    if (std::isnan(code.value)) code = RoundedOutput{};
    auto lo = static_cast<double>(output.exact.lo), hi = static_cast<double>(c.out_max);
    if (codes.bounds_first) {
      const double low = codes.relu_first ? lo : c.relu ? std::max(c.out_min, 0) : c.out_min;
      code.value = std::min(std::max(code.value, low), hi);
      const CodeRange range = RangeOf(c.out_dtype);
      lo = range.min, hi = range.max;
    }
    if (!code.has_zero_point) code.value += output.zero_point();
    if (codes.narrow) code.value = codes.narrow(c.out_dtype, code.value);
    code.value = std::min(std::max(code.value, lo), hi);
    y.SetInt(i, static_cast<int32_t>(codes.stored ? codes.stored(code.value) : code.value));
  }
  return y;
}

Tensor Stages::FloatsOf(const exact::Integers& integers) const {
  Tensor y(DType::kF32, c.output_shape());
  for (int64_t i = 0; i < y.size(); ++i) {
    const float value = real(c, i % c.N, integers.values[static_cast<size_t>(i)]);
    y.as<float>()[static_cast<size_t>(i)] = c.relu && !(value > 0) ? 0.0f : value;
  }
  return y;
}

// Products of two scales and a sum fit a double unless the scales are wider than float16.
Tensor Stages::FloatsOfBlocks() const {
  Tensor y(DType::kF32, c.output_shape());
  const std::vector<__int128> of_blocks = exact::BlockSums(c);
  auto of_block = of_blocks.begin();
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t m = i / c.N, n = i % c.N;
    double sum = 0;
    for (int64_t k = 0; k < c.K; k += c.w_block) {
      const double scale = static_cast<double>(c.w_q.scale[WEntry(c, n, k)]) *
                           static_cast<double>(c.x_q.scale[XEntry(c, m, k)]);
      sum = behind_block(sum + scale * static_cast<double>(*of_block++));
    }
    if (c.bias) sum += static_cast<double>((*c.bias)[static_cast<size_t>(n)]);
    y.as<float>()[static_cast<size_t>(i)] = c.relu && !(sum > 0) ? 0.0f : static_cast<float>(sum);
  }
  return y;
}

void Stages::ChooseZeroPoint(double low, double high, exact::ChosenQParams* chosen) const {
  if (!choice.round_zero_point && !choice.any_zero_point && !choice.zero_point_from_0 &&
      !choice.lowest_code_is_scaled)
    return;
  if (c.observer.symmetric || IsMx(c.rule)) return;
  const CodeRange codes_of = exact::observer::Codes(c.observer);
  double first = static_cast<float>(low / static_cast<double>(chosen->scale));
  if (c.rule == QParamsRule::kAten) {
    double scale = (high - low) / (codes_of.max - codes_of.min);
    if (const auto small = static_cast<float>(scale);
        small != chosen->scale) {  // ATen amplifies it
      low = static_cast<float>(low) * (chosen->scale / small);
      scale = chosen->scale;
    }
    first = low / scale;
  }
  const double rounded =
      choice.round_zero_point ? choice.round_zero_point(first) : std::nearbyint(first);
  double zero_point = (choice.zero_point_from_0 ? 0 : codes_of.min) - rounded;
  if (choice.lowest_code_is_scaled) {
    zero_point = std::nearbyint(
        static_cast<float>((codes_of.min - low) / static_cast<double>(chosen->scale)));
  }
  if (choice.any_zero_point ? !(std::abs(zero_point) < 0x1p31) : std::isnan(first)) return;
  chosen->zero_point = static_cast<int32_t>(
      choice.any_zero_point ? zero_point
                            : std::clamp<double>(zero_point, codes_of.min, codes_of.max));
}

Tensor Stages::QParamsOf() const {
  const std::vector<exact::ObservedRange> ranges = exact::ObservedRanges(c);
  Tensor y(DType::kF32, {2, ChosenCount(c)});
  for (size_t column = 0; column < ranges.size(); ++column) {
    Range range{ranges[column].min, ranges[column].max};
    if (choice.averages_in_double) range = AveragedInDouble(c, static_cast<int64_t>(column));
    if (!choice.range_without_zero) range = {std::min(range.low, 0.0), std::max(range.high, 0.0)};
    exact::ChosenQParams chosen =
        c.rule == QParamsRule::kObserver
            ? exact::FromRange(c.observer, range.low, range.high, choice.least_scale)
            : exact::ChosenFor(c, {static_cast<float>(range.low), static_cast<float>(range.high)});
    if (choice.over_half_the_codes) {
      const CodeRange codes_of = exact::observer::Codes(c.observer);
      const double half = (codes_of.max - codes_of.min + 1) / 2.0;
      chosen.scale = static_cast<float>(std::max(-range.low, range.high) / half);
    }
    ChooseZeroPoint(range.low, range.high, &chosen);
    if (choice.equal_values_by_scale_1 && ranges[column].min == ranges[column].max) {
      const CodeRange all = exact::observer::Codes(c.observer);
      chosen.scale = 1;
      chosen.zero_point = static_cast<int32_t>(
          std::clamp<double>(all.min - std::nearbyint(range.low), all.min, all.max));
    }
    if (choice.equal_values_are_zeros && ranges[column].min == ranges[column].max) chosen = {1, 0};
    y.as<float>()[column] = chosen.scale;
    y.as<float>()[ranges.size() + column] = static_cast<float>(chosen.zero_point);
  }
  if (!c.codes) return y;
  Stages quantize;
  quantize.c = slice::BlocksAsChannels(exact::ExactCodesCaseOf(c, y));
  quantize.codes = codes;
  return exact::WithCodes(c, y, quantize.Evaluate());
}

Tensor Stages::DynamicOf() const {
  Tensor y(DType::kF32, c.output_shape());
  const int64_t rows = RowsShareQParams(c) ? c.M : 1;
  std::optional<exact::ChosenQParams> first;
  std::vector<Case> parts;  // the sums of the rows that share a choice
  Stages linear = *this;
  linear.codes = {};
  for (int64_t m = 0; m < c.M; m += rows) {
    std::vector<float> values;
    const bool in_rows = choice.whole_blocks != 0 && !choice.blocks_of_all;
    const int64_t looked_at = in_rows ? c.K - c.K % choice.whole_blocks : c.K;
    for (int64_t row = m; row < m + rows; ++row) {
      const auto all = c.x.as<float>().subspan(static_cast<size_t>(row * c.K));
      values.insert(values.end(), all.begin(), all.begin() + looked_at);
    }
    if (choice.blocks_of_all)
      values.resize(values.size() - values.size() % static_cast<size_t>(choice.whole_blocks));
    const exact::ObservedRange range =
        choice.range_without_zero ? PlainRange(values) : exact::FiniteRange(values);
    exact::ChosenQParams chosen = exact::ChosenFor(c, range);
    ChooseZeroPoint(range.min, range.max, &chosen);
    if (!first) first = chosen;
    if (choice.choice_of_row_0) chosen = *first;
    Stages quantize;
    quantize.c = exact::QuantizeOf(c, m, rows, chosen);
    quantize.codes = codes;
    if (choice.scale_of_row_0) chosen.scale = first->scale;
    if (choice.zero_point_of_row_0) chosen.zero_point = first->zero_point;
    if (choice.zero_point_left_in) chosen.zero_point = 0;
    parts.push_back(exact::SumsCaseOf(c, quantize.Evaluate(), chosen));
    if (!sums) continue;
    const std::vector<int64_t> of_part = MatrixOf(parts.back(), parts.back().x).RowSums(rows);
    linear.sums->row_sums.insert(linear.sums->row_sums.end(), of_part.begin(), of_part.end());
  }
  for (int64_t m = 0; m < c.M; m += rows) {
    linear.c = std::move(parts[static_cast<size_t>(m / rows)]);
    if (linear.sums) linear.sums->first_row = m;
    std::ranges::copy(linear.Evaluate().as<float>(), y.as<float>().begin() + m * c.N);
  }
  return y;
}

std::optional<std::vector<__int128>> Stages::Moved() const {
  const bool others = pool != PoolHooks{} || softmax != SoftmaxHooks{} || choice != ChoiceHooks{} ||
                      codes != CodeHooks{} || integer != nullptr || real != nullptr ||
                      block_moved != nullptr || behind_block != nullptr || finish != nullptr ||
                      edit_row || stored_from || (sums && !HasSums(c));
  if (others) return std::nullopt;
  if (!sums) return std::vector<__int128>{};
  std::vector<__int128> moved = SumsOf(c, *sums);
  const std::vector<__int128> right = SumsOf(c, SumSteps{});
  for (size_t i = 0; i < moved.size(); ++i) moved[i] -= right[i];
  return moved;
}

Tensor Stages::RowByRow() const {
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t m = 0; m < c.M; ++m) {
    Stages one = *this;
    one.edit_row = nullptr;
    one.c = slice::Rows(c, slice::Range(m, m + 1));
    edit_row(one.c, m);
    y.CopyFrom(one.Computed(), 0, c.N, m * c.N);
  }
  return y;
}

Tensor Stages::Evaluate() const {
  Tensor y = edit_row ? RowByRow() : Computed();
  if (!stored_from) return y;
  const Tensor computed = y;
  const Tensor zero(y.dtype(), {1});
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t from = stored_from(i);
    y.CopyFrom(from < 0 ? zero : computed, std::max<int64_t>(from, 0), 1, i);
  }
  return y;
}

Tensor Stages::Computed() const {
  if (RowOf(c.op).dynamic) return DynamicOf();
  if (c.op == Op::kCast) return exact::Evaluate(c);
  if (c.op == Op::kChooseQParams) {
    const bool as_it_is = choice == ChoiceHooks{} && codes == CodeHooks{};
    return as_it_is ? exact::Evaluate(c) : QParamsOf();
  }
  if (behind_block != nullptr && c.w_block != 0) return FloatsOfBlocks();
  const exact::Integers integers = IntegersOfStages();
  Tensor y = real                   ? FloatsOf(integers)
             : codes != CodeHooks{} ? CodesOf(integers)
                                    : exact::EvaluateFrom(c, integers);
  if (finish) {
    for (float& value : y.as<float>()) value = finish(value);
  }
  return y;
}

}  // namespace qualm::triage
