// SPDX-License-Identifier: Apache-2.0
// A fuzzing engine small enough for a test: it climbs towards hazards by their distances, with the
// same inputs on every machine.
#ifndef QUALM_FUZZ_CLIMBER_H_
#define QUALM_FUZZ_CLIMBER_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "core/case.h"
#include "core/rng.h"

namespace qualm::fuzz {

// libFuzzer's loop without the engine, for tests and measurements that need the same inputs on
// every machine: mutates a kept input, and keeps an input that lights a counter of
// DistanceCounters() that was dark before.
class Climber {
 public:
  using Light = void (*)(const Case&);

  // `light` lights the counters of a case (ReportDistances); null: nothing is kept, so that every
  // input is a drawn case, mutated up to four times.
  Climber(Op op, uint64_t seed, Light light) : op_(op), rng_(seed), light_(light), kept_{{}} {}

  // The next case.
  Case operator()();

 private:
  bool IsNews(const Case& c);

  Op op_;
  Rng rng_;
  Light light_;
  std::vector<std::vector<uint8_t>> kept_;
  std::set<size_t> lit_;
};

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_CLIMBER_H_
