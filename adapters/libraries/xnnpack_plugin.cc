// SPDX-License-Identifier: Apache-2.0
// XNNPACK (Debian 12: ae108ef, 2022-02) as a plugin: its quantized operators as the public header
// declares them, on the calling thread. An operator without weights is made, run and deleted for
// each problem. The last operators with weights are kept, because an application runs one many
// times: what an operator remembers of earlier inputs shows only so.
//
// Results follow model:xnnpack@fp32 on x86 and model:xnnpack@rndnu on AArch64. The library itself
// refuses ratios of scales out of its range and 1x1 pools. Cases that it only asserts about, or
// gets wrong, are refused here with the reason.
#include <pthreadpool.h>
#include <xnnpack.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "adapters/libraries/plugin_answer.h"
#include "adapters/qualm_plugin.h"

namespace {

using qualm::plugin::Refusal;

void Require(bool holds, const char* reason) {
  if (!holds) throw Refusal{QUALM_UNSUPPORTED, reason};
}

void Check(xnn_status status, const std::string& function) {
  switch (status) {
    case xnn_status_success: return;
    case xnn_status_invalid_parameter:
      throw Refusal{QUALM_UNSUPPORTED, "XNNPACK refuses (" + function + ": invalid parameter)"};
    case xnn_status_unsupported_parameter:
      throw Refusal{QUALM_UNSUPPORTED, "XNNPACK refuses (" + function + ": unsupported parameter)"};
    case xnn_status_unsupported_hardware:
      throw Refusal{QUALM_UNSUPPORTED, "XNNPACK lacks " + function + " on this CPU"};
    default:
      throw Refusal{QUALM_FAILED, function + " failed with status " + std::to_string(status)};
  }
}

class Operator {
 public:
  Operator() = default;
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  ~Operator() { xnn_delete_operator(op_); }

  xnn_operator_t* out() { return &op_; }
  xnn_operator_t get() const { return op_; }
  void Run() { Check(xnn_run_operator(op_, nullptr), "xnn_run_operator"); }

