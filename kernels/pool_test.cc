// SPDX-License-Identifier: Apache-2.0
// Pools on every instruction set: what they read and write, lines that are pooled in pieces,
// windows longer than cases have, divisors worked by hand, refusals. Their outputs are judged by
// properties/native_kernels_test.cc.
#include "kernels/pool.h"

#include <gtest/gtest.h>

#include "kernels/common/test_support.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;
using test::GuardedBuffer;
using test::Random;

enum class Kind { kMax, kAvg, kAvgPadded };

struct Problem {
  Kind kind = Kind::kMax;
  PoolShape shape;  // with in_h and in_w
  int64_t batch = 1;
  int64_t channels = 1;
  int64_t x_stride = 1, y_stride = 1;      // of pixels
  int64_t x_row_gap = 0, x_image_gap = 0;  // elements
  ElementType x_type = ElementType::kU8, y_type = ElementType::kU8;
  Quantization x_q, y_q;
  OutputRange range;

  int64_t x_row_stride() const { return shape.window.in_w * x_stride + x_row_gap; }
  int64_t x_image_stride() const { return shape.window.in_h * x_row_stride() + x_image_gap; }
  int64_t x_index(int64_t image, int64_t y, int64_t x, int64_t c) const {
    return image * x_image_stride() + y * x_row_stride() + x * x_stride + c;
  }
  size_t x_size() const {
    if (batch * shape.window.in_h * shape.window.in_w == 0) return 0;
    return static_cast<size_t>(
        x_index(batch - 1, shape.window.in_h - 1, shape.window.in_w - 1, channels));
  }
  int64_t pixels() const { return batch * shape.out_h * shape.out_w; }
  size_t y_size() const {
    return pixels() == 0 ? 0 : static_cast<size_t>((pixels() - 1) * y_stride + channels);
  }
};

Status Call(const Problem& p, const uint8_t* x, uint8_t* y) {
  const WindowGeometry& g = p.shape.window;
  const ConstImages in{x,          p.x_type,           p.batch,          g.in_h,    g.in_w,
                       p.channels, p.x_image_stride(), p.x_row_stride(), p.x_stride};
  const MutableMatrix out{y, p.y_type, p.pixels(), p.channels, p.y_stride};
  if (p.kind == Kind::kMax) return MaxPool(in, p.shape, p.y_q.zero_point, p.range, out);
  return AvgPool(in, p.shape, p.kind == Kind::kAvgPadded, p.x_q, p.y_q, p.range, out);
}

std::string Text(const Problem& p) {
  const WindowGeometry& g = p.shape.window;
  char buffer[400];
  std::snprintf(
      buffer, sizeof(buffer),
      "kind %d in %dx%dx%dx%d kernel %dx%d stride %dx%d pad %d,%d,%d,%d dilation %dx%d "
      "out %dx%d scales %a, %a zero points %d, %d",
      static_cast<int>(p.kind), static_cast<int>(p.batch), static_cast<int>(g.in_h),
      static_cast<int>(g.in_w), static_cast<int>(p.channels), static_cast<int>(g.kernel_h),
      static_cast<int>(g.kernel_w), static_cast<int>(g.stride_h), static_cast<int>(g.stride_w),
      static_cast<int>(g.pad_top), static_cast<int>(g.pad_bottom), static_cast<int>(g.pad_left),
      static_cast<int>(g.pad_right), static_cast<int>(g.dilation_h), static_cast<int>(g.dilation_w),
      static_cast<int>(p.shape.out_h), static_cast<int>(p.shape.out_w),
      static_cast<double>(p.x_q.scale), static_cast<double>(p.y_q.scale), p.x_q.zero_point,
      p.y_q.zero_point);
  return buffer;
}

// The window of one output pixel as an image of its own, with the padding that it sees.
Status CallAlone(const Problem& p, const uint8_t* x, int64_t image, int64_t oy, int64_t ox,
                 uint8_t* y) {
  Problem one = p;
  one.batch = 1;
  one.shape.out_h = one.shape.out_w = 1;
  const auto cut = [](int64_t at, int64_t* in, int64_t* before) {
    const int64_t first = std::max<int64_t>(0, at - *before);
    *before = std::max<int64_t>(0, *before - at);
    *in -= first;
    return first;
  };
  WindowGeometry& g = one.shape.window;
  const int64_t iy = cut(oy * g.stride_h, &g.in_h, &g.pad_top);
  const int64_t ix = cut(ox * g.stride_w, &g.in_w, &g.pad_left);
  one.x_row_gap += (p.shape.window.in_w - g.in_w) * p.x_stride;
  return Call(one, x + p.x_index(image, iy, ix, 0), y);
}

