// SPDX-License-Identifier: Apache-2.0
// How many bits it takes to tell what a subject answered, if one knows a prediction of it (minimum
// description length: Rissanen, "Modeling by shortest data description", 1978). An explanation is
// worth the bits by which its prediction makes the answers shorter than the right outputs make them,
// less the bits it takes to choose it among all explanations. Chance matches cost as much as they save.
#ifndef QUALM_TRIAGE_CODE_LENGTH_H_
#define QUALM_TRIAGE_CODE_LENGTH_H_

#include <cstdint>

#include "core/tensor.h"

namespace qualm::triage {

class CodeLength {
 public:
  // Both of one type and shape.
  void Add(const Tensor& predicted, const Tensor& actual);
  void Add(const CodeLength& other);

  int64_t outputs() const { return outputs_; }
  int64_t departures() const { return departures_; }
  // How many outputs depart from their prediction, which of them, and by how much.
  double bits() const;

 private:
  int64_t outputs_ = 0, departures_ = 0;
  double values_ = 0;
};

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_CODE_LENGTH_H_
