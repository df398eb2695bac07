// SPDX-License-Identifier: Apache-2.0
#include "adapters/libraries/onednn/ops.h"

#include <cstdlib>

namespace qualm_onednn {

dnnl::engine& Engine() {
  // Never destroyed: at process exit oneDNN's own globals may go first.
  static auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::stream& Stream() {
  static auto* stream = new dnnl::stream(Engine());
  return *stream;
}

void KeepFewPrimitives() {
  for (const char* name : {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"}) {
    if (std::getenv(name) != nullptr) return;
  }
  dnnl::set_primitive_cache_capacity(kPrimitivesKept);
}

dnnl::memory::data_type TypeOf(int32_t dtype) {
  switch (dtype) {
    case QUALM_U8: return dnnl::memory::data_type::u8;
    case QUALM_S8: return dnnl::memory::data_type::s8;
    case QUALM_S32: return dnnl::memory::data_type::s32;
    default: return dnnl::memory::data_type::f32;
  }
}

Scales ComputeScales(const qualm_problem& problem, int64_t channels) {
  const auto reciprocal = [](float scale) {
    return static_cast<float>(1.0 / static_cast<double>(scale));
  };
  const float x = reciprocal(problem.x_q.scale[0]);
  const float out = IsCode(problem.y->dtype) ? reciprocal(problem.out_q.scale[0]) : 1.0f;
  Scales scales;
  std::vector<float> product;
  for (int64_t n = 0; n < problem.w_q.count; ++n) {
    product.push_back(x * reciprocal(problem.w_q.scale[n]));
    scales.output.push_back(out / product.back());
  }
  if (problem.bias != nullptr) {
    for (int64_t n = 0; n < channels; ++n) {
      const auto channel = static_cast<size_t>(problem.w_q.count == 1 ? 0 : n);
      scales.bias.push_back(problem.bias[n] * product[channel]);
    }
  }
  return scales;
}

dnnl::primitive_attr AttributesOf(const Epilogue& epilogue) {
  dnnl::primitive_attr attributes;
  if (!epilogue.output_scales.empty()) {
    constexpr int kChannels = 1 << 1;  // dimension 1, of matrices and of images
    attributes.set_output_scales(epilogue.output_scales.size() == 1 ? 0 : kChannels,
                                 epilogue.output_scales);
  }
  if (epilogue.source_zero_point != 0)
    attributes.set_zero_points(DNNL_ARG_SRC, 0, {epilogue.source_zero_point});
  if (epilogue.weights_zero_point != 0)
    attributes.set_zero_points(DNNL_ARG_WEIGHTS, 0, {epilogue.weights_zero_point});
  if (epilogue.destination_zero_point != 0)
    attributes.set_zero_points(DNNL_ARG_DST, 0, {epilogue.destination_zero_point});
  if (epilogue.relu) {
    dnnl::post_ops operations;
    operations.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    attributes.set_post_ops(operations);
  }
  return attributes;
}

Key& Key::AddBytes(const void* from, size_t bytes) {
  text_.append(static_cast<const char*>(from), bytes);
  return *this;
}

Key& Key::Add(const dnnl::memory::desc& desc) {
  const int type = desc.data.data_type;
  const auto rank = static_cast<size_t>(desc.data.ndims);
  Add(type).Add(rank);
  AddBytes(desc.data.dims, rank * sizeof desc.data.dims[0]);
  return AddBytes(desc.data.format_desc.blocking.strides, rank * sizeof desc.data.dims[0]);
}

Key& Key::Add(const Epilogue& epilogue) {
  AddList(epilogue.output_scales);
  const int32_t numbers[] = {epilogue.source_zero_point, epilogue.weights_zero_point,
                             epilogue.destination_zero_point, epilogue.relu ? 1 : 0};
  return AddBytes(numbers, sizeof numbers);
}

}  // namespace qualm_onednn
