// SPDX-License-Identifier: Apache-2.0
// Models with bytes changed at random: each gives a result, or an error of one line.
#ifndef QUALM_MODELS_DAMAGED_TEST_UTIL_H_
#define QUALM_MODELS_DAMAGED_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/rng.h"
#include "core/status.h"
#include "models/run.h"

namespace qualm::models::test {

// `model`: of a seed, before it is damaged. `left_out`: what would run for too long.
template <class Graph>
void ExpectRunOrRefused(uint64_t seeds, const std::function<std::string(Rng&, uint64_t)>& model,
                        const std::function<bool(const Graph&)>& left_out) {
  int refused = 0, ran = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    Rng rng(seed);
    std::string damaged = model(rng, seed);
    for (uint64_t times = rng.Below(4) + 1; times > 0 && !damaged.empty(); --times)
      damaged[rng.Below(damaged.size())] = static_cast<char>(rng.Below(256));
    try {
      const Graph graph(damaged, "m");
      if (left_out(graph)) continue;
      std::vector<std::string> told;
      ModelOptions options;
      options.inputs = DrawInputs(graph, {}, seed, &told);
      RunModel(graph, options);
      ++ran;
    } catch (const InputError& error) {
      const std::string text = error.what();
      EXPECT_TRUE(text.starts_with("m: ")) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      ++refused;
    }
  }
  EXPECT_GT(ran, 300);
  EXPECT_GT(refused, 300);
}

}  // namespace qualm::models::test

#endif  // QUALM_MODELS_DAMAGED_TEST_UTIL_H_
