// SPDX-License-Identifier: Apache-2.0
#include "triage/reduce.h"

#include <utility>
#include <vector>

#include "triage/triage.h"

namespace qualm::triage {
namespace {

// Bytes that tell cases apart; only used to avoid asking the same question twice.
std::string Key(const Case& c) {
  std::string key = Describe(c);
  const auto add = [&](const auto& list) {
    key.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(list[0]));
    key.push_back('|');
  };
  for (const Tensor* tensor : {&c.x, &c.w}) {
    key.append(tensor->bytes().begin(), tensor->bytes().end());
    key.push_back('|');
  }
  for (const QParams* q : {&c.x_q, &c.w_q, &c.out_q}) {
    add(q->scale);
    add(q->zero_point);
  }
  add(c.multiplier);
  if (c.bias) add(*c.bias);
  if (c.bias_i32) add(*c.bias_i32);
  key += std::to_string(c.out_min) + "," + std::to_string(c.out_max);
  return key;
}

}  // namespace

std::optional<Case> Reduction::Step(const Pass& pass, const Case& c, const Holds& holds,
                                    const std::function<bool()>& spent) {
  // Candidates that cost no run are not free: a long constant row offers tens of thousands.
  constexpr int64_t kMostRefused = 30'000'000;  // elements
  int64_t refused = 0;
  std::optional<Case> taken;
  const std::vector<int64_t> here = Complexity(c);
  pass.run(c, [&](const Case& candidate) {
    if (spent() || refused > kMostRefused) return true;
    if (Complexity(candidate) >= here || !Validate(candidate).empty() ||
        !tried_.insert(Key(candidate)).second) {
      refused += c.x.size() + c.w.size();
      return false;
    }
    if (!holds(candidate)) return false;
    taken = candidate;
    return true;
  });
  return taken;
}

Case Reduce(Case c, const Holds& holds, int64_t most) {
  Reduction reduction;
  int64_t asked = 0;
  const auto spent = [&] { return asked >= most; };
  const Holds counted = [&](const Case& candidate) {
    ++asked;
    return holds(candidate);
  };
  bool improved = true;
  while (improved && !spent()) {
    improved = false;
    for (const Pass& pass : AllPasses()) {
      while (std::optional<Case> next = reduction.Step(pass, c, counted, spent)) {
        c = std::move(*next);
        improved = true;
      }
    }
  }
  return c;
}

}  // namespace qualm::triage
