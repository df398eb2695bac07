// SPDX-License-Identifier: Apache-2.0
// XNNPACK of 2024 (Debian 13: 4ea82e5, 2024-11): each operator is created, reshaped and set up,
// with memory of ours to work in where reshape asks for it. One function makes all operators of two
// operands and one all of one operand, by an enumerator, types and quantization. Of these only the
// clamp clamps. Results follow model:xnnpack2024@avx512 from
// AVX-512 or AVX-VNNI on, else model:xnnpack2024@avx2.
#include <cmath>
#include <memory>

#include "adapters/libraries/xnnpack/ops.h"

namespace qualm_xnnpack {

const char* const kVersion = "of 2024";
namespace {

// The order in which src/configs/gemm-config.c looks for kernels of s8.
struct Isa {
  const char* name;
  const char* contract;
};
Isa IsaOf() {
  constexpr const char* kAvx512 = "model:xnnpack2024@avx512";
  constexpr const char* kAvx2 = "model:xnnpack2024@avx2";
  const bool skx = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (skx && __builtin_cpu_supports("avx512vnni")) return {"avx512vnni", kAvx512};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("avxvnni"))
    return {"avxvnni", kAvx512};
  if (skx) return {"avx512skx", kAvx512};
  if (__builtin_cpu_supports("avx2")) return {"avx2", kAvx2};
  if (__builtin_cpu_supports("avx")) return {"avx", kAvx2};
  return {__builtin_cpu_supports("sse4.1") ? "sse41" : "sse2", kAvx2};
}

}  // namespace

const char* Contract() { return IsaOf().contract; }
const char* InstructionSet() { return IsaOf().name; }

namespace {

xnn_datatype TypeOf(const qualm_tensor& tensor) {
  switch (tensor.dtype) {
    case QUALM_S8: return xnn_datatype_qint8;
    case QUALM_U8: return xnn_datatype_quint8;
    default: return xnn_datatype_fp32;
  }
}

// Of codes.
xnn_quantization_params QuantizationOf(const qualm_tensor& tensor, const qualm_qparams& q) {
  RequireNormal(q.scale[0]);
  return {tensor.dtype == QUALM_S8 ? ZeroPoint<int8_t>(q) : ZeroPoint<uint8_t>(q), q.scale[0]};
}

// What a reshape asks for.
class Workspace {
 public:
  size_t* size() { return &size_; }
  size_t* alignment() { return &alignment_; }
  void* data() {
    if (size_ == 0) return nullptr;
    bytes_.resize(size_ + alignment_);
    void* at = bytes_.data();
    size_t room = bytes_.size();
    return std::align(alignment_, size_, at, room);
  }

