// SPDX-License-Identifier: Apache-2.0
// A subject that is exact but for one run, and cases to ask it about.
#ifndef QUALM_PROPERTIES_SPOILED_SUBJECT_H_
#define QUALM_PROPERTIES_SPOILED_SUBJECT_H_

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/float_format.h"
#include "core/subject.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "properties/test_subject.h"

namespace qualm {

// Answers exactly, counts its runs, and lets `spoil` change the answer of any of them.
class Spoiled : public BasicSubject {
 public:
  using Spoil = std::function<void(size_t run, const Case&, const RunContext&, Outcome&)>;

  explicit Spoiled(Spoil spoil = nullptr) : spoil_(std::move(spoil)) {}
  std::string_view name() const override { return "spoiled"; }
  std::string CannotRun(const Case& c) const override { return refuses && refuses(c) ? "no" : ""; }
  Outcome Run(const Case& c, const RunContext& context) override {
    Outcome outcome = TestSubject::Exact(c, context);
    if (spoil_) spoil_(asked.size(), c, context, outcome);
    asked.push_back({c, context});
    return outcome;
  }

  std::vector<std::pair<Case, RunContext>> asked;
  std::function<bool(const Case&)> refuses;

 private:
  Spoil spoil_;
};

inline Outcome Broken(RunStatus status, const char* detail) {
  Outcome outcome;
  outcome.status = status;
  outcome.detail = detail;
  return outcome;
}

// The smallest change that an output can have. A NaN that stays one is none.
inline void Spoil(Tensor& y, int64_t i) {
  if (IsNanCode(y.dtype(), y.BitsAt(i)) && IsNanCode(y.dtype(), y.BitsAt(i) ^ 1)) {
    y.SetBits(i, 0);
  } else if (y.dtype() == DType::kF32) {
    float& value = y.as<float>()[static_cast<size_t>(i)];
    value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1);
  } else {
    y.SetInt(i, y.IntAt(i) ^ 1);
  }
}

// The verdict on an exact subject, and the problems that it was asked about.
struct Asked {
  Verdict verdict;
  std::vector<Case> problems;
};
inline Asked AskedBy(std::string_view claim, const Case& c) {
  EXPECT_EQ(Validate(c), "") << claim << " " << Describe(c);
  Spoiled subject;
  Asked asked{Judge(*FindProperty(claim), c, subject), {}};
  for (const auto& [problem, context] : subject.asked) asked.problems.push_back(problem);
  EXPECT_FALSE(asked.verdict.failed()) << claim << " " << asked.verdict.reason;
  return asked;
}

// Drawn cases that the property has something to say about, small ones.
template <class Use>
int ForCases(const Property& property, Op op, int wanted, const Use& use) {
  int met = 0;
  for (uint64_t seed = 0; seed < 400 && met < wanted; ++seed) {
    const Case c = gen::Draw(op, seed);
    if (c.M * c.N > 600 || c.M * c.N * c.K > 20'000) continue;
    Spoiled subject;
    if (Judge(property, c, subject).judgement != Judgement::kPassed) continue;
    use(c, subject.asked);
    ++met;
  }
  return met;
}

}  // namespace qualm

#endif  // QUALM_PROPERTIES_SPOILED_SUBJECT_H_
