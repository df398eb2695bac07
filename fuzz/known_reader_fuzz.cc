// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a baseline and as a list of suppressions: an InputError on one line, or
// entries that are complete. Traps at anything else.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "core/io/known_json.h"
#include "core/status.h"
#include "fuzz/reads_or_refuses.h"

using namespace qualm;
using fuzz::ReadsOrRefuses;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ReadsOrRefuses(
      [&] {
        for (const std::string& fingerprint : ParseBaseline(text, "fuzz")) {
          QUALM_CHECK(!fingerprint.empty());
        }
      },
      "fuzz: ");
  ReadsOrRefuses(
      [&] {
        std::set<std::string> fingerprints;
        for (const Suppression& entry : ParseSuppressions(text, "fuzz")) {
          QUALM_CHECK(!entry.fingerprint.empty());
          QUALM_CHECK(!entry.reason.empty());
          QUALM_CHECK(ParseDate(DateText(entry.expires)) == entry.expires);
          QUALM_CHECK(fingerprints.insert(entry.fingerprint).second);
        }
      },
      "fuzz: ");
  return 0;
}
