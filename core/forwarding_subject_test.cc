// SPDX-License-Identifier: Apache-2.0
// A wrapper gives the answers of the subject inside. The compiler sees a forgotten question:
// Subject has pure functions only, so Wrapper could not be made.
#include "core/forwarding_subject.h"

#include <gtest/gtest.h>

#include "core/status.h"

namespace qualm {
namespace {

class Inner : public Subject {
 public:
  std::string_view name() const override { return "inner"; }
  std::string CannotRun(const Case& c) const override { return std::string(Name(c.op)) + "!"; }
  bool Offers(Op op) const override { return op == Op::kAdd; }
  Outcome Run(const Case&, const RunContext& context) override {
    return {RunStatus::kCrashed, "once on " + std::to_string(context.threads), {}, {}};
  }
  std::vector<Outcome> RunMany(std::span<const Case> cases, const RunContext&) override {
    return {cases.size(), {RunStatus::kHung, "many", {}, {}}};
  }
  std::vector<std::string> Siblings() const override { return {"sibling"}; }
  std::string InstructionSet() const override { return "set"; }
  std::string Version() const override { return "version"; }
};

class Wrapper : public ForwardingSubject {
 public:
  using ForwardingSubject::ForwardingSubject;
};

TEST(ForwardingSubject, ForwardsEverything) {
  Inner inner;
  inner.set_contract({"m"});
  Wrapper wrapper(inner);
  Subject& subject = wrapper;
  EXPECT_EQ(subject.name(), "inner");
  EXPECT_EQ(subject.contract().convention, "m");
  EXPECT_TRUE(subject.Offers(Op::kAdd));
  EXPECT_FALSE(subject.Offers(Op::kSub));
  Case c;
  c.op = Op::kSoftmax;
  EXPECT_EQ(subject.CannotRun(c), "softmax!");
  EXPECT_EQ(subject.Run(c, {.threads = 3}).detail, "once on 3");
  const Case cases[] = {c, c};
  const std::vector<Outcome> outcomes = subject.RunMany(cases, {});
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_EQ(outcomes[1].status, RunStatus::kHung);
  EXPECT_EQ(subject.Siblings(), std::vector<std::string>{"sibling"});
  EXPECT_EQ(subject.InstructionSet(), "set");
  EXPECT_EQ(subject.Version(), "version");
}

// A subject that promises several contracts has no contract until it is narrowed to an operation.
TEST(ForwardingSubject, PromisesWhatTheOneInsidePromises) {
  Inner inner;
  inner.set_contracts(ParseContracts("linear=model:m"));
  Wrapper subject(inner);
  EXPECT_EQ(subject.contracts().text(), "exact,linear=model:m");
  EXPECT_EQ(subject.contract(Op::kLinear).text(), "model:m");
  EXPECT_THROW(subject.contract(), InputError);
  {
    const Narrowed narrowed(subject, Op::kLinear);
    EXPECT_EQ(subject.contract().text(), "model:m");
  }
  {
    const Narrowed narrowed(subject, Op::kAdd);
    EXPECT_EQ(subject.contract().text(), "exact");
  }
  EXPECT_EQ(subject.contracts().text(), "exact,linear=model:m");
}

static_assert(std::is_abstract_v<Subject>);

}  // namespace
}  // namespace qualm
