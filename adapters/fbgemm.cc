// SPDX-License-Identifier: Apache-2.0
// fbgemm, fbgemm@avx2, fbgemm@avx512, fbgemm@vnni: the FBGEMM that find_package found, through
// fbgemm_plugin.cc. It reads its instruction set from the environment once, so each variant is a
// worker that was started with it.
#include "adapters/plugin_subjects.h"

namespace qualm {

void RegisterFbgemmSubjects() {
  const auto forced = [](std::string_view name, std::string_view isa, std::string_view value) {
    return ModuleKind::Name{name, "qualm_fbgemm.so", isa, "FBGEMM_ENABLE_INSTRUCTIONS", value};
  };
  RegisterModuleSubjects(
      {.kind = "fbgemm",
       .library = "FBGEMM",
       .help = "fbgemm[@avx2|@avx512|@vnni]  FBGEMM's linear, as PyTorch calls it",
       .install = "FBGEMM from its CMake, so that find_package sees it",
       .by_bootstrap = false,
       .names = {{"fbgemm", "qualm_fbgemm.so"},
                 forced("fbgemm@avx2", "avx2", "AVX2"),
                 forced("fbgemm@avx512", "avx512", "AVX512"),
                 forced("fbgemm@vnni", "vnni", "AVX512_E1")}});
}

}  // namespace qualm
