// SPDX-License-Identifier: Apache-2.0
#include "kernels/sums/conv_testing.h"

#include <gtest/gtest.h>

namespace qualm::kernels::testing {
namespace {

WindowGeometry WithImage(const ConvProblem& p) {
  WindowGeometry window = p.window;
  window.in_h = p.height;
  window.in_w = p.width;
  return window;
}

size_t ImageElement(const ConvProblem& p, int64_t b, int64_t y, int64_t x, int64_t c) {
  const ConstImages images = ImagesAt(p, nullptr);
  return static_cast<size_t>(b * images.image_stride + y * images.row_stride +
                             x * images.pixel_stride + c);
}

}  // namespace

int64_t ConvProblem::OutHeight() const { return ConvOutputHeight(WithImage(*this)); }

int64_t ConvProblem::OutWidth() const { return ConvOutputWidth(WithImage(*this)); }

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

std::vector<int32_t> PlainOutputs(ConvProblem p) {
  p.pixel_gap = p.row_gap = p.image_gap = p.layer.w_gap = p.layer.y_gap = 0;
  return RunProblem(p);
}

void FillBoth(Choices& choices, Data data, ConvProblem& p) {
  p.Derive();
  p.layer.x.resize(static_cast<size_t>(p.batch * p.height * p.width * p.in_channels));
  p.layer.w.resize(static_cast<size_t>(p.layer.n * p.layer.k));
  Fill(choices, data, p.layer.x_type, p.layer.x);
  Fill(choices, data, p.layer.w_type, p.layer.w);
}

}  // namespace qualm::kernels::testing
