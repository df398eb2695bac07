// SPDX-License-Identifier: Apache-2.0
// What a graph computes, layer by layer. A layer says all that its cases need, in words that no
// file format owns: plan_onnx.cc and plan_tflite.cc fill it, cases.h reads it.
#ifndef QUALM_MODELS_PLAN_H_
#define QUALM_MODELS_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/io/model_graph.h"

namespace qualm::models {

// A value of codes and the values that say what they stand for. "": not there.
struct Operand {
  std::string codes, scale, zero_point;
  int64_t axis = 1;   // of a scale for each channel, or of blocks
  int64_t block = 0;  // how many along the axis share a scale: 0 for all

  bool is_there() const { return !codes.empty(); }
};

// What a layer's outputs are.
enum class Result : uint8_t { kCodes, kSums, kReals };

// The operations that become cases.
enum class Kind : uint8_t {
  kMatMul,
  kGemm,
  kFullyConnected,  // rows of x, of any shape, by a matrix
  kConv,
  kAdd,
  kSub,
  kMul,
  kAveragePool,
  kGlobalAveragePool,
  kMean,  // over any axes
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
  kWeightOnly,  // reals by weights that are dequantized
};

// Where a window goes: a number for each axis of the image, or none for the default of all.
struct Places {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> pads;  // before each axis, then behind each
  enum class Padding : uint8_t { kGiven, kNone, kSameUpper, kSameLower };
  Padding padding = Padding::kGiven;
  std::optional<int64_t> groups;  // else as the sizes of weights and image say
  bool ceil_mode = false, count_include_pad = false;
};

// The order of the axes of weights of a convolution.
enum class Filter : uint8_t { kOutInTaps, kOutTapsIn, kInTapsOut };

// A bound of reals before they are quantized: a number, or the value that has it.
struct Bound {
  std::optional<float> number = std::nullopt;
  std::string value = {};
};
struct Clip {
  bool relu = false;
  Bound low = {}, high = {};
};

// Weights of a few bits, packed in blocks.
struct FewBits {
  int64_t bits = 0, block = 0, k = 0, n = 0, level = 0;
};

// The accuracy_level of MatMulNBits that lets x be rounded to codes of 8 bits, in blocks.
inline constexpr int64_t kRoundsToCodes = 4;

// Of codes of 16 bits nothing else is a case.
constexpr bool TakesWideCodes(Kind kind) {
  switch (kind) {
    case Kind::kQuantize:
    case Kind::kDequantize:
    case Kind::kMatMul:
    case Kind::kGemm:
    case Kind::kFullyConnected:
    case Kind::kConv: return true;
    default: return false;
  }
}

struct Layer {
  Kind kind = Kind::kQuantize;
  const graph::Node* node = nullptr;  // the one that names it
  std::vector<Operand> operands;      // x and weights; a and b; all inputs of a concat
  // int32 or float. A bias that is dequantized has a scale.
  Operand bias;
  Operand out;  // `codes`: the value that the layer makes
  Result result = Result::kCodes;
  std::optional<int64_t> out_type;        // of codes, where `out` has no zero point that has it
  std::vector<const graph::Node*> moves;  // of kMoved, in order
  std::optional<Clip> clip;
  std::vector<const graph::Node*> inside;  // nodes that are not run because the layer is, in order

  Places window;
  bool channels_last = false;  // images are [batch, rows, columns, channels]
  Filter filter = Filter::kOutInTaps;
  bool a_turned = false, b_turned = false;  // products: the last two axes
  bool keeps_axes = true;                   // kFullyConnected, and means, whose axes are then 1
  std::string axes;                         // the value with the axes of a mean; "": of the image
  std::vector<int64_t> mean_axes;           // of kMean without `axes`; none: all
  std::optional<int64_t> axis;              // kSoftmax, kConcat
  float slope = 0.01f;                      // kLeakyRelu
  FewBits few_bits;                         // kMatMulNBits
  std::string refused;                      // why no case can say it

  std::string name() const;       // of the node, else of the value that it makes
  std::string operators() const;  // "DequantizeLinear, Conv, QuantizeLinear"
};

// A layer, or a node that is none.
struct Step {
  const graph::Node* node = nullptr;  // the last one of a layer
  bool is_layer = false;
  Layer layer;
};

// In the order of the graph. DequantizeLinear that only layers read is no step: layers read codes.
std::vector<Step> PlanOf(const graph::Graph& graph);

// A node as a layer by itself: a quantized operator. nullopt for others.
std::optional<Layer> LayerOfNode(const graph::Graph& graph, const graph::Node& node);

// DequantizeLinear of ONNX or of ONNX Runtime: reals that are not made where only layers read them.
bool IsDequantize(const graph::Node* node);

}  // namespace qualm::models

#endif  // QUALM_MODELS_PLAN_H_
