// SPDX-License-Identifier: Apache-2.0
// Certificates ("qualm.certificate/1", docs/proofs.md and certificate.schema.json): what a subject
// gave on every input of a domain, for anyone to check again. A run that was stopped leaves one
// that covers a part.
#ifndef QUALM_CORE_IO_CERTIFICATE_JSON_H_
#define QUALM_CORE_IO_CERTIFICATE_JSON_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/io/json_writer.h"

namespace qualm {

struct Certificate {
  // How the result was obtained.
  enum class Method : uint8_t {
    kSteps,      // each step of the subject against the exact one
    kFull,       // every input, compared between exact steps
    kEach,       // every input, each compared with the exact output for this input
    kIntervals,  // as kSteps, and the subject's arithmetic, evaluated on intervals, has these steps
  };

  // The subject that was judged, and the program that judged it.
  std::string qualm;     // its version
  std::string compiler;  // that built it
  std::string subject, version, instruction_set;
  std::string contract;  // "exact", "model:NAME"

  // The problems, each judged with each scale and each zero point. A problem carries one input,
  // which means nothing.
  std::vector<Case> problems;
  bool any_weights = false;  // linear: over the weights too
  struct Scales {
    float first = 1, last = 1;  // both included
    int64_t stride = 1;         // in representable values
    friend bool operator==(const Scales&, const Scales&) = default;
  };
  std::optional<Scales> scales;
  struct ZeroPoints {
    int32_t first = 0, last = 0;
    friend bool operator==(const ZeroPoints&, const ZeroPoints&) = default;
  };
  std::optional<ZeroPoints> zero_points;

  Method method = Method::kSteps;
  int64_t per_call = 0;  // outputs of one call of the subject; 0: as suits it
  // [first, last) of outputs, or, where there are several parameter sets, of sets; disjoint,
  // rising.
  std::vector<std::pair<int64_t, int64_t>> covered;
  int64_t whole = 0;  // the whole domain is [0, whole)

  // The result. An output that is wrong, in words and by its numbers.
  struct Wrong {
    int64_t set = 0, number = 0;
    int64_t expected = 0, actual = 0, distance = 0;
    bool nan = false;  // the input is a NaN
    std::string input;
    friend bool operator==(const Wrong&, const Wrong&) = default;
  };
  int64_t judged = 0, asked = 0, wrong = 0, wrong_nan = 0;
  std::optional<Wrong> first, worst;
  // Why the inputs that were asked speak for all those judged: the subject rises with its input.
  std::string monotone;

  bool complete() const {
    return covered.size() == 1 && covered[0] == std::pair<int64_t, int64_t>{0, whole};
  }
  friend bool operator==(const Certificate&, const Certificate&) = default;
};

constexpr std::array<std::string_view, 4> kMethodNames{"steps", "full", "each", "intervals"};
constexpr std::string_view Name(Certificate::Method method) {
  return kMethodNames[static_cast<size_t>(method)];
}

// FNV-1a, 64 bits, of everything else in the certificate, in hex.
std::string HashOf(const Certificate& certificate);

JsonValue CertificateJson(const Certificate& certificate);  // on one line
std::string CertificateToJson(const Certificate& certificate);
// `name` is what error lines begin with. Throws InputError "NAME: FIELD: what, expected what", also
// where the hash is not that of the rest. ParseCertificate(CertificateToJson(c)) == c.
Certificate ParseCertificate(std::string_view text, std::string_view name);
Certificate ReadCertificateFile(const std::string& path);

}  // namespace qualm

#endif  // QUALM_CORE_IO_CERTIFICATE_JSON_H_
