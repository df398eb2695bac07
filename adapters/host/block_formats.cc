// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/block_formats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adapters/host/element_formats.h"
#include "adapters/qualm_plugin.h"
#include "core/rng.h"
#include "core/status.h"

namespace qualm {
namespace {

bool IsOf(const WeightFormat& format, const Case& c) {
  for (int64_t i = 0; i < c.w.size(); ++i)
    if (!format.Has(c.w.IntAt(i))) return false;
  return true;
}

// Whether a block has the largest weight of either sign, where only one of the two is stored.
bool HasBothEnds(const WeightFormat& format, const Case& c) {
  if (!format.either_sign) return false;
  for (int64_t n = 0; n < c.N; ++n) {
    for (int64_t first = 0; first < c.K; first += format.block) {
      bool lowest = false, highest = false;
      for (int64_t k = first; k < std::min(first + format.block, c.K); ++k) {
        lowest |= c.w.IntAt(n * c.K + k) == format.values.front();
        highest |= c.w.IntAt(n * c.K + k) == format.values.back();
      }
      if (lowest && highest) return true;
    }
  }
  return false;
}

std::string WhyNoScalesOfW(const WeightFormat& format, const Case& c) {
  const auto blocks = static_cast<size_t>(RowBlocks(c)),
             whole = static_cast<size_t>(format.blocks());
  const std::span scales(c.w_q.scale);
  const std::span zero_points(c.w_q.zero_point);
  for (size_t row = 0; row < scales.size(); row += blocks) {
    for (size_t at = row; at < row + blocks; at += whole) {
      const size_t count = std::min(whole, row + blocks - at);
      if (SuperBlockOf(format, scales.subspan(at, count), zero_points.subspan(at, count))) continue;
      const std::string name(format.name);
      if (format.scales == BlockScales::kPowers)
        return "ggml's scales of " + name + " are powers of two from 2^-128 to 2^126";
      if (format.scales == BlockScales::kSmall)
        return "ggml's scales of " + name + " are half of a ue4m3";
      if (format.most_factor == 1 && whole > 1)
        return "ggml's scales of " + name + " are an f16 of each " +
               std::to_string(format.super_block) + " weights";
      if (format.most_factor == 1)
        return format.minima ? "ggml's scales are f16, and so are scale times zero point"
                             : "ggml's scales are f16";
      return "ggml's scales of " + name + " are an f16 times integers up to " +
             std::to_string(format.most_factor) + " of each " + std::to_string(format.super_block) +
             " weights" + (format.minima ? ", and so are scale times zero point" : "");
    }
  }
  return "";
}

// Of the codes of a block.
int64_t SumOfX(const Case& c, int64_t m, int64_t block) {
  int64_t sum = 0;
  for (int64_t k = block * c.x_block; k < std::min((block + 1) * c.x_block, c.K); ++k)
    sum += c.x.IntAt(m * c.K + k);
  return sum;
}

// Below, the product with an f16 may be denormal, which no contract bounds.
constexpr float kLeastScaleOfX = 0x1p-100f;

std::string WhyNoScalesOfX(const WeightFormat& format, const Case& c) {
  const int64_t blocks = RowBlocks(c);
  if (format.x != BlockActivations::kQ8K) {
    for (const float scale : c.x_q.scale)
      if (!HalfOf(scale)) return "ggml's scales of x are f16";
  }
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t block = 0; block < blocks; ++block) {
      const auto scale = [&](int64_t b) {
        return c.x_q.scale[static_cast<size_t>(m * blocks + b)];
      };
      if (scale(block) != scale(block - block % format.blocks_of_x()))
        return "ggml's " + std::string(NameOfActivations(format)) + " has one scale for " +
               std::to_string(format.blocks_of_x() * format.block) + " codes";
      if (format.x == BlockActivations::kQ8K && scale(block) < kLeastScaleOfX)
        return "ggml's q8_K is asked with scales from 2^-100";
      if (format.x != BlockActivations::kQ8_1) continue;
      if (!HalfOf(std::abs(scale(block) * static_cast<float>(SumOfX(c, m, block)))))
        return "ggml's q8_1 has a scale times the sum of the codes that an f16 holds";
    }
  }
  return "";
}

// Of the sizes and the weights.
uint64_t SeedOf(const Case& c) {
  uint64_t seed = MixSeed(static_cast<uint64_t>(c.M), static_cast<uint64_t>(c.K));
  for (int64_t i = 0; i < c.w.size(); ++i)
    seed = MixSeed(seed, static_cast<uint64_t>(c.w.IntAt(i)));
  return seed;
}

