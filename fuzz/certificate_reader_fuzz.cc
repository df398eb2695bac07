// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a certificate: an InputError on one line, or a certificate that is written and
// read back equal. Traps at anything else.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/io/certificate_json.h"
#include "core/status.h"
#include "fuzz/reads_or_refuses.h"

using namespace qualm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::ReadsOrRefuses(
      [&] {
        const Certificate certificate = ParseCertificate(text, "fuzz");
        QUALM_CHECK(!certificate.problems.empty());
        QUALM_CHECK(ParseCertificate(CertificateToJson(certificate), "again") == certificate);
      },
      "fuzz: ");
  return 0;
}
