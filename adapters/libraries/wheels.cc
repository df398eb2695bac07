// SPDX-License-Identifier: Apache-2.0
// Python packages behind a pipe: NAME_child.py (library_child.py is what they share) runs in the
// virtual environment NAME that scripts/install-wheel makes.
#include <cstdlib>
#include <string>
#include <string_view>

#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"

namespace qualm {
namespace {

// A second of work, but perhaps among other jobs, and of a package that a disk has to bring.
constexpr int kStartLimitMs = 300'000;

std::string ChildOf(std::string_view wheel) { return std::string(wheel) + "_child.py"; }

// "QUALM_OPENVINO_PYTHON"
std::string VariableOf(std::string_view wheel) {
  std::string name = "QUALM_" + std::string(wheel) + "_PYTHON";
  for (char& letter : name) {
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  }
  return name;
}

}  // namespace

std::string WheelPython(std::string_view wheel) {
  if (const char* python = std::getenv(VariableOf(wheel).c_str())) return python;
  return CacheFolder() + "/" + std::string(wheel) + "/bin/python";
}

// An import that fails is told when the subject is made: asking a Python costs more than all else
// that happens when a command starts.
std::string WhyNoWheel(std::string_view wheel) {
  if (FindModule(ChildOf(wheel)).empty())
    return ChildOf(wheel) + " not found: set QUALM_PLUGIN_DIR to its folder";
  if (std::getenv(VariableOf(wheel).c_str()) != nullptr || CanRun(WheelPython(wheel))) {
    return "";
  }
  return "the Python package " + std::string(wheel) +
         " not found: run scripts/bootstrap --with-libraries (a virtual environment with its "
         "wheel), or set " +
         VariableOf(wheel) + " to a Python that has it";
}

PipeOptions WheelChild(std::string_view wheel, const LibraryName& name) {
  PipeOptions options;
  options.start_limit_ms = kStartLimitMs;
  // -B: nothing is written beside the program.
  options.command = {WheelPython(wheel), "-B", FindModule(ChildOf(wheel)),
                     std::string(name.option)};
  if (!name.instruction_set.empty()) options.command.emplace_back(name.instruction_set);
  return options;
}

}  // namespace qualm
