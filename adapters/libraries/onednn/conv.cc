// SPDX-License-Identifier: Apache-2.0
// conv2d and depthwise through dnnl::convolution_forward, direct, channels last, with the
// attributes that PyTorch sets through ideep (EpilogueOf): as for linear, symmetric weights.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "adapters/libraries/onednn/ops.h"

namespace qualm_onednn {
namespace {

using dnnl::memory;

// Everything a primitive is made from.
struct Recipe {
  memory::dims source;       // N C H W
  memory::dims weights;      // [G] O I H W
  memory::dims destination;  // N C H W
  int32_t source_type = 0;
  int32_t destination_type = 0;
  memory::dims strides, dilation, before, after;
  Attributes attributes;
  bool bias = false;
};

struct Primitive {
  dnnl::convolution_forward convolution;
  memory::desc source, weights, destination;
  std::string implementation;
};

Recipe RecipeOf(const qualm_problem& problem) {
  const qualm_window& window = *problem.window;
  const int64_t* x = problem.x->dims;  // N H W C
  const int64_t* w = problem.w->dims;  // O H W I
  const int64_t* y = problem.y->dims;
  Recipe recipe;
  recipe.source = {x[0], x[3], x[1], x[2]};
  recipe.destination = {y[0], y[3], y[1], y[2]};
  recipe.weights = {w[0], w[3], w[1], w[2]};
  if (window.groups > 1) {
    recipe.weights[0] /= window.groups;
    recipe.weights.insert(recipe.weights.begin(), window.groups);
  }
  recipe.source_type = problem.x->dtype;
  recipe.destination_type = problem.y->dtype;
  recipe.strides = {window.stride_h, window.stride_w};
  recipe.dilation = {window.dilation_h - 1, window.dilation_w - 1};
  recipe.before = {window.pad_top, window.pad_left};
  recipe.after = {window.pad_bottom, window.pad_right};
  return recipe;
}

Primitive Build(const Recipe& recipe) {
  const memory::desc source(recipe.source, TypeOf(recipe.source_type), memory::format_tag::nhwc);
  const memory::desc weights(recipe.weights, memory::data_type::s8, memory::format_tag::any);
  const memory::desc destination(recipe.destination, TypeOf(recipe.destination_type),
                                 memory::format_tag::nhwc);
  const memory::desc bias({recipe.destination[1]}, memory::data_type::f32, memory::format_tag::x);
  constexpr auto kKind = dnnl::prop_kind::forward_inference;
  constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
  const auto describe = [&](const auto&... operands) {
    return Describe<dnnl::convolution_forward>(recipe.attributes, kKind, kAlgorithm, source,
                                               weights, operands..., destination, recipe.strides,
                                               recipe.dilation, recipe.before, recipe.after);
  };
  const dnnl::convolution_forward::primitive_desc made = recipe.bias ? describe(bias) : describe();
  return {dnnl::convolution_forward(made), source, made.weights_desc(), destination,
          made.impl_info_str()};
}

const Primitive& Prepare(const Recipe& recipe) {
  static auto* cache = new Cache<Primitive>;
  Key key;
  for (const auto* list : {&recipe.source, &recipe.weights, &recipe.destination, &recipe.strides,
                           &recipe.dilation, &recipe.before, &recipe.after}) {
    key.AddList(*list);
  }
  key.Add(recipe.source_type).Add(recipe.destination_type).Add(recipe.bias).Add(recipe.attributes);
  return cache->Get(key, [&] { return Build(recipe); });
}

// The case's weights, O H W I, as O I H W: PyTorch hands over this layout, and from it every
// reorder knows how to make its compensations.
std::vector<int8_t> ChannelsFirst(const qualm_tensor& w) {
  const int64_t taps = w.dims[1] * w.dims[2], depth = w.dims[3];
  const auto* from = static_cast<const int8_t*>(w.data);
  std::vector<int8_t> result(static_cast<size_t>(w.dims[0] * taps * depth));
  for (int64_t n = 0; n < w.dims[0]; ++n) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t i = 0; i < depth; ++i)
        result[static_cast<size_t>((n * depth + i) * taps + tap)] =
            from[(n * taps + tap) * depth + i];
    }
  }
  return result;
}