// Guard pages on one side: each pixel has the codes of its window alone, gaps and inputs stay as
// they were.
void ExpectPixelsAsAlone(const Problem& p, Random& random, bool at_start) {
  GuardedBuffer<uint8_t> x(p.x_size(), at_start), y(p.y_size(), at_start);
  std::vector<uint8_t> values(p.x_size());
  for (uint8_t& v : values) v = static_cast<uint8_t>(random.Next());
  x.Assign(values);
  ForEachTarget([&](const std::string&) {
    std::vector<uint8_t> expected(p.y_size(), 0xA5);
    for (int64_t m = 0; m < p.pixels(); ++m) {
      const int64_t ox = m % p.shape.out_w, line = m / p.shape.out_w;
      ASSERT_EQ(CallAlone(p, values.data(), line / p.shape.out_h, line % p.shape.out_h, ox,
                          expected.data() + m * p.y_stride)
                    .error,
                "")
          << Text(p);
    }
    std::fill_n(y.data(), p.y_size(), uint8_t{0xA5});
    ASSERT_EQ(Call(p, x.data(), y.data()).error, "") << Text(p);
    for (size_t i = 0; i < p.y_size(); ++i) ASSERT_EQ(y[i], expected[i]) << Text(p) << " " << i;
    for (size_t i = 0; i < p.x_size(); ++i) ASSERT_EQ(x[i], values[i]);
  });
}

// Lines of a few channels with a stride are pooled in pieces.
TEST(Pool, NarrowPixelsOfLongLines) {
  Random random(77);
  for (int64_t channels = 1; channels <= 9; ++channels) {
    for (int64_t stride = 1; stride <= 5; ++stride) {
      const int64_t kernel = random.Between(1, 4);
      Problem p;
      p.shape.window = {.in_h = 5,
                        .in_w = 9000 / (channels * stride),
                        .kernel_h = 3,
                        .kernel_w = kernel,
                        .stride_h = 2,
                        .stride_w = stride,
                        .pad_top = 1,
                        .pad_left = kernel > 1 ? random.Between(0, 1) : 0,
                        .dilation_w = random.Between(1, 2)};
      const WindowGeometry& g = p.shape.window;
      p.shape.out_h = 2;
      p.shape.out_w = (g.in_w + g.pad_left - (g.kernel_w - 1) * g.dilation_w - 1) / g.stride_w + 1;
      p.channels = channels;
      p.x_stride = channels + random.Between(0, 4) / 4;
      p.y_stride = channels + random.Between(0, 4) / 4;
      p.x_row_gap = random.Between(0, 2);
      p.x_type = p.y_type = random.Between(0, 1) == 0 ? ElementType::kU8 : ElementType::kS8;
      if (random.Between(0, 1) == 0) p.range = {.min = -50, .max = 90};
      ExpectPixelsAsAlone(p, random, stride % 2 == 0);
      if (HasFatalFailure()) return;
    }
  }
}

// Every gap there is, every number of channels beside a vector's, more pixels than there is room
// for sums, windows that hang over the image on each side, and over its padding.
TEST(Pool, EachPixelIsThatOfItsWindowAlone) {
  Random random(78);
  for (int trial = 0; trial < 120; ++trial) {
    Problem p;
    p.kind = static_cast<Kind>(trial % 3);
    const int64_t kernel = random.Between(1, 4);
    const auto pad = [&] { return random.Between(0, kernel - 1); };
    p.shape = {.window = {.in_h = random.Between(4, 9),
                          .in_w = random.Between(4, 40),
                          .kernel_h = kernel,
                          .kernel_w = kernel,
                          .stride_h = random.Between(1, 3),
                          .stride_w = random.Between(1, 3),
                          .pad_top = pad(),
                          .pad_bottom = pad(),
                          .pad_left = pad(),
                          .pad_right = pad(),
                          .dilation_h = trial % 4 == 0 ? random.Between(1, 3) : 1,
                          .dilation_w = trial % 4 == 0 ? random.Between(1, 3) : 1},
               .out_h = 0,
               .out_w = 0};
    const WindowGeometry& g = p.shape.window;
    p.shape.out_h = (g.in_h + g.pad_top - 1) / g.stride_h + 1;  // all that begin in the image
    p.shape.out_w = (g.in_w + g.pad_left - 1) / g.stride_w + 1;
    p.batch = random.Between(1, 2);
    p.channels = random.Between(1, trial % 4 == 0 ? 300 : 40);
    p.x_stride = p.channels + random.Between(0, 2);
    p.y_stride = p.channels + random.Between(0, 2);
    p.x_row_gap = random.Between(0, 2);
    p.x_image_gap = random.Between(0, 2);
    p.x_type = p.y_type = trial % 2 == 0 ? ElementType::kU8 : ElementType::kS8;
    p.x_q = {0.0473f, static_cast<int32_t>(random.Between(-20, 140))};
    p.y_q = {0.0501f, static_cast<int32_t>(random.Between(0, 100))};
    ExpectPixelsAsAlone(p, random, trial % 2 == 0);
    if (HasFatalFailure()) return;
  }
}

