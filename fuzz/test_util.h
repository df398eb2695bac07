// SPDX-License-Identifier: Apache-2.0
// What the tests of this folder share.
#ifndef QUALM_FUZZ_TEST_UTIL_H_
#define QUALM_FUZZ_TEST_UTIL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/io/case_json.h"
#include "core/rng.h"

namespace qualm::fuzz {

inline std::vector<Op> EveryOp() { return {AllOps().begin(), AllOps().end()}; }

inline std::string Text(const Case& c) { return CaseToJson(c); }

inline std::vector<uint8_t> AnyBytes(Rng& rng, size_t size) {
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
  return bytes;
}

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_TEST_UTIL_H_
