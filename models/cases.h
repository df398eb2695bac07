// SPDX-License-Identifier: Apache-2.0
// A layer of a graph as cases of qualm's operations.
#ifndef QUALM_MODELS_CASES_H_
#define QUALM_MODELS_CASES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/io/model_runtime.h"
#include "models/plan.h"

namespace qualm::models {

// A value of the graph by its name; null where it is not known.
using Lookup = std::function<const graph::Value*(const std::string&)>;

// One case of a layer. Most layers are one case; a product of batches is one for each, a
// concatenation one for each two inputs.
struct Part {
  Case c;
  // Of each output of the case its place in the value that the layer makes; empty: the same order.
  std::vector<int64_t> place;

  int64_t PlaceOf(int64_t i) const { return place.empty() ? i : place[static_cast<size_t>(i)]; }
};

struct Cases {
  std::vector<Part> parts;
  // Of a layer that multiplies reals, which a runtime may round to codes first: the other of the
  // two. `instead_is` says what it is where the model does not permit it.
  std::vector<Part> instead;
  std::string instead_is;
  bool turned = false;  // a block of weights has a scale below 0 in the model
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;  // of the value that the layer makes
  // What the layer makes besides: scale and zero point of DynamicQuantizeLinear.
  std::vector<std::pair<std::string, graph::Value>> besides;

  // The outputs of the parts, in their order, as one value.
  Tensor Assembled(const std::vector<Tensor>& outputs) const;
  // What of a whole value is the output of the part.
  Tensor PieceOf(const Tensor& whole, const Part& part) const;
};

// Whether what somebody gave for the case is judged by the contract sum, or sum+offsets.
inline bool JudgedBySums(const Case& c) { return HasFloatX(c) || c.x_block != 0; }

// Why a layer or a node is not computed: thrown and caught inside this folder.
struct NotRun {
  std::string why;
};

// The cases of the layer on the values that `of` gives. Throws NotRun where no case can say it.
Cases CasesOf(const graph::Graph& graph, const Layer& layer, const Lookup& of);

// The shape to which these are broadcast; nullopt if they do not fit.
std::optional<std::vector<int64_t>> Broadcast(const std::vector<int64_t>& a,
                                              const std::vector<int64_t>& b);
// For each element of `to` the element of a value of shape `from` that is broadcast there.
std::vector<int64_t> BroadcastPlaces(const std::vector<int64_t>& from,
                                     const std::vector<int64_t>& to);
// For each element of a value of this shape, transposed by `axes`, the element that it was.
std::vector<int64_t> TransposedPlaces(const std::vector<int64_t>& shape,
                                      const std::vector<int64_t>& axes);
// Elements of `from` at `places`, as a tensor of this shape.
Tensor Gathered(const Tensor& from, const std::vector<int64_t>& places, std::vector<int64_t> shape);
// Product of sizes. Throws NotRun where one is negative, or those that are not 0 make more than
// 2^28.
int64_t CountOf(const std::vector<int64_t>& shape);

}  // namespace qualm::models

#endif  // QUALM_MODELS_CASES_H_
