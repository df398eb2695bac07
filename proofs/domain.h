// SPDX-License-Identifier: Apache-2.0
// Every input that one output of an operation can have, numbered, for fixed parameters.
#ifndef QUALM_PROOFS_DOMAIN_H_
#define QUALM_PROOFS_DOMAIN_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/case.h"

namespace qualm::proofs {

// Inputs, in the order of their numbers.
enum class Inputs : uint8_t {
  kFloats,       // quantize: all 2^32 float32, NaN first and last, the others rising
  kSums,         // requantize: all 2^32 int32, rising
  kCodes,        // dequantize, rescale, table: all codes of the type of x, rising
  kPairs,        // add, sub, mul: all 65,536 pairs of codes, the second one faster
  kActivations,  // linear, K = 2: all 65,536 pairs of activations, for each output channel
  kQuads,        // linear, K = 2, s32: all 2^32 of two activations and two weights
};
std::string_view Name(Inputs inputs);  // "every float32"

class Domain {
 public:
  // Takes the parameters of `c`; its tensors matter only as the weights of a linear, where no
  // weights mean kQuads. Throws InputError "FIELD: what, expected what" where the inputs are not
  // finite in this sense (per channel, windows, K other than 2) or the case is not valid.
  explicit Domain(const Case& c);

  Inputs inputs() const { return inputs_; }
  uint64_t size() const { return size_; }           // outputs
  uint64_t granule() const { return granule_; }     // ranges begin and end at multiples of it
  const Case& problem() const { return problem_; }  // without inputs; with the weights
  // Ranges on which the exact output rises with the number, NaN apart: [first, last]. None where
  // the operation has no such order.
  std::vector<std::pair<uint64_t, uint64_t>> Rising() const;

  // A case with room for the inputs of `count` outputs, a multiple of the granule.
  Case Shape(uint64_t count) const;
  // Writes the inputs of outputs [first, first + count) as the tensors of such a case hold them.
  void Fill(uint64_t first, uint64_t count, std::span<uint8_t> x, std::span<uint8_t> w) const;
  // The case of [first, first + count).
  Case At(uint64_t first, uint64_t count) const;
  // The case of single inputs; not for linear.
  Case At(std::span<const uint64_t> numbers) const;
  // The smallest case that holds the output of this number, and the output's place in it.
  std::pair<Case, int64_t> Alone(uint64_t number) const;

  // The bits of an input; of kFloats and kSums.
  uint32_t BitsOf(uint64_t number) const;

  // Whether the input is a NaN, which has no place among the others.
  bool IsNan(uint64_t number) const;

  // "0x1.8p+3", "acc 17", "a 3, b 255".
  std::string TextOf(uint64_t number) const;

  // Where code n or more may begin: near the number of the first input of Rising() that gives it.
  uint64_t Guess(int32_t n) const;

 private:
  Case problem_;
  Inputs inputs_ = Inputs::kCodes;
  uint64_t size_ = 0;
  uint64_t granule_ = 1;
};

}  // namespace qualm::proofs

#endif  // QUALM_PROOFS_DOMAIN_H_
