// SPDX-License-Identifier: Apache-2.0
// linear through dnnl::matmul, with the attributes that PyTorch sets through ideep (EpilogueOf):
// scales, a float32 bias, relu as a post-op, zero points of source and destination.
#include <algorithm>

#include "adapters/libraries/onednn/ops.h"

namespace qualm_onednn {
namespace {

using dnnl::memory;

memory::desc DescOf(const qualm_tensor& tensor) {
  return {memory::dims{tensor.dims[0], tensor.dims[1]}, TypeOf(tensor.dtype),
          memory::dims{tensor.strides[0], tensor.strides[1]}};
}

memory::dims DimsOf(const memory::desc& desc) {
#if DNNL_VERSION_MAJOR == 2
  return desc.dims();
#else
  return desc.get_dims();
#endif
}

// Everything a primitive is made from.
struct Recipe {
  memory::desc source;
  memory::desc destination;
  Attributes attributes;
  bool bias = false;
};

struct Primitive {
  dnnl::matmul matmul;
  memory::desc weights;  // as the primitive wants them
  memory::desc bias;
};

Primitive Build(const Recipe& recipe) {
  const memory::dim columns = DimsOf(recipe.destination)[1];
  const memory::dim depth = DimsOf(recipe.source)[1];
  const memory::desc weights({depth, columns}, memory::data_type::s8, memory::format_tag::any);
  memory::desc bias;
  if (recipe.bias)
    bias = memory::desc({1, columns}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc made =
      recipe.bias
          ? Describe<dnnl::matmul>(recipe.attributes, recipe.source, weights, bias,
                                   recipe.destination)
          : Describe<dnnl::matmul>(recipe.attributes, recipe.source, weights, recipe.destination);
  return {dnnl::matmul(made), made.weights_desc(), bias};
}

const Primitive& Prepare(const Recipe& recipe) {
  static auto* cache = new Cache<Primitive>;
  Key key;
  key.Add(recipe.source).Add(recipe.destination).Add(recipe.attributes).Add(recipe.bias);
  return cache->Get(key, [&] { return Build(recipe); });
}

// What brings the weights of a case into the layout that the primitive wants. Cases of one shape
// share it: it holds no scales and zero points, and to make it takes a tenth of the time of a case.
const dnnl::reorder& ReorderOf(const memory::desc& given, const memory::desc& wanted) {
  static auto* cache = new Cache<dnnl::reorder>;
  Key key;
  key.Add(given).AddLayout(wanted);
  return cache->Get(key, [&] {
    return dnnl::reorder(dnnl::reorder::primitive_desc(Engine(), given, Engine(), wanted));
  });
}

void Execute(const Recipe& recipe, const qualm_problem& problem, std::vector<float>& bias,
             void* destination) {
  const Primitive& primitive = Prepare(recipe);
  // The case's weights are N x K; matmul's are K x N: the same bytes, transposed.
  const memory::dims transposed{DimsOf(recipe.source)[1], DimsOf(recipe.destination)[1]};
  const memory given({transposed, memory::data_type::s8, memory::dims{1, transposed[0]}}, Engine(),
                     problem.w->data);
  memory weights(primitive.weights, Engine());
  ReorderOf(given.get_desc(), primitive.weights)
      .execute(Stream(), const_cast<memory&>(given), weights);
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, memory(recipe.source, Engine(), problem.x->data)},
      {DNNL_ARG_WEIGHTS, weights},
      {DNNL_ARG_DST, memory(recipe.destination, Engine(), destination)}};
  if (recipe.bias) arguments.emplace(DNNL_ARG_BIAS, memory(primitive.bias, Engine(), bias.data()));
  recipe.attributes.AddTo(arguments);
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

// The sums of x*w as the kernel behind `recipe` adds them. Where oneDNN leaves zero points to the
// gemm, they decide which kernel runs. So they stay in the recipe there, and their terms are taken
// out of the sums afterwards. With VNNI there is only one kernel, and it rounds corrected sums to
// float32, so there the recipe has no zero points.
void FillAccumulators(const Recipe& recipe, const qualm_problem& problem) {
  Recipe raw;
  raw.source = recipe.source;
  raw.destination = DescOf(*problem.acc);
  int32_t x_zero = recipe.attributes.ZeroPointOf(DNNL_ARG_SRC);
  int32_t w_zero = recipe.attributes.ZeroPointOf(DNNL_ARG_WEIGHTS);
  const bool in_gemm = HoldsCode(problem.x->dtype, x_zero) && HoldsCode(problem.w->dtype, w_zero);
  if (!in_gemm || InstructionSet() == "vnni" || InstructionSet() == "amx") x_zero = w_zero = 0;
  raw.attributes.Add({.argument = DNNL_ARG_SRC, .zero_point = x_zero});
  raw.attributes.Add({.argument = DNNL_ARG_WEIGHTS, .zero_point = w_zero});
  std::vector<float> no_bias;
  Execute(raw, problem, no_bias, problem.acc->data);
  if (x_zero == 0 && w_zero == 0) return;

  const auto x_zp = static_cast<uint32_t>(x_zero), w_zp = static_cast<uint32_t>(w_zero);
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

}  // namespace

int32_t RunLinear(const qualm_problem& problem) {
  for (int64_t n = 1; n < problem.w_q.count; ++n) {
    if (problem.w_q.zero_point[n] != problem.w_q.zero_point[0])
      return Unsupported("oneDNN has one zero point for all weights, not one per channel");
  }
  // Its gemm then writes the second row elsewhere: over other memory, or to a page that is not
  // there; or it writes nothing. (2.6.3; its kernels with brgemm take dense rows only.)
  if (problem.x->strides[0] > INT32_MAX || problem.y->strides[0] > INT32_MAX)
    return Unsupported("oneDNN's gemm writes elsewhere if rows lie 2^31 elements apart");
  // It then takes the rows for dense (gemm_x8s8s32x_matmul.cpp @ v3.7.1, ldc).
  if (DNNL_VERSION_MAJOR == 3 && problem.y->dims[1] == 1 && problem.y->dims[0] > 1 &&
      problem.y->strides[0] != 1)
    return Unsupported("oneDNN 3.7 writes a column of outputs without the gaps between its rows");
  Recipe recipe;
  recipe.source = DescOf(*problem.x);
  recipe.destination = DescOf(*problem.y);
  SumsEpilogue epilogue = EpilogueOf(problem, problem.y->dims[1], 1 << 1);
  recipe.attributes = std::move(epilogue.attributes);
  recipe.bias = !epilogue.bias.empty();
  Execute(recipe, problem, epilogue.bias, problem.y->data);

  if (problem.acc != nullptr) FillAccumulators(recipe, problem);
  return QUALM_OK;
}

const qualm_capability* LinearCapability() {
  static const qualm_capability linear = [] {
    qualm_capability c{};
    c.size = sizeof c;
    c.x_dtypes = kCodes;
    c.w_dtypes = QUALM_TYPE_BIT(QUALM_S8);
    c.out_dtypes = kCodes | QUALM_TYPE_BIT(QUALM_S32) | QUALM_TYPE_BIT(QUALM_F32);
    c.features = QUALM_CAN_BIAS_F32 | QUALM_CAN_RELU | QUALM_CAN_PER_CHANNEL | QUALM_CAN_STRIDES |
                 QUALM_CAN_ACC;
    // Any int32 but DNNL_RUNTIME_S32_VAL (INT32_MIN), which means "given at run time".
    c.x_zero_point_min = c.w_zero_point_min = c.out_zero_point_min = INT32_MIN + 1;
    c.x_zero_point_max = c.w_zero_point_max = c.out_zero_point_max = INT32_MAX;
    return c;
  }();
  return &linear;
}

}  // namespace qualm_onednn
