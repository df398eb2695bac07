// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/nbits.h"

#include <algorithm>

namespace qualm {
namespace {

constexpr int32_t kLeast = 16, kMost = 1 << 16;

bool HasSign(DType dtype) { return InfoOf(dtype).format == DTypeRow::Format::kSigned; }
int64_t RoundUp(int64_t size) {
  return std::max<int64_t>((size + kLeast - 1) / kLeast, 1) * kLeast;
}

void Put(std::vector<uint8_t>& bytes, int bits, int64_t row_bytes, int64_t row, int64_t i,
         int32_t code) {
  uint8_t& byte = bytes[static_cast<size_t>(row * row_bytes + i * bits / 8)];
  byte = static_cast<uint8_t>(byte | code << (i * bits % 8));
}

}  // namespace

int64_t NBitsBlock(const Case& c) {
  return c.w_block == 0 || c.w_block >= c.K ? RoundUp(c.K) : c.w_block;
}

std::string WhyNotNBits(int bits, const Case& c) {
  const auto all_in = [](const std::vector<int32_t>& list, CodeRange range) {
    return std::ranges::all_of(list, [&](int32_t z) { return z >= range.min && z <= range.max; });
  };
  if (!HasFloatX(c)) {
    if (c.x_block == 0)
      return "nbits takes weights in blocks of f32 x or of x in such blocks alone";
    if (c.x.dtype() != DType::kS8) return "nbits takes s8 x in blocks";
    if (!all_in(c.x_q.zero_point, {0, 0})) return "nbits takes x in blocks with zero points 0";
  }
  if (BitsOf(c.w.dtype()) != bits) return "the weights have not " + std::to_string(bits) + " bits";
  if (c.relu) return "nbits has no relu";
  if (c.bias_i32) return "nbits has no int32 bias";
  if (!all_in(c.w_q.zero_point, RangeOf(c.w.dtype()))) return "zero points of nbits are codes";
  if (NBitsBlock(c) % kLeast != 0 || NBitsBlock(c) > kMost)
    return "nbits takes blocks of 16, 32, 48 and so on up to 65536";
  return "";
}

Case InsideNBits(int bits, const Case& c) {
  if (c.op != Op::kLinear || (!HasFloatX(c) && c.x_block == 0)) return c;
  Case to = ProblemOf(c);
  if (BitsOf(c.w.dtype()) != bits) {
    const bool has_sign = HasSign(c.w.dtype());
    const DType dtype =
        bits == 4 ? (has_sign ? DType::kS4 : DType::kU4) : (has_sign ? DType::kS8 : DType::kU8);
    const CodeRange old = RangeOf(c.w.dtype()), now = RangeOf(dtype);
    Tensor w(dtype, c.w.shape());
    for (int64_t i = 0; i < w.size(); ++i)
      w.SetInt(i, now.min + (c.w.IntAt(i) - old.min) * (now.max - now.min) / (old.max - old.min));
    to.w = std::move(w);
  }
  const CodeRange codes = RangeOf(to.w.dtype());
  for (int32_t& zero : to.w_q.zero_point) zero = std::clamp(zero, codes.min, codes.max);
  if (NBitsBlock(c) % kLeast == 0) return to;
  // Longer blocks, each with what the block has in which it begins.
  to.w_block = static_cast<int32_t>(RoundUp(c.w_block));
  const int64_t blocks = RowBlocks(to);
  const auto lengthen = [&](int64_t rows, const QParams& from, QParams& q) {
    q = {{}, {}};
    for (int64_t i = 0; i < rows * blocks; ++i) {
      const int64_t entry = i / blocks * RowBlocks(c) + i % blocks * to.w_block / c.w_block;
      q.scale.push_back(from.scale_at(entry));
      q.zero_point.push_back(from.zero_point_at(entry));
    }
  };
  lengthen(c.N, QParams(to.w_q), to.w_q);
  if (c.x_block != 0) {
    to.x_block = to.w_block;
    lengthen(c.M, c.x_q, to.x_q);
  }
  return to;
}

NBitsInputs NBitsInputsOf(const Case& c) {
  const int bits = BitsOf(c.w.dtype());
  const int32_t up = HasSign(c.w.dtype()) ? 1 << (bits - 1) : 0;
  const int64_t blocks = RowBlocks(c), row_bytes = blocks * NBitsBlock(c) * bits / 8;
  const int64_t zero_bytes = (blocks * bits + 7) / 8;
  NBitsInputs to{std::vector<uint8_t>(static_cast<size_t>(c.N * row_bytes)), {}, {}};
  to.zero_points.resize(static_cast<size_t>(c.N * zero_bytes));
  bool middle = true;
  for (int64_t n = 0; n < c.N; ++n) {
    for (int64_t k = 0; k < c.K; ++k)
      Put(to.codes, bits, row_bytes, n, k, c.w.IntAt(n * c.K + k) + up);
    for (int64_t b = 0; b < blocks; ++b) {
      const auto entry = static_cast<int64_t>(WEntry(c, n, b * c.w_block));
      const int32_t zero = c.w_q.zero_point_at(entry) + up;
      to.scales.push_back(c.w_q.scale_at(entry));
      Put(to.zero_points, bits, zero_bytes, n, b, zero);
      middle = middle && zero == 1 << (bits - 1);
    }
  }
  if (middle) to.zero_points.clear();
  return to;
}

}  // namespace qualm
