// SPDX-License-Identifier: Apache-2.0
// A fuzzing engine takes no options of ours: what it runs reads variables of the environment.
#ifndef QUALM_FUZZ_SETTING_H_
#define QUALM_FUZZ_SETTING_H_

#include <cstdlib>
#include <string>

namespace qualm::fuzz {

// The value of the variable; `otherwise` where it is missing or empty.
inline std::string Setting(const char* name, const std::string& otherwise = "") {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_SETTING_H_
