// SPDX-License-Identifier: Apache-2.0
// gemmlowp: the gemmlowp that this build found, through gemmlowp_plugin.cc.
#include "adapters/plugin_subjects.h"

namespace qualm {

void RegisterGemmlowpSubjects() {
  RegisterModuleSubjects({.kind = "gemmlowp",
                          .module = "qualm_gemmlowp.so",
                          .help = "gemmlowp  gemmlowp's GEMM and its output pipeline",
                          .install = "gemmlowp (libgemmlowp-dev)"});
}

}  // namespace qualm
