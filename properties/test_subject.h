// SPDX-License-Identifier: Apache-2.0
// Subjects for tests of the judges: the exact oracle, with or without a fault planted in it.
#ifndef QUALM_PROPERTIES_TEST_SUBJECT_H_
#define QUALM_PROPERTIES_TEST_SUBJECT_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/subject.h"
#include "oracles/exact/exact.h"

namespace qualm {

class TestSubject : public BasicSubject {
 public:
  using RunFunction = std::function<Outcome(const Case&, const RunContext&)>;

  explicit TestSubject(RunFunction run = Exact, std::string name = "test")
      : run_(std::move(run)), name_(std::move(name)) {}

  static Outcome Good(Tensor y) {
    Outcome outcome;
    outcome.y = std::move(y);
    return outcome;
  }
  static Outcome Exact(const Case& c, const RunContext&) { return Good(exact::Evaluate(c)); }

  std::string_view name() const override { return name_; }
  std::string CannotRun(const Case& c) const override {
    if (HasFloatX(c) && !takes_float_x) return std::string(kOfFloatX);
    if (c.w_block != 0 && !takes_blocks) return std::string(kInBlocks);
    return cannot_run ? cannot_run(c) : "";
  }
  Outcome Run(const Case& c, const RunContext& context) override {
    ++runs;
    return run_(c, context);
  }
  std::vector<std::string> Siblings() const override { return siblings; }
  std::string InstructionSet() const override { return "test"; }

  std::function<std::string(const Case&)> cannot_run;
  std::vector<std::string> siblings;
  int64_t runs = 0;
  bool takes_blocks = false, takes_float_x = false;  // else drawn cases stay without

 private:
  RunFunction run_;
  std::string name_;
};

}  // namespace qualm

#endif  // QUALM_PROPERTIES_TEST_SUBJECT_H_
