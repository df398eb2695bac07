// SPDX-License-Identifier: Apache-2.0
// Weights in blocks, and activations in the same. What breaks them: a last block that is shorter,
// sizes that no vector has, a scale or zero point of another block or channel, scales far apart,
// the lowest code of s8, which has no negative, long rows.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "core/slice.h"
#include "properties/gen/gen.h"
#include "properties/gen/values.h"

namespace qualm::gen {
namespace {

int32_t DrawSize(Rng& rng, int64_t k) {
  constexpr std::array<int64_t, 8> kOfKernels{32, 32, 32, 32, 16, 64, 128, 8};
  constexpr int64_t kMostBlocks = 256;
  const int64_t size = rng.Chance(2, 3) ? rng.Pick(kOfKernels) : rng.Between(1, k + 1);
  return static_cast<int32_t>(std::max(size, (k + kMostBlocks - 1) / kMostBlocks));
}

// `k` terms: those of the case over and over again.
Case Repeated(const Case& c, int64_t k) {
  std::vector<int64_t> terms;
  for (int64_t i = 0; i < k; ++i) terms.push_back(i % c.K);
  return slice::Terms(c, terms);
}

// The terms over and over again, up to a few blocks and a part of one: most drawn sums are shorter
// than a block of 32.
Case Lengthened(Rng& rng, const Case& c, int64_t size) {
  constexpr int64_t kBudget = 32000;
  const int64_t k = size * rng.Between(1, 3) + (rng.Chance(1, 2) ? 0 : rng.Between(0, size - 1));
  if (k <= c.K || c.M * c.N * k > kBudget) return ProblemOf(c);
  return Repeated(c, k);
}

// The highest bits of weights of a byte, mostly as 4 bits.
void NarrowWeights(Rng& rng, Case& c) {
  const bool is_signed = InfoOf(c.w.dtype()).format == DTypeRow::Format::kSigned;
  const int bits = rng.Chance(1, 6) ? 2 : 4;
  if (rng.Chance(1, 3) || BitsOf(c.w.dtype()) < 8) return;
  const bool to_signed = rng.Chance(1, 2);
  Tensor narrow(
      bits == 4 ? (to_signed ? DType::kS4 : DType::kU4) : (to_signed ? DType::kS2 : DType::kU2),
      c.w.shape());
  const int32_t moved = is_signed == to_signed ? 0
                        : is_signed            ? 1 << (bits - 1)
                                               : -(1 << (bits - 1));
  for (int64_t i = 0; i < narrow.size(); ++i)
    narrow.SetInt(i, (c.w.IntAt(i) >> (8 - bits)) + moved);
  c.w = std::move(narrow);
}

// A bias in units of x_scale*w_scale[n], which no block has, in real units.
void BiasInReals(Case& c) {
  if (!c.bias_i32) return;
  std::vector<float> bias;
  for (int64_t n = 0; n < c.N; ++n) {
    const double unit = static_cast<double>(c.x_q.scale_at(0)) * c.w_q.scale_at(n);
    bias.push_back(static_cast<float>((*c.bias_i32)[static_cast<size_t>(n)] * unit));
  }
  c.bias_i32.reset();
  if (std::ranges::all_of(bias, [](float value) { return std::isfinite(value); })) c.bias = bias;
}

// A scale and zero point for each block of each row: those that `q` has of the row, moved.
QParams BlockParams(Rng& rng, int64_t rows, int64_t blocks, const QParams& q, DType dtype) {
  QParams params{{}, {}};
  const CodeRange codes = RangeOf(dtype);
  const int exponents = rng.Chance(1, 8) ? 20 : 2;
  const bool powers = rng.Chance(1, 8);
  const uint64_t zero_points = rng.Below(3);
  for (int64_t row = 0; row < rows; ++row) {
    const float of_row = q.scale_at(row);
    const int32_t zero = BitsOf(dtype) < 8 ? std::clamp(q.zero_point_at(row), codes.min, codes.max)
                                           : q.zero_point_at(row);
    for (int64_t block = 0; block < blocks; ++block) {
      const double factor = std::ldexp(powers ? 1 : 1 + rng.Unit(),
                                       static_cast<int>(rng.Between(-exponents, exponents)));
      const auto scale = static_cast<float>(of_row * factor);
      params.scale.push_back(std::isnormal(scale) ? scale : of_row);
      const int64_t near = std::clamp<int64_t>(zero + rng.Between(-1, 1), codes.min, codes.max);
      params.zero_point.push_back(zero_points == 0 ? zero
                                  : zero_points == 1
                                      ? static_cast<int32_t>(near)
                                      : static_cast<int32_t>(rng.Between(codes.min, codes.max)));
    }
  }
  return params;
}

// The same as libraries store them: the scale an f16, one zero point for all.
QParams StoredParams(Rng& rng, int64_t count, int32_t zero_point) {
  QParams params{{}, std::vector<int32_t>(static_cast<size_t>(count), zero_point)};
  const auto base = static_cast<int>(rng.Between(-10, 0));
  const int exponents = rng.Chance(1, 8) ? 4 : 1;
  const bool powers = rng.Chance(1, 2), denormals = rng.Chance(1, 16);
  for (int64_t i = 0; i < count; ++i) {
    const auto exponent = static_cast<int>(rng.Between(-exponents, exponents)) + base;
    const auto mantissa = static_cast<double>(powers ? 1024 : rng.Between(1024, 2047));
    params.scale.push_back(
        static_cast<float>(denormals ? std::ldexp(static_cast<double>(rng.Between(1, 1023)), -24)
                                     : std::ldexp(mantissa, exponent - 10)));
  }
  return params;
}

// One output of a row as long as those of language models, where sums of 16 bits overflow behind
// some blocks, and loops take several blocks at once. nullopt for most cases.
std::optional<Case> WithLongRow(uint64_t seed, const Case& c, int64_t size) {
  Rng rng(MixSeed(seed, 5003));
  if (!rng.Chance(1, 16) || c.M * c.N == 0) return std::nullopt;
  const int64_t k = size * rng.Between(8, 64) + (rng.Chance(1, 2) ? 0 : rng.Between(0, size - 1));
  Case row = Repeated(slice::OneOutput(c, 0), k);
  if (rng.Chance(1, 2)) return row;
  for (Tensor* codes : {&row.x, &row.w}) {
    if (!IsCode(codes->dtype())) continue;
    const CodeRange range = RangeOf(codes->dtype());
    const int32_t end = rng.Chance(1, 2) ? range.min : range.max;
    for (int64_t i = 0; i < k; ++i) codes->SetInt(i, end);
  }
  return row;
}
// In half of the long rows all blocks have the scale of the first.
void WithOneScale(uint64_t seed, Case& c) {
  Rng rng(MixSeed(seed, 5004));
  if (!rng.Chance(1, 2)) return;
  for (QParams* q : {&c.x_q, &c.w_q}) std::ranges::fill(q->scale, q->scale.front());
}

// x as s8, its codes from the lowest to the highest.
void SignedX(Case& c) {
  if (c.x.dtype() == DType::kS8) return;
  Tensor x(DType::kS8, c.x.shape());
  for (int64_t i = 0; i < x.size(); ++i) x.SetInt(i, c.x.IntAt(i) - 128);
  c.x = std::move(x);
  for (int32_t& zero_point : c.x_q.zero_point) zero_point = std::clamp(zero_point, 0, 255) - 128;
}

}  // namespace

std::optional<Case> InBlocks(const Case& c, uint64_t seed) {
  if (!RowOf(c.op).blocks || c.K == 0 || c.w_block != 0 || HasFloatX(c) || HasWideCodes(c))
    return std::nullopt;
  Rng rng(MixSeed(seed, 5000));
  if (rng.Chance(1, 2)) return std::nullopt;
  const int32_t size = DrawSize(rng, c.K);
  Case blocks = rng.Chance(1, 2) ? Lengthened(rng, c, size) : ProblemOf(c);
  const std::optional<Case> row = WithLongRow(seed, c, size);
  if (row) blocks = *row;
  NarrowWeights(rng, blocks);
  BiasInReals(blocks);
  blocks.requant = Requant::kExact;
  if (c.out_dtype == DType::kS32) {
    blocks.out_dtype = DType::kF32;
    OpenClamp(&blocks);
  }
  blocks.per_channel = true;
  blocks.w_block = size;
  blocks.w_q = BlockParams(rng, blocks.N, RowBlocks(blocks), c.w_q, blocks.w.dtype());
  if (row) WithOneScale(seed, blocks);
  return blocks;
}

std::optional<Case> ElementsInBlocks(const Case& c, uint64_t seed) {
  if (!RowOf(c.op).x_blocks || HasWeights(c.op) || RowOf(c.op).cast || c.per_channel ||
      c.M * c.N == 0 || c.x_block != 0)
    return std::nullopt;
  Rng rng(MixSeed(seed, 5200));
  if (!rng.Chance(1, 6)) return std::nullopt;
  Case blocks = ProblemOf(c);
  blocks.relu = false;
  blocks.x_block = DrawSize(rng, c.N);
  // Scales next to the one that x was drawn for, so that most codes stay within their range.
  QParams& q = ChannelQParams(blocks);
  const QParams drawn = q;
  const auto count = static_cast<size_t>(c.M * ElementBlocks(blocks));
  q.scale.resize(count);
  q.zero_point.assign(count, drawn.zero_point[0]);
  const CodeRange range = RangeOf(c.op == Op::kQuantize ? c.out_dtype : c.x.dtype());
  const bool zero_points = rng.Chance(1, 2);
  for (size_t i = 0; i < count; ++i) {
    const double factor = static_cast<double>(rng.Between(4, 16)) / 8;
    q.scale[i] = internal::ToScale(double{drawn.scale[0]} * factor);
    if (zero_points) q.zero_point[i] = static_cast<int32_t>(rng.Between(range.min, range.max));
  }
  return blocks;
}

std::optional<Case> XInBlocks(const Case& c, uint64_t seed, bool as_stored) {
  if (!SumsXInBlocks(c.op) || HasFloatX(c) || HasWideCodes(c) || c.M == 0 || c.K == 0 ||
      c.w_block != 0)
    return std::nullopt;
  Rng rng(MixSeed(seed, 5001));
  if (rng.Chance(1, 2) && !as_stored) return std::nullopt;
  const bool stored = rng.Chance(2, 3) || as_stored;
  const int32_t size = stored ? 32 : DrawSize(rng, c.K);
  Case blocks = rng.Chance(1, 2) ? Lengthened(rng, c, size) : ProblemOf(c);
  const std::optional<Case> row = WithLongRow(seed, c, size);
  if (row) blocks = *row;
  NarrowWeights(rng, blocks);
  BiasInReals(blocks);
  if (stored || rng.Chance(1, 2)) SignedX(blocks);
  if (stored) {
    blocks.bias.reset();
    blocks.relu = false;
    const DType narrow = blocks.w.dtype();
    if (const int bits = BitsOf(narrow); bits == 8 ? narrow == DType::kU8 : narrow != DType::kU4) {
      // The codes of s8, or of u4, of the same numbers from the lowest on.
      Tensor w(bits == 8 ? DType::kS8 : DType::kU4, blocks.w.shape());
      const int32_t moved = RangeOf(w.dtype()).min - RangeOf(narrow).min;
      for (int64_t i = 0; i < w.size(); ++i) w.SetInt(i, blocks.w.IntAt(i) + moved);
      blocks.w = std::move(w);
    }
  }
  if (blocks.x.dtype() == DType::kS8 && rng.Chance(1, 4))
    blocks.x.SetInt(rng.Between(0, blocks.x.size() - 1), -128);
  blocks.requant = Requant::kExact;
  blocks.out_dtype = DType::kF32;
  blocks.out_q = QParams{};
  OpenClamp(&blocks);
  blocks.per_channel = true;
  blocks.w_block = blocks.x_block = size;
  const int64_t count = RowBlocks(blocks);
  if (stored) {
    blocks.x_q = StoredParams(rng, blocks.M * count, 0);
    blocks.w_q = StoredParams(rng, blocks.N * count, blocks.w.dtype() == DType::kU4 ? 8 : 0);
  } else {
    blocks.w_q = BlockParams(rng, blocks.N, count, c.w_q, blocks.w.dtype());
    blocks.x_q = BlockParams(rng, blocks.M, count, blocks.x_q, blocks.x.dtype());
  }
  if (row) WithOneScale(seed, blocks);
  return blocks;
}

}  // namespace qualm::gen
