// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/placement.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace qualm {
namespace {

// Of far rows, FarRows itself watches what can be accessed of the gaps.
bool GapsIntact(const LaidTensor& laid, uint8_t poison) {
  return laid.is_far() ||
         GapsIntact(laid.dtype, laid.rows.count, laid.rows.columns, laid.gap, poison, laid.data);
}

}  // namespace

std::string WhyNotLaid(const Case& c, const RunContext& context) {
  if (context.w_row_gap != 0 && !HasWeights(c.op)) return "has no weights";
  if (context.x_line_gap != 0 && (!HasWindow(c.op) || context.x_row_gap != 0))
    return "has no images of dense pixels";
  const bool has_gaps = context.x_row_gap != 0 || context.y_row_gap != 0;
  if ((has_gaps && (BitsOf(c.x.dtype()) < 8 || BitsOf(c.out_dtype) < 8)) ||
      (context.w_row_gap != 0 && BitsOf(c.w.dtype()) < 8))
    return "has elements of less than a byte, whose rows are dense";
  if (!context.over_w && !context.shared_inputs) return "";
  if (!HasTwoOperands(c.op)) return "has no second operand";
  if (context.over_w && context.in_place) return "the output lies over the first operand";
  if (context.over_w && context.shared_inputs) return "the output lies over both operands";
  return context.shared_inputs && c.x != c.w ? "the operands are not equal" : "";
}

Tensor Gather(const LaidTensor& laid) {
  return Gather(laid.dtype, laid.shape, laid.gap, laid.data);
}

uint8_t* Placement::Prepare(Slot slot, size_t bytes, size_t element_bytes,
                            GuardedBuffer::Inside inside) {
  buffers_[slot].used = true;
  return buffers_[slot].memory.Prepare(bytes, needs_.read_slack_bytes,
                                       std::max(element_bytes, needs_.alignment_bytes), context_,
                                       inside);
}

uint8_t* Placement::LayInput(Slot slot, size_t bytes, size_t element_bytes, const void* from) {
  uint8_t* const at = Prepare(slot, bytes, element_bytes, GuardedBuffer::Inside::kLeft);
  if (bytes != 0) std::memcpy(at, from, bytes);
  buffers_[slot].before = static_cast<const uint8_t*>(from);
  return at;
}

void Placement::LayInput(Slot slot, const Tensor& tensor, const Rows& rows, int64_t gap,
                         LaidTensor* laid) {
  laid->dtype = tensor.dtype();
  laid->shape = tensor.shape();
  laid->rows = rows;
  laid->gap = gap;
  if (laid->is_far()) {
    LayFar(slot, laid);
    Scatter(tensor, rows, gap, laid->data);
    buffers_[slot].before = tensor.bytes().data();
    return;
  }
  const size_t bytes = laid->bytes();
  if (gap == 0) {
    laid->data = LayInput(slot, bytes, AlignmentOf(tensor.dtype()), tensor.bytes().data());
    return;
  }
  laid->data = Prepare(slot, bytes, SizeOf(tensor.dtype()), GuardedBuffer::Inside::kPoisoned);
  Scatter(tensor, rows, gap, laid->data);
  buffers_[slot].copy.assign(laid->data, laid->data + bytes);
  buffers_[slot].before = buffers_[slot].copy.data();
}

void Placement::LayFar(Slot slot, LaidTensor* laid) {
  Buffer& buffer = buffers_[slot];
  buffer.used = buffer.is_far = true;
  laid->data = buffer.far.Prepare(static_cast<size_t>(laid->rows.count), laid->row_bytes(),
                                  static_cast<size_t>(laid->stride()) * SizeOf(laid->dtype),
                                  context_.poison);
}

void Placement::LayOutput(Slot slot, LaidTensor* laid) {
  if (laid->is_far()) return LayFar(slot, laid);
  laid->data =
      Prepare(slot, laid->bytes(), AlignmentOf(laid->dtype), GuardedBuffer::Inside::kPoisoned);
}

void Placement::Lay(const Case& c, const RunContext& context, BufferNeeds needs) {
  for (Buffer& buffer : buffers_) {
    buffer.used = buffer.is_far = false;
    buffer.far.Release();
  }
  context_ = context;
  needs_ = needs;
  const Window& v = c.window;
  if (context.x_line_gap != 0) {
    LayInput(kX, c.x, {v.batch * v.in_h, v.in_w * v.in_c}, context.x_line_gap, &x_);
  } else {
    LayInput(kX, c.x, RowsOf(c.x.shape()), context.x_row_gap, &x_);
  }
  if (context.shared_inputs) {
    w_ = x_;
  } else if (HasWeights(c.op)) {
    LayInput(kW, c.w, {c.N, c.K}, context.w_row_gap, &w_);
  } else {  // a second input is walked beside x
    LayInput(kW, c.w, RowsOf(c.w.shape()), HasTwoInputs(c.op) ? context.x_row_gap : 0, &w_);
  }
  const std::vector<int64_t> shape = c.output_shape();
  y_ = {c.out_dtype, shape, RowsOf(shape), context.y_row_gap, nullptr};
  if (context.in_place || context.over_w) {
    const LaidTensor& under = context.in_place ? x_ : w_;
    y_.gap = under.gap;
    y_.data = under.data;
  } else {
    LayOutput(kY, &y_);
  }
}

void Placement::LayAcc() {
  acc_ = {DType::kS32, y_.shape, y_.rows, 0, nullptr};
  LayOutput(kAcc, &acc_);
}

std::optional<size_t> Placement::Buffer::Modified() const {
  const auto differs = [](const uint8_t* was, const uint8_t* now,
                          size_t bytes) -> std::optional<size_t> {
    if (bytes == 0 || std::memcmp(now, was, bytes) == 0) return std::nullopt;
    return static_cast<size_t>(std::mismatch(was, was + bytes, now).first - was);
  };
  if (!is_far) return differs(before, memory.data(), memory.size());
  for (size_t row = 0; row < far.rows(); ++row) {
    const size_t at = row * far.row_bytes();
    if (const auto byte = differs(before + at, far.row(row), far.row_bytes())) return at + *byte;
  }
  return std::nullopt;
}

std::optional<Placement::Damage> Placement::Inspect() const {
  for (uint8_t slot = 0; slot < kSlots; ++slot) {
    if (buffers_[slot].used && !buffers_[slot].OutsideIntact())
      return Damage{Damage::Kind::kWroteOutside, static_cast<Slot>(slot)};
  }
  for (const auto& [slot, laid] : {std::pair{kX, &x_}, {kW, &w_}, {kY, &y_}}) {
    if (!GapsIntact(*laid, context_.poison)) return Damage{Damage::Kind::kWroteBetweenRows, slot};
  }
  for (uint8_t slot = 0; slot < kInputs; ++slot) {
    const bool output = (slot == kX && context_.in_place) || (slot == kW && context_.over_w);
    if (!buffers_[slot].used || output) continue;
    if (const std::optional<size_t> byte = buffers_[slot].Modified())
      return Damage{Damage::Kind::kModifiedInput, static_cast<Slot>(slot), *byte};
  }
  return std::nullopt;
}

}  // namespace qualm
