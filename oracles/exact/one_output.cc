// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/status.h"
#include "oracles/exact/evaluate.h"

namespace qualm::exact {
namespace {

template <class T>
void TakeChannel(std::vector<T>* list, int64_t n) {
  if (list->size() > 1) *list = {(*list)[static_cast<size_t>(n)]};
}

Tensor TakeRow(const Tensor& tensor, int64_t row, std::vector<int64_t> shape) {
  Tensor taken(tensor.dtype(), std::move(shape));
  const size_t bytes = taken.bytes().size();
  const auto source = tensor.bytes().subspan(static_cast<size_t>(row) * bytes, bytes);
  std::copy(source.begin(), source.end(), taken.bytes().begin());
  return taken;
}

// One axis of a window at one position, cut out of the image: the same taps on the same elements,
// in the only position there is.
struct Cut {
  int64_t begin = 0;  // first element taken
  int64_t size = 1;
  int64_t kernel = 1;
  int64_t pad_before = 0;
  int64_t pad_after = 0;
  int64_t stride = 1;
};

// `start` is the place of the first tap, negative in the padding. `end` is where the padding ends
// for pools, whose taps beyond it do not count.
Cut CutAxis(int64_t start, int64_t in, int64_t kernel, int64_t dilation, int64_t end) {
  Cut cut;
  cut.kernel = std::min(kernel, (end - start + dilation - 1) / dilation);
  int64_t first = cut.kernel;
  int64_t last = -1;
  for (int64_t tap = 0; tap < cut.kernel; ++tap) {
    const int64_t at = start + tap * dilation;
    if (at < 0 || at >= in) continue;
    first = std::min(first, tap);
    last = tap;
  }
  if (last < 0) {
    // No tap meets the image. One element of it stays, behind the last tap; the stride keeps the
    // window from reaching it in a second position.
    cut.pad_before = (cut.kernel - 1) * dilation + 1;
    cut.stride = 2;
    return cut;
  }
  cut.begin = start + first * dilation;
  cut.size = (last - first) * dilation + 1;
  cut.pad_before = first * dilation;
  cut.pad_after = (cut.kernel - 1 - last) * dilation;
  return cut;
}

void TakeWindow(const Case& c, int64_t m, int64_t n, Case* one) {
  const Window& v = c.window;
  const int64_t oy = m / v.out_w() % v.out_h();
  const int64_t ox = m % v.out_w();
  const int64_t image = m / (v.out_h() * v.out_w());
  const int64_t far = INT32_MAX;
  const Cut rows = CutAxis(oy * v.stride_h - v.pad_top, v.in_h, v.kernel_h, v.dilation_h,
                           IsPool(c.op) ? v.in_h + v.pad_bottom : far);
  const Cut columns = CutAxis(ox * v.stride_w - v.pad_left, v.in_w, v.kernel_w, v.dilation_w,
                              IsPool(c.op) ? v.in_w + v.pad_right : far);
  Window& w = one->window;
  w.batch = 1;
  w.in_h = rows.size;
  w.in_w = columns.size;
  w.in_c = IsPool(c.op) ? 1 : v.in_c / v.groups;
  w.kernel_h = rows.kernel;
  w.kernel_w = columns.kernel;
  w.stride_h = rows.stride;
  w.stride_w = columns.stride;
  w.pad_top = rows.pad_before;
  w.pad_bottom = rows.pad_after;
  w.pad_left = columns.pad_before;
  w.pad_right = columns.pad_after;
  w.dilation_h = v.dilation_h;
  w.dilation_w = v.dilation_w;
  w.count_include_pad = v.count_include_pad;

  const int64_t channel = IsPool(c.op) ? n : n / (c.N / v.groups) * w.in_c;
  one->x = Tensor(c.x.dtype(), {1, w.in_h, w.in_w, w.in_c});
  uint8_t* to = one->x.bytes().data();
  for (int64_t y = rows.begin; y < rows.begin + rows.size; ++y) {
    for (int64_t x = columns.begin; x < columns.begin + columns.size; ++x) {
      const int64_t from = ((image * v.in_h + y) * v.in_w + x) * v.in_c + channel;
      std::copy_n(c.x.bytes().data() + from, w.in_c, to);
      to += w.in_c;
    }
  }
  if (IsConv(c.op)) one->w = TakeRow(c.w, n, {1, w.kernel_h, w.kernel_w, w.in_c});
  DeriveSizes(one);
}

}  // namespace

Case OneOutput(const Case& c, int64_t index) {
  QUALM_CHECK_LE(0, index);
  QUALM_CHECK_LT(index, c.M * c.N);
  const int64_t n = index % c.N;
  Case one;
  one.op = c.op;
  one.M = 1;
  one.N = 1;
  one.K = c.K;
  if (c.op == Op::kLinear) {
    one.x = TakeRow(c.x, index / c.N, {1, c.K});
    one.w = TakeRow(c.w, n, {1, c.K});
  } else if (HasWindow(c.op)) {
    TakeWindow(c, index / c.N, n, &one);
  } else if (c.op == Op::kSoftmax) {
    one.N = c.N;
    one.x = TakeRow(c.x, index / c.N, {1, c.N});
    std::swap(one.x.bytes()[0], one.x.bytes()[static_cast<size_t>(n)]);
  } else if (c.op == Op::kConcat) {
    const int64_t a = c.x.shape()[1];
    const int64_t m = index / c.N;
    const bool first = n < a;
    one.x = first ? TakeRow(c.x, m * a + n, {1, 1}) : Tensor(c.x.dtype(), {1, 0});
    one.w = first ? Tensor(c.w.dtype(), {1, 0}) : TakeRow(c.w, m * (c.N - a) + n - a, {1, 1});
  } else {
    one.x = TakeRow(c.x, index, {1, 1});
    if (HasTwoOperands(c.op)) one.w = TakeRow(c.w, index, {1, 1});
  }
  one.x_q = c.x_q;
  one.w_q = c.w_q;
  one.out_q = c.out_q;
  one.per_channel = c.per_channel;
  one.multiplier = c.multiplier;
  one.bias = c.bias;
  one.bias_i32 = c.bias_i32;
  // Lists of one entry belong to all channels, longer ones have one entry per channel.
  for (QParams* q : {&one.x_q, &one.w_q, &one.out_q}) {
    TakeChannel(&q->scale, n);
    TakeChannel(&q->zero_point, n);
  }
  TakeChannel(&one.multiplier, n);
  if (one.bias) TakeChannel(&*one.bias, n);
  if (one.bias_i32) TakeChannel(&*one.bias_i32, n);
  one.out_dtype = c.out_dtype;
  one.out_min = c.out_min;
  one.out_max = c.out_max;
  one.relu = c.relu;
  one.requant = c.requant;
  one.function = c.function;
  one.negative_slope = c.negative_slope;
  return one;
}

}  // namespace qualm::exact
