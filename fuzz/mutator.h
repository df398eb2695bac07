// SPDX-License-Identifier: Apache-2.0
// Mutation and crossover of cases. A mutation changes one thing that a kernel could get wrong;
// flips of single bytes would mostly change scales into nonsense and shift everything behind them.
#ifndef QUALM_FUZZ_MUTATOR_H_
#define QUALM_FUZZ_MUTATOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/case.h"
#include "core/rng.h"

namespace qualm::fuzz {

// A valid case of the same operation, small (fuzz/fit.h) if `c` is. It differs from `c` in one
// thing, unless 16 draws made no difference.
Case MutateCase(const Case& c, Rng& rng);

// A valid case that takes some things (parameters, data) from each of two cases of the same op.
Case CrossCases(const Case& a, const Case& b, Rng& rng);

// The bodies of LLVMFuzzerCustomMutator and LLVMFuzzerCustomCrossOver. Every other mutation puts a
// drawn case (properties/gen/gen.h) in place of the input, or sometimes crosses the two: a search
// begins beside the hazards, and comes back to them. One in 16 is a drawn case of any size, by its
// seed. An input that has nothing to keep, a seed or no header, is always replaced.
// If there is an engine, one mutation in 16 is the engine's own, on the bytes.
// QUALM_FUZZ_MUTATOR=bytes leaves all mutations to the engine, to measure what ours are worth.
size_t MutateBytes(Op op, uint8_t* data, size_t size, size_t size_max, unsigned seed);
// The same for bytes in a vector.
std::vector<uint8_t> MutatedBytes(Op op, std::vector<uint8_t> bytes, size_t size_max,
                                  unsigned seed);
size_t CrossBytes(Op op, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size,
                  uint8_t* out, size_t out_size_max, unsigned seed);

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_MUTATOR_H_
