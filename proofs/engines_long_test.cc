// SPDX-License-Identifier: Apache-2.0
// Both engines on drawn parameter sets: the full sweep must confirm the verdict of the steps on
// 2^32 inputs, for right kernels and for kernels with one wrong input. Each set takes seconds, so a
// run takes a share: QUALM_FIRST_SET and QUALM_SETS say which sets (default: the first 24).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "adapters/registry.h"
#include "core/bulk.h"
#include "core/forwarding_subject.h"
#include "core/rng.h"
#include "proofs/exhaust.h"

namespace qualm::proofs {
namespace {

// A kernel that is wrong on one input of 2^32.
struct Plant {
  uint32_t bits = 0;  // of the input
  int32_t code = 0;   // that it gives there
};

class Planted final : public ForwardingSubject, public BulkSubject {
 public:
  Planted(std::unique_ptr<Subject> inner, std::optional<Plant> plant)
      : ForwardingSubject(*inner), inner_(std::move(inner)), plant_(plant) {}

  Outcome Run(const Case& c, const RunContext& context) override {
    Outcome outcome = ForwardingSubject::Run(c, context);
    for (int64_t i = 0; plant_ && i < c.x.size(); ++i) {
      if (c.x.BitsAt(i) == plant_->bits) outcome.y.SetInt(i, plant_->code);
    }
    return outcome;
  }
  Buffers OpenBulk(const Case& c) override { return buffers_ = bulk().OpenBulk(c); }
  std::string RunBulk() override {
    std::string failed = bulk().RunBulk();
    if (!plant_) return failed;
    // A sweep's inputs rise or fall by one: the planted one has only two places.
    const auto* const x = reinterpret_cast<const uint32_t*>(buffers_.x.data());
    for (const uint32_t at : {plant_->bits - x[0], x[0] - plant_->bits}) {
      if (at < buffers_.y.size() && x[at] == plant_->bits)
        buffers_.y[at] = static_cast<uint8_t>(plant_->code);
    }
    return failed;
  }

 private:
  BulkSubject& bulk() { return dynamic_cast<BulkSubject&>(*inner_); }

  std::unique_ptr<Subject> inner_;
  std::optional<Plant> plant_;
  Buffers buffers_;
};

float DrawScale(Rng& rng, int lowest, int highest) {
  const auto exponent = static_cast<int>(rng.Between(lowest, highest));
  const auto mantissa = static_cast<float>(rng.Between(1 << 23, (1 << 24) - 1));
  return std::ldexp(rng.Chance(1, 8) ? 0x1p23f : mantissa, exponent - 23);
}

Case DrawProblem(Rng& rng) {
  Case c;
  c.op = rng.Chance(1, 2) ? Op::kQuantize : Op::kRequantize;
  c.x = Tensor(RowOf(c.op).x_types.front(), {0});
  c.out_dtype = rng.Chance(1, 2) ? DType::kU8 : DType::kS8;
  const CodeRange range = RangeOf(c.out_dtype);
  c.out_min = range.min;
  c.out_max = range.max;
  if (rng.Chance(1, 4)) {
    c.out_min = static_cast<int32_t>(rng.Between(range.min, range.max));
    c.out_max = static_cast<int32_t>(rng.Between(c.out_min, range.max));
  }
  c.relu = rng.Chance(1, 8);
  // Mostly a code, sometimes any int32 near one.
  const int32_t beyond = rng.Chance(1, 8) ? 1000 : 0;
  const auto zero_point = rng.Between(range.min - beyond, range.max + beyond);
  c.out_q.zero_point = {static_cast<int32_t>(zero_point)};
  if (c.op == Op::kQuantize) {
    c.out_q.scale = {DrawScale(rng, -60, 40)};
  } else if (rng.Chance(1, 2)) {
    c.multiplier = {DrawScale(rng, -30, 1)};
  } else {
    c.x_q.scale = {DrawScale(rng, -12, 2)};
    c.w_q.scale = {DrawScale(rng, -12, -2)};
    c.out_q.scale = {DrawScale(rng, -8, 4)};
  }
  return c;
}

// The first input of a step gets the code before it, or the last one before it the code after it:
// the kernel rises still.
std::optional<Plant> DrawPlant(Rng& rng, const Domain& domain, const std::vector<Steps>& ranges,
                               uint64_t* number) {
  const Steps& steps = ranges.size() == 3 ? ranges[1] : ranges[0];  // the numbers among floats
  if (steps.size() < 2) return std::nullopt;
  const size_t at = 1 + rng.Below(steps.size() - 1);
  const bool late = rng.Chance(1, 2);
  *number = late ? steps[at].start : steps[at].start - 1;
  return Plant{static_cast<uint32_t>(domain.Alone(*number).first.x.BitsAt(0)),
               late ? steps[at - 1].value : steps[at].value};
}

int64_t NumberFrom(const char* variable, int64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::stoll(text);
}

TEST(EnginesLong, AgreeOnDrawnParametersAndRefuteOneWrongInput) {
  RegisterAllSubjects();
  const int64_t first_set = NumberFrom("QUALM_FIRST_SET", 0);
  const int64_t sets = NumberFrom("QUALM_SETS", 24);
  int64_t planted = 0;
  for (int64_t set = first_set; set < first_set + sets; ++set) {
    Rng rng(static_cast<uint64_t>(set));
    const Domain domain(DrawProblem(rng));
    const std::string told = "set " + std::to_string(set) + ": " + Describe(domain.problem());
    Reference reference(domain, {});
    std::optional<Plant> plant;
    uint64_t number = 0;
    if (rng.Chance(3, 4)) plant = DrawPlant(rng, domain, reference.StepsOfRanges(), &number);
    Planted subject(SubjectRegistry::Get().Make("native"), plant);
    const Tally steps = BySteps(domain, reference, subject);
    const Tally full = InFull(domain, reference, subject, {0, domain.size()}, {});
    ASSERT_EQ(steps.failed, "") << told;
    ASSERT_EQ(full.failed, "") << told;
    ASSERT_EQ(full.judged, uint64_t{1} << 32) << told;
    ASSERT_EQ(steps.judged, full.judged) << told;
    ASSERT_EQ(steps.wrong, plant ? 1u : 0u) << told;
    ASSERT_EQ(full.wrong, steps.wrong) << told;
    ASSERT_EQ(full.first, steps.first) << told;
    ASSERT_EQ(full.worst, steps.worst) << told;
    if (plant) {
      ASSERT_EQ(full.first->number, number) << told;
      ASSERT_EQ(full.first->actual, plant->code) << told;
      ++planted;
    }
  }
  std::printf("sets %lld to %lld: the engines agree, %lld with one wrong input of 2^32\n",
              static_cast<long long>(first_set), static_cast<long long>(first_set + sets - 1),
              static_cast<long long>(planted));
}

}  // namespace
}  // namespace qualm::proofs