// The terms over and over again, up to some super-blocks and a part of one, x as s8, and blocks of
// the format with the scale that their first term had.
void Lengthen(const WeightFormat& format, Case& c, Rng& rng) {
  constexpr int64_t kBudget = 32000;
  const Case from = c;
  const int64_t k = rng.Between(1, 3 * int64_t{format.super_block});
  if (format.super_block > 32 && c.K > 0 && rng.Chance(3, 4) && c.M * c.N * k <= kBudget) c.K = k;
  const auto longer = [&](const Tensor& tensor, int64_t rows, DType dtype) {
    Tensor to(dtype, {rows, c.K});
    const int32_t moved = RangeOf(dtype).min - RangeOf(tensor.dtype()).min;
    for (int64_t i = 0; i < to.size(); ++i)
      to.SetInt(i, tensor.IntAt(i / c.K * from.K + i % c.K % from.K) + moved);
    return to;
  };
  c.x = longer(from.x, c.M, DType::kS8);
  c.w = longer(from.w, c.N, from.w.dtype());
  c.w_block = c.x_block = format.block;
  c.w_q = c.x_q = {{}, {}};
  const auto add = [](QParams& to, const QParams& q, size_t entry) {
    to.scale.push_back(q.scale[entry]);
    to.zero_point.push_back(q.zero_point[entry]);
  };
  for (int64_t first = 0; first < c.N * RowBlocks(c); ++first) {
    const int64_t n = first / RowBlocks(c), term = first % RowBlocks(c) * c.w_block % from.K;
    add(c.w_q, from.w_q, WEntry(from, n, term));
  }
  for (int64_t first = 0; first < c.M * RowBlocks(c); ++first) {
    const int64_t m = first / RowBlocks(c), term = first % RowBlocks(c) * c.w_block % from.K;
    add(c.x_q, from.x_q, XEntry(from, m, term));
  }
  std::ranges::fill(c.x_q.zero_point, 0);
}

// The numbers of the weights, as large as the format has them.
Tensor NearestNumbers(const WeightFormat& format, const Case& c) {
  std::vector<int64_t> numbers;
  int64_t largest = 1;
  for (int64_t i = 0; i < c.w.size(); ++i) {
    const size_t entry = WEntry(c, i / c.K, i % c.K);
    numbers.push_back(int64_t{c.w.IntAt(i)} - c.w_q.zero_point[entry]);
    largest = std::max(largest, std::abs(numbers.back()));
  }
  std::vector<int64_t> has(format.values.begin(), format.values.end());
  const CodeRange codes = RangeOf(format.dtype);
  for (int64_t code = codes.min; format.values.empty() && code <= codes.max; ++code)
    has.push_back(code - format.zero_point);
  const auto size = [](int64_t number) { return std::abs(number); };
  const int64_t most = size(std::ranges::max(has, {}, size));
  if (!std::ranges::all_of(
          numbers, [&](int64_t number) { return std::ranges::find(has, number) != has.end(); })) {
    for (int64_t& number : numbers) {
      number = std::ranges::min(
          has, {}, [&](int64_t each) { return std::abs(each * largest - number * most); });
    }
  }
  Tensor w(format.dtype, c.w.shape());
  for (int64_t i = 0; i < w.size(); ++i) {
    int64_t number = numbers[static_cast<size_t>(i)];
    // The end that the first of the block has.
    const int64_t first = i - i % c.K % format.block;
    if (format.either_sign && number == most && numbers[static_cast<size_t>(first)] < 0) --number;
    if (format.either_sign && number == -most && numbers[static_cast<size_t>(first)] >= 0) ++number;
    w.SetInt(i, static_cast<int32_t>(number) + format.zero_point);
  }
  return w;
}

// The f16 next to this number, with so many bits.
float Rounded(double number, int bits) {
  const int unit = std::max(std::ilogb(number) - bits + 1, -24);
  return static_cast<float>(
      std::clamp(std::ldexp(std::nearbyint(std::ldexp(number, -unit)), unit), 0x1p-24, 0x1p10));
}

