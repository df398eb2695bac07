// SPDX-License-Identifier: Apache-2.0
#include "properties/adapt.h"

#include <gtest/gtest.h>

#include "core/slice.h"
#include "properties/gen/gen.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

// u8*s8 -> s32 and nothing else: what a plain integer GEMM takes.
std::string PlainGemm(const Case& c) {
  if (c.relu) return "relu";
  if (c.bias || c.bias_i32) return "bias";
  if (c.per_channel) return "per channel";
  if (c.requant != Requant::kExact) return "requant";
  if (c.x.dtype() != DType::kU8) return "x";
  if (c.w.dtype() != DType::kS8) return "w";
  if (c.out_dtype != DType::kS32) return "out";
  const CodeRange all = RangeOf(DType::kS32);
  if (c.out_min != all.min || c.out_max != all.max) return "clamp";
  for (const int32_t z : c.x_q.zero_point) {
    if (z < 0 || z > 255) return "x zero point";
  }
  return c.w_q.zero_point[0] != 0 ? "w zero point" : "";
}

TEST(Adapt, ATakenCaseStaysAsItIs) {
  const TestSubject subject;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    EXPECT_EQ(AdaptTo(subject, c), c);
  }
}

TEST(Adapt, BringsEveryLinearIntoAPlainGemm) {
  TestSubject subject;
  subject.cannot_run = PlainGemm;
  int changed = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    const std::optional<Case> adapted = AdaptTo(subject, c);
    if (!adapted) {
      EXPECT_EQ(c.N, 0) << Describe(c);  // nothing to take the parameters of one channel from
      continue;
    }
    EXPECT_EQ(Validate(*adapted), "");
    EXPECT_EQ(PlainGemm(*adapted), "");
    EXPECT_EQ(adapted->x.shape(), c.x.shape());
    EXPECT_EQ(adapted->w.shape(), c.w.shape());
    EXPECT_TRUE(c.w.dtype() != DType::kS8 || adapted->w == c.w);
    changed += *adapted == c ? 0 : 1;
  }
  EXPECT_GT(changed, 400);
}

// Each parameter by itself, also one that has no line in the list of changes.
TEST(Adapt, EveryParameterCanBeLeftOut) {
  int left_out = 0;
  for (const Op op : AllOps()) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const Case c = gen::Draw(op, seed);
      for (const Case& plain : slice::WithOneParameterOf(c, Case{})) {
        if (!Validate(plain).empty()) continue;
        const auto wants_plain = [&](const Case& candidate) {
          return candidate == plain ? std::string() : std::string("another case");
        };
        EXPECT_EQ(AdaptTo(wants_plain, c), plain) << Describe(c) << ", wanted " << Describe(plain);
        ++left_out;
      }
    }
  }
  EXPECT_GT(left_out, 500);
}

TEST(Adapt, ChangesNothingThatIsNotInTheWay) {
  TestSubject subject;
  subject.cannot_run = [](const Case& c) { return c.relu ? "relu" : ""; };
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Case c = gen::Draw(Op::kConv2d, seed);
    if (!c.relu) continue;
    const std::optional<Case> adapted = AdaptTo(subject, c);
    ASSERT_TRUE(adapted.has_value());
    c = ProblemOf(c);
    c.relu = false;
    EXPECT_EQ(*adapted, c);
  }
}

TEST(Adapt, EveryOpIntoSymmetricS8) {
  TestSubject subject;
  subject.cannot_run = [](const Case& c) -> std::string {
    if (IsCode(c.x.dtype()) && c.x.dtype() != DType::kS8) return "x";
    if (IsCode(c.w.dtype()) && !c.w.empty() && c.w.dtype() != DType::kS8) return "w";
    if (IsCode(c.out_dtype) && c.out_dtype != DType::kS8) return "out";
    return "";
  };
  for (const Op op : AllOps()) {
    int adapted = 0;
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const std::optional<Case> c = AdaptTo(subject, gen::Draw(op, seed));
      if (!c) continue;
      ++adapted;
      EXPECT_EQ(Validate(*c), "") << Name(op);
      EXPECT_EQ(subject.CannotRun(*c), "") << Name(op);
    }
    EXPECT_GE(adapted, 90) << Name(op);
  }
}

TEST(Adapt, EveryOpToPerTensor) {
  TestSubject subject;
  subject.cannot_run = [](const Case& c) { return c.per_channel ? "per channel" : ""; };
  for (const Op op : AllOps()) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const Case c = gen::Draw(op, seed);
      const std::optional<Case> adapted = AdaptTo(subject, c);
      // Nothing to take the parameters of one channel from.
      if (!adapted) {
        EXPECT_TRUE(c.per_channel && c.N == 0) << Describe(c);
      } else {
        EXPECT_EQ(Validate(*adapted), "") << Describe(c);
      }
    }
  }
}

TEST(Adapt, AnOpThatIsNotOfferedStaysSo) {
  TestSubject subject;
  subject.cannot_run = [](const Case&) { return "not offered"; };
  for (const Op op : AllOps()) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      EXPECT_FALSE(AdaptTo(subject, gen::Draw(op, seed)).has_value()) << Name(op);
    }
  }
}

TEST(Adapt, SizesAreNotAdapted) {
  TestSubject subject;
  subject.cannot_run = [](const Case& c) { return c.K == 0 || c.K % 4 != 0 ? "K" : ""; };
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    EXPECT_EQ(AdaptTo(subject, c).has_value(), c.K != 0 && c.K % 4 == 0);
  }
}

}  // namespace
}  // namespace qualm
