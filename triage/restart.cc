// SPDX-License-Identifier: Apache-2.0
#include "triage/restart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "core/slice.h"
#include "properties/gen/gen.h"

namespace qualm::triage {
namespace {

constexpr int64_t kMostElements = 1024;  // of a drawn case

bool HasTypesOf(const Case& a, const Case& b) {
  return a.x.dtype() == b.x.dtype() && a.w.dtype() == b.w.dtype() && a.out_dtype == b.out_dtype;
}

// A number that a person would write: most often 0, else small or at an end of the range.
int64_t RoundNumber(CodeRange range, Rng& rng) {
  constexpr std::array<int64_t, 12> kSmall{1, 1, 1, -1, 2, 3, 127, 128, 129, -127, -128, 255};
  const uint64_t how = rng.Below(10);
  if (how < 5) return 0;
  if (how < 8) return rng.Pick(kSmall);
  return how == 8 ? range.min : range.max;
}

float RoundFloat(Rng& rng) {
  constexpr std::array<float, 14> kSome{0, 0, 0, 0, 1, 1, -1, 0.5f, -0.5f, 1.5f, 2, 3, 127.5f, 256};
  return rng.Pick(kSome);
}

void SetRoundCodes(Tensor& tensor, Rng& rng) {
  if (tensor.dtype() == DType::kF32) {
    for (float& value : tensor.as<float>()) value = RoundFloat(rng);
    return;
  }
  const CodeRange range = RangeOf(tensor.dtype());
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const int64_t number = RoundNumber(range, rng);
    tensor.SetInt(i, static_cast<int32_t>(std::clamp<int64_t>(number, range.min, range.max)));
  }
}

int32_t RoundZeroPoint(Rng& rng) {
  constexpr std::array<int32_t, 4> kEnds{INT32_MIN, INT32_MAX, 1 << 30, -(1 << 30)};
  if (rng.Chance(1, 2)) return 0;
  return rng.Chance(1, 16) ? rng.Pick(kEnds) : static_cast<int32_t>(RoundNumber({-128, 255}, rng));
}

void SetRoundParameters(QParams& q, Rng& rng) {
  constexpr std::array<float, 10> kScales{1, 1, 1, 1, 1, 2, 2, 0.5f, 3, 4};
  for (float& scale : q.scale) scale = rng.Pick(kScales);
  for (int32_t& zero_point : q.zero_point) zero_point = RoundZeroPoint(rng);
}

int RandomExponent(Rng& rng) { return static_cast<int>(rng.Between(-12, 20)); }

// A case with as many elements as `c`, or fewer, and with round numbers.
Case WithRoundNumbers(const Case& c, Rng& rng) {
  constexpr int64_t kMostTerms = 4;
  Case round = rng.Chance(1, 2) ? slice::WithoutParameters(c) : ProblemOf(c);
  if (rng.Chance(1, 2)) OpenClamp(&round);
  if (HasWeights(c.op) && !HasWindow(c.op) && (c.K > 0 || IsCode(c.x.dtype()))) {
    // A term where `c` has none may take the place of its bias.
    std::vector<int64_t> terms = slice::Range(0, std::clamp<int64_t>(c.K, 1, kMostTerms));
    if (c.K == 0) terms.front() = -1;
    terms.resize(rng.Below(terms.size() + 1));
    round = slice::Terms(round, terms);
  }
  SetRoundCodes(round.x, rng);
  SetRoundCodes(round.w, rng);
  for (QParams* q : {&round.x_q, &round.w_q, &round.out_q}) {
    const bool keeps = rng.Chance(1, 4);
    if (!keeps) SetRoundParameters(*q, rng);
  }
  if (rng.Chance(1, 4))
    round.out_q.scale.assign(round.out_q.scale.size(), std::ldexp(1.0f, RandomExponent(rng)));
  if (rng.Chance(1, 2)) round.bias.reset(), round.bias_i32.reset();
  if (round.bias) {
    for (float& value : *round.bias) value = RoundFloat(rng);
  }
  if (round.bias_i32) {
    for (int32_t& value : *round.bias_i32)
      value = static_cast<int32_t>(RoundNumber({INT32_MIN, INT32_MAX}, rng));
  }
  return round;
}

using ByComplexity = std::multimap<std::vector<int64_t>, Case>;

void Add(Case c, ByComplexity& cases) {
  std::vector<int64_t> complexity = Complexity(c);
  cases.emplace(std::move(complexity), std::move(c));
}

class Search {
 public:
  Search(const Case& c, const Hypothesis& causes, const Convention* model, const Holds& possible)
      : c_(c), causes_(causes), model_(model), possible_(possible) {}

  std::vector<Case> Run() {
    AddRound();
    AddDrawn();
    ByComplexity found;
    for (const Case& start : starts_) {
      constexpr int64_t kMostCandidates = 250;
      Case small = Reduce(start, [&](const Case& s) { return Acts(s); }, kMostCandidates / Cost());
      if (Complexity(small) < Complexity(c_)) Add(std::move(small), found);
    }
    std::vector<Case> cases;
    for (auto& [complexity, small] : found) {
      if (cases.empty() || small != cases.back()) cases.push_back(std::move(small));
    }
    return cases;
  }

 private:
  // A convention computes its own steps, and then each output again that a cause moves.
  int Cost() const { return model_ == nullptr ? 1 : 8; }

  bool Acts(const Case& c) const {
    if (!possible_(c)) return false;
    const std::optional<Tensor> y = Counterfactual(c, causes_, model_);
    return y && *y != RightOutput(c, model_);
  }

  // The simplest of many cases with round numbers.
  void AddRound() {
    constexpr int kTries = 3000, kMostElementsOfAll = 60'000;
    constexpr size_t kMost = 4;
    const std::vector<int64_t> here = Complexity(c_);
    const auto size = static_cast<int>(std::min<int64_t>(c_.x.size() + c_.w.size(), kMostElements));
    const int tries = std::min(kTries, kMostElementsOfAll / (size + 1)) / Cost();
    ByComplexity acting;
    for (int i = 0; i < tries; ++i) {
      Rng rng(MixSeed(kSeed, static_cast<uint64_t>(i)));
      Case round = WithRoundNumbers(c_, rng);
      if (Complexity(round) >= here || !Validate(round).empty() || !Acts(round)) continue;
      Add(std::move(round), acting);
      if (acting.size() > kMost) acting.erase(std::prev(acting.end()));
    }
    for (auto& [complexity, round] : acting) starts_.push_back(std::move(round));
  }

  // The same for every case of the operation, so that all end alike.
  void AddDrawn() {
    constexpr uint64_t kTries = 400;
    const int most = std::max(1, 8 / Cost());
    int drawn = 0;
    for (uint64_t i = 0; i < kTries && drawn < most; ++i) {
      Case c = gen::Draw(c_.op, MixSeed(kSeed, i));
      if (!HasTypesOf(c, c_) || c.x.size() + c.w.size() > kMostElements) continue;
      if (c.M * c.N * std::max<int64_t>(c.K, 1) > 4 * kMostElements || !Acts(c)) continue;
      ++drawn;
      starts_.push_back(std::move(c));
    }
  }

  static constexpr uint64_t kSeed = 20261124;

  const Case& c_;
  const Hypothesis& causes_;
  const Convention* const model_;
  const Holds& possible_;
  std::vector<Case> starts_;
};

}  // namespace

std::vector<Case> Restarts(const Case& c, const Hypothesis& causes, const Convention* model,
                           const Holds& possible) {
  return Search(c, causes, model, possible).Run();
}

}  // namespace qualm::triage
