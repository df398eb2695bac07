// SPDX-License-Identifier: Apache-2.0
// What all strange kernels say of themselves (bench/strangers).
#ifndef QUALM_BENCH_STRANGE_PLUGIN_H_
#define QUALM_BENCH_STRANGE_PLUGIN_H_

#include <qualm_plugin.h>

namespace strange {

inline const qualm_plugin* Plugin(decltype(qualm_plugin::capability) capability,
                                  decltype(qualm_plugin::run) run,
                                  decltype(qualm_plugin::last_error) last_error) {
  static const qualm_plugin plugin = {.size = sizeof(qualm_plugin),
                                      .abi_version = QUALM_ABI_VERSION,
                                      .name = "strange",
                                      .version = "1",
                                      .contract = "exact",
                                      .capability = capability,
                                      .run = run,
                                      .last_error = last_error};
  return &plugin;
}

}  // namespace strange

#endif  // QUALM_BENCH_STRANGE_PLUGIN_H_
