// SPDX-License-Identifier: Apache-2.0
// A case: one complete, printable problem. Everything a subject needs, nothing it may guess.
// docs/case-format.md is the file form; core/io/case_json.h reads and writes it.
#ifndef QUALM_CORE_CASE_H_
#define QUALM_CORE_CASE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "core/types.h"

namespace qualm {

// real = scale * (code - zero_point). One entry each per tensor, or one per channel.
// Scales are finite and > 0 (denormals are valid); zero points are any int32.
struct QParams {
  std::vector<float> scale = {1.0f};
  std::vector<int32_t> zero_point = {0};

  float scale_at(int64_t channel) const {
    return scale[scale.size() == 1 ? 0 : static_cast<size_t>(channel)];
  }
  int32_t zero_point_at(int64_t channel) const {
    return zero_point[zero_point.size() == 1 ? 0 : static_cast<size_t>(channel)];
  }
  friend bool operator==(const QParams&, const QParams&) = default;
};

// How an accumulator becomes a code (docs/quantization.md): the exact meaning, or the arithmetic
// of a backend that the network was calibrated for.
//   kFloat32     rne(float(acc + bias) * float32 multiplier) + zero point, as FBGEMM and QNNPACK
//   kFixedQ31    rounding doubling high multiply, then rounding shift: gemmlowp, TFLite
//   kFixedRndnu  one rounding shift, half up, of the 64-bit product: XNNPACK
enum class Requant : uint8_t { kExact, kFloat32, kFixedQ31, kFixedRndnu };
std::string_view Name(Requant requant);
std::optional<Requant> ParseRequant(std::string_view name);

// What a table operation applies to the real value of a code.
enum class Function : uint8_t { kRelu, kLeakyRelu, kHardSwish, kSigmoid, kTanh };
std::string_view Name(Function function);
std::optional<Function> ParseFunction(std::string_view name);

// choose_qparams: how scales and zero points follow from batches of float32 values. The meaning is
// PyTorch's observers, float32 step by step.
struct Observer {
  enum class Kind : uint8_t { kMinMax, kMovingAverage, kHistogram };
  Kind kind = Kind::kMinMax;
  bool symmetric = false;
  bool reduce_range = false;
  DType dtype = DType::kU8;                // of the codes to be quantized to; also s8
  int32_t quant_min = 0, quant_max = 255;  // before reduce_range; inside dtype
  float averaging_constant = 0.01f;        // kMovingAverage
  friend bool operator==(const Observer&, const Observer&) = default;
};
std::string_view Name(Observer::Kind kind);
std::optional<Observer::Kind> ParseObserverKind(std::string_view name);

// What somebody else's software printed for this case.
struct Observed {
  std::string by;  // free text: library, version, instruction set
  Tensor y;        // of out_dtype, the shape of the output
  friend bool operator==(const Observed&, const Observed&) = default;
};

// The window of convolutions and pools over NHWC images. Sizes in elements, all >= 0 unless said.
struct Window {
  int64_t batch = 0;
  int64_t in_h = 0, in_w = 0;
  int64_t in_c = 0;
  int64_t kernel_h = 1, kernel_w = 1;  // >= 1
  int64_t stride_h = 1, stride_w = 1;  // >= 1
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  int64_t dilation_h = 1, dilation_w = 1;  // >= 1
  int64_t groups = 1;                      // convolutions; divides in_c and the output channels
  bool ceil_mode = false;                  // pools: as PyTorch, see docs/quantization.md
  bool count_include_pad = false;          // avg_pool: padding counts in the divisor

  // Output size; 0 where the dilated kernel does not fit the padded input.
  int64_t out_h() const;
  int64_t out_w() const;
  friend bool operator==(const Window&, const Window&) = default;
};

// Shapes, row-major, by op ("channel" is always the last axis of the output):
//   quantize    x f32 [M,N]              -> codes [M,N];  out.{scale,zero_point} 1 or N entries
//   dequantize  x codes [M,N]            -> f32   [M,N];  x_q  1 or N entries
//   requantize  x s32 [M,N]              -> codes [M,N];  multiplier 1 or N entries, or, when
//               multiplier is empty, the exact quotient x_q.scale * w_q.scale[n] / out.scale
//   rescale     x codes [M,N]            -> codes [M,N]
//   add, mul    x codes [M,N] (operand a), w codes [M,N] (operand b), of one type -> codes [M,N]
//   linear      x codes [M,K], w codes [N,K] -> out_dtype [M,N];  w_q 1 or N entries
//   conv2d      x codes [batch,H,W,C], w codes [N,R,S,C/groups] -> out_dtype [batch,OH,OW,N];
//               w_q 1 or N entries; M = batch*OH*OW and K = R*S*C/groups are derived
//   depthwise   conv2d with groups = C
//   max_pool, avg_pool, global_avg_pool
//               x codes [batch,H,W,C] -> codes [batch,OH,OW,C]; M derived, N = C, K = R*S
//   concat      x codes [M,A], w codes [M,N-A] of one type -> codes [M,N], each rescaled alone
//   table       x codes [M,N]            -> codes [M,N]
//   softmax     x codes [M,N], over each row -> codes [M,N] of scale 2^-8 and the lowest code as
//               zero point
//   choose_qparams
//               x f32 [batches,M,N], one batch after another; per_channel: one row of the output
//               per m, else all M*N together -> f32 [2,M or 1]: scales, then zero points
// per_channel says which of the two forms the list is in where N = 1 cannot tell (some backends
// compute the two differently).
struct Case {
  Op op = Op::kLinear;
  int64_t M = 0;
  int64_t N = 0;
  int64_t K = 0;  // terms of one sum: linear, convolutions, pools; else 0

