// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a .npy, a .safetensors and an .onnx file: an InputError on one line, or layers
// that are valid. Traps at anything else.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/io/arrays.h"
#include "core/io/layers.h"
#include "core/io/npy.h"
#include "core/status.h"
#include "fuzz/reads_or_refuses.h"

using namespace qualm;
using fuzz::ReadsOrRefuses;

namespace {

void Valid(const Case& layer) {
  QUALM_CHECK(HasSums(layer.op));
  if (layer.w.dtype() != DType::kF32) QUALM_CHECK_EQ(Validate(layer), "");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ReadsOrRefuses(
      [&] {
        const Tensor array = ParseNpy(bytes, "fuzz");
        QUALM_CHECK(ParseNpy(NpyOf(array), "fuzz") == array);
        Valid(LayerOf(array, {.groups = 2}, "fuzz"));
      },
      "fuzz: ");
  ReadsOrRefuses(
      [&] {
        for (const NamedArray& array : ParseSafetensors(bytes, "fuzz")) {
          Valid(LayerOf(array.values, {}, "fuzz"));
        }
      },
      "fuzz: ");
  ReadsOrRefuses(
      [&] {
        for (const NamedLayer& layer : ParseOnnx(bytes, "fuzz")) Valid(layer.layer);
      },
      "fuzz: ");
  return 0;
}
