// SPDX-License-Identifier: Apache-2.0
// Weights of a linear layer, or of a group of conv2d, rearranged for accumulate.h, with everything
// that does not depend on the activations worked out once. Internal to kernels/.
//
// u8 and s8 are brought to one form, u8 activations a and s8 weights b, by moving the code and its
// zero point together:
//
//   s8 x:  a = x + 128,  za = zx + 128        u8 w:  b = w - 128,  zb = zw - 128
//
// and the sum the layer needs is then taken apart so that only the first term is expensive:
//
//   sum_k (x - zx)(w - zw) + bias  =  sum_k a b  -  zb sum_k a  +  offset
//   offset = bias - za sum_k b + K za zb
#ifndef QUALM_KERNELS_SUMS_PACK_H_
#define QUALM_KERNELS_SUMS_PACK_H_

#include <algorithm>
#include <cstdint>
#include <new>
#include <span>
#include <stdexcept>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "kernels/layer.h"
#include "kernels/sums/accumulate.h"
#include "kernels/sums/epilogue.h"
#include "kernels/sums/pairing.h"
#include "kernels/sums/split.h"

namespace qualm::kernels {

// The narrowest integer that holds the corrected sum of every channel of a panel for every
// activation. Sums are taken modulo 2^n, so they may overflow on the way; only the result must fit.
enum class SumWidth : uint8_t { k32, k64, k128 };

struct PackedPanel {
  int64_t vectors = 0;  // of channels
  SumWidth sum_width = SumWidth::k32;
  bool adds_pairs = false;      // takes the saturating path
  ExtraQuads extra;             // if it needs any for that
  bool takes_widened = false;   // reads widened rows
  bool needs_row_sums = false;  // some channel has zb != 0
};

struct PackedWeights {
  AccumulateTraits traits;
  int64_t channels = 0;  // N
  int64_t depth = 0;     // K
  int64_t piece = 0;     // activations that lie next to each other, divides K (accumulate.h)
  int64_t quads = 0;     // ceil(piece/4) for each piece
  std::vector<PackedPanel> panels;
  std::vector<Pairing> pairings;  // of the panels; or none, and no activation moves
  // [panel][quads][vectors * lanes][4], zero where a quad has no weight of its own or channel >= N.
  hwy::AlignedFreeUniquePtr<int8_t[]> weights;
  // Per channel, padded with zeros to whole panels.
  std::vector<int64_t> zero;  // zb
  std::vector<__int128> offset;
  std::vector<int32_t> zero_low;  // modulo 2^32, for accumulate.h
  std::vector<int32_t> offset_low;
  std::vector<int32_t> zeros;  // [panel_width], all zero: where sums without corrections start

  // Whether some channel has zb != 0, or a panel's sums are corrected outside the inner loop.
  bool UsesRowSums() const {
    for (const PackedPanel& panel : panels) {
      if (panel.needs_row_sums || panel.sum_width != SumWidth::k32) return true;
    }
    return false;
  }
  bool MovesActivations() const { return !pairings.empty(); }
  bool TakesWidenedRows() const { return std::ranges::any_of(panels, &PackedPanel::takes_widened); }
  // Some panel reads rows that are shuffled or widened before.
  bool ArrangesRows() const { return MovesActivations() || TakesWidenedRows(); }
  int8_t* OfPanel(size_t panel) const {
    return weights.get() + static_cast<int64_t>(panel) * quads * 4 * traits.panel_width;
  }
};

// The zero points of the form with u8 activations a and s8 weights b. `params` is valid.
int64_t ZeroPointOfA(const LinearParams& params);                   // za
int64_t ZeroPointOfB(const LinearParams& params, int64_t channel);  // zb

// The values that a - za may have in the terms of a sum.
struct TermRange {
  int64_t low = 0;
  int64_t high = 0;
};
TermRange TermsOf(const LinearParams& params);
// The same where any of the terms may be left out, which then adds 0.
TermRange PaddedTermsOf(const LinearParams& params);

// The narrowest type for sum_k (a - za)(b - zb) + bias, whatever a.
SumWidth SumWidthOf(std::span<const int8_t> b, TermRange terms, int64_t zb, int64_t bias);

// For the current thread's target. `params` is valid (layer_validate.h). Throws std::bad_alloc or
// std::length_error if the weights do not fit in memory.
PackedWeights PackWeights(const LinearParams& params, TermRange terms);
// For activations that stay where they are. `piece` divides the columns of the weights, and is 4
// and more or all of them.
PackedWeights PackPieces(const LinearParams& params, TermRange terms, int64_t piece);

// The epilogue of a layer: it makes outputs of the sums. `params` is valid.
Epilogue PackEpilogue(const LinearParams& params);

// Runs pack_all and turns its exceptions into a Status: a layer's Pack never throws.
template <typename PackAll>
Status PackInMemory(const PackAll& pack_all) {
  constexpr const char* kTooLarge = "weights do not fit in memory when packed";
  try {
    pack_all();
  } catch (const std::bad_alloc&) {
    return {kTooLarge};
  } catch (const std::length_error&) {
    return {kTooLarge};
  }
  return {};
}

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_PACK_H_