// Scales of w that are multiples of one f16 for each super-block, zero points whose minima are, and
// scales of x as the format has them.
void SetScales(const WeightFormat& format, Case& c, Rng& rng) {
  const int64_t blocks = RowBlocks(c);
  const int32_t most = format.most_factor;
  for (int64_t row = 0; row < c.N; ++row) {
    for (int64_t first = 0; first < blocks; first += format.blocks()) {
      const int64_t end = std::min(first + format.blocks(), blocks);
      const auto entry = [&](int64_t block) { return static_cast<size_t>(row * blocks + block); };
      float largest = 0;
      for (int64_t block = first; block < end; ++block)
        largest = std::max(largest, c.w_q.scale[entry(block)]);
      // Of a super-block of one block the minima too are products with the scale: up to 31 times.
      const int bits = rng.Chance(1, 2) ? 1 : most == 1 ? 6 : 11;
      const float unit =
          Rounded(double{largest} / std::bit_ceil(static_cast<uint32_t>(most)), bits);
      const auto shift = most == 1 ? 0 : static_cast<int>(rng.Between(0, 3));
      const int32_t most_minimum = most == 1 ? 31 : most;
      for (int64_t block = first; block < end; ++block) {
        auto factor = most == 1 ? 1 : static_cast<int32_t>(rng.Between(1, most));
        if (format.minima && rng.Chance(1, 2)) factor = std::max(factor >> shift, 1) << shift;
        c.w_q.scale[entry(block)] = unit * static_cast<float>(factor);
        int32_t& zero_point = c.w_q.zero_point[entry(block)];
        if (!format.minima) continue;
        // The minimum of the super-block is its scale times 2^shift.
        std::vector<int32_t> possible;
        for (int32_t z = 0; z <= most_minimum && z * factor >> shift <= most_minimum; ++z)
          if (z * factor % (1 << shift) == 0) possible.push_back(z);
        zero_point = rng.Pick(std::span<const int32_t>(possible));
      }
    }
  }
  for (int64_t row = 0; row < c.M; ++row) {
    for (int64_t block = 0; block < blocks; ++block) {
      const auto entry = [&](int64_t b) { return static_cast<size_t>(row * blocks + b); };
      float& scale = c.x_q.scale[entry(block)];
      if (format.x == BlockActivations::kQ8_1) {
        // A sum of 12 bits is even.
        const int64_t first = row * c.K + block * format.block;
        if (std::abs(SumOfX(c, row, block)) > 2048 && SumOfX(c, row, block) % 2 != 0)
          c.x.SetInt(first, c.x.IntAt(first) + (c.x.IntAt(first) > 0 ? -1 : 1));
        const auto bits = static_cast<int>(rng.Between(1, 3));
        for (const float each : {Rounded(scale, bits), Rounded(scale, 1), 0x1p-4f}) {
          scale = each;
          if (HalfOf(std::abs(scale * static_cast<float>(SumOfX(c, row, block))))) break;
        }
      } else if (block % format.blocks() != 0) {
        scale = c.x_q.scale[entry(block - block % format.blocks())];
      } else if (scale < 1 && rng.Chance(1, 2)) {
        scale *= static_cast<float>(1 + rng.Unit());
      }
    }
  }
}

// Scales of a super-block, and of a block of x, are that of its first block; or the nearest small
// ones.
void ShareScales(const WeightFormat& format, Case& c) {
  const auto blocks = static_cast<size_t>(RowBlocks(c));
  for (size_t i = 0; i < c.w_q.scale.size(); ++i) {
    float& scale = c.w_q.scale[i];
    if (format.scales != BlockScales::kSmall) {
      const size_t first = i - i % blocks % static_cast<size_t>(format.blocks());
      scale = i == first ? RoundedToHalf(scale) : c.w_q.scale[first];
      continue;
    }
    float nearest = kSmallUnit;
    for (int code = 1; code <= kSmallCodes; ++code) {
      const float small = kSmallUnit * static_cast<float>(SmallFactor(code));
      if (std::abs(small - scale) < std::abs(nearest - scale)) nearest = small;
    }
    scale = nearest;
  }
  for (size_t i = 0; i < c.x_q.scale.size(); ++i)
    c.x_q.scale[i] = c.x_q.scale[i - i % blocks % static_cast<size_t>(format.blocks_of_x())];
}

}  // namespace

float RoundedToHalf(float scale) { return Rounded(double{scale}, 11); }

