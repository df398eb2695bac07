// SPDX-License-Identifier: Apache-2.0
// Laws that tie operations to each other. Each law is checked in both forms, on random cases of the
// whole domain in which the law holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "core/random_case_test_util.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {
namespace {

using test::RandomCase;

// Two cases with the same outputs, element by element; the shapes may differ. Returns their number.
int64_t ExpectSame(const Case& a, const Case& b) {
  EXPECT_EQ(Validate(a), "") << Describe(a);
  EXPECT_EQ(Validate(b), "") << Describe(b);
  const Tensor fast[2] = {Evaluate(a), Evaluate(b)};
  const Tensor naive[2] = {EvaluateRational(a), EvaluateRational(b)};
  EXPECT_EQ(fast[0].size(), fast[1].size()) << Describe(a) << " and " << Describe(b);
  if (fast[0].size() != fast[1].size()) return 0;
  for (int64_t i = 0; i < fast[0].size(); ++i) {
    EXPECT_EQ(fast[0].BitsAt(i), fast[1].BitsAt(i)) << Describe(a) << " and " << Describe(b);
    EXPECT_EQ(naive[0].BitsAt(i), naive[1].BitsAt(i)) << Describe(a) << " and " << Describe(b);
  }
  return fast[0].size();
}

Tensor Reshaped(const Tensor& tensor, std::vector<int64_t> shape) {
  Tensor result(tensor.dtype(), std::move(shape));
  std::copy(tensor.bytes().begin(), tensor.bytes().end(), result.bytes().begin());
  return result;
}

bool IsCodeOf(DType dtype, int32_t value) {
  const CodeRange range = RangeOf(dtype);
  return value >= range.min && value <= range.max;
}

TEST(Meaning, PointwiseConvIsLinear) {
  RandomCase draw(1);
  int64_t compared = 0;
  for (int i = 0; i < 20000; ++i) {
    const Case conv = draw.Draw(Op::kConv2d);
    const Window& v = conv.window;
    if (v.kernel_h * v.kernel_w != 1 || v.groups != 1 || v.stride_h * v.stride_w != 1 ||
        v.pad_top + v.pad_bottom + v.pad_left + v.pad_right != 0)
      continue;
    Case linear = conv;
    linear.op = Op::kLinear;
    linear.window = Window();
    linear.x = Reshaped(conv.x, {conv.M, conv.K});
    linear.w = Reshaped(conv.w, {conv.N, conv.K});
    compared += ExpectSame(conv, linear);
  }
  EXPECT_GT(compared, 500);
}

// Padding is the same as rows and columns of x_zp around the image, where x_zp is a code.
TEST(Meaning, PaddingIsExplicitPadding) {
  RandomCase draw(2);
  int64_t compared = 0;
  for (int i = 0; i < 2000; ++i) {
    const Case conv = draw.Draw(i % 2 == 0 ? Op::kConv2d : Op::kDepthwise);
    const int32_t zx = conv.x_q.zero_point_at(0);
    // An image without rows has no outputs, padded it has some.
    if (!IsCodeOf(conv.x.dtype(), zx) || conv.M == 0) continue;
    const Window& v = conv.window;
    Case padded = conv;
    Window& p = padded.window;
    p.in_h += v.pad_top + v.pad_bottom;
    p.in_w += v.pad_left + v.pad_right;
    p.pad_top = p.pad_bottom = p.pad_left = p.pad_right = 0;
    padded.x = Tensor(conv.x.dtype(), {p.batch, p.in_h, p.in_w, p.in_c});
    for (int64_t to = 0; to < padded.x.size(); ++to) {
      const int64_t pixel = to / p.in_c;
      const int64_t y = pixel / p.in_w % p.in_h - v.pad_top;
      const int64_t x = pixel % p.in_w - v.pad_left;
      const int64_t image = pixel / (p.in_w * p.in_h);
      const bool inside = y >= 0 && y < v.in_h && x >= 0 && x < v.in_w;
      const int64_t from = ((image * v.in_h + y) * v.in_w + x) * v.in_c + to % p.in_c;
      padded.x.SetInt(to, inside ? conv.x.IntAt(from) : zx);
    }
    compared += ExpectSame(conv, padded);
  }
  EXPECT_GT(compared, 2000);
}

// Channels [first, first + count) of the last axis.
Tensor TakeChannels(const Tensor& tensor, int64_t first, int64_t count) {
  std::vector<int64_t> shape = tensor.shape();
  const int64_t channels = shape.back();
  shape.back() = count;
  Tensor taken(tensor.dtype(), shape);
  for (int64_t i = 0; i < taken.size(); ++i) {
    taken.SetInt(i, tensor.IntAt(i / count * channels + first + i % count));
  }
  return taken;
}

template <class T>
void TakeEntries(std::vector<T>* list, int64_t first, int64_t count) {
  const auto begin = list->begin() + first;
  *list = std::vector<T>(begin, begin + count);
}

// A convolution in groups, depthwise among them, is one convolution per group.
TEST(Meaning, GroupsAreSeparateConvolutions) {
  RandomCase draw(3);
  int64_t compared = 0;
  for (int i = 0; i < 2000; ++i) {
    const Case whole = draw.Draw(i % 2 == 0 ? Op::kConv2d : Op::kDepthwise);
    const Window& v = whole.window;
    if (v.groups == 1 || whole.N == 0) continue;
    const int64_t depth = v.in_c / v.groups;
    const int64_t width = whole.N / v.groups;
    const Tensor fast = Evaluate(whole);
    const Tensor naive = EvaluateRational(whole);
    for (int64_t g = 0; g < v.groups; ++g) {
      Case part = whole;
      part.op = Op::kConv2d;
      part.window.groups = 1;
      part.window.in_c = depth;
      part.N = width;
      part.x = TakeChannels(whole.x, g * depth, depth);
      part.w = Tensor(whole.w.dtype(), {width, v.kernel_h, v.kernel_w, depth});
      for (int64_t at = 0; at < part.w.size(); ++at) {
        part.w.SetInt(at, whole.w.IntAt(g * part.w.size() + at));
      }
      if (whole.per_channel) {
        TakeEntries(&part.w_q.scale, g * width, width);
        TakeEntries(&part.w_q.zero_point, g * width, width);
      }
      if (part.bias) TakeEntries(&*part.bias, g * width, width);
      if (part.bias_i32) TakeEntries(&*part.bias_i32, g * width, width);
      ASSERT_EQ(Validate(part), "") << Describe(part);
      const Tensor fast_part = Evaluate(part);
      const Tensor naive_part = EvaluateRational(part);
      for (int64_t m = 0; m < part.M; ++m) {
        for (int64_t n = 0; n < width; ++n) {
          const int64_t at = m * whole.N + g * width + n;
          ASSERT_EQ(fast.BitsAt(at), fast_part.BitsAt(m * width + n)) << Describe(whole);
          ASSERT_EQ(naive.BitsAt(at), naive_part.BitsAt(m * width + n)) << Describe(whole);
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 5000);
}

// Dilation is a larger kernel with real 0 in the gaps.
TEST(Meaning, DilationIsAStuffedKernel) {
  RandomCase draw(4);
  int64_t compared = 0;
  for (int i = 0; i < 4000; ++i) {
    const Case conv = draw.Draw(i % 2 == 0 ? Op::kConv2d : Op::kDepthwise);
    const Window& v = conv.window;
    const auto& zeros = conv.w_q.zero_point;
    const bool codes = std::all_of(zeros.begin(), zeros.end(),
                                   [&](int32_t z) { return IsCodeOf(conv.w.dtype(), z); });
    if (v.dilation_h * v.dilation_w == 1 || !codes) continue;
    Case stuffed = conv;
    Window& s = stuffed.window;
    s.kernel_h = (v.kernel_h - 1) * v.dilation_h + 1;
    s.kernel_w = (v.kernel_w - 1) * v.dilation_w + 1;
    s.dilation_h = s.dilation_w = 1;
    const int64_t depth = v.in_c / v.groups;
    DeriveSizes(&stuffed);
    stuffed.w = Tensor(conv.w.dtype(), {conv.N, s.kernel_h, s.kernel_w, depth});
    for (int64_t to = 0; to < stuffed.w.size(); ++to) {
      const int64_t ch = to % depth;
      const int64_t column = to / depth % s.kernel_w;
      const int64_t row = to / depth / s.kernel_w % s.kernel_h;
      const int64_t n = to / depth / s.kernel_w / s.kernel_h;
      const bool gap = row % v.dilation_h != 0 || column % v.dilation_w != 0;
      const int64_t tap =
          (n * v.kernel_h + row / v.dilation_h) * v.kernel_w + column / v.dilation_w;
      stuffed.w.SetInt(to, gap ? conv.w_q.zero_point_at(n) : conv.w.IntAt(tap * depth + ch));
    }
    compared += ExpectSame(conv, stuffed);
  }
  EXPECT_GT(compared, 2000);
}

// A stride leaves outputs out and changes none.
TEST(Meaning, StrideIsASubsample) {
  RandomCase draw(5);
  int64_t compared = 0;
  for (int i = 0; i < 3000; ++i) {
    const Op op = i % 3 == 0 ? Op::kConv2d : i % 3 == 1 ? Op::kDepthwise : Op::kMaxPool;
    const Case strided = draw.Draw(op);
    const Window& v = strided.window;
    if (v.ceil_mode || strided.M == 0) continue;
    Case dense = strided;
    dense.window.stride_h = dense.window.stride_w = 1;
    DeriveSizes(&dense);
    if (!Validate(dense).empty()) continue;  // a pool in between lies wholly in the padding
    const Tensor y[2] = {Evaluate(strided), Evaluate(dense)};
    const Tensor naive[2] = {EvaluateRational(strided), EvaluateRational(dense)};
    for (int64_t at = 0; at < y[0].size(); ++at) {
      const int64_t n = at % strided.N;
      const int64_t ox = at / strided.N % v.out_w();
      const int64_t oy = at / strided.N / v.out_w() % v.out_h();
      const int64_t image = at / strided.N / v.out_w() / v.out_h();
      const Window& d = dense.window;
      const int64_t pixel = (image * d.out_h() + oy * v.stride_h) * d.out_w() + ox * v.stride_w;
      ASSERT_EQ(y[0].BitsAt(at), y[1].BitsAt(pixel * strided.N + n)) << Describe(strided);
      ASSERT_EQ(naive[0].BitsAt(at), naive[1].BitsAt(pixel * strided.N + n));
      ++compared;
    }
  }
  EXPECT_GT(compared, 5000);
}

TEST(Meaning, AddAndMulCommute) {
  RandomCase draw(6);
  int64_t compared = 0;
  for (int i = 0; i < 3000; ++i) {
    const Case c = draw.Draw(i % 2 == 0 ? Op::kAdd : Op::kMul);
    Case swapped = c;
    std::swap(swapped.x, swapped.w);
    std::swap(swapped.x_q, swapped.w_q);
    compared += ExpectSame(c, swapped);
  }
  EXPECT_GT(compared, 5000);
}

// Adding real 0, whatever its scale, and multiplying by real 1 only rescale.
TEST(Meaning, NeutralOperandsRescale) {
  RandomCase draw(7);
  int64_t compared = 0;
  for (int i = 0; i < 4000; ++i) {
    Case c = draw.Draw(i % 2 == 0 ? Op::kAdd : Op::kMul);
    const bool add = c.op == Op::kAdd;
    if (c.w_q.zero_point_at(0) == INT32_MAX) continue;
    const int32_t neutral = c.w_q.zero_point_at(0) + (add ? 0 : 1);
    if (!IsCodeOf(c.w.dtype(), neutral)) continue;
    for (int64_t at = 0; at < c.w.size(); ++at) c.w.SetInt(at, neutral);
    if (!add) c.w_q.scale = {1.0f};
    Case rescale = c;
    rescale.op = Op::kRescale;
    rescale.w = Tensor();
    compared += ExpectSame(c, rescale);
  }
  EXPECT_GT(compared, 5000);
}

// x + x is 2x: the same as doubling the scale.
TEST(Meaning, AddingToItselfDoubles) {
  RandomCase draw(8);
  int64_t compared = 0;
  for (int i = 0; i < 3000; ++i) {
    Case add = draw.Draw(Op::kAdd);
    if (add.x_q.scale_at(0) > 0x1p126f) continue;
    add.w = add.x;
    add.w_q = add.x_q;
    Case rescale = add;
    rescale.op = Op::kRescale;
    rescale.w = Tensor();
    rescale.x_q.scale[0] *= 2;
    compared += ExpectSame(add, rescale);
  }
  EXPECT_GT(compared, 5000);
}

TEST(Meaning, GlobalAvgPoolIsAvgPoolOverTheImage) {
  RandomCase draw(9);
  int64_t compared = 0;
  for (int i = 0; i < 3000; ++i) {
    const Case global = draw.Draw(Op::kGlobalAvgPool);
    Case pool = global;
    pool.op = Op::kAvgPool;
    compared += ExpectSame(global, pool);
    // Padding that does not count, under windows that cover all of it, adds nothing.
    if (global.M == 0) continue;
    pool.window.pad_top = 1;
    pool.window.pad_right = 2;
    pool.window.kernel_h += 1;
    pool.window.kernel_w += 2;
    DeriveSizes(&pool);
    compared += ExpectSame(global, pool);
  }
  EXPECT_GT(compared, 5000);
}

// An average whose divisor is the same power of two everywhere is a depthwise convolution with
// weights 1 / count. With padding the divisor is the same only if padding counts.
TEST(Meaning, AvgPoolIsADepthwiseConvolution) {
  RandomCase draw(10);
  int64_t compared = 0;
  for (int i = 0; i < 12000; ++i) {
    const Case pool = draw.Draw(Op::kAvgPool);
    const Window& v = pool.window;
    const bool padded = v.pad_top + v.pad_bottom + v.pad_left + v.pad_right != 0;
    if ((pool.K & (pool.K - 1)) != 0 || v.ceil_mode || pool.N == 0) continue;
    if (padded && !v.count_include_pad) continue;
    Case conv = pool;
    conv.op = Op::kDepthwise;
    conv.window.count_include_pad = false;
    conv.window.groups = v.in_c;
    conv.w = Tensor(DType::kS8, {pool.N, v.kernel_h, v.kernel_w, 1});
    for (int64_t at = 0; at < conv.w.size(); ++at) conv.w.SetInt(at, 1);
    conv.w_q = {{1.0f / static_cast<float>(pool.K)}, {0}};
    DeriveSizes(&conv);
    compared += ExpectSame(pool, conv);
  }
  EXPECT_GT(compared, 3000);
}

// Scales and zero points do not change which code is largest; s8 codes act as u8 codes less 128.
TEST(Meaning, MaxPoolWorksOnCodes) {
  RandomCase draw(11);
  int64_t compared = 0;
  for (int i = 0; i < 3000; ++i) {
    Case c = draw.Draw(Op::kMaxPool);
    c.relu = false;
    Case other = c;
    other.x_q = other.out_q = {{3.0f}, {-7}};
    compared += ExpectSame(c, other);
    if (c.x.dtype() != DType::kU8) continue;
    Case shifted = c;
    shifted.x = Tensor(DType::kS8, c.x.shape());
    for (int64_t at = 0; at < c.x.size(); ++at) shifted.x.SetInt(at, c.x.IntAt(at) - 128);
    shifted.out_dtype = DType::kS8;
    shifted.out_min -= 128;
    shifted.out_max -= 128;
    ASSERT_EQ(Validate(shifted), "");
    const Tensor y[2] = {Evaluate(c), Evaluate(shifted)};
    for (int64_t at = 0; at < y[0].size(); ++at) {
      ASSERT_EQ(y[0].IntAt(at), y[1].IntAt(at) + 128);
    }
  }
  EXPECT_GT(compared, 5000);
}

// Shifting all codes and the zero point of an input by the same amount changes nothing.
TEST(Meaning, ShiftedCodesMeanTheSame) {
  RandomCase draw(12);
  int64_t compared = 0;
  for (int i = 0; i < 9000; ++i) {
    const Op op = AllOps()[static_cast<size_t>(i) % AllOps().size()];
    const Case c = draw.Draw(op);
    // The operands of add, mul and concat share a type, max_pool works on codes, softmax keeps its
    // type, and dequantize may have a zero point per channel.
    if (c.x.dtype() != DType::kU8 || HasTwoInputs(op) || op == Op::kMaxPool || op == Op::kSoftmax ||
        op == Op::kDequantize || c.x_q.zero_point_at(0) < INT32_MIN + 128)
      continue;
    Case shifted = c;
    shifted.x = Tensor(DType::kS8, c.x.shape());
    for (int64_t at = 0; at < c.x.size(); ++at) shifted.x.SetInt(at, c.x.IntAt(at) - 128);
    shifted.x_q.zero_point[0] -= 128;
    compared += ExpectSame(c, shifted);
  }
  EXPECT_GT(compared, 5000);
}

}  // namespace
}  // namespace qualm::exact
