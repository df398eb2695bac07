// SPDX-License-Identifier: Apache-2.0
// A quantized linear layer of one row, two inputs and three outputs: pack once, run.
#include <qualm/kernels/linear.h>

#include <array>
#include <cstdint>
#include <cstdio>

using namespace qualm::kernels;

int main() {
  // The first output is the sum of the README: 129 * 127 + 132 * 127 = 33147, which a saturating
  // int16 cannot hold; times 1 / 256 it is 129.48.
  const std::array<uint8_t, 2> x{129, 132};
  const std::array<int8_t, 6> w{127, 127, -128, 1, 127, 126};
  const std::array<float, 3> w_scale{1.0f, 1.0f, 3.0f};
  const std::array<int32_t, 1> w_zero_point{0};
  std::array<uint8_t, 3> y{};

  PackedLinear layer;
  Status status = PackedLinear::Pack({.weights = {w.data(), ElementType::kS8, 3, 2, 2},
                                      .x_scale = 1.0f,
                                      .w_scale = w_scale,
                                      .w_zero_point = w_zero_point,
                                      .y_scale = 256.0f},
                                     &layer);
  if (status.ok()) {
    status =
        layer.Run({x.data(), ElementType::kU8, 1, 2, 2}, {y.data(), ElementType::kU8, 1, 3, 3});
  }
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.error.c_str());
    return 1;
  }
  std::printf("y = %d %d %d\n", y[0], y[1], y[2]);
}