 private:
  size_t size_ = 0, alignment_ = 1;
  std::vector<char> bytes_;
};

// Whether the library will choose the depthwise kernel of AVX that adds pairs in int16. A kernel
// for 3, 9 or 25 taps does all that have as many or fewer.
bool WrapsPairs(int64_t taps) {
  return taps <= 25 && __builtin_cpu_supports("avx") && !__builtin_cpu_supports("avx2");
}

// Sums and averages may leave one code.
template <typename Code>
Clamp<Code> WideClampOf(const qualm_problem& p) {
  const int32_t low = LowOf(p);
  Require(low <= p.out_max, "XNNPACK's clamp leaves a code");
  return {static_cast<Code>(low), static_cast<Code>(p.out_max)};
}

template <typename CreateConvolution, typename ReshapeConvolution, typename SetupConvolution,
          typename CreateLinear, typename ReshapeLinear, typename SetupLinear>
struct SumFunctions {
  CreateConvolution create_convolution;
  ReshapeConvolution reshape_convolution;
  SetupConvolution setup_convolution;
  CreateLinear create_linear;
  ReshapeLinear reshape_linear;
  SetupLinear setup_linear;
};

template <typename Code, typename Functions, typename... Weights>
void RunSumsBy(const Functions& functions, const qualm_problem& p, Weights... weights) {
  const Geometry g = GeometryOf(p);
  const auto clamp = WideClampOf<Code>(p);
  KeptOperator op(KeyOf<Code>(p, g, clamp), [&](Operator& made) {
    const auto call = [&](auto create, auto... arguments) {
      return create(arguments..., 0, nullptr, nullptr, made.out());
    };
    CreateSums<Code>(p, g, clamp, functions, call, weights...);
  });
  const auto* x = static_cast<const Code*>(p.x->data);
  auto* y = static_cast<Code*>(p.y->data);
  Workspace workspace;
  if (p.op == QUALM_LINEAR) {
    Check(functions.reshape_linear(op.get(), g.in_h, nullptr), "xnn_reshape_fully_connected_nc");
    Check(functions.setup_linear(op.get(), x, y), "xnn_setup_fully_connected_nc");
  } else {
    Check(functions.reshape_convolution(op.get(), g.batch, g.in_h, g.in_w, workspace.size(),
                                        workspace.alignment(), nullptr, nullptr, nullptr),
          "xnn_reshape_convolution2d_nhwc");
    Check(functions.setup_convolution(op.get(), workspace.data(), x, y),
          "xnn_setup_convolution2d_nhwc");
  }
  op.Run();
}

template <typename Code>
void RunSums(const qualm_problem& p) {
  RequireWeights<Code>(p, WrapsPairs);
  if constexpr (!std::is_signed_v<Code>) {
    RequireProduct(p);
    RunSumsBy<Code>(
        SumFunctions{xnn_create_convolution2d_nhwc_qu8, xnn_reshape_convolution2d_nhwc_qu8,
                     xnn_setup_convolution2d_nhwc_qu8, xnn_create_fully_connected_nc_qu8,
                     xnn_reshape_fully_connected_nc_qu8, xnn_setup_fully_connected_nc_qu8},
        p, ZeroPoint<Code>(p.w_q), p.w_q.scale[0]);
  } else if (p.w_q.count > 1) {
    RunSumsBy<Code>(
        SumFunctions{
            xnn_create_convolution2d_nhwc_qs8_qc8w, xnn_reshape_convolution2d_nhwc_qs8_qc8w,
            xnn_setup_convolution2d_nhwc_qs8_qc8w, xnn_create_fully_connected_nc_qs8_qc8w,
            xnn_reshape_fully_connected_nc_qs8_qc8w, xnn_setup_fully_connected_nc_qs8_qc8w},
        p, p.w_q.scale);
  } else {
    RunSumsBy<Code>(
        SumFunctions{xnn_create_convolution2d_nhwc_qs8, xnn_reshape_convolution2d_nhwc_qs8,
                     xnn_setup_convolution2d_nhwc_qs8, xnn_create_fully_connected_nc_qs8,
                     xnn_reshape_fully_connected_nc_qs8, xnn_setup_fully_connected_nc_qs8},
        p, p.w_q.scale[0]);
  }
}

// The parameters of these kernels are made under assertions.
void RequireOperandScales(const qualm_problem& p) {
  if (p.op == QUALM_MUL) {
    const float multiplier = p.x_q.scale[0] * p.w_q.scale[0] / p.out_q.scale[0];
    Require(multiplier >= 0x1p-16f && multiplier < 0x1p8f,
            "XNNPACK's multipliers of mul lie in [2^-16, 2^8)");
    return;
  }
  for (const qualm_qparams* q : {&p.x_q, &p.w_q}) {
    const float ratio = q->scale[0] / p.out_q.scale[0];
    Require(ratio >= 0x1p-10f && ratio < 0x1p8f,
            "XNNPACK's scales of operands over that of the output lie in [2^-10, 2^8)");
  }
}

void RunOperands(const qualm_problem& p, xnn_binary_operator type) {
  RequireOneType(p);
  const auto a = QuantizationOf(*p.x, p.x_q);
  const auto b = QuantizationOf(*p.w, p.w_q);
  const auto output = QuantizationOf(*p.y, p.out_q);
  RequireOperandScales(p);
  Operator op;
  Check(xnn_create_binary_elementwise_nd(type, TypeOf(*p.x), &a, &b, &output, 0, op.out()),
        "xnn_create_binary_elementwise_nd");
  const size_t shape[] = {Size(p.y->dims[0]), Size(p.y->dims[1])};
  Check(xnn_reshape_binary_elementwise_nd(op.get(), 2, shape, 2, shape, nullptr),
        "xnn_reshape_binary_elementwise_nd");
  Check(xnn_setup_binary_elementwise_nd(op.get(), p.x->data, p.w->data, p.y->data),
        "xnn_setup_binary_elementwise_nd");
  op.Run();
}

void RunRows(const qualm_problem& p, xnn_unary_operator type,
             const xnn_unary_params* params = nullptr) {
  xnn_quantization_params input{}, output{};
  if (p.x->dtype != QUALM_F32) input = QuantizationOf(*p.x, p.x_q);
  if (p.y->dtype != QUALM_F32) output = QuantizationOf(*p.y, p.out_q);
  Operator op;
  Check(xnn_create_unary_elementwise_nc(type, TypeOf(*p.x), TypeOf(*p.y), params, &input, &output,
                                        0, op.out()),
        "xnn_create_unary_elementwise_nc");
  Check(xnn_reshape_unary_elementwise_nc(op.get(), Size(p.x->dims[0]), Size(p.x->dims[1]),
                                         Size(p.x->strides[0]), Size(p.y->strides[0]), nullptr),
        "xnn_reshape_unary_elementwise_nc");
  Check(xnn_setup_unary_elementwise_nc(op.get(), p.x->data, p.y->data),
        "xnn_setup_unary_elementwise_nc");
  op.Run();
}

// The kernels that rescale codes take a ratio in 256ths, made under assertions.
void RequireRatio(float ratio) {
  Require(ratio >= 0x1p-8f && ratio <= 0x1p7f,
          "XNNPACK's scale of x over that of the output lies in [2^-8, 2^7]");
}

// `low` and `high` are codes; the operator takes real numbers and rounds them to codes.
void RunClamp(const qualm_problem& p, int32_t low, int32_t high) {
  RequireOneType(p);
  Require(HasSameParameters(p), "XNNPACK rescales codes or clamps them");
  Require(low <= high, "XNNPACK's clamp leaves a code");
  const auto real = [&](int32_t code, int32_t end, float beyond) {
    if (code == end) return beyond;
    const float value = static_cast<float>(code - p.out_q.zero_point[0]) * p.out_q.scale[0];
    Require(std::isfinite(value), "XNNPACK clamps to real numbers; this one is infinite");
    return value;
  };
  const bool s8 = p.x->dtype == QUALM_S8;
  xnn_unary_params params{};
  params.clamp.min = real(low, s8 ? INT8_MIN : 0, -INFINITY);
  params.clamp.max = real(high, s8 ? INT8_MAX : UINT8_MAX, INFINITY);
  RunRows(p, xnn_unary_clamp, &params);
}

void RunRescale(const qualm_problem& p) {
  const bool s8 = p.y->dtype == QUALM_S8;
  const int32_t low = LowOf(p);
  if (low > (s8 ? INT8_MIN : 0) || p.out_max < (s8 ? INT8_MAX : UINT8_MAX))
    return RunClamp(p, low, p.out_max);
  if (p.x->dtype == p.y->dtype) RequireRatio(p.x_q.scale[0] / p.out_q.scale[0]);
  RunRows(p, xnn_unary_convert);
}

void RunTable(const qualm_problem& p) {
  RequireOneType(p);
  switch (p.function) {
    case QUALM_RELU: return RunClamp(p, p.out_q.zero_point[0], p.out_max);
    case QUALM_SIGMOID: return RunRows(p, xnn_unary_sigmoid);
    case QUALM_TANH: return RunRows(p, xnn_unary_tanh);
    case QUALM_HARD_SWISH: return RunRows(p, xnn_unary_hardswish);
    case QUALM_LEAKY_RELU: {
      const float ratio = p.x_q.scale[0] / p.out_q.scale[0];
      RequireRatio(ratio);
      const float negative = ratio * p.negative_slope;
      Require(std::abs(negative) >= 0x1p-8f && negative <= 0x1p7f && negative >= -0x1.fffcp6f,
              "XNNPACK's slope times the ratio of scales lies in [2^-8, 2^7]");
      xnn_unary_params params{};
      params.leaky_relu.negative_slope = p.negative_slope;
      return RunRows(p, xnn_unary_leaky_relu, &params);
    }
    default: Require(false, "XNNPACK has no such quantized function");
  }
}

void RunSoftmax(const qualm_problem& p) {
  RequireOneType(p);
  RequireNormal(p.x_q.scale[0]);
  RequireSoftmaxSum(p);
  Operator op;
  Check(xnn_create_softmax_nc_qu8(p.x_q.scale[0], ZeroPoint<uint8_t>(p.out_q), p.out_q.scale[0], 0,
                                  op.out()),
        "xnn_create_softmax_nc_qu8");
  Check(xnn_reshape_softmax_nc_qu8(op.get(), Size(p.x->dims[1]), Size(p.x->strides[0]),
                                   Size(p.y->strides[0]), Size(p.x->dims[0]), nullptr),
        "xnn_reshape_softmax_nc_qu8");
  Check(xnn_setup_softmax_nc_qu8(op.get(), static_cast<const uint8_t*>(p.x->data),
                                 static_cast<uint8_t*>(p.y->data)),
        "xnn_setup_softmax_nc_qu8");
  op.Run();
}

template <typename Code, typename Create, typename Reshape, typename Setup>
void RunMaxPool(const qualm_problem& p, Create create, Reshape reshape, Setup setup) {
  RequireOneType(p);
  const qualm_window& v = *p.window;
  RequireSafePixels(p);
  const auto clamp = ClampOf<Code>(p);
  Operator op;
  Check(create(Small(v.pad_top), Small(v.pad_right), Small(v.pad_bottom), Small(v.pad_left),
               Small(v.kernel_h), Small(v.kernel_w), Small(v.stride_h), Small(v.stride_w),
               Small(v.dilation_h), Small(v.dilation_w), clamp.low, clamp.high, 0, op.out()),
        "xnn_create_max_pooling2d_nhwc");
  Check(reshape(op.get(), Size(p.x->dims[0]), Size(p.x->dims[1]), Size(p.x->dims[2]),
                Size(p.x->dims[3]), Size(p.x->strides[2]), Size(p.y->strides[2]), nullptr, nullptr,
                nullptr),
        "xnn_reshape_max_pooling2d_nhwc");
  Check(setup(op.get(), static_cast<const Code*>(p.x->data), static_cast<Code*>(p.y->data)),
        "xnn_setup_max_pooling2d_nhwc");
  op.Run();
}

// The library keeps the pointers to the pixels of only some lines of windows: the first `top` and
// one more, whose pointers are moved down for those below, and the last `bottom`
// (src/indirection.c, xnn_indirection_init_dwconv2d_compressed; src/operator-run.c,
// xnn_compute_average_pooling_unipass). Where padding makes the two sets meet, it takes some lines
// for others.
void RequireOwnPixels(const qualm_problem& p) {
  const qualm_window& v = *p.window;
  const int64_t height = p.x->dims[1], lines = p.y->dims[1];
  const auto pixel = [&](int64_t line, int64_t tap) {  // -1: padding
    const int64_t at = line * v.stride_h + tap - v.pad_top;
    return at < height ? std::max<int64_t>(at, -1) : -1;
  };
  const int64_t top = (v.pad_top + v.stride_h - 1) / v.stride_h;
  const int64_t bottom = (v.pad_bottom + v.stride_h - 1) / v.stride_h;
  // More than there are lines: an unsigned number wraps, and none is kept.
  const int64_t first_of_bottom = bottom > lines ? INT64_MAX : lines - bottom;
  const int64_t kept_at_top = std::min(top + 1, lines);
  for (int64_t line = 0; line < lines; ++line) {
    const bool middle = line < first_of_bottom;
    const int64_t kept = std::min(line, top) + (middle ? 0 : line + 1 - first_of_bottom);
    const int64_t taken = kept < kept_at_top ? kept : first_of_bottom + kept - kept_at_top;
    for (int64_t tap = 0; tap < v.kernel_h; ++tap) {
      const int64_t at = pixel(taken, tap);
      const int64_t moved = middle && at >= 0 ? at + (line - kept) * v.stride_h : at;
      Require(moved == pixel(line, tap),
              "XNNPACK's average reads the pixels of another line with this padding");
    }
  }
}

void RunAvgPool(const qualm_problem& p) {
  const qualm_window& v = *p.window;
  RequireAverage(p, v.kernel_h * v.kernel_w);
  RequirePaddingCounts(p);
  RequireOwnPixels(p);
  const auto clamp = WideClampOf<uint8_t>(p);
  Operator op;
  Check(xnn_create_average_pooling2d_nhwc_qu8(
            Small(v.pad_top), Small(v.pad_right), Small(v.pad_bottom), Small(v.pad_left),
            Small(v.kernel_h), Small(v.kernel_w), Small(v.stride_h), Small(v.stride_w),
            ZeroPoint<uint8_t>(p.x_q), p.x_q.scale[0], ZeroPoint<uint8_t>(p.out_q),
            p.out_q.scale[0], clamp.low, clamp.high, 0, op.out()),
        "xnn_create_average_pooling2d_nhwc_qu8");
  Workspace workspace;
  Check(xnn_reshape_average_pooling2d_nhwc_qu8(
            op.get(), Size(p.x->dims[0]), Size(p.x->dims[1]), Size(p.x->dims[2]),
            Size(p.x->dims[3]), Size(p.x->strides[2]), Size(p.y->strides[2]), workspace.size(),
            workspace.alignment(), nullptr, nullptr, nullptr),
        "xnn_reshape_average_pooling2d_nhwc_qu8");
  Check(xnn_setup_average_pooling2d_nhwc_qu8(op.get(), workspace.data(),
                                             static_cast<const uint8_t*>(p.x->data),
                                             static_cast<uint8_t*>(p.y->data)),
        "xnn_setup_average_pooling2d_nhwc_qu8");
  op.Run();
}

// The mean over the second and third of four dimensions.
void RunGlobalAvgPool(const qualm_problem& p) {
  RequireOneType(p);
  Require(std::isnormal(p.x_q.scale[0] / p.out_q.scale[0]),
          "XNNPACK multiplies a mean by the ratio of scales, which is no normal number here");
  const auto input = QuantizationOf(*p.x, p.x_q);
  const auto output = QuantizationOf(*p.y, p.out_q);
  Operator op;
  Check(xnn_create_reduce_nd(xnn_reduce_mean, TypeOf(*p.x), &input, &output, 0, op.out()),
        "xnn_create_reduce_nd");
  const int64_t axes[] = {1, 2};
  const size_t shape[] = {Size(p.x->dims[0]), Size(p.x->dims[1]), Size(p.x->dims[2]),
                          Size(p.x->dims[3])};
  Workspace workspace;
  Check(xnn_reshape_reduce_nd(op.get(), 2, axes, 4, shape, workspace.size(), workspace.alignment(),
                              nullptr),
        "xnn_reshape_reduce_nd");
  Check(xnn_setup_reduce_nd(op.get(), workspace.data(), p.x->data, p.y->data),
        "xnn_setup_reduce_nd");
  op.Run();
}

}  // namespace

