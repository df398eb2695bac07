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

struct Attributes {
  std::vector<float> scales;
  int argument = 0;  // the argument that has the zero point
  int32_t zero_point = 0;
};

dnnl::primitive_attr AttributesFrom(const Attributes& from) {
  dnnl::primitive_attr attributes;
  attributes.set_output_scales(from.scales.size() == 1 ? 0 : kColumns, from.scales);
  if (from.zero_point != 0) attributes.set_zero_points(from.argument, 0, {from.zero_point});
  return attributes;
}

int32_t Reorder(const qualm_problem& problem, const Attributes& attributes) {
  const memory::desc from = DescOf(*problem.x), to = DescOf(*problem.y);
  static auto* cache = new Cache<dnnl::reorder>;
  Key key;
  key.Add(from).Add(to).AddList(attributes.scales);
  key.Add(attributes.argument).Add(attributes.zero_point);
  const dnnl::reorder& reorder = cache->Get(key, [&] {
    return dnnl::reorder(
        dnnl::reorder::primitive_desc(Engine(), from, Engine(), to, AttributesFrom(attributes)));
  });
  memory x(from, Engine(), problem.x->data), y(to, Engine(), problem.y->data);
  reorder.execute(Stream(), x, y);
  Stream().wait();
  return QUALM_OK;
}

// The parameters from which a binary primitive is made.
struct Binary {
  dnnl::algorithm algorithm{};
  float a = 1, b = 1;  // scales
  bool relu = false;
};

dnnl::binary Build(const Binary& binary, const memory::desc& a, const memory::desc& b,
                   const memory::desc& y) {
  dnnl::primitive_attr attributes;
  attributes.set_scales(DNNL_ARG_SRC_0, 0, {binary.a});
  attributes.set_scales(DNNL_ARG_SRC_1, 0, {binary.b});
  if (binary.relu) {
    dnnl::post_ops operations;
    operations.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    attributes.set_post_ops(operations);
  }
  const dnnl::binary::desc description(binary.algorithm, a, b, y);
  return dnnl::binary(dnnl::binary::primitive_desc(description, attributes, Engine()));
}

}  // namespace

int32_t RunReorder(const qualm_problem& problem) {
  if (problem.op == QUALM_REQUANTIZE && problem.multiplier == nullptr)
    return Unsupported("oneDNN's reorder has one multiplier, not a quotient of scales");
  const qualm_qparams& q = problem.op == QUALM_DEQUANTIZE ? problem.x_q : problem.out_q;
  if (!OneZeroPoint(q)) return Unsupported("oneDNN's reorder has one zero point for all channels");
  Attributes attributes;
  attributes.argument = problem.op == QUALM_DEQUANTIZE ? DNNL_ARG_SRC : DNNL_ARG_DST;
  attributes.zero_point = q.zero_point[0];
  const float* scale = problem.op == QUALM_REQUANTIZE ? problem.multiplier : q.scale;
  const int64_t count = problem.op == QUALM_REQUANTIZE ? problem.multiplier_count : q.count;
  attributes.scales.assign(scale, scale + count);
  if (problem.op == QUALM_QUANTIZE) {
    for (float& s : attributes.scales) s = static_cast<float>(1.0 / static_cast<double>(s));
  }
  return Reorder(problem, attributes);
}

int32_t RunBinary(const qualm_problem& problem) {
  const memory::desc a = DescOf(*problem.x), b = DescOf(*problem.w), y = DescOf(*problem.y);
  Binary binary;
  const bool add = problem.op == QUALM_ADD;
  const float out = problem.out_q.scale[0];
  binary.algorithm = add ? dnnl::algorithm::binary_add : dnnl::algorithm::binary_mul;
  binary.a = problem.x_q.scale[0] / out;
  binary.b = add ? problem.w_q.scale[0] / out : problem.w_q.scale[0];
  binary.relu = problem.relu != 0;
  static auto* cache = new Cache<dnnl::binary>;
  Key key;
  key.Add(a).Add(b).Add(y).Add(add).Add(binary.a).Add(binary.b).Add(binary.relu);
  const dnnl::binary& primitive = cache->Get(key, [&] { return Build(binary, a, b, y); });
  primitive.execute(Stream(), {{DNNL_ARG_SRC_0, memory(a, Engine(), problem.x->data)},
                               {DNNL_ARG_SRC_1, memory(b, Engine(), problem.w->data)},
                               {DNNL_ARG_DST, memory(y, Engine(), problem.y->data)}});
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
