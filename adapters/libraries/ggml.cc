// SPDX-License-Identifier: Apache-2.0
// ggml, as the npm package @node-llama-cpp/linux-x64 has it: a shared object for each instruction
// set, which ggml_plugin.cc loads in a worker.
#include <unistd.h>

#include <string>

#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"

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

}  // namespace qualm