std::string WhyNotInFormat(const WeightFormat& format, const Case& c) {
  if (!HasWeights(c.op)) return WhyNoElementsInFormat(format, c);
  const std::string name(format.name), size = std::to_string(format.block);
  if (c.x_block != format.block || c.w_block != format.block)
    return "ggml multiplies blocks of " + size + " by blocks of " + size;
  if (c.w.dtype() != format.dtype)
    return "ggml's " + name + " is asked with " + std::string(Name(format.dtype)) + " weights";
  if (!format.minima &&
      std::ranges::any_of(c.w_q.zero_point, [&](int32_t z) { return z != format.zero_point; }))
    return "ggml's zero point of " + name + " is " + std::to_string(format.zero_point);
  if (!IsOf(format, c)) {
    const auto [least, most] = std::ranges::minmax(format.values);
    return "ggml's " + name + " has " + std::to_string(format.values.size()) + " codes of " +
           std::string(Name(format.dtype)) + ", from " + std::to_string(least) + " to " +
           std::to_string(most);
  }
  if (HasBothEnds(format, c))
    return "ggml's " + name + " has no block with " + std::to_string(format.values.front()) +
           " and " + std::to_string(format.values.back());
  if (std::string why = WhyNoScalesOfW(format, c); !why.empty()) return why;
  return WhyNoScalesOfX(format, c);
}

Case InsideFormat(const WeightFormat& format, const Case& c) {
  if (!HasWeights(c.op)) return ElementsInsideFormat(format, c);
  if (c.op != Op::kLinear || c.w_block == 0 || c.x_block == 0 || WhyNotInFormat(format, c).empty())
    return c;
  Case to = ProblemOf(c);
  Rng rng(SeedOf(c));
  const bool shares = format.x != BlockActivations::kQ8_0 || format.blocks() > 1;
  if (shares) Lengthen(format, to, rng);
  if (format.minima) {
    const CodeRange from = RangeOf(c.w.dtype());
    const int64_t count =
        format.values.empty() ? RangeOf(format.dtype).max + 1 : std::ssize(format.values);
    Tensor w(format.dtype, to.w.shape());
    for (int64_t i = 0; i < w.size(); ++i)
      w.SetInt(i, static_cast<int32_t>((int64_t{to.w.IntAt(i)} - from.min) * count /
                                       (int64_t{from.max} - from.min + 1)));
    to.w = std::move(w);
  } else {
    to.w = NearestNumbers(format, to);
    std::ranges::fill(to.w_q.zero_point, format.zero_point);
  }
  if (format.scales == BlockScales::kPowers) {
    for (float& scale : to.w_q.scale)
      scale = std::ldexp(1.0f, std::clamp(std::ilogb(scale), kLeastPower, kMostPower));
  }
  if (format.x != BlockActivations::kQ8_0) {
    SetScales(format, to, rng);
  } else if (shares) {
    ShareScales(format, to);
  }
  return to;
}

