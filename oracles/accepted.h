// SPDX-License-Identifier: Apache-2.0
// Which answers a contract accepts: of each output one bit pattern, or a closed interval.
#ifndef QUALM_ORACLES_ACCEPTED_H_
#define QUALM_ORACLES_ACCEPTED_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/contract.h"
#include "core/tensor.h"
#include "core/verdict.h"
#include "oracles/conventions/float_sums.h"
#include "oracles/conventions/variations.h"

namespace qualm {

// The answers to one case that are right.
class Accepted {
 public:
  static Accepted Only(Tensor y) { return {std::move(y), {}}; }
  // `each`: the interval of each output, in output codes or float32 values.
  static Accepted Within(Tensor nominal, std::vector<Permitted> each) {
    return {std::move(nominal), std::move(each)};
  }
  static Accepted Sums(Tensor nominal, const std::vector<FloatSum>& each);

  // The answer that is shown where one is to be shown: of an interval the exact one.
  const Tensor& nominal() const { return nominal_; }
  bool Holds(const Tensor& y, int64_t i) const;
  // The first output that is not accepted. Its `expected` is a value, or "[LOW, HIGH]"; its
  // distance is that from the nearest accepted value. `y` has the type and shape of the output.
  std::optional<Divergence> First(const Tensor& y) const;
  // Outputs that every value of the type would satisfy: nothing is decided about them.
  int64_t undecided() const;
  // Of Sums, and of a tree: what decided about how many outputs.
  const std::optional<SumGrades>& grades() const { return grades_; }
  // Why output i is not accepted, as the end of a sentence that begins with "departs from".
  std::string What(const Contract& contract, int64_t i) const;

 private:
  friend Accepted AcceptedBy(const Contract& contract, const Case& c);
  Accepted(Tensor nominal, std::vector<Permitted> each)
      : nominal_(std::move(nominal)), each_(std::move(each)) {}
  bool Decides(int64_t i) const;

  Tensor nominal_;
  std::vector<Permitted> each_;  // empty: only `nominal_`
  std::optional<SumGrades> grades_;
  std::vector<SumGrade> grade_;  // of Sums, of each output
};

// "" if the contract says what is right of this case, else why not.
std::string WhyNotJudged(const Contract& contract, const Case& c);
// What the contract accepts of a case of which it says what is right.
Accepted AcceptedBy(const Contract& contract, const Case& c);

}  // namespace qualm

#endif  // QUALM_ORACLES_ACCEPTED_H_
