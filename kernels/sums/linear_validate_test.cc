// SPDX-License-Identifier: Apache-2.0
// Every precondition of the linear layer: refused with a sentence, and nothing written.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "kernels/targets.h"

namespace qualm::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A valid layer of 2 channels and K = 3, and a valid run of 2 rows.
struct Layer {
  std::vector<int8_t> w = {1, 2, 3, 4, 5, 6};
  std::vector<float> w_scale = {0.5f, 0.25f};
  std::vector<int32_t> w_zero = {0, 1};
  std::vector<float> bias;
  std::vector<int32_t> bias_i32;
  LinearParams params;

  Layer() { Refresh(); }
  void Refresh() {
    params.weights = {w.data(), ElementType::kS8, 2, 3, 3};
    params.w_scale = w_scale;
    params.w_zero_point = w_zero;
    params.bias = bias;
    params.bias_i32 = bias_i32;
  }
};

void ExpectRefused(const std::string& expected_text, const std::function<void(Layer&)>& spoil) {
  Layer layer;
  spoil(layer);
  PackedLinear packed;
  const Status status = PackedLinear::Pack(layer.params, &packed);
  EXPECT_FALSE(status.ok()) << expected_text;
  EXPECT_NE(status.error.find(expected_text), std::string::npos) << status.error;
  EXPECT_EQ(packed.stats().panels, 0) << "something was packed";
}

void ExpectAccepted(const std::function<void(Layer&)>& change) {
  Layer layer;
  change(layer);
  PackedLinear packed;
  const Status status = PackedLinear::Pack(layer.params, &packed);
  EXPECT_TRUE(status.ok()) << status.error;
}

TEST(LinearPackValidation, Weights) {
  ExpectAccepted([](Layer&) {});
  ExpectRefused("weights", [](Layer& l) { l.params.weights.type = ElementType::kS32; });
  ExpectRefused("weights", [](Layer& l) { l.params.weights.type = ElementType::kF32; });
  ExpectRefused("weights.rows", [](Layer& l) { l.params.weights.rows = -1; });
  ExpectRefused("weights.columns", [](Layer& l) { l.params.weights.columns = -1; });
  ExpectRefused("weights.row_stride", [](Layer& l) { l.params.weights.row_stride = 2; });
  ExpectRefused("weights.row_stride", [](Layer& l) { l.params.weights.row_stride = -3; });
  ExpectRefused("weights.data", [](Layer& l) { l.params.weights.data = nullptr; });
  ExpectRefused("weights", [](Layer& l) { l.params.weights.row_stride = INT64_MAX; });
  ExpectRefused("weights", [](Layer& l) {
    l.params.weights.rows = INT64_MAX / 2;
    l.params.w_scale = std::span(l.w_scale).first(1);
    l.params.w_zero_point = std::span(l.w_zero).first(1);
  });
  ExpectRefused("input_type", [](Layer& l) { l.params.input_type = ElementType::kS32; });
  ExpectRefused("input_type", [](Layer& l) { l.params.input_type = ElementType::kF32; });
  // K = 0 needs no weights, so that nothing contradicts this number of channels.
  ExpectRefused("memory", [](Layer& l) {
    l.params.weights = {nullptr, ElementType::kS8, INT64_MAX, 0, 0};
    l.params.w_scale = std::span(l.w_scale).first(1);
    l.params.w_zero_point = std::span(l.w_zero).first(1);
  });
  Layer layer;
  EXPECT_FALSE(PackedLinear::Pack(layer.params, nullptr).ok());
}

