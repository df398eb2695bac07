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

// Every operation has bytes, also those that other layers do not have yet.
inline std::vector<Op> EveryOp() {
  std::vector<Op> ops;
  for (int op = 0; op <= static_cast<int>(Op::kChooseQParams); ++op)
    ops.push_back(static_cast<Op>(op));
  return ops;
}

// Operations that are not listed have no spelling in case files.
inline std::string Text(const Case& c) { return IsListed(c.op) ? CaseToJson(c) : Describe(c); }

inline std::vector<uint8_t> AnyBytes(Rng& rng, size_t size) {
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
  return bytes;
}

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_TEST_UTIL_H_
