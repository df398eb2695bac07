// SPDX-License-Identifier: Apache-2.0
// How a kernel adds the products of one output in sums too narrow for all of them: which products
// share a narrow sum, and how that sum behaves when it is full.
#ifndef QUALM_PROOFS_SCHEME_H_
#define QUALM_PROOFS_SCHEME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/case.h"

namespace qualm::proofs {

struct Scheme {
  enum class Kind : uint8_t {
    kExact,    // int32, one product at a time: nothing narrow
    kPairs,    // two products in a saturating int16 (vpmaddubsw)
    kRuns,     // such pairs, added in a saturating int16 for `spill` products at a time
    kChains,   // `length` products in an int16 that wraps (NEON smull, smlal)
    kFloat32,  // one product after the other in a float32
  };
  Kind kind = Kind::kPairs;
  std::string name;                      // "pairs", "fbgemm@avx2"
  std::vector<std::string> conventions;  // conventions with this scheme
  int64_t length = 2;                    // products that meet in one narrow sum
  int64_t spill = 256;                   // kRuns
  int32_t x_plus = 0, w_plus = 0;        // the kernel multiplies x + x_plus by w + w_plus
  // The term that stands at each place of the kernel's order, kNoTerm for a product 0. Places
  // 0..length-1 meet in the first narrow sum. Empty: the terms in their order.
  std::vector<int32_t> order;

  friend bool AddsAlike(const Scheme& a, const Scheme& b);
};
inline constexpr int32_t kNoTerm = -1;

// The terms of one sum, in the order of the weights: linear K; convolutions taps times depth.
struct Terms {
  int64_t taps = 1, depth = 0;
  int64_t count() const { return taps * depth; }
};
Terms TermsOf(const Case& layer);

// The scheme of that name for the layer: pairs, pairs-in-tap, acc16 or acc16:SPILL, neon-mlal or
// neon-mlal:LENGTH, float32, or that of a convention. Throws InputError "--scheme: ..." where there
// is none, or the convention refuses the layer.
Scheme SchemeOf(const std::string& name, const Case& layer);
// One scheme for each way in which conventions add this layer in 16 bits.
std::vector<Scheme> SchemesOfConventions(const Case& layer);
inline constexpr const char* kGiven = "given";
// Pairs as listed, under that name: order[2t] and order[2t+1] meet.
Scheme GivenPairs(std::vector<int32_t> order);

// The scheme of the same kernel for a layer with a different number of terms.
Scheme SchemeFor(const Scheme& scheme, const Case& layer);

// The sum that the kernel gets for one output, simulated: x and w are the terms of the sum.
int64_t Simulate(const Scheme& scheme, const std::vector<int32_t>& x,
                 const std::vector<int32_t>& w);

}  // namespace qualm::proofs

#endif  // QUALM_PROOFS_SCHEME_H_
