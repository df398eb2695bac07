// SPDX-License-Identifier: Apache-2.0
#include "proofs/layer_certificate.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/io/json_text.h"
#include "core/io/text_file.h"
#include "core/status.h"

namespace qualm::proofs {
namespace {

constexpr std::string_view kSchema = "qualm.layers/1";
constexpr size_t kMaxBytes = size_t{1} << 28;
constexpr std::array<std::string_view, 5> kKinds{"exact", "saturating pairs", "saturating runs",
                                                 "wrapping chains", "float32"};

template <class T>
std::string_view BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The line of the document that holds its hash.
std::string HashLine(std::string_view rest) {
  return fmt::format("  \"hash\": \"{}\"\n}}\n", HashOf(rest));
}

}  // namespace

std::string HashOf(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

JsonValue CertificateOf(std::string_view name, const Case& layer, const Scheme& scheme, Codes x,
                        const Proof& proof) {
  const std::span<const uint8_t> w = layer.w.bytes();
  const auto channel = [](const UnsafeChannel& unsafe) { return unsafe.n; };
  return JsonObject(
      {{"layer", name},
       {"op", Name(layer.op)},
       {"weights", layer.w.shape()},
       {"weights_type", Name(layer.w.dtype())},
       {"weights_hash", HashOf({reinterpret_cast<const char*>(w.data()), w.size()})},
       {"x_type", Name(layer.x.dtype())},
       {"x", std::array{x.lo, x.hi}},
       {"scheme", scheme.name},
       {"adds", kKinds[static_cast<size_t>(scheme.kind)]},
       {"length", scheme.length},
       {"spill", scheme.kind == Scheme::Kind::kRuns ? JsonValue(scheme.spill) : std::nullopt},
       {"order_hash",
        scheme.order.empty() ? JsonValue(std::nullopt) : HashOf(BytesOf(scheme.order))},
       {"method", "both corners of every narrow sum"},
       {"channels", proof.channels},
       {"sums", proof.sums},
       {"unsafe_channels", std::views::transform(proof.unsafe, channel)},
       {"accumulators", std::array{proof.least, proof.most}},
       {"safe", proof.safe() && proof.fits_int32()}},
      kSpaced);
}

std::string CertificateText(std::span<const JsonValue> certificates) {
  std::string text = fmt::format("{{\n  \"schema\": \"{}\",\n  \"layers\": [", kSchema);
  std::string_view separator = "\n    ";
  for (const JsonValue& certificate : certificates) {
    text += separator;
    text += certificate.text();
    separator = ",\n    ";
  }
  text += "\n  ],\n";
  return text + HashLine(text);
}

void RequireSame(const std::string& path, std::span<const JsonValue> certificates) {
  const std::string given = ReadTextFile(path, "certificate", kMaxBytes);
  const std::string expected = CertificateText(certificates);
  if (given == expected) return;
  const auto fail = [&](const std::string& what) { throw InputError(OneLine(path) + ": " + what); };
  const size_t last = given.rfind("  \"hash\": ");
  if (last == std::string::npos || given.substr(last) != HashLine(given.substr(0, last))) {
    fail("hash: is not that of the text, expected a certificate as qualm certify wrote it");
  }
  // Which layer differs: documents have a line for each.
  const auto [a, b] = std::ranges::mismatch(given, expected);
  const auto line = std::count(given.begin(), a, '\n') + 1;
  fail(
      fmt::format("line {}: is about other weights, activations or schemes, or claims otherwise; "
                  "expected what is proven here",
                  line));
}

}  // namespace qualm::proofs