TEST(LinearPackValidation, QuantizationParameters) {
  for (const float bad : {0.0f, -0.0f, -1.0f, kInf, -kInf, kNaN}) {
    ExpectRefused("x_scale", [&](Layer& l) { l.params.x_scale = bad; });
    ExpectRefused("w_scale[1]", [&](Layer& l) { l.w_scale[1] = bad; });
    ExpectRefused("y_scale", [&](Layer& l) { l.params.y_scale = bad; });
    // Without codes there is no output scale to look at.
    ExpectAccepted([&](Layer& l) {
      l.params.output_type = ElementType::kF32;
      l.params.y_scale = bad;
    });
  }
  const float smallest = std::numeric_limits<float>::denorm_min();
  ExpectAccepted([&](Layer& l) { l.params.x_scale = l.params.y_scale = smallest; });
  ExpectRefused("w_scale", [](Layer& l) { l.params.w_scale = {}; });
  ExpectRefused("w_zero_point", [](Layer& l) { l.params.w_zero_point = {}; });
  std::vector<float> three_scales(3, 1.0f);
  std::vector<int32_t> three_zeros(3, 1);
  ExpectRefused("w_scale", [&](Layer& l) { l.params.w_scale = three_scales; });
  ExpectRefused("w_zero_point", [&](Layer& l) { l.params.w_zero_point = three_zeros; });
  ExpectAccepted([](Layer& l) {
    l.params.w_scale = std::span(l.w_scale).first(1);
    l.params.w_zero_point = std::span(l.w_zero).first(1);
  });
  ExpectAccepted([](Layer& l) {
    l.params.x_zero_point = INT32_MIN;
    l.params.y_zero_point = INT32_MAX;
    l.w_zero[0] = INT32_MIN;
  });
}

TEST(LinearPackValidation, Bias) {
  for (const float bad : {kInf, -kInf, kNaN}) {
    ExpectRefused("bias[1]", [&](Layer& l) {
      l.bias = {1.0f, bad};
      l.Refresh();
    });
  }
  ExpectRefused("bias", [](Layer& l) {
    l.bias = {1.0f};
    l.Refresh();
  });
  ExpectRefused("bias_i32", [](Layer& l) {
    l.bias_i32 = {1, 2, 3};
    l.Refresh();
  });
  ExpectRefused("bias and bias_i32", [](Layer& l) {
    l.bias = {1.0f, 1.0f};
    l.bias_i32 = {1, 2};
    l.Refresh();
  });
  ExpectRefused("bias", [](Layer& l) {
    l.bias = {1.0f, 1.0f};
    l.Refresh();
    l.params.output_type = ElementType::kS32;
  });
  ExpectAccepted([](Layer& l) {
    l.bias_i32 = {INT32_MIN, INT32_MAX};
    l.Refresh();
    l.params.output_type = ElementType::kS32;
  });
}

TEST(LinearPackValidation, Outputs) {
  ExpectRefused("output_type",
                [](Layer& l) { l.params.output_type = static_cast<ElementType>(17); });
  ExpectRefused("range", [](Layer& l) { l.params.range = {.min = 10, .max = 9}; });
  ExpectRefused("range", [](Layer& l) { l.params.range = {.min = 256, .max = 300}; });
  ExpectRefused("range", [](Layer& l) { l.params.range = {.min = -9, .max = -1}; });
  ExpectRefused("range", [](Layer& l) {
    l.params.output_type = ElementType::kF32;
    l.params.range.min = 0;
  });
  ExpectAccepted([](Layer& l) { l.params.range = {.min = -9, .max = 0}; });
  ExpectAccepted([](Layer& l) {
    l.params.output_type = ElementType::kF32;
    l.params.range.relu = true;
  });
}

class RunValidation : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = PackedLinear::Pack(layer_.params, &packed_);
    ASSERT_TRUE(status.ok()) << status.error;
  }

  void ExpectRefused(const std::string& expected_text, const ConstMatrix& x, const MutableMatrix& y,
                     std::span<uint8_t> scratch = {}) {
    const std::vector<uint8_t> before = buffer_;
    const Status status = packed_.Run(x, y, scratch);
    EXPECT_FALSE(status.ok()) << expected_text;
    EXPECT_NE(status.error.find(expected_text), std::string::npos) << status.error;
    EXPECT_EQ(buffer_, before) << "written on error: " << expected_text;
  }

  // x at 0, y at 512, scratch from 1024 on.
  ConstMatrix X() { return {buffer_.data(), ElementType::kU8, 2, 3, 3}; }
  MutableMatrix Y() { return {buffer_.data() + 512, ElementType::kU8, 2, 2, 2}; }

  Layer layer_;
  PackedLinear packed_;
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(65536, 0xA5);
};

