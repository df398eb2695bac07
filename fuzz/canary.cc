// SPDX-License-Identifier: Apache-2.0
#include "fuzz/canary.h"

#include <cstdint>
#include <numeric>

namespace qualm::fuzz {
namespace {

void Spoil(const Case& c, Outcome& outcome) {
  const auto& x = c.x.bytes();
  const bool odd = std::accumulate(x.begin(), x.end(), uint64_t{0}) % 2 == 1;
  if (odd && outcome.ok() && outcome.y.size() > 0) outcome.y.bytes()[0] ^= 1;
}

}  // namespace

Outcome CanarySubject::Run(const Case& c, const RunContext& context) {
  Outcome outcome = inner().Run(c, context);
  Spoil(c, outcome);
  return outcome;
}

std::vector<Outcome> CanarySubject::RunMany(std::span<const Case> cases,
                                            const RunContext& context) {
  std::vector<Outcome> outcomes = inner().RunMany(cases, context);
  for (size_t i = 0; i < outcomes.size(); ++i) Spoil(cases[i], outcomes[i]);
  return outcomes;
}

}  // namespace qualm::fuzz
