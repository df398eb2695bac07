// SPDX-License-Identifier: Apache-2.0
// An operation on a window equals one on other windows: explicit padding, separate groups,
// zero-stuffed kernels, subsampled strides. No oracle: the subject is compared with itself.
#include <algorithm>
#include <array>
#include <string>

#include "core/limits.h"
#include "core/rng.h"
#include "core/slice.h"
#include "properties/list.h"
#include "properties/relation.h"

namespace qualm {
namespace {

using relation::Answer;
using relation::Ask;
using relation::SameAnswer;

constexpr const char* kEmptyOutput = "the output is empty";
constexpr const char* kTooLarge = "the case to compare with would be too large";

bool IsCodeOf(DType dtype, int64_t value) {
  const CodeRange range = RangeOf(dtype);
  return value >= range.min && value <= range.max;
}

// One weight per output channel is 1 and all others are 0. The weights' scale is 1 and the output's
// is that of x. Each output is then the code under that tap, or real 0 from the padding.
Verdict IdentityWeights(const Case& c, Subject& subject) {
  if (c.M == 0 || c.N == 0 || c.K == 0) return Verdict::Vacuous(kEmptyOutput);
  Case one = slice::WithoutParameters(c);  // no mode of requantization promises an exact copy
  one.relu = c.relu;
  if (c.out_dtype == DType::kF32) {
    one.out_dtype = DType::kS32;
  }
  one.out_q.scale = {c.x_q.scale[0]};
  std::ranges::fill(one.w_q.scale, 1.0f);
  for (int32_t& zero : one.w_q.zero_point) {
    if (!IsCodeOf(c.w.dtype(), zero) || !IsCodeOf(c.w.dtype(), int64_t{zero} + 1)) zero = 0;
  }
  const uint64_t hash = relation::Hash(c);
  const auto chosen = [&](int64_t n) {
    return static_cast<int64_t>((hash + 7 * static_cast<uint64_t>(n)) % static_cast<uint64_t>(c.K));
  };
  for (int64_t n = 0; n < c.N; ++n) {
    const int32_t zero = one.w_q.zero_point_at(n);
    for (int64_t k = 0; k < c.K; ++k) one.w.SetInt(n * c.K + k, zero + (k == chosen(n) ? 1 : 0));
  }
  const int64_t zx = c.x_q.zero_point_at(0);
  const int64_t zy = one.out_dtype == DType::kS32 ? 0 : one.out_q.zero_point_at(0);
  const int64_t low = relation::LowEnd(one, 0);
  Tensor expected(one.out_dtype, one.output_shape());
  const int64_t depth = IsConv(c.op) ? c.window.in_c / c.window.groups : c.K;
  for (int64_t m = 0; m < c.M; ++m) {
    std::vector<Tap> taps{{0, 0, m * c.K}};
    if (IsConv(c.op)) taps = TapsOf(c.window, m);
    for (int64_t n = 0; n < c.N; ++n) {
      const Tap& tap = taps[static_cast<size_t>(chosen(n) / depth)];
      const int64_t group = n / (c.N / c.window.groups);  // of linear: 0
      const int64_t at = tap.x_row + group * depth + chosen(n) % depth;
      const int64_t real = tap.x_row < 0 ? 0 : c.x.IntAt(at) - zx;
      expected.SetInt(m * c.N + n,
                      static_cast<int32_t>(std::clamp<int64_t>(real + zy, low, one.out_max)));
    }
  }
  return relation::Expect(one, expected, subject, "a kernel with a single 1 does not copy");
}

// One tap of the first group, all outputs of that group: a matrix product.
Verdict OneByOneIsLinear(const Case& c, Subject& subject) {
  if (c.M == 0 || c.N == 0) return Verdict::Vacuous(kEmptyOutput);
  const uint64_t hash = relation::Hash(c);
  const Case group = slice::Channels(c, slice::Range(0, c.N / c.window.groups));
  const int64_t row = static_cast<int64_t>(hash % static_cast<uint64_t>(c.window.kernel_h));
  const int64_t column = static_cast<int64_t>(hash / 8 % static_cast<uint64_t>(c.window.kernel_w));
  Case conv = slice::Taps(group, std::span(&row, 1), std::span(&column, 1));
  Window& v = conv.window;
  v.drop_padding();
  if (!WindowWithinLimits(conv)) return Verdict::Vacuous(kTooLarge);
  DeriveSizes(&conv);
  Case linear = conv;
  linear.op = Op::kLinear;
  linear.window = Window{};
  linear.x = Tensor(c.x.dtype(), {conv.M, conv.K});
  linear.w = Tensor(c.w.dtype(), {conv.N, conv.K});
  std::ranges::copy(conv.w.bytes(), linear.w.bytes().begin());
  for (int64_t m = 0; m < conv.M; ++m) {
    const int64_t from = TapsOf(v, m)[0].x_row;
    for (int64_t k = 0; k < conv.K; ++k) linear.x.SetInt(m * conv.K + k, conv.x.IntAt(from + k));
  }
  const Answer expected = Ask(subject, linear);
  if (expected.verdict) return *expected.verdict;
  Tensor shaped(conv.out_dtype, conv.output_shape());
  std::ranges::copy(expected.y.bytes(), shaped.bytes().begin());
  return relation::Expect(conv, shaped, subject,
                          "a 1x1 convolution is not the linear of its pixels");
}

Verdict PaddingIsExplicit(const Case& c, Subject& subject) {
  if (c.M == 0 || c.N == 0) return Verdict::Vacuous(kEmptyOutput);
  if (!c.window.has_padding()) return Verdict::Vacuous("there is no padding");
  if (c.window.ceil_mode) return Verdict::Vacuous("ceil mode looks at where the padding ends");
  if (c.op == Op::kAvgPool && !c.window.count_include_pad)
    return Verdict::Vacuous("padding does not count");
  int64_t code = c.x_q.zero_point_at(0);
  if (c.op == Op::kMaxPool) code = RangeOf(c.x.dtype()).min;  // never wins either
  if (!IsCodeOf(c.x.dtype(), code)) return Verdict::Vacuous("real 0 is not a code of x");
  // Outputs and weights are as many as before.
  const Window& v = c.window;
  const std::array image{v.batch, v.in_h + v.pad_top + v.pad_bottom,
                         v.in_w + v.pad_left + v.pad_right, v.in_c};
  if (ElementCount(image, kMaxOutputs) < 0) return Verdict::Vacuous(kTooLarge);
  return SameAnswer(c, slice::ExplicitPadding(c, static_cast<int32_t>(code)), subject,
                    "padding an image by hand changes the output");
}

Verdict GroupsAreSeparate(const Case& c, Subject& subject) {
  const int64_t groups = c.window.groups;
  if (groups < 2) return Verdict::Vacuous("there is one group");
  if (c.M == 0 || c.N == 0) return Verdict::Vacuous(kEmptyOutput);
  const Answer whole = Ask(subject, c);
  if (whole.verdict) return *whole.verdict;
  const int64_t per_group = c.N / groups;
  const auto other = static_cast<int64_t>(relation::Hash(c) % static_cast<uint64_t>(groups - 1));
  for (int64_t group : {groups - 1, other}) {
    const std::vector<int64_t> columns = slice::Range(group * per_group, (group + 1) * per_group);
    const auto differs = relation::CompareAlone(
        c, whole.y, slice::Channels(c, columns), subject,
        [&](int64_t i) { return i / per_group * c.N + group * per_group + i % per_group; },
        "a group differs from its own convolution");
    if (differs) return *differs;
  }
  return Verdict::Passed();
}

Verdict DepthwiseIsGrouped(const Case& c, Subject& subject) {
  if (c.M == 0 || c.N == 0) return Verdict::Vacuous(kEmptyOutput);
  Case grouped = ProblemOf(c);
  grouped.op = Op::kConv2d;
  return SameAnswer(c, grouped, subject, "conv2d with as many groups as channels differs");
}

Verdict DilationIsZeroStuffed(const Case& c, Subject& subject) {
  const Window& v = c.window;
  if (c.M == 0 || c.N == 0) return Verdict::Vacuous(kEmptyOutput);
  if ((v.dilation_h == 1 || v.kernel_h == 1) && (v.dilation_w == 1 || v.kernel_w == 1))
    return Verdict::Vacuous("nothing is dilated");
  std::vector<int32_t> zeros;
  for (int64_t n = 0; n < c.N; ++n) zeros.push_back(c.w_q.zero_point_at(n));
  if (!std::ranges::all_of(zeros, [&](int32_t zero) { return IsCodeOf(c.w.dtype(), zero); }))
    return Verdict::Vacuous("real 0 is not a code of w");
  Case larger;
  larger.op = c.op;
  larger.N = c.N;
  larger.window = v;
  larger.window.kernel_h = (v.kernel_h - 1) * v.dilation_h + 1;
  larger.window.kernel_w = (v.kernel_w - 1) * v.dilation_w + 1;
  larger.window.dilation_h = larger.window.dilation_w = 1;
  if (!WindowWithinLimits(larger)) return Verdict::Vacuous(kTooLarge);
  const auto stuffed = [](int64_t kernel, int64_t dilation) {
    std::vector<int64_t> taps(static_cast<size_t>((kernel - 1) * dilation + 1), -1);
    for (int64_t i = 0; i < kernel; ++i) taps[static_cast<size_t>(i * dilation)] = i;
    return taps;
  };
  Case dense =
      slice::Taps(c, stuffed(v.kernel_h, v.dilation_h), stuffed(v.kernel_w, v.dilation_w), zeros);
  dense.window.dilation_h = dense.window.dilation_w = 1;
  DeriveSizes(&dense);
  return SameAnswer(c, dense, subject, "a kernel stuffed with zeros differs from the dilated one");
}

Verdict StrideIsSubsample(const Case& c, Subject& subject) {
  const Window& v = c.window;
  if (c.N == 0) return Verdict::Vacuous(kEmptyOutput);
  Case dense = ProblemOf(c);
  dense.window.stride_h = dense.window.stride_w = 1;
  dense.window.ceil_mode = false;
  if (!WindowWithinLimits(dense)) return Verdict::Vacuous(kTooLarge);
  DeriveSizes(&dense);
  const int64_t dense_h = dense.window.out_h(), dense_w = dense.window.out_w();
  if (dense.M == c.M) return Verdict::Vacuous("the stride skips nothing");
  if (!Validate(dense).empty()) return Verdict::Vacuous("a window in between sees only padding");
  const Answer base = Ask(subject, c);
  if (base.verdict) return *base.verdict;
  const Answer every = Ask(subject, dense);
  if (every.verdict) return *every.verdict;
  for (int64_t i = 0; i < base.y.size(); ++i) {
    const int64_t m = i / c.N;
    const int64_t y = m / v.out_w() % v.out_h() * v.stride_h;
    const int64_t x = m % v.out_w() * v.stride_w;
    if (y >= dense_h || x >= dense_w) continue;  // windows that only ceil mode has
    const int64_t image = m / (v.out_w() * v.out_h());
    const int64_t from = ((image * dense_h + y) * dense_w + x) * c.N + i % c.N;
    if (every.y.SameAt(from, base.y, i)) continue;
    return relation::FailedAt(c, every.y, from, base.y, i,
                              "an output differs from that of the same window with stride 1");
  }
  return Verdict::Passed();
}

// Each channel of each image is constant at a code of its own, half of the time an end of the type.
Verdict ConstantsPoolToThemselves(const Case& c, Subject& subject) {
  if (c.M == 0 || c.N == 0) return Verdict::Vacuous(kEmptyOutput);
  Case flat = ProblemOf(c);
  flat.window.count_include_pad = false;
  flat.out_dtype = c.x.dtype();
  flat.out_q = c.x_q;
  const CodeRange range = RangeOf(c.x.dtype());
  if (c.out_dtype != flat.out_dtype) OpenClamp(&flat);
  if (!Validate(flat).empty()) return Verdict::Vacuous("a window sees only padding");
  const int64_t planes = c.window.batch * c.N;
  const int64_t image = c.window.in_h * c.window.in_w;
  std::vector<int32_t> codes;
  Rng rng(relation::Hash(c));
  for (int64_t i = 0; i < planes; ++i) {
    const uint64_t which = rng.Below(4);
    codes.push_back(which == 0   ? range.min
                    : which == 1 ? range.max
                                 : static_cast<int32_t>(rng.Between(range.min, range.max)));
  }
  const auto plane = [&](int64_t i, int64_t pixels) {
    return codes[static_cast<size_t>(i / (pixels * c.N) * c.N + i % c.N)];
  };
  for (int64_t i = 0; i < flat.x.size(); ++i) flat.x.SetInt(i, plane(i, image));
  Tensor expected(flat.out_dtype, flat.output_shape());
  const auto low = static_cast<int32_t>(relation::LowEnd(flat, 0));
  for (int64_t i = 0; i < expected.size(); ++i) {
    expected.SetInt(i, std::clamp(plane(i, c.M / c.window.batch), low, flat.out_max));
  }
  return relation::Expect(flat, expected, subject,
                          "a constant image does not pool to its constant");
}

Verdict CountsOnlyPaddingThatIs(const Case& c, Subject& subject) {
  Case bare = ProblemOf(c);
  Window& v = bare.window;
  v.drop_padding();
  v.count_include_pad = false;
  DeriveSizes(&bare);
  if (bare.M == 0 || bare.N == 0) return Verdict::Vacuous(kEmptyOutput);
  Case counting = bare;
  counting.window.count_include_pad = true;
  return SameAnswer(bare, counting, subject,
                    "count_include_pad matters although there is no padding");
}

Verdict GlobalIsWholeWindow(const Case& c, Subject& subject) {
  if (c.M == 0 || c.N == 0) return Verdict::Vacuous(kEmptyOutput);
  Case pool = ProblemOf(c);
  pool.op = Op::kAvgPool;
  return SameAnswer(c, pool, subject, "avg_pool over the whole image differs");
}

}  // namespace

std::vector<Property> WindowProperties() {
  return {
      {"identity_weights",
       "With one weight of each output 1, all others 0, and the input's scale for the output, each "
       "output is the code under that weight (real 0 in the padding), moved to the output's zero "
       "point and clamped.",
       OpsWhere(HasSums), false, IdentityWeights},
      {"one_by_one_is_linear",
       "A 1x1 convolution without padding is linear on the pixels it visits.",
       {Op::kConv2d},
       false,
       OneByOneIsLinear},
      {"padding_is_explicit",
       "Padding by hand and not padding gives the same: with zx where it is a code, for max_pool "
       "with the smallest code; for avg_pool where padding counts; not with ceil_mode.",
       {Op::kConv2d, Op::kDepthwise, Op::kMaxPool, Op::kAvgPool},
       false,
       PaddingIsExplicit},
      {"groups_are_separate", "Each group is a convolution of its own.", OpsWhere(IsConv), false,
       GroupsAreSeparate},
      {"depthwise_is_grouped",
       "depthwise is conv2d with as many groups as input channels.",
       {Op::kDepthwise},
       false,
       DepthwiseIsGrouped},
      {"dilation_is_zero_stuffed",
       "A dilated kernel is the kernel with real 0 between its taps, where zw is a code.",
       OpsWhere(IsConv), false, DilationIsZeroStuffed},
      {"stride_is_subsample",
       "A stride picks outputs of stride 1, where stride 1 is valid.",
       {Op::kConv2d, Op::kDepthwise, Op::kMaxPool, Op::kAvgPool},
       false,
       StrideIsSubsample},
      {"constants_pool_to_themselves",
       "A constant channel gives its code, clamped, with equal qparams and padding not counted.",
       OpsWhere(IsPool), false, ConstantsPoolToThemselves},
      {"counts_only_padding_that_is",
       "Without padding count_include_pad changes nothing, with ceil_mode too.",
       {Op::kAvgPool},
       false,
       CountsOnlyPaddingThatIs},
      {"global_is_whole_window",
       "global_avg_pool is avg_pool with a window as large as the image.",
       {Op::kGlobalAvgPool},
       false,
       GlobalIsWholeWindow},
  };
}

}  // namespace qualm
