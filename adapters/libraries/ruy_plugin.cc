// SPDX-License-Identifier: Apache-2.0
// ruy (21a85fe, 2023-02, as Debian 13 has it) as a plugin: linear through ruy::Mul, and requantize
// as a product of zeros with the sums as its bias. Multiplier and exponent are those of
// adapters/libraries/fixed_multiplier.h. Results follow model:ruy, that of the x86 kernels from AVX
// on.
#include <ruy/ruy.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "adapters/libraries/fixed_multiplier.h"
#include "adapters/libraries/plugin_answer.h"
#include "adapters/qualm_plugin.h"

namespace {

using qualm::plugin::Multipliers;
using qualm::plugin::Refusal;

Multipliers MultipliersFor(const qualm_problem& p) {
  Multipliers multipliers = qualm::plugin::MultipliersOf(p);
  for (const int exponent : multipliers.exponent) {
    if (exponent > 30)
      throw Refusal{QUALM_UNSUPPORTED, "a multiplier of 2^30 or more is shifted out"};
  }
  return multipliers;
}

template <typename Scalar>
Scalar CodeOf(int32_t zero_point) {
  if (zero_point < std::numeric_limits<Scalar>::lowest() ||
      zero_point > std::numeric_limits<Scalar>::max()) {
    throw Refusal{QUALM_UNSUPPORTED, "ruy's zero points are codes of their matrix"};
  }
  return static_cast<Scalar>(zero_point);
}

template <typename Scalar>
ruy::Matrix<Scalar> MatrixOf(const void* data, int64_t rows, int64_t columns, int64_t stride,
                             ruy::Order order, int32_t zero_point) {
  ruy::Matrix<Scalar> matrix;
  ruy::MakeSimpleLayout(static_cast<int>(rows), static_cast<int>(columns), order,
                        matrix.mutable_layout());
  matrix.mutable_layout()->set_stride(static_cast<int>(stride));
  matrix.set_data(static_cast<Scalar*>(const_cast<void*>(data)));
  matrix.set_zero_point(CodeOf<Scalar>(zero_point));
  return matrix;
}

// y = x * transposed w, both with their rows in memory.
struct Operands {
  const void *x, *w;
  int64_t rows, depth, columns;
  int64_t x_stride, y_stride;
  int32_t x_zero_point, w_zero_point;
  const int32_t* bias;
};

template <typename X, typename W, typename Out>
void Multiply(const qualm_problem& p, const Operands& a, const Multipliers& multipliers, void* y) {
  static auto* context = new ruy::Context;
  if (!(std::is_same_v<X, uint8_t> && std::is_same_v<W, uint8_t>) &&
      a.x_zero_point == std::numeric_limits<X>::lowest() &&
      a.w_zero_point == std::numeric_limits<W>::lowest()) {
    throw Refusal{QUALM_UNSUPPORTED, "ruy bans zero points that are both the lowest code"};
  }
  const auto lhs =
      MatrixOf<X>(a.x, a.rows, a.depth, a.x_stride, ruy::Order::kRowMajor, a.x_zero_point);
  const auto rhs =
      MatrixOf<W>(a.w, a.depth, a.columns, a.depth, ruy::Order::kColMajor, a.w_zero_point);
  const bool codes = !std::is_same_v<Out, int32_t>;
  auto result = MatrixOf<Out>(y, a.rows, a.columns, a.y_stride, ruy::Order::kRowMajor,
                              codes ? p.out_q.zero_point[0] : 0);
  ruy::MulParams<int32_t, Out> parameters;
  parameters.set_channel_dimension(ruy::ChannelDimension::kCol);
  parameters.set_bias(a.bias);
  if constexpr (std::is_same_v<Out, int32_t>) {
    if (p.relu != 0 || p.out_min != INT32_MIN || p.out_max != INT32_MAX)
      throw Refusal{QUALM_UNSUPPORTED, "ruy does not clamp sums"};
  } else {
    const int32_t low = p.relu != 0 ? std::max(p.out_min, p.out_q.zero_point[0]) : p.out_min;
    parameters.set_clamp_min(static_cast<Out>(std::min(low, p.out_max)));
    parameters.set_clamp_max(static_cast<Out>(p.out_max));
    if (multipliers.fixed.size() == 1) {
      parameters.set_multiplier_fixedpoint(multipliers.fixed[0]);
      parameters.set_multiplier_exponent(multipliers.exponent[0]);
    } else {
      parameters.set_multiplier_fixedpoint_perchannel(multipliers.fixed.data());
      parameters.set_multiplier_exponent_perchannel(multipliers.exponent.data());
    }
  }
  ruy::Mul(lhs, rhs, parameters, context, &result);
}

template <typename X, typename W>
void ToOutput(const qualm_problem& p, const Operands& a, void* y) {
  switch (p.y->dtype) {
    case QUALM_S32: return Multiply<X, W, int32_t>(p, a, {}, y);
    case QUALM_S8: return Multiply<X, W, int8_t>(p, a, MultipliersFor(p), y);
    default: Multiply<X, W, uint8_t>(p, a, MultipliersFor(p), y);
  }
}

template <typename X>
void RunLinear(const qualm_problem& p, const Operands& a) {
  if (p.w->dtype == QUALM_S8) return ToOutput<X, int8_t>(p, a, p.y->data);
  ToOutput<X, uint8_t>(p, a, p.y->data);
}

void RunLinear(const qualm_problem& p) {
  for (int64_t n = 1; n < p.w_q.count; ++n) {
    if (p.w_q.zero_point[n] != p.w_q.zero_point[0])
      throw Refusal{QUALM_UNSUPPORTED,
                    "ruy has one zero point for all weights, not one per channel"};
  }
  const Operands a{.x = p.x->data,
                   .w = p.w->data,
                   .rows = p.x->dims[0],
                   .depth = p.x->dims[1],
                   .columns = p.y->dims[1],
                   .x_stride = p.x->strides[0],
                   .y_stride = p.y->strides[0],
                   .x_zero_point = p.x_q.zero_point[0],
                   .w_zero_point = p.w_q.zero_point[0],
                   .bias = p.bias_i32};
  if (p.x->dtype == QUALM_S8) return RunLinear<int8_t>(p, a);
  RunLinear<uint8_t>(p, a);
}

void RunRequantize(const qualm_problem& p) {
  const std::vector<uint8_t> zeros(static_cast<size_t>(p.y->dims[1]), 0);
  for (int64_t m = 0; m < p.y->dims[0]; ++m) {
    const Operands a{.x = zeros.data(),
                     .w = zeros.data(),
                     .rows = 1,
                     .depth = 1,
                     .columns = p.y->dims[1],
                     .x_stride = 1,
                     .y_stride = p.y->dims[1],
                     .x_zero_point = 0,
                     .w_zero_point = 0,
                     .bias = static_cast<const int32_t*>(p.x->data) + m * p.x->strides[0]};
    ToOutput<uint8_t, uint8_t>(p, a, static_cast<uint8_t*>(p.y->data) + m * p.y->strides[0]);
  }
}

int32_t Run(const qualm_problem* problem) {
  return qualm::plugin::Answer([&] {
    if (problem->op == QUALM_LINEAR) {
      RunLinear(*problem);
    } else {
      RunRequantize(*problem);
    }
  });
}

const qualm_capability* Capability(int32_t op) {
  constexpr uint32_t kCodes = QUALM_TYPE_BIT(QUALM_U8) | QUALM_TYPE_BIT(QUALM_S8);
  constexpr uint32_t kS32 = QUALM_TYPE_BIT(QUALM_S32);
  static const qualm_capability linear = [] {
    qualm_capability c{};
    c.size = sizeof c;
    c.x_dtypes = c.w_dtypes = kCodes;
    c.out_dtypes = kCodes | kS32;
    c.features = QUALM_CAN_BIAS_I32 | QUALM_CAN_RELU | QUALM_CAN_CLAMP | QUALM_CAN_STRIDES |
                 QUALM_CAN_PER_CHANNEL;
    c.x_zero_point_min = c.w_zero_point_min = c.out_zero_point_min = INT8_MIN;
    c.x_zero_point_max = c.w_zero_point_max = c.out_zero_point_max = UINT8_MAX;
    return c;
  }();
  static const qualm_capability requantize = [] {
    qualm_capability c = linear;
    c.x_dtypes = kS32;
    c.out_dtypes = kCodes;
    return c;
  }();
  switch (op) {
    case QUALM_LINEAR: return &linear;
    case QUALM_REQUANTIZE: return &requantize;
    default: return nullptr;
  }
}

const char* InstructionSet() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return "avx512";
  }
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? "avx2" : "avx";
}

}  // namespace

extern "C" const qualm_plugin* qualm_plugin_entry(void) {
  if (!__builtin_cpu_supports("avx")) return nullptr;  // its plain C++ rounds once, another way
  static const qualm_plugin plugin = {.size = sizeof(qualm_plugin),
                                      .abi_version = QUALM_ABI_VERSION,
                                      .reserved = 0,
                                      .name = "ruy",
                                      .version = "",  // the library has no way to tell
                                      .contract = "model:ruy",
                                      .instruction_set = InstructionSet(),
                                      .capability = Capability,
                                      .run = Run,
                                      .last_error = qualm::plugin::LastErrorText};
  return &plugin;
}
