// SPDX-License-Identifier: Apache-2.0
// A block of rows of activations times packed weights, to outputs, for linear, dynamic_linear and
// conv2d. The inner loop is accumulate.cc. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_ROW_BLOCK_H_
#define QUALM_KERNELS_SUMS_ROW_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <variant>

#include "kernels/sums/accumulate.h"
#include "kernels/sums/epilogue.h"
#include "kernels/sums/pack.h"
#include "kernels/types.h"

namespace qualm::kernels {

// Rows that share one pass over the weights, where they are gathered or quantized first.
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
  RowBlockLayout() = default;  // of what needs no scratch
  // `plan` is that of the block.
  RowBlockLayout(std::span<const PackedWeights> weights, const CodePlan* plan, int64_t rows,
                 ScratchLayout* scratch);

  size_t sums128 = 0;   // [panel_width]
  size_t sums64 = 0;    // [rows][panel_width]
  size_t row_sums = 0;  // [rows]
  size_t sums32 = 0;    // [rows][panel_width]
  size_t tiny = 0;      // [rows][4]
  size_t shuffled = 0;  // [rows][depth]
  size_t widened = 0;   // [rows][WidenedBytes]
};

// The exact sums of one row, for channels [first, first + count) of the weights.
struct RowSums {
  int64_t row = 0;  // of the block
  int64_t first = 0;
  int64_t count = 0;
  int64_t channel = 0;  // of the layer: where those of the weights lie
  // Modulo 2^32, 2^64 or 2^128: terms that are still to be added may wrap. May be written to.
  std::variant<int32_t*, int64_t*, __int128*> sums;
  void* y = nullptr;  // the output of `channel`

  // Adds term(i), an __int128, to the sum of each channel first + i.
  template <class Term>
  void Add(const Term& term) const {
    std::visit(
        [&](auto* sum) {
          using Sum = std::remove_pointer_t<decltype(sum)>;
          for (int64_t i = 0; i < count; ++i) {
            sum[i] = static_cast<Sum>(static_cast<unsigned __int128>(sum[i]) +
                                      static_cast<unsigned __int128>(term(i)));
          }
        },
        sums);
  }

  void Finish(const Epilogue& epilogue, std::optional<float> x_scale = {}) const {
    std::visit([&](auto* sum) { epilogue.Apply(sum, channel, count, y, x_scale); }, sums);
  }
};

struct RowBlock {
  // [rows, depth of the weights]; may be null where depth is 0. Without `pieces` wherever sums may
  // not fit int32, zero points need sums of rows, or rows are arranged (arrange.h).
  const uint8_t* x = nullptr;
  int64_t x_stride = 0;      // bytes
  Pieces pieces = {};        // of a row; without any, the weights' pieces follow each other
  bool x_is_signed = false;  // the bytes are s8
  int64_t rows = 0;          // 1 .. rows of the layout
  uint8_t* y = nullptr;      // output of the first row, channel 0 of the layer
  int64_t y_stride = 0;      // elements
  ElementType y_type = ElementType::kU8;
  int64_t first_channel = 0;       // of the layer: where the weights' channels begin
  size_t first_panel = 0;          // of the weights
  size_t end_panel = SIZE_MAX;     // or all from the first on
  const CodePlan* plan = nullptr;  // makes codes of sums that fit int32; or null
};

// Calls write(context, sums) for each row and some channels at a time, until the sums of all that
// the plan has not made codes of were there. `scratch` is aligned. Must run in a
// ScopedFpEnvironment, on the target of the weights.
void RunRowBlock(const PackedWeights& weights, const RowBlock& block, const RowBlockLayout& layout,
                 uint8_t* scratch, void (*write)(const void* context, const RowSums& sums),
                 const void* context);
template <class Write>
void RunRowBlock(const PackedWeights& weights, const RowBlock& block, const RowBlockLayout& layout,
                 uint8_t* scratch, const Write& write) {
  const auto call = [](const void* context, const RowSums& sums) {
    (*static_cast<const Write*>(context))(sums);
  };
  RunRowBlock(weights, block, layout, scratch, call, &write);
}

// The arguments of AccumulatePanel for a panel of a layer with `plan` that needs no scratch, all
// but the activations, their rows, and where and how far apart the codes are: what a small call
// shall not work out again.
AccumulateArgs ArgsOfPanel(const PackedWeights& weights, const CodePlan& plan, bool x_is_signed,
                           size_t panel);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_ROW_BLOCK_H_
