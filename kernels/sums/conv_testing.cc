// SPDX-License-Identifier: Apache-2.0
#include "kernels/sums/conv_testing.h"

#include <gtest/gtest.h>

#include "kernels/targets.h"

namespace qualm::kernels::testing {
namespace {

// Positions 0, stride, 2 * stride, ... at which the last tap still lies in the padded input.
int64_t CountPositions(int64_t in, int64_t before, int64_t after, int64_t kernel, int64_t dilation,
                       int64_t stride) {
  if (in == 0) return 0;
  int64_t count = 0;
  while (count * stride + (kernel - 1) * dilation < before + in + after) ++count;
  return count;
}

size_t ImageElement(const ConvProblem& p, int64_t b, int64_t y, int64_t x, int64_t c) {
  const ConstImages images = ImagesAt(p, nullptr);
  return static_cast<size_t>(b * images.image_stride + y * images.row_stride +
                             x * images.pixel_stride + c);
}

}  // namespace

int64_t ConvProblem::OutHeight() const {
  return CountPositions(height, window.pad_top, window.pad_bottom, window.kernel_h,
                        window.dilation_h, window.stride_h);
}

int64_t ConvProblem::OutWidth() const {
  return CountPositions(width, window.pad_left, window.pad_right, window.kernel_w,
                        window.dilation_w, window.stride_w);
}

void ConvProblem::Derive() {
  layer.m = batch * OutHeight() * OutWidth();
  layer.k = window.kernel_h * window.kernel_w * (in_channels / groups);
}

std::string ConvProblem::Describe() const {
  const auto pair = [](int64_t a, int64_t b) {
    return std::to_string(a) + "," + std::to_string(b);
  };
  return "batch=" + std::to_string(batch) + " H,W=" + pair(height, width) +
         " C=" + std::to_string(in_channels) + " groups=" + std::to_string(groups) +
         " R,S=" + pair(window.kernel_h, window.kernel_w) +
         " stride=" + pair(window.stride_h, window.stride_w) +
         " pads=" + pair(window.pad_top, window.pad_bottom) + "," +
         pair(window.pad_left, window.pad_right) +
         " dilation=" + pair(window.dilation_h, window.dilation_w) +
         " image gaps=" + pair(image_gap, row_gap) + "," + std::to_string(pixel_gap) + " " +
         layer.Describe();
}

std::vector<__int128> CorrectedSums(const ConvProblem& p) {
  const WindowGeometry& w = p.window;
  const int64_t group_inputs = p.in_channels / p.groups;
  const int64_t group_outputs = p.layer.n / p.groups;
  std::vector<__int128> sums;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t oy = 0; oy < p.OutHeight(); ++oy) {
      for (int64_t ox = 0; ox < p.OutWidth(); ++ox) {
        for (int64_t n = 0; n < p.layer.n; ++n) {
          const size_t channel = static_cast<size_t>(n);
          const int64_t zw = p.layer.w_zero[p.layer.w_zero.size() == 1 ? 0 : channel];
          __int128 sum = p.layer.bias_i32.empty() ? 0 : p.layer.bias_i32[channel];
          for (int64_t r = 0; r < w.kernel_h; ++r) {
            const int64_t y = oy * w.stride_h + r * w.dilation_h - w.pad_top;
            if (y < 0 || y >= p.height) continue;
            for (int64_t s = 0; s < w.kernel_w; ++s) {
              const int64_t x = ox * w.stride_w + s * w.dilation_w - w.pad_left;
              if (x < 0 || x >= p.width) continue;
              for (int64_t c = 0; c < group_inputs; ++c) {
                const int64_t ic = n / group_outputs * group_inputs + c;
                const int64_t code = p.layer.x[static_cast<size_t>(
                    ((b * p.height + y) * p.width + x) * p.in_channels + ic)];
                const int64_t weight = p.layer.w[static_cast<size_t>(
                    ((n * w.kernel_h + r) * w.kernel_w + s) * group_inputs + c)];
                sum += (code - p.layer.x_zero) * (weight - zw);  // < 2^63
              }
            }
          }
          sums.push_back(sum);
        }
      }
    }
  }
  return sums;
}

