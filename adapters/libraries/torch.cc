// SPDX-License-Identifier: Apache-2.0
// The quantized engines of an installed PyTorch, behind the pipe of torch_child.py.
#include <glob.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"
#include "adapters/registry.h"

namespace qualm {
namespace {

constexpr std::string_view kChild = "torch_child.py";

// Two seconds of work, but several hundred megabytes to read, perhaps among other jobs.
constexpr int kStartLimitMs = 300'000;
// PyTorch's histograms take their time.
constexpr int kTimeLimitMs = 60'000;

bool AnyExists(const std::string& pattern) {
  glob_t found{};
  const bool any = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0;
  globfree(&found);
  return any;
}

// The Python of the virtual environment that scripts/install-wheel makes.
std::string OwnPython() { return CacheFolder() + "/torch/bin/python"; }

// Looks into the folders where Python looks for packages. Asking a Python costs more than all else
// that happens when a command starts. An import that fails is told when the subject is made.
bool TorchIsThere() {
  if (std::getenv("QUALM_PYTHON") != nullptr || CanRun(OwnPython())) return true;
  std::vector<std::string> folders = {"/usr/lib/python3/dist-packages",
                                      "/usr/local/lib/python3*/dist-packages",
                                      "/usr/local/lib/python3*/site-packages"};
  if (const char* home = std::getenv("HOME"))
    folders.push_back(std::string(home) + "/.local/lib/python3*/site-packages");
  if (const char* path = std::getenv("PYTHONPATH")) {
    const std::string list(path);
    for (size_t begin = 0; begin <= list.size();) {
      const size_t end = std::min(list.find(':', begin), list.size());
      if (end > begin) folders.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  for (const std::string& folder : folders) {
    if (AnyExists(folder + "/torch/__init__.py")) return true;
  }
  return false;
}

}  // namespace

// The distribution's own Python has the distribution's PyTorch.
std::string TorchPython() {
  if (const char* python = std::getenv("QUALM_PYTHON")) return python;
  for (const std::string& own : {OwnPython(), std::string("/usr/bin/python3")}) {
    if (CanRun(own)) return own;
  }
  return "python3";
}

std::string WhyNoTorch() {
  if (FindModule(std::string(kChild)).empty())
    return std::string(kChild) + " not found: set QUALM_PLUGIN_DIR to its folder";
  if (TorchIsThere()) return "";
  return "PyTorch not found: run scripts/bootstrap --with-libraries (a virtual environment with "
         "the official wheel), or set QUALM_PYTHON to a Python that has it";
}

PipeOptions TorchChild(const LibraryName& name) {
  PipeOptions options;
  options.start_limit_ms = kStartLimitMs;
  options.time_limit_ms = kTimeLimitMs;
  options.command = {TorchPython(), "-B", FindModule(std::string(kChild)),
                     std::string(name.option)};
  return options;
}

}  // namespace qualm
