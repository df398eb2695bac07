// SPDX-License-Identifier: Apache-2.0
// The right outputs of a domain: by the exact meaning, or by a named convention.
#ifndef QUALM_PROOFS_REFERENCE_H_
#define QUALM_PROOFS_REFERENCE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/case.h"
#include "core/contract.h"
#include "core/tensor.h"
#include "proofs/domain.h"
#include "proofs/staircase.h"

namespace qualm {
struct Convention;
}

namespace qualm::proofs {

class Reference {
 public:
  // Throws InputError where the convention does not define the problem. The domain must outlive it.
  Reference(const Domain& domain, const Contract& contract);

  // The steps of the exact output on each range of Domain::Rising(), or of the convention. Each is
  // found by bisection and shown by the value on both its sides. Not for domains without such
  // ranges. Throws InputError, with two inputs, where the values fall.
  const std::vector<Steps>& StepsOfRanges();

  // "" if the steps are shown; else the reason in one sentence. Steps of the exact meaning always
  // are. Steps of a convention are if its arithmetic, evaluated on intervals, gives the same steps.
  std::string WhyNotShown();

  // The outputs [first, first + count), each computed from its input alone; `expected` has the
  // bytes of the output tensor.
  void Each(uint64_t first, uint64_t count, std::span<uint8_t> expected) const;

  // The output of any case of the domain's operation.
  Tensor Of(const Case& c) const { return evaluate_(c); }

 private:
  bool InDoubles(uint64_t first, uint64_t count, std::span<uint8_t> expected) const;

  const Domain& domain_;
  bool exact_ = true;
  const Convention* convention_ = nullptr;
  std::function<Tensor(const Case&)> evaluate_;
  std::vector<Steps> steps_;
};

}  // namespace qualm::proofs

#endif  // QUALM_PROOFS_REFERENCE_H_
