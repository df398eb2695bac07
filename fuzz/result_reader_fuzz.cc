// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a result document: an InputError on one line, or a record whose findings are
// complete. Traps at anything else.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/io/result_reader.h"
#include "core/status.h"
#include "fuzz/reads_or_refuses.h"

using namespace qualm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::ReadsOrRefuses(
      [&] {
        const ResultRecord record = ParseResult(text, "fuzz");
        for (const RecordedFinding& finding : record.findings) {
          QUALM_CHECK(finding.is_new() == (!finding.expected_by_contract && finding.known.empty()));
          if (finding.divergence) QUALM_CHECK(finding.divergence->index >= 0);
        }
        for (const RecordedVerdicts& verdicts : record.verdicts) {
          for (const auto& [judgement, count] : verdicts.counts) QUALM_CHECK(count >= 0);
        }
      },
      "fuzz: ");
  return 0;
}
