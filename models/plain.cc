// SPDX-License-Identifier: Apache-2.0
#include "models/plain.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/io/arrays.h"

namespace qualm::models {
namespace {

using graph::Node;
using graph::Value;
using Shape = std::vector<int64_t>;
using Places = std::vector<int64_t>;

[[noreturn]] void Refuse(const std::string& why) { throw NotRun{why}; }
void Require(bool holds, const std::string& why) {
  if (!holds) Refuse(why);
}

// Elements of a value of any type.
Value Moved(const Value& from, const Places& places, Shape shape) {
  if (from.holds_tensor()) return Value::Of(Gathered(from.tensor, places, std::move(shape)));
  std::vector<int64_t> integers;
  for (const int64_t place : places) integers.push_back(from.integers[static_cast<size_t>(place)]);
  return Value::Of(from.type, std::move(shape), std::move(integers));
}

Value Reshaped(const Value& from, Shape shape) {
  Require(CountOf(shape) == from.size(), "its shapes have different numbers of elements");
  Places places(static_cast<size_t>(from.size()));
  std::iota(places.begin(), places.end(), 0);
  return Moved(from, places, std::move(shape));
}

class Plain {
 public:
  Plain(const graph::Graph& graph, const Node& node, const Lookup& of)
      : graph_(graph), node_(node), of_(of) {}

  std::vector<Value> Run() {
    struct Row {
      std::string_view op;
      std::vector<Value> (Plain::*run)();
    };
    static constexpr std::array kRows{
        Row{"Identity", &Plain::Identity},
        Row{"Dropout", &Plain::Identity},
        Row{"Reshape", &Plain::Reshape},
        Row{"Flatten", &Plain::Flatten},
        Row{"Squeeze", &Plain::Squeeze},
        Row{"Unsqueeze", &Plain::Unsqueeze},
        Row{"Transpose", &Plain::Transpose},
        Row{"Concat", &Plain::Concat},
        Row{"Slice", &Plain::Slice},
        Row{"Split", &Plain::Split},
        Row{"Gather", &Plain::Gather},
        Row{"Expand", &Plain::Expand},
        Row{"Shape", &Plain::ShapeNode},
        Row{"Constant", &Plain::Constant},
        Row{"Cast", &Plain::Cast},
        Row{"Relu", &Plain::Relu},
        Row{"Clip", &Plain::Clip},
        Row{"Add", &Plain::Arithmetic},
        Row{"Sub", &Plain::Arithmetic},
        Row{"Mul", &Plain::Arithmetic},
        Row{"Div", &Plain::Arithmetic},
        Row{"DequantizeLinear", &Plain::Dequantize},
        // TensorFlow Lite's
        Row{"RESHAPE", &Plain::Reshape},
        Row{"SQUEEZE", &Plain::Squeeze},
        Row{"EXPAND_DIMS", &Plain::Unsqueeze},
        Row{"TRANSPOSE", &Plain::Transpose},
        Row{"SLICE", &Plain::SizedSlice},
        Row{"STRIDED_SLICE", &Plain::StridedSlice},
        Row{"SPLIT", &Plain::EvenSplit},
        Row{"SPLIT_V", &Plain::SizedSplit},
        Row{"PACK", &Plain::Pack},
        Row{"UNPACK", &Plain::Unpack},
        Row{"GATHER", &Plain::Gather},
        Row{"BROADCAST_TO", &Plain::Expand},
        Row{"CONCATENATION", &Plain::JoinIntegers},
        Row{"SHAPE", &Plain::ShapeNode},
        Row{"REDUCE_PROD", &Plain::ProductOfSizes},
        Row{"PAD", &Plain::Pad},
    };
    const auto* const row = std::ranges::find(kRows, node_.op, &Row::op);
    Require(row != kRows.end() && (node_.domain.empty() || IsDequantize(&node_)), Operator());
    return (this->*row->run)();
  }

