// SPDX-License-Identifier: Apache-2.0
// max_pool, avg_pool and global_avg_pool as pooling on codes, channels last. It
// knows no scales: input and output must share theirs, and padding that counts is code 0.
#include <algorithm>
#include <cstdint>

#include "adapters/libraries/onednn/ops.h"

namespace qualm_onednn {
namespace {

using dnnl::memory;
#if DNNL_VERSION_MAJOR == 2
using Pooling = dnnl::pooling_v2_forward;  // the one that dilates
#else
using Pooling = dnnl::pooling_forward;
#endif

// Everything a primitive is made from.
struct Recipe {
  dnnl::algorithm algorithm{};
  int32_t dtype = 0;
  memory::dims source, destination;  // N C H W
  memory::dims strides, kernel, dilation, before, after;
};

Recipe RecipeOf(const qualm_problem& problem) {
  const qualm_window& v = *problem.window;
  const int64_t* x = problem.x->dims;  // N H W C
  const int64_t* y = problem.y->dims;
  Recipe recipe;
  recipe.algorithm = problem.op == QUALM_MAX_POOL ? dnnl::algorithm::pooling_max
                     : v.count_include_pad != 0   ? dnnl::algorithm::pooling_avg_include_padding
                                                  : dnnl::algorithm::pooling_avg_exclude_padding;
  recipe.dtype = problem.x->dtype;
  recipe.source = {x[0], x[3], x[1], x[2]};
  recipe.destination = {y[0], y[3], y[1], y[2]};
  recipe.strides = {v.stride_h, v.stride_w};
  recipe.kernel = {v.kernel_h, v.kernel_w};
  recipe.dilation = {v.dilation_h - 1, v.dilation_w - 1};
  recipe.before = {v.pad_top, v.pad_left};
  // With ceil mode the last window may reach beyond the padding.
  const auto reach = [](int64_t out, int64_t stride, int64_t span, int64_t in, int64_t before) {
    return (out - 1) * stride + span - in - before;
  };
  recipe.after = {
      std::max(v.pad_bottom,
               reach(y[1], v.stride_h, v.dilation_h * (v.kernel_h - 1) + 1, x[1], v.pad_top)),
      std::max(v.pad_right,
               reach(y[2], v.stride_w, v.dilation_w * (v.kernel_w - 1) + 1, x[2], v.pad_left))};
  return recipe;
}

Pooling Build(const Recipe& recipe) {
  const memory::desc source(recipe.source, TypeOf(recipe.dtype), memory::format_tag::nhwc);
  const memory::desc destination(recipe.destination, TypeOf(recipe.dtype),
                                 memory::format_tag::nhwc);
  return Pooling(Describe<Pooling>({}, dnnl::prop_kind::forward_inference, recipe.algorithm, source,
                                   destination, recipe.strides, recipe.kernel, recipe.dilation,
                                   recipe.before, recipe.after));
}

}  // namespace

int32_t RunPool(const qualm_problem& problem) {
  const bool same = problem.x->dtype == problem.y->dtype &&
                    problem.x_q.scale[0] == problem.out_q.scale[0] &&
                    problem.x_q.zero_point[0] == problem.out_q.zero_point[0];
  if (!same) return Unsupported("oneDNN pools codes: input and output must share type and scale");
  if (problem.op != QUALM_MAX_POOL && problem.window->count_include_pad != 0 &&
      problem.x_q.zero_point[0] != 0)
    return Unsupported("oneDNN counts padding as code 0, which is not real 0 here");
  const Recipe recipe = RecipeOf(problem);
  for (size_t i = 0; problem.op != QUALM_MAX_POOL && i < recipe.kernel.size(); ++i) {
    if (std::max(recipe.before[i], recipe.after[i]) >= recipe.kernel[i])
      return Unsupported("oneDNN takes no average whose padding is as wide as its window");
  }
  static auto* cache = new Cache<Pooling>;
  Key key;
  key.Add(recipe.algorithm).Add(recipe.dtype);
  for (const auto* list : {&recipe.source, &recipe.destination, &recipe.strides, &recipe.kernel,
                           &recipe.dilation, &recipe.before, &recipe.after}) {
    key.AddList(*list);
  }
  const Pooling& pool = cache->Get(key, [&] { return Build(recipe); });
  const memory::desc source(recipe.source, TypeOf(recipe.dtype), memory::format_tag::nhwc);
  const memory::desc destination(recipe.destination, TypeOf(recipe.dtype),
                                 memory::format_tag::nhwc);
  pool.execute(Stream(), {{DNNL_ARG_SRC, memory(source, Engine(), problem.x->data)},
                          {DNNL_ARG_DST, memory(destination, Engine(), problem.y->data)}});
  Stream().wait();
  return QUALM_OK;
}

const qualm_capability* PoolCapability(int32_t op) {
  const auto offer = [](uint32_t more) {
    qualm_capability c{};
    c.size = sizeof c;
    c.x_dtypes = c.out_dtypes = kCodes;
    c.features = QUALM_CAN_ASYMMETRIC_PADDING | more;
    c.x_zero_point_min = c.out_zero_point_min = INT32_MIN;
    c.x_zero_point_max = c.out_zero_point_max = INT32_MAX;
    return c;
  };
  static const qualm_capability max_pool = offer(QUALM_CAN_CEIL_MODE | QUALM_CAN_DILATION);
  static const qualm_capability average = offer(QUALM_CAN_COUNT_PADDING);
  return op == QUALM_MAX_POOL ? &max_pool : &average;
}

}  // namespace qualm_onednn