template <typename Code>
void RunOp(const qualm_problem& p) {
  switch (p.op) {
    case QUALM_QUANTIZE:
    case QUALM_DEQUANTIZE: return RunRows(p, xnn_unary_convert);
    case QUALM_LINEAR:
    case QUALM_CONV2D:
    case QUALM_DEPTHWISE: return RunSums<Code>(p);
    case QUALM_ADD: return RunOperands(p, xnn_binary_add);
    case QUALM_SUB: return RunOperands(p, xnn_binary_subtract);
    case QUALM_MUL: return RunOperands(p, xnn_binary_multiply);
    case QUALM_MAX_POOL:
      if constexpr (std::is_signed_v<Code>) {
        return RunMaxPool<Code>(p, xnn_create_max_pooling2d_nhwc_s8,
                                xnn_reshape_max_pooling2d_nhwc_s8, xnn_setup_max_pooling2d_nhwc_s8);
      } else {
        return RunMaxPool<Code>(p, xnn_create_max_pooling2d_nhwc_u8,
                                xnn_reshape_max_pooling2d_nhwc_u8, xnn_setup_max_pooling2d_nhwc_u8);
      }
    case QUALM_AVG_POOL: return RunAvgPool(p);
    case QUALM_GLOBAL_AVG_POOL: return RunGlobalAvgPool(p);
    case QUALM_RESCALE: return RunRescale(p);
    case QUALM_TABLE: return RunTable(p);
    case QUALM_SOFTMAX: return RunSoftmax(p);
    default: throw qualm::plugin::Refusal{QUALM_FAILED, "an operation that was never offered"};
  }
}
template void RunOp<int8_t>(const qualm_problem& p);
template void RunOp<uint8_t>(const qualm_problem& p);