TEST_F(RunValidation, ShapesAndTypes) {
  EXPECT_TRUE(packed_.Run(X(), Y()).ok());
  ConstMatrix x = X();
  MutableMatrix y = Y();
  ExpectRefused("x", (x.type = ElementType::kS8, x), y);
  ExpectRefused("x", (x = X(), x.type = ElementType::kF32, x), y);
  ExpectRefused("x", (x = X(), x.columns = 2, x), y);
  ExpectRefused("x.rows", (x = X(), x.rows = -1, x), y);
  ExpectRefused("x.row_stride", (x = X(), x.row_stride = 2, x), y);
  ExpectRefused("x", (x = X(), x.row_stride = INT64_MAX, x), y);
  ExpectRefused("x.data", (x = X(), x.data = nullptr, x), y);
  x = X();
  ExpectRefused("y", x, (y.type = ElementType::kS8, y));
  ExpectRefused("y", x, (y = Y(), y.type = ElementType::kF32, y));
  ExpectRefused("y", x, (y = Y(), y.columns = 1, y));
  ExpectRefused("y", x, (y = Y(), y.rows = 1, y));
  ExpectRefused("y.row_stride", x, (y = Y(), y.row_stride = 1, y));
  ExpectRefused("y.data", x, (y = Y(), y.data = nullptr, y));
}

TEST_F(RunValidation, OverlappingMemory) {
  const ConstMatrix x = X();
  MutableMatrix y = Y();
  ExpectRefused("overlaps", x, (y.data = buffer_.data(), y));
  ExpectRefused("overlaps", x, (y.data = buffer_.data() + 5, y));
  // Interleaved rows of equal stride, one element too close at either side.
  ConstMatrix wide = x;
  wide.row_stride = y.row_stride = 5;
  y.data = buffer_.data() + 3;
  EXPECT_TRUE(packed_.Run(wide, y).ok());
  ExpectRefused("overlaps", wide, (y.data = buffer_.data() + 2, y));
  ExpectRefused("overlaps", wide, (y.data = buffer_.data() + 4, y));
  const size_t bytes = packed_.ScratchBytes(2);
  ASSERT_LE(bytes, 60000u);
  ExpectRefused("scratch overlaps x", x, Y(), {buffer_.data(), bytes});
  ExpectRefused("scratch overlaps y", x, Y(), {buffer_.data() + 514, bytes});
  EXPECT_TRUE(packed_.Run(x, Y(), {buffer_.data() + 1024, bytes}).ok());
}

TEST_F(RunValidation, MisalignedOutputs) {
  layer_.params.output_type = ElementType::kF32;
  ASSERT_TRUE(PackedLinear::Pack(layer_.params, &packed_).ok());
  alignas(4) uint8_t y[32] = {};
  EXPECT_TRUE(packed_.Run(X(), {y, ElementType::kF32, 2, 2, 2}).ok());
  ExpectRefused("y.data", X(), {y + 1, ElementType::kF32, 2, 2, 2});
}

TEST_F(RunValidation, NothingPacked) {
  packed_ = PackedLinear();
  ExpectRefused("Pack", X(), Y());
}

TEST_F(RunValidation, AnotherTargetThanAtPacking) {
  const std::vector<std::string>& targets = SupportedTargets();
  ASSERT_GE(targets.size(), 2u);
  const ScopedTarget scoped(targets.back());
  ExpectRefused(targets.back(), X(), Y());
}

}  // namespace
}  // namespace qualm::kernels
