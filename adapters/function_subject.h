// SPDX-License-Identifier: Apache-2.0
// Somebody's C++ function as a subject: what a project includes to put a kernel of its own under
// the properties. docs/embedding.md shows it at work.
//
// The function runs in this process: each buffer lies between inaccessible pages, so that a stray
// read or write is a finding, and so are signals and exceptions. A hang is a finding only for
// plugins and pipes, which have a process of their own.
#ifndef QUALM_ADAPTERS_FUNCTION_SUBJECT_H_
#define QUALM_ADAPTERS_FUNCTION_SUBJECT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "adapters/host/in_process.h"
#include "adapters/host/plugin_limits.h"
#include "adapters/qualm_plugin.h"
#include "core/case.h"
#include "core/subject.h"
#include "core/tensor.h"

namespace qualm {

// One call of the function. X, W and Y are the element types: uint8_t, int8_t, int32_t or float; W
// is void for operations without a second tensor. Shapes are at core/case.h; strides in elements.
template <class X, class W, class Y>
struct KernelCall {
  const Case& c;  // sizes, window, clamp, scales and zero points of x and the output; no data
  const X* x = nullptr;
  int64_t x_stride = 0;  // from row to row, or from pixel to pixel
  const W* w = nullptr;  // dense; of operations with two inputs with w_stride
  int64_t w_stride = 0;
  // The parameters that may be per channel: those of the output (quantize), of x (dequantize), else
  // of w. requantize: the multipliers, and the output's zero point.
  std::span<const float> scale;
  std::span<const int32_t> zero_point;
  std::span<const float> bias;        // empty or N
  std::span<const int32_t> bias_i32;  // empty or N
  Y* y = nullptr;                     // to be written completely
  int64_t y_stride = 0;
};

class FunctionSubject final : public InProcessSubject {
 public:
  using Function = std::function<void(const Placed&)>;
  // Judged against `exact` until set_contract. Findings call the subject `name`. Throws InputError
  // where `name` is empty or has a ':' or '@', which have a meaning in names of subjects, and where
  // the limits are wrong (WrongLimits).
  FunctionSubject(std::string name, Op op, PluginLimits limits, Function function);

  std::string_view name() const override { return name_; }
  std::string CannotRun(const Case& c) const override;
  bool Offers(Op op) const override { return op == op_; }
  Outcome Run(const Case& c, const RunContext& context) override;

 protected:
  std::string Execute(const Placed& placed, const RunContext& context) override;
  BufferNeeds Needs() const override;
  std::string CannotRunAs(const Case& c, const RunContext& context) const override;

 private:
  std::string name_;
  Op op_;
  PluginLimits limits_;
  Function function_;
};

// `kernel` takes a const KernelCall<X, W, Y>&. The element types follow from X, W and Y; whatever
// else the kernel can do is said in `limits`, where zero means "no" or "no limit": features are the
// QUALM_CAN_... of adapters/qualm_plugin.h, and a range of zero points from 0 to 0 means symmetric
// only. Cases outside the limits are counted as skipped and never run.
template <class X, class W, class Y, class Kernel>
std::unique_ptr<Subject> MakeSubject(std::string name, Op op, PluginLimits limits, Kernel kernel) {
  limits.x_dtypes = QUALM_TYPE_BIT(static_cast<uint32_t>(DTypeOf<X>::value));
  limits.out_dtypes = QUALM_TYPE_BIT(static_cast<uint32_t>(DTypeOf<Y>::value));
  if constexpr (!std::is_void_v<W>) {
    limits.w_dtypes = QUALM_TYPE_BIT(static_cast<uint32_t>(DTypeOf<W>::value));
  }
  return std::make_unique<FunctionSubject>(
      std::move(name), op, limits, [kernel = std::move(kernel)](const Placed& p) mutable {
        kernel(KernelCall<X, W, Y>{.c = *p.problem,
                                   .x = static_cast<const X*>(p.x),
                                   .x_stride = p.x_stride,
                                   .w = static_cast<const W*>(p.w),
                                   .w_stride = p.w_stride,
                                   .scale = p.scale,
                                   .zero_point = p.zero_point,
                                   .bias = p.bias,
                                   .bias_i32 = p.bias_i32,
                                   .y = static_cast<Y*>(p.y),
                                   .y_stride = p.y_stride});
      });
}

}  // namespace qualm

#endif  // QUALM_ADAPTERS_FUNCTION_SUBJECT_H_