TEST(Pool, LongWindowsOfEqualCodes) {
  // Windows around the longest whose sum fits 16 bits, up to one whose sum exceeds int32.
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{1, 256},
                                      {1, 257},
                                      {1, 258},
                                      {2, 257},
                                      {33, 33},
                                      {1, 9000000},
                                      {3000, 3000}}) {
    for (const bool is_signed : {false, true}) {
      for (const int value : {-128, 127, 255}) {
        if (is_signed == (value == 255)) continue;
        if (!is_signed && value < 0) continue;
        const int64_t pixels = height * width;
        const std::vector<uint8_t> x(static_cast<size_t>(pixels), static_cast<uint8_t>(value));
        const ElementType type = is_signed ? ElementType::kS8 : ElementType::kU8;
        ForEachTarget([&](const std::string&) {
          uint8_t y = 0xA5;
          ASSERT_EQ(GlobalAvgPool({x.data(), type, 1, height, width, 1, pixels, width, 1},
                                  {0.1f, 7}, {0.1f, 7}, {}, {&y, type, 1, 1, 1})
                        .error,
                    "");
          ASSERT_EQ(is_signed ? static_cast<int8_t>(y) : y, value) << height << " x " << width;
        });
      }
    }
  }
}

TEST(Pool, TheDivisorCountsWhatItShould) {
  // One row of three pixels, window of four, padding of one at each end, stride two, and room for
  // a last window that hangs over the padding by one.
  const std::vector<uint8_t> x = {60, 60, 60};
  Problem p;
  p.kind = Kind::kAvg;
  p.shape = {
      .window = {.in_h = 1, .in_w = 3, .kernel_w = 4, .stride_w = 2, .pad_left = 1, .pad_right = 1},
      .out_h = 1,
      .out_w = 2};
  std::vector<uint8_t> y(2);
  ASSERT_TRUE(Call(p, x.data(), y.data()).ok());
  EXPECT_EQ(y, (std::vector<uint8_t>{60, 60}));
  p.kind = Kind::kAvgPadded;
  ASSERT_TRUE(Call(p, x.data(), y.data()).ok());
  EXPECT_EQ(y, (std::vector<uint8_t>{45, 40}));  // 180 / 4; 120 / 3: the overhang does not count
}

// Neighbours with one tap in the image each: the first has padding beside it, the second hangs over
// that, which does not count. A run of windows may not share a divisor then.
TEST(Pool, NeighboursWithEqualTapsMayHaveOtherDivisors) {
  const std::vector<uint8_t> x = {60, 60, 60, 60};
  Problem p;
  p.kind = Kind::kAvgPadded;
  p.shape = {.window = {.in_h = 1, .in_w = 4, .kernel_w = 2, .pad_right = 1, .dilation_w = 3},
             .out_h = 1,
             .out_w = 3};
  ForEachTarget([&](const std::string&) {
    std::vector<uint8_t> y(3);
    ASSERT_TRUE(Call(p, x.data(), y.data()).ok());
    EXPECT_EQ(y, (std::vector<uint8_t>{60, 30, 60}));  // 120 / 2; 60 / 2; 60 / 1
  });
}

