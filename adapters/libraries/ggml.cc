// SPDX-License-Identifier: Apache-2.0
// ggml, as the npm package @node-llama-cpp/linux-x64 has it: a shared object for each instruction
// set, which ggml_plugin.cc loads in a worker.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"
#include "core/rng.h"
#include "core/weight_formats.h"

namespace qualm {
namespace {

constexpr std::string_view kModule = "qualm_ggml.so";
constexpr std::string_view kInstall = "run scripts/install-ggml";

// The folder of the shared objects, as scripts/install-ggml makes it.
std::string ObjectFolder() {
  return CacheFolder() + "/ggml/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64";
}

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
      if (scale(block) != scale(block - block % format.blocks()))
        return "ggml's q8_K has one scale for 256 codes";
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
  if (format.blocks() > 1 && c.K > 0 && rng.Chance(3, 4) && c.M * c.N * k <= kBudget) c.K = k;
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
  const auto has = [&](int64_t number) {
    return std::ranges::find(format.values, number) != format.values.end();
  };
  const int64_t most = std::abs(int64_t{*std::ranges::max_element(
      format.values, {}, [](int8_t value) { return std::abs(int{value}); })});
  if (!std::ranges::all_of(numbers, has)) {
    for (int64_t& number : numbers) {
      number = *std::ranges::min_element(format.values, {}, [&](int8_t value) {
        return std::abs(value * largest - number * most);
      });
    }
  }
  Tensor w(format.dtype, c.w.shape());
  for (int64_t i = 0; i < w.size(); ++i) {
    int64_t number = numbers[static_cast<size_t>(i)];
    // The end that the first of the block has.
    const int64_t first = i - i % c.K % format.block;
    if (format.either_sign && number == most && numbers[static_cast<size_t>(first)] < 0) --number;
    if (format.either_sign && number == -most && numbers[static_cast<size_t>(first)] >= 0) ++number;
    w.SetInt(i, static_cast<int32_t>(number));
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

}  // namespace

std::string WhyNoGgml() {
  if (FindModule(std::string(kModule)).empty())
    return std::string(kModule) + " not found: it is built on x86-64 alone, or set " +
           "QUALM_PLUGIN_DIR to its folder";
  if (access((ObjectFolder() + "/libggml-base.so").c_str(), R_OK) != 0)
    return "the npm package @node-llama-cpp/linux-x64 is not in " + CacheFolder() +
           "/ggml: " + std::string(kInstall);
  return "";
}

EnvironmentChanges GgmlEnvironment() { return {{"QUALM_GGML_FOLDER", ObjectFolder()}}; }

std::string WhyNotInGgml(const WeightFormat* format, const Case& c) {
  if (format == nullptr) {
    if (c.w.dtype() != kQ4_0.dtype && c.w.dtype() != kQ8_0.dtype)
      return "ggml's weights are s8, or u4";
    format = c.w.dtype() == kQ4_0.dtype ? &kQ4_0 : &kQ8_0;
  }
  const std::string name(format->name), size = std::to_string(format->block);
  if (c.x_block != format->block || c.w_block != format->block)
    return "ggml multiplies blocks of " + size + " by blocks of " + size;
  if (c.w.dtype() != format->dtype)
    return "ggml's " + name + " is asked with " + std::string(Name(format->dtype)) + " weights";
  if (!format->minima &&
      std::ranges::any_of(c.w_q.zero_point, [&](int32_t z) { return z != format->zero_point; }))
    return "ggml's zero point of " + name + " is " + std::to_string(format->zero_point);
  if (!IsOf(*format, c)) {
    const auto [least, most] = std::ranges::minmax(format->values);
    return "ggml's " + name + " has " + std::to_string(format->values.size()) + " codes of " +
           std::string(Name(format->dtype)) + ", from " + std::to_string(least) + " to " +
           std::to_string(most);
  }
  if (HasBothEnds(*format, c))
    return "ggml's " + name + " has no block with " + std::to_string(format->values.front()) +
           " and " + std::to_string(format->values.back());
  if (std::string why = WhyNoScalesOfW(*format, c); !why.empty()) return why;
  return WhyNoScalesOfX(*format, c);
}

Case InsideGgml(const WeightFormat& format, const Case& c) {
  if (c.op != Op::kLinear || c.w_block == 0 || c.x_block == 0 || WhyNotInGgml(&format, c).empty())
    return c;
  Case to = ProblemOf(c);
  Rng rng(SeedOf(c));
  if (format.x != BlockActivations::kQ8_0) Lengthen(format, to, rng);
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
  if (format.x != BlockActivations::kQ8_0) SetScales(format, to, rng);
  return to;
}

}  // namespace qualm
