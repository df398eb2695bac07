// SPDX-License-Identifier: Apache-2.0
// A subject that also answers what no case asks: the sum of products of float32 numbers. Its
// answers tell in which order it adds (triage/reveal.h).
#ifndef QUALM_CORE_DOT_SUBJECT_H_
#define QUALM_CORE_DOT_SUBJECT_H_

#include <span>
#include <string>

#include "core/subject.h"

namespace qualm {

class DotSubject {
 public:
  virtual ~DotSubject() = default;

  // "" if it answers such questions, else why not.
  virtual std::string WhyNoDot() const = 0;
  // The sum of a[k] * b[k], f32 [1,1]. The lists have one length.
  virtual Outcome Dot(std::span<const float> a, std::span<const float> b) = 0;
};

}  // namespace qualm

#endif  // QUALM_CORE_DOT_SUBJECT_H_
