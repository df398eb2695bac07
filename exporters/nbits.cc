// SPDX-License-Identifier: Apache-2.0
#include "exporters/nbits.h"

#include <algorithm>

#include "exporters/evidence.h"

namespace qualm::exporters {

int64_t NBitsBlock(const Case& c) {
  if (0 < c.w_block && c.w_block < c.K) return c.w_block;
  return std::max<int64_t>(1, (c.K + 15) / 16) * 16;
}

NBits NBitsOf(const Case& c, int64_t block) {
  Require(block >= 16 && block % 16 == 0, "blocks that are no multiple of 16");
  const int bits = BitsOf(c.w.dtype());
  const int32_t lowest = RangeOf(c.w.dtype()).min;
  const int64_t blocks = (c.K + block - 1) / block, bytes = (blocks * bits + 7) / 8;
  NBits to{.bits = bits,
           .block = block,
           .codes = Tensor(DType::kU8, {c.N, blocks, block * bits / 8}),
           .scales = Tensor(DType::kF32, {c.N * blocks}),
           .zero_points = Tensor(DType::kU8, {c.N * bytes})};
  const auto put = [&](Tensor& list, int64_t bit, int64_t code) {
    Require(code >= 0 && code < 1 << bits, "zero points that are no codes");
    list.SetInt(bit / 8, list.IntAt(bit / 8) | static_cast<int32_t>(code) << bit % 8);
  };
  for (int64_t n = 0; n < c.N; ++n) {
    for (int64_t k = 0; k < c.K; ++k)
      put(to.codes, (n * blocks * block + k) * bits, int64_t{c.w.IntAt(n * c.K + k)} - lowest);
    for (int64_t b = 0; b < blocks; ++b) {
      const auto at = static_cast<int64_t>(WEntry(c, n, b * block));
      to.scales.as<float>()[static_cast<size_t>(n * blocks + b)] = c.w_q.scale_at(at);
      const int64_t zero = int64_t{c.w_q.zero_point_at(at)} - lowest;
      put(to.zero_points, n * bytes * 8 + b * bits, zero);
      to.centred = to.centred && zero == 1 << (bits - 1);
    }
  }
  return to;
}

}  // namespace qualm::exporters