namespace {

using Bytes = std::vector<uint8_t>;

template <class Number>
void Append(Number number, Bytes& bytes) {
  const auto raw = std::bit_cast<std::array<uint8_t, sizeof number>>(number);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

void AppendHalf(float number, Bytes& bytes) {
  const std::optional<uint16_t> half = HalfOf(std::abs(number));
  QUALM_CHECK(half);
  Append(static_cast<uint16_t>(*half | (number < 0 ? 0x8000 : 0)), bytes);
}

// The bits of these numbers that the part has.
void AppendBits(const BlockPart& part, std::span<const uint8_t> numbers, Bytes& bytes) {
  const size_t begin = bytes.size();
  bytes.resize(begin + numbers.size() * static_cast<size_t>(part.bits) / 8);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int at = static_cast<int>(i), bits = numbers[i] >> part.from & ((1 << part.bits) - 1);
    bytes[begin + static_cast<size_t>(part.Byte(at))] |=
        static_cast<uint8_t>(bits << part.Shift(at));
  }
}

// ggml's get_scale_min_k4 reads them.
void AppendSixBits(std::span<const uint8_t> factors, Bytes& bytes) {
  for (const size_t first : {0, 8}) {  // of scales, of minima
    for (size_t i = first; i < first + 4; ++i)
      bytes.push_back(static_cast<uint8_t>(factors[i] | factors[i + 4] >> 4 << 6));
  }
  for (size_t i = 4; i < 8; ++i)
    bytes.push_back(static_cast<uint8_t>((factors[i] & 15) | (factors[i + 8] & 15) << 4));
}

// Each byte is the fraction of its five digits, in 256ths and rounded up: times 3 is the first
// digit and the fraction of the others.
void AppendTrits(const BlockPart& part, std::span<const uint8_t> codes, Bytes& bytes) {
  for (int at = part.from; at < part.from + part.stride; ++at) {
    int digits = 0;
    for (int i = 0; i < 5; ++i) {
      const auto code = static_cast<size_t>(at + i * part.stride);
      digits = 3 * digits + (code < codes.size() ? codes[code] : 0);
    }
    bytes.push_back(static_cast<uint8_t>((digits * 256 + 242) / 243));
  }
}

// The bytes of a super-block, of which `block` has the scale, the minimum and the factors.
void AppendSuperBlock(const WeightFormat& format, std::span<const int32_t> codes, SuperBlock block,
                      Bytes& bytes) {
  Bytes stored, factors;
  for (size_t begin = 0; begin < codes.size(); begin += static_cast<size_t>(format.block)) {
    const auto numbers = codes.subspan(begin, static_cast<size_t>(format.block));
    const auto [least, most] = std::ranges::minmax(numbers);
    const int32_t sign = format.either_sign && most > -least ? -1 : 1;
    block.factors[begin / static_cast<size_t>(format.block)] *= sign;
    for (const int32_t number : numbers) {
      const auto place = std::ranges::find(format.values, sign * number);
      stored.push_back(
          static_cast<uint8_t>(format.values.empty() ? number : place - format.values.begin()));
    }
  }
  for (const int32_t factor : block.factors)
    factors.push_back(static_cast<uint8_t>(factor + format.factor_offset));
  for (const BlockPart& part : format.parts) {
    switch (part.of) {
      case BlockPart::Of::kScale:
        if (format.scales == BlockScales::kPowers) {
          bytes.push_back(static_cast<uint8_t>(*PowerOf(block.scale) - kLeastPower));
        } else {
          AppendHalf(block.scale, bytes);
        }
        break;
      case BlockPart::Of::kMinimum:
        // Blocks of one scale add the minimum, super-blocks subtract it.
        AppendHalf(format.blocks() == 1 ? -block.minimum : block.minimum, bytes);
        break;
      case BlockPart::Of::kCodeBits: AppendBits(part, stored, bytes); break;
      case BlockPart::Of::kFactors: AppendBits(part, factors, bytes); break;
      case BlockPart::Of::kSixBits: AppendSixBits(factors, bytes); break;
      case BlockPart::Of::kTrits: AppendTrits(part, stored, bytes); break;
      case BlockPart::Of::kSmall:
        for (const int32_t factor : block.factors) bytes.push_back(*SmallCodeOf(factor));
        break;
    }
  }
}

// The codes of a row, filled up.
std::vector<int32_t> RowOfCodes(const WeightFormat& format, const Tensor& tensor, int64_t row,
                                int64_t depth, int32_t filling) {
  std::vector<int32_t> codes(static_cast<size_t>(PackedDepth(format, depth)), filling);
  for (int64_t k = 0; k < depth; ++k) codes[static_cast<size_t>(k)] = tensor.IntAt(row * depth + k);
  return codes;
}

}  // namespace

int64_t PackedDepth(const WeightFormat& format, int64_t depth) {
  return (depth + format.super_block - 1) / format.super_block * format.super_block;
}

PackedRows PackedWeights(const WeightFormat& format, const Case& c) {
  PackedRows packed;
  const int32_t filling = format.Has(format.zero_point) ? format.zero_point : format.values.front();
  const auto blocks = static_cast<size_t>(RowBlocks(c)),
             whole = static_cast<size_t>(format.blocks());
  for (int64_t n = 0; n < c.N; ++n) {
    const std::vector<int32_t> codes = RowOfCodes(format, c.w, n, c.K, filling);
    const size_t first = static_cast<size_t>(n) * blocks;
    const auto scales = std::span(c.w_q.scale).subspan(first, blocks);
    const auto zero_points = std::span(c.w_q.zero_point).subspan(first, blocks);
    for (size_t at = 0; at < blocks; at += whole) {
      const size_t count = std::min(whole, blocks - at);
      std::optional<SuperBlock> block =
          SuperBlockOf(format, scales.subspan(at, count), zero_points.subspan(at, count));
      QUALM_CHECK(block);
      const auto begin = at / whole * static_cast<size_t>(format.super_block);
      AppendSuperBlock(format,
                       std::span(codes).subspan(begin, static_cast<size_t>(format.super_block)),
                       *std::move(block), packed.bytes);
    }
  }
  packed.row_bytes = c.N == 0 ? 0 : std::ssize(packed.bytes) / c.N;
  return packed;
}

