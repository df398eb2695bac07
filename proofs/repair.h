// SPDX-License-Identifier: Apache-2.0
// Remedies for a layer with unsafe pairs, exact ones first, each certified again.
#ifndef QUALM_PROOFS_REPAIR_H_
#define QUALM_PROOFS_REPAIR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "proofs/certify.h"
#include "proofs/scheme.h"

namespace qualm::proofs {

// Weights over rearranged input channels, group after group: channel i of the rebuilt layer reads
// channel source[i] of the original, or the zero point of x where that is kNoTerm. A channel may be
// read twice.
struct Rebuilt {
  Tensor w;
  std::vector<int32_t> source;
};
// The original problem with these weights and a matching x. It has the same exact output as the
// original.
Case Apply(const Rebuilt& rebuilt, const Case& original);

struct Remedy {
  std::string name;
  bool exact = false;      // the layer has the same outputs for every x in the range
  double overhead = 0;     // multiplies added, as a share of those of the original
  std::string effect;      // what it changes, for people
  bool certified = false;  // no narrow sum can overflow any more
  int64_t changed = 0;     // edits: weights that differ
  Codes x;                 // the range that the certificate is about
  std::optional<Rebuilt> rebuilt;
};

// Ranked: exact remedies by overhead, then those that change results; reduce_range last. For
// schemes other than pairs only remedies that change the range of x. No permutation or split if the
// kernel shifts the weights, or if the zero point of x is no code though weights have one.
std::vector<Remedy> Repair(const Case& layer, const Scheme& scheme, Codes x);

}  // namespace qualm::proofs

#endif  // QUALM_PROOFS_REPAIR_H_
