// SPDX-License-Identifier: Apache-2.0
// torch@qnnpack, torch@onednn[+sse41|+avx2|+avx2vnni|+avx512core|+vnni|+amx]: the quantized engines
// of an installed PyTorch, behind the pipe of torch_child.py. oneDNN and ATen keep the first
// instruction set they see, so each variant is a process that was started with it.
#include "adapters/libraries/torch.h"

#include <glob.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/host/pipe.h"
#include "adapters/host/plugin_subjects.h"

namespace qualm {
namespace {

constexpr std::string_view kChild = "torch_child.py";

// Two seconds of work, but several hundred megabytes to read, perhaps among other jobs.
constexpr int kStartLimitMs = 300'000;
// PyTorch's histograms take their time.
constexpr int kTimeLimitMs = 60'000;

struct Variant {
  std::string_view name;
  std::string_view engine;
  std::string_view instruction_set;  // as the child reports it; "" leaves the choice to oneDNN
  std::string_view max_cpu_isa;
  std::string_view aten_capability;
};
// ATen of 1.13 takes AVX2 wherever it is there, so that is what goes with newer ones.
constexpr std::array<Variant, 8> kVariants{{
    {"torch@qnnpack", "qnnpack", "", "", ""},
    {"torch@onednn", "onednn", "", "", ""},
    {"torch@onednn+sse41", "onednn", "sse41", "SSE41", "default"},
    {"torch@onednn+avx2", "onednn", "avx2", "AVX2", "avx2"},
    {"torch@onednn+avx2vnni", "onednn", "avx2vnni", "AVX2_VNNI", "avx2"},
    {"torch@onednn+avx512core", "onednn", "avx512core", "AVX512_CORE", "avx2"},
    {"torch@onednn+vnni", "onednn", "vnni", "AVX512_CORE_VNNI", "avx2"},
    {"torch@onednn+amx", "onednn", "amx", "AVX512_CORE_AMX", "avx2"},
}};

bool AnyExists(const std::string& pattern) {
  glob_t found{};
  const bool any = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0;
  globfree(&found);
  return any;
}

// Where Python looks for packages. Only looked at, since asking a Python costs more than all else
// that happens when a command starts; an import that fails is told when the subject is made.
bool TorchIsThere() {
  if (std::getenv("QUALM_PYTHON") != nullptr) return true;
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

// The distribution's own Python has the distribution's PyTorch.
std::string Python() {
  if (const char* python = std::getenv("QUALM_PYTHON")) return python;
  const std::string own = "/usr/bin/python3";
  return std::filesystem::exists(own) ? own : "python3";
}

std::unique_ptr<Subject> Make(const std::string& name) {
  for (const Variant& variant : kVariants) {
    if (variant.name != name) continue;
    PipeOptions options;
    options.start_limit_ms = kStartLimitMs;
    options.time_limit_ms = kTimeLimitMs;
    options.command = {Python(), FindModule(std::string(kChild)), std::string(variant.engine)};
    if (!variant.max_cpu_isa.empty())
      options.environment.emplace_back("ONEDNN_MAX_CPU_ISA", variant.max_cpu_isa);
    if (!variant.aten_capability.empty())
      options.environment.emplace_back("ATEN_CPU_CAPABILITY", variant.aten_capability);
    auto subject = std::make_unique<PipeSubject>(name, std::move(options));
    subject->RequireInstructionSet(variant.instruction_set, "oneDNN", variant.max_cpu_isa);
    return subject;
  }
  return nullptr;
}

}  // namespace

void RegisterTorchSubjects() {
  SubjectKind kind;
  kind.kind = "torch";
  kind.help =
      "torch@qnnpack, torch@onednn[+sse41|+avx2|+avx2vnni|+avx512core|+vnni|+amx]  PyTorch's "
      "quantized operators";
  if (FindModule(std::string(kChild)).empty()) {
    kind.why_absent = std::string(kChild) + " not found: set QUALM_PLUGIN_DIR to its folder";
  } else if (!TorchIsThere()) {
    kind.why_absent =
        "PyTorch not found: run scripts/bootstrap --with-libraries (Debian's python3-torch), or "
        "set QUALM_PYTHON to a Python that has it";
  }
  kind.when_listed = "PyTorch through Python, started when it is asked";
  SetVariants(kind, kVariants);
  kind.make = Make;
  SubjectRegistry::Get().Add(std::move(kind));
}

}  // namespace qualm
