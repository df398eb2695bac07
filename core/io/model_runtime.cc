// SPDX-License-Identifier: Apache-2.0
#include "core/io/model_runtime.h"

#include <utility>

#include "core/io/onnx_graph.h"
#include "core/status.h"

namespace qualm::onnx {
namespace {

std::function<std::unique_ptr<ModelRuntime>()>& Maker() {
  static std::function<std::unique_ptr<ModelRuntime>()> make;
  return make;
}

}  // namespace

Value Value::Of(Tensor tensor) {
  Value value;
  value.type = TypeOf(tensor.dtype());
  value.shape = tensor.shape();
  value.tensor = std::move(tensor);
  return value;
}

Value Value::Of(int64_t type, std::vector<int64_t> shape, std::vector<int64_t> integers) {
  Value value;
  value.type = type;
  value.shape = std::move(shape);
  value.integers = std::move(integers);
  return value;
}

bool Value::holds_tensor() const { return HeldBy(type).has_value(); }

int64_t Value::size() const {
  return holds_tensor() ? tensor.size() : static_cast<int64_t>(integers.size());
}

void SetModelRuntime(std::function<std::unique_ptr<ModelRuntime>()> make) {
  Maker() = std::move(make);
}

std::unique_ptr<ModelRuntime> MakeModelRuntime() {
  if (!Maker()) throw Unavailable("this program has no runtime for models");
  return Maker()();
}

}  // namespace qualm::onnx
