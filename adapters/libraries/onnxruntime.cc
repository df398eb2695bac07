// SPDX-License-Identifier: Apache-2.0
// The npm packages onnxruntime-node and onnxruntime-web in a Node process (onnxruntime_child.mjs)
// behind a pipe. The kernels (MLAS) of the first take the best instruction set of the processor,
// and no switch changes that; those of the second are WebAssembly.
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"
#include "core/slice.h"

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

constexpr std::string_view kNative = "onnxruntime-node", kWeb = "onnxruntime-web";

// The folder with node_modules, as scripts/install-onnxruntime chooses it.
std::string PackageFolder(std::string_view package) {
  return CacheFolder() + "/" + std::string(package);
}

std::vector<std::string> Command(std::string_view program, std::string_view package) {
  return {FindProgram("node"), FindModule(std::string(program)), PackageFolder(package)};
}

std::string WhyNoPackage(std::string_view program, std::string_view package) {
  if (FindModule(std::string(program)).empty())
    return std::string(program) + " not found: set QUALM_PLUGIN_DIR to its folder";
  if (FindProgram("node").empty()) return "there is no node in PATH: " + std::string(kInstall);
  const std::string name(package), folder = PackageFolder(package);
  const std::string file = folder + "/node_modules/" + name + "/package.json";
  if (access(file.c_str(), R_OK) != 0)
    return "the npm package " + name + " is not in " + folder + ": " + std::string(kInstall);
  return "";
}

PipeOptions Child(const LibraryName& name, std::string_view package, const std::string& set) {
  PipeOptions options;
  options.command = Command(kChild, package);
  options.command.push_back(set);
  if (!name.option.empty()) options.command.emplace_back(name.option);
  return options;
}

}  // namespace

std::vector<std::string> NodeCommand(std::string_view program) { return Command(program, kNative); }

std::string WhyNoNodePackage(std::string_view program) { return WhyNoPackage(program, kNative); }

std::string WhyNoOnnxruntime() {
  if (OwnInstructionSet().empty()) return "no convention has its arithmetic on this processor";
  return WhyNoNodePackage(kChild);
}

PipeOptions OnnxruntimeChild(const LibraryName& name) {
  return Child(
      name, kNative,
      name.instruction_set.empty() ? OwnInstructionSet() : std::string(name.instruction_set));
}

std::string WhyNoOnnxruntimeWeb() { return WhyNoPackage(kChild, kWeb); }

PipeOptions OnnxruntimeWebChild(const LibraryName& name) { return Child(name, kWeb, "wasm"); }

// The child gives code * scale, of which MatMulNBits makes the scale max/127, and by it the codes:
// these again, where a code of the block is 127 or -127 and no product with the scale is rounded.
std::string WhyNotAtLevel4(const Case& c) {
  constexpr uint32_t kFewBits = (1u << 8) - 1;  // a float32 whose lowest bits are 0 has 16
  if (c.x_block == 0) return "accuracy level 4 is asked for x in blocks alone";
  if (!std::has_single_bit(static_cast<uint32_t>(c.x_block)) || c.x_block < 16 || c.x_block > 256)
    return "accuracy level 4 is asked for blocks of 16, 32, 64, 128 and 256";
  const auto is_short = [](float scale) {
    return std::isnormal(scale) && (std::bit_cast<uint32_t>(scale) & kFewBits) == 0 &&
           scale < 0x1p100f && scale > 0x1p-100f;
  };
  if (!std::ranges::all_of(c.x_q.scale, is_short))
    return "accuracy level 4 is asked with scales of x that have at most 16 bits";
  for (const auto& [begin, end] : slice::BlocksOfX(c)) {
    int32_t largest = 0, lowest = 0;
    for (int64_t i = begin; i < end; ++i) {
      lowest = std::min(lowest, c.x.IntAt(i));
      largest = std::max(largest, std::abs(c.x.IntAt(i)));
    }
    if (lowest == -128 || (largest != 0 && largest != 127))
      return "accuracy level 4 makes codes whose largest is 127 or -127 in each block";
  }
  return "";
}

}  // namespace qualm
