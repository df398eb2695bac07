// SPDX-License-Identifier: Apache-2.0
// Weights are packed into panels of channels, one behind the other (sums/nbits.h). A block of
// outputs is some rows times some panels, computed a tile at a time. Each output is computed in one
// tile from its own row and channel alone, so that no cut matters to its bits.
#include "kernels/nbits_linear.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "kernels/common/fp_environment.h"
#include "kernels/common/parallel.h"
#include "kernels/common/validate.h"
#include "kernels/sums/accumulate.h"
#include "kernels/sums/nbits.h"
#include "kernels/sums/pack.h"
#include "kernels/sums/panel_plan.h"
#include "kernels/sums/row_block.h"

namespace qualm::kernels {
namespace {

using internal::NBitsTile;
using internal::NBitsTraits;
using internal::PanelPlan;

constexpr int64_t kMostBlock = 1 << 16;           // its sums of products fit int32
constexpr int64_t kMostDepth = int64_t{1} << 40;  // bytes of a row fit int64

constexpr int64_t RoundUp(int64_t size, int64_t to) { return (size + to - 1) / to * to; }

int CodeAt(const uint8_t* bytes, int bits, int64_t i) {
  return bits == 8 ? bytes[i] : bytes[i / 2] >> (i % 2 * 4) & 15;
}

Status CheckBlock(int64_t block) {
  if (block < 16 || block % 16 != 0 || block > kMostBlock)
    return internal::IsButExpected("block", block, "a multiple of 16, at most 65536");
  return {};
}

Status Validate(const NBitsWeights& w) {
  if (w.bits != 4 && w.bits != 8) return internal::IsButExpected("bits", w.bits, "4 or 8");
  QUALM_RETURN_IF_ERROR(CheckBlock(w.block));
  if (w.channels < 0) return internal::IsButExpected("channels", w.channels, "0 or more");
  if (w.depth < 0 || w.depth > kMostDepth)
    return internal::IsButExpected("depth", w.depth, "0 to 2^40");
  if (w.channels > (INT64_MAX >> 4) / RoundUp(std::max<int64_t>(w.depth, 1), w.block))
    return internal::IsButExpected("channels", w.channels, "fewer weights");
  if (w.channels == 0 || w.depth == 0) return {};
  if (w.codes == nullptr) return {"codes is null, expected the codes of the weights"};
  if (w.scales == nullptr) return {"scales is null, expected the scales of the blocks"};
  return {};
}

// A row of codes as tiles read it.
struct CodedRow {
  CodedRow(uint8_t* at, int64_t blocks)
      : scales(reinterpret_cast<float*>(at)),
        sums(reinterpret_cast<int32_t*>(scales + blocks)),
        codes(reinterpret_cast<int8_t*>(sums + blocks)) {}
  float* scales;
  int32_t* sums;
  int8_t* codes;  // to the end of the last group
};

}  // namespace

struct PackedNBitsLinear::Impl {
  // Values are read where they are, as far as the caches go.
  PanelPlan Plan(int64_t rows, bool coded, const ThreadPool* pool) const {
    return {rows, coded ? CodedRowBytes() : depth * 4, traits.most_rows, Panels(), coded, pool};
  }

  int64_t Blocks() const { return (depth + block - 1) / block; }
  int64_t PanelWidth() const { return traits.lanes * traits.panel_vectors; }
  int64_t Panels() const { return (channels + PanelWidth() - 1) / PanelWidth(); }
  // The vectors of a panel: of the last one, as many as it needs.
  int64_t Vectors(int64_t panel) const {
    const int64_t left = channels - panel * PanelWidth();
    return std::min(traits.panel_vectors, (left + traits.lanes - 1) / traits.lanes);
  }
  int64_t PackedDepth() const { return RoundUp(depth, internal::NBitsGroup(bits)); }
  // Of one channel in a panel.
  int64_t ChannelBytes() const {
    return Blocks() * internal::kNBitsParameterBytes + PackedDepth() * bits / 8;
  }
  size_t PanelOffset(int64_t panel) const {
    return static_cast<size_t>(panel * PanelWidth() * ChannelBytes());
  }
  // A multiple of 4: rows follow one another.
  int64_t CodedRowBytes() const { return Blocks() * 8 + PackedDepth(); }