 private:
  std::string Operator() const {
    return "operator " + (node_.domain.empty() ? "" : node_.domain + " ") + node_.op;
  }
  const Value& Input(int at) const {
    const std::string name = node_.Input(at);
    const Value* const value = name.empty() ? nullptr : of_(name);
    if (value == nullptr) Refuse("its input " + name + " is not known");
    return *value;
  }
  bool Has(int at) const { return !node_.Input(at).empty(); }
  std::vector<int64_t> Integers(int at) const {
    const Value& value = Input(at);
    if (value.type == graph::kInt32) {
      const std::span<const int32_t> elements = value.tensor.as<int32_t>();
      return {elements.begin(), elements.end()};
    }
    Require(value.type == graph::kInt64,
            node_.Input(at) + " is of " + graph::TypeName(value.type) + ", expected int64");
    return value.integers;
  }
  // An input of newer operators, an attribute of older ones.
  std::vector<int64_t> List(int at, std::string_view key) const {
    if (const graph::Attribute* const given = node_.Find(key)) return given->integers;
    return Has(at) ? Integers(at) : std::vector<int64_t>{};
  }
  size_t AxisOf(int64_t axis, size_t rank) const {
    const auto n = static_cast<int64_t>(rank);
    Require(axis >= -n && axis < n, "its axis is " + std::to_string(axis));
    return static_cast<size_t>(axis < 0 ? axis + n : axis);
  }

  // ---- The same elements ----

  std::vector<Value> Identity() {
    Require(node_.Output(1).empty(), Operator() + " with a mask");
    return {Input(0)};
  }