PackedRows PackedActivations(const WeightFormat& format, const Case& c) {
  PackedRows packed;
  Bytes& bytes = packed.bytes;
  const auto count = static_cast<size_t>(format.block * format.blocks_of_x());
  for (int64_t m = 0; m < c.M; ++m) {
    const std::vector<int32_t> codes = RowOfCodes(format, c.x, m, c.K, 0);
    const auto sum = [&](size_t begin, size_t end) {
      return std::accumulate(codes.begin() + static_cast<std::ptrdiff_t>(begin),
                             codes.begin() + static_cast<std::ptrdiff_t>(end), 0);
    };
    for (size_t at = 0; at < codes.size(); at += count) {
      const int64_t block = static_cast<int64_t>(at) / format.block;
      const float scale =
          block < RowBlocks(c) ? c.x_q.scale[static_cast<size_t>(m * RowBlocks(c) + block)] : 0;
      if (format.x == BlockActivations::kQ8K) {
        Append(scale, bytes);
      } else {
        AppendHalf(scale, bytes);
      }
      if (format.x == BlockActivations::kQ8_1)
        AppendHalf(scale * static_cast<float>(sum(at, at + count)), bytes);
      for (size_t i = at; i < at + count; ++i) bytes.push_back(static_cast<uint8_t>(codes[i]));
      if (format.x != BlockActivations::kQ8K) continue;
      for (size_t i = at; i < at + count; i += 16)
        Append(static_cast<int16_t>(sum(i, i + 16)), bytes);
    }
  }
  packed.row_bytes = c.M == 0 ? 0 : std::ssize(bytes) / c.M;
  return packed;
}

namespace {

// The type of what is in blocks.
DType CodesOf(const Case& c) {
  return HasWeights(c.op) ? c.w.dtype() : c.op == Op::kQuantize ? c.out_dtype : c.x.dtype();
}

std::vector<const WeightFormat*> Among(FormatSet formats) {
  std::vector<const WeightFormat*> among;
  for (size_t i = 0; i < kWeightFormats.size(); ++i)
    if ((formats >> i & 1) != 0) among.push_back(kWeightFormats[i]);
  return among;
}

}  // namespace

std::optional<FormatSet> FormatsNamed(std::string_view names) {
  FormatSet formats = 0;
  for (size_t at = names.find_first_not_of(' '); at < names.size();
       at = names.find_first_not_of(' ', at)) {
    const size_t end = std::min(names.find(' ', at), names.size());
    const auto* const format =
        std::ranges::find(kWeightFormats, names.substr(at, end - at), &WeightFormat::name);
    if (format == kWeightFormats.end()) return std::nullopt;
    formats |= FormatSet{1} << (format - kWeightFormats.begin());
    at = end;
  }
  return formats;
}

uint32_t TypesOf(FormatSet formats) {
  uint32_t types = 0;
  for (const WeightFormat* format : Among(formats))
    types |= QUALM_TYPE_BIT(static_cast<int>(format->dtype));
  return types;
}

std::string WhyNotInFormats(FormatSet formats, const Case& c) {
  std::string why;
  for (const WeightFormat* format : Among(formats)) {
    std::string not_in_this = WhyNotInFormat(*format, c);
    if (not_in_this.empty()) return "";
    if (why.empty() || CodesOf(c) == format->dtype) why = std::move(not_in_this);
  }
  return why;
}

const WeightFormat& FormatFor(FormatSet formats, const Case& c) {
  const std::vector<const WeightFormat*> among = Among(formats);
  const auto format = std::ranges::find_if(
      among, [&](const WeightFormat* each) { return WhyNotInFormat(*each, c).empty(); });
  QUALM_CHECK(format != among.end());
  return **format;
}

Case InsideFormats(FormatSet formats, const Case& c) {
  const std::vector<const WeightFormat*> among = Among(formats);
  auto format = std::ranges::find(among, CodesOf(c), &WeightFormat::dtype);
  // Of elements, codes without a sign become such of another size.
  if (format == among.end() && !HasWeights(c.op) && RangeOf(CodesOf(c)).min == 0)
    format = std::ranges::find_if(
        among, [](const WeightFormat* each) { return RangeOf(each->dtype).min == 0; });
  return InsideFormat(format == among.end() ? *among.front() : **format, c);
}

}  // namespace qualm
