// SPDX-License-Identifier: Apache-2.0
// Which candidates of a pass a reduction takes, and that it goes on until nothing helps.
#include "triage/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "triage/triage.h"

namespace qualm::triage {
namespace {

Case Row(int64_t terms, int32_t code) {
  Case c;
  c.op = Op::kLinear;
  c.M = c.N = 1;
  c.K = terms;
  c.x = Tensor(DType::kU8, {1, terms});
  c.w = Tensor(DType::kS8, {1, terms});
  for (int64_t i = 0; i < terms; ++i) c.x.SetInt(i, code);
  return c;
}

const auto kNever = [] { return false; };

TEST(ReductionStep, AnInvalidCandidateIsNotAskedThoughItIsSimpler) {
  Reduction reduction;
  const Pass invalid = [](const Case& c, const Visit& visit) {
    Case simpler = c;
    simpler.K = 2;  // its tensors have five terms
    visit(simpler);
  };
  const Holds asked = [](const Case&) {
    ADD_FAILURE() << "no subject could read it";
    return true;
  };
  EXPECT_FALSE(reduction.Step(invalid, Row(5, 0), asked, kNever));
}

TEST(ReductionStep, GoesOnAfterACandidateThatDoesNotHold) {
  Reduction reduction;
  const Pass three = [](const Case& c, const Visit& visit) {
    for (const int64_t fewer : {4, 3, 2}) {
      if (visit(Row(c.K - fewer, 0))) return;
    }
  };
  const auto taken =
      reduction.Step(three, Row(5, 0), [](const Case& c) { return c.K >= 2; }, kNever);
  ASSERT_TRUE(taken);
  EXPECT_EQ(*taken, Row(2, 0));
}

// Candidates that are refused without a question cost too, as much as the case is long: this one
// has 120,000 elements, and after 30 million a pass ends.
TEST(ReductionStep, ALongCaseIsNotRefusedForEver) {
  Reduction reduction;
  static int offers;
  offers = 0;
  const Pass not_simpler = [](const Case& /*c*/, const Visit& visit) {
    Case relu = Row(1, 0);
    relu.relu = true;
    while (offers < 1000 && !visit(relu)) ++offers;
  };
  const Holds asked = [](const Case&) {
    ADD_FAILURE() << "it is not simpler";
    return true;
  };
  EXPECT_FALSE(reduction.Step(not_simpler, Row(60'000, 9), asked, kNever));
  EXPECT_EQ(offers, 251);
}

// Terms go only once the codes are 0, for which a later pass has to come first.
TEST(Reduce, AsksTheFirstPassAgainAfterALaterOneHelped) {
  const Holds holds = [](const Case& c) {
    const auto bytes = c.x.bytes();
    return c.K >= 3 || std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
  };
  EXPECT_EQ(Reduce(Row(6, 9), holds, 1000), Row(1, 0));
}

}  // namespace
}  // namespace qualm::triage
