// SPDX-License-Identifier: Apache-2.0
#include "report/certify_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/html.h"
#include "report/pictures.h"
#include "report/words.h"

namespace qualm::report {

Svg UnsafeChannels(const proofs::Proof& proof) {
  if (proof.safe()) return {};
  constexpr int64_t kMost = 128;
  const int64_t wide = (proof.channels + kMost - 1) / kMost;
  std::map<int64_t, int64_t> bars;
  for (const proofs::UnsafeChannel& one : proof.unsafe) bars[one.n / wide] += one.sums;
  const int64_t most =
      std::ranges::max_element(bars, {}, [](const auto& bar) { return bar.second; })->second;
  Chart chart({"output channel", 0, static_cast<double>(proof.channels)},
              {"unsafe sums", 0, static_cast<double>(most)},
              fmt::format("{} of {} with sums that may overflow",
                          Number(static_cast<int64_t>(proof.unsafe.size())),
                          Count(proof.channels, "channel")));
  for (const auto& [bar, sums] : bars) {
    const int64_t from = bar * wide, to = std::min(proof.channels, from + wide);
    chart.Bar(static_cast<double>(from), static_cast<double>(to), static_cast<double>(sums),
              "q-red",
              (wide == 1 ? fmt::format("channel {}: ", from)
                         : fmt::format("channels {} to {}: ", from, to - 1)) +
                  Count(sums, "unsafe sum"));
  }
  return chart.svg();
}

std::string CertifyPage(const std::vector<ProvenLayer>& layers) {
  const auto unsafe = std::ranges::count_if(
      layers, [](const ProvenLayer& one) { return !one.proof.safe() || !one.proof.fits_int32(); });
  const bool clean = unsafe == 0;
  Blocks first{Heading{1, "Can the narrow sums overflow?", ""},
               Paragraph{clean ? "No: proven for every input of every layer and way to add."
                               : fmt::format("Yes: {} of the {} below {}.", unsafe,
                                             Count(std::ssize(layers), "proof"),
                                             unsafe == 1 ? "fails" : "fail"),
                         clean ? Tone::kGood : Tone::kBad, true}};
  Blocks rest;
  std::string last;
  for (const ProvenLayer& one : layers) {
    if (one.name != last) {
      rest.push_back(Heading{2, one.name, fmt::format("layer-{}", rest.size())});
      rest.push_back(Paragraph{one.says, Tone::kMuted});
    }
    last = one.name;
    const proofs::Proof& proof = one.proof;
    const std::string channels = Count(proof.channels, "channel"), sums = Count(proof.sums, "sum");
    std::string text =
        proof.safe() ? fmt::format("{}: safe, proven for {} and {}", one.scheme, channels, sums)
                     : fmt::format("{}: {} of {}, {} of {} may overflow", one.scheme,
                                   Number(std::ssize(proof.unsafe)), channels,
                                   Number(proof.unsafe_sums), sums);
    text += fmt::format("; accumulators in {}..{}{}", proof.least, proof.most,
                        proof.fits_int32() ? "" : ", beyond int32");
    const bool good = proof.safe() && proof.fits_int32();
    rest.push_back(Paragraph{text + ".", good ? Tone::kGood : Tone::kBad});
    if (Svg bars = UnsafeChannels(proof); !bars.empty()) {
      const std::string says = bars.says();
      rest.push_back(Picture{std::move(bars), says + ".", "unsafe"});
    }
  }
  return Html(first, rest);
}

}  // namespace qualm::report
