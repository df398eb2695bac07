// SPDX-License-Identifier: Apache-2.0
// The layers of a weight file as cases without rows or images: weights, window, and the scales and
// zero points that the file gives.
#ifndef QUALM_CORE_IO_LAYERS_H_
#define QUALM_CORE_IO_LAYERS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"

namespace qualm {

struct NamedLayer {
  std::string name;  // "" for the only array of a file
  // linear, conv2d or depthwise. Weights of f32 are not quantized yet: no operation takes them.
  Case layer;
};

// Whether the operation multiplies weights: linear, convolutions, dynamic_linear.
bool HasLayer(const Case& c);

struct LayerReading {
  int64_t groups = 1;  // of convolutions in .npy and .safetensors, which do not say
  bool channels_last =
      false;  // convolutions are [OC,R,S,IC/groups], not PyTorch's [OC,IC/groups,R,S]
};

// The layer of an array: [N,K] is a linear, four dimensions are a convolution, one is a linear of
// one channel. Throws InputError "WHERE: shape: ...".
Case LayerOf(const Tensor& weights, const LayerReading& reading, const std::string& where);

// The weights of QLinearConv, QLinearMatMul, QGemm, ConvInteger and MatMulInteger, and those that
// reach Conv, MatMul and Gemm through DequantizeLinear, in the order of the graph: initializers of
// int8 or uint8. Throws InputError "NAME: FIELD: what, expected what".
std::vector<NamedLayer> ParseOnnx(std::string_view bytes, std::string_view name);
// The layers of a file, whose initializers may lie in other files of its folder (external_data).
std::vector<NamedLayer> ReadOnnxFile(const std::string& path);

// The layers of a .npy, .safetensors or .onnx file, or of a case file. Of arrays with names those
// of two or four dimensions. Throws InputError also where there is none.
std::vector<NamedLayer> ReadLayers(const std::string& path, const LayerReading& reading);

}  // namespace qualm

#endif  // QUALM_CORE_IO_LAYERS_H_