  std::vector<Value> Reshape() {
    const Value& x = Input(0);
    const bool lite = node_.op == "RESHAPE";
    Shape shape = !lite ? List(1, "shape") : Has(1) ? Integers(1) : List(-1, "new_shape");
    const bool keeps_zero = lite || node_.Integer("allowzero", 0) != 0;
    int64_t known = 1;
    std::optional<size_t> open;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] == 0 && !keeps_zero) {
        Require(i < x.shape.size(), "its shape has more sizes to keep than there are");
        shape[i] = x.shape[i];
      }
      if (shape[i] == -1) {
        Require(!open, "its shape has two open sizes");
        open = i;
        continue;
      }
      known = CountOf({known, shape[i]});
    }
    if (open) {
      Require(known != 0 && x.size() % known == 0, "its shape does not fit the elements");
      shape[*open] = x.size() / known;
    }
    return {Reshaped(x, shape)};
  }

  std::vector<Value> Flatten() {
    const Value& x = Input(0);
    int64_t axis = node_.Integer("axis", 1);
    if (axis < 0) axis += std::ssize(x.shape);
    Require(axis >= 0 && axis <= std::ssize(x.shape), "its axis is " + std::to_string(axis));
    const auto middle = x.shape.begin() + axis;
    return {Reshaped(x, {CountOf({x.shape.begin(), middle}), CountOf({middle, x.shape.end()})})};
  }

  std::vector<Value> Squeeze() {
    const Value& x = Input(0);
    std::vector<bool> drop(x.shape.size(), false);
    const std::vector<int64_t> axes =
        node_.op == "SQUEEZE" ? List(-1, "squeeze_dims") : List(1, "axes");
    for (const int64_t axis : axes) drop[AxisOf(axis, x.shape.size())] = true;
    Shape shape;
    for (size_t i = 0; i < x.shape.size(); ++i) {
      if (axes.empty() ? x.shape[i] != 1 : !drop[i]) shape.push_back(x.shape[i]);
    }
    return {Reshaped(x, shape)};
  }

  std::vector<Value> Unsqueeze() {
    const Value& x = Input(0);
    const std::vector<int64_t> axes = List(1, "axes");
    Shape shape(x.shape.size() + axes.size(), 0);
    for (const int64_t axis : axes) shape[AxisOf(axis, shape.size())] = 1;
    auto next = x.shape.begin();
    for (int64_t& size : shape) {
      if (size == 1) continue;
      Require(next != x.shape.end(), "its axes name one twice");
      size = *next++;
    }
    return {Reshaped(x, shape)};
  }

  // ---- Moved elements ----

  std::vector<Value> Transpose() {
    const Value& x = Input(0);
    std::vector<int64_t> axes = List(1, "perm");
    if (axes.empty()) {
      for (size_t i = x.shape.size(); i-- > 0;) axes.push_back(static_cast<int64_t>(i));
    }
    Require(axes.size() == x.shape.size(), "its perm has another length");
    Shape shape;
    std::vector<bool> seen(axes.size(), false);
    for (int64_t& axis : axes) {
      const size_t at = AxisOf(axis, axes.size());
      Require(!seen[at], "its perm names an axis twice");
      seen[at] = true;
      axis = static_cast<int64_t>(at);
      shape.push_back(x.shape[at]);
    }
    return {Moved(x, TransposedPlaces(x.shape, axes), shape)};
  }

  // Places [begin, begin + step, ...) along one axis.
  static Value Along(const Value& x, size_t axis, const Places& chosen) {
    const auto middle = x.shape.begin() + static_cast<std::ptrdiff_t>(axis);
    const int64_t outer = CountOf({x.shape.begin(), middle});
    const int64_t inner = CountOf({middle + 1, x.shape.end()});
    Shape shape = x.shape;
    shape[axis] = std::ssize(chosen);
    CountOf(shape);
    Places places;
    for (int64_t o = 0; o < outer; ++o) {
      for (const int64_t place : chosen) {
        for (int64_t i = 0; i < inner; ++i)
          places.push_back((o * x.shape[axis] + place) * inner + i);
      }
    }
    return Moved(x, places, shape);
  }
  static Places Counted(int64_t begin, int64_t count) {
    Places places(static_cast<size_t>(count));
    std::iota(places.begin(), places.end(), begin);
    return places;
  }

  std::vector<Value> Concat() {
    std::vector<const Value*> all;
    for (int i = 0; i < static_cast<int>(node_.inputs.size()); ++i) all.push_back(&Input(i));
    return {Joined(all)};
  }
  Value Joined(const std::vector<const Value*>& all) const {
    Require(!all.empty() && !all[0]->shape.empty(), "it has nothing to join");
    const size_t axis = AxisOf(node_.Integer("axis", 0), all[0]->shape.size());
    Shape shape = all[0]->shape;
    shape[axis] = 0;
    for (const Value* const one : all) {
      Shape other = one->shape;
      Require(other.size() == shape.size() && one->type == all[0]->type,
              "its inputs differ in type or dimensions");
      shape[axis] += std::exchange(other[axis], shape[axis]);
      other[axis] = shape[axis];
      Require(other == shape, "its inputs differ in more than the axis");
    }
    CountOf(shape);
    const auto middle = shape.begin() + static_cast<std::ptrdiff_t>(axis);
    const int64_t outer = CountOf({shape.begin(), middle});
    const int64_t inner = CountOf({middle + 1, shape.end()});
    Value y = *all[0];
    y.shape = shape;
    if (y.holds_tensor()) y.tensor = Tensor(all[0]->tensor.dtype(), shape);
    y.integers.assign(y.holds_tensor() ? 0 : static_cast<size_t>(CountOf(shape)), 0);
    int64_t begin = 0;
    for (const Value* const one : all) {
      const int64_t width = one->shape[axis] * inner;
      for (int64_t o = 0; o < outer; ++o) {
        const int64_t to = o * shape[axis] * inner + begin;
        if (y.holds_tensor()) {
          y.tensor.CopyFrom(one->tensor, o * width, width, to);
        } else {
          std::copy_n(one->integers.begin() + o * width, width, y.integers.begin() + to);
        }
      }
      begin += width;
    }
    return y;
  }

  std::vector<Value> Slice() {
    Value x = Input(0);
    const std::vector<int64_t> starts = List(1, "starts"), ends = List(2, "ends");
    std::vector<int64_t> axes = List(3, "axes"), steps = List(4, "steps");
    if (axes.empty()) axes = Counted(0, std::ssize(starts));
    if (steps.empty()) steps.assign(starts.size(), 1);
    Require(ends.size() == starts.size() && axes.size() == starts.size() &&
                steps.size() == starts.size(),
            "its lists differ in length");
    for (size_t i = 0; i < axes.size(); ++i) {
      const size_t axis = AxisOf(axes[i], x.shape.size());
      const int64_t size = x.shape[axis], step = steps[i];
      constexpr int64_t kMost = int64_t{1} << 28;
      Require(step != 0 && step >= -kMost && step <= kMost,
              "it has a step of " + std::to_string(step));
      const auto clamped = [&](int64_t at, int64_t low, int64_t high) {
        if (at < 0) at = at < -size ? low : at + size;
        return std::clamp(at, low, high);
      };
      const int64_t begin =
          step > 0 ? clamped(starts[i], 0, size) : clamped(starts[i], -1, size - 1);
      const int64_t end = step > 0 ? clamped(ends[i], 0, size) : clamped(ends[i], -1, size - 1);
      Places chosen;
      for (int64_t at = begin; step > 0 ? at < end : at > end; at += step) {
        if (at >= 0) chosen.push_back(at);
      }
      x = Along(x, axis, chosen);
    }
    return {std::move(x)};
  }

  std::vector<Value> Split() {
    const Value& x = Input(0);
    const size_t axis = AxisOf(node_.Integer("axis", 0), x.shape.size());
    std::vector<int64_t> sizes = List(1, "split");
    const auto parts = std::ssize(node_.outputs);
    if (sizes.empty() && parts > 0) {
      const int64_t each = (x.shape[axis] + parts - 1) / parts;
      for (int64_t left = x.shape[axis], i = 0; i < parts; ++i, left -= sizes.back())
        sizes.push_back(std::min(each, left));
    }
    return InParts(x, static_cast<int64_t>(axis), sizes);
  }

  // ---- The same of TensorFlow Lite, where they say otherwise what goes where ----

  std::vector<Value> SizedSlice() {
    Value x = Input(0);
    const std::vector<int64_t> begins = Integers(1), sizes = Integers(2);
    Require(begins.size() == x.shape.size() && sizes.size() == x.shape.size(),
            "its lists have another length");
    for (size_t axis = 0; axis < begins.size(); ++axis) {
      Require(begins[axis] >= 0 && begins[axis] <= x.shape[axis], "it begins outside");
      const int64_t left = x.shape[axis] - begins[axis];
      const int64_t size = sizes[axis] == -1 ? left : sizes[axis];
      Require(size >= 0 && size <= left, "its sizes do not fit");
      x = Along(x, axis, Counted(begins[axis], size));
    }
    return {std::move(x)};
  }

  // kernels/strided_slice.cc: a bit of a mask for each axis.
  std::vector<Value> StridedSlice() {
    Value x = Input(0);
    const std::vector<int64_t> begins = Integers(1), ends = Integers(2), steps = Integers(3);
    Require(begins.size() <= x.shape.size() && ends.size() == begins.size() &&
                steps.size() == begins.size(),
            "its lists differ in length");
    for (const char* const key : {"ellipsis_mask", "new_axis_mask", "offset"})
      Require(node_.Integer(key, 0) == 0, Operator() + " with " + key);
    const auto masked = [&](const char* key, size_t axis) {
      return (node_.Integer(key, 0) >> axis & 1) != 0;
    };
    Shape shape;
    for (size_t axis = 0; axis < x.shape.size(); ++axis) {
      if (axis >= begins.size()) {
        shape.push_back(x.shape[axis]);
        continue;
      }
      const int64_t size = x.shape[axis];
      const bool one = masked("shrink_axis_mask", axis);
      const int64_t step = one ? 1 : steps[axis];
      Require(step > 0, "it has a step of " + std::to_string(step));
      const auto place = [&](int64_t at) {
        return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
      };
      const int64_t begin = masked("begin_mask", axis) ? 0 : place(begins[axis]);
      const int64_t end = one                        ? std::min(begin + 1, size)
                          : masked("end_mask", axis) ? size
                                                     : place(ends[axis]);
      Require(!one || begin < end, "an index lies outside");
      Places chosen;
      for (int64_t at = begin; at < end; at += step) chosen.push_back(at);
      x = Along(x, axis, chosen);
      if (!one) shape.push_back(x.shape[axis]);
    }
    return {Reshaped(x, shape)};
  }

  std::vector<Value> InParts(const Value& x, int64_t axis, const std::vector<int64_t>& sizes) {
    const size_t at = AxisOf(axis, x.shape.size());
    Require(sizes.size() == node_.outputs.size(), "it has another number of outputs than of sizes");
    std::vector<Value> outputs;
    int64_t begin = 0;
    for (const int64_t size : sizes) {
      Require(size >= 0 && size <= x.shape[at] - begin, "its sizes do not fit");
      outputs.push_back(Along(x, at, Counted(begin, size)));
      begin += size;
    }
    return outputs;
  }
  int64_t OneInteger(int at) const {
    const std::vector<int64_t> integers = Integers(at);
    Require(integers.size() == 1, node_.Input(at) + " has several elements, expected one");
    return integers[0];
  }
  std::vector<Value> EvenSplit() {
    const Value& x = Input(1);
    const int64_t axis = OneInteger(0), parts = std::ssize(node_.outputs);
    const int64_t size = x.shape[AxisOf(axis, x.shape.size())];
    Require(parts > 0 && size % parts == 0, "its parts differ in size");
    return InParts(x, axis, std::vector<int64_t>(static_cast<size_t>(parts), size / parts));
  }
  std::vector<Value> SizedSplit() {
    std::vector<int64_t> sizes = Integers(1);
    const int64_t axis = OneInteger(2);
    const Value& x = Input(0);
    int64_t left = x.shape[AxisOf(axis, x.shape.size())];
    for (const int64_t size : sizes) left -= std::clamp<int64_t>(size, 0, left);
    for (int64_t& size : sizes) {
      if (size == -1) size = std::exchange(left, 0);
    }
    return InParts(x, axis, sizes);
  }

  Value Widened(const Value& x) const {
    Shape shape = x.shape;
    const size_t axis = AxisOf(node_.Integer("axis", 0), shape.size() + 1);
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), 1);
    return Reshaped(x, shape);
  }
  std::vector<Value> Pack() {
    std::vector<Value> all;
    for (int i = 0; i < static_cast<int>(node_.inputs.size()); ++i)
      all.push_back(Widened(Input(i)));
    std::vector<const Value*> views;
    for (const Value& one : all) views.push_back(&one);
    return {Joined(views)};
  }
  std::vector<Value> Unpack() {
    const Value& x = Input(0);
    const int64_t axis = node_.Integer("axis", 0);
    const size_t at = AxisOf(axis, x.shape.size());
    std::vector<Value> outputs = InParts(x, axis, std::vector<int64_t>(node_.outputs.size(), 1));
    for (Value& one : outputs) {
      Shape shape = one.shape;
      shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(at));
      one = Reshaped(one, shape);
    }
    return outputs;
  }

  // Codes are joined by a layer, which knows their scales.
  std::vector<Value> JoinIntegers() {
    Require(Input(0).type == graph::kInt32 || Input(0).type == graph::kInt64,
            Operator() + " of " + graph::TypeName(Input(0).type));
    return Concat();
  }

  // kernels/pad.cc: with the zero point of the output.
  std::vector<Value> Pad() {
    const Value& x = Input(0);
    const std::vector<int64_t> amounts = Integers(1);
    Require(x.holds_tensor() && IsCode(x.tensor.dtype()),
            Operator() + " of " + graph::TypeName(x.type));
    Require(amounts.size() == 2 * x.shape.size(), "its amounts have another shape");
    Shape shape = x.shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const int64_t before = amounts[2 * axis], behind = amounts[2 * axis + 1];
      Require(before >= 0 && behind >= 0 && before <= kMaxArray && behind <= kMaxArray,
              "an amount is negative or too large");
      shape[axis] += before + behind;
    }
    const Value* const zero = of_(graph_.ZeroPointOf(node_.Output(0)));
    Require(zero != nullptr && zero->holds_tensor() && zero->size() == 1,
            node_.Output(0) + " has no zero point");
    const int64_t count = CountOf(shape);
    Tensor y(x.tensor.dtype(), shape);
    for (int64_t i = 0; i < count; ++i) y.SetInt(i, zero->tensor.IntAt(0));
    for (int64_t from = 0; from < x.size(); ++from) {
      int64_t rest = from, to = 0, step = 1;
      for (size_t axis = shape.size(); axis-- > 0;) {
        to += (rest % x.shape[axis] + amounts[2 * axis]) * step;
        rest /= x.shape[axis];
        step *= shape[axis];
      }
      y.SetInt(to, x.tensor.IntAt(from));
    }
    return {Value::Of(std::move(y))};
  }

  std::vector<Value> Gather() {
    const Value& x = Input(0);
    const size_t axis = AxisOf(node_.Integer("axis", 0), x.shape.size());
    Require(node_.Integer("batch_dims", 0) == 0, Operator() + " of batches");
    Places chosen = Integers(1);
    for (int64_t& place : chosen) {
      if (place < 0) place += x.shape[axis];
      Require(place >= 0 && place < x.shape[axis], "an index lies outside");
    }
    Shape shape = x.shape;
    const Shape& inner = Input(1).shape;
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), inner.begin(), inner.end());
    return {Reshaped(Along(x, axis, chosen), shape)};
  }

  std::vector<Value> Expand() {
    const Value& x = Input(0);
    const std::optional<Shape> shape = Broadcast(x.shape, Integers(1));
    Require(shape.has_value(), "its shape does not fit");
    CountOf(*shape);
    return {Moved(x, BroadcastPlaces(x.shape, *shape), *shape)};
  }

  std::vector<Value> ShapeNode() {
    Require(node_.Find("start") == nullptr && node_.Find("end") == nullptr,
            Operator() + " of a part");
    const Value& x = Input(0);
    const int64_t rank = std::ssize(x.shape);
    if (node_.op != "SHAPE") return {Value::Of(graph::kInt64, {rank}, x.shape)};
    Tensor sizes(DType::kS32, {rank});
    for (int64_t i = 0; i < rank; ++i)
      sizes.SetInt(i, static_cast<int32_t>(x.shape[static_cast<size_t>(i)]));
    return {Value::Of(std::move(sizes))};
  }

  // As it stands between SHAPE and RESHAPE.
  std::vector<Value> ProductOfSizes() {
    const std::vector<int64_t> sizes = Integers(0), axes = Integers(1);
    Require(Input(0).shape.size() == 1 && axes.size() == 1 && AxisOf(axes[0], 1) == 0,
            Operator() + " of more than a list");
    Tensor product(DType::kS32, node_.Integer("keep_dims", 0) != 0 ? Shape{1} : Shape{});
    product.SetInt(0, static_cast<int32_t>(CountOf(sizes)));
    return {Value::Of(std::move(product))};
  }

  std::vector<Value> Constant() {
    if (const graph::Attribute* const given = node_.Find("value");
        given != nullptr && given->tensor) {
      const graph::Stored& stored = *given->tensor;
      if (graph::HeldBy(stored.type)) return {Value::Of(graph_.Read(node_.Output(0), stored))};
      Require(stored.type == graph::kInt64 || stored.type == graph::kBool,
              "a constant of " + graph::TypeName(stored.type));
      return {Value::Of(stored.type, stored.dims, graph_.ReadIntegers(node_.Output(0), stored))};
    }
    if (const graph::Attribute* const given = node_.Find("value_float"))
      return {Value::Of(Tensor::Of<float>({}, std::vector<float>{given->number.value_or(0)}))};
    if (const graph::Attribute* const given = node_.Find("value_int"))
      return {Value::Of(graph::kInt64, {}, {given->integer.value_or(0)})};
    if (const graph::Attribute* const given = node_.Find("value_ints"))
      return {Value::Of(graph::kInt64, {std::ssize(given->integers)}, given->integers)};
    Refuse(Operator() + " of another type");
  }

  // ---- One rounding for each element ----

  std::vector<Value> Cast() {
    const Value& x = Input(0);
    const int64_t to = node_.Integer("to", 0);
    if (to == x.type) return {x};
    if (to == graph::kFloat && x.type == graph::kInt32) {
      Tensor y(DType::kF32, x.shape);
      for (int64_t i = 0; i < x.size(); ++i)
        y.as<float>()[static_cast<size_t>(i)] = static_cast<float>(x.tensor.IntAt(i));
      return {Value::Of(std::move(y))};
    }
    Refuse(Operator() + " from " + graph::TypeName(x.type) + " to " + graph::TypeName(to));
  }

  // Of int32, as biases are: scale * (code - zero point), rounded once. Of 8 bits it is a layer.
  std::vector<Value> Dequantize() {
    const Value& x = Input(0);
    Require(x.type == graph::kInt32, Operator() + " of " + graph::TypeName(x.type));
    const Tensor& scale = Reals(1);
    Require(scale.size() == 1 || x.shape == scale.shape(), Operator() + " along an axis");
    std::optional<Value> zero;
    if (Has(2)) zero = Input(2);
    Require(!zero || (zero->type == graph::kInt32 && zero->size() == scale.size()),
            "its zero point has another type or shape");
    Tensor y(DType::kF32, x.shape);
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t of = scale.size() == 1 ? 0 : i;
      const int64_t code =
          int64_t{x.tensor.IntAt(i)} - (zero ? int64_t{zero->tensor.IntAt(of)} : 0);
      y.as<float>()[static_cast<size_t>(i)] = RoundedProduct(code, scale.FloatAt(of));
    }
    return {Value::Of(std::move(y))};
  }
  // A product of 33 and 24 bits, rounded once: rounded to odd in double, then to float.
  static float RoundedProduct(int64_t code, float scale) {
    const auto left = static_cast<double>(code), right = static_cast<double>(scale);
    double product = left * right;
    const double rest = std::fma(left, right, -product);
    if (rest != 0 && (std::bit_cast<uint64_t>(product) & 1) == 0)
      product = std::nextafter(product, rest > 0 ? HUGE_VAL : -HUGE_VAL);
    return static_cast<float>(product);
  }

  const Tensor& Reals(int at) const {
    const Value& x = Input(at);
    Require(x.type == graph::kFloat, Operator() + " of " + graph::TypeName(x.type));
    return x.tensor;
  }

  template <class Function>
  std::vector<Value> EachOf(Function function) {
    Tensor y = Reals(0);
    for (float& value : y.as<float>()) value = function(value);
    return {Value::Of(std::move(y))};
  }

  std::vector<Value> Relu() {
    return EachOf([](float v) { return std::isnan(v) || v > 0 ? v : 0.0f; });
  }

  std::vector<Value> Clip() {
    const auto bound = [&](int at, std::string_view key) -> std::optional<float> {
      if (const graph::Attribute* const old = node_.Find(key)) return old->number;
      if (!Has(at)) return std::nullopt;
      const Tensor& value = Reals(at);
      Require(value.size() == 1, "it has a bound of several elements");
      return value.FloatAt(0);
    };
    const std::optional<float> low = bound(1, "min"), high = bound(2, "max");
    return EachOf([&](float v) {
      if (low && v < *low) v = *low;
      return high && v > *high ? *high : v;
    });
  }

  std::vector<Value> Arithmetic() {
    const Value &a = Input(0), &b = Input(1);
    const std::optional<Shape> shape = Broadcast(a.shape, b.shape);
    Require(shape.has_value(), "its shapes do not fit");
    CountOf(*shape);
    const Places at_a = BroadcastPlaces(a.shape, *shape), at_b = BroadcastPlaces(b.shape, *shape);
    if (a.type == graph::kInt64 && b.type == graph::kInt64) return Whole(a, b, at_a, at_b, *shape);
    const Tensor &x = Reals(0), &w = Reals(1);
    Tensor y(DType::kF32, *shape);
    const std::span<float> out = y.as<float>();
    for (size_t i = 0; i < out.size(); ++i) {
      const float left = x.FloatAt(at_a[i]), right = w.FloatAt(at_b[i]);
      out[i] = node_.op == "Add"   ? left + right
               : node_.op == "Sub" ? left - right
               : node_.op == "Mul" ? left * right
                                   : left / right;
    }
    return {Value::Of(std::move(y))};
  }

  // Sizes, which models compute too.
  std::vector<Value> Whole(const Value& a, const Value& b, const Places& at_a, const Places& at_b,
                           const Shape& shape) {
    std::vector<int64_t> y(at_a.size());
    for (size_t i = 0; i < y.size(); ++i) {
      const int64_t left = a.integers[static_cast<size_t>(at_a[i])];
      const int64_t right = b.integers[static_cast<size_t>(at_b[i])];
      constexpr int64_t kMost = int64_t{1} << 31;
      Require(std::abs(left / 2) < kMost / 2 && std::abs(right / 2) < kMost / 2,
              Operator() + " of large integers");
      Require(node_.op != "Div" || right != 0, "it divides by 0");
      y[i] = node_.op == "Add"   ? left + right
             : node_.op == "Sub" ? left - right
             : node_.op == "Mul" ? left * right
                                 : left / right;
    }
    return {Value::Of(graph::kInt64, shape, std::move(y))};
  }

  const graph::Graph& graph_;
  const Node& node_;
  const Lookup& of_;
};

}  // namespace

std::vector<Value> RunPlain(const graph::Graph& graph, const Node& node, const Lookup& of) {
  return Plain(graph, node, of).Run();
}

}  // namespace qualm::models
