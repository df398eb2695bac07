// SPDX-License-Identifier: Apache-2.0
// Weights are packed into panels of channels, one behind the other (sums/blocks.h). A block of
// outputs is some rows times some panels: its rows are arranged once, then every panel meets them a
// tile at a time, so that a panel is read from memory once for all of these rows. Each output is
// computed in one tile from its own row and channel alone, so that no cut matters to its bits.
#include "kernels/block_linear.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "hwy/aligned_allocator.h"
#include "kernels/common/fp_environment.h"
#include "kernels/common/parallel.h"
#include "kernels/common/validate.h"
#include "kernels/sums/accumulate.h"
#include "kernels/sums/blocks.h"
#include "kernels/sums/layer_validate.h"
#include "kernels/sums/panel_plan.h"
#include "kernels/sums/row_block.h"

namespace qualm::kernels {
namespace {

using internal::ArrangedBlock;
using internal::BlockTile;
using internal::BlockTraits;
using internal::PanelPlan;

const uint8_t* RowOf(const ConstBlocks& m, int64_t row) {
  return static_cast<const uint8_t*>(m.data) + (m.blocks == 0 ? 0 : row * m.row_stride);
}

void ArrangeQ8K(const uint8_t* from, int64_t blocks, ArrangedBlock* to) {
  constexpr int64_t kParts = BlockParts(BlockFormat::kQ8_K);
  for (int64_t b = 0; b < blocks; ++b, from += BlockBytes(BlockFormat::kQ8_K)) {
    const uint8_t* const codes = from + sizeof(float);
    const uint8_t* const sums = codes + kParts * kBlockCodes;
    for (int64_t part = 0; part < kParts; ++part, ++to) {
      to->scale = internal::FloatAt(from);
      std::memcpy(to->codes, codes + part * kBlockCodes, kBlockCodes);
      std::memcpy(&to->initial, sums + part * 4, sizeof(to->initial));
    }
  }
}

void ArrangeQ8_0(const uint8_t* from, int64_t blocks, int32_t zero, ArrangedBlock* to) {
  for (int64_t b = 0; b < blocks; ++b, from += BlockBytes(BlockFormat::kQ8_0), ++to) {
    to->scale = internal::FloatOfHalf(internal::HalfAt(from));
    std::memcpy(to->codes, from + sizeof(uint16_t), kBlockCodes);
    int32_t sum = 0;
    for (const int8_t code : to->codes) sum += code;
    to->initial = -zero * sum;
  }
}

}  // namespace

struct PackedBlockLinear::Impl {
  PanelPlan Plan(int64_t rows, const ThreadPool* pool) const {
    return {rows,
            RowParts() * static_cast<int64_t>(sizeof(ArrangedBlock)),
            traits.most_rows,
            Panels(),
            true,
            pool};
  }

  int64_t PanelWidth() const { return traits.lanes * traits.panel_vectors; }
  int64_t Panels() const { return (channels + PanelWidth() - 1) / PanelWidth(); }
  // The vectors of a panel: of the last one, as many as it needs.
  int64_t Vectors(int64_t panel) const {
    const int64_t left = channels - panel * PanelWidth();
    return std::min(traits.panel_vectors, (left + traits.lanes - 1) / traits.lanes);
  }
  size_t PanelOffset(int64_t panel) const {
    return static_cast<size_t>(panel * PanelWidth() * blocks * internal::PanelBytes(format));
  }
  int64_t RowParts() const { return blocks * BlockParts(format); }
  void PackBlock(const uint8_t* from, int64_t n, int64_t width, uint8_t* to) const;
  void PackPanel(const ConstBlocks& weights, int64_t panel);
  void Multiply(const ArrangedBlock* x, int64_t rows, int64_t panel, float* y,
                int64_t y_stride) const;

