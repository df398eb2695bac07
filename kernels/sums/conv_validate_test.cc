// SPDX-License-Identifier: Apache-2.0
// Every precondition of convolutions: refused with a sentence, and nothing written. The rules that
// a linear layer has too are tested in linear_validate_test.cc; here, that they apply.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "kernels/conv.h"
#include "kernels/targets.h"

namespace qualm::kernels {
namespace {

// A valid layer: 6 output channels in 2 groups, 4 input channels, a window of 3 x 2.
struct Layer {
  std::vector<int8_t> w = std::vector<int8_t>(6 * 12, 3);
  std::vector<float> w_scale = {0.5f};
  std::vector<int32_t> w_zero = {1};
  ConvParams params;

  Layer() {
    params.layer.weights = {w.data(), ElementType::kS8, 6, 12, 12};
    params.layer.w_scale = w_scale;
    params.layer.w_zero_point = w_zero;
    params.in_channels = 4;
    params.groups = 2;
    params.window.kernel_h = 3;
    params.window.kernel_w = 2;
  }
};

void ExpectRefused(const std::string& expected_text,
                   const std::function<void(ConvParams&)>& spoil) {
  Layer layer;
  spoil(layer.params);
  PackedConv packed;
  const Status status = PackedConv::Pack(layer.params, &packed);
  EXPECT_FALSE(status.ok()) << expected_text;
  EXPECT_NE(status.error.find(expected_text), std::string::npos) << status.error;
  EXPECT_EQ(packed.ScratchBytes(1, 9, 9), 0u) << "something was packed";
}

void ExpectAccepted(const std::function<void(ConvParams&)>& change) {
  Layer layer;
  change(layer.params);
  PackedConv packed;
  const Status status = PackedConv::Pack(layer.params, &packed);
  EXPECT_TRUE(status.ok()) << status.error;
}

TEST(ConvPackValidation, RulesOfLinearLayersApply) {
  ExpectAccepted([](ConvParams&) {});
  ExpectRefused("weights", [](ConvParams& p) { p.layer.weights.data = nullptr; });
  ExpectRefused("weights.row_stride", [](ConvParams& p) { p.layer.weights.row_stride = 11; });
  ExpectRefused("input_type", [](ConvParams& p) { p.layer.input_type = ElementType::kS32; });
  ExpectRefused("x_scale", [](ConvParams& p) { p.layer.x_scale = 0; });
  ExpectRefused("w_scale", [](ConvParams& p) { p.layer.w_scale = {}; });
  ExpectRefused("bias_i32", [](ConvParams& p) {
    static const int32_t bias[5] = {};
    p.layer.bias_i32 = bias;
  });
  ExpectRefused("range", [](ConvParams& p) { p.layer.range = {.min = 10, .max = 9}; });
  Layer layer;
  EXPECT_FALSE(PackedConv::Pack(layer.params, nullptr).ok());
}

TEST(ConvPackValidation, Channels) {
  ExpectRefused("in_channels", [](ConvParams& p) { p.in_channels = -1; });
  ExpectRefused("weights.columns", [](ConvParams& p) { p.in_channels = 2; });
  ExpectRefused("weights.columns", [](ConvParams& p) { p.in_channels = 0; });
  ExpectRefused("groups", [](ConvParams& p) { p.groups = 0; });
  ExpectRefused("groups", [](ConvParams& p) { p.groups = -2; });
  ExpectRefused("groups", [](ConvParams& p) { p.groups = 3; });  // divides 6, not 4
  ExpectRefused("groups", [](ConvParams& p) { p.groups = 4; });  // divides 4, not 6
  ExpectRefused("weights.columns", [](ConvParams& p) { p.groups = 1; });
  ExpectRefused("weights.columns", [](ConvParams& p) {
    p.in_channels = INT64_MAX - 1;
    p.window.kernel_h = p.window.kernel_w = 1 << 30;
  });
  // Without input channels nothing contradicts these numbers.
  ExpectRefused("memory", [](ConvParams& p) {
    p.layer.weights = {nullptr, ElementType::kS8, INT64_MAX, 0, 0};
    p.in_channels = 0;
    p.groups = INT64_MAX;
  });
  ExpectAccepted([](ConvParams& p) {
    p.layer.weights = {nullptr, ElementType::kS8, 0, 12, 12};
    p.groups = 2;
  });
}

TEST(ConvPackValidation, Window) {
  using Field = int64_t WindowGeometry::*;
  const struct {
    const char* name;
    Field field;
    int64_t least;
  } fields[] = {{"kernel_h", &WindowGeometry::kernel_h, 1},
                {"kernel_w", &WindowGeometry::kernel_w, 1},
                {"stride_h", &WindowGeometry::stride_h, 1},
                {"stride_w", &WindowGeometry::stride_w, 1},
                {"pad_top", &WindowGeometry::pad_top, 0},
                {"pad_bottom", &WindowGeometry::pad_bottom, 0},
                {"pad_left", &WindowGeometry::pad_left, 0},
                {"pad_right", &WindowGeometry::pad_right, 0},
                {"dilation_h", &WindowGeometry::dilation_h, 1},
                {"dilation_w", &WindowGeometry::dilation_w, 1}};
  for (const auto& field : fields) {
    for (const int64_t bad : {field.least - 1, INT64_MIN, int64_t{1} << 31, INT64_MAX}) {
      ExpectRefused(field.name, [&](ConvParams& p) { p.window.*field.field = bad; });
    }
  }
  ExpectRefused("weights.columns", [](ConvParams& p) { p.window.kernel_h = 2; });
  ExpectAccepted([](ConvParams& p) { p.window.in_h = p.window.in_w = -5; });  // not looked at
}

class ConvRunValidation : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = PackedConv::Pack(layer_.params, &packed_);
    ASSERT_TRUE(status.ok()) << status.error;
  }

