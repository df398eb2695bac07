// SPDX-License-Identifier: Apache-2.0
// fbgemm, fbgemm@avx2, fbgemm@avx512, fbgemm@vnni, and with +acc16 the kernels that sum in int16:
// the FBGEMM that find_package found, through fbgemm_plugin.cc. It reads its instruction set from
// the environment once, so each variant is a worker that was started with it.
#include "adapters/host/plugin_subjects.h"

namespace qualm {

void RegisterFbgemmSubjects() {
  constexpr std::string_view kAcc16 = "qualm_fbgemm_acc16.so";
  const auto forced = [](std::string_view name, std::string_view isa, std::string_view value,
                         std::string_view module = "qualm_fbgemm.so") {
    return ModuleKind::Name{name, module, isa, "FBGEMM_ENABLE_INSTRUCTIONS", value};
  };
  RegisterModuleSubjects({.kind = "fbgemm",
                          .library = "FBGEMM",
                          .help = "fbgemm[@avx2|@avx512|@vnni], fbgemm@acc16, fbgemm@avx2+acc16, "
                                  "...  FBGEMM, as PyTorch calls it",
                          .install = "FBGEMM from its CMake, so that find_package sees it",
                          .by_bootstrap = false,
                          .names = {{"fbgemm", "qualm_fbgemm.so"},
                                    forced("fbgemm@avx2", "avx2", "AVX2"),
                                    forced("fbgemm@avx512", "avx512", "AVX512"),
                                    forced("fbgemm@vnni", "vnni", "AVX512_E1"),
                                    {"fbgemm@acc16", kAcc16},
                                    forced("fbgemm@avx2+acc16", "avx2", "AVX2", kAcc16),
                                    forced("fbgemm@avx512+acc16", "avx512", "AVX512", kAcc16),
                                    forced("fbgemm@vnni+acc16", "vnni", "AVX512_E1", kAcc16)}});
}

}  // namespace qualm
