// SPDX-License-Identifier: Apache-2.0
#include "fuzz/feedback.h"

#include <algorithm>
#include <bit>

#include "fuzz/setting.h"
#include "fuzz/watch.h"

namespace qualm::fuzz {
namespace {

// One group of counters per measure; within it one counter per half octave of distance.
constexpr size_t kGroup = 160;
enum Measure : size_t { kPair, kAccumulator, kTie, kTies, kLow, kHigh, kMeasures };

// Without `used` and volatile the optimiser removes the stores, and the fuzzer runs unguided
// without saying so. libFuzzer looks for a section of this name; any other engine sees plain data.
#if defined(__linux__)
__attribute__((section("__libfuzzer_extra_counters"), used))
#endif
volatile uint8_t distance_counters[kGroup * kMeasures];

// Number of half octaves in `distance` >= 0: 0, 1, 2 (2), 3 (3), 4 (4..5), 5 (6..7), ... < 128.
size_t HalfOctaves(uint64_t distance) {
  if (distance < 2) return static_cast<size_t>(distance);
  const int top = std::bit_width(distance) - 1;
  const auto second = static_cast<size_t>((distance >> (top - 1)) & 1);
  return 2 * static_cast<size_t>(top) + second;
}

// Distances fall towards a hazard, and beyond it (negative) grow again.
size_t Signed(int64_t distance) {
  constexpr size_t kBeyond = 16;  // half octaves past the hazard that still tell cases apart
  if (distance >= 0) return kBeyond + HalfOctaves(static_cast<uint64_t>(distance));
  const size_t beyond = HalfOctaves(uint64_t{0} - static_cast<uint64_t>(distance));
  return kBeyond - 1 - std::min(beyond / 2, kBeyond - 1);
}

bool Off() {
  static const bool off = Setting("QUALM_FUZZ_FEEDBACK") == "off";
  return off;
}

}  // namespace

void LightCounters(const headroom::Headroom& measures, std::span<volatile uint8_t> counters) {
  const auto light = [&](Measure measure, size_t bucket) {
    counters[measure * kGroup + std::min(bucket, kGroup - 1)] = 1;
  };
  // Saturation shows only where an output lies inside the clamp. It does not show there either if
  // sums are so small, or scales so large, that every output is next to one code. So the distance
  // lights one of three ladders.
  const bool inside = measures.clamped_low + measures.clamped_high < measures.outputs;
  const bool next_to_codes = measures.tie_min > 0.49 && measures.tie_min <= 0.5;
  if (measures.pair_min != INT32_MAX) {
    const size_t ladder = !inside ? 0 : next_to_codes ? 1 : 2;
    light(kPair, Signed(measures.pair_min) + ladder * (kGroup / 3));
  }
  if (measures.acc_min != INT64_MAX) light(kAccumulator, Signed(measures.acc_min));
  if (measures.outputs == 0) return;
  // A tie lies at distance 0; half an lsb is the farthest. 2^-40 tells near ties apart well enough.
  light(kTie, HalfOctaves(static_cast<uint64_t>(std::clamp(measures.tie_min, 0.0, 1.0) * 0x1p40)));
  light(kTies, HalfOctaves(static_cast<uint64_t>(measures.ties)));
  light(kLow, HalfOctaves(static_cast<uint64_t>(measures.clamped_low)));
  light(kHigh, HalfOctaves(static_cast<uint64_t>(measures.clamped_high)));
}

std::span<volatile uint8_t> DistanceCounters() { return distance_counters; }

void ClearDistances() { std::fill_n(distance_counters, std::size(distance_counters), uint8_t{0}); }

void ReportDistances(const Case& c) {
  if (Off()) return;
  const headroom::Headroom measures = headroom::Measure(c);
  NoteDistances(measures);
  LightCounters(measures, distance_counters);
}

}  // namespace qualm::fuzz