TEST(Pool, InvalidArgumentsAreErrors) {
  std::vector<uint8_t> codes(32, 1), out(32, 0xA5);
  struct Arguments {
    ConstImages x;
    PoolShape shape;
    Quantization x_q, y_q;
    OutputRange range;
    MutableMatrix y;
    bool count_padding = false;
  };
  const auto arguments = [&] {
    return Arguments{{codes.data(), ElementType::kU8, 1, 4, 4, 2, 32, 8, 2},
                     {{.kernel_h = 2, .kernel_w = 2}, 3, 3},
                     {},
                     {},
                     {},
                     {out.data(), ElementType::kU8, 9, 2, 2}};
  };
  const auto average = [&](const auto& change) {
    Arguments a = arguments();
    change(a);
    return AvgPool(a.x, a.shape, a.count_padding, a.x_q, a.y_q, a.range, a.y).error;
  };
  const auto both = [&](const auto& change) {
    Arguments a = arguments();
    change(a);
    const std::string error = MaxPool(a.x, a.shape, 0, a.range, a.y).error;
    EXPECT_EQ(average(change), error);
    return error;
  };
  EXPECT_EQ(both([](Arguments& a) { a.x.type = ElementType::kF32; }),
            "x.type is f32, expected u8 or s8");
  EXPECT_EQ(both([](Arguments& a) { a.shape.window.kernel_h = 0; }),
            "window.kernel_h is 0, expected 1..1073741824");
  EXPECT_EQ(both([](Arguments& a) { a.shape.window.stride_w = 0; }),
            "window.stride_w is 0, expected 1..1073741824");
  EXPECT_EQ(both([](Arguments& a) { a.shape.window.pad_left = -1; }),
            "window.pad_left is -1, expected 0..1073741824");
  EXPECT_EQ(both([](Arguments& a) { a.shape.window.dilation_h = int64_t{1} << 31; }),
            "window.dilation_h is 2147483648, expected 1..1073741824");
  EXPECT_EQ(both([](Arguments& a) { a.x.pixel_stride = 1; }),
            "x.pixel_stride is 1, expected at least 2");
  EXPECT_EQ(both([](Arguments& a) { a.x.height = -1; }), "x.height is -1, expected at least 0");
  EXPECT_EQ(both([](Arguments& a) { a.y.data = const_cast<void*>(a.x.data); }),
            "y overlaps x, expected separate memory");
  EXPECT_EQ(both([](Arguments& a) { a.shape.out_h = -1; }),
            "shape.out_h is -1, expected 0..1073741824");
  EXPECT_EQ(both([](Arguments& a) { a.shape.out_h = 2; }),
            "y.rows is 9, expected batch * out_h * out_w = 1 * 2 * 3");
  EXPECT_EQ(both([](Arguments& a) { a.y.columns = 1; }), "y.columns is 1, expected x.channels = 2");
  EXPECT_EQ(both([](Arguments& a) { a.range = {.min = 1, .max = 0}; }),
            "range is [1, 0], expected min <= max and an overlap with u8");
  EXPECT_EQ(both([](Arguments& a) { a.shape.window.pad_top = 2; }),
            "shape has a window without a pixel of the image, expected at least one in each");
  EXPECT_EQ(average([](Arguments& a) {
              a.shape.window.pad_top = 2;
              a.count_padding = true;
            }),
            "");
  out.assign(32, 0xA5);
  EXPECT_EQ(average([](Arguments& a) {
              a.shape.out_h = 9;
              a.shape.out_w = 1;
              a.count_padding = true;
            }),
            "shape has a window without a pixel of the image or its padding, expected at least one "
            "in each");
  EXPECT_EQ(average([](Arguments& a) {
              a.shape.window.kernel_h = a.shape.window.kernel_w = int64_t{1} << 27;
            }),
            "shape.window has 134217728 x 134217728 taps, expected at most 2^53");
  EXPECT_EQ(average([](Arguments& a) { a.x_q.scale = 0; }),
            "x_q.scale is 0, expected a finite number > 0");
  EXPECT_EQ(average([](Arguments& a) { a.y_q.scale = NAN; }),
            "y_q.scale is nan, expected a finite number > 0");
  Arguments a = arguments();
  a.y.type = ElementType::kS8;
  EXPECT_EQ(MaxPool(a.x, a.shape, 0, a.range, a.y).error, "y.type is s8, expected u8");
  EXPECT_EQ(out, std::vector<uint8_t>(32, 0xA5));
  // No images, no channels, images without pixels: nothing to do.
  const ElementType u8 = ElementType::kU8;
  EXPECT_EQ(GlobalAvgPool({nullptr, u8, 2, 0, 5, 3}, {}, {}, {}, {nullptr, u8, 0, 3, 3}).error, "");
  EXPECT_EQ(GlobalAvgPool({nullptr, u8, 0, 4, 4, 3}, {}, {}, {}, {nullptr, u8, 0, 3, 3}).error, "");
  EXPECT_EQ(MaxPool({nullptr, u8, 1, 4, 4, 0}, a.shape, 0, {}, {nullptr, u8, 9, 0, 0}).error, "");
}

}  // namespace
}  // namespace qualm::kernels
