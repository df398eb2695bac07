// SPDX-License-Identifier: Apache-2.0
// FBGEMM (71d6f8b) as a plugin: linear and convolutions as PyTorch calls them (qlinear.cpp,
// apply_impl and apply_dynamic_impl; qconv.cpp, apply_impl; all in
// aten/src/ATen/native/quantized/cpu): multipliers fl(fl(sx*sw)/sy), a float or int32 bias, relu
// fused. quantize, dequantize and requantize are the functions of QuantUtils.h.
// FBGEMM_ENABLE_INSTRUCTIONS chooses the kernels, once per process. With QUALM_FBGEMM_ACC16 the
// products are summed in int16 (linear only).
//
// Results follow model:fbgemm@ISA. The compiler that built the library chose whether the bias is
// added with a fused multiply-add, so this is tried out when the plugin is loaded.
#include <fbgemm/Fbgemm.h>
#include <fbgemm/QuantUtils.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "adapters/libraries/plugin_answer.h"
#include "adapters/qualm_plugin.h"

namespace {

using fbgemm::QuantizationGranularity;

#ifdef QUALM_FBGEMM_ACC16
using Accumulator = int16_t;
#else
using Accumulator = int32_t;
#endif

// The conventions' name of the instruction set; nullptr for a set without a convention.
const char* InstructionSet() {
  switch (fbgemm::fbgemmInstructionSet()) {
    case fbgemm::inst_set_t::avx2: return "avx2";
    case fbgemm::inst_set_t::avx512:
    case fbgemm::inst_set_t::avx512_ymm: return "avx512";
    case fbgemm::inst_set_t::avx512_vnni:
    case fbgemm::inst_set_t::avx512_vnni_ymm: return "vnni";
    default: return nullptr;
  }
}

// Calls `use` with the first element of every row of `tensor`, from the first row to the last.
template <class T, class Use>
void ForEachRow(const qualm_tensor& tensor, const Use& use, T* first, int axis = 0) {
  if (axis == tensor.rank - 1) return use(first);
  for (int64_t i = 0; i < tensor.dims[axis]; ++i)
    ForEachRow(tensor, use, first + i * tensor.strides[axis], axis + 1);
}

// The elements, one after the other.
template <class T>
std::vector<T> Dense(const qualm_tensor& tensor) {
  const int64_t length = tensor.dims[tensor.rank - 1];
  std::vector<T> dense;
  ForEachRow(
      tensor, [&](const T* row) { dense.insert(dense.end(), row, row + length); },
      static_cast<const T*>(tensor.data));
  return dense;
}

template <class T>
void Scatter(const std::vector<T>& dense, const qualm_tensor& tensor) {
  const int64_t length = tensor.dims[tensor.rank - 1];
  auto from = dense.begin();
  const auto copy = [&](T* row) {
    std::copy_n(from, length, row);
    from += length;
  };
  ForEachRow(tensor, copy, static_cast<T*>(tensor.data));
}

// The numbers that turn sums into outputs, as ATen prepares them.
struct Epilogue {
  int columns;
  int groups;
  float x_scale;
  int32_t x_zero_point, out_zero_point;
  std::vector<float> w_scale, products, multipliers;
  std::vector<int32_t> w_zero_point;
  std::vector<int32_t> column_offsets;  // of each output channel: its weights minus zero points
};

Epilogue Prepare(const qualm_problem& p, const std::vector<int8_t>& w, int64_t columns) {
  Epilogue e{.columns = static_cast<int>(columns),
             .groups = p.window == nullptr ? 1 : static_cast<int>(p.window->groups),
             .x_scale = p.x_q.scale[0],
             .x_zero_point = p.x_q.zero_point[0],
             .out_zero_point = p.out_q.count == 0 ? 0 : p.out_q.zero_point[0],
             .w_scale = {p.w_q.scale, p.w_q.scale + p.w_q.count},
             .products = {},
             .multipliers = {},
             .w_zero_point = {p.w_q.zero_point, p.w_q.zero_point + p.w_q.count},
             .column_offsets = {}};
  for (const float scale : e.w_scale) {
    e.products.push_back(e.x_scale * scale);
    if (p.out_q.count != 0) e.multipliers.push_back(e.products.back() / p.out_q.scale[0]);
  }
  const auto depth = w.size() / static_cast<size_t>(columns);
  for (size_t n = 0; n < static_cast<size_t>(columns); ++n) {
    const int32_t zero_point = e.w_zero_point[e.w_zero_point.size() == 1 ? 0 : n];
    uint32_t sum = 0;
    for (size_t k = 0; k < depth; ++k)
      sum += static_cast<uint32_t>(w[n * depth + k]) - static_cast<uint32_t>(zero_point);
    e.column_offsets.push_back(static_cast<int32_t>(sum));
  }
  return e;
}

// Calls `use` with the template arguments for relu and for parameters per channel.
template <class Use>
void WithArguments(const qualm_problem& p, Use use) {
  const auto granular = [&](auto relu) {
    constexpr auto kTensor = QuantizationGranularity::TENSOR;
    constexpr auto kChannel = QuantizationGranularity::OUT_CHANNEL;
    if (p.per_channel == 0) {
      use(relu, std::integral_constant<QuantizationGranularity, kTensor>{});
    } else {
      use(relu, std::integral_constant<QuantizationGranularity, kChannel>{});
    }
  };
  p.relu != 0 ? granular(std::true_type{}) : granular(std::false_type{});
}

// Calls `use` with the output stage that makes u8.
template <class Use>
void WithCodes(const qualm_problem& p, const Epilogue& e, const int32_t* row_offsets, Use use) {
  WithArguments(p, [&](auto relu, auto granularity) {
    const auto finish = [&]<class Bias>(const Bias* bias) {
      fbgemm::DoNothing<> nothing;
      fbgemm::ReQuantizeOutput<relu.value, granularity.value, Bias> stage(
          nothing, e.multipliers.data(), e.out_zero_point, e.x_zero_point, e.w_zero_point.data(),
          row_offsets, e.column_offsets.data(), bias, static_cast<uint32_t>(e.columns), e.groups,
          e.products.data());
      use(stage);
    };
    p.bias_i32 != nullptr ? finish(p.bias_i32) : finish(p.bias);
  });
}

void RunLinear(const qualm_problem& p) {
  const auto rows = static_cast<int>(p.y->dims[0]), columns = static_cast<int>(p.y->dims[1]);
  const auto depth = static_cast<int>(p.x->dims[1]);
  const auto weights = Dense<int8_t>(*p.w);
  const Epilogue e = Prepare(p, weights, columns);
  fbgemm::PackBMatrix<int8_t, Accumulator> w(fbgemm::matrix_op_t::Transpose, depth, columns,
                                             weights.data(), depth);
  using PackedRows = fbgemm::PackAWithRowOffset<uint8_t, Accumulator>;
  std::vector<int32_t> row_offsets(static_cast<size_t>(PackedRows::rowOffsetBufferSize()));
  PackedRows x(fbgemm::matrix_op_t::NoTranspose, rows, depth,
               static_cast<const uint8_t*>(p.x->data), static_cast<int>(p.x->strides[0]), nullptr,
               1, row_offsets.data());
  const auto count = static_cast<size_t>(rows) * static_cast<size_t>(columns);
  std::vector<int32_t> sums(count);
#ifndef QUALM_FBGEMM_ACC16
  if (p.y->dtype == QUALM_F32) {
    std::vector<float> y(count);
    WithArguments(p, [&](auto relu, auto granularity) {
      fbgemm::DoNothing<float, float> nothing;
      const fbgemm::ReQuantizeForFloat<relu.value, granularity.value> stage(
          nothing, e.x_scale, e.w_scale.data(), e.x_zero_point, e.w_zero_point.data(),
          x.getRowOffsetBuffer(), e.column_offsets.data(), p.bias, static_cast<uint32_t>(columns));
      fbgemm::fbgemmPacked(x, w, y.data(), sums.data(), static_cast<uint32_t>(columns), stage, 0,
                           1);
    });
    return Scatter(y, *p.y);
  }
#endif
  std::vector<uint8_t> y(count);
  WithCodes(p, e, x.getRowOffsetBuffer(), [&](const auto& stage) {
    fbgemm::fbgemmPacked(x, w, y.data(), sums.data(), static_cast<uint32_t>(columns), stage, 0, 1);
  });
  Scatter(y, *p.y);
}

#ifndef QUALM_FBGEMM_ACC16
void RunConv(const qualm_problem& p) {
  const qualm_window& v = *p.window;
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  const fbgemm::conv_param_t<2> shape(
      number(p.x->dims[0]), number(p.x->dims[3]), number(p.y->dims[3]),
      {number(p.x->dims[1]), number(p.x->dims[2])}, number(v.groups),
      {number(v.kernel_h), number(v.kernel_w)}, {number(v.stride_h), number(v.stride_w)},
      {number(v.pad_top), number(v.pad_left), number(v.pad_bottom), number(v.pad_right)},
      {number(v.dilation_h), number(v.dilation_w)});
  // src/GroupwiseConv.cc, getOrCreateConvKernel.
  if (fbgemm::fbgemmOptimizedGConv(shape) && fbgemm::fbgemmHasAvx512VnniSupport() &&
      std::string_view(InstructionSet()) != "vnni") {
    throw qualm::plugin::Refusal{QUALM_UNSUPPORTED,
                                 "FBGEMM's groupwise kernels are those of the CPU, whatever "
                                 "FBGEMM_ENABLE_INSTRUCTIONS says"};
  }
  const auto x = Dense<uint8_t>(*p.x);
  const auto weights = Dense<int8_t>(*p.w);
  fbgemm::PackWeightsForConv<2> w(shape, weights.data());
  const auto count = static_cast<size_t>(p.y->dims[0] * p.y->dims[1] * p.y->dims[2] * p.y->dims[3]);
  std::vector<uint8_t> y(count);
  std::vector<int32_t> sums(count);
  WithCodes(p, Prepare(p, weights, p.y->dims[3]), nullptr, [&](auto& stage) {
    fbgemm::fbgemmConv(shape, x.data(), w, y.data(), sums.data(), stage, 0, 1);
  });
  Scatter(y, *p.y);
}

fbgemm::TensorQuantizationParams ParametersOf(const qualm_qparams& q) {
  return {.scale = q.scale[0], .zero_point = q.zero_point[0], .precision = 8};
}

template <class Code>
void RunQuantize(const qualm_problem& p) {
  const auto x = Dense<float>(*p.x);
  std::vector<Code> y(x.size());
  fbgemm::Quantize<Code>(x.data(), y.data(), static_cast<int64_t>(x.size()), ParametersOf(p.out_q));
  Scatter(y, *p.y);
}

template <class Code>
void RunDequantize(const qualm_problem& p) {
  const auto x = Dense<Code>(*p.x);
  std::vector<float> y(x.size());
  fbgemm::Dequantize<Code>(x.data(), y.data(), static_cast<int64_t>(x.size()), ParametersOf(p.x_q));
  Scatter(y, *p.y);
}

void RunRequantize(const qualm_problem& p) {
  const auto x = Dense<int32_t>(*p.x);
  std::vector<uint8_t> y(x.size());
  const float multiplier = p.multiplier_count != 0
                               ? p.multiplier[0]
                               : p.x_q.scale[0] * p.w_q.scale[0] / p.out_q.scale[0];
  const fbgemm::RequantizationParams parameters{.real_multiplier = multiplier,
                                                .multiplier = 0,
                                                .right_shift = 0,
                                                .target_qparams = ParametersOf(p.out_q)};
  fbgemm::Requantize<uint8_t>(x.data(), y.data(), static_cast<int64_t>(x.size()), parameters);
  Scatter(y, *p.y);
}
#endif

void RunProblem(const qualm_problem& p) {
#ifndef QUALM_FBGEMM_ACC16
  switch (p.op) {
    case QUALM_CONV2D:
    case QUALM_DEPTHWISE: return RunConv(p);
    case QUALM_QUANTIZE:
      return p.y->dtype == QUALM_U8 ? RunQuantize<uint8_t>(p) : RunQuantize<int8_t>(p);
    case QUALM_DEQUANTIZE:
      return p.x->dtype == QUALM_U8 ? RunDequantize<uint8_t>(p) : RunDequantize<int8_t>(p);
    case QUALM_REQUANTIZE: return RunRequantize(p);
    default: break;
  }
#endif
  RunLinear(p);
}

int32_t Run(const qualm_problem* problem) {
  return qualm::plugin::Answer([&] { RunProblem(*problem); });
}

// Record fma3-avx2 of corpus/golden/fbgemm_linear.jsonl: 98 with a fused multiply-add, 99 without.
bool FusesTheBias() {
  uint8_t x = 247, y = 0;
  int8_t w = -103;
  const float x_scale = 0x1.7a0dcap-4f, w_scale = 0x1.df7848p-10f, out_scale = 0x1.d41dfep-3f;
  const float bias = 0x1.779bbap+4f;
  const int32_t x_zero_point = 126, w_zero_point = 0, out_zero_point = 5;
  const auto one = [](int32_t dtype, void* data) {
    return qualm_tensor{.size = sizeof(qualm_tensor),
                        .dtype = dtype,
                        .rank = 2,
                        .dims = {1, 1},
                        .strides = {1, 1},
                        .data = data};
  };
  const auto under = [](const float& scale, const int32_t& zero_point) {
    return qualm_qparams{
        .size = sizeof(qualm_qparams), .count = 1, .scale = &scale, .zero_point = &zero_point};
  };
  const qualm_tensor x_tensor = one(QUALM_U8, &x), w_tensor = one(QUALM_S8, &w),
                     y_tensor = one(QUALM_U8, &y);
  qualm_problem problem{};
  problem.size = sizeof problem;
  problem.op = QUALM_LINEAR;
  problem.x = &x_tensor;
  problem.w = &w_tensor;
  problem.y = &y_tensor;
  problem.x_q = under(x_scale, x_zero_point);
  problem.w_q = under(w_scale, w_zero_point);
  problem.out_q = under(out_scale, out_zero_point);
  problem.bias = &bias;
  RunLinear(problem);
  return y == 98;
}

constexpr uint32_t kU8 = QUALM_TYPE_BIT(QUALM_U8), kS8 = QUALM_TYPE_BIT(QUALM_S8);
#ifndef QUALM_FBGEMM_ACC16
constexpr uint32_t kF32 = QUALM_TYPE_BIT(QUALM_F32);
#endif

qualm_capability Limits(uint32_t x, uint32_t w, uint32_t out, uint32_t features) {
  qualm_capability c{};
  c.size = sizeof c;
  c.x_dtypes = x;
  c.w_dtypes = w;
  c.out_dtypes = out;
  c.features = features | QUALM_CAN_STRIDES;
  c.x_zero_point_min = c.w_zero_point_min = c.out_zero_point_min = INT32_MIN;
  c.x_zero_point_max = c.w_zero_point_max = c.out_zero_point_max = INT32_MAX;
  return c;
}

const qualm_capability* Capability(int32_t op) {
  constexpr uint32_t kSums =
      QUALM_CAN_BIAS_F32 | QUALM_CAN_BIAS_I32 | QUALM_CAN_RELU | QUALM_CAN_PER_CHANNEL;
#ifdef QUALM_FBGEMM_ACC16
  static const qualm_capability linear = Limits(kU8, kS8, kU8, kSums);
#else
  static const qualm_capability linear = Limits(kU8, kS8, kU8 | kF32, kSums);
  static const qualm_capability convolution = [] {
    qualm_capability c =
        Limits(kU8, kS8, kU8,
               kSums | QUALM_CAN_DILATION | QUALM_CAN_GROUPS | QUALM_CAN_ASYMMETRIC_PADDING);
    // The groupwise epilogue of AVX-512 loads 16 int32 biases although 8 channels have only 8
    // (src/QuantUtilsAvx512.cc, requantizeOutputProcessingGConvAvx512).
    c.read_slack_bytes = 32;
    return c;
  }();
  static const qualm_capability quantize = Limits(kF32, 0, kU8 | kS8, 0);
  static const qualm_capability dequantize = Limits(kU8 | kS8, 0, kF32, 0);
  static const qualm_capability requantize = Limits(QUALM_TYPE_BIT(QUALM_S32), 0, kU8, 0);
  switch (op) {
    case QUALM_CONV2D:
    case QUALM_DEPTHWISE: return &convolution;
    case QUALM_QUANTIZE: return &quantize;
    case QUALM_DEQUANTIZE: return &dequantize;
    case QUALM_REQUANTIZE: return &requantize;
    default: break;
  }
#endif
  return op == QUALM_LINEAR ? &linear : nullptr;
}

}  // namespace

extern "C" const qualm_plugin* qualm_plugin_entry(void) {
  if (!fbgemm::fbgemmSupportedCPU() || InstructionSet() == nullptr) return nullptr;
  static const std::string contract = std::string("model:fbgemm@") + InstructionSet() +
                                      (std::is_same_v<Accumulator, int16_t> ? "+acc16" : "") +
                                      (FusesTheBias() ? "" : "+nofma");
  static const qualm_plugin plugin = {.size = sizeof(qualm_plugin),
                                      .abi_version = QUALM_ABI_VERSION,
                                      .reserved = 0,
                                      .name = "FBGEMM",
                                      .version = "",  // the library has no way to tell
                                      .contract = contract.c_str(),
                                      .instruction_set = InstructionSet(),
                                      .capability = Capability,
                                      .run = Run,
                                      .last_error = qualm::plugin::LastErrorText};
  return &plugin;
}
