// SPDX-License-Identifier: Apache-2.0
// A subject with a fault planted in its answers: an engine, a fuzz target or a build that does not
// find it finds nothing else either.
#ifndef QUALM_FUZZ_CANARY_H_
#define QUALM_FUZZ_CANARY_H_

#include <memory>
#include <span>
#include <vector>

#include "core/forwarding_subject.h"

namespace qualm::fuzz {

// The lowest bit of the first output is wrong where the bytes of x have an odd sum.
class CanarySubject : public ForwardingSubject {
 public:
  explicit CanarySubject(std::unique_ptr<Subject> inside)
      : ForwardingSubject(*inside), inside_(std::move(inside)) {}
  Outcome Run(const Case& c, const RunContext& context) override;
  std::vector<Outcome> RunMany(std::span<const Case> cases, const RunContext& context) override;

 private:
  std::unique_ptr<Subject> inside_;
};

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_CANARY_H_
