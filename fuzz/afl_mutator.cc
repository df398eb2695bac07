// SPDX-License-Identifier: Apache-2.0
// Our mutations for AFL++, as a library that AFL_CUSTOM_MUTATOR_LIBRARY names (the interface:
// AFL++'s docs/custom_mutators.md). QUALM_AFL_OP says whose cases the inputs are. Only scripts/afl
// builds it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "core/op.h"
#include "core/rng.h"
#include "fuzz/mutator.h"

namespace {

using namespace qualm;

struct Mutator {
  Op op;
  Rng rng;
  std::vector<uint8_t> out;
};

}  // namespace

extern "C" {

void* afl_custom_init(void* afl, unsigned seed);
size_t afl_custom_fuzz(void* mutator, uint8_t* data, size_t size, uint8_t** out, uint8_t* other,
                       size_t other_size, size_t size_max);
void afl_custom_deinit(void* mutator);

void* afl_custom_init(void* /*afl*/, unsigned seed) {
  const char* name = std::getenv("QUALM_AFL_OP");
  const std::optional<Op> op = ParseOp(name == nullptr ? "" : name);
  if (!op) {
    std::fprintf(stderr, "qualm: QUALM_AFL_OP: '%s' is no operation, expected linear, ...\n",
                 name == nullptr ? "" : name);
    std::exit(2);
  }
  return new Mutator{*op, Rng(seed), {}};
}

// A quarter of the inputs are crossed with another of the queue.
size_t afl_custom_fuzz(void* mutator, uint8_t* data, size_t size, uint8_t** out, uint8_t* other,
                       size_t other_size, size_t size_max) {
  auto& [op, rng, bytes] = *static_cast<Mutator*>(mutator);
  const auto seed = static_cast<unsigned>(rng.Next());
  if (other != nullptr && rng.Chance(1, 4)) {
    bytes.resize(size_max);
    bytes.resize(fuzz::CrossBytes(op, data, size, other, other_size, bytes.data(), size_max, seed));
  } else {
    bytes.assign(data, data + size);
    bytes = fuzz::MutatedBytes(op, std::move(bytes), size_max, seed);
  }
  *out = bytes.data();
  return bytes.size();
}

void afl_custom_deinit(void* mutator) { delete static_cast<Mutator*>(mutator); }
}
