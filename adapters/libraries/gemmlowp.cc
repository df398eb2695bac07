// SPDX-License-Identifier: Apache-2.0
// gemmlowp, gemmlowp@sse4: the gemmlowp that this build found, through gemmlowp_plugin.cc, compiled
// without SIMD and for SSE4.1.
#include "adapters/host/plugin_subjects.h"

namespace qualm {

void RegisterGemmlowpSubjects() {
  RegisterModuleSubjects(
      {.kind = "gemmlowp",
       .library = "gemmlowp",
       .help = "gemmlowp[@sse4]  gemmlowp's GEMM and its output pipeline",
       .install = "gemmlowp (libgemmlowp-dev)",
       .names = {{"gemmlowp", "qualm_gemmlowp.so"}, {"gemmlowp@sse4", "qualm_gemmlowp_sse4.so"}}});
}

}  // namespace qualm
