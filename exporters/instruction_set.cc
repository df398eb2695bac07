// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "exporters/evidence.h"

namespace qualm::exporters {

const InstructionSet& InstructionSetOf(const Evidence& evidence) {
  // Names that hold others come first.
  static constexpr std::array<InstructionSet, 8> kSets{
      {{"avx512core", "AVX512_CORE", "avx2", "AVX512"},
       {"avx512", "AVX512_CORE", "avx2", "AVX512"},
       {"avx2vnni", "AVX2_VNNI", "avx2", "AVX2"},
       {"avx2", "AVX2", "avx2", "AVX2"},
       {"sse41", "SSE41", "default", "AVX2"},
       {"vnni", "AVX512_CORE_VNNI", "avx2", "AVX512_E1"},
       {"amx", "AVX512_CORE_AMX", "avx2", "AVX512_E1"},
       {"", "", "", ""}}};
  const std::string& who = evidence.finding.subject;
  const size_t at = who.find_first_of("@+");
  const std::string variant = at == std::string::npos ? "" : who.substr(at);
  const auto* const found = std::ranges::find_if(kSets, [&](const InstructionSet& set) {
    return !set.name.empty() && variant.find(set.name) != std::string::npos;
  });
  if (found != kSets.end()) return *found;
  // Whatever answered, it added pairs: AVX2 does.
  return IsPairSaturation(evidence) ? kSets[3] : kSets.back();
}

}  // namespace qualm::exporters
