// SPDX-License-Identifier: Apache-2.0
// ggml, as the npm package @node-llama-cpp/linux-x64 has it: a shared object for each instruction
// set, which ggml_plugin.cc loads in a worker.
#include <unistd.h>

#include <algorithm>
#include <span>
#include <string>

#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"
#include "core/float_format.h"

namespace qualm {
namespace {

constexpr std::string_view kModule = "qualm_ggml.so";
constexpr std::string_view kInstall = "run scripts/install-ggml";

// The folder of the shared objects, as scripts/install-ggml makes it.
std::string ObjectFolder() {
  return CacheFolder() + "/ggml/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64";
}

}  // namespace

std::string WhyNoGgml() {
  if (FindModule(std::string(kModule)).empty())
    return std::string(kModule) + " not found: it is built on x86-64 alone, or set " +
           "QUALM_PLUGIN_DIR to its folder";
  if (access((ObjectFolder() + "/libggml-base.so").c_str(), R_OK) != 0)
    return "the npm package @node-llama-cpp/linux-x64 is not in " + CacheFolder() +
           "/ggml: " + std::string(kInstall);
  return "";
}

EnvironmentChanges GgmlEnvironment() { return {{"QUALM_GGML_FOLDER", ObjectFolder()}}; }

std::string WhyNotInGgml(const Case& c) {
  constexpr int32_t kBlock = 32;
  if (c.x_block != kBlock || c.w_block != kBlock)
    return "ggml multiplies blocks of 32 by blocks of 32";
  const bool nibbles = c.w.dtype() == DType::kU4;
  if (!nibbles && c.w.dtype() != DType::kS8) return "ggml's weights are s8, or u4";
  if (std::ranges::any_of(c.w_q.zero_point, [&](int32_t z) { return z != (nibbles ? 8 : 0); }))
    return "ggml's zero point is 8 of u4 weights, 0 of s8";
  const auto is_half = [](float scale) { return CodeOf(DType::kF16, scale).has_value(); };
  if (!std::ranges::all_of(c.x_q.scale, is_half) || !std::ranges::all_of(c.w_q.scale, is_half))
    return "ggml's scales are f16";
  return "";
}

}  // namespace qualm
