// SPDX-License-Identifier: Apache-2.0
// What the tests of this folder share.
#ifndef QUALM_ORACLES_CONVENTIONS_TEST_UTIL_H_
#define QUALM_ORACLES_CONVENTIONS_TEST_UTIL_H_

#include <string_view>

#include "core/status.h"
#include "oracles/conventions/model.h"

namespace qualm {

// The model of this name, which must exist.
inline const Model& Get(std::string_view name) {
  const Model* model = FindModel(name);
  QUALM_CHECK(model != nullptr);
  return *model;
}

}  // namespace qualm

#endif  // QUALM_ORACLES_CONVENTIONS_TEST_UTIL_H_
