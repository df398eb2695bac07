// SPDX-License-Identifier: Apache-2.0
// Lays the data of a case into guarded buffers for one call of a kernel, and says afterwards what
// the call damaged. Subjects in this process and the worker of plugins both use it.
#ifndef QUALM_ADAPTERS_HOST_PLACEMENT_H_
#define QUALM_ADAPTERS_HOST_PLACEMENT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/host/arena.h"
#include "adapters/host/far_rows.h"
#include "core/case.h"
#include "core/subject.h"

namespace qualm {

// The demands of a kernel on every buffer: bytes past the end that it may read (never write), and
// the alignment of the first byte.
struct BufferNeeds {
  size_t read_slack_bytes = 0;
  size_t alignment_bytes = 1;
};

// A tensor in a buffer, with `gap` elements between its rows. A row is one line of the last
// dimension; of weights one output channel; of images with gaps between lines, one line.
struct LaidTensor {
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;
  Rows rows;
  int64_t gap = 0;
  uint8_t* data = nullptr;
  int64_t stride() const { return rows.columns + gap; }
  size_t row_bytes() const { return static_cast<size_t>(rows.columns) * SizeOf(dtype); }
  size_t bytes() const { return ScatteredBytes(dtype, rows.count, rows.columns, gap); }
  bool is_far() const {  // in FarRows
    return rows.count != 0 && gap != 0 && static_cast<size_t>(gap) * SizeOf(dtype) >= kFarGapBytes;
  }
};
// The reason why the data of a case cannot lie as `context` wants, "" if they can: gaps and shared
// buffers exist for some operations only.
std::string WhyNotLaid(const Case& c, const RunContext& context);
Tensor Gather(const LaidTensor& laid);

class Placement {
 public:
  // One slot for each buffer. Only y and acc may be written.
  enum Slot : uint8_t {
    kX,
    kW,
    kXScale,
    kXZeroPoint,
    kWScale,
    kWZeroPoint,
    kOutScale,
    kOutZeroPoint,
    kMultiplier,
    kBias,
    kBiasI32,
    kWPacked,
    kXPacked,
    kInputs,
    kY = kInputs,
    kAcc,
    kSlots
  };

  // Begins a call: lays x, w and the poisoned y, with the gaps, alignment, poison and in-place
  // output that `context` asks for. This invalidates the pointers of the previous call. The case
  // must stay as it is until Inspect.
  void Lay(const Case& c, const RunContext& context, BufferNeeds needs);
  // Lays one list of parameters, which must stay as it is until Inspect, in a buffer of its own.
  template <class T>
  const T* LayList(Slot slot, const std::vector<T>& list, size_t alignment = sizeof(T)) {
    return reinterpret_cast<const T*>(
        LayInput(slot, list.size() * sizeof(T), alignment, list.data()));
  }
  // Lays s32 sums, shaped like y and dense, to be written by the kernel.
  void LayAcc();

  const LaidTensor& x() const { return x_; }
  const LaidTensor& w() const { return w_; }      // empty where the operation has none
  const LaidTensor& y() const { return y_; }      // over x or w, y.data is theirs
  const LaidTensor& acc() const { return acc_; }  // after LayAcc
  // nullptr for a slot that this call does not use, and for one whose rows lie far apart.
  const GuardedBuffer* buffer(Slot slot) const {
    return buffers_[slot].used && !buffers_[slot].is_far ? &buffers_[slot].memory : nullptr;
  }

  struct Damage {
    enum class Kind : uint8_t { kWroteOutside, kWroteBetweenRows, kModifiedInput };
    Kind kind = Kind::kWroteOutside;
    Slot slot = kX;
    size_t byte = 0;  // kModifiedInput: the first byte that differs; of far rows, without gaps
    RunStatus status() const {
      return kind == Kind::kModifiedInput ? RunStatus::kModifiedInput : RunStatus::kTouchedOutside;
    }
  };
  // The damage of the call to memory that it had to leave alone. Writes outside come first.
  std::optional<Damage> Inspect() const;

 private:
  uint8_t* Prepare(Slot slot, size_t bytes, size_t element_bytes, GuardedBuffer::Inside inside);
  uint8_t* LayInput(Slot slot, size_t bytes, size_t element_bytes, const void* from);
  void LayInput(Slot slot, const Tensor& tensor, const Rows& rows, int64_t gap, LaidTensor* laid);
  void LayOutput(Slot slot, LaidTensor* laid);
  void LayFar(Slot slot, LaidTensor* laid);

  struct Buffer {
    bool OutsideIntact() const { return is_far ? far.OutsideIntact() : memory.OutsideIntact(); }
    // The first byte of an input that is not as before, without the gaps of far rows.
    std::optional<size_t> Modified() const;

    GuardedBuffer memory;
    FarRows far;  // instead of `memory`
    bool is_far = false;
    const uint8_t* before = nullptr;  // contents of an input, as long as the buffer
    std::vector<uint8_t> copy;        // the memory of `before` if the rows of a tensor have gaps
    bool used = false;
  };
  std::array<Buffer, kSlots> buffers_;
  RunContext context_;
  BufferNeeds needs_;
  LaidTensor x_, w_, y_, acc_;
};

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_PLACEMENT_H_
