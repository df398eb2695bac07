// SPDX-License-Identifier: Apache-2.0
// The npm package onnxruntime-node in a Node process (onnxruntime_child.mjs) behind a pipe. Its
// kernels (MLAS) take the best instruction set of the processor, and no switch changes that.
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <string>
#include <string_view>

#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"

namespace qualm {
namespace {

constexpr std::string_view kChild = "onnxruntime_child.mjs";
constexpr std::string_view kInstall = "run scripts/install-onnxruntime";

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
  PipeOptions options;
  options.command = {
      FindProgram("node"), FindModule(std::string(kChild)), PackageFolder(),
      name.instruction_set.empty() ? OwnInstructionSet() : std::string(name.instruction_set)};
  if (!name.option.empty()) options.command.emplace_back(name.option);
  return options;
}

}  // namespace qualm
