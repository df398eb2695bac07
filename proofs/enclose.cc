// SPDX-License-Identifier: Apache-2.0
#include "proofs/enclose.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

namespace qualm::proofs {

std::string WhyNotEnclosed(const Domain& domain, const Steps& steps, uint64_t last,
                           const Enclose& enclose) {
  // Next to a step several inputs may have to be looked at one by one; where whole regions have to,
  // intervals are no shorter than the sweep.
  constexpr uint64_t kMostQuestions = uint64_t{1} << 18;
  uint64_t questions = 0;
  std::vector<std::pair<uint64_t, uint64_t>> open;
  for (size_t i = 0; i < steps.size(); ++i) {
    open.emplace_back(steps[i].start, i + 1 < steps.size() ? steps[i + 1].start - 1 : last);
    while (!open.empty()) {
      const auto [from, to] = open.back();
      open.pop_back();
      const auto codes = enclose(domain.BitsOf(from), domain.BitsOf(to));
      if (codes && codes->lo == steps[i].value && codes->hi == steps[i].value) continue;
      if (from == to || ++questions > kMostQuestions) {
        const std::string found =
            codes ? fmt::format("{} to {}", codes->lo, codes->hi) : "no interval";
        return fmt::format("is not shown by intervals: at {} they give {}, expected {}",
                           domain.TextOf(from), found, steps[i].value);
      }
      const uint64_t middle = from + (to - from) / 2;
      open.emplace_back(middle + 1, to);
      open.emplace_back(from, middle);
    }
  }
  return "";
}

}  // namespace qualm::proofs
