// SPDX-License-Identifier: Apache-2.0
// xnnpack: the XNNPACK that this build found, through xnnpack_plugin.cc, with the kernels it
// chooses for this CPU.
#include "adapters/host/plugin_subjects.h"

namespace qualm {

void RegisterXnnpackSubjects() {
  RegisterModuleSubjects({.kind = "xnnpack",
                          .library = "XNNPACK",
                          .help = "xnnpack  XNNPACK's quantized operators",
                          .install = "XNNPACK of 2022 (libxnnpack-dev)",
                          .names = {{"xnnpack", "qualm_xnnpack.so"}}});
}

}  // namespace qualm
