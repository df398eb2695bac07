// SPDX-License-Identifier: Apache-2.0
// XNNPACK of 2022 (Debian 12: ae108ef, 2022-02): each operator is created and set up, and most take
// a clamp. Results follow model:xnnpack@fp32 on x86 and model:xnnpack@rndnu on AArch64.
#include "adapters/libraries/xnnpack/ops.h"

namespace qualm_xnnpack {

const char* const kVersion = "";

namespace {

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

// Whether the library will choose the depthwise kernels of SSE2, SSE4.1, AVX or XOP, of which some
// add pairs in int16.
bool WrapsPairs([[maybe_unused]] int64_t taps) {
#if defined(__x86_64__) || defined(__i386__)
  return (taps == 9 || taps == 25) &&
         (!__builtin_cpu_supports("avx2") || __builtin_cpu_supports("xop"));
#else
  return false;
#endif
}

template <typename CreateConvolution, typename SetupConvolution, typename CreateLinear,
          typename SetupLinear>
struct SumFunctions {
  CreateConvolution create_convolution;
  SetupConvolution setup_convolution;
  CreateLinear create_linear;
  SetupLinear setup_linear;
};

template <typename Code, typename Functions, typename... Weights>
void RunSumsBy(const Functions& functions, const qualm_problem& p, Weights... weights) {
  const Geometry g = GeometryOf(p);
  const auto clamp = ClampOf<Code>(p);
  KeptOperator op(KeyOf<Code>(p, g, clamp), [&](Operator& made) {
    const auto call = [&](auto create, auto... arguments) {
      return create(arguments..., 0, made.out());
    };
    CreateSums<Code>(p, g, clamp, functions, call, weights...);
  });
  const auto* x = static_cast<const Code*>(p.x->data);
  auto* y = static_cast<Code*>(p.y->data);
  const auto setup = [&] {
    if constexpr (!std::is_null_pointer_v<decltype(functions.setup_linear)>) {
      if (p.op == QUALM_LINEAR) return functions.setup_linear(op.get(), g.in_h, x, y, nullptr);
    }
    return functions.setup_convolution(op.get(), g.batch, g.in_h, g.in_w, x, y, nullptr);
  };
  Check(setup(), "the setup of a sum of products");
  op.Run();
}

template <typename Code>
void RunSums(const qualm_problem& p) {
  RequireWeights<Code>(p, WrapsPairs);
  // Per channel the multipliers are data, and nothing asserts their range.
  if (p.w_q.count == 1) RequireProduct(p);
  if constexpr (!std::is_signed_v<Code>) {
    RunSumsBy<Code>(
        SumFunctions{xnn_create_convolution2d_nhwc_qu8, xnn_setup_convolution2d_nhwc_qu8,
                     xnn_create_fully_connected_nc_qu8, xnn_setup_fully_connected_nc_qu8},
        p, ZeroPoint<Code>(p.w_q), p.w_q.scale[0]);
  } else if (p.w_q.count > 1) {
    RunSumsBy<Code>(SumFunctions{xnn_create_convolution2d_nhwc_qc8,
                                 xnn_setup_convolution2d_nhwc_qc8, nullptr, nullptr},
                    p, p.w_q.scale);
  } else {
    RunSumsBy<Code>(
        SumFunctions{xnn_create_convolution2d_nhwc_qs8, xnn_setup_convolution2d_nhwc_qs8,
                     xnn_create_fully_connected_nc_qs8, xnn_setup_fully_connected_nc_qs8},
        p, p.w_q.scale[0]);
  }
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
  Require(HasSameParameters(p), "XNNPACK clamps codes; it does not rescale them");
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

void RunSoftmax(const qualm_problem& p) {
  RequireOneType(p);
  RequireNormal(p.x_q.scale[0]);
  RequireSoftmaxSum(p);
  RunRows<uint8_t, uint8_t>(p, xnn_create_softmax_nc_qu8, xnn_setup_softmax_nc_qu8,
                            "xnn_create_softmax_nc_qu8", p.x_q.scale[0],
                            ZeroPoint<uint8_t>(p.out_q), p.out_q.scale[0]);
}

template <typename Code>
void RunMaxPool(const qualm_problem& p) {
  RequireOneType(p);
  const qualm_window& v = *p.window;
  RequireSafePixels(p);
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

void RunAvgPool(const qualm_problem& p) {
  const qualm_window& v = *p.window;
  RequireAverage(p, v.kernel_h * v.kernel_w);
  RequirePaddingCounts(p);
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

}  // namespace

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
    default: throw qualm::plugin::Refusal{QUALM_FAILED, "an operation that was never offered"};
  }
}
template void RunOp<int8_t>(const qualm_problem& p);
template void RunOp<uint8_t>(const qualm_problem& p);

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
const char* Contract() { return "model:xnnpack@rndnu"; }
const char* InstructionSet() { return "neon"; }
#else
const char* Contract() { return "model:xnnpack@fp32"; }
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

}  // namespace qualm_xnnpack
