// SPDX-License-Identifier: Apache-2.0
// Lookup of a convention for the tests of this folder.
#ifndef QUALM_ORACLES_CONVENTIONS_TEST_UTIL_H_
#define QUALM_ORACLES_CONVENTIONS_TEST_UTIL_H_

#include <string_view>

#include "core/status.h"
#include "oracles/conventions/convention.h"

namespace qualm {

// The convention of this name, which must exist.
inline const Convention& Get(std::string_view name) {
  const Convention* convention = FindConvention(name);
  QUALM_CHECK(convention != nullptr);
  return *convention;
}

}  // namespace qualm

#endif  // QUALM_ORACLES_CONVENTIONS_TEST_UTIL_H_
