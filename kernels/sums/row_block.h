// SPDX-License-Identifier: Apache-2.0
// A block of rows of activations times packed weights, to outputs: what linear does with its rows
// and conv2d with its gathered patches. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_ROW_BLOCK_H_
#define QUALM_KERNELS_SUMS_ROW_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include "kernels/sums/epilogue.h"
#include "kernels/sums/pack.h"
#include "kernels/types.h"

namespace qualm::kernels {

// Rows that share one pass over the weights: a panel stays in the nearest cache for all of them.
inline constexpr int64_t kRowBlock = 64;

// Hands out aligned pieces of scratch memory whose own alignment is not known.
class ScratchLayout {
 public:
  // The offset of `size` more bytes.
  size_t Add(int64_t size) {
    const size_t offset = used_;
    used_ += (static_cast<size_t>(size) + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  // Memory needed, at any alignment.
  size_t bytes() const { return used_ == 0 ? 0 : used_ + kAlignment - 1; }

  static uint8_t* Align(uint8_t* p) {
    const uintptr_t misaligned = reinterpret_cast<uintptr_t>(p) % kAlignment;
    return misaligned == 0 ? p : p + (kAlignment - misaligned);
  }

 private:
  static constexpr size_t kAlignment = alignof(std::max_align_t);
  size_t used_ = 0;
};

// Scratch for several tasks, each with a piece of `layout`: the caller's, where it is large enough,
// else its own.
class TaskScratch {
 public:
  // `bytes`: what all tasks need together.
  TaskScratch(const ScratchLayout& layout, size_t bytes, std::span<uint8_t> given)
      : bytes_per_task_(layout.bytes()), base_(given.data()) {
    if (given.size() >= bytes) return;
    own_.reset(new (std::nothrow) uint8_t[bytes]);
    base_ = own_.get();
    if (base_ == nullptr) status_ = {"no memory for scratch, expected to allocate it"};
  }

  const Status& status() const { return status_; }
  // Aligned.
  uint8_t* Of(int64_t task) const {
    return ScratchLayout::Align(base_ + static_cast<size_t>(task) * bytes_per_task_);
  }

 private:
  size_t bytes_per_task_;
  uint8_t* base_;
  std::unique_ptr<uint8_t[]> own_;
  Status status_;
};

// Where the buffers of one block of at most `rows` rows lie in scratch memory; the same for all of
// `weights`, which are used one after the other.
struct RowBlockLayout {
  RowBlockLayout(std::span<const PackedWeights> weights, int64_t rows, ScratchLayout* scratch);

  size_t sums128 = 0;   // [panel_width]
  size_t sums64 = 0;    // [rows][panel_width]
  size_t row_sums = 0;  // [rows]
  size_t sums32 = 0;    // [rows][panel_width]
  size_t tails = 0;     // [rows][4]
};

// What is to be added to the sums of a row beyond its activations: the padding of a convolution.
class RowCorrection {
 public:
  // To be added to the sum of `row` of the block and `channel` of the weights.
  virtual __int128 At(int64_t row, int64_t channel) const = 0;

 protected:
  ~RowCorrection() = default;
};

struct RowBlock {
  const uint8_t* x = nullptr;  // [rows, depth of the weights]; may be null where depth is 0
  int64_t x_stride = 0;        // bytes
  bool x_is_signed = false;    // the bytes are s8
  int64_t rows = 0;            // 1 .. rows of the layout
  uint8_t* y = nullptr;        // output of the first row, channel 0 of the layer
  int64_t y_stride = 0;        // elements
  ElementType y_type = ElementType::kU8;
  int64_t first_channel = 0;                  // of the layer: where the weights' channels begin
  const RowCorrection* correction = nullptr;  // or null: none
};

// `scratch` is aligned. Must run in a ScopedFpEnvironment, on the target of the weights.
void RunRowBlock(const PackedWeights& weights, const Epilogue& epilogue, const RowBlock& block,
                 const RowBlockLayout& layout, uint8_t* scratch);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_ROW_BLOCK_H_
