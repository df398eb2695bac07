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

dnnl::primitive_attr Attributes::Make() const {
  dnnl::primitive_attr attributes;
  for (const Quantization& tensor : tensors_) {
#if DNNL_VERSION_MAJOR == 2
    if (tensor.argument == kOutput && !tensor.scales.empty())
      attributes.set_output_scales(tensor.mask, tensor.scales);
    else if (!tensor.scales.empty())
      attributes.set_scales(tensor.argument, tensor.mask, tensor.scales);
    if (tensor.zero_point != 0) attributes.set_zero_points(tensor.argument, 0, {tensor.zero_point});
#else
    if (!tensor.scales.empty()) attributes.set_scales_mask(tensor.argument, tensor.mask);
    if (tensor.zero_point != 0) attributes.set_zero_points_mask(tensor.argument, 0);
#endif
  }
  if (relu_) {
    dnnl::post_ops operations;
#if DNNL_VERSION_MAJOR == 2
    operations.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
#else
    operations.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
#endif
    attributes.set_post_ops(operations);
  }
  return attributes;
}

void Attributes::AddTo(std::unordered_map<int, dnnl::memory>& arguments) const {
#if DNNL_VERSION_MAJOR == 2
  (void)arguments;
#else
  const auto add = [&](int argument, dnnl::memory::data_type type, size_t count,
                       const void* values) {
    const dnnl::memory::desc desc({static_cast<dnnl::memory::dim>(count)}, type,
                                  dnnl::memory::format_tag::x);
    arguments.emplace(argument, dnnl::memory(desc, Engine(), const_cast<void*>(values)));
  };
  for (const Quantization& tensor : tensors_) {
    if (!tensor.scales.empty()) {
      add(DNNL_ARG_ATTR_SCALES | tensor.argument, dnnl::memory::data_type::f32,
          tensor.scales.size(), tensor.scales.data());
    }
    if (tensor.zero_point != 0) {
      add(DNNL_ARG_ATTR_ZERO_POINTS | tensor.argument, dnnl::memory::data_type::s32, 1,
          &tensor.zero_point);
    }
  }
#endif
}

int32_t Attributes::ZeroPointOf(int argument) const {
  for (const Quantization& tensor : tensors_) {
    if (tensor.argument == argument && tensor.zero_point != 0) return tensor.zero_point;
  }
  return 0;
}

namespace {

// As ideep passes on a scale: 1/scale in double.
float Reciprocal(float scale) { return static_cast<float>(1.0 / static_cast<double>(scale)); }

#if DNNL_VERSION_MAJOR == 2
// include/ideep/utils.hpp @ b2f8044, compute_scales: one scale for the output, the bias in units of
// the sum.
void AddScales(const qualm_problem& problem, int64_t channels, int, SumsEpilogue* epilogue) {
  constexpr int kChannels = 1 << 1;  // dimension 1, of matrices and of images
  const float x = Reciprocal(problem.x_q.scale[0]);
  const float out = IsCode(problem.y->dtype) ? Reciprocal(problem.out_q.scale[0]) : 1.0f;
  Quantization output{.argument = kOutput};
  std::vector<float> product;
  for (int64_t n = 0; n < problem.w_q.count; ++n) {
    product.push_back(x * Reciprocal(problem.w_q.scale[n]));
    output.scales.push_back(out / product.back());
  }
  output.mask = output.scales.size() == 1 ? 0 : kChannels;
  epilogue->attributes.Add(std::move(output));
  for (int64_t n = 0; problem.bias != nullptr && n < channels; ++n)
    epilogue->bias.push_back(problem.bias[n] *
                             product[static_cast<size_t>(problem.w_q.count == 1 ? 0 : n)]);
}
#else
// include/ideep/operators/matmul.hpp and conv.hpp @ 17b47f4: PyTorch gives the reciprocals of the
// scales, and the library gets the reciprocals of these; a scale of 1 is left out. The bias is
// real.
void AddScales(const qualm_problem& problem, int64_t channels, int weights_mask,
               SumsEpilogue* epilogue) {
  const auto add = [&](int argument, int mask, const float* from, int64_t count) {
    Quantization tensor{.argument = argument, .mask = count == 1 ? 0 : mask};
    bool unit = true;
    for (int64_t i = 0; i < count; ++i) {
      const float reciprocal = Reciprocal(from[i]);
      unit = unit && reciprocal == 1.0f;
      tensor.scales.push_back(1.0f / reciprocal);
    }
    if (!unit) epilogue->attributes.Add(std::move(tensor));
  };
  add(DNNL_ARG_SRC, 0, problem.x_q.scale, 1);
  add(DNNL_ARG_WEIGHTS, weights_mask, problem.w_q.scale, problem.w_q.count);
  if (IsCode(problem.y->dtype)) add(DNNL_ARG_DST, 0, problem.out_q.scale, 1);
  if (problem.bias != nullptr) epilogue->bias.assign(problem.bias, problem.bias + channels);
}
#endif

}  // namespace

SumsEpilogue EpilogueOf(const qualm_problem& problem, int64_t channels, int weights_mask) {
  SumsEpilogue epilogue;
  if (problem.y->dtype != QUALM_S32) AddScales(problem, channels, weights_mask, &epilogue);
  const auto add_zero_point = [&](int argument, int32_t zero_point) {
    epilogue.attributes.Add({.argument = argument, .zero_point = zero_point});
  };
  add_zero_point(DNNL_ARG_SRC, problem.x_q.zero_point[0]);
  add_zero_point(DNNL_ARG_WEIGHTS, problem.w_q.zero_point[0]);
  if (IsCode(problem.y->dtype)) add_zero_point(DNNL_ARG_DST, problem.out_q.zero_point[0]);
  if (problem.relu != 0) epilogue.attributes.AddRelu();
  return epilogue;
}

Key& Key::AddBytes(const void* from, size_t bytes) {
  text_.append(static_cast<const char*>(from), bytes);
  return *this;
}

Key& Key::Add(const dnnl::memory::desc& desc) {
#if DNNL_VERSION_MAJOR == 2
  const int type = desc.data.data_type;
  const auto rank = static_cast<size_t>(desc.data.ndims);
  Add(type).Add(rank);
  AddBytes(desc.data.dims, rank * sizeof desc.data.dims[0]);
  return AddBytes(desc.data.format_desc.blocking.strides, rank * sizeof desc.data.dims[0]);
#else
  return Add(desc.get_data_type()).AddList(desc.get_dims()).AddList(desc.get_strides());
#endif
}

Key& Key::AddLayout(const dnnl::memory::desc& desc) {
#if DNNL_VERSION_MAJOR == 2
  return Add(desc.data);
#else
  return AddList(dnnl::memory::desc(desc).get_blob());
#endif
}

Key& Key::Add(const Attributes& attributes) {
  for (const Quantization& tensor : attributes.tensors_) {
    Add(tensor.argument).Add(tensor.mask);
#if DNNL_VERSION_MAJOR == 2
    AddList(tensor.scales).Add(tensor.zero_point);
#else
    Add(tensor.scales.empty()).Add(tensor.zero_point == 0);
#endif
  }
  return Add(attributes.relu_);
}

}  // namespace qualm_onednn