  Tensor x;
  Tensor w;       // weights, or the second operand of add and mul; else empty
  Window window;  // convolutions and pools; else default
  QParams x_q;
  QParams w_q;
  QParams out_q;
  bool per_channel = false;
  std::vector<float> multiplier;        // requantize only
  Function function = Function::kRelu;  // table only
  float negative_slope = 0.01f;         // table with kLeakyRelu only; finite, >= 0
  Observer observer;                    // choose_qparams only

  // At most one of the two; N entries. bias is in real units, bias_i32 in units x_scale*w_scale[n].
  std::optional<std::vector<float>> bias;
  std::optional<std::vector<int32_t>> bias_i32;

  DType out_dtype = DType::kU8;
  int32_t out_min = 0;  // clamp of integer outputs, inside RangeOf(out_dtype)
  int32_t out_max = 255;
  bool relu = false;  // lower bound max(out_min, zero point); 0 for s32 and f32 outputs
  Requant requant = Requant::kExact;

  // Not part of the problem; carried along.
  std::string property;            // the claim this case is about, "" if none
  std::string note;                // one sentence for people
  std::optional<Tensor> expected;  // the exact output
  std::optional<Observed> observed;

  std::vector<int64_t> output_shape() const;
  friend bool operator==(const Case&, const Case&) = default;
};

// Convolutions; these and linear end in a sum over K terms of x*w.
constexpr bool IsConv(Op op) { return op == Op::kConv2d || op == Op::kDepthwise; }
constexpr bool IsPool(Op op) {
  return op == Op::kMaxPool || op == Op::kAvgPool || op == Op::kGlobalAvgPool;
}
constexpr bool HasWindow(Op op) { return IsConv(op) || IsPool(op); }
constexpr bool HasSums(Op op) { return op == Op::kLinear || IsConv(op); }
constexpr bool HasTwoOperands(Op op) { return op == Op::kAdd || op == Op::kMul; }
// x and w are inputs of one kind, which case files call a and b.
constexpr bool HasTwoInputs(Op op) { return HasTwoOperands(op) || op == Op::kConcat; }
constexpr bool HasW(Op op) { return HasSums(op) || HasTwoInputs(op); }
// Elementwise, with elements of one size in x and the output.
constexpr bool CanRunInPlace(Op op) {
  return op == Op::kRescale || op == Op::kTable || HasTwoOperands(op);
}

// Derives M, N and K of a case with a window from it and from N (pools: N = in_c).
void DeriveSizes(Case* c);

// The input elements under one output of a convolution or pool, tap by tap in (r, s) order:
// `x_row` is the index of channel 0 of the pixel in x, or -1 where the tap lies in the padding
// (or, for pools with ceil_mode, beyond it).
struct Tap {
  int64_t r = 0, s = 0;
  int64_t x_row = -1;
};
// Taps of output pixel `m` (row-major over batch, out_h, out_w).
std::vector<Tap> TapsOf(const Window& window, int64_t m);

// Smallest code that leaves the clamp: out_min, or the larger of it and the code of real 0 (0 for
// s32 outputs) under relu. Where the zero point lies above out_max the result does too, and every
// output is out_max. `channel` matters only to a quantize with one zero point per channel.
int64_t LowerBound(const Case& c, int64_t channel = 0);

// The problem alone: the same case without property, note, expected and observed.
Case ProblemOf(const Case& c);

// Checks every rule of the domain (docs/quantization.md): shapes, list lengths, finite positive
// scales, finite bias, clamp inside the type. Returns "" or "FIELD: what is wrong, what was
// expected".
std::string Validate(const Case& c);

// One line for people and logs: "linear M=1 N=1 K=2 u8*s8->u8 per-tensor relu".
std::string Describe(const Case& c);

}  // namespace qualm

#endif  // QUALM_CORE_CASE_H_
