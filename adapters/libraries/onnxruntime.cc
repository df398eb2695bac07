// SPDX-License-Identifier: Apache-2.0
// The npm package onnxruntime-node in a Node process (onnxruntime_child.mjs) behind a pipe. Its
// kernels (MLAS) take the best instruction set of the processor, and no switch changes that. So an
// older instruction set is forced by emulating an older processor.
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"
#include "core/status.h"

namespace qualm {
namespace {

constexpr std::string_view kChild = "onnxruntime_child.mjs";
constexpr std::string_view kInstall = "run scripts/install-onnxruntime";

// The processor's name in qemu-x86_64; "" for an instruction set that is not forced. Haswell has
// AVX2 and FMA, Nehalem neither.
std::string_view ProcessorWith(std::string_view instruction_set) {
  if (instruction_set == "avx2") return "Haswell";
  return instruction_set == "sse41" ? "Nehalem" : "";
}

// The instruction set that MLAS finds (onnxruntime/core/mlas/lib/platform.cpp); "" if no convention
// describes it. AVX-512 without VNNI saturates pairs as AVX2 does.
std::string OwnInstructionSet() {
#if defined(__x86_64__)
  constexpr unsigned kAvxVnni = 1u << 4;  // CPUID leaf 7, subleaf 1
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool avx_vnni = __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvxVnni);
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2 && (avx_vnni || __builtin_cpu_supports("avx512vnni"))) return "vnni";
  return avx2 ? "avx2" : "sse41";
#else
  return "";
#endif
}

// "" if PATH has no such program. A program under qemu needs its path spelled out.
std::string FindProgram(std::string_view name) {
  const char* const path = std::getenv("PATH");
  std::string_view folders = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  while (!folders.empty()) {
    const size_t end = std::min(folders.find(':'), folders.size());
    const std::string program = std::string(folders.substr(0, end)) + "/" + std::string(name);
    if (end != 0 && access(program.c_str(), X_OK) == 0) return program;
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return "";
}

std::string FindEmulator() {
  const std::string dynamic = FindProgram("qemu-x86_64");
  return dynamic.empty() ? FindProgram("qemu-x86_64-static") : dynamic;
}

// The folder with node_modules, as scripts/install-onnxruntime chooses it.
std::string PackageFolder() { return CacheFolder() + "/onnxruntime-node"; }

}  // namespace

std::string WhyNoOnnxruntime() {
  if (OwnInstructionSet().empty()) return "no convention has its arithmetic on this processor";
  if (FindModule(std::string(kChild)).empty())
    return std::string(kChild) + " not found: set QUALM_PLUGIN_DIR to its folder";
  if (FindProgram("node").empty()) return "there is no node in PATH: " + std::string(kInstall);
  const std::string package = PackageFolder() + "/node_modules/onnxruntime-node/package.json";
  if (access(package.c_str(), R_OK) != 0)
    return "the npm package onnxruntime-node is not in " + PackageFolder() + ": " +
           std::string(kInstall);
  return "";
}

PipeOptions OnnxruntimeChild(const LibraryName& name) {
  const std::string_view processor = ProcessorWith(name.instruction_set);
  PipeOptions options;
  if (!processor.empty()) {
    const std::string emulator = FindEmulator();
    if (emulator.empty())
      throw Unavailable("subject '" + std::string(name.name) +
                        "': there is no qemu-x86_64 in PATH: " + std::string(kInstall));
    options.command = {emulator, "-cpu", std::string(processor)};
    // Emulation is some 30 times slower, and more on a busy machine.
    options.start_limit_ms = 300'000;
    options.time_limit_ms = 120'000;
  }
  for (std::string argument :
       {FindProgram("node"), FindModule(std::string(kChild)), PackageFolder(),
        processor.empty() ? OwnInstructionSet() : std::string(name.instruction_set)}) {
    options.command.push_back(std::move(argument));
  }
  if (!name.option.empty()) options.command.emplace_back(name.option);
  return options;
}

}  // namespace qualm
