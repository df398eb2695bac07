// SPDX-License-Identifier: Apache-2.0
// The libraries under test. The table of libraries.cc has one row per library.
#ifndef QUALM_ADAPTERS_LIBRARIES_LIBRARIES_H_
#define QUALM_ADAPTERS_LIBRARIES_LIBRARIES_H_

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/host/pipe.h"
#include "core/case.h"
#include "core/weight_formats.h"

namespace qualm {

// One subject of a library.
struct LibraryName {
  std::string_view name;  // "gemmlowp@sse4"
  // A library in a worker: the plugin of ours that the worker loads, "qualm_gemmlowp_sse4.so". A
  // library behind a pipe: the argument that its program gets, "qnnpack".
  std::string_view option;
  // The instruction set that `environment` forces on the process. A process that reports another
  // one is turned away. "" leaves the choice to the library.
  std::string_view instruction_set = {};
  // Set before the process starts: libraries read these variables once. The first value stands in
  // the sentence that turns a process away.
  std::vector<std::pair<std::string_view, std::string_view>> environment = {};
  // The processor, by its name in qemu-x86_64, on which a program behind a pipe runs: for libraries
  // that no variable holds to an instruction set. Haswell has AVX2 and FMA, Nehalem neither.
  std::string_view processor = {};
  // Why the library cannot run the case, "" if it can: for limits that no capability can state.
  std::function<std::string(const Case& c)> cannot_run = nullptr;
};

struct Library {
  std::string_view kind;     // what `qualm list subjects` calls all names together: "onednn"
  std::string_view library;  // what chooses the instruction set, as people write it: "oneDNN"
  std::string_view help;
  std::vector<LibraryName> names;
  // In a worker: what to install where the first name's module is missing, "XNNPACK of 2022
  // (libxnnpack-dev)", and whether scripts/bootstrap installs it.
  std::string_view install = {};
  bool by_bootstrap = true;
  // Why the library cannot be asked here, "" if it can. A library in a worker needs none where its
  // module alone decides.
  std::string (*why_absent)() = nullptr;
  // Behind a pipe: the program that answers for a name; throws Unavailable where the machine lacks
  // what this one name needs. Null for libraries in a worker.
  PipeOptions (*child)(const LibraryName& name) = nullptr;
  std::string_view when_listed = {};  // a program is not started to be listed
  // For a Python package, its name in scripts/install-wheel. `why_absent` and `child` follow from
  // it and stay null.
  std::string_view wheel = {};
  // In a worker: variables that the process gets besides `environment` of its name.
  EnvironmentChanges (*told)() = nullptr;
};

// Adds one kind of subject per row. A kind is absent, with the reason, where its library is.
void RegisterLibraries();

// Where scripts/bootstrap puts what no package manager installs: QUALM_CACHE_DIR, else qualm in
// XDG_CACHE_HOME, else in ~/.cache.
std::string CacheFolder();
// Whether there is such a program and this user may run it: the folder may be another user's.
bool CanRun(const std::string& path);

// PyTorch, in a Python process (torch_child.py) of TorchPython (adapters/registry.h).
std::string WhyNoTorch();
PipeOptions TorchChild(const LibraryName& name);

// A Python package, in NAME_child.py: of the Python that the environment variable QUALM_NAME_PYTHON
// names, else of the virtual environment that scripts/install-wheel makes. The program gets the
// option of a name and, where it has one, the instruction set.
std::string WhyNoWheel(std::string_view wheel);
std::string WheelPython(std::string_view wheel);
PipeOptions WheelChild(std::string_view wheel, const LibraryName& name);

// Runs the program on the processor of `name`. Throws Unavailable where there is no emulator.
void Emulate(const LibraryName& name, PipeOptions& options);

// "" if PATH has no such program. The emulator needs a path spelled out.
std::string FindProgram(std::string_view name);

// The npm package onnxruntime-node: what starts a program of ours with it, and "" or why nothing
// does.
std::vector<std::string> NodeCommand(std::string_view program);
std::string WhyNoNodePackage(std::string_view program);

// ONNX Runtime, in a Node process (onnxruntime_child.mjs).
std::string WhyNoOnnxruntime();
PipeOptions OnnxruntimeChild(const LibraryName& name);
// The same of onnxruntime-web, on every processor.
std::string WhyNoOnnxruntimeWeb();
PipeOptions OnnxruntimeWebChild(const LibraryName& name);
// Of MatMulNBits at accuracy level 4.
std::string WhyNotAtLevel4(const Case& c);

// ggml, in a worker (ggml_plugin.cc): where its shared objects are.
std::string WhyNoGgml();
EnvironmentChanges GgmlEnvironment();

// Whole models (core/io/model_runtime.h) on the Python packages of ONNX Runtime and LiteRT, in
// NAME_models.py.
void RegisterModelRuntime();

}  // namespace qualm

#endif  // QUALM_ADAPTERS_LIBRARIES_LIBRARIES_H_
