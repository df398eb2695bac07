// SPDX-License-Identifier: Apache-2.0
// The steps of a function that rises with its input: a list of a few hundred numbers that says its
// value on billions of inputs. Found by bisection, many steps at once.
#ifndef QUALM_PROOFS_STAIRCASE_H_
#define QUALM_PROOFS_STAIRCASE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace qualm::proofs {

// Inputs are numbered 0, 1, ...; from `start` to the next step the function has `value`.
struct Step {
  uint64_t start = 0;
  int32_t value = 0;
  friend bool operator==(const Step&, const Step&) = default;
};
// The first one starts at the first input, and starts rise.
using Steps = std::vector<Step>;

// Value at `input`, which is no smaller than the first start.
int32_t ValueAt(const Steps& steps, uint64_t input);

// The values of inputs, which come in any order.
using Ask = std::function<std::vector<int32_t>(std::span<const uint64_t> inputs)>;

// Two inputs that show that a function does not rise: a < b and value at a > value at b.
struct Fall {
  uint64_t a = 0, b = 0;
  int32_t value_a = 0, value_b = 0;
};

struct FoundSteps {
  Steps steps;
  std::optional<Fall> fall;  // of all inputs that were asked; `steps` then means nothing
  uint64_t falls = 0;        // that FindPieces has split at
  uint64_t asked = 0;
};

// The steps on inputs [first, last] of a function that rises. `guess` says where the first input
// of value n or more may be: near guesses save questions, wrong ones change nothing. `samples`
// inputs at equal distances are asked too, only to find a fall.
FoundSteps FindSteps(const Ask& ask, uint64_t first, uint64_t last,
                     const std::function<uint64_t(int32_t n)>& guess, uint64_t samples = 0);

// The same for a function that falls a few times and rises between: where a conversion overflows,
// or an addition wraps. A fall between two inputs that were asked is found by bisection.
FoundSteps FindPieces(const Ask& ask, uint64_t first, uint64_t last,
                      const std::function<uint64_t(int32_t n)>& guess, uint64_t samples);

}  // namespace qualm::proofs

#endif  // QUALM_PROOFS_STAIRCASE_H_
