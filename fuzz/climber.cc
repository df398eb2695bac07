// SPDX-License-Identifier: Apache-2.0
#include "fuzz/climber.h"

#include <utility>

#include "fuzz/case_codec.h"
#include "fuzz/feedback.h"
#include "fuzz/mutator.h"

namespace qualm::fuzz {

Case Climber::operator()() {
  constexpr size_t kInputMax = 4096;  // libFuzzer's
  std::vector<uint8_t> input = kept_[rng_.Below(kept_.size())];
  for (int64_t times = rng_.Between(1, 5); times > 0; --times) {
    input = MutatedBytes(op_, std::move(input), kInputMax, static_cast<unsigned>(rng_.Next()));
  }
  const Case c = DecodeCase(op_, input);
  if (light_ != nullptr && IsNews(c)) kept_.push_back(input);
  return c;
}

bool Climber::IsNews(const Case& c) {
  ClearDistances();
  light_(c);
  const auto counters = DistanceCounters();
  bool news = false;
  for (size_t i = 0; i < counters.size(); ++i) news |= counters[i] != 0 && lit_.insert(i).second;
  return news;
}

}  // namespace qualm::fuzz
