// SPDX-License-Identifier: Apache-2.0
// A subject whose arithmetic can be evaluated on intervals of inputs. A few evaluations then bound
// the output on every input, and nobody has to assume that the output rises with the input.
#ifndef QUALM_CORE_ENCLOSURE_H_
#define QUALM_CORE_ENCLOSURE_H_

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "core/case.h"

namespace qualm {

class EnclosingSubject {
 public:
  virtual ~EnclosingSubject() = default;

  // The arithmetic that is evaluated, in the words of certificates: "the steps of the convention".
  // "" if the arithmetic of this problem (quantize or requantize, one scale) is not known.
  virtual std::string Evaluates(const Case& problem) const = 0;

  struct Codes {
    int32_t lo = 0, hi = 0;
    friend bool operator==(const Codes&, const Codes&) = default;
  };
  // Encloses the outputs of all inputs from `first` to `last`, the bits of float32 or int32: first
  // <= last, or both NaN, which stands for every NaN. nullopt where nothing is known.
  virtual std::optional<Codes> Enclose(const Case& problem, uint32_t first, uint32_t last) = 0;
};

// The problem with two inputs, `first` and `last`.
inline Case EndsOf(const Case& problem, uint32_t first, uint32_t last) {
  Case ends = problem;
  ends.M = 1;
  ends.N = 2;
  ends.x = Tensor(problem.x.dtype(), {1, 2});
  std::memcpy(ends.x.bytes().data(), &first, sizeof first);
  std::memcpy(ends.x.bytes().data() + sizeof first, &last, sizeof last);
  return ends;
}

}  // namespace qualm

#endif  // QUALM_CORE_ENCLOSURE_H_
