// SPDX-License-Identifier: Apache-2.0
#include "core/io/model_runtime.h"

#include <utility>

#include "core/status.h"

namespace qualm::graph {
namespace {

MakeRuntime& Maker() {
  static MakeRuntime make;
  return make;
}

}  // namespace

void SetModelRuntime(MakeRuntime make) { Maker() = std::move(make); }

std::unique_ptr<ModelRuntime> MakeModelRuntime(Format format, const std::string& name) {
  if (!Maker()) throw Unavailable("this program has no runtime for models");
  return Maker()(format, name);
}

}  // namespace qualm::graph