std::vector<int32_t> ExpectedOutputs(const ConvProblem& p) {
  const std::vector<__int128> sums = CorrectedSums(p);
  std::vector<int32_t> outputs;
  for (size_t i = 0; i < sums.size(); ++i) {
    outputs.push_back(ExpectedOutput(p.layer, sums[i], static_cast<int64_t>(i) % p.layer.n));
  }
  return outputs;
}

Status PackProblem(const ConvProblem& p, PackedConv* packed) {
  const Problem& l = p.layer;
  GuardedBytes w(Elements(l.n, l.k, l.w_gap), 0x5A);
  Spread(l.w, l.n, l.k, l.w_gap, w.data());
  w.MakeReadOnly();
  return PackedConv::Pack({.layer = ParamsOf(l, w.data()),
                           .in_channels = p.in_channels,
                           .groups = p.groups,
                           .window = p.window},
                          packed);
}

ConstImages ImagesAt(const ConvProblem& p, const uint8_t* data) {
  ConstImages x;
  x.data = data;
  x.type = p.layer.x_type;
  x.batch = p.batch;
  x.height = p.height;
  x.width = p.width;
  x.channels = p.in_channels;
  x.pixel_stride = p.in_channels + p.pixel_gap;
  x.row_stride = p.width * x.pixel_stride + p.row_gap;
  x.image_stride = p.height * x.row_stride + p.image_gap;
  return x;
}

size_t ImageBytes(const ConvProblem& p) {
  if (p.batch * p.height * p.width * p.in_channels == 0) return 0;
  return ImageElement(p, p.batch - 1, p.height - 1, p.width - 1, p.in_channels - 1) + 1;
}

void SpreadImages(const ConvProblem& p, uint8_t* to) {
  size_t i = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t y = 0; y < p.height; ++y) {
      for (int64_t x = 0; x < p.width; ++x) {
        for (int64_t c = 0; c < p.in_channels; ++c) {
          to[ImageElement(p, b, y, x, c)] = static_cast<uint8_t>(p.layer.x[i++]);
        }
      }
    }
  }
}

std::vector<int32_t> RunProblem(const ConvProblem& p, uint8_t poison, ThreadPool* pool) {
  PackedConv packed;
  const Status packing = PackProblem(p, &packed);
  EXPECT_TRUE(packing.ok()) << packing.error;

  const Problem& l = p.layer;
  GuardedBytes x(ImageBytes(p), 0x5A);
  SpreadImages(p, x.data());
  x.MakeReadOnly();
  const GuardedBytes y(Elements(l.m, l.n, l.y_gap) * SizeOf(l.y_type), poison);
  const Status status =
      packed.Run(ImagesAt(p, x.data()), {y.data(), l.y_type, l.m, l.n, l.n + l.y_gap}, {}, pool);
  EXPECT_TRUE(status.ok()) << status.error;
  return Collect(l.y_type, l.n, l.y_gap, poison, y);
}

void ExpectExactEverywhere(const ConvProblem& p) {
  const std::vector<int32_t> expected = ExpectedOutputs(p);
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    const std::vector<int32_t> actual = RunProblem(p);
    ASSERT_EQ(actual.size(), expected.size()) << target << ": " << p.Describe();
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(actual[i], expected[i])
          << target << " pixel " << static_cast<int64_t>(i) / p.layer.n << " channel "
          << static_cast<int64_t>(i) % p.layer.n << ": " << p.Describe();
    }
  }
}

void FillBoth(Choices& choices, Data data, ConvProblem& p) {
  p.Derive();
  p.layer.x.resize(static_cast<size_t>(p.batch * p.height * p.width * p.in_channels));
  p.layer.w.resize(static_cast<size_t>(p.layer.n * p.layer.k));
  Fill(choices, data, p.layer.x_type, false, p.layer.x);
  Fill(choices, data, p.layer.w_type, true, p.layer.w);
}

}  // namespace qualm::kernels::testing
