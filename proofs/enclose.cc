// SPDX-License-Identifier: Apache-2.0
#include "proofs/enclose.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace qualm::proofs {
namespace {

// Next to a step several inputs may have to be looked at one by one; where whole regions have to,
// intervals are no shorter than the sweep.
constexpr uint64_t kMostHalves = uint64_t{1} << 18;

class Shower {
 public:
  Shower(const Domain& domain, const Enclose& enclose) : domain_(domain), enclose_(enclose) {}

  // Whether all inputs from `from` to `to` are shown to give `value`; else why() is set.
  bool Shows(uint64_t from, uint64_t to, int32_t value) {
    if (tail_ == 0 && Decides(from, to, value)) return true;
    return InTwo(from, to, value) || InHalves(from, to, value);
  }
  const std::string& why() const { return why_; }

 private:
  bool Decides(uint64_t from, uint64_t to, int32_t value) {
    codes_ = enclose_(domain_.BitsOf(from), domain_.BitsOf(to));
    return codes_ && codes_->lo == value && codes_->hi == value;
  }

  // Kernels take another way for the last inputs before a step, whose values are next to a tie: so
  // the interval falls into two, and there are about as many last inputs as before the step before.
  // The first or the last input may be a tie itself, a part of its own. A guess that is wrong costs
  // time, nothing else.
  bool InTwo(uint64_t from, uint64_t to, int32_t value) {
    uint64_t least = 1, most = to - from;          // inputs of the last part
    bool above_least = false, below_most = false;  // were asked, and are not enough or too many
    uint64_t tail = std::max<uint64_t>(tail_, 1);
    for (uint64_t stride = 1; least <= most; stride *= 2) {
      tail = std::clamp(tail, least, most);
      if (!Decides(from, to - tail, value)) {
        if (!above_least && most > 2 && !Decides(from, from + 1, value) &&
            Decides(from, from, value)) {
          ++from;
          --most;
          continue;
        }
        least = tail + 1;
        above_least = true;
        tail += stride;
      } else if (!Decides(to - tail + 1, to, value)) {
        if (!below_most && tail > 1 && !Decides(to - 1, to, value) && Decides(to, to, value)) {
          --to;
          --most;
          --tail;
          least = std::max<uint64_t>(least - 1, 1);
          continue;
        }
        most = tail - 1;
        below_most = true;
        tail -= std::min(stride, tail);
      } else {
        tail_ = tail;
        return true;
      }
      if (above_least && below_most) tail = least + (most - least) / 2;
    }
    return false;
  }

  bool InHalves(uint64_t first, uint64_t last, int32_t value) {
    std::vector<std::pair<uint64_t, uint64_t>> open{{first, last}};
    tail_ = 0;
    while (!open.empty()) {
      const auto [from, to] = open.back();
      open.pop_back();
      if (Decides(from, to, value)) continue;
      if (from == to || ++halves_ > kMostHalves) {
        const std::string found =
            codes_ ? fmt::format("{} to {}", codes_->lo, codes_->hi) : "no interval";
        why_ = fmt::format("is not shown by intervals: at {} they give {}, expected {}",
                           domain_.TextOf(from), found, value);
        return false;
      }
      const uint64_t middle = from + (to - from) / 2;
      open.emplace_back(middle + 1, to);
      open.emplace_back(from, middle);
    }
    return true;
  }

  const Domain& domain_;
  const Enclose& enclose_;
  std::optional<EnclosingSubject::Codes> codes_;  // of the last question
  uint64_t tail_ = 0;  // inputs of the last part of the last interval; 0: it is one part
  uint64_t halves_ = 0;
  std::string why_;
};

}  // namespace

std::string WhyNotEnclosed(const Domain& domain, const Steps& steps, uint64_t last,
                           const Enclose& enclose) {
  Shower shower(domain, enclose);
  for (size_t i = 0; i < steps.size(); ++i) {
    const uint64_t to = i + 1 < steps.size() ? steps[i + 1].start - 1 : last;
    if (!shower.Shows(steps[i].start, to, steps[i].value)) return shower.why();
  }
  return "";
}

}  // namespace qualm::proofs
