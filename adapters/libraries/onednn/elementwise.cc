// SPDX-License-Identifier: Apache-2.0
// quantize, dequantize and requantize as dnnl::reorder (one output scale per tensor or channel, one
// zero point), add and mul as dnnl::binary (one scale per operand, no zero points: 2.6 has none
// there). PyTorch 1.13 does these without oneDNN; here the attributes are set to mean them:
//   - quantize: output scale fl(1/s)
//   - dequantize: output scale s
//   - requantize: output scale = multiplier
//   - add: scales fl(sa/sy) and fl(sb/sy)
//   - mul: scales fl(sa/sy) and sb
#include <cstdint>
#include <vector>

#include "adapters/libraries/onednn/ops.h"

namespace qualm_onednn {
namespace {

using dnnl::memory;

constexpr int kColumns = 1 << 1;  // a scale for each index of dimension 1

// Version 2 has one list of factors per reorder. Version 3 multiplies by a scale of its input, and
// divides by one of its output.
#if DNNL_VERSION_MAJOR == 2
constexpr bool kDividesByScales = false;
constexpr int ScalesOf(int32_t) { return kOutput; }
#else
constexpr bool kDividesByScales = true;
constexpr int ScalesOf(int32_t op) { return op == QUALM_QUANTIZE ? DNNL_ARG_TO : DNNL_ARG_FROM; }
#endif

memory::desc DescOf(const qualm_tensor& tensor) {
  return {memory::dims{tensor.dims[0], tensor.dims[1]}, TypeOf(tensor.dtype),
          memory::dims{tensor.strides[0], tensor.strides[1]}};
}

bool OneZeroPoint(const qualm_qparams& q) {
  for (int64_t i = 1; i < q.count; ++i) {
    if (q.zero_point[i] != q.zero_point[0]) return false;
  }
  return true;
}

int32_t Reorder(const qualm_problem& problem, const Attributes& attributes) {
  const memory::desc from = DescOf(*problem.x), to = DescOf(*problem.y);
  static auto* cache = new Cache<dnnl::reorder>;
  Key key;
  key.Add(from).Add(to).Add(attributes);
  const dnnl::reorder& reorder = cache->Get(key, [&] {
    return dnnl::reorder(
        dnnl::reorder::primitive_desc(Engine(), from, Engine(), to, attributes.Make()));
  });
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_FROM, memory(from, Engine(), problem.x->data)},
      {DNNL_ARG_TO, memory(to, Engine(), problem.y->data)}};
  attributes.AddTo(arguments);
  reorder.execute(Stream(), arguments);
  Stream().wait();
  return QUALM_OK;
}

}  // namespace

int32_t RunReorder(const qualm_problem& problem) {
  if (problem.op == QUALM_REQUANTIZE && problem.multiplier == nullptr)
    return Unsupported("oneDNN's reorder has one multiplier, not a quotient of scales");
  const qualm_qparams& q = problem.op == QUALM_DEQUANTIZE ? problem.x_q : problem.out_q;
  if (!OneZeroPoint(q)) return Unsupported("oneDNN's reorder has one zero point for all channels");
  const float* scale = problem.op == QUALM_REQUANTIZE ? problem.multiplier : q.scale;
  const int64_t count = problem.op == QUALM_REQUANTIZE ? problem.multiplier_count : q.count;
  Quantization scales{.argument = ScalesOf(problem.op), .mask = count == 1 ? 0 : kColumns};
  scales.scales.assign(scale, scale + count);
  if (problem.op == QUALM_QUANTIZE && !kDividesByScales) {
    for (float& s : scales.scales) s = static_cast<float>(1.0 / static_cast<double>(s));
  }
  Attributes attributes;
  attributes.Add(std::move(scales));
  attributes.Add({.argument = problem.op == QUALM_DEQUANTIZE ? DNNL_ARG_FROM : DNNL_ARG_TO,
                  .zero_point = q.zero_point[0]});
  return Reorder(problem, attributes);
}

int32_t RunBinary(const qualm_problem& problem) {
  const memory::desc a = DescOf(*problem.x), b = DescOf(*problem.w), y = DescOf(*problem.y);
  const bool add = problem.op == QUALM_ADD;
  const float out = problem.out_q.scale[0];
  Attributes attributes;
  attributes.Add({.argument = DNNL_ARG_SRC_0, .scales = {problem.x_q.scale[0] / out}});
  attributes.Add({.argument = DNNL_ARG_SRC_1,
                  .scales = {add ? problem.w_q.scale[0] / out : problem.w_q.scale[0]}});
  if (problem.relu != 0) attributes.AddRelu();
  static auto* cache = new Cache<dnnl::binary>;
  Key key;
  key.Add(a).Add(b).Add(y).Add(add).Add(attributes);
  const dnnl::binary& primitive = cache->Get(key, [&] {
    const auto algorithm = add ? dnnl::algorithm::binary_add : dnnl::algorithm::binary_mul;
    return dnnl::binary(Describe<dnnl::binary>(attributes, algorithm, a, b, y));
  });
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC_0, memory(a, Engine(), problem.x->data)},
                                            {DNNL_ARG_SRC_1, memory(b, Engine(), problem.w->data)},
                                            {DNNL_ARG_DST, memory(y, Engine(), problem.y->data)}};
  attributes.AddTo(arguments);
  primitive.execute(Stream(), arguments);
  Stream().wait();
  return QUALM_OK;
}

const qualm_capability* ReorderCapability(int32_t op) {
  const auto offer = [](uint32_t x, uint32_t out) {
    qualm_capability c{};
    c.size = sizeof c;
    c.x_dtypes = x;
    c.out_dtypes = out;
    c.features = QUALM_CAN_PER_CHANNEL | QUALM_CAN_STRIDES;
    // Any int32 but DNNL_RUNTIME_S32_VAL (INT32_MIN), which means "given at run time".
    c.x_zero_point_min = c.out_zero_point_min = INT32_MIN + 1;
    c.x_zero_point_max = c.out_zero_point_max = INT32_MAX;
    return c;
  };
  static const qualm_capability quantize = offer(QUALM_TYPE_BIT(QUALM_F32), kCodes);
  static const qualm_capability dequantize = offer(kCodes, QUALM_TYPE_BIT(QUALM_F32));
  static const qualm_capability requantize = offer(QUALM_TYPE_BIT(QUALM_S32), kCodes);
  if (op == QUALM_QUANTIZE) return &quantize;
  return op == QUALM_DEQUANTIZE ? &dequantize : &requantize;
}

const qualm_capability* BinaryCapability() {
  static const qualm_capability binary = [] {
    qualm_capability c{};
    c.size = sizeof c;
    c.x_dtypes = c.w_dtypes = c.out_dtypes = kCodes;
    c.features = QUALM_CAN_RELU;
    return c;  // symmetric
  }();
  return &binary;
}

}  // namespace qualm_onednn
