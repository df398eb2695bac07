// SPDX-License-Identifier: Apache-2.0
// gemmlowp (Debian 12: e844ffd, 2021-12) as a plugin: linear through its public GEMM and output
// pipeline, and requantize through the same pipeline on sums that are a bias alone. Multiplier and
// exponent are those of adapters/libraries/fixed_multiplier.h.
//
// Compiled with -fwrapv: the scalar code's additions of biases and zero points may overflow int32.
// A build without SIMD follows model:gemmlowp; one with SSE4.1 model:gemmlowp@sse4, and has neither
// s8 outputs nor a multiplier per channel: gemmlowp does not compile those for SSE.
#include <gemmlowp/public/gemmlowp.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "adapters/libraries/fixed_multiplier.h"
#include "adapters/libraries/plugin_answer.h"
#include "adapters/qualm_plugin.h"

namespace {

#ifdef GEMMLOWP_SSE4
constexpr bool kSimd = true;
#else
constexpr bool kSimd = false;
#endif

using gemmlowp::MapOrder;
using gemmlowp::MatrixMap;
using gemmlowp::VectorMap;
using gemmlowp::VectorShape;
using qualm::plugin::Multipliers;
using qualm::plugin::Refusal;
using Column = VectorMap<const int32_t, VectorShape::Col>;

// The shift by 31 multiplies by 1 << 31, which C++ leaves undefined.
constexpr int kMostExponent = 30;

Multipliers MultipliersFor(const qualm_problem& p) {
  Multipliers multipliers = qualm::plugin::MultipliersOf(p);
  for (const int exponent : multipliers.exponent) {
    if (exponent > kMostExponent)
      throw Refusal{QUALM_UNSUPPORTED, "gemmlowp shifts left by 30 bits at most"};
  }
  return multipliers;
}

gemmlowp::OutputStageClamp ClampOf(const qualm_problem& p) {
  const int32_t zero = p.y->dtype == QUALM_S32 ? 0 : p.out_q.zero_point[0];
  return {p.relu != 0 ? std::max(p.out_min, zero) : p.out_min, p.out_max};
}

// result[n][m] = pipeline(sum over k of (w[n][k] - w zero point) * (x[m][k] - x zero point)).
// gemmlowp adds its offsets, hence the negated zero points. Both matrices and the result lie in
// memory as the case has them: the result is the transpose of y, column-major.
struct Matrices {
  const uint8_t* w;
  const uint8_t* x;
  int rows, depth, columns;
  int x_stride, y_stride;
  std::vector<int32_t> w_offset, x_offset;
};

template <typename Out, typename... Stages>
void Multiply(const Matrices& a, void* y, const Stages&... stages) {
  static auto* context = [] {
    auto* made = new gemmlowp::GemmContext;
    made->set_max_num_threads(1);
    return made;
  }();
  const MatrixMap<const uint8_t, MapOrder::RowMajor> lhs(a.w, a.rows, a.depth, a.depth);
  const MatrixMap<const uint8_t, MapOrder::ColMajor> rhs(a.x, a.depth, a.columns, a.x_stride);
  MatrixMap<Out, MapOrder::ColMajor> result(static_cast<Out*>(y), a.rows, a.columns, a.y_stride);
  const Column lhs_offset(a.w_offset.data(), a.rows);
  const VectorMap<const int32_t, VectorShape::Row> rhs_offset(a.x_offset.data(), a.columns);
  gemmlowp::GemmWithOutputPipelinePC<uint8_t, Out, gemmlowp::DefaultL8R8BitDepthParams>(
      context, lhs, rhs, &result, lhs_offset, rhs_offset, std::make_tuple(stages...));
}

template <typename Out, typename Cast, typename... Bias>
void ToCodes(const qualm_problem& p, const Matrices& a, void* y, const Multipliers& multipliers,
             const Cast& cast, const Bias&... bias) {
  const gemmlowp::OutputStageClamp clamp = ClampOf(p);
  if (multipliers.fixed.size() == 1) {
    gemmlowp::OutputStageScaleInt32ByFixedPointAndExponent scale;
    scale.result_fixedpoint_multiplier = multipliers.fixed[0];
    scale.result_exponent = multipliers.exponent[0];
    scale.result_offset_after_shift = p.out_q.zero_point[0];
    Multiply<Out>(a, y, bias..., scale, clamp, cast);
    return;
  }
  if constexpr (kSimd) {
    throw Refusal{QUALM_UNSUPPORTED, "gemmlowp has no multiplier per channel with SSE4.1"};
  } else {
    gemmlowp::OutputStageScaleInt32ByFixedPointAndExponentPC<VectorShape::Col> scale;
    scale.result_fixedpoint_multiplier = Column(multipliers.fixed.data(), a.rows);
    scale.result_exponent = Column(multipliers.exponent.data(), a.rows);
    scale.result_offset_after_shift = p.out_q.zero_point[0];
    Multiply<Out>(a, y, bias..., scale, clamp, cast);
  }
}

// `bias` is nothing or one stage.
template <typename... Bias>
void MultiplyInto(const qualm_problem& p, const Matrices& a, void* y,
                  const Multipliers& multipliers, const Bias&... bias) {
  switch (p.y->dtype) {
    case QUALM_S32: return Multiply<int32_t>(a, y, bias..., ClampOf(p));
    case QUALM_U8:
      return ToCodes<uint8_t>(p, a, y, multipliers, gemmlowp::OutputStageSaturatingCastToUint8(),
                              bias...);
    default:
      if constexpr (!kSimd) {
        ToCodes<int8_t>(p, a, y, multipliers, gemmlowp::OutputStageSaturatingCastToInt8(), bias...);
      }
  }
}

using Bias = gemmlowp::OutputStageBiasAddition<Column>;

void RunLinear(const qualm_problem& p) {
  if (p.x->strides[0] > INT_MAX || p.y->strides[0] > INT_MAX)
    throw Refusal{QUALM_UNSUPPORTED, "gemmlowp's strides are ints"};
  Matrices a{.w = static_cast<const uint8_t*>(p.w->data),
             .x = static_cast<const uint8_t*>(p.x->data),
             .rows = static_cast<int>(p.y->dims[1]),
             .depth = static_cast<int>(p.x->dims[1]),
             .columns = static_cast<int>(p.y->dims[0]),
             .x_stride = static_cast<int>(p.x->strides[0]),
             .y_stride = static_cast<int>(p.y->strides[0]),
             .w_offset = {},
             .x_offset = {}};
  if (p.acc != nullptr) {
    Matrices raw = a;
    raw.y_stride = static_cast<int>(p.acc->strides[0]);
    raw.w_offset.assign(static_cast<size_t>(a.rows), 0);
    raw.x_offset.assign(static_cast<size_t>(a.columns), 0);
    Multiply<int32_t>(raw, p.acc->data);
  }
  for (int n = 0; n < a.rows; ++n)
    a.w_offset.push_back(-p.w_q.zero_point[p.w_q.count == 1 ? 0 : n]);
  a.x_offset.assign(static_cast<size_t>(a.columns), -p.x_q.zero_point[0]);
  const Multipliers multipliers = p.y->dtype == QUALM_S32 ? Multipliers{} : MultipliersFor(p);
  if (p.bias_i32 == nullptr) return MultiplyInto(p, a, p.y->data, multipliers);
  Bias bias;
  bias.bias_vector = Column(p.bias_i32, a.rows);
  MultiplyInto(p, a, p.y->data, multipliers, bias);
}

// The sums of a row are a bias: that of one product 0*0 per output.
void RunRequantize(const qualm_problem& p) {
  const auto columns = static_cast<size_t>(p.y->dims[1]);
  const std::vector<uint8_t> zeros(columns, 0);
  const Matrices a{.w = zeros.data(),
                   .x = zeros.data(),
                   .rows = static_cast<int>(columns),
                   .depth = 1,
                   .columns = 1,
                   .x_stride = 1,
                   .y_stride = static_cast<int>(columns),
                   .w_offset = std::vector<int32_t>(columns, 0),
                   .x_offset = {0}};
  const Multipliers multipliers = MultipliersFor(p);
  for (int64_t m = 0; m < p.y->dims[0]; ++m) {
    Bias sums;
    sums.bias_vector = Column(static_cast<const int32_t*>(p.x->data) + m * p.x->strides[0], a.rows);
    MultiplyInto(p, a, static_cast<uint8_t*>(p.y->data) + m * p.y->strides[0], multipliers, sums);
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
  constexpr uint32_t kU8 = QUALM_TYPE_BIT(QUALM_U8);
  constexpr uint32_t kS32 = QUALM_TYPE_BIT(QUALM_S32);
  constexpr uint32_t kCodes = kSimd ? kU8 : kU8 | QUALM_TYPE_BIT(QUALM_S8);
  constexpr uint32_t kFeatures =
      QUALM_CAN_RELU | QUALM_CAN_CLAMP | QUALM_CAN_STRIDES | QUALM_CAN_PER_CHANNEL;
  const auto base = [] {
    qualm_capability c{};
    c.size = sizeof c;
    c.features = kFeatures;
    c.w_zero_point_max = c.x_zero_point_max = UINT8_MAX;
    c.out_zero_point_min = INT8_MIN;
    c.out_zero_point_max = UINT8_MAX;
    return c;
  };
  static const qualm_capability linear = [&] {
    qualm_capability c = base();
    c.features |= QUALM_CAN_BIAS_I32 | QUALM_CAN_ACC;
    c.x_dtypes = c.w_dtypes = kU8;
    c.out_dtypes = kCodes | kS32;
    c.k_max = 33025;  // K*255*255 fits int32
    return c;
  }();
  static const qualm_capability requantize = [&] {
    qualm_capability c = base();
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

}  // namespace

extern "C" const qualm_plugin* qualm_plugin_entry(void) {
#ifdef GEMMLOWP_SSE4
  if (!__builtin_cpu_supports("sse4.1")) return nullptr;
#endif
  static const qualm_plugin plugin = {.size = sizeof(qualm_plugin),
                                      .abi_version = QUALM_ABI_VERSION,
                                      .reserved = 0,
                                      .name = "gemmlowp",
                                      .version = "",  // the headers do not tell
                                      .contract = kSimd ? "model:gemmlowp@sse4" : "model:gemmlowp",
                                      .instruction_set = kSimd ? "sse4" : "scalar",
                                      .capability = Capability,
                                      .run = Run,
                                      .last_error = qualm::plugin::LastErrorText};
  return &plugin;
}