  void PackChannel(const NBitsWeights& from, int64_t channel);
  void Arrange(const ConstCodedRows& x, int64_t row, CodedRow to) const;
  // Rows of one block of outputs: row(i, &tile, slot) puts row i into the tile.
  template <class Row>
  void Multiply(NBitsTile t, int64_t rows, int64_t panel, const MutableMatrix& y, int64_t first,
                const Row& row) const;
  template <class ArrangeRow, class Row>
  Status Run(int64_t rows, bool coded, const MutableMatrix& y, std::span<uint8_t> given,
             ThreadPool* pool, const ArrangeRow& arrange, const Row& row) const;
  Status Check(int64_t x_rows, int64_t x_columns, const MutableMatrix& y) const;

  NBitsTraits traits;
  int bits = 4;
  int64_t channels = 0, depth = 0, block = 32;
  hwy::AlignedVector<uint8_t> bytes;  // so that most vectors lie in one cache line
  std::vector<float> bias;            // empty, or of each channel
};

PackedNBitsLinear::PackedNBitsLinear() = default;
PackedNBitsLinear::~PackedNBitsLinear() = default;
PackedNBitsLinear::PackedNBitsLinear(PackedNBitsLinear&&) noexcept = default;
PackedNBitsLinear& PackedNBitsLinear::operator=(PackedNBitsLinear&&) noexcept = default;

void PackedNBitsLinear::Impl::PackChannel(const NBitsWeights& from, int64_t channel) {
  const int64_t panel = channel / PanelWidth(), n = channel % PanelWidth();
  const int64_t width = Vectors(panel) * traits.lanes, group = internal::NBitsGroup(bits);
  const int64_t blocks = Blocks(), block_bytes = block * bits / 8;
  const auto* const codes =
      static_cast<const uint8_t*>(from.codes) + channel * blocks * block_bytes;
  const auto* const zeros = static_cast<const uint8_t*>(from.zero_points);
  const int64_t zeros_of_row = (blocks * bits + 7) / 8;
  uint8_t* at = bytes.data() + PanelOffset(panel);
  for (int64_t b = 0; b < blocks; ++b) {
    std::memcpy(at + n * 4, from.scales + channel * blocks + b, 4);
    at[width * 4 + n] = static_cast<uint8_t>(
        zeros == nullptr ? 1 << (bits - 1) : CodeAt(zeros + channel * zeros_of_row, bits, b));
    at += width * internal::kNBitsParameterBytes;
    const int64_t count = std::min(block, depth - b * block);
    for (int64_t k = 0; k < count; ++k) {
      const int code = CodeAt(codes + b * block_bytes, bits, k) ^ traits.flip;
      uint8_t& byte = at[k / group * width * 4 + n * 4 + k % 4];
      byte = static_cast<uint8_t>(byte | code << (k % group / 4 * 4));
    }
    at += RoundUp(count, group) / group * width * 4;
  }
}

Status PackedNBitsLinear::Pack(const NBitsWeights& weights, PackedNBitsLinear* packed) {
  if (packed == nullptr) return {"packed is null, expected where to put the weights"};
  QUALM_RETURN_IF_ERROR(Validate(weights));
  return PackInMemory([&] {
    auto impl = std::make_unique<Impl>();
    impl->traits = internal::CurrentNBitsTraits(weights.bits);
    impl->bits = weights.bits;
    impl->channels = weights.channels;
    impl->depth = weights.depth;
    impl->block = weights.block;
    if (weights.bias != nullptr) impl->bias.assign(weights.bias, weights.bias + weights.channels);
    // Channels beyond the last one have scale 0 and codes 0: they are computed, and not written.
    const int64_t channels = RoundUp(weights.channels, impl->traits.lanes);
    impl->bytes.resize(static_cast<size_t>(channels * impl->ChannelBytes()));
    for (int64_t n = 0; n < weights.channels; ++n) impl->PackChannel(weights, n);
    packed->impl_ = std::move(impl);
  });
}

void PackedNBitsLinear::Impl::Arrange(const ConstCodedRows& x, int64_t row, CodedRow to) const {
  const int64_t blocks = Blocks();
  if (blocks == 0) return;
  const int8_t* const codes = x.codes + row * x.row_stride;
  std::memcpy(to.codes, codes, static_cast<size_t>(depth));
  std::memset(to.codes + depth, 0, static_cast<size_t>(PackedDepth() - depth));
  std::memcpy(to.scales, x.scales + row * blocks, static_cast<size_t>(blocks) * 4);
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t end = std::min((b + 1) * block, depth);
    int32_t sum = 0;
    for (int64_t k = b * block; k < end; ++k) sum += codes[k];
    to.sums[b] = sum;
  }
}

