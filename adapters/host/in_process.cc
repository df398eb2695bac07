// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/in_process.h"

#include <array>
#include <exception>
#include <utility>

#include "adapters/host/traces.h"
#include "core/slice.h"

namespace qualm {
namespace {

const std::vector<float>& ScaleList(const Case& c) {
  return c.multiplier.empty() ? ChannelQParams(c).scale : c.multiplier;
}

const std::vector<int32_t>& ZeroPointList(const Case& c) {
  return (RowOf(c.op).multiplier ? c.out_q : ChannelQParams(c)).zero_point;
}

// The name of a buffer's contents in the sentence of an outcome.
std::string NameOf(Placement::Slot slot) {
  if (slot == Placement::kWScale) return "the scales";
  if (slot == Placement::kWZeroPoint) return "the zero points";
  if (slot == Placement::kBias || slot == Placement::kBiasI32) return "bias";
  return slot == Placement::kX ? "x" : slot == Placement::kW ? "w" : "y";
}

constexpr StateLimit kDense{"takes dense weights and images"};
constexpr StateLimit kPacksAfresh{"packs afresh for each call"};
// The limits of a subject that just computes; Run and RunOnce do the rest.
constexpr StateLimits kPlainCalls =
    std::to_array<StateLimit>({{""},    // align_offset
                               {""},    // end_at_guard
                               {""},    // poison
                               {""},    // x_row_gap
                               {""},    // y_row_gap
                               {""},    // in_place
                               kDense,  // w_row_gap
                               kDense,  // x_line_gap
                               {"does not write over the second operand"},
                               {""},          // shared_inputs
                               kPacksAfresh,  // calls
                               kPacksAfresh,  // callers
                               {""},          // watch
                               {""},          // threads
                               {""},          // rounding
                               {""},          // flush_denormals
                               {""}});        // want_acc

Outcome WithoutTensors(RunStatus status, std::string detail) {
  return {status, std::move(detail), {}, std::nullopt};
}

}  // namespace

Placed InProcessSubject::Place(const Case& c, const RunContext& context) {
  placement_.Lay(c, context, Needs());
  Placed placed;
  placed.problem = &c;
  placed.x = placement_.x().data;
  placed.x_stride = context.x_line_gap != 0 ? c.window.in_c : placement_.x().stride();
  placed.x_line_stride =
      context.x_line_gap != 0 ? placement_.x().stride() : c.window.in_w * placed.x_stride;
  placed.w = placement_.w().data;
  placed.w_stride = placement_.w().stride();
  placed.y = placement_.y().data;
  placed.y_stride = placement_.y().stride();
  placed.scale = PlaceList(Placement::kWScale, ScaleList(c));
  placed.zero_point = PlaceList(Placement::kWZeroPoint, ZeroPointList(c));
  if (c.bias_i32) {
    placed.bias_i32 = PlaceList(Placement::kBiasI32, *c.bias_i32);
  } else if (c.bias) {
    placed.bias = PlaceList(Placement::kBias, *c.bias);
  }
  return placed;
}

std::string InProcessSubject::CannotRunAs(const Case& /*c*/, const RunContext& context) const {
  return Refused(kPlainCalls, context);
}

Outcome InProcessSubject::Call(const Placed& placed, const RunContext& context) {
  struct Argument {
    InProcessSubject* subject;
    const Placed* placed;
    const RunContext* context;
    std::string refused;
    std::string threw;
    std::string trapped;
  } call{this, &placed, &context, "", "", ""};
  std::string trap;
  std::string left;
  const auto execute = [&] {
    trap = CallTrapped(
        [](void* argument) {
          auto* const it = static_cast<Argument*>(argument);
          try {
            it->refused = it->subject->Execute(*it->placed, *it->context);
          } catch (const TrapError& error) {
            it->trapped = error.what();
          } catch (const std::exception& exception) {
            it->threw = std::string("exception: ") + exception.what();
          }
        },
        &call);
  };
  {
    const ScopedEnvironment environment(context);
    std::optional<Traces> traces;
    if (context.watch) traces.emplace();
    execute();
    if (traces) {
      left = traces->Left();
      if (left.empty() && trap.empty()) left = LeakOf(execute);
    }
  }
  if (trap.empty()) trap = call.trapped;
  if (trap == kGuardPageTrap) return WithoutTensors(RunStatus::kTouchedOutside, trap);
  if (!trap.empty()) return WithoutTensors(RunStatus::kCrashed, trap);
  if (!call.threw.empty()) return WithoutTensors(RunStatus::kCrashed, call.threw);
  if (!left.empty()) return WithoutTensors(RunStatus::kLeftBehind, left);
  return WithoutTensors(call.refused.empty() ? RunStatus::kOk : RunStatus::kRefused, call.refused);
}

Outcome InProcessSubject::RunOnce(const Case& c, const RunContext& context) {
  Outcome outcome = Call(Place(c, context), context);
  if (!outcome.ok() && outcome.status != RunStatus::kRefused) return outcome;

  const std::optional<Placement::Damage> damage = placement_.Inspect();
  using Kind = Placement::Damage::Kind;
  if (damage && damage->kind == Kind::kWroteOutside)
    return WithoutTensors(damage->status(), "wrote outside " + NameOf(damage->slot));
  if (std::string touched = TouchedOutside(); !touched.empty())
    return WithoutTensors(RunStatus::kTouchedOutside, "wrote outside " + touched);
  if (damage) {
    const bool gap = damage->kind == Kind::kWroteBetweenRows;
    return WithoutTensors(damage->status(), (gap ? "wrote between the rows of " : "modified ") +
                                                NameOf(damage->slot));
  }
  // Memory was checked first, for refused calls too. Only now is the output read.
  if (outcome.ok()) outcome.y = Gather(placement_.y());
  return outcome;
}

BulkSubject::Buffers InProcessSubject::OpenBulk(const Case& c) {
  bulk_ = Place(c, {});
  const auto span = [this](Placement::Slot slot) -> std::span<uint8_t> {
    const GuardedBuffer& memory = *placement_.buffer(slot);
    return {memory.data(), memory.size()};
  };
  return {span(Placement::kX), span(Placement::kW), span(Placement::kY)};
}

std::string InProcessSubject::RunBulk() {
  const Outcome outcome = Call(bulk_, {});
  if (!outcome.ok()) return std::string(Name(outcome.status)) + ": " + outcome.detail;
  for (const Placement::Slot slot : {Placement::kX, Placement::kW, Placement::kY}) {
    if (!placement_.buffer(slot)->OutsideIntact()) return "wrote outside " + NameOf(slot);
  }
  return TouchedOutside().empty() ? "" : "wrote outside " + TouchedOutside();
}

// The sums of the same kernel without zero points and without the steps after the sums. nullopt if
// a sum is at an end of int32: the clamp may have hidden the accumulator.
std::optional<Tensor> InProcessSubject::RawAccumulators(const Case& c, const RunContext& context) {
  Case raw = slice::SumsOf(c);
  raw.x_q = raw.w_q = QParams{};
  raw.per_channel = false;
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
    return WithoutTensors(RunStatus::kSkipped, std::move(reason));
  }
  if (context.in_place && !CanRunInPlace(c.op)) {
    return WithoutTensors(RunStatus::kSkipped, std::string(Name(c.op)) + " does not run in place");
  }
  if (context.threads > 1 && !HasThreads(c.op))
    return WithoutTensors(RunStatus::kSkipped, "runs on one thread");
  std::string why = WhyNotLaid(c, context);
  if (why.empty()) why = CannotRunAs(c, context);
  if (!why.empty()) return WithoutTensors(RunStatus::kSkipped, std::move(why));
  Outcome outcome = RunOnce(c, context);
  if (outcome.ok() && context.want_acc && HasSums(c)) {
    outcome.acc = RawAccumulators(c, context);
  }
  return outcome;
}

}  // namespace qualm