const qualm_capability* Capability(int32_t op) {
  constexpr uint32_t kU8 = QUALM_TYPE_BIT(QUALM_U8);
  constexpr uint32_t kBoth = kU8 | QUALM_TYPE_BIT(QUALM_S8);
  constexpr uint32_t kFloat = QUALM_TYPE_BIT(QUALM_F32);
  constexpr uint32_t kClampedRows = QUALM_CAN_RELU | QUALM_CAN_CLAMP | QUALM_CAN_STRIDES;
  constexpr uint32_t kSums = kClampedRows | QUALM_CAN_BIAS_I32 | QUALM_CAN_PER_CHANNEL;
  constexpr uint32_t kConv =
      kSums | QUALM_CAN_DILATION | QUALM_CAN_GROUPS | QUALM_CAN_ASYMMETRIC_PADDING;
  static const qualm_capability quantize = [] {
    qualm_capability c = Codes(kBoth, QUALM_CAN_STRIDES);
    c.x_dtypes = kFloat;
    return c;
  }();
  static const qualm_capability dequantize = [] {
    qualm_capability c = Codes(kBoth, QUALM_CAN_STRIDES);
    c.out_dtypes = kFloat;
    return c;
  }();
  static const qualm_capability max_pool = [] {
    qualm_capability c =
        Codes(kBoth, kClampedRows | QUALM_CAN_DILATION | QUALM_CAN_ASYMMETRIC_PADDING);
    c.x_zero_point_min = c.out_zero_point_min = INT32_MIN;  // never looked at
    c.x_zero_point_max = c.out_zero_point_max = INT32_MAX;
    return c;
  }();
  static const qualm_capability linear = Codes(kBoth, kSums);
  static const qualm_capability conv = Codes(kBoth, kConv);
  static const qualm_capability dense = Codes(kBoth, 0);
  static const qualm_capability avg_pool =
      Codes(kU8, kClampedRows | QUALM_CAN_ASYMMETRIC_PADDING | QUALM_CAN_COUNT_PADDING);
  static const qualm_capability rescale = Codes(kBoth, kClampedRows);
  static const qualm_capability table = Codes(kBoth, QUALM_CAN_STRIDES);
  static const qualm_capability softmax = Codes(kU8, QUALM_CAN_STRIDES);
  switch (op) {
    case QUALM_QUANTIZE: return &quantize;
    case QUALM_DEQUANTIZE: return &dequantize;
    case QUALM_LINEAR: return &linear;
    case QUALM_CONV2D:
    case QUALM_DEPTHWISE: return &conv;
    case QUALM_ADD:
    case QUALM_SUB:
    case QUALM_MUL:
    case QUALM_GLOBAL_AVG_POOL: return &dense;
    case QUALM_MAX_POOL: return &max_pool;
    case QUALM_AVG_POOL: return &avg_pool;
    case QUALM_RESCALE: return &rescale;
    case QUALM_TABLE: return &table;
    case QUALM_SOFTMAX: return &softmax;
    default: return nullptr;
  }
}

}  // namespace qualm_xnnpack