  BlockTraits traits;
  BlockFormat format = BlockFormat::kQ8_0;
  int64_t channels = 0, blocks = 0;
  hwy::AlignedVector<uint8_t> bytes;  // so that most vectors lie in one cache line
};

PackedBlockLinear::PackedBlockLinear() = default;
PackedBlockLinear::~PackedBlockLinear() = default;
PackedBlockLinear::PackedBlockLinear(PackedBlockLinear&&) noexcept = default;
PackedBlockLinear& PackedBlockLinear::operator=(PackedBlockLinear&&) noexcept = default;

// A block of channel n of a panel of so many.
void PackedBlockLinear::Impl::PackBlock(const uint8_t* from, int64_t n, int64_t width,
                                        uint8_t* to) const {
  constexpr int64_t kScaleBytes = 2;
  std::memcpy(to + n * kScaleBytes, from, kScaleBytes);
  const auto place = [=](int64_t k) { return k / 4 * 4 * width + 4 * n + k % 4; };
  if (format != BlockFormat::kQ4_K) {
    for (int64_t k = 0; k < BlockBytes(format) - kScaleBytes; ++k)
      to[width * kScaleBytes + place(k)] =
          static_cast<uint8_t>(from[kScaleBytes + k] ^ traits.flip);
    return;
  }
  std::memcpy(to + (width + n) * kScaleBytes, from + kScaleBytes, kScaleBytes);
  const internal::SixBits factors(from + 2 * kScaleBytes);
  uint8_t* const after = to + 2 * width * kScaleBytes;
  constexpr int64_t kParts = BlockParts(BlockFormat::kQ4_K);
  for (int64_t part = 0; part < kParts; ++part) {
    after[part * width + n] = factors.s[part];
    after[(kParts + part) * width + n] = factors.z[part];
    uint8_t* const codes = after + (2 * kParts + part * kBlockCodes / 2) * width;
    const uint8_t* const of_two = from + 16 + part / 2 * kBlockCodes;
    const int shift = part % 2 * 4;
    for (int64_t k = 0; k < kBlockCodes / 2; ++k) {
      const int low = of_two[k] >> shift & 15, high = of_two[k + kBlockCodes / 2] >> shift & 15;
      codes[place(k)] = static_cast<uint8_t>(low | high << 4);
    }
  }
}

void PackedBlockLinear::Impl::PackPanel(const ConstBlocks& weights, int64_t panel) {
  const int64_t first = panel * PanelWidth(), width = Vectors(panel) * traits.lanes;
  uint8_t* const to = bytes.data() + PanelOffset(panel);
  // Channels beyond the last one have scale 0 and codes 0: they are computed, and not written.
  for (int64_t n = 0; n < std::min(width, channels - first); ++n) {
    const uint8_t* const row = RowOf(weights, first + n);
    uint8_t* at = to;
    for (int64_t lane = 0; lane < kBlockLanes; ++lane) {
      for (int64_t b = lane; b < blocks;
           b += kBlockLanes, at += width * internal::PanelBytes(format))
        PackBlock(row + b * BlockBytes(format), n, width, at);
    }
  }
}

Status PackedBlockLinear::Pack(const ConstBlocks& weights, PackedBlockLinear* packed) {
  if (packed == nullptr) return {"packed is null, expected where to put the weights"};
  QUALM_RETURN_IF_ERROR(internal::CheckBlocks("weights", weights));
  if (!internal::IsWeightFormat(weights.format))
    return {"weights.format is kQ8_K, expected a format of weights"};
  return PackInMemory([&] {
    auto impl = std::make_unique<Impl>();
    impl->traits = internal::CurrentBlockTraits(weights.format);
    impl->format = weights.format;
    impl->channels = weights.rows;
    impl->blocks = weights.blocks;
    const int64_t lanes = impl->traits.lanes;
    const int64_t channels = (weights.rows + lanes - 1) / lanes * lanes;
    impl->bytes.resize(
        static_cast<size_t>(channels * weights.blocks * internal::PanelBytes(weights.format)));
    for (int64_t panel = 0; panel < impl->Panels(); ++panel) impl->PackPanel(weights, panel);
    packed->impl_ = std::move(impl);
  });
}

// Of one panel times the arranged rows: tiles as equal as possible.
void PackedBlockLinear::Impl::Multiply(const ArrangedBlock* x, int64_t rows, int64_t panel,
                                       float* y, int64_t y_stride) const {
  BlockTile t;
  t.panel = bytes.data() + PanelOffset(panel);
  t.vectors = Vectors(panel);
  t.blocks = blocks;
  t.format = format;
  t.quad_sum = traits.quad_sum;
  t.y_stride = y_stride;
  t.columns = std::min(channels - panel * PanelWidth(), PanelWidth());
  for (int64_t row = 0; row < rows; row += t.rows) {
    const int64_t left = rows - row, most = traits.most_rows;
    t.rows = left <= most ? left : left >= 2 * most ? most : (left + 1) / 2;
    for (int64_t r = 0; r < t.rows; ++r) t.x[r] = x + (row + r) * RowParts();
    t.y = y + row * y_stride;
    internal::MultiplyTile(t);
  }
}

Status PackedBlockLinear::Run(const ConstBlocks& x, const MutableMatrix& y,
                              std::span<uint8_t> scratch, ThreadPool* pool) const {
  if (impl_ == nullptr) return {"the layer has no weights, expected Pack to be called first"};
  QUALM_RETURN_IF_ERROR(internal::CheckBlocks("x", x));
  QUALM_RETURN_IF_ERROR(internal::CheckMatrix("y", y));
  if (x.format != ActivationsOf(impl_->format)) {
    return {impl_->format == BlockFormat::kQ4_K
                ? "x.format is not kQ8_K, expected activations Q8_K"
                : "x.format is not kQ8_0, expected activations Q8_0"};
  }
  QUALM_RETURN_IF_ERROR(internal::CheckType("y.type", y.type, ElementType::kF32));
  QUALM_RETURN_IF_ERROR(
      internal::CheckSize("x.blocks", x.blocks, impl_->blocks, "the blocks of the weights"));
  QUALM_RETURN_IF_ERROR(internal::CheckSize("y.rows", y.rows, x.rows, "the rows of x"));
  QUALM_RETURN_IF_ERROR(
      internal::CheckSize("y.columns", y.columns, impl_->channels, "the rows of the weights"));
  const int64_t row_bytes = x.blocks * BlockBytes(x.format);
  QUALM_RETURN_IF_ERROR(internal::CheckDisjoint(
      {x.data, ElementType::kU8, x.rows, row_bytes, std::max(x.row_stride, row_bytes)}, y,
      scratch));
  QUALM_RETURN_IF_ERROR(CheckPackedFor(impl_->traits.target));
  const PanelPlan plan = impl_->Plan(x.rows, pool);
  if (plan.tasks == 0) return {};
  const TaskScratch pieces(plan.scratch, plan.bytes(), scratch);
  if (!pieces.status().ok()) return pieces.status();

  const int64_t blocks = plan.row_blocks * plan.panel_blocks;
  internal::ForEachBlock(pool, plan.tasks, blocks, [&](int64_t task, int64_t block) {
    const int64_t first = block / plan.panel_blocks * plan.rows_of_block;
    const int64_t rows = std::min(plan.rows_of_block, x.rows - first);
    auto* const arranged = reinterpret_cast<ArrangedBlock*>(pieces.Of(task));
    for (int64_t r = 0; r < rows; ++r) {
      ArrangedBlock* const to = arranged + r * impl_->RowParts();
      if (x.format == BlockFormat::kQ8_K) {
        ArrangeQ8K(RowOf(x, first + r), x.blocks, to);
      } else {
        ArrangeQ8_0(RowOf(x, first + r), x.blocks, impl_->traits.zero, to);
      }
    }
    const int64_t from = block % plan.panel_blocks * plan.panels_of_block;
    const int64_t end = std::min(from + plan.panels_of_block, impl_->Panels());
    for (int64_t panel = from; panel < end; ++panel) {
      float* const out =
          static_cast<float*>(y.data) + first * y.row_stride + panel * impl_->PanelWidth();
      impl_->Multiply(arranged, rows, panel, out, y.row_stride);
    }
  });
  return {};
}

size_t PackedBlockLinear::ScratchBytes(int64_t rows, const ThreadPool* pool) const {
  return impl_ == nullptr ? 0 : impl_->Plan(rows, pool).bytes();
}

Status BlockDot(BlockFormat format, const void* w, const void* x, int64_t blocks, float* y) {
  if (!internal::IsWeightFormat(format)) return {"format is none of weights, see BlockFormat"};
  if (blocks < 0 || blocks > internal::kMostBlocks)
    return internal::IsButExpected("blocks", blocks, "0 to 2^40");
  if (y == nullptr || (blocks != 0 && (w == nullptr || x == nullptr)))
    return {"a pointer is null, expected two rows and an output"};
  const ScopedFpEnvironment environment;
  *y = internal::DotOfBlocks(format, static_cast<const uint8_t*>(w), static_cast<const uint8_t*>(x),
                             blocks);
  return {};
}

}  // namespace qualm::kernels