// Tiles as equal as possible.
template <class Row>
void PackedNBitsLinear::Impl::Multiply(NBitsTile t, int64_t rows, int64_t panel,
                                       const MutableMatrix& y, int64_t first,
                                       const Row& row) const {
  const int64_t channel = panel * PanelWidth();
  t.panel = bytes.data() + PanelOffset(panel);
  t.vectors = Vectors(panel);
  t.bias = bias.empty() ? nullptr : bias.data() + channel;
  t.columns = std::min(channels - channel, PanelWidth());
  for (int64_t at = 0; at < rows; at += t.rows) {
    const int64_t left = rows - at, most = traits.most_rows;
    t.rows = left <= most ? left : left >= 2 * most ? most : (left + 1) / 2;
    for (int64_t r = 0; r < t.rows; ++r) row(at + r, t, r);
    t.y = static_cast<float*>(y.data) + (first + at) * y.row_stride + channel;
    internal::MultiplyNBits(t);
  }
}

Status PackedNBitsLinear::Impl::Check(int64_t x_rows, int64_t x_columns,
                                      const MutableMatrix& y) const {
  QUALM_RETURN_IF_ERROR(internal::CheckMatrix("y", y));
  QUALM_RETURN_IF_ERROR(internal::CheckType("y.type", y.type, ElementType::kF32));
  QUALM_RETURN_IF_ERROR(
      internal::CheckSize("x.columns", x_columns, depth, "the depth of the weights"));
  QUALM_RETURN_IF_ERROR(internal::CheckSize("y.rows", y.rows, x_rows, "the rows of x"));
  QUALM_RETURN_IF_ERROR(
      internal::CheckSize("y.columns", y.columns, channels, "the channels of the weights"));
  return CheckPackedFor(traits.target);
}

template <class ArrangeRow, class Row>
Status PackedNBitsLinear::Impl::Run(int64_t rows, bool coded, const MutableMatrix& y,
                                    std::span<uint8_t> given, ThreadPool* pool,
                                    const ArrangeRow& arrange, const Row& row) const {
  const PanelPlan plan = Plan(rows, coded, pool);
  if (plan.tasks == 0) return {};
  const TaskScratch pieces(plan.scratch, plan.bytes(), given);
  if (!pieces.status().ok()) return pieces.status();
  NBitsTile tile;
  tile.coded = coded;
  tile.depth = depth;
  tile.block = block;
  tile.bits = bits;
  tile.quad_sum = traits.quad_sum;
  tile.flip = traits.flip;
  tile.y_stride = y.row_stride;
  const int64_t blocks = plan.row_blocks * plan.panel_blocks;
  internal::ForEachBlock(pool, plan.tasks, blocks, [&](int64_t task, int64_t block_of_outputs) {
    const int64_t first = block_of_outputs / plan.panel_blocks * plan.rows_of_block;
    const int64_t count = std::min(plan.rows_of_block, rows - first);
    uint8_t* const scratch = coded ? pieces.Of(task) : nullptr;
    for (int64_t r = 0; r < count; ++r) arrange(first + r, r, scratch);
    const int64_t from = block_of_outputs % plan.panel_blocks * plan.panels_of_block;
    const int64_t end = std::min(from + plan.panels_of_block, Panels());
    for (int64_t panel = from; panel < end; ++panel) {
      Multiply(tile, count, panel, y, first,
               [&](int64_t r, NBitsTile& t, int64_t slot) { row(first + r, r, scratch, t, slot); });
    }
  });
  return {};
}

