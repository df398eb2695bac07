// SPDX-License-Identifier: Apache-2.0
// Shared by our plugins: the answer of run() and the sentence behind it. Header only, because each
// plugin is a shared object of its own.
#ifndef QUALM_ADAPTERS_LIBRARIES_PLUGIN_ANSWER_H_
#define QUALM_ADAPTERS_LIBRARIES_PLUGIN_ANSWER_H_

#include <cstdint>
#include <exception>
#include <string>

#include "adapters/qualm_plugin.h"

namespace qualm::plugin {

// Thrown to refuse a problem: QUALM_UNSUPPORTED or QUALM_FAILED, and the reason.
struct Refusal {
  int32_t status;
  std::string text;
};

// Never destroyed: at process exit the library's own globals may go first.
inline std::string& LastError() {
  static auto* text = new std::string;
  return *text;
}
inline const char* LastErrorText() { return LastError().c_str(); }

// Calls `run` and turns its end, or its exception, into the answer of run().
template <class Function>
int32_t Answer(Function run) {
  LastError().clear();
  try {
    run();
    return QUALM_OK;
  } catch (const Refusal& refusal) {
    LastError() = refusal.text;
    return refusal.status;
  } catch (const std::exception& error) {
    LastError() = error.what();
    return QUALM_FAILED;
  }
}

}  // namespace qualm::plugin

#endif  // QUALM_ADAPTERS_LIBRARIES_PLUGIN_ANSWER_H_
