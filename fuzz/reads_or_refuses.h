// SPDX-License-Identifier: Apache-2.0
// The promise of every reader of hostile text: it reads the text, or refuses it in one line.
#ifndef QUALM_FUZZ_READS_OR_REFUSES_H_
#define QUALM_FUZZ_READS_OR_REFUSES_H_

#include <string_view>

#include "core/status.h"

namespace qualm::fuzz {

// Traps if `read` throws an InputError that has several lines or does not begin with `prefix`. Any
// other exception ends the target.
template <class Read>
void ReadsOrRefuses(Read read, std::string_view prefix = "") {
  try {
    read();
  } catch (const InputError& error) {
    const std::string_view what = error.what();
    QUALM_CHECK(what.starts_with(prefix));
    QUALM_CHECK(what.find('\n') == std::string_view::npos);
  }
}

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_READS_OR_REFUSES_H_
