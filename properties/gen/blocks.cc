// SPDX-License-Identifier: Apache-2.0
// Weights in blocks. What breaks them: a last block that is shorter, sizes that no vector has, a
// scale or zero point of another block or channel, scales far apart.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "core/slice.h"
#include "properties/gen/gen.h"

namespace qualm::gen {
namespace {

int32_t DrawSize(Rng& rng, int64_t k) {
  constexpr std::array<int64_t, 8> kOfKernels{32, 32, 32, 32, 16, 64, 128, 8};
  constexpr int64_t kMostBlocks = 256;
  const int64_t size = rng.Chance(2, 3) ? rng.Pick(kOfKernels) : rng.Between(1, k + 1);
  return static_cast<int32_t>(std::max(size, (k + kMostBlocks - 1) / kMostBlocks));
}

// The terms over and over again, up to a few blocks and a part of one: most drawn sums are shorter
// than a block of 32.
Case Lengthened(Rng& rng, const Case& c, int64_t size) {
  constexpr int64_t kBudget = 32000;
  const int64_t k = size * rng.Between(1, 3) + (rng.Chance(1, 2) ? 0 : rng.Between(0, size - 1));
  if (k <= c.K || c.M * c.N * k > kBudget) return ProblemOf(c);
  std::vector<int64_t> terms;
  for (int64_t i = 0; i < k; ++i) terms.push_back(i % c.K);
  return slice::Terms(c, terms);
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

}  // namespace

std::optional<Case> InBlocks(const Case& c, uint64_t seed) {
  if (!RowOf(c.op).blocks || c.K == 0 || c.w_block != 0 || HasFloatX(c)) return std::nullopt;
  Rng rng(MixSeed(seed, 5000));
  if (rng.Chance(1, 2)) return std::nullopt;
  const int32_t size = DrawSize(rng, c.K);
  Case blocks = rng.Chance(1, 2) ? Lengthened(rng, c, size) : ProblemOf(c);
  NarrowWeights(rng, blocks);
  BiasInReals(blocks);
  blocks.requant = Requant::kExact;
  if (c.out_dtype == DType::kS32) {
    blocks.out_dtype = DType::kF32;
    OpenClamp(&blocks);
  }
  blocks.per_channel = true;
  blocks.w_block = size;
  blocks.w_q = {{}, {}};
  const CodeRange codes = RangeOf(blocks.w.dtype());
  const int exponents = rng.Chance(1, 8) ? 20 : 2;
  const bool powers = rng.Chance(1, 8);
  const uint64_t zero_points = rng.Below(3);
  for (int64_t n = 0; n < c.N; ++n) {
    const float of_channel = c.w_q.scale_at(n);
    const int32_t zero = BitsOf(blocks.w.dtype()) < 8
                             ? std::clamp(c.w_q.zero_point_at(n), codes.min, codes.max)
                             : c.w_q.zero_point_at(n);
    for (int64_t block = 0; block < RowBlocks(blocks); ++block) {
      const double factor = std::ldexp(powers ? 1 : 1 + rng.Unit(),
                                       static_cast<int>(rng.Between(-exponents, exponents)));
      const auto scale = static_cast<float>(of_channel * factor);
      blocks.w_q.scale.push_back(std::isnormal(scale) ? scale : of_channel);
      const int64_t near = std::clamp<int64_t>(zero + rng.Between(-1, 1), codes.min, codes.max);
      blocks.w_q.zero_point.push_back(
          zero_points == 0   ? zero
          : zero_points == 1 ? static_cast<int32_t>(near)
                             : static_cast<int32_t>(rng.Between(codes.min, codes.max)));
    }
  }
  return blocks;
}

}  // namespace qualm::gen
