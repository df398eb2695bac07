// SPDX-License-Identifier: Apache-2.0
#include "core/io/layers.h"

#include <algorithm>
#include <utility>

#include "core/io/arrays.h"
#include "core/io/case_json.h"
#include "core/io/json_text.h"
#include "core/io/npy.h"
#include "core/status.h"

namespace qualm {
namespace {

// [OC,IC,R,S] -> [OC,R,S,IC].
Tensor ChannelsLast(const Tensor& w) {
  const std::vector<int64_t>& shape = w.shape();
  const int64_t taps = shape[2] * shape[3];
  Tensor result(w.dtype(), {shape[0], shape[2], shape[3], shape[1]});
  const auto copy = [&](auto from, auto to) {
    size_t at = 0;
    for (int64_t n = 0; n < shape[0]; ++n) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        for (int64_t c = 0; c < shape[1]; ++c) {
          to[at++] = from[static_cast<size_t>((n * shape[1] + c) * taps + tap)];
        }
      }
    }
  };
  if (w.dtype() == DType::kF32) {
    copy(w.as<float>(), result.as<float>());
  } else {
    copy(w.bytes(), result.bytes());
  }
  return result;
}

void SetConvolution(const Tensor& w, const LayerReading& reading, const std::string& where,
                    Case* c) {
  c->w = reading.channels_last ? w : ChannelsLast(w);
  const std::vector<int64_t>& shape = c->w.shape();
  c->N = shape[0];
  if (c->N % reading.groups != 0) {
    throw InputError(where + ": shape: has " + std::to_string(c->N) +
                     " output channels, expected a multiple of the groups");
  }
  Window& v = c->window;
  v.in_h = v.kernel_h = shape[1];
  v.in_w = v.kernel_w = shape[2];
  v.groups = reading.groups;
  v.in_c = shape[3] * v.groups;
  c->op = shape[3] == 1 && v.groups > 1 ? Op::kDepthwise : Op::kConv2d;
  DeriveSizes(c);
}

// dynamic_linear multiplies codes too, after it has chosen the scale of x.
Case LayerOfDynamic(const Case& c, const std::string& where) {
  Case layer = LayerOf(c.w, {}, where);
  layer.w_q = c.w_q;
  layer.per_channel = c.per_channel;
  layer.x = Tensor(c.observer.dtype, layer.x.shape());
  return layer;
}

}  // namespace

bool HasLayer(const Case& c) { return HasSums(c.op) || RowOf(c.op).dynamic; }

Case LayerOf(const Tensor& weights, const LayerReading& reading, const std::string& where) {
  if (!IsByteCode(weights.dtype()) && weights.dtype() != DType::kF32) {
    throw InputError(where + ": type: is " + std::string(Name(weights.dtype())) +
                     ", expected int8, uint8 or float32 weights");
  }
  if (weights.empty()) throw InputError(where + ": shape: has no element, expected weights");
  Case c;
  const std::vector<int64_t>& shape = weights.shape();
  if (shape.size() == 4) {
    SetConvolution(weights, reading, where, &c);
  } else if (shape.size() == 2 || shape.size() == 1) {
    c.N = shape.size() == 1 ? 1 : shape[0];
    c.K = shape.back();
    c.w = Tensor(weights.dtype(), {c.N, c.K});
    std::ranges::copy(weights.bytes(), c.w.bytes().begin());
  } else {
    throw InputError(where + ": shape: has " + std::to_string(shape.size()) +
                     " dimensions, expected 2 (linear) or 4 (convolution)");
  }
  c.x = Tensor(DType::kU8, ShapeOfX(c));
  if (c.w.dtype() == DType::kF32) return c;
  if (const std::string error = Validate(c); !error.empty()) throw InputError(where + ": " + error);
  return c;
}

std::vector<NamedLayer> ReadLayers(const std::string& path, const LayerReading& reading) {
  std::vector<NamedLayer> layers;
  if (path.ends_with(".npy")) {
    const Tensor array = ParseNpy(ReadBinaryFile(path, kMaxWeightFile), path);
    layers.push_back({"", LayerOf(array, reading, OneLine(path))});
  } else if (path.ends_with(".safetensors")) {
    const std::vector<NamedArray> arrays =
        ParseSafetensors(ReadBinaryFile(path, kMaxWeightFile), path);
    const auto is_layer = [](const NamedArray& array) {
      const size_t rank = array.values.shape().size();
      return (rank == 2 || rank == 4) && array.values.dtype() != DType::kS32;
    };
    // A quantized model keeps an array in 16 bits if it is not meant to be quantized.
    const bool quantized = std::ranges::any_of(arrays, [&](const NamedArray& array) {
      return is_layer(array) && IsByteCode(array.values.dtype());
    });
    for (const NamedArray& array : arrays) {
      if (!is_layer(array) || (array.half && quantized)) continue;
      layers.push_back(
          {array.name, LayerOf(array.values, reading, OneLine(path) + ": " + OneLine(array.name))});
    }
  } else if (path.ends_with(".onnx")) {
    layers = ReadOnnxFile(path);
  } else {
    Case c = ReadCaseFile(path);
    if (!HasLayer(c)) {
      throw InputError(path + ": op: is " + std::string(Name(c.op)) +
                       ", expected linear, conv2d, depthwise or dynamic_linear");
    }
    if (HasFloatX(c) || IsWideCode(c.x.dtype())) {
      throw InputError(path + ": x_dtype: is " + std::string(Name(c.x.dtype())) +
                       ", expected u8 or s8");
    }
    if (c.w_block != 0) {
      throw InputError(path + ": w_block: is " + std::to_string(c.w_block) +
                       ", expected weights without blocks");
    }
    layers.push_back({"", RowOf(c.op).dynamic ? LayerOfDynamic(c, path) : std::move(c)});
  }
  if (layers.empty()) {
    throw InputError(OneLine(path) +
                     ": file: holds no weights of linear layers or convolutions, "
                     "expected at least one");
  }
  return layers;
}

}  // namespace qualm