#if DNNL_VERSION_MAJOR == 2
// The gemm's weights are laid out by the reorder jit:uni, which makes their compensation (what
// takes out the zero point of x, and the 128 of s8 codes) on the way. It forgets that, and s8
// weights' factor of 0.5, wherever it transposes tiles of 8 by 8 or scatters four elements that it
// read at once (src/cpu/x64/jit_uni_reorder.cpp @ v2.6.3: process_unroll_tr8x8; fast_return in
// process_unroll_generic_step; prb_block_for_cache decides). Which of several kernels takes a
// group, and so meets it, no convention says.
bool LosesCompensation(const qualm_problem& problem) {
  const int64_t taps = problem.window->kernel_h * problem.window->kernel_w;
  const int64_t channels = problem.w->dims[0], depth = problem.w->dims[3];
  if (taps * depth == 1) return false;
  if (channels == 8 && taps * depth == 8 && (taps == 1 || depth == 1)) return true;
  const int64_t inner_step = depth > 1 ? taps : 1, inner = depth > 1 ? depth : taps;
  const bool blocked =
      (taps * depth % 64 == 0 && channels > 16) || (inner_step % 16 == 0 && inner > 16);
  return blocked && (taps > 1 ? channels * depth : channels) % 4 != 0;
}
#endif

// With VNNI the jit kernel for 1x1 takes some groups that brgemm does not, and subtracts zero
// points in float32: the same below 2^24, and no convention says which kernel it is.
bool RoundsWhereBrgemmDoesNot(const qualm_problem& problem) {
  const double largest = 255.0 + 128.0 + std::abs(static_cast<double>(problem.x_q.zero_point[0]));
  return 128.0 * largest * static_cast<double>(problem.w->dims[3]) >= 0x1p24;
}

#if DNNL_VERSION_MAJOR == 2
// A window with padding on both sides of the image: with a zero point of x, jit on AMX may write
// beyond the output.
bool HasWindowAroundImage(const qualm_problem& problem) {
  const qualm_window& v = *problem.window;
  return v.dilation_h * (v.kernel_h - 1) + 1 > problem.x->dims[1] ||
         v.dilation_w * (v.kernel_w - 1) + 1 > problem.x->dims[2];
}
#endif

// Whether a row or column of windows meets no row or column of the image: brgconv of 2.6 on AMX,
// and every brgconv of 3.7, crashes or answers anything.
bool HasEmptyWindow(const qualm_problem& problem) {
  const qualm_window& v = *problem.window;
  const auto empty = [](int64_t out, int64_t stride, int64_t before, int64_t kernel,
                        int64_t dilation, int64_t in) {
    for (int64_t o = 0; o < out; ++o) {
      bool meets = false;
      for (int64_t k = 0; k < kernel; ++k) {
        const int64_t i = o * stride - before + k * dilation;
        meets = meets || (i >= 0 && i < in);
      }
      if (!meets) return true;
    }
    return false;
  };
  return empty(problem.y->dims[1], v.stride_h, v.pad_top, v.kernel_h, v.dilation_h,
               problem.x->dims[1]) ||
         empty(problem.y->dims[2], v.stride_w, v.pad_left, v.kernel_w, v.dilation_w,
               problem.x->dims[2]);
}

#if DNNL_VERSION_MAJOR == 3
// brgconv of 3.7 joins the taps of a row into one sum where a group has one channel (relo_type in
// jit_brgemm_conv_utils.cpp @ v3.7.1). With one window to a row it then steps from row to row by
// the stride between windows too (LDA in estimate_brgemm_ur), and reads elsewhere.
bool MixesRows(const qualm_problem& problem) {
  const qualm_window& v = *problem.window;
  return problem.w->dims[3] == 1 && v.kernel_w > 1 && v.stride_w > 1 && problem.y->dims[2] == 1;
}

// The same makes pairs of taps, but only where the processor has AVX512_VBMI.
bool PairsTaps(const qualm_problem& problem) {
  return problem.w->dims[3] == 1 && problem.window->kernel_h * problem.window->kernel_w > 1 &&
         problem.x->dtype == QUALM_U8;
}
#endif

void Execute(const Primitive& primitive, const Recipe& recipe, const qualm_problem& problem,
             std::vector<float>& bias) {
  std::vector<int8_t> plain = ChannelsFirst(*problem.w);
  memory given({recipe.weights, memory::data_type::s8,
                recipe.weights.size() == 5 ? memory::format_tag::goihw : memory::format_tag::oihw},
               Engine(), plain.data());
  memory weights(primitive.weights, Engine());
  dnnl::reorder(given, weights).execute(Stream(), given, weights);
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, memory(primitive.source, Engine(), problem.x->data)},
      {DNNL_ARG_WEIGHTS, weights},
      {DNNL_ARG_DST, memory(primitive.destination, Engine(), problem.y->data)}};
  if (recipe.bias) {
    const memory::desc desc({recipe.destination[1]}, memory::data_type::f32, memory::format_tag::x);
    arguments.emplace(DNNL_ARG_BIAS, memory(desc, Engine(), bias.data()));
  }
  recipe.attributes.AddTo(arguments);
  primitive.convolution.execute(Stream(), arguments);
  Stream().wait();
}