  void ExpectRefused(const std::string& expected_text, const ConstImages& x, const MutableMatrix& y,
                     std::span<uint8_t> scratch = {}) {
    const std::vector<uint8_t> before = buffer_;
    const Status status = packed_.Run(x, y, scratch);
    EXPECT_FALSE(status.ok()) << expected_text;
    EXPECT_NE(status.error.find(expected_text), std::string::npos) << status.error;
    EXPECT_EQ(buffer_, before) << "written on error: " << expected_text;
  }
  void ExpectRefusedImages(const std::string& expected_text,
                           const std::function<void(ConstImages&)>& spoil) {
    ConstImages x = X();
    spoil(x);
    ExpectRefused(expected_text, x, Y());
  }

  // x at 0: two images of 4 x 5 pixels; y at 1024: 2 * 2 * 4 pixels; scratch from 2048 on.
  ConstImages X() { return {buffer_.data(), ElementType::kU8, 2, 4, 5, 4, 80, 20, 4}; }
  MutableMatrix Y() { return {buffer_.data() + 1024, ElementType::kU8, 16, 6, 6}; }

  Layer layer_;
  PackedConv packed_;
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(200'000, 0xA5);
};

TEST_F(ConvRunValidation, Images) {
  EXPECT_TRUE(packed_.Run(X(), Y()).ok());
  ExpectRefusedImages("x", [](ConstImages& x) { x.type = ElementType::kS8; });
  ExpectRefusedImages("x.batch", [](ConstImages& x) { x.batch = -1; });
  ExpectRefusedImages("x.height", [](ConstImages& x) { x.height = -1; });
  ExpectRefusedImages("x.width", [](ConstImages& x) { x.width = -1; });
  ExpectRefusedImages("x.channels", [](ConstImages& x) { x.channels = -1; });
  ExpectRefusedImages("x.channels", [](ConstImages& x) { x.channels = 3; });
  ExpectRefusedImages("x.pixel_stride", [](ConstImages& x) { x.pixel_stride = 3; });
  ExpectRefusedImages("x.row_stride", [](ConstImages& x) { x.row_stride = 19; });
  ExpectRefusedImages("x.row_stride", [](ConstImages& x) { x.row_stride = -20; });
  ExpectRefusedImages("x.image_stride", [](ConstImages& x) { x.image_stride = 79; });
  ExpectRefusedImages("x.pixel_stride", [](ConstImages& x) { x.pixel_stride = INT64_MAX; });
  ExpectRefusedImages("x.row_stride", [](ConstImages& x) { x.row_stride = INT64_MAX; });
  ExpectRefusedImages("x.image_stride", [](ConstImages& x) { x.image_stride = INT64_MAX; });
  ExpectRefusedImages("x.data", [](ConstImages& x) { x.data = nullptr; });
  ExpectRefusedImages("in_h", [](ConstImages& x) {
    x.height = INT64_MAX;
    x.width = 0;
  });
  // The last image, row and pixel need no stride behind them: these end at their last channel.
  ConstImages x = X();
  x.pixel_stride = 9;
  x.row_stride = 4 * 9 + 4;
  x.image_stride = 3 * x.row_stride + 4 * 9 + 4;
  EXPECT_TRUE(packed_.Run(x, Y()).ok());
  ExpectRefused("x.image_stride", (x.image_stride -= 1, x), Y());
}

TEST_F(ConvRunValidation, Outputs) {
  MutableMatrix y = Y();
  ExpectRefused("y", X(), (y.type = ElementType::kS8, y));
  ExpectRefused("y.columns", X(), (y = Y(), y.columns = 5, y));
  ExpectRefused("y.rows", X(), (y = Y(), y.rows = 15, y));
  ExpectRefused("y.rows", X(), (y = Y(), y.rows = 17, y));
  ExpectRefused("y.row_stride", X(), (y = Y(), y.row_stride = 5, y));
  ExpectRefused("y.data", X(), (y = Y(), y.data = nullptr, y));
  layer_.params.layer.output_type = ElementType::kF32;
  ASSERT_TRUE(PackedConv::Pack(layer_.params, &packed_).ok());
  alignas(4) uint8_t aligned[16 * 6 * 4 + 4] = {};
  EXPECT_TRUE(packed_.Run(X(), {aligned, ElementType::kF32, 16, 6, 6}).ok());
  ExpectRefused("y.data", X(), {aligned + 1, ElementType::kF32, 16, 6, 6});
}

TEST_F(ConvRunValidation, OverlappingMemory) {
  MutableMatrix y = Y();
  ExpectRefused("overlaps", X(), (y.data = buffer_.data(), y));
  ExpectRefused("overlaps", X(), (y.data = buffer_.data() + 159, y));
  EXPECT_TRUE(packed_.Run(X(), (y.data = buffer_.data() + 160, y)).ok());
  // Interleaved pixels of equal stride, one element too close at either side.
  ConstImages x = X();
  x.pixel_stride = y.row_stride = 10;
  x.row_stride = 50;
  x.image_stride = 200;
  EXPECT_TRUE(packed_.Run(x, (y.data = buffer_.data() + 4, y)).ok());
  ExpectRefused("overlaps", x, (y.data = buffer_.data() + 3, y));
  ExpectRefused("overlaps", x, (y.data = buffer_.data() + 5, y));
  // With gaps between rows or images the pixels have no common stride.
  y.data = buffer_.data() + 4;
  ExpectRefused("overlaps", (x.image_stride = 210, x), y);
  x.row_stride = 60;
  ExpectRefused("overlaps", (x.image_stride = 240, x), y);

  const size_t bytes = packed_.ScratchBytes(2, 4, 5);
  ASSERT_LE(bytes, 190'000u);
  ExpectRefused("scratch overlaps x", X(), Y(), {buffer_.data() + 159, 1});
  ExpectRefused("scratch overlaps y", X(), Y(), {buffer_.data() + 1024, bytes});
  EXPECT_TRUE(packed_.Run(X(), Y(), {buffer_.data() + 2048, bytes}).ok());
}

TEST_F(ConvRunValidation, NothingPacked) {
  packed_ = PackedConv();
  ExpectRefused("Pack", X(), Y());
}

TEST_F(ConvRunValidation, AnotherTargetThanAtPacking) {
  const std::vector<std::string>& targets = SupportedTargets();
  ASSERT_GE(targets.size(), 2u);
  const ScopedTarget scoped(targets.back());
  ExpectRefused(targets.back(), X(), Y());
}

}  // namespace
}  // namespace qualm::kernels
