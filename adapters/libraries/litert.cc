// SPDX-License-Identifier: Apache-2.0
// TensorFlow Lite's interpreter (LiteRT's wheel), behind the pipe of litert_child.py.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"

namespace qualm {
namespace {

constexpr std::string_view kChild = "litert_child.py";

// A second of work, but perhaps among other jobs, and of a package that a disk has to bring.
constexpr int kStartLimitMs = 300'000;

// One that somebody names, else that of the virtual environment that scripts/install-litert makes.
std::string Python() {
  if (const char* python = std::getenv("QUALM_LITERT_PYTHON")) return python;
  return CacheFolder() + "/litert/bin/python";
}

}  // namespace

std::string WhyNoLitert() {
  if (FindModule(std::string(kChild)).empty())
    return std::string(kChild) + " not found: set QUALM_PLUGIN_DIR to its folder";
  if (std::getenv("QUALM_LITERT_PYTHON") != nullptr || std::filesystem::exists(Python())) return "";
  return "LiteRT not found: run scripts/bootstrap --with-libraries (a virtual environment with "
         "ai-edge-litert), or set QUALM_LITERT_PYTHON to a Python that has it";
}

PipeOptions LitertChild(const LibraryName& name) {
  PipeOptions options;
  options.start_limit_ms = kStartLimitMs;
  options.command = {Python(), FindModule(std::string(kChild)), std::string(name.option)};
  return options;
}

}  // namespace qualm
