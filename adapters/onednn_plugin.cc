// SPDX-License-Identifier: Apache-2.0
// oneDNN 2.x as a plugin: linear through dnnl::matmul, with the attributes that PyTorch 1.13 sets
// through ideep (include/ideep/operators/matmul.hpp @ b2f8044): source and output scales as
// reciprocals rounded to float32, one output scale per channel, the bias in accumulator units as
// float32, relu as a post-op, zero points of source and destination.
//
// Results follow the convention model:onednn2@ISA: the zero point is added in float32 before
// rounding, and without VNNI products of u8 and s8 are added in saturating int16 pairs.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "adapters/qualm_plugin.h"

namespace {

#if DNNL_VERSION_MAJOR != 2
#error "onednn_plugin.cc is written for the C++ interface of oneDNN 2.x"
#endif

using dnnl::memory;

// Never destroyed: at process exit oneDNN's own globals may go first.
std::string& LastError() {
  static auto* text = new std::string;
  return *text;
}

struct Isa {
  std::string name;
  std::string contract;
};

// The instruction set in use, and the convention that holds for it. AVX cuts K where SSE4.1 does,
// and AVX512_CORE_BF16 has the int8 kernels of AVX512_CORE_VNNI.
const Isa& EffectiveIsa() {
  static const Isa* isa = [] {
    const auto make = [](std::string name, const std::string& convention) {
      return new Isa{std::move(name), "model:onednn2@" + convention};
    };
    switch (dnnl::get_effective_cpu_isa()) {
      case dnnl::cpu_isa::sse41: return make("sse41", "sse41");
      case dnnl::cpu_isa::avx: return make("avx", "sse41");
      case dnnl::cpu_isa::avx2: return make("avx2", "avx2");
      case dnnl::cpu_isa::avx2_vnni: return make("avx2vnni", "avx2vnni");
      case dnnl::cpu_isa::avx512_core: return make("avx512core", "avx512core");
      case dnnl::cpu_isa::avx512_core_amx: return make("amx", "amx");
      default: return make("vnni", "vnni");
    }
  }();
  return *isa;
}

memory::data_type TypeOf(int32_t dtype) {
  switch (dtype) {
    case QUALM_U8: return memory::data_type::u8;
    case QUALM_S8: return memory::data_type::s8;
    case QUALM_S32: return memory::data_type::s32;
    default: return memory::data_type::f32;
  }
}

memory::desc DescOf(const qualm_tensor& tensor) {
  return {memory::dims{tensor.dims[0], tensor.dims[1]}, TypeOf(tensor.dtype),
          memory::dims{tensor.strides[0], tensor.strides[1]}};
}

dnnl::engine& Engine() {
  static auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::stream& Stream() {
  static auto* stream = new dnnl::stream(Engine());
  return *stream;
}

// float32 parameters of one product, as ideep computes them from the tensors' double scales.
struct Scales {
  std::vector<float> output;  // 1 or N
  std::vector<float> bias;    // N, or empty
};

Scales ComputeScales(const qualm_problem& problem, bool to_codes) {
  const auto reciprocal = [](float scale) {
    return static_cast<float>(1.0 / static_cast<double>(scale));
  };
  const float x = reciprocal(problem.x_q.scale[0]);
  const float out = to_codes ? reciprocal(problem.out_q.scale[0]) : 1.0f;
  Scales scales;
  std::vector<float> product;
  for (int64_t n = 0; n < problem.w_q.count; ++n) {
    product.push_back(x * reciprocal(problem.w_q.scale[n]));
    scales.output.push_back(out / product.back());
  }
  if (problem.bias != nullptr) {
    for (int64_t n = 0; n < problem.y->dims[1]; ++n) {
      const auto channel = static_cast<size_t>(problem.w_q.count == 1 ? 0 : n);
      scales.bias.push_back(problem.bias[n] * product[channel]);
    }
  }
  return scales;
}

// Everything a primitive is made from.
struct Recipe {
  memory::desc source;
  memory::desc weights;  // of the case: N x K, row-major
  memory::desc destination;
  std::vector<float> output_scales;  // empty: none
  bool bias = false;
  int32_t source_zero_point = 0;
  int32_t weights_zero_point = 0;
  int32_t destination_zero_point = 0;
  bool relu = false;
};

struct Primitive {
  dnnl::matmul matmul;
  memory::desc weights;  // as the primitive wants them
  memory::desc bias;
};

void Append(std::string& key, const void* from, size_t bytes) {
  key.append(static_cast<const char*>(from), bytes);
}

std::string KeyOf(const Recipe& recipe) {
  std::string key;
  for (const memory::desc* desc : {&recipe.source, &recipe.weights, &recipe.destination}) {
    const int type = desc->data.data_type;
    Append(key, &type, sizeof type);
    Append(key, desc->data.dims, 2 * sizeof desc->data.dims[0]);
    Append(key, desc->data.format_desc.blocking.strides, 2 * sizeof desc->data.dims[0]);
  }
  Append(key, recipe.output_scales.data(), recipe.output_scales.size() * sizeof(float));
  const int32_t numbers[] = {recipe.source_zero_point, recipe.weights_zero_point,
                             recipe.destination_zero_point, recipe.bias ? 1 : 0,
                             recipe.relu ? 1 : 0};
  Append(key, numbers, sizeof numbers);
  return key;
}

Primitive Build(const Recipe& recipe) {
  const memory::dim columns = recipe.destination.dims()[1];
  const memory::dim depth = recipe.source.dims()[1];
  const memory::desc weights({depth, columns}, memory::data_type::s8, memory::format_tag::any);
  dnnl::primitive_attr attributes;
  if (!recipe.output_scales.empty()) {
    attributes.set_output_scales(recipe.output_scales.size() == 1 ? 0 : 1 << 1,
                                 recipe.output_scales);
  }
  if (recipe.source_zero_point != 0)
    attributes.set_zero_points(DNNL_ARG_SRC, 0, {recipe.source_zero_point});
  if (recipe.weights_zero_point != 0)
    attributes.set_zero_points(DNNL_ARG_WEIGHTS, 0, {recipe.weights_zero_point});
  if (recipe.destination_zero_point != 0)
    attributes.set_zero_points(DNNL_ARG_DST, 0, {recipe.destination_zero_point});
  if (recipe.relu) {
    dnnl::post_ops operations;
    operations.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    attributes.set_post_ops(operations);
  }
  memory::desc bias;
  if (recipe.bias)
    bias = memory::desc({1, columns}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::desc description =
      recipe.bias ? dnnl::matmul::desc(recipe.source, weights, bias, recipe.destination)
                  : dnnl::matmul::desc(recipe.source, weights, recipe.destination);
  const dnnl::matmul::primitive_desc made(description, attributes, Engine());
  return {dnnl::matmul(made), made.weights_desc(), bias};
}

// Making one costs some 50 us, and the same problem comes again and again during minimization.
const Primitive& CachedPrimitive(const Recipe& recipe) {
  constexpr size_t kMost = 256;
  static auto* cache = new std::unordered_map<std::string, Primitive>;
  const std::string key = KeyOf(recipe);
  const auto found = cache->find(key);
  if (found != cache->end()) return found->second;
  if (cache->size() >= kMost) cache->clear();
  return cache->emplace(key, Build(recipe)).first->second;
}

void Execute(const Recipe& recipe, const qualm_problem& problem, std::vector<float>& bias,
             void* destination) {
  const Primitive& primitive = CachedPrimitive(recipe);
  // The case's weights are N x K; matmul's are K x N: the same bytes, transposed.
  const memory::dims transposed{recipe.source.dims()[1], recipe.destination.dims()[1]};
  const memory given({transposed, memory::data_type::s8, memory::dims{1, transposed[0]}}, Engine(),
                     problem.w->data);
  memory weights(primitive.weights, Engine());
  dnnl::reorder(given, weights).execute(Stream(), const_cast<memory&>(given), weights);
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, memory(recipe.source, Engine(), problem.x->data)},
      {DNNL_ARG_WEIGHTS, weights},
      {DNNL_ARG_DST, memory(recipe.destination, Engine(), destination)}};
  if (recipe.bias) arguments.emplace(DNNL_ARG_BIAS, memory(primitive.bias, Engine(), bias.data()));
  primitive.matmul.execute(Stream(), arguments);
  Stream().wait();
}

bool HoldsCode(int32_t dtype, int32_t code) {
  return dtype == QUALM_U8 ? code >= 0 && code <= UINT8_MAX : code >= INT8_MIN && code <= INT8_MAX;
}

int32_t CodeAt(const qualm_tensor& tensor, int64_t row, int64_t k) {
  const int64_t at = row * tensor.strides[0] + k;
  return tensor.dtype == QUALM_U8 ? static_cast<const uint8_t*>(tensor.data)[at]
                                  : static_cast<const int8_t*>(tensor.data)[at];
}

std::vector<uint32_t> RowSums(const qualm_tensor& tensor) {
  std::vector<uint32_t> sums(static_cast<size_t>(tensor.dims[0]));
  for (int64_t row = 0; row < tensor.dims[0]; ++row) {
    for (int64_t k = 0; k < tensor.dims[1]; ++k)
      sums[static_cast<size_t>(row)] += static_cast<uint32_t>(CodeAt(tensor, row, k));
  }
  return sums;
}

// The sums of x*w as the kernel behind `recipe` adds them. Which kernel that is depends on the zero
// points where oneDNN leaves them to the gemm, so there they stay and are put back afterwards. With
// VNNI there is but one, and it rounds what it corrects to float32.
void FillAccumulators(const Recipe& recipe, const qualm_problem& problem) {
  Recipe raw;
  raw.source = recipe.source;
  raw.weights = recipe.weights;
  raw.destination = DescOf(*problem.acc);
  const bool in_gemm = HoldsCode(problem.x->dtype, recipe.source_zero_point) &&
                       HoldsCode(problem.w->dtype, recipe.weights_zero_point);
  if (in_gemm && EffectiveIsa().name != "vnni" && EffectiveIsa().name != "amx") {
    raw.source_zero_point = recipe.source_zero_point;
    raw.weights_zero_point = recipe.weights_zero_point;
  }
  std::vector<float> no_bias;
  Execute(raw, problem, no_bias, problem.acc->data);
  if (raw.source_zero_point == 0 && raw.weights_zero_point == 0) return;

  const auto x_zp = static_cast<uint32_t>(raw.source_zero_point);
  const auto w_zp = static_cast<uint32_t>(raw.weights_zero_point);
  const std::vector<uint32_t> x_sums = RowSums(*problem.x);
  const std::vector<uint32_t> w_sums = RowSums(*problem.w);
  for (int64_t m = 0; m < problem.acc->dims[0]; ++m) {
    for (int64_t n = 0; n < problem.acc->dims[1]; ++n) {
      int32_t& acc = static_cast<int32_t*>(problem.acc->data)[m * problem.acc->strides[0] + n];
      acc =
          static_cast<int32_t>(static_cast<uint32_t>(acc) + x_zp * w_sums[static_cast<size_t>(n)] +
                               w_zp * x_sums[static_cast<size_t>(m)] -
                               x_zp * w_zp * static_cast<uint32_t>(problem.x->dims[1]));
    }
  }
}

int32_t RunLinear(const qualm_problem& problem) {
  for (int64_t n = 1; n < problem.w_q.count; ++n) {
    if (problem.w_q.zero_point[n] == problem.w_q.zero_point[0]) continue;
    LastError() = "oneDNN has one zero point for all weights, not one per channel";
    return QUALM_UNSUPPORTED;
  }
  const bool to_codes = problem.y->dtype == QUALM_U8 || problem.y->dtype == QUALM_S8;
  Recipe recipe;
  recipe.source = DescOf(*problem.x);
  recipe.weights = DescOf(*problem.w);
  recipe.destination = DescOf(*problem.y);
  recipe.source_zero_point = problem.x_q.zero_point[0];
  recipe.weights_zero_point = problem.w_q.zero_point[0];
  recipe.relu = problem.relu != 0;
  Scales scales;
  if (problem.y->dtype != QUALM_S32) {
    scales = ComputeScales(problem, to_codes);
    recipe.output_scales = scales.output;
    recipe.bias = problem.bias != nullptr;
    if (to_codes) recipe.destination_zero_point = problem.out_q.zero_point[0];
  }
  Execute(recipe, problem, scales.bias, problem.y->data);

  if (problem.acc != nullptr) FillAccumulators(recipe, problem);
  return QUALM_OK;
}

int32_t Run(const qualm_problem* problem) {
  LastError().clear();
  try {
    return RunLinear(*problem);
  } catch (const dnnl::error& error) {
    LastError() = error.what();
    return error.status == dnnl_unimplemented ? QUALM_UNSUPPORTED : QUALM_FAILED;
  } catch (const std::exception& error) {
    LastError() = error.what();
    return QUALM_FAILED;
  }
}

const qualm_capability* Capability(int32_t op) {
  if (op != QUALM_LINEAR) return nullptr;
  static const qualm_capability linear = [] {
    qualm_capability c{};
    c.size = sizeof c;
    c.x_dtypes = QUALM_TYPE_BIT(QUALM_U8) | QUALM_TYPE_BIT(QUALM_S8);
    c.w_dtypes = QUALM_TYPE_BIT(QUALM_S8);
    c.out_dtypes = QUALM_TYPE_BIT(QUALM_U8) | QUALM_TYPE_BIT(QUALM_S8) | QUALM_TYPE_BIT(QUALM_S32) |
                   QUALM_TYPE_BIT(QUALM_F32);
    c.features = QUALM_CAN_BIAS_F32 | QUALM_CAN_RELU | QUALM_CAN_PER_CHANNEL | QUALM_CAN_STRIDES |
                 QUALM_CAN_ACC;
    // Any int32 but DNNL_RUNTIME_S32_VAL (INT32_MIN), which means "given at run time".
    c.x_zero_point_min = INT32_MIN + 1;
    c.x_zero_point_max = INT32_MAX;
    c.w_zero_point_min = INT32_MIN + 1;
    c.w_zero_point_max = INT32_MAX;
    c.out_zero_point_min = INT32_MIN + 1;
    c.out_zero_point_max = INT32_MAX;
    return c;
  }();
  return &linear;
}

const char* LastErrorText() { return LastError().c_str(); }

}  // namespace

extern "C" const qualm_plugin* qualm_plugin_entry(void) {
  static const std::string* version = [] {
    const dnnl_version_t* v = dnnl_version();
    return new std::string(std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
                           std::to_string(v->patch));
  }();
  static const qualm_plugin plugin = {.size = sizeof(qualm_plugin),
                                      .abi_version = QUALM_ABI_VERSION,
                                      .reserved = 0,
                                      .name = "oneDNN",
                                      .version = version->c_str(),
                                      .contract = EffectiveIsa().contract.c_str(),
                                      .instruction_set = EffectiveIsa().name.c_str(),
                                      .capability = Capability,
                                      .run = Run,
                                      .last_error = LastErrorText};
  return &plugin;
}
