// SPDX-License-Identifier: Apache-2.0
// ruy: the ruy that find_package found, through ruy_plugin.cc.
#include "adapters/host/plugin_subjects.h"

namespace qualm {

void RegisterRuySubjects() {
  RegisterModuleSubjects({.kind = "ruy",
                          .library = "ruy",
                          .help = "ruy  ruy::Mul, TensorFlow Lite's matrix product",
                          .install = "ruy (libruy-dev of Debian 13, or from its CMake)",
                          .by_bootstrap = false,
                          .names = {{"ruy", "qualm_ruy.so"}}});
}

}  // namespace qualm
