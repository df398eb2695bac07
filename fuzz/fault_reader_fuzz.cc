// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as the row of a fault: an InputError on one line, or a row that reads back equal.
// Traps at anything else.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/io/fault_row.h"
#include "core/status.h"
#include "fuzz/reads_or_refuses.h"

using namespace qualm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::ReadsOrRefuses(
      [&] {
        const FaultRow row = ParseFaultRow(text, "fuzz");
        QUALM_CHECK(ParseFaultRow(FaultRowToJson(row), "fuzz") == row);
        QUALM_CHECK(row.fingerprint().find('/') == std::string_view::npos);
      },
      "fuzz: ");
  return 0;
}
