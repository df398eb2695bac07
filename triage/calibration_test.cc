// SPDX-License-Identifier: Apache-2.0
// How often a cause is named where there is none: on answers made at random, and on honest
// arithmetic that the table does not know. calibration_long_test prints the figures;
// calibration_test takes a part of its cases.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/rng.h"
#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"
#include "triage/causes.h"
#include "triage/identify.h"
#include "triage/stages.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

constexpr Op kOps[] = {Op::kQuantize, Op::kRequantize, Op::kRescale, Op::kLinear,
                       Op::kConv2d,   Op::kAdd,        Op::kMul,     Op::kAvgPool};

struct Named {
  int named = 0, of = 0;
  std::string which;
  void Add(const Case& c, const Tensor& y) {
    const Attribution attribution = Attribute(c, y);
    ++of;
    // That the answer is that of a named convention is no guess.
    if (!attribution.complete || !BitEqualConventions(c, y).empty()) return;
    ++named;
    which += fmt::format("{}: {}\n", Describe(c), attribution.diagnosis);
  }
};

// Small drawn cases with codes for outputs.
std::vector<Case> Cases(Op op, uint64_t count) {
  std::vector<Case> cases;
  for (uint64_t seed = 0; cases.size() < count && seed < 40 * count; ++seed) {
    const Case c = gen::Draw(op, MixSeed(20261126, seed));
    const int64_t outputs = exact::Evaluate(c).size();
    if (IsCode(c.out_dtype) && c.requant == Requant::kExact && outputs > 0 && outputs <= 64 &&
        c.M * c.N * std::max<int64_t>(c.K, 1) <= 2048)
      cases.push_back(c);
  }
  return cases;
}

// `changed` outputs at random places, moved by at most `most` codes.
Tensor AtRandom(const Case& c, int changed, int32_t most, Rng& rng) {
  Tensor y = exact::Evaluate(c);
  for (int i = 0; i < changed; ++i) {
    const int64_t at = rng.Between(0, y.size() - 1);
    const int64_t by = rng.Between(1, most) * (rng.Between(0, 1) == 0 ? 1 : -1);
    y.SetInt(at, static_cast<int32_t>(std::clamp<int64_t>(y.IntAt(at) + by, c.out_min, c.out_max)));
  }
  return y;
}

TEST(Calibration, AnswersMadeAtRandomHaveNoCause) {
  struct Kind {
    const char* name;
    int changed;
    int32_t most;
  };
  Named all;
  for (const auto& [name, changed, most] :
       {Kind{"one output by one", 1, 1}, Kind{"three outputs by one", 3, 1},
        Kind{"one output by any number", 1, 255}, Kind{"three outputs by any number", 3, 255}}) {
    Named named;
    for (const Op op : kOps) {
      Rng rng(7);
      for (const Case& c : Cases(op, 40 / QUALM_CALIBRATION_SHARE)) {
        const Tensor y = AtRandom(c, changed, most, rng);
        if (y != exact::Evaluate(c)) named.Add(c, y);
      }
    }
    fmt::print("{}: a cause is named for {} of {}\n", name, named.named, named.of);
    all.named += named.named, all.of += named.of, all.which += named.which;
  }
  EXPECT_LT(100 * all.named, all.of) << all.which;
}

// A value is cut to so many binary places, then rounded.
template <int kBits>
RoundedOutput CutValue(const RealOutput& o) {
  const double value = o.rounded() + 0.0;
  const Factors f = FactorsOf(o);
  const double real = f.sum * (f.multiplier / f.y / f.divisor) + f.offset / f.y;
  return {std::isfinite(real) ? std::nearbyint(std::floor(std::ldexp(real, kBits)) / (1 << kBits))
                              : value};
}

// The value has the 8 bits of a bfloat16.
RoundedOutput InBfloat16(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  int exponent = 0;
  const double value = f.sum * (f.multiplier / f.y / f.divisor) + f.offset / f.y;
  const double mantissa = std::frexp(value, &exponent);
  return {std::nearbyint(std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8))};
}

TEST(Calibration, HonestArithmeticThatTheTableDoesNotKnowHasNoCause) {
  struct Kind {
    const char* name;
    RoundedOutput (*round)(const RealOutput&);
  };
  Named all;
  for (const auto& [name, round] :
       {Kind{"value cut to 1 place", CutValue<1>}, Kind{"value cut to 3 places", CutValue<3>},
        Kind{"value cut to 6 places", CutValue<6>}, Kind{"value in bfloat16", InBfloat16}}) {
    Named named;
    for (const Op op : {Op::kRequantize, Op::kLinear, Op::kConv2d, Op::kMul, Op::kAvgPool}) {
      for (const Case& c : Cases(op, 60 / QUALM_CALIBRATION_SHARE)) {
        Stages stages;
        stages.c = ProblemOf(c);
        stages.codes.round = round;
        const Tensor y = stages.Evaluate();
        if (y != exact::Evaluate(c)) named.Add(c, y);
      }
    }
    fmt::print("{}: a cause is named for {} of {}\n", name, named.named, named.of);
    all.named += named.named, all.of += named.of, all.which += named.which;
  }
  EXPECT_LT(100 * all.named, all.of) << all.which;
}

}  // namespace
}  // namespace qualm::triage
