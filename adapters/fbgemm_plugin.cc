// SPDX-License-Identifier: Apache-2.0
// FBGEMM (71d6f8b) as a plugin: linear as PyTorch calls it (aten/src/ATen/native/quantized/cpu/
// qlinear.cpp, PackedLinearWeight::apply_impl): multipliers fl(fl(sx*sw)/sy), a float bias, relu
// fused. FBGEMM_ENABLE_INSTRUCTIONS chooses the kernels, once per process.
//
// Results follow model:fbgemm@ISA. Whether the bias is added with a fused multiply-add is the
// choice of the compiler that built the library, so it is asked when the plugin is loaded.
#include <fbgemm/Fbgemm.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "adapters/plugin_answer.h"
#include "adapters/qualm_plugin.h"

namespace {

using fbgemm::QuantizationGranularity;

// One product, everything of which is dense but the rows of x.
struct Product {
  int rows, columns, depth;
  const uint8_t* x;
  int x_stride;
  int32_t x_zero_point;
  float x_scale;
  const int8_t* w;  // columns x depth
  std::vector<float> w_scale;
  std::vector<int32_t> w_zero_point;
  const float* bias;
  float out_scale;
  int32_t out_zero_point;
};

template <bool kRelu, QuantizationGranularity kGranularity>
std::vector<uint8_t> Multiply(const Product& p) {
  const auto count = static_cast<size_t>(p.rows) * static_cast<size_t>(p.columns);
  std::vector<float> products, multipliers;
  for (const float scale : p.w_scale) {
    products.push_back(p.x_scale * scale);
    multipliers.push_back(products.back() / p.out_scale);
  }
  std::vector<int32_t> column_offsets;
  for (int n = 0; n < p.columns; ++n) {
    uint32_t sum = 0;
    for (int k = 0; k < p.depth; ++k) sum += static_cast<uint32_t>(p.w[int64_t{n} * p.depth + k]);
    const int32_t zero_point =
        p.w_zero_point[p.w_zero_point.size() == 1 ? 0 : static_cast<size_t>(n)];
    column_offsets.push_back(static_cast<int32_t>(sum - static_cast<uint32_t>(zero_point) *
                                                            static_cast<uint32_t>(p.depth)));
  }
  fbgemm::PackBMatrix<int8_t> w(fbgemm::matrix_op_t::Transpose, p.depth, p.columns, p.w, p.depth);
  std::vector<int32_t> row_offsets(
      static_cast<size_t>(fbgemm::PackAWithRowOffset<uint8_t>::rowOffsetBufferSize()));
  fbgemm::PackAWithRowOffset<uint8_t> x(
      fbgemm::matrix_op_t::NoTranspose, static_cast<uint32_t>(p.rows),
      static_cast<uint32_t>(p.depth), p.x, static_cast<uint32_t>(p.x_stride), nullptr, 1,
      row_offsets.data());
  fbgemm::DoNothing<> nothing;
  const fbgemm::ReQuantizeOutput<kRelu, kGranularity, float> finish(
      nothing, multipliers.data(), p.out_zero_point, p.x_zero_point, p.w_zero_point.data(),
      x.getRowOffsetBuffer(), column_offsets.data(), p.bias, static_cast<uint32_t>(p.columns), 1,
      products.data());
  std::vector<uint8_t> y(count);
  std::vector<int32_t> sums(count);
  fbgemm::fbgemmPacked(x, w, y.data(), sums.data(), static_cast<uint32_t>(p.columns), finish, 0, 1);
  return y;
}

std::vector<uint8_t> Multiply(const Product& p, bool relu) {
  if (p.w_scale.size() == 1) {
    return relu ? Multiply<true, QuantizationGranularity::TENSOR>(p)
                : Multiply<false, QuantizationGranularity::TENSOR>(p);
  }
  return relu ? Multiply<true, QuantizationGranularity::OUT_CHANNEL>(p)
              : Multiply<false, QuantizationGranularity::OUT_CHANNEL>(p);
}

// Record fma3-avx2 of corpus/golden/fbgemm_linear.jsonl: 98 with a fused multiply-add, 99 without.
bool FusesTheBias() {
  constexpr uint8_t kX = 247;
  constexpr int8_t kW = -103;
  constexpr float kBias = 0x1.779bbap+4f;
  return Multiply({.rows = 1,
                   .columns = 1,
                   .depth = 1,
                   .x = &kX,
                   .x_stride = 1,
                   .x_zero_point = 126,
                   .x_scale = 0x1.7a0dcap-4f,
                   .w = &kW,
                   .w_scale = {0x1.df7848p-10f},
                   .w_zero_point = {0},
                   .bias = &kBias,
                   .out_scale = 0x1.d41dfep-3f,
                   .out_zero_point = 5},
                  false)[0] == 98;
}

void RunLinear(const qualm_problem& p) {
  const auto w_count = static_cast<size_t>(p.w_q.count);
  const std::vector<uint8_t> y =
      Multiply({.rows = static_cast<int>(p.y->dims[0]),
                .columns = static_cast<int>(p.y->dims[1]),
                .depth = static_cast<int>(p.x->dims[1]),
                .x = static_cast<const uint8_t*>(p.x->data),
                .x_stride = static_cast<int>(p.x->strides[0]),
                .x_zero_point = p.x_q.zero_point[0],
                .x_scale = p.x_q.scale[0],
                .w = static_cast<const int8_t*>(p.w->data),
                .w_scale = {p.w_q.scale, p.w_q.scale + w_count},
                .w_zero_point = {p.w_q.zero_point, p.w_q.zero_point + w_count},
                .bias = p.bias,
                .out_scale = p.out_q.scale[0],
                .out_zero_point = p.out_q.zero_point[0]},
               p.relu != 0);
  for (int64_t m = 0; m < p.y->dims[0]; ++m) {
    std::copy_n(y.begin() + m * p.y->dims[1], p.y->dims[1],
                static_cast<uint8_t*>(p.y->data) + m * p.y->strides[0]);
  }
}

int32_t Run(const qualm_problem* problem) {
  return qualm::plugin::Answer([&] { RunLinear(*problem); });
}

const qualm_capability* Capability(int32_t op) {
  static const qualm_capability linear = [] {
    qualm_capability c{};
    c.size = sizeof c;
    c.x_dtypes = c.out_dtypes = QUALM_TYPE_BIT(QUALM_U8);
    c.w_dtypes = QUALM_TYPE_BIT(QUALM_S8);
    c.features = QUALM_CAN_BIAS_F32 | QUALM_CAN_RELU | QUALM_CAN_PER_CHANNEL | QUALM_CAN_STRIDES;
    c.x_zero_point_min = c.w_zero_point_min = c.out_zero_point_min = INT32_MIN;
    c.x_zero_point_max = c.w_zero_point_max = c.out_zero_point_max = INT32_MAX;
    return c;
  }();
  return op == QUALM_LINEAR ? &linear : nullptr;
}

// The name of an instruction set in the conventions; nullptr for those that have none.
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

}  // namespace

extern "C" const qualm_plugin* qualm_plugin_entry(void) {
  if (!fbgemm::fbgemmSupportedCPU() || InstructionSet() == nullptr) return nullptr;
  static const std::string contract =
      std::string("model:fbgemm@") + InstructionSet() + (FusesTheBias() ? "" : "+nofma");
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
