// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/linear_forms.h"

#include <algorithm>

#include "core/status.h"

namespace qualm::conventions {
namespace {

constexpr LinearForm kForms[] = {
    {"q8_0", "s8 x times s8 weights", DType::kS8, DType::kS8, 0},
    {"q4_0", "s8 x times u4 weights", DType::kS8, DType::kU4, 8},
    {"q5_0", "s8 x times weights of 5 bits", DType::kS8, DType::kS8, 0, 32, &kQ5_0},
    {"iq4_nl", "s8 x times 16 weights of s8", DType::kS8, DType::kS8, 0, 32, &kIq4Nl},
    {"mxfp4", "s8 x times doubled e2m1 weights", DType::kS8, DType::kS8, 0, 32, &kMxfp4},
    {"q4_1", "s8 x times u4 weights with minima", DType::kS8, DType::kU4, 0, 32, &kQ4_1},
    {"q5_1", "s8 x times weights of 5 bits with minima", DType::kS8, DType::kU8, 0, 32, &kQ5_1},
    {"q2_k", "s8 x times u2 weights with minima", DType::kS8, DType::kU2, 0, 16, &kQ2K},
    {"q3_k", "s8 x times weights of 3 bits", DType::kS8, DType::kS8, 0, 16, &kQ3K},
    {"q4_k", "s8 x times u4 weights with minima", DType::kS8, DType::kU4, 0, 32, &kQ4K},
    {"q5_k", "s8 x times weights of 5 bits with minima", DType::kS8, DType::kU8, 0, 32, &kQ5K},
    {"q6_k", "s8 x times weights of 6 bits", DType::kS8, DType::kS8, 0, 16, &kQ6K},
    {"iq4_xs", "s8 x times 16 weights of s8", DType::kS8, DType::kS8, 0, 32, &kIq4Xs},
    {"tq1_0", "s8 x times weights -1, 0 and 1", DType::kS8, DType::kS8, 0, 256, &kTq1_0},
    {"tq2_0", "s8 x times weights -1, 0 and 1", DType::kS8, DType::kS8, 0, 256, &kTq2_0},
    {"q1_0", "s8 x times weights -1 and 1", DType::kS8, DType::kS8, 0, 32, &kQ1_0},
    {"q2_0", "s8 x times weights -1 to 2", DType::kS8, DType::kS8, 0, 32, &kQ2_0},
    {"nvfp4", "s8 x times doubled e2m1 weights", DType::kS8, DType::kS8, 0, 16, &kNvfp4},
    {"f32_u4", "f32 x times u4 weights", DType::kF32, DType::kU4, 8},
    {"f32_u8", "f32 x times u8 weights", DType::kF32, DType::kU8, 128},
};

constexpr ScaleWay kWaysOfCodes[] = {
    {"product", "each part times the product of its scales"},
    {"x-first", "each part times the scale of x, rounded, times that of w"},
    {"w-first", "each part times the scale of w, rounded, times that of x"},
};
constexpr ScaleWay kWaysOfChains[] = {
    kWaysOfCodes[0],
    kWaysOfCodes[1],
    kWaysOfCodes[2],
    {"x-chain",
     "in each part the sums of its blocks, times the scale of x, in a chain, which meets "
     "the scale of w"},
};
constexpr size_t kChain = 3;
constexpr ScaleWay kWaysOfFloats[] = {
    {"weight", "each x times its dequantized weight"},
    {"scaled-x", "each x times the scale, rounded, times its code"},
    {"coded-x", "each x times its code, rounded, times the scale"},
};

// What a super-block of weights stores: one scale, and of its blocks integers.
SuperBlock StoredOf(const LinearForm& form, const Case& c, int64_t n, int64_t super_block) {
  const int64_t together = form.size() / form.block, first = super_block * together;
  const auto count = static_cast<size_t>(std::min(together, RowBlocks(c) - first));
  const size_t entry = WEntry(c, n, first * form.block);
  if (together == 1) {
    const float scale = c.w_q.scale[entry];
    return {scale, scale * static_cast<float>(c.w_q.zero_point[entry]), {1, 1}};
  }
  const std::optional<SuperBlock> stored =
      SuperBlockOf(*form.format, std::span(c.w_q.scale).subspan(entry, count),
                   std::span(c.w_q.zero_point).subspan(entry, count));
  QUALM_CHECK(stored.has_value());
  return *stored;
}

}  // namespace

std::span<const LinearForm> LinearForms() { return kForms; }

std::span<const ScaleWay> ScaleWaysOf(const LinearForm& form) {
  if (form.x == DType::kF32) return kWaysOfFloats;
  const bool one_scale_of_w = form.block == form.x_size() && form.x_size() < form.size();
  return one_scale_of_w ? std::span<const ScaleWay>(kWaysOfChains) : kWaysOfCodes;
}

bool IsChain(const LinearForm& form, size_t way) { return form.x != DType::kF32 && way == kChain; }

namespace {

// By what the sum of these products of a part is moved: that of each of its blocks, which has a
// factor of its own.
int64_t MovedOf(const LinearForm& form, const Case& c, int64_t m, int64_t n,
                std::span<const int64_t> products, SumPart::Of of, const SuperBlock& stored,
                const SumMoved& moved) {
  int64_t total = 0;
  std::vector<int32_t> x, w;
  for (auto k = products.begin(); k != products.end() && *k < c.K;) {
    const int64_t block = *k / form.block, entry = WEntry(c, n, *k);
    x.clear(), w.clear();
    for (; k != products.end() && *k < c.K && *k / form.block == block; ++k) {
      x.push_back(c.x.IntAt(m * c.K + *k));
      w.push_back(c.w.IntAt(n * c.K + *k));
    }
    const int32_t zero_point =
        of == SumPart::Of::kBoth ? c.w_q.zero_point[entry] : form.w_zero_point;
    total += moved(x, w, zero_point) *
             stored.factors[static_cast<size_t>(block % (form.size() / form.block))];
  }
  return total;
}

}  // namespace

std::pair<std::vector<float>, std::vector<float>> FactorsOf(const LinearForm& form, size_t way,
                                                            size_t minima_way, const Case& c,
                                                            int64_t m, int64_t n,
                                                            std::span<const SumPart> parts,
                                                            const SumMoved& moved) {
  std::pair<std::vector<float>, std::vector<float>> factors;
  const auto add = [&](float a, float b) {
    factors.first.push_back(a);
    factors.second.push_back(b);
  };
  SuperBlock stored;
  int64_t stored_at = -1;
  for (const SumPart& part : parts) {
    const int64_t first = part.products.front();
    if (const int64_t at = first / form.size(); at != stored_at) {
      stored = StoredOf(form, c, n, at);
      stored_at = at;
    }
    const auto weight = [&](int64_t k) {
      const int64_t block = k % form.size() / form.block, blocks = form.size() / form.block;
      if (part.minima()) return -int64_t{stored.factors[static_cast<size_t>(blocks + block)]};
      const int32_t zero_point =
          part.of == SumPart::Of::kBoth ? c.w_q.zero_point[WEntry(c, n, k)] : form.w_zero_point;
      return int64_t{c.w.IntAt(n * c.K + k) - zero_point} *
             stored.factors[static_cast<size_t>(block)];
    };
    if (form.x == DType::kF32) {
      const float x = first < c.K ? c.x.FloatAt(m * c.K + first) : 0;
      const float w = first < c.K ? static_cast<float>(weight(first)) : 0;
      way == 0   ? add(x, w * stored.scale)
      : way == 1 ? add(x * stored.scale, w)
                 : add(x * w, stored.scale);
      continue;
    }
    const auto sum_of = [&](std::span<const int64_t> products) {
      int64_t total = 0;
      for (const int64_t k : products)
        if (k < c.K) total += c.x.IntAt(m * c.K + k) * weight(k);
      if (moved && !part.minima())
        total += MovedOf(form, c, m, n, products, part.of, stored, moved);
      return static_cast<float>(total);
    };
    const auto scale_of_x = [&](int64_t k) {
      return c.x_q.scale[XEntry(c, m, k < c.K ? k : k - k % form.size())];
    };
    if (IsChain(form, way)) {
      float sum = 0;
      for (std::span<const int64_t> rest = part.products; !rest.empty();) {
        const int64_t of_x = rest.front() / form.x_size();
        size_t count = 1;
        while (count < rest.size() && rest[count] / form.x_size() == of_x) ++count;
        // A product with an f16, exact: fused or not is one.
        sum += sum_of(rest.first(count)) * scale_of_x(rest.front());
        rest = rest.subspan(count);
      }
      add(sum, stored.scale);
      continue;
    }
    const float sum = sum_of(part.products), dx = scale_of_x(first);
    const float dw = part.minima() ? stored.minimum : stored.scale;
    const size_t of_part = part.minima() ? minima_way : way;
    of_part == 0 ? add(sum, dx * dw) : of_part == 1 ? add(sum * dx, dw) : add(sum * dw, dx);
  }
  return factors;
}

}  // namespace qualm::conventions
