// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/element_formats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adapters/host/block_formats.h"
#include "core/rng.h"
#include "core/status.h"

namespace qualm {
namespace {

constexpr float kLeastScale = 0x1p-100f, kMostScale = 65504;

int32_t MiddleOf(const BlockQuantizer& quantizer) { return (quantizer.highest + 1) / 2; }

// Elements [first, end) of x are block number `block`, all blocks counted.
struct BlockOfX {
  int64_t first, end;
  size_t block;
};
std::vector<BlockOfX> BlocksOf(const Case& c) {
  std::vector<BlockOfX> blocks;
  for (int64_t row = 0; row < c.M; ++row) {
    for (int64_t n = 0; n < c.N; n += c.x_block)
      blocks.push_back({row * c.N + n, row * c.N + std::min(n + c.x_block, c.N), blocks.size()});
  }
  return blocks;
}

// What a block is scaled by: its least and its largest number, in scales.
struct Ends {
  double least, largest;
};

std::string WhyNoBlock(const WeightFormat& format, const BlockQuantizer& quantizer, Ends ends,
                       std::span<const float> x, float scale, int32_t zero_point) {
  const std::string name(format.name);
  if (!std::ranges::all_of(x, [](float v) { return std::isfinite(v); }))
    return "ggml's " + name + " is asked with finite x";
  if (scale < kLeastScale || scale > kMostScale)
    return "ggml's " + name + " is asked with scales from 2^-100 to 65504";
  for (const double end : {ends.least, ends.largest})
    if (double{scale} * end != double{static_cast<float>(double{scale} * end)})
      return "the ends of a block, in scales, are no float32";
  const auto [least, largest] = std::ranges::minmax(x);
  const auto at = [&](double end) { return static_cast<float>(double{scale} * end); };
  if (format.minima) {
    if (at(-ends.least) > kMostScale) return "ggml's " + name + " is asked with minima to -65504";
    if (least != at(ends.least) || (largest != at(ends.largest) && largest != least))
      return "ggml's " + name + " has the scale and the minimum of its least and largest x";
    return "";
  }
  if (zero_point != (quantizer.dtype == DType::kS8 ? 0 : MiddleOf(quantizer)))
    return "ggml's zero point of " + name + " is another one";
  const auto size = [](float v) { return std::abs(v); };
  const float first = std::ranges::max(x, {}, size);  // of several the first
  const bool right =
      quantizer.dtype == DType::kS8 ? std::abs(first) == at(ends.largest) : first == at(ends.least);
  return right || first == 0 ? "" : "ggml's " + name + " has the scale of its largest x";
}

Ends EndsOf(const WeightFormat& format, const BlockQuantizer& quantizer, int32_t zero_point) {
  const double highest = quantizer.highest, middle = MiddleOf(quantizer);
  if (quantizer.dtype == DType::kS8) return {-highest, highest};
  if (format.minima) return {0.0 - zero_point, highest - zero_point};
  return {-middle, middle};
}

std::string WhyNotQuantized(const WeightFormat& format, const Case& c) {
  const std::string name(format.name);
  const std::optional<BlockQuantizer> quantizer = QuantizerOf(format);
  if (!quantizer) return "ggml's " + name + " is not asked to quantize";
  if (c.out_dtype != quantizer->dtype)
    return "ggml's " + name + " is asked for " + std::string(Name(quantizer->dtype)) + " codes";
  const CodeRange whole = RangeOf(c.out_dtype);
  const CodeRange range = c.out_dtype == DType::kU8 ? CodeRange{0, quantizer->highest} : whole;
  if (c.out_min != range.min || c.out_max != range.max)
    return "ggml's codes of " + name + " are " + std::to_string(range.min) + " to " +
           std::to_string(range.max);
  const std::span<const float> all = c.x.as<float>();
  for (const BlockOfX& block : BlocksOf(c)) {
    const int32_t zero_point = c.out_q.zero_point[block.block];
    // There a minimum would be taken out in another way than by the zero point.
    if (format.minima && (zero_point < 0 || zero_point > 2 * quantizer->highest ||
                          zero_point == MiddleOf(*quantizer)))
      return "ggml's " + name + " is asked with zero points from 0 to " +
             std::to_string(2 * quantizer->highest) + ", but not " +
             std::to_string(MiddleOf(*quantizer));
    const auto x =
        all.subspan(static_cast<size_t>(block.first), static_cast<size_t>(block.end - block.first));
    std::string why = WhyNoBlock(format, *quantizer, EndsOf(format, *quantizer, zero_point), x,
                                 c.out_q.scale[block.block], zero_point);
    if (!why.empty()) return why;
  }
  return "";
}

// A scale with few enough bits that a product with an end of the block has 24.
float ScaleNear(float scale, int bits) {
  scale = std::clamp(scale, 0x1p-40f, 0x1p14f);
  const int unit = std::ilogb(scale) - bits + 1;
  return std::ldexp(std::nearbyint(std::ldexp(scale, -unit)), unit);
}

// The number of steps of `scale` in x, so that it lies between the ends: what is beyond them comes
// in again from the other side, so that a distance from a tie stays.
double Folded(double steps, Ends ends) {
  if (!std::isfinite(steps) || std::abs(steps) > 1e9) return 0;
  const double size = ends.largest - ends.least;
  return steps - size * std::floor((steps - ends.least) / size);
}

Case Quantized(const WeightFormat& format, const BlockQuantizer& quantizer, Case c) {
  uint64_t seed = MixSeed(static_cast<uint64_t>(c.M), static_cast<uint64_t>(c.N));
  for (const float v : c.x.as<float>()) seed = MixSeed(seed, std::bit_cast<uint32_t>(v));
  Rng rng(seed);
  c.out_dtype = quantizer.dtype;
  OpenClamp(&c);
  if (c.out_dtype == DType::kU8) c.out_max = quantizer.highest;
  const std::span<float> all = c.x.as<float>();
  for (const BlockOfX& block : BlocksOf(c)) {
    float& scale = c.out_q.scale[block.block];
    int32_t& zero_point = c.out_q.zero_point[block.block];
    const float stored = ScaleNear(scale, rng.Chance(1, 2) ? 11 : 17);
    const float drawn = std::exchange(scale, format.minima ? ScaleNear(stored, 15) : stored);
    zero_point = quantizer.dtype == DType::kS8 ? 0 : MiddleOf(quantizer);
    while (format.minima && zero_point == MiddleOf(quantizer))
      zero_point = static_cast<int32_t>(rng.Between(0, quantizer.highest + 4));
    const Ends ends = EndsOf(format, quantizer, zero_point);
    const auto x =
        all.subspan(static_cast<size_t>(block.first), static_cast<size_t>(block.end - block.first));
    for (float& v : x) v = static_cast<float>(Folded(double{v} / drawn, ends) * double{scale});
    const auto at = [&](double end) { return static_cast<float>(double{scale} * end); };
    // One of the largest, or of both ends each.
    float& one = x[static_cast<size_t>(rng.Between(0, std::ssize(x) - 1))];
    one = at(ends.least);
    if (quantizer.dtype == DType::kS8 && rng.Chance(1, 2)) one = at(ends.largest);
    if (!format.minima || x.size() == 1) continue;
    if (float& other = x[static_cast<size_t>(rng.Between(0, std::ssize(x) - 1))]; &other != &one)
      other = at(ends.largest);
    else
      x[&one == x.data() ? 1 : 0] = at(ends.largest);
  }
  return c;
}

// In blocks of this size, each with the scale and the zero point that its first element had.
Case InBlocksOf(int32_t size, const Case& c) {
  Case to = ProblemOf(c);
  to.per_channel = false;
  to.relu = false;
  to.x_block = size;
  const QParams& from = ChannelQParams(c);
  QParams params{{}, {}};
  for (const BlockOfX& block : BlocksOf(to)) {
    const int64_t row = block.first / c.N, n = block.first % c.N;
    const auto entry = HasElementBlocks(c)
                           ? static_cast<size_t>(row * ElementBlocks(c) + n / c.x_block)
                       : from.scale.size() == 1 ? 0
                                                : static_cast<size_t>(n);
    params.scale.push_back(from.scale[entry]);
    params.zero_point.push_back(from.zero_point[entry]);
  }
  ChannelQParams(to) = std::move(params);
  return to;
}

}  // namespace

std::optional<BlockQuantizer> QuantizerOf(const WeightFormat& format) {
  if (std::ranges::find(kQuantizedFormats, &format) == kQuantizedFormats.end()) return std::nullopt;
  // Of codes of 5 bits the values are listed.
  if (!format.values.empty()) return BlockQuantizer{DType::kU8, 31};
  return BlockQuantizer{format.dtype, RangeOf(format.dtype).max};
}

Case CodesAsWeights(const Case& c) {
  Case linear;
  linear.op = Op::kLinear;
  linear.N = c.M;
  linear.K = c.N;
  linear.x = Tensor(DType::kS8, {0, c.N});
  linear.w = c.x;
  linear.per_channel = true;
  linear.w_block = linear.x_block = c.x_block;
  linear.w_q = c.x_q;
  linear.x_q = {{}, {}};
  linear.out_dtype = DType::kF32;
  OpenClamp(&linear);
  return linear;
}

std::string WhyNoElementsInFormat(const WeightFormat& format, const Case& c) {
  if (c.x_block != format.block)
    return "ggml's blocks of " + std::string(format.name) + " have " +
           std::to_string(format.block) + " elements";
  return c.op == Op::kQuantize ? WhyNotQuantized(format, c)
                               : WhyNotInFormat(format, CodesAsWeights(c));
}

Case ElementsInsideFormat(const WeightFormat& format, const Case& c) {
  if (c.M * c.N == 0) return c;
  if (HasElementBlocks(c) && WhyNoElementsInFormat(format, c).empty()) return c;
  Case to = InBlocksOf(format.block, c);
  if (c.op == Op::kQuantize) {
    const std::optional<BlockQuantizer> quantizer = QuantizerOf(format);
    return quantizer ? Quantized(format, *quantizer, std::move(to)) : c;
  }
  if (format.scales == BlockScales::kHalf)
    for (float& scale : to.x_q.scale) scale = RoundedToHalf(scale);
  Case weights = InsideFormat(format, CodesAsWeights(to));
  to.N = weights.K;
  to.x = std::move(weights.w);
  to.x_q = std::move(weights.w_q);
  return to;
}

}  // namespace qualm
