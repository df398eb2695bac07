// SPDX-License-Identifier: Apache-2.0
// The source of quantize and requantize, compiled once more over a Highway whose lanes are
// intervals (highway/hwy/highway.h): the codes that the arithmetic can give for any input of an
// interval, in any vector, beside any other inputs. A few evaluations then cover all 2^32 inputs.
//
// The evaluated branch of the source is the one for vectors that are neither AVX-512 nor of several
// blocks, with or without a fused multiply-add. Two things are taken for granted: Highway's
// operations do what their names say, and the compiler keeps to the source.
#ifndef QUALM_KERNELS_INTERVALS_INTERVALS_H_
#define QUALM_KERNELS_INTERVALS_INTERVALS_H_

#include <cstdint>
#include <optional>

namespace qualm::intervals {

// One scale. The value is x * numerator_a * numerator_b / denominator for requantize, x /
// denominator for quantize.
struct Problem {
  bool quantize = true;
  float numerator_a = 1, numerator_b = 1, denominator = 1;
  int32_t zero_point = 0;
  bool signed_codes = false;
  int32_t out_min = INT32_MIN, out_max = INT32_MAX;
  bool relu = false;
};

struct Codes {
  int32_t lo = 0, hi = 0;
  friend bool operator==(const Codes&, const Codes&) = default;
};

// Each encloses the codes of all inputs from `first` to `last`: the bits of float32, first <= last
// or both NaN (which stands for any NaN), or of int32. nullopt where the source leaves vectors for
// scalar code, which is not evaluated.
std::optional<Codes> FusedCodesBetween(const Problem& problem, uint32_t first, uint32_t last);
std::optional<Codes> PlainCodesBetween(const Problem& problem, uint32_t first, uint32_t last);
inline std::optional<Codes> CodesBetween(const Problem& problem, bool fused, uint32_t first,
                                         uint32_t last) {
  return fused ? FusedCodesBetween(problem, first, last) : PlainCodesBetween(problem, first, last);
}

}  // namespace qualm::intervals

#endif  // QUALM_KERNELS_INTERVALS_INTERVALS_H_
