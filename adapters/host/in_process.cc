// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/in_process.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

namespace qualm {
namespace {

bool Holds(const void* at, std::span<const uint8_t> bytes) {
  return bytes.empty() || std::memcmp(at, bytes.data(), bytes.size()) == 0;
}

template <class T>
std::span<const uint8_t> Bytes(const std::vector<T>& list) {
  return {reinterpret_cast<const uint8_t*>(list.data()), list.size() * sizeof(T)};
}

const std::vector<float>& ScaleList(const Case& c) {
  if (c.op == Op::kQuantize) return c.out_q.scale;
  if (c.op == Op::kDequantize) return c.x_q.scale;
  if (c.op == Op::kRequantize && !c.multiplier.empty()) return c.multiplier;
  return c.w_q.scale;
}

const std::vector<int32_t>& ZeroPointList(const Case& c) {
  if (c.op == Op::kQuantize || c.op == Op::kRequantize) return c.out_q.zero_point;
  if (c.op == Op::kDequantize) return c.x_q.zero_point;
  return c.w_q.zero_point;
}

// Between the rows of w: add, mul and concat walk both operands alike, weights are dense.
int64_t WeightGap(const Case& c, const RunContext& context) {
  return HasTwoInputs(c.op) ? context.x_row_gap : 0;
}

std::span<const uint8_t> BiasBytes(const Case& c) {
  if (c.bias) return Bytes(*c.bias);
  if (c.bias_i32) return Bytes(*c.bias_i32);
  return {};
}

}  // namespace

uint8_t* InProcessSubject::Prepare(GuardedBuffer& buffer, size_t bytes, size_t element_bytes,
                                   const RunContext& context) const {
  const BufferNeeds needs = Needs();
  return buffer.Prepare(bytes, needs.read_slack_bytes,
                        std::max(element_bytes, needs.alignment_bytes), context);
}

template <class T>
std::span<const T> InProcessSubject::PlaceList(std::span<const T> list, const RunContext& context,
                                               GuardedBuffer& buffer) const {
  uint8_t* const at = Prepare(buffer, list.size_bytes(), sizeof(T), context);
  if (!list.empty()) std::memcpy(at, list.data(), list.size_bytes());
  return {reinterpret_cast<const T*>(at), list.size()};
}

Placed InProcessSubject::Place(const Case& c, const RunContext& context) {
  Placed placed;
  placed.problem = &c;
  const DType x_type = c.x.dtype();
  const Rows x_rows = RowsOf(c.x.shape());
  uint8_t* const x =
      Prepare(x_, ScatteredBytes(x_type, x_rows.count, x_rows.columns, context.x_row_gap),
              SizeOf(x_type), context);
  Scatter(c.x, context.x_row_gap, x);
  placed.x = x;
  placed.x_stride = x_rows.columns + context.x_row_gap;
  const Rows w_rows = RowsOf(c.w.shape());
  const int64_t w_gap = WeightGap(c, context);
  uint8_t* const w = Prepare(w_, ScatteredBytes(c.w.dtype(), w_rows.count, w_rows.columns, w_gap),
                             SizeOf(c.w.dtype()), context);
  Scatter(c.w, w_gap, w);
  placed.w = w;
  placed.w_stride = w_rows.columns + w_gap;
  placed.scale = PlaceList(std::span(ScaleList(c)), context, scale_);
  placed.zero_point = PlaceList(std::span(ZeroPointList(c)), context, zero_point_);
  if (c.bias_i32) {
    placed.bias_i32 = PlaceList(std::span(*c.bias_i32), context, bias_);
  } else if (c.bias) {
    placed.bias = PlaceList(std::span(*c.bias), context, bias_);
  } else {
    Prepare(bias_, 0, 1, context);
  }
  if (context.in_place) {
    Prepare(y_, 0, 1, context);
    placed.y = x;
    placed.y_stride = placed.x_stride;
    return placed;
  }
  const Rows y_rows = RowsOf(c.output_shape());
  placed.y =
      Prepare(y_, ScatteredBytes(c.out_dtype, y_rows.count, y_rows.columns, context.y_row_gap),
              SizeOf(c.out_dtype), context);
  placed.y_stride = y_rows.columns + context.y_row_gap;
  return placed;
}

Outcome InProcessSubject::RunOnce(const Case& c, const RunContext& context) {
  const Placed placed = Place(c, context);

  struct Call {
    InProcessSubject* subject;
    const Placed* placed;
    const RunContext* context;
    std::string refused;
    std::string threw;
    std::string trapped;
  } call{this, &placed, &context, "", "", ""};
  std::string trap;
  {
    const ScopedEnvironment environment(context);
    trap = CallTrapped(
        [](void* argument) {
          auto* const it = static_cast<Call*>(argument);
          try {
            it->refused = it->subject->Execute(*it->placed, *it->context);
          } catch (const TrapError& error) {
            it->trapped = error.what();
          } catch (const std::exception& exception) {
            it->threw = std::string("exception: ") + exception.what();
          }
        },
        &call);
  }
  if (trap.empty()) trap = call.trapped;
  const auto failed = [](RunStatus status, std::string detail) {
    return Outcome{status, std::move(detail), {}, std::nullopt};
  };
  if (trap == kGuardPageTrap) return failed(RunStatus::kTouchedOutside, trap);
  if (!trap.empty()) return failed(RunStatus::kCrashed, trap);
  if (!call.threw.empty()) return failed(RunStatus::kCrashed, call.threw);

  const std::pair<const GuardedBuffer*, const char*> buffers[] = {
      {&x_, "x"}, {&w_, "w"},       {&scale_, "the scales"}, {&zero_point_, "the zero points"},
      {&y_, "y"}, {&bias_, "bias"},
  };
  for (const auto& [buffer, name] : buffers) {
    if (!buffer->OutsideIntact()) {
      return failed(RunStatus::kTouchedOutside, std::string("wrote outside ") + name);
    }
  }
  if (std::string touched = TouchedOutside(); !touched.empty()) {
    return failed(RunStatus::kTouchedOutside, "wrote outside " + touched);
  }
  const auto* const x = static_cast<const uint8_t*>(placed.x);
  const auto* const y = static_cast<const uint8_t*>(placed.y);
  const Rows x_rows = RowsOf(c.x.shape());
  if (!GapsIntact(c.x.dtype(), x_rows.count, x_rows.columns, context.x_row_gap, context.poison,
                  x)) {
    return failed(RunStatus::kTouchedOutside, "wrote between the rows of x");
  }
  const int64_t w_gap = WeightGap(c, context);
  const int64_t y_gap = context.in_place ? context.x_row_gap : context.y_row_gap;
  const Rows w_rows = RowsOf(c.w.shape());
  if (!GapsIntact(c.w.dtype(), w_rows.count, w_rows.columns, w_gap, context.poison, w_.data())) {
    return failed(RunStatus::kTouchedOutside, "wrote between the rows of w");
  }
  const Rows y_rows = RowsOf(c.output_shape());
  if (!GapsIntact(c.out_dtype, y_rows.count, y_rows.columns, y_gap, context.poison, y)) {
    return failed(RunStatus::kTouchedOutside, "wrote between the rows of y");
  }
  const char* modified = nullptr;
  if (!context.in_place && Gather(c.x.dtype(), c.x.shape(), context.x_row_gap, x) != c.x) {
    modified = "x";
  }
  if (Gather(c.w.dtype(), c.w.shape(), w_gap, w_.data()) != c.w) modified = "w";
  if (!Holds(scale_.data(), Bytes(ScaleList(c)))) modified = "the scales";
  if (!Holds(zero_point_.data(), Bytes(ZeroPointList(c)))) modified = "the zero points";
  if (!Holds(bias_.data(), BiasBytes(c))) modified = "bias";
  if (modified != nullptr) {
    return failed(RunStatus::kModifiedInput, std::string("modified ") + modified);
  }
  // Last: a call that refused must not have touched anything either.
  if (!call.refused.empty()) return failed(RunStatus::kRefused, call.refused);
  return {RunStatus::kOk, "", Gather(c.out_dtype, c.output_shape(), y_gap, y), std::nullopt};
}

// The same kernel with everything after the accumulator neutral: no zero points, no bias, s32 out.
// Nothing where a sum reaches the ends of int32: the clamp may have hidden the accumulator.
std::optional<Tensor> InProcessSubject::RawAccumulators(const Case& c, const RunContext& context) {
  Case raw = ProblemOf(c);
  raw.x_q = QParams{};
  raw.w_q = QParams{};
  raw.out_q = QParams{};
  raw.per_channel = false;
  raw.bias.reset();
  raw.bias_i32.reset();
  raw.out_dtype = DType::kS32;
  raw.out_min = std::numeric_limits<int32_t>::min();
  raw.out_max = std::numeric_limits<int32_t>::max();
  raw.relu = false;
  raw.requant = Requant::kExact;
  if (!CannotRun(raw).empty()) return std::nullopt;
  Outcome outcome = RunOnce(raw, context);
  if (!outcome.ok()) return std::nullopt;
  for (const int32_t sum : outcome.y.as<int32_t>()) {
    if (sum == raw.out_min || sum == raw.out_max) return std::nullopt;
  }
  return std::move(outcome.y);
}

Outcome InProcessSubject::Run(const Case& c, const RunContext& context) {
  if (std::string reason = CannotRun(c); !reason.empty()) {
    return {RunStatus::kSkipped, std::move(reason), {}, std::nullopt};
  }
  const auto skipped = [](std::string why) {
    return Outcome{RunStatus::kSkipped, std::move(why), {}, std::nullopt};
  };
  if (context.in_place && !CanRunInPlace(c.op)) {
    return skipped(std::string(Name(c.op)) + " does not run in place");
  }
  if (context.threads > 1 && !HasThreads(c.op)) return skipped("runs on one thread");
  Outcome outcome = RunOnce(c, context);
  if (outcome.ok() && context.want_acc && HasSums(c.op)) {
    outcome.acc = RawAccumulators(c, context);
  }
  return outcome;
}

}  // namespace qualm
