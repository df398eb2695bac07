// SPDX-License-Identifier: Apache-2.0
// onednn, onednn@sse41, @avx2, @avx2vnni, @avx512core, @vnni, @amx: the oneDNN that this build
// found, through onednn_plugin.cc. oneDNN keeps the first instruction set it sees, so each variant
// is a worker that was started with ONEDNN_MAX_CPU_ISA already set.
#include <array>
#include <memory>
#include <utility>

#include "adapters/plugin_subjects.h"
#include "core/status.h"

namespace qualm {
namespace {

constexpr std::string_view kModule = "qualm_onednn.so";

struct Variant {
  std::string_view name;
  std::string_view instruction_set;  // as the plugin reports it; "" leaves the choice to oneDNN
  std::string_view max_cpu_isa;
};
constexpr std::array<Variant, 7> kVariants{{{"onednn", "", ""},
                                            {"onednn@sse41", "sse41", "SSE41"},
                                            {"onednn@avx2", "avx2", "AVX2"},
                                            {"onednn@avx2vnni", "avx2vnni", "AVX2_VNNI"},
                                            {"onednn@avx512core", "avx512core", "AVX512_CORE"},
                                            {"onednn@vnni", "vnni", "AVX512_CORE_VNNI"},
                                            {"onednn@amx", "amx", "AVX512_CORE_AMX"}}};

std::unique_ptr<Subject> Make(const std::string& name) {
  for (const Variant& variant : kVariants) {
    if (variant.name != name) continue;
    WorkerOptions options;
    options.plugin = FindPlugin(std::string(kModule));
    if (!variant.max_cpu_isa.empty())
      options.environment.emplace_back("ONEDNN_MAX_CPU_ISA", variant.max_cpu_isa);
    auto subject = std::make_unique<PluginSubject>(name, std::move(options));
    if (!variant.instruction_set.empty() && subject->InstructionSet() != variant.instruction_set) {
      throw Unavailable("subject '" + name + "': oneDNN uses " + subject->InstructionSet() +
                        " instead: this CPU, or this oneDNN, has no " +
                        std::string(variant.max_cpu_isa));
    }
    return subject;
  }
  return nullptr;
}

}  // namespace

void RegisterOnednnSubjects() {
  SubjectKind kind;
  kind.kind = "onednn";
  kind.help =
      "onednn[@sse41|@avx2|@avx2vnni|@avx512core|@vnni|@amx]  oneDNN, as PyTorch 1.13 calls it";
  if (FindPlugin(std::string(kModule)).empty()) {
    kind.why_absent = std::string(kModule) +
                      " not found: install oneDNN 2.x (libdnnl-dev) and rebuild, or set "
                      "QUALM_PLUGIN_DIR to its folder";
  }
  kind.names = [] {
    std::vector<std::string> names;
    for (const Variant& variant : kVariants) names.emplace_back(variant.name);
    return names;
  };
  kind.make = Make;
  kind.expand = [names = kind.names](const std::string& pattern) {
    return pattern == "onednn@all" ? names() : std::vector<std::string>{};
  };
  SubjectRegistry::Get().Add(std::move(kind));
}

}  // namespace qualm