Status PackedNBitsLinear::Run(const ConstMatrix& x, const MutableMatrix& y,
                              std::span<uint8_t> scratch, ThreadPool* pool) const {
  if (impl_ == nullptr) return {"the layer has no weights, expected Pack to be called first"};
  QUALM_RETURN_IF_ERROR(internal::CheckMatrix("x", x));
  QUALM_RETURN_IF_ERROR(internal::CheckType("x.type", x.type, ElementType::kF32));
  QUALM_RETURN_IF_ERROR(impl_->Check(x.rows, x.columns, y));
  QUALM_RETURN_IF_ERROR(internal::CheckDisjoint(x, y, scratch));
  const auto* const values = static_cast<const float*>(x.data);
  return impl_->Run(
      x.rows, false, y, scratch, pool, [](int64_t, int64_t, uint8_t*) {},
      [&](int64_t row, int64_t, uint8_t*, NBitsTile& t, int64_t slot) {
        t.values[slot] = x.columns == 0 ? nullptr : values + row * x.row_stride;
      });
}

Status PackedNBitsLinear::Run(const ConstCodedRows& x, const MutableMatrix& y,
                              std::span<uint8_t> scratch, ThreadPool* pool) const {
  if (impl_ == nullptr) return {"the layer has no weights, expected Pack to be called first"};
  const ConstMatrix codes{x.codes, ElementType::kS8, x.rows, x.columns, x.row_stride};
  QUALM_RETURN_IF_ERROR(internal::CheckMatrix("x", codes));
  QUALM_RETURN_IF_ERROR(impl_->Check(x.rows, x.columns, y));
  if (x.scales == nullptr && x.rows != 0 && x.columns != 0)
    return {"x.scales is null, expected a scale for each block of x"};
  QUALM_RETURN_IF_ERROR(internal::CheckDisjoint(codes, y, scratch));
  const int64_t blocks = impl_->Blocks();
  QUALM_RETURN_IF_ERROR(
      internal::CheckDisjoint({x.scales, ElementType::kF32, x.rows, blocks, blocks}, y, scratch));
  const auto coded = [&](int64_t r, uint8_t* memory) {
    return CodedRow(memory + r * impl_->CodedRowBytes(), blocks);
  };
  return impl_->Run(
      x.rows, true, y, scratch, pool,
      [&](int64_t row, int64_t r, uint8_t* memory) { impl_->Arrange(x, row, coded(r, memory)); },
      [&](int64_t, int64_t r, uint8_t* memory, NBitsTile& t, int64_t slot) {
        const CodedRow from = coded(r, memory);
        t.codes[slot] = from.codes;
        t.scales[slot] = from.scales;
        t.code_sums[slot] = from.sums;
      });
}

size_t PackedNBitsLinear::ScratchBytes(int64_t rows, const ThreadPool* pool) const {
  return impl_ == nullptr ? 0 : impl_->Plan(rows, true, pool).bytes();
}

Status QuantizeRows(const ConstMatrix& x, int64_t block, int8_t* codes, float* scales) {
  QUALM_RETURN_IF_ERROR(internal::CheckMatrix("x", x));
  QUALM_RETURN_IF_ERROR(internal::CheckType("x.type", x.type, ElementType::kF32));
  QUALM_RETURN_IF_ERROR(CheckBlock(block));
  if (x.rows == 0 || x.columns == 0) return {};
  if (codes == nullptr || scales == nullptr)
    return {"codes or scales is null, expected where to put them"};
  const ScopedFpEnvironment environment;
  for (int64_t row = 0; row < x.rows; ++row) {
    const float* const from = static_cast<const float*>(x.data) + row * x.row_stride;
    for (int64_t k = 0; k < x.columns; k += block, ++scales)
      internal::QuantizeNBitsBlock(from + k, std::min(block, x.columns - k),
                                   codes + row * x.columns + k, scales);
  }
  return {};
}

}  // namespace qualm::kernels