// What the library gets wrong, or no convention describes, with this primitive. "" if nothing.
std::string WhyNot(const Primitive& primitive, const qualm_problem& problem) {
  const auto runs = [&](const char* name) { return primitive.implementation.starts_with(name); };
  if ((InstructionSet() == "vnni" || InstructionSet() == "amx") && runs("jit_int8_1x1") &&
      RoundsWhereBrgemmDoesNot(problem))
    return "oneDNN rounds the zero points of some grouped 1x1 convolutions";
#if DNNL_VERSION_MAJOR == 2
  const int32_t x_zero_point = problem.x_q.zero_point[0];
  const bool compensated = problem.x->dtype == QUALM_S8 || x_zero_point != 0;
  if (runs("x64:gemm") && compensated && LosesCompensation(problem))
    return "oneDNN 2.6 loses the compensation of these weights in its jit:uni reorder";
  if (primitive.implementation.find("amx") == std::string::npos) return "";
  if (runs("jit") && x_zero_point != 0 && HasWindowAroundImage(problem))
    return "oneDNN 2.6 on AMX writes beyond y where a window is larger than the image";
  if (HasEmptyWindow(problem))
    return "oneDNN 2.6 on AMX fails where a window lies wholly in the padding";
#else
  if (runs("brg") && HasEmptyWindow(problem))
    return "oneDNN 3.7 fails where a window lies wholly in the padding";
  if (runs("brg_conv") && MixesRows(problem))
    return "oneDNN 3.7 mixes rows up where one channel and one window fill a row";
  if (runs("brg_conv") && InstructionSet() == "avx512core" && PairsTaps(problem))
    return "oneDNN 3.7 pairs taps of one channel only where the CPU has VBMI";
#endif
  return "";
}

}  // namespace

int32_t RunConv(const qualm_problem& problem) {
  const int64_t groups = problem.window->groups;
  const bool depthwise = groups > 1 && groups == problem.x->dims[3] && groups == problem.y->dims[3];
  const bool vnni = InstructionSet().ends_with("vnni") || InstructionSet() == "amx";
  if (DNNL_VERSION_MAJOR == 2 && depthwise && problem.x->dtype == QUALM_S8 && !vnni)
    return Unsupported("oneDNN 2.6 without VNNI is wrong for depthwise s8 activations");
  Recipe recipe = RecipeOf(problem);
  const int output_channels = groups > 1 ? (1 << 0) + (1 << 1) : 1 << 0;  // of [G] O I H W
  SumsEpilogue epilogue = EpilogueOf(problem, problem.y->dims[3], output_channels);
  recipe.attributes = std::move(epilogue.attributes);
  recipe.bias = !epilogue.bias.empty();
  const Primitive& primitive = Prepare(recipe);
  if (std::string why = WhyNot(primitive, problem); !why.empty())
    return Unsupported(std::move(why));
  Execute(primitive, recipe, problem, epilogue.bias);
  return QUALM_OK;
}

const qualm_capability* ConvCapability() {
  static const qualm_capability conv = [] {
    qualm_capability c{};
    c.size = sizeof c;
    c.x_dtypes = kCodes;
    c.w_dtypes = QUALM_TYPE_BIT(QUALM_S8);
    c.out_dtypes = kCodes | QUALM_TYPE_BIT(QUALM_S32) | QUALM_TYPE_BIT(QUALM_F32);
    c.features = QUALM_CAN_BIAS_F32 | QUALM_CAN_RELU | QUALM_CAN_PER_CHANNEL | QUALM_CAN_DILATION |
                 QUALM_CAN_GROUPS | QUALM_CAN_ASYMMETRIC_PADDING;
    // Strided 1x1 convolutions copy their pixels together first, whole vectors at a time: with one
    // channel, 1x2 pixels and a stride of 2, past the end of x (reduce_to_unit_stride_t in
    // src/cpu/x64/jit_uni_1x1_conv_utils.hpp @ v2.6.3).
    c.read_slack_bytes = 64;
    // Any int32 but DNNL_RUNTIME_S32_VAL (INT32_MIN), which means "given at run time".
    c.x_zero_point_min = c.out_zero_point_min = INT32_MIN + 1;
    c.x_zero_point_max = c.out_zero_point_max = INT32_MAX;
    return c;
  }();
  return &conv;
}

}  // namespace qualm_onednn
