// SPDX-License-Identifier: Apache-2.0
// Feedback that coverage cannot give: how close a case comes to saturation, overflow, a tie and the
// clamp. The case alone decides the feedback, so closed libraries are fuzzed with it too.
#ifndef QUALM_FUZZ_FEEDBACK_H_
#define QUALM_FUZZ_FEEDBACK_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/case.h"
#include "oracles/headroom/headroom.h"

namespace qualm::fuzz {

// Lights the counters of this case. libFuzzer keeps an input that lights a new counter, and clears
// the counters before each execution; other engines do not look at the counters.
// QUALM_FUZZ_FEEDBACK=off leaves the counters dark, to measure what they are worth
// (bench/guidance).
void ReportDistances(const Case& c);

// The counters that the measures of a case light, as ReportDistances does.
void LightCounters(const headroom::Headroom& measures, std::span<volatile uint8_t> counters);

// The array itself, and 0 in every counter.
std::span<volatile uint8_t> DistanceCounters();
void ClearDistances();

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_FEEDBACK_H_
