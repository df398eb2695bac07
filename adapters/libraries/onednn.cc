// SPDX-License-Identifier: Apache-2.0
// onednn, onednn@sse41, @avx2, @avx2vnni, @avx512core, @vnni, @amx: the oneDNN that this build
// found, through onednn/plugin.cc. oneDNN keeps the first instruction set it sees, so each variant
// is a worker that was started with ONEDNN_MAX_CPU_ISA already set.
#include "adapters/host/plugin_subjects.h"

namespace qualm {

void RegisterOnednnSubjects() {
  const auto forced = [](std::string_view name, std::string_view isa, std::string_view value) {
    return ModuleKind::Name{name, "qualm_onednn.so", isa, "ONEDNN_MAX_CPU_ISA", value};
  };
  RegisterModuleSubjects({.kind = "onednn",
                          .library = "oneDNN",
                          .help = "onednn[@sse41|@avx2|@avx2vnni|@avx512core|@vnni|@amx]  oneDNN, "
                                  "as PyTorch 1.13 calls it",
                          .install = "oneDNN 2.x (libdnnl-dev)",
                          .names = {{"onednn", "qualm_onednn.so"},
                                    forced("onednn@sse41", "sse41", "SSE41"),
                                    forced("onednn@avx2", "avx2", "AVX2"),
                                    forced("onednn@avx2vnni", "avx2vnni", "AVX2_VNNI"),
                                    forced("onednn@avx512core", "avx512core", "AVX512_CORE"),
                                    forced("onednn@vnni", "vnni", "AVX512_CORE_VNNI"),
                                    forced("onednn@amx", "amx", "AVX512_CORE_AMX")}});
}

}  // namespace qualm
