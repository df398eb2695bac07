// SPDX-License-Identifier: Apache-2.0
// How many bits it takes to tell what a subject answered, if one knows a prediction of it (minimum
// description length: Rissanen, "Modeling by shortest data description", 1978). An explanation is
// worth the bits that tell the answers from the right outputs, minus the bits that tell them from
// its prediction, minus the bits that choose it among all explanations. Chance matches cost as much
// as they save.
//
// The scale: an output off by one is worth little, a sum off by thousands some 20 bits. Half away
// from zero costs 3 bits, one of a family 12, a rare cause 15 (Cause in causes.h). By one answer a
// cause is named that is worth 7 bits more than it costs (kMargin of attribution.cc) if those
// within 2.5 bits of it (kAhead) are of its kind.
#ifndef QUALM_TRIAGE_CODE_LENGTH_H_
#define QUALM_TRIAGE_CODE_LENGTH_H_

#include <cstdint>

#include "core/case.h"
#include "core/tensor.h"

namespace qualm::triage {

// The bits that say which k of n there are.
double Log2Choose(int64_t n, int64_t k);

class CodeLength {
 public:
  // Both of one type and shape.
  void Add(const Tensor& predicted, const Tensor& actual);
  // How many outputs depart from their prediction, which of them, and by how much.
  double bits() const;

 private:
  int64_t outputs_ = 0, departures_ = 0;
  double values_ = 0;
};

// By how many bits an answer to `c` is shorter if one knows `predicted` instead of the `right`
// outputs; below 0 where it is longer. What is told by outputs that are off by one is bounded: any
// arithmetic that is not exact turns outputs next to a tie, most often all in one direction, so a
// prediction of which turn tells little: half a bit for each exact tie, and a quarter for each
// output that lies as near to one as those that did. Rows and columns of products that are asked
// the same and answered the same count once.
double BitsSaved(const Case& c, const Tensor& right, const Tensor& predicted, const Tensor& actual);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_CODE_LENGTH_H_
