// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a case file, once more with its decimals as printed and its unknown numbers
// left open: an InputError on one line, or a valid case that is equal after writing and reading.
// Traps at anything else.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/case_json.h"
#include "core/status.h"

using namespace qualm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<UnknownNumber> unknown;
  for (const CaseReading& reading :
       {CaseReading{}, CaseReading{.as_printed = true, .unknown = &unknown}}) {
    try {
      const Case c = ParseCase({reinterpret_cast<const char*>(data), size}, "fuzz", reading);
      QUALM_CHECK(Validate(c).empty());
      QUALM_CHECK(ParseCase(CaseToJson(c), "written") == c);
      QUALM_CHECK(ParseCase(CaseToJsonLine(c), "written on one line") == c);
    } catch (const InputError& error) {
      const std::string_view what = error.what();
      QUALM_CHECK(what.starts_with("fuzz: "));
      QUALM_CHECK(what.find('\n') == std::string_view::npos);
    }
  }
  return 0;
}