 private:
  xnn_operator_t op_ = nullptr;
};

// The functions that XNNPACK has once for u8 and once for s8.
template <typename Code>
struct Api;
template <>
struct Api<int8_t> {
  static constexpr auto kCreateAdd = xnn_create_add_nd_qs8;
  static constexpr auto kSetupAdd = xnn_setup_add_nd_qs8;
  static constexpr auto kCreateSub = xnn_create_subtract_nd_qs8;
  static constexpr auto kSetupSub = xnn_setup_subtract_nd_qs8;
  static constexpr auto kCreateMul = xnn_create_multiply_nd_qs8;
  static constexpr auto kSetupMul = xnn_setup_multiply_nd_qs8;
  static constexpr auto kCreateQuantize = xnn_create_convert_nc_f32_qs8;
  static constexpr auto kSetupQuantize = xnn_setup_convert_nc_f32_qs8;
  static constexpr auto kCreateDequantize = xnn_create_convert_nc_qs8_f32;
  static constexpr auto kSetupDequantize = xnn_setup_convert_nc_qs8_f32;
  static constexpr auto kCreateMaxPool = xnn_create_max_pooling2d_nhwc_s8;
  static constexpr auto kSetupMaxPool = xnn_setup_max_pooling2d_nhwc_s8;
  static constexpr auto kCreateGlobalAvgPool = xnn_create_global_average_pooling_nwc_qs8;
  static constexpr auto kSetupGlobalAvgPool = xnn_setup_global_average_pooling_nwc_qs8;
  static constexpr auto kCreateSigmoid = xnn_create_sigmoid_nc_qs8;
  static constexpr auto kSetupSigmoid = xnn_setup_sigmoid_nc_qs8;
  static constexpr auto kCreateTanh = xnn_create_tanh_nc_qs8;
  static constexpr auto kSetupTanh = xnn_setup_tanh_nc_qs8;
  static constexpr auto kCreateClamp = xnn_create_clamp_nc_s8;
  static constexpr auto kSetupClamp = xnn_setup_clamp_nc_s8;
};
template <>
struct Api<uint8_t> {
  static constexpr auto kCreateAdd = xnn_create_add_nd_qu8;
  static constexpr auto kSetupAdd = xnn_setup_add_nd_qu8;
  static constexpr auto kCreateSub = xnn_create_subtract_nd_qu8;
  static constexpr auto kSetupSub = xnn_setup_subtract_nd_qu8;
  static constexpr auto kCreateMul = xnn_create_multiply_nd_qu8;
  static constexpr auto kSetupMul = xnn_setup_multiply_nd_qu8;
  static constexpr auto kCreateQuantize = xnn_create_convert_nc_f32_qu8;
  static constexpr auto kSetupQuantize = xnn_setup_convert_nc_f32_qu8;
  static constexpr auto kCreateDequantize = xnn_create_convert_nc_qu8_f32;
  static constexpr auto kSetupDequantize = xnn_setup_convert_nc_qu8_f32;
  static constexpr auto kCreateMaxPool = xnn_create_max_pooling2d_nhwc_u8;
  static constexpr auto kSetupMaxPool = xnn_setup_max_pooling2d_nhwc_u8;
  static constexpr auto kCreateGlobalAvgPool = xnn_create_global_average_pooling_nwc_qu8;
  static constexpr auto kSetupGlobalAvgPool = xnn_setup_global_average_pooling_nwc_qu8;
  static constexpr auto kCreateSigmoid = xnn_create_sigmoid_nc_qu8;
  static constexpr auto kSetupSigmoid = xnn_setup_sigmoid_nc_qu8;
  static constexpr auto kCreateTanh = xnn_create_tanh_nc_qu8;
  static constexpr auto kSetupTanh = xnn_setup_tanh_nc_qu8;
  static constexpr auto kCreateClamp = xnn_create_clamp_nc_u8;
  static constexpr auto kSetupClamp = xnn_setup_clamp_nc_u8;
};

template <typename Code>
Code ZeroPoint(const qualm_qparams& q) {
  const int32_t zero_point = q.zero_point[0];
  Require(zero_point >= std::numeric_limits<Code>::min() &&
              zero_point <= std::numeric_limits<Code>::max(),
          "XNNPACK's zero points are codes of their tensor's type");
  return static_cast<Code>(zero_point);
}

template <typename Code>
struct Clamp {
  Code low;
  Code high;
};
template <typename Code>
Clamp<Code> ClampOf(const qualm_problem& p) {
  const int32_t low = p.relu != 0 ? std::max(p.out_min, p.out_q.zero_point[0]) : p.out_min;
  Require(low < p.out_max, "XNNPACK's clamp leaves two codes or more");
  return {static_cast<Code>(low), static_cast<Code>(p.out_max)};
}

void RequireNormal(float scale) {
  Require(std::isnormal(scale), "XNNPACK's scales are normal numbers");
}

// The kernels' parameters are made under assertions on this range.
void RequireMultiplier(float multiplier) {
  Require(multiplier >= 0x1p-32f && multiplier < 256.0f,
          "XNNPACK's multipliers lie in [2^-32, 256)");
}

void RequireOneType(const qualm_problem& p) {
  Require(p.x->dtype == p.y->dtype && (p.w == nullptr || p.w->dtype == p.x->dtype),
          "XNNPACK's operands and output have one type");
}

void RequireSameParameters(const qualm_problem& p) {
  Require(p.x_q.scale[0] == p.out_q.scale[0] && p.x_q.zero_point[0] == p.out_q.zero_point[0],
          "XNNPACK clamps codes; it does not rescale them");
}

size_t Size(int64_t value) { return static_cast<size_t>(value); }
uint32_t Small(int64_t value) { return static_cast<uint32_t>(value); }

// Whether the library will choose the depthwise kernels of SSE2, SSE4.1, AVX or XOP. Some of these
// add pairs of s8*s8 products in int16 before they widen them.
bool AddsProductsInInt16() {
#if defined(__x86_64__) || defined(__i386__)
  return !__builtin_cpu_supports("avx2") || __builtin_cpu_supports("xop");
#else
  return false;
#endif
}

// One convolution, or a linear as a 1x1 convolution over M pixels.
struct Geometry {
  size_t batch, in_h, in_w, in_c, out_c, x_stride, y_stride;
  qualm_window window;
};
Geometry GeometryOf(const qualm_problem& p) {
  if (p.op == QUALM_LINEAR) {
    qualm_window one{};
    one.kernel_h = one.kernel_w = one.stride_h = one.stride_w = one.dilation_h = one.dilation_w =
        one.groups = 1;
    return {1,
            Size(p.x->dims[0]),
            1,
            Size(p.x->dims[1]),
            Size(p.y->dims[1]),
            Size(p.x->strides[0]),
            Size(p.y->strides[0]),
            one};
  }
  return {Size(p.x->dims[0]), Size(p.x->dims[1]),    Size(p.x->dims[2]),    Size(p.x->dims[3]),
          Size(p.y->dims[3]), Size(p.x->strides[2]), Size(p.y->strides[2]), *p.window};
}

// Calls create(padding, kernel, ..., strides, `rest`...) for each of the kinds of convolution.
template <typename Create, typename... Rest>
void CreateConvolution(Create create, const Geometry& g, Operator& op, Rest... rest) {
  const qualm_window& v = g.window;
  Check(create(Small(v.pad_top), Small(v.pad_right), Small(v.pad_bottom), Small(v.pad_left),
               Small(v.kernel_h), Small(v.kernel_w), Small(v.stride_h), Small(v.stride_w),
               Small(v.dilation_h), Small(v.dilation_w), Small(v.groups), g.in_c / Size(v.groups),
               g.out_c / Size(v.groups), g.x_stride, g.y_stride, rest..., 0, op.out()),
        "xnn_create_convolution2d_nhwc");
}

template <typename Code>
void RequireWeights(const qualm_problem& p) {
  RequireOneType(p);
  RequireNormal(p.x_q.scale[0]);
  RequireNormal(p.out_q.scale[0]);
  const bool fused = p.window != nullptr && p.window->groups == p.x->dims[3] &&
                     p.window->groups == p.y->dims[3] &&
                     (p.window->kernel_h * p.window->kernel_w == 9 ||
                      p.window->kernel_h * p.window->kernel_w == 25);
  if (std::is_signed_v<Code> && fused && AddsProductsInInt16()) {
    const auto* w = static_cast<const int8_t*>(p.w->data);
    const int64_t count = p.y->dims[3] * p.window->kernel_h * p.window->kernel_w;
    Require(std::none_of(w, w + count, [](int8_t code) { return code == INT8_MIN; }),
            "without AVX2, XNNPACK's depthwise kernels add two products in int16, where two of "
            "-128 * -128 wrap");
  }
  for (int64_t n = 0; n < p.w_q.count; ++n) {
    RequireNormal(p.w_q.scale[n]);
    if (std::is_signed_v<Code>)
      Require(p.w_q.zero_point[n] == 0, "XNNPACK's s8 weights have zero point 0");
    // Per channel the multipliers are data, and nothing asserts their range.
    if (p.w_q.count == 1) RequireMultiplier(p.x_q.scale[0] * p.w_q.scale[0] / p.out_q.scale[0]);
  }
}

// The parameters of an operator as bytes: equal keys, equal operators.
class Key {
 public:
  template <typename T>
  Key& AddList(const T* values, int64_t count) {
    text_.append(reinterpret_cast<const char*>(values), Size(count) * sizeof(T));
    return *this;
  }
  template <typename... Numbers>
  Key& Add(Numbers... numbers) {
    (AddList(&numbers, 1), ...);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// An operator with weights, made now or kept from an earlier problem. The one used last stands at
// the end.
class KeptOperator {
 public:
  // `create(op)` makes the operator of this key.
  template <typename Create>
  KeptOperator(const Key& key, const Create& create) : kept_(Kept()) {
    const auto at = std::find_if(kept_.begin(), kept_.end(),
                                 [&](const Entry& entry) { return entry.key == key.text(); });
    if (at != kept_.end()) {
      std::rotate(at, at + 1, kept_.end());
      return;
    }
    auto made = std::make_unique<Operator>();
    create(*made);
    if (kept_.size() == kMost) kept_.erase(kept_.begin());
    kept_.push_back({key.text(), std::move(made)});
  }
  // A refused setup may leave the operator half set up.
  ~KeptOperator() {
    if (!ran_) kept_.pop_back();
  }
  KeptOperator(const KeptOperator&) = delete;
  KeptOperator& operator=(const KeptOperator&) = delete;

  xnn_operator_t get() const { return kept_.back().op->get(); }
  void Run() {
    kept_.back().op->Run();
    ran_ = true;
  }

 private:
  struct Entry {
    std::string key;
    std::unique_ptr<Operator> op;
  };
  static constexpr size_t kMost = 8;
  // Never destroyed: at process exit the library's own globals may go first.
  static std::vector<Entry>& Kept() {
    static auto* kept = new std::vector<Entry>;
    return *kept;
  }

  std::vector<Entry>& kept_;
  bool ran_ = false;
};

// Everything an operator with weights is made from. The batch and the size of the image are no part
// of it.
template <typename Code>
Key KeyOf(const qualm_problem& p, const Geometry& g, Clamp<Code> clamp) {
  const qualm_window& v = g.window;
  Key key;
  key.Add(p.op, std::is_signed_v<Code>, g.in_c, g.out_c, g.x_stride, g.y_stride);
  key.Add(v.kernel_h, v.kernel_w, v.stride_h, v.stride_w, v.pad_top, v.pad_bottom, v.pad_left,
          v.pad_right, v.dilation_h, v.dilation_w, v.groups);
  key.Add(clamp.low, clamp.high, p.bias_i32 != nullptr);
  for (const qualm_qparams* q : {&p.x_q, &p.w_q, &p.out_q})
    key.Add(q->count).AddList(q->scale, q->count).AddList(q->zero_point, q->count);
  const auto channels = static_cast<int64_t>(g.out_c);
  if (p.bias_i32 != nullptr) key.AddList(p.bias_i32, channels);
  const int64_t terms = v.kernel_h * v.kernel_w * static_cast<int64_t>(g.in_c) / v.groups;
  return key.AddList(static_cast<const Code*>(p.w->data), channels * terms);
}

template <typename Code>
void CreateSums(const qualm_problem& p, const Geometry& g, Clamp<Code> clamp, Operator& op) {
  const auto x_zero_point = ZeroPoint<Code>(p.x_q);
  const auto out_zero_point = ZeroPoint<Code>(p.out_q);
  const auto* w = static_cast<const Code*>(p.w->data);
  const float x_scale = p.x_q.scale[0];
  const float out_scale = p.out_q.scale[0];
  if constexpr (std::is_signed_v<Code>) {
    if (p.w_q.count > 1) {
      CreateConvolution(xnn_create_convolution2d_nhwc_qc8, g, op, x_zero_point, x_scale,
                        p.w_q.scale, w, p.bias_i32, out_zero_point, out_scale, clamp.low,
                        clamp.high);
    } else if (p.op == QUALM_LINEAR) {
      Check(xnn_create_fully_connected_nc_qs8(
                g.in_c, g.out_c, g.x_stride, g.y_stride, x_zero_point, x_scale, p.w_q.scale[0], w,
                p.bias_i32, out_zero_point, out_scale, clamp.low, clamp.high, 0, op.out()),
            "xnn_create_fully_connected_nc_qs8");
    } else {
      CreateConvolution(xnn_create_convolution2d_nhwc_qs8, g, op, x_zero_point, x_scale,
                        p.w_q.scale[0], w, p.bias_i32, out_zero_point, out_scale, clamp.low,
                        clamp.high);
    }
  } else {
    const auto w_zero_point = ZeroPoint<Code>(p.w_q);
    if (p.op == QUALM_LINEAR) {
      Check(xnn_create_fully_connected_nc_qu8(g.in_c, g.out_c, g.x_stride, g.y_stride, x_zero_point,
                                              x_scale, w_zero_point, p.w_q.scale[0], w, p.bias_i32,
                                              out_zero_point, out_scale, clamp.low, clamp.high, 0,
                                              op.out()),
            "xnn_create_fully_connected_nc_qu8");
    } else {
      CreateConvolution(xnn_create_convolution2d_nhwc_qu8, g, op, x_zero_point, x_scale,
                        w_zero_point, p.w_q.scale[0], w, p.bias_i32, out_zero_point, out_scale,
                        clamp.low, clamp.high);
    }
  }
}

template <typename Code>
void SetupSums(const qualm_problem& p, const Geometry& g, xnn_operator_t op) {
  const auto* x = static_cast<const Code*>(p.x->data);
  auto* y = static_cast<Code*>(p.y->data);
  if constexpr (std::is_signed_v<Code>) {
    if (p.w_q.count > 1) {
      Check(xnn_setup_convolution2d_nhwc_qc8(op, g.batch, g.in_h, g.in_w, x, y, nullptr),
            "xnn_setup_convolution2d_nhwc_qc8");
    } else if (p.op == QUALM_LINEAR) {
      Check(xnn_setup_fully_connected_nc_qs8(op, g.in_h, x, y, nullptr),
            "xnn_setup_fully_connected_nc_qs8");
    } else {
      Check(xnn_setup_convolution2d_nhwc_qs8(op, g.batch, g.in_h, g.in_w, x, y, nullptr),
            "xnn_setup_convolution2d_nhwc_qs8");
    }
  } else if (p.op == QUALM_LINEAR) {
    Check(xnn_setup_fully_connected_nc_qu8(op, g.in_h, x, y, nullptr),
          "xnn_setup_fully_connected_nc_qu8");
  } else {
    Check(xnn_setup_convolution2d_nhwc_qu8(op, g.batch, g.in_h, g.in_w, x, y, nullptr),
          "xnn_setup_convolution2d_nhwc_qu8");
  }
}

template <typename Code>
void RunSums(const qualm_problem& p) {
  RequireWeights<Code>(p);
  if (!std::is_signed_v<Code>)
    Require(p.w_q.count == 1, "XNNPACK has parameters per channel for s8 only");
  const Geometry g = GeometryOf(p);
  const auto clamp = ClampOf<Code>(p);
  KeptOperator op(KeyOf<Code>(p, g, clamp),
                  [&](Operator& made) { CreateSums<Code>(p, g, clamp, made); });
  SetupSums<Code>(p, g, op.get());
  op.Run();
}

template <typename Code, typename Create, typename Setup>
void RunOperands(const qualm_problem& p, Create create, Setup setup, const char* name) {
  RequireOneType(p);
  const auto clamp = ClampOf<Code>(p);
  Operator op;
  Check(create(ZeroPoint<Code>(p.x_q), p.x_q.scale[0], ZeroPoint<Code>(p.w_q), p.w_q.scale[0],
               ZeroPoint<Code>(p.out_q), p.out_q.scale[0], clamp.low, clamp.high, 0, op.out()),
        name);
  const size_t shape[] = {Size(p.y->dims[0]), Size(p.y->dims[1])};
  Check(setup(op.get(), 2, shape, 2, shape, static_cast<const Code*>(p.x->data),
              static_cast<const Code*>(p.w->data), static_cast<Code*>(p.y->data), nullptr),
        name);
  op.Run();
}

// Elementwise over rows: create(channels, strides, `rest`...).
template <typename In, typename Out, typename Create, typename Setup, typename... Rest>
void RunRows(const qualm_problem& p, Create create, Setup setup, const char* name, Rest... rest) {
  Operator op;
  Check(create(Size(p.x->dims[1]), Size(p.x->strides[0]), Size(p.y->strides[0]), rest..., 0,
               op.out()),
        name);
  Check(setup(op.get(), Size(p.x->dims[0]), static_cast<const In*>(p.x->data),
              static_cast<Out*>(p.y->data), nullptr),
        name);
  op.Run();
}

template <typename Code>
void RunQuantize(const qualm_problem& p) {
  RequireNormal(p.out_q.scale[0]);
  const auto clamp = ClampOf<Code>(p);
  RunRows<float, Code>(p, Api<Code>::kCreateQuantize, Api<Code>::kSetupQuantize,
                       "xnn_create_convert_nc_f32_to_code", p.out_q.scale[0],
                       ZeroPoint<Code>(p.out_q), clamp.low, clamp.high);
}

template <typename Code>
void RunDequantize(const qualm_problem& p) {
  RequireNormal(p.x_q.scale[0]);
  RunRows<Code, float>(p, Api<Code>::kCreateDequantize, Api<Code>::kSetupDequantize,
                       "xnn_create_convert_nc_code_to_f32", p.x_q.scale[0], ZeroPoint<Code>(p.x_q));
}

template <typename Code>
void RunClamp(const qualm_problem& p) {
  RequireOneType(p);
  RequireSameParameters(p);
  auto clamp = ClampOf<Code>(p);
  // The relu of a table, like that of a fused one, raises the lower end to the code of 0.
  if (p.op == QUALM_TABLE) {
    clamp.low = std::max(clamp.low, ZeroPoint<Code>(p.out_q));
    Require(clamp.low < clamp.high, "XNNPACK's clamp leaves two codes or more");
  }
  RunRows<Code, Code>(p, Api<Code>::kCreateClamp, Api<Code>::kSetupClamp, "xnn_create_clamp_nc",
                      clamp.low, clamp.high);
}

template <typename Code>
void RunTable(const qualm_problem& p) {
  if (p.function == QUALM_RELU) return RunClamp<Code>(p);
  RequireOneType(p);
  RequireNormal(p.x_q.scale[0]);
  RequireNormal(p.out_q.scale[0]);
  const auto clamp = ClampOf<Code>(p);
  const auto x_zero_point = ZeroPoint<Code>(p.x_q);
  const auto out_zero_point = ZeroPoint<Code>(p.out_q);
  switch (p.function) {
    case QUALM_SIGMOID:
      return RunRows<Code, Code>(p, Api<Code>::kCreateSigmoid, Api<Code>::kSetupSigmoid,
                                 "xnn_create_sigmoid_nc", x_zero_point, p.x_q.scale[0],
                                 out_zero_point, p.out_q.scale[0], clamp.low, clamp.high);
    case QUALM_TANH:
      return RunRows<Code, Code>(p, Api<Code>::kCreateTanh, Api<Code>::kSetupTanh,
                                 "xnn_create_tanh_nc", x_zero_point, p.x_q.scale[0], out_zero_point,
                                 p.out_q.scale[0], clamp.low, clamp.high);
    case QUALM_LEAKY_RELU:
      if constexpr (!std::is_signed_v<Code>) {
        return RunRows<Code, Code>(p, xnn_create_leaky_relu_nc_qu8, xnn_setup_leaky_relu_nc_qu8,
                                   "xnn_create_leaky_relu_nc_qu8", p.negative_slope, x_zero_point,
                                   p.x_q.scale[0], out_zero_point, p.out_q.scale[0], clamp.low,
                                   clamp.high);
      }
      Require(false, "XNNPACK has leaky_relu for u8 only");
      break;
    default: Require(false, "XNNPACK has no such quantized function");
  }
}

// The library adds a row's numerators in uint32 and divides by the sum. From 513 channels on it may
// wrap, and to 0: 1024 equal codes have numerators of 2^22. It asserts that it has not.
bool SumWrapsToZero(const qualm_problem& p) {
  const double largest =
      std::min(static_cast<double>(UINT32_MAX) / static_cast<double>(p.x->dims[1]), 8388607.0);
  for (int64_t m = 0; m < p.x->dims[0]; ++m) {
    const uint8_t* row = static_cast<const uint8_t*>(p.x->data) + m * p.x->strides[0];
    const int top = *std::max_element(row, row + p.x->dims[1]);
    uint32_t sum = 0;
    for (int64_t n = 0; n < p.x->dims[1]; ++n) {
      sum += static_cast<uint32_t>(
          std::lrint(largest * std::exp((row[n] - top) * static_cast<double>(p.x_q.scale[0]))));
    }
    if (sum == 0) return true;
  }
  return false;
}

void RunSoftmax(const qualm_problem& p) {
  RequireOneType(p);
  RequireNormal(p.x_q.scale[0]);
  Require(p.x->dims[1] <= 512 || !SumWrapsToZero(p),
          "XNNPACK's softmax divides by a sum that has wrapped to 0");
  RunRows<uint8_t, uint8_t>(p, xnn_create_softmax_nc_qu8, xnn_setup_softmax_nc_qu8,
                            "xnn_create_softmax_nc_qu8", p.x_q.scale[0],
                            ZeroPoint<uint8_t>(p.out_q), p.out_q.scale[0]);
}

// XNNPACK replaces a tap in the padding by a "safe" pixel of the same phase, which should lie in
// the window. With wide padding that pixel lies outside the window, or outside the image. Along an
// axis without dilation neighbouring windows share their entries, and the window that is written
// last decides which pixel all of them read (src/indirection.c, xnn_indirection_init_maxpool2d).
bool SafePixelsAreInTheWindow(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad,
                              int64_t dilation, bool shared) {
  for (int64_t o = 0; o < out; ++o) {
    const int64_t first = o * stride - pad;
    const int64_t last = first + (kernel - 1) * dilation;
    for (int64_t k = 0; k < kernel; ++k) {
      const int64_t at = first + k * dilation;
      if (at >= 0 && at < in) continue;
      const int64_t writer = shared ? std::min(out - 1, o + k / stride) : o;
      int64_t safe = writer * stride - pad % dilation;
      if (safe < 0) safe += dilation;
      if (safe < first || safe > last || safe >= in) return false;
    }
  }
  return true;
}

template <typename Code>
void RunMaxPool(const qualm_problem& p) {
  RequireOneType(p);
  const qualm_window& v = *p.window;
  if (v.dilation_h > 1 || v.dilation_w > 1) {
    Require(SafePixelsAreInTheWindow(p.x->dims[1], p.y->dims[1], v.kernel_h, v.stride_h, v.pad_top,
                                     v.dilation_h, false) &&
                SafePixelsAreInTheWindow(p.x->dims[2], p.y->dims[2], v.kernel_w, v.stride_w,
                                         v.pad_left, v.dilation_w, v.dilation_w == 1),
            "XNNPACK's dilated max pool reads a pixel outside the window with this padding");
  }
  const auto clamp = ClampOf<Code>(p);
  Operator op;
  Check(Api<Code>::kCreateMaxPool(Small(v.pad_top), Small(v.pad_right), Small(v.pad_bottom),
                                  Small(v.pad_left), Small(v.kernel_h), Small(v.kernel_w),
                                  Small(v.stride_h), Small(v.stride_w), Small(v.dilation_h),
                                  Small(v.dilation_w), Size(p.x->dims[3]), Size(p.x->strides[2]),
                                  Size(p.y->strides[2]), clamp.low, clamp.high, 0, op.out()),
        "xnn_create_max_pooling2d_nhwc");
  Check(Api<Code>::kSetupMaxPool(op.get(), Size(p.x->dims[0]), Size(p.x->dims[1]),
                                 Size(p.x->dims[2]), static_cast<const Code*>(p.x->data),
                                 static_cast<Code*>(p.y->data), nullptr),
        "xnn_setup_max_pooling2d_nhwc");
  op.Run();
}

void RequireAverage(const qualm_problem& p, int64_t count) {
  RequireOneType(p);
  RequireNormal(p.x_q.scale[0]);
  RequireNormal(p.out_q.scale[0]);
  RequireMultiplier(p.x_q.scale[0] / (p.out_q.scale[0] * static_cast<float>(count)));
}

void RunAvgPool(const qualm_problem& p) {
  const qualm_window& v = *p.window;
  RequireAverage(p, v.kernel_h * v.kernel_w);
  const bool any_padding = (v.pad_top | v.pad_bottom | v.pad_left | v.pad_right) != 0;
  Require(!any_padding || v.count_include_pad != 0,
          "XNNPACK's quantized average counts the padding");
  const auto clamp = ClampOf<uint8_t>(p);
  Operator op;
  Check(xnn_create_average_pooling2d_nhwc_qu8(
            Small(v.pad_top), Small(v.pad_right), Small(v.pad_bottom), Small(v.pad_left),
            Small(v.kernel_h), Small(v.kernel_w), Small(v.stride_h), Small(v.stride_w),
            Size(p.x->dims[3]), Size(p.x->strides[2]), Size(p.y->strides[2]),
            ZeroPoint<uint8_t>(p.x_q), p.x_q.scale[0], ZeroPoint<uint8_t>(p.out_q),
            p.out_q.scale[0], clamp.low, clamp.high, 0, op.out()),
        "xnn_create_average_pooling2d_nhwc_qu8");
  Check(xnn_setup_average_pooling2d_nhwc_qu8(
            op.get(), Size(p.x->dims[0]), Size(p.x->dims[1]), Size(p.x->dims[2]),
            static_cast<const uint8_t*>(p.x->data), static_cast<uint8_t*>(p.y->data), nullptr),
        "xnn_setup_average_pooling2d_nhwc_qu8");
  op.Run();
}

template <typename Code>
void RunGlobalAvgPool(const qualm_problem& p) {
  const int64_t pixels = p.x->dims[1] * p.x->dims[2];
  RequireAverage(p, pixels);
  const auto clamp = ClampOf<Code>(p);
  Operator op;
  Check(Api<Code>::kCreateGlobalAvgPool(Size(p.x->dims[3]), Size(p.x->strides[2]),
                                        Size(p.y->strides[2]), ZeroPoint<Code>(p.x_q),
                                        p.x_q.scale[0], ZeroPoint<Code>(p.out_q), p.out_q.scale[0],
                                        clamp.low, clamp.high, 0, op.out()),
        "xnn_create_global_average_pooling_nwc");
  Check(Api<Code>::kSetupGlobalAvgPool(op.get(), Size(p.x->dims[0]), Size(pixels),
                                       static_cast<const Code*>(p.x->data),
                                       static_cast<Code*>(p.y->data), nullptr),
        "xnn_setup_global_average_pooling_nwc");
  op.Run();
}

template <typename Code>
void RunOp(const qualm_problem& p) {
  using Functions = Api<Code>;
  switch (p.op) {
    case QUALM_QUANTIZE: return RunQuantize<Code>(p);
    case QUALM_DEQUANTIZE: return RunDequantize<Code>(p);
    case QUALM_LINEAR:
    case QUALM_CONV2D:
    case QUALM_DEPTHWISE: return RunSums<Code>(p);
    case QUALM_ADD:
      return RunOperands<Code>(p, Functions::kCreateAdd, Functions::kSetupAdd, "xnn_create_add_nd");
    case QUALM_SUB:
      return RunOperands<Code>(p, Functions::kCreateSub, Functions::kSetupSub,
                               "xnn_create_subtract_nd");
    case QUALM_MUL:
      return RunOperands<Code>(p, Functions::kCreateMul, Functions::kSetupMul,
                               "xnn_create_multiply_nd");
    case QUALM_MAX_POOL: return RunMaxPool<Code>(p);
    case QUALM_AVG_POOL: return RunAvgPool(p);
    case QUALM_GLOBAL_AVG_POOL: return RunGlobalAvgPool<Code>(p);
    case QUALM_RESCALE: return RunClamp<Code>(p);
    case QUALM_TABLE: return RunTable<Code>(p);
    case QUALM_SOFTMAX: return RunSoftmax(p);
    default: throw Refusal{QUALM_FAILED, "an operation that was never offered"};
  }
}

int32_t Run(const qualm_problem* problem) {
  return qualm::plugin::Answer([&] {
    const int32_t codes = problem->op == QUALM_QUANTIZE ? problem->y->dtype : problem->x->dtype;
    if (codes == QUALM_S8) {
      RunOp<int8_t>(*problem);
    } else {
      RunOp<uint8_t>(*problem);
    }
  });
}

qualm_capability Codes(uint32_t types, uint32_t features) {
  qualm_capability c{};
  c.size = sizeof c;
  c.x_dtypes = c.w_dtypes = c.out_dtypes = types;
  c.features = features;
  c.x_zero_point_min = c.w_zero_point_min = c.out_zero_point_min = INT8_MIN;
  c.x_zero_point_max = c.w_zero_point_max = c.out_zero_point_max = UINT8_MAX;
  c.read_slack_bytes = XNN_EXTRA_BYTES;
  return c;
}

const qualm_capability* Capability(int32_t op) {
  constexpr uint32_t kU8 = QUALM_TYPE_BIT(QUALM_U8);
  constexpr uint32_t kBoth = kU8 | QUALM_TYPE_BIT(QUALM_S8);
  constexpr uint32_t kFloat = QUALM_TYPE_BIT(QUALM_F32);
  constexpr uint32_t kClamp = QUALM_CAN_RELU | QUALM_CAN_CLAMP;
  constexpr uint32_t kRows = kClamp | QUALM_CAN_STRIDES;
  constexpr uint32_t kSums = kRows | QUALM_CAN_BIAS_I32 | QUALM_CAN_PER_CHANNEL;
  constexpr uint32_t kConv =
      kSums | QUALM_CAN_DILATION | QUALM_CAN_GROUPS | QUALM_CAN_ASYMMETRIC_PADDING;
  static const qualm_capability quantize = [] {
    qualm_capability c = Codes(kBoth, kRows);
    c.x_dtypes = kFloat;
    return c;
  }();
  static const qualm_capability dequantize = [] {
    qualm_capability c = Codes(kBoth, QUALM_CAN_STRIDES);
    c.out_dtypes = kFloat;
    return c;
  }();
  static const qualm_capability max_pool = [] {
    qualm_capability c = Codes(kBoth, kRows | QUALM_CAN_DILATION | QUALM_CAN_ASYMMETRIC_PADDING);
    c.x_zero_point_min = c.out_zero_point_min = INT32_MIN;  // never looked at
    c.x_zero_point_max = c.out_zero_point_max = INT32_MAX;
    return c;
  }();
  static const qualm_capability linear = Codes(kBoth, kSums);
  static const qualm_capability conv = Codes(kBoth, kConv);
  static const qualm_capability operands = Codes(kBoth, kClamp);
  static const qualm_capability avg_pool =
      Codes(kU8, kRows | QUALM_CAN_ASYMMETRIC_PADDING | QUALM_CAN_COUNT_PADDING);
  static const qualm_capability rows = Codes(kBoth, kRows);
  static const qualm_capability softmax = Codes(kU8, QUALM_CAN_STRIDES);
  switch (op) {
    case QUALM_QUANTIZE: return &quantize;
    case QUALM_DEQUANTIZE: return &dequantize;
    case QUALM_LINEAR: return &linear;
    case QUALM_CONV2D:
    case QUALM_DEPTHWISE: return &conv;
    case QUALM_ADD:
    case QUALM_SUB:
    case QUALM_MUL: return &operands;
    case QUALM_MAX_POOL: return &max_pool;
    case QUALM_AVG_POOL: return &avg_pool;
    case QUALM_GLOBAL_AVG_POOL:
    case QUALM_RESCALE:
    case QUALM_TABLE: return &rows;
    case QUALM_SOFTMAX: return &softmax;
    default: return nullptr;
  }
}

#if defined(__aarch64__)
constexpr const char* kContract = "model:xnnpack@rndnu";
const char* InstructionSet() { return "neon"; }
#else
constexpr const char* kContract = "model:xnnpack@fp32";
// The order in which src/init.c looks for kernels.
const char* InstructionSet() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return "avx512skx";
  }
  if (__builtin_cpu_supports("xop")) return "xop";
  if (__builtin_cpu_supports("avx2")) return "avx2";
  if (__builtin_cpu_supports("avx")) return "avx";
  return __builtin_cpu_supports("sse4.1") ? "sse41" : "sse2";
}
#endif

}  // namespace

extern "C" const qualm_plugin* qualm_plugin_entry(void) {
  if (xnn_initialize(nullptr) != xnn_status_success) return nullptr;
  static const qualm_plugin plugin = {.size = sizeof(qualm_plugin),
                                      .abi_version = QUALM_ABI_VERSION,
                                      .reserved = 0,
                                      .name = "XNNPACK",
                                      .version = "",  // the library has no way to tell
                                      .contract = kContract,
                                      .instruction_set = InstructionSet(),
                                      .capability = Capability,
                                      .run = Run,
                                      .last_error = qualm::plugin::LastErrorText};
  return &plugin;
}
