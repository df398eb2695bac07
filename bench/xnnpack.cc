// SPDX-License-Identifier: Apache-2.0
// XNNPACK of 2022. Codes of layers are s8 where there is a scale per channel (convolutions), u8
// with one scale else. Operators are made once; each call sets up and runs, as a framework does.
#include <pthreadpool.h>
#include <xnnpack.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/bench.h"

namespace qualm::bench {
namespace {

using Operator = std::shared_ptr<xnn_operator>;

void Require(xnn_status status, const char* what) {
  if (status == xnn_status_success) return;
  std::fprintf(stderr, "qualm_bench: XNNPACK: %s: status %d\n", what, status);
  std::exit(1);
}

// create(..., &op) with all but the last argument.
template <class Create, class... Arguments>
Operator Make(const Create& create, const Arguments&... arguments) {
  xnn_operator_t op = nullptr;
  Require(create(arguments..., &op), "create");
  return {op, xnn_delete_operator};
}

void RunOn(const Operator& op, xnn_status setup) {
  Require(setup, "setup");
  Require(xnn_run_operator(op.get(), nullptr), "run");
}

Run PrepareLinear(const Linear& shape, bool packing_included) {
  const auto n = static_cast<size_t>(shape.n), k = static_cast<size_t>(shape.k);
  const auto make = [=, w = Codes(shape.n * shape.k, 2), bias = Sums(shape.n, 1000, 3)] {
    return Make(xnn_create_fully_connected_nc_qu8, k, n, k, n, uint8_t{kXZero}, kXScale,
                uint8_t{128}, WeightScale(0), w->data(), bias->data(), uint8_t{kYZero},
                LayerScale(shape.k), uint8_t{0}, uint8_t{255}, uint32_t{0});
  };
  const Operator made = make();
  return [=, m = static_cast<size_t>(shape.m), x = Codes(shape.m * shape.k, 1),
          y = Zeros<uint8_t>(shape.m * shape.n)] {
    const Operator op = packing_included ? make() : made;
    RunOn(op, xnn_setup_fully_connected_nc_qu8(op.get(), m, x->data(), y->data(), nullptr));
  };
}

Run PrepareConv(const Conv& shape) {
  const auto size = static_cast<size_t>(shape.size), channels = static_cast<size_t>(shape.channels);
  const auto outputs = static_cast<size_t>(shape.outputs);
  const auto pad = static_cast<uint32_t>(shape.padding), r = static_cast<uint32_t>(shape.kernel);
  const auto stride = static_cast<uint32_t>(shape.stride);
  const uint32_t groups = shape.depthwise ? static_cast<uint32_t>(channels) : 1;
  std::vector<float> scales;
  for (int64_t n = 0; n < shape.outputs; ++n) scales.push_back(WeightScale(n));
  const auto w = Weights(shape.outputs * shape.Depth(), 2);
  const auto bias = Sums(shape.outputs, 1000, 3);
  const auto x = Weights(shape.size * shape.size * shape.channels, 1);
  const auto y = Zeros<int8_t>(shape.OutSize() * shape.OutSize() * shape.outputs);
  // Depthwise kernels lie with the channels last.
  const uint32_t flags = shape.depthwise ? XNN_FLAG_DEPTHWISE_CONVOLUTION : 0;
  const Operator op =
      Make(xnn_create_convolution2d_nhwc_qc8, pad, pad, pad, pad, r, r, stride, stride, 1u, 1u,
           groups, channels / groups, outputs / groups, channels, outputs, int8_t{-15}, kXScale,
           scales.data(), w->data(), bias->data(), int8_t{kYZero}, LayerScale(shape.Depth()),
           int8_t{-128}, int8_t{127}, flags);
  return [=] {
    RunOn(op,
          xnn_setup_convolution2d_nhwc_qc8(op.get(), 1, size, size, x->data(), y->data(), nullptr));
  };
}

// Maxima, and means of whole images: u8 has no others.
Run PreparePool(const Pool& shape) {
  const auto size = static_cast<size_t>(shape.size), channels = static_cast<size_t>(shape.channels);
  const auto pad = static_cast<uint32_t>(shape.padding), k = static_cast<uint32_t>(shape.kernel);
  const auto stride = static_cast<uint32_t>(shape.stride);
  const auto x = Codes(shape.size * shape.size * shape.channels, 1);
  const auto y = Zeros<uint8_t>(shape.OutSize() * shape.OutSize() * shape.channels);
  if (shape.is_max) {
    const Operator op =
        Make(xnn_create_max_pooling2d_nhwc_u8, pad, pad, pad, pad, k, k, stride, stride, 1u, 1u,
             channels, channels, channels, uint8_t{0}, uint8_t{255}, uint32_t{0});
    return [=] {
      RunOn(op, xnn_setup_max_pooling2d_nhwc_u8(op.get(), 1, size, size, x->data(), y->data(),
                                                nullptr));
    };
  }
  const Operator op =
      Make(xnn_create_global_average_pooling_nwc_qu8, channels, channels, channels, uint8_t{kXZero},
           kXScale, uint8_t{kXZero}, kXScale, uint8_t{0}, uint8_t{255}, uint32_t{0});
  return [=] {
    RunOn(op, xnn_setup_global_average_pooling_nwc_qu8(op.get(), 1, size * size, x->data(),
                                                       y->data(), nullptr));
  };
}

constexpr size_t kOne = 1;  // channels, and the strides between rows of them

Run PrepareQuantize(int64_t n) {
  const Operator op = Make(xnn_create_convert_nc_f32_qu8, kOne, kOne, kOne, kXScale,
                           uint8_t{kXZero}, uint8_t{0}, uint8_t{255}, uint32_t{0});
  return [=, count = static_cast<size_t>(n), x = Reals(n, 1), y = Zeros<uint8_t>(n)] {
    RunOn(op, xnn_setup_convert_nc_f32_qu8(op.get(), count, x->data(), y->data(), nullptr));
  };
}

Run PrepareDequantize(int64_t n) {
  const Operator op =
      Make(xnn_create_convert_nc_qu8_f32, kOne, kOne, kOne, kXScale, uint8_t{kXZero}, uint32_t{0});
  return [=, count = static_cast<size_t>(n), x = Codes(n, 1), y = Zeros<float>(n)] {
    RunOn(op, xnn_setup_convert_nc_qu8_f32(op.get(), count, x->data(), y->data(), nullptr));
  };
}

template <class Create, class Setup>
Run PrepareBinary(int64_t n, const Create& create, const Setup& setup) {
  const Operator op = Make(create, uint8_t{kXZero}, kXScale, uint8_t{kBZero}, kBScale,
                           uint8_t{kYZero}, kYScale, uint8_t{0}, uint8_t{255}, uint32_t{0});
  return [=, a = Codes(n, 1), b = Codes(n, 2), y = Zeros<uint8_t>(n)] {
    const size_t shape[] = {static_cast<size_t>(n)};
    RunOn(op, setup(op.get(), 1, shape, 1, shape, a->data(), b->data(), y->data(), nullptr));
  };
}

Run PrepareTable(int64_t n) {
  const Operator op = Make(xnn_create_sigmoid_nc_qu8, kOne, kOne, kOne, uint8_t{kXZero}, kXScale,
                           uint8_t{0}, 1.0f / 256, uint8_t{0}, uint8_t{255}, uint32_t{0});
  return [=, count = static_cast<size_t>(n), x = Codes(n, 1), y = Zeros<uint8_t>(n)] {
    RunOn(op, xnn_setup_sigmoid_nc_qu8(op.get(), count, x->data(), y->data(), nullptr));
  };
}

void JoinElements(int64_t n) {
  const std::string size = "/" + std::to_string(n);
  const auto items = static_cast<double>(n);
  for (const char* work : {"quantize", "quantize-ties"}) {  // its speed does not depend on ties
    Join(work + size, "xnnpack(reciprocal)", items, [=] { return PrepareQuantize(n); });
  }
  Join("dequantize" + size, "xnnpack", items, [=] { return PrepareDequantize(n); });
  Join("add" + size, "xnnpack", items,
       [=] { return PrepareBinary(n, xnn_create_add_nd_qu8, xnn_setup_add_nd_qu8); });
  Join("mul" + size, "xnnpack", items,
       [=] { return PrepareBinary(n, xnn_create_multiply_nd_qu8, xnn_setup_multiply_nd_qu8); });
  Join("table" + size, "xnnpack", items, [=] { return PrepareTable(n); });
}

}  // namespace

void JoinXnnpack() {
  Require(xnn_initialize(nullptr), "initialize");
  for (const Linear& shape : kLinear) {
    Join("linear/" + shape.Name(), "xnnpack(per-tensor)", shape.Items(),
         [=] { return PrepareLinear(shape, false); });
    Join("linear-with-packing/" + shape.Name(), "xnnpack(per-tensor)", shape.Items(),
         [=] { return PrepareLinear(shape, true); });
  }
  for (const NamedLinear& row : kSweep) {
    Join(row.name, "xnnpack(per-tensor)", row.shape.Items(),
         [=] { return PrepareLinear(row.shape, false); });
  }
  for (const Conv& shape : kConv) {
    Join(std::string("conv/") + shape.name, "xnnpack(s8)", shape.Items(),
         [=] { return PrepareConv(shape); });
  }
  for (const Pool& shape : kPool) {
    if (!shape.is_max && shape.kernel != shape.size) continue;
    Join(std::string("pool/") + shape.name, "xnnpack", shape.Items(),
         [=] { return PreparePool(shape); });
  }
  for (const int64_t n : kElements) JoinElements(n);
}

}  // namespace qualm::bench
