// SPDX-License-Identifier: Apache-2.0
// The base class of subjects that run inside this process: it lays a case into guarded buffers
// (placement.h), sets the state around the call, and checks memory and state after the call.
#ifndef QUALM_ADAPTERS_HOST_IN_PROCESS_H_
#define QUALM_ADAPTERS_HOST_IN_PROCESS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "adapters/host/placement.h"
#include "core/bulk.h"
#include "core/case.h"
#include "core/subject.h"

namespace qualm {

// A case whose data lies in guarded buffers. Take scalars and types from `problem`, data only from
// here. Strides in elements.
struct Placed {
  const Case* problem = nullptr;
  const void* x = nullptr;
  int64_t x_stride = 0;       // from row to row, or from pixel to pixel
  int64_t x_line_stride = 0;  // of images: from line to line; images follow each other
  const void* w = nullptr;
  int64_t w_stride = 0;  // from row to row; of weights: from output channel to output channel
  // The parameters that may be per channel: those of the output (quantize), of x (dequantize), else
  // of w. requantize: the multipliers, or w's scales where the case gives no multiplier, and the
  // output's zero point.
  std::span<const float> scale;
  std::span<const int32_t> zero_point;
  std::span<const float> bias;
  std::span<const int32_t> bias_i32;
  void* y = nullptr;  // x itself if context.in_place, w itself if context.over_w
  int64_t y_stride = 0;
};

// Thrown by code that has trapped a signal on another thread. The run then ends as if the signal
// came inside CallTrapped.
struct TrapError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A subject that runs on the calling thread, behind CallTrapped: our kernels, planted faults,
// conventions, functions that an embedding program gives.
class InProcessSubject : public BasicSubject, public BulkSubject {
 public:
  // `c` is valid (Validate). A trap at a guard page is kTouchedOutside, any other trap kCrashed.
  Outcome Run(const Case& c, const RunContext& context) override;

  Buffers OpenBulk(const Case& c) override;
  std::string RunBulk() override;

 protected:
  // Computes placed.y under the asked-for floating-point environment. Returns "" or why a case that
  // CannotRun let pass was refused. May be left by a signal: hold no resource that cannot leak.
  virtual std::string Execute(const Placed& placed, const RunContext& context) = 0;
  // "" or which buffer of the subject's own was written outside, after Execute.
  virtual std::string TouchedOutside() const { return ""; }
  // Whether the operation can use more than one thread. If not, runs that ask for threads are
  // skipped.
  virtual bool HasThreads(Op /*op*/) const { return false; }
  virtual BufferNeeds Needs() const { return {}; }
  // "" or the reason why the subject does not run a case with gaps in weights or images, with the
  // output over the second operand, or with one packing run several times or from several threads.
  virtual std::string CannotRunAs(const Case& c, const RunContext& context) const;

 private:
  Outcome RunOnce(const Case& c, const RunContext& context);
  // Execute, with signals and exceptions caught; the outcome has no tensors.
  Outcome Call(const Placed& placed, const RunContext& context);
  std::optional<Tensor> RawAccumulators(const Case& c, const RunContext& context);
  Placed Place(const Case& c, const RunContext& context);
  template <class T>
  std::span<const T> PlaceList(Placement::Slot slot, const std::vector<T>& list) {
    return {placement_.LayList(slot, list), list.size()};
  }

  Placement placement_;
  Placed bulk_;
};

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_IN_PROCESS_H_
