// SPDX-License-Identifier: Apache-2.0
// onnxruntime, onnxruntime@avx2, onnxruntime@sse41, and those but the last with constant weights
// (onnxruntime@constant, onnxruntime@avx2+constant): the npm package onnxruntime-node in a Node
// process (onnxruntime_child.mjs) behind a pipe. MLAS, its kernels, takes the best instruction set
// that the processor has and no switch says otherwise, so older ones are had by emulating an older
// processor: Haswell has AVX2 and FMA, Nehalem neither.
#include "adapters/libraries/onnxruntime.h"

#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/host/pipe.h"
#include "adapters/host/plugin_subjects.h"
#include "core/status.h"

namespace qualm {
namespace {

constexpr std::string_view kChild = "onnxruntime_child.mjs";
constexpr std::string_view kInstall = "run scripts/install-onnxruntime";

struct Variant {
  std::string_view name;
  std::string_view processor;        // as qemu-x86_64 calls it; "" runs natively
  std::string_view instruction_set;  // "" is that of this processor
  // All but the first input is part of the model, as in models that people deploy: ONNX Runtime
  // then packs weights ahead, and has convolutions of its own for symmetric ones (MlasConvSym).
  bool constant = false;
};
constexpr std::array<Variant, 5> kVariants{{{"onnxruntime", "", ""},
                                            {"onnxruntime@constant", "", "", true},
                                            {"onnxruntime@avx2", "Haswell", "avx2"},
                                            {"onnxruntime@avx2+constant", "Haswell", "avx2", true},
                                            {"onnxruntime@sse41", "Nehalem", "sse41"}}};

const Variant* Find(const std::string& name) {
  for (const Variant& variant : kVariants) {
    if (variant.name == name) return &variant;
  }
  return nullptr;
}

// What MLAS finds (onnxruntime/core/mlas/lib/platform.cpp); "" where its arithmetic has no model.
// AVX-512 without VNNI saturates pairs as AVX2 does.
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
std::string PackageFolder() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string cache = variable("QUALM_CACHE_DIR");
  if (cache.empty()) {
    const std::string xdg = variable("XDG_CACHE_HOME");
    cache = (xdg.empty() ? variable("HOME") + "/.cache" : xdg) + "/qualm";
  }
  return cache + "/onnxruntime-node";
}

std::string WhyAbsent() {
  if (OwnInstructionSet().empty()) return "its arithmetic on this processor has no model";
  if (FindModule(std::string(kChild)).empty())
    return std::string(kChild) + " not found: set QUALM_PLUGIN_DIR to its folder";
  if (FindProgram("node").empty()) return "there is no node in PATH: " + std::string(kInstall);
  const std::string package = PackageFolder() + "/node_modules/onnxruntime-node/package.json";
  if (access(package.c_str(), R_OK) != 0)
    return "the npm package onnxruntime-node is not in " + PackageFolder() + ": " +
           std::string(kInstall);
  return "";
}

// The same for one of them.
std::string WhyAbsent(const Variant& variant) {
  std::string why = WhyAbsent();
  if (why.empty() && !variant.processor.empty() && FindEmulator().empty())
    why = "there is no qemu-x86_64 in PATH: " + std::string(kInstall);
  return why;
}

std::unique_ptr<Subject> Make(const std::string& name) {
  const Variant* const variant = Find(name);
  if (variant == nullptr) return nullptr;
  if (const std::string why = WhyAbsent(*variant); !why.empty())
    throw Unavailable("subject '" + name + "': " + why);
  PipeOptions options;
  if (!variant->processor.empty()) {
    options.command = {FindEmulator(), "-cpu", std::string(variant->processor)};
    // Some 30 times slower, and more beside other work.
    options.start_limit_ms = 300'000;
    options.time_limit_ms = 120'000;
  }
  const std::string own(variant->instruction_set);
  for (std::string argument : {FindProgram("node"), FindModule(std::string(kChild)),
                               PackageFolder(), own.empty() ? OwnInstructionSet() : own}) {
    options.command.push_back(std::move(argument));
  }
  if (variant->constant) options.command.emplace_back("constant");
  return std::make_unique<PipeSubject>(name, std::move(options));
}

}  // namespace

void RegisterOnnxruntimeSubjects() {
  SubjectKind kind;
  kind.kind = "onnxruntime";
  kind.help =
      "onnxruntime[@constant|@avx2[+constant]|@sse41]  ONNX Runtime's QLinear operators, through "
      "Node";
  kind.why_absent = WhyAbsent();
  kind.when_listed = "ONNX Runtime through Node, started when it is asked";
  SetVariants(kind, kVariants);
  kind.make = Make;
  SubjectRegistry::Get().Add(std::move(kind));
}

}  // namespace qualm
