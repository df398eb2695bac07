// SPDX-License-Identifier: Apache-2.0
// What a graph computes, layer by layer: quantized operators, and groups of nodes that runtimes
// fuse into one (DequantizeLinear, a float operator, QuantizeLinear).
#ifndef QUALM_MODELS_PLAN_H_
#define QUALM_MODELS_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/io/onnx_graph.h"

namespace qualm::models {

// A value of codes and the values that say what they stand for. "": not there.
struct Operand {
  std::string codes, scale, zero_point;
  int64_t axis = 1;  // of a scale for each channel

  bool is_there() const { return !codes.empty(); }
};

// What a layer's outputs are.
enum class Result : uint8_t { kCodes, kSums, kReals };

// The operations that become cases.
enum class Kind : uint8_t {
  kMatMul,
  kGemm,
  kConv,
  kAdd,
  kSub,
  kMul,
  kAveragePool,
  kGlobalAveragePool,
  kMaxPool,
  kRelu,
  kLeakyRelu,
  kHardSwish,
  kSigmoid,
  kTanh,
  kSoftmax,
  kConcat,
  kQuantize,
  kDequantize,
  kRescale,
  kMoved,  // elements move, then a rescale
  kDynamicQuantize,
  kDynamicMatMul,
  kMatMulNBits,
};

struct Layer {
  Kind kind = Kind::kQuantize;
  const onnx::Node* node = nullptr;  // the one with the attributes
  std::vector<Operand> operands;     // x and weights; a and b; all inputs of a concat
  // int32 or float. A bias that is dequantized has a scale.
  Operand bias;
  Operand out;  // `codes`: the value that the layer makes
  Result result = Result::kCodes;
  std::vector<const onnx::Node*> moves;   // of kMoved, in order
  const onnx::Node* clip = nullptr;       // Relu or Clip that is part of the layer
  std::vector<const onnx::Node*> inside;  // nodes that are not run because the layer is, in order

  std::string name() const;       // of the node, else of the value that it makes
  std::string operators() const;  // "DequantizeLinear, Conv, QuantizeLinear"
};

// A layer, or a node that is none.
struct Step {
  const onnx::Node* node = nullptr;  // the last one of a layer
  bool is_layer = false;
  Layer layer;
};

// In the order of the graph. DequantizeLinear that only layers read is no step: layers read codes.
std::vector<Step> PlanOf(const onnx::Graph& graph);

// A node as a layer by itself: a quantized operator. nullopt for others.
std::optional<Layer> LayerOfNode(const onnx::Node& node);

// Whether the node moves the elements of its first input, and changes none.
bool IsMove(const onnx::Node& node);

// DequantizeLinear of ONNX or of ONNX Runtime.
bool IsDequantize(const onnx::Node* node);

}  // namespace qualm::models

#endif  // QUALM_MODELS_PLAN_H_
