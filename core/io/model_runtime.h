// SPDX-License-Identifier: Apache-2.0
// Somebody's software that runs whole ONNX models, and the values that go in and come out.
#ifndef QUALM_CORE_IO_MODEL_RUNTIME_H_
#define QUALM_CORE_IO_MODEL_RUNTIME_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace qualm::onnx {

// What a name of a graph stands for. `tensor` has the elements of types that qualm has, `integers`
// those of int64 and bool, which only say where other elements go.
struct Value {
  int64_t type = 0;  // onnx::Type
  std::vector<int64_t> shape;
  Tensor tensor;
  std::vector<int64_t> integers;

  static Value Of(Tensor tensor);
  static Value Of(int64_t type, std::vector<int64_t> shape, std::vector<int64_t> integers);
  bool holds_tensor() const;
  int64_t size() const;
  friend bool operator==(const Value&, const Value&) = default;
};
using Values = std::map<std::string, Value, std::less<>>;

class ModelRuntime {
 public:
  virtual ~ModelRuntime() = default;
  virtual std::string name() const = 0;  // "ONNX Runtime 1.32.0"

  struct Answer {
    // Of `outputs` those whose type a Value holds.
    Values values;
    std::string error;  // one line; "" where it ran
  };
  // `folder`: where the external data of the model lies. Never throws for what the runtime does.
  virtual Answer Run(std::string_view model, const std::string& folder, const Values& inputs,
                     const std::vector<std::string>& outputs) = 0;
};

// Filled by RegisterAllSubjects() (adapters/registry.h).
void SetModelRuntime(std::function<std::unique_ptr<ModelRuntime>()> make);
// Throws Unavailable with the reason where there is none.
std::unique_ptr<ModelRuntime> MakeModelRuntime();

}  // namespace qualm::onnx

#endif  // QUALM_CORE_IO_MODEL_RUNTIME_H_
