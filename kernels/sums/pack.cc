// SPDX-License-Identifier: Apache-2.0
// Puts weights into the order in which accumulate.cc reads them, computes the offset and zero point
// of each channel (formula: pack.h), and decides which panels may be added in pairs of 16 bits
// (pairing.h, split.h). Exact because offsets have 128 bits, and SumWidthOf bounds every sum that
// the activations can give, so that each panel knows the width in which its sums fit.
#include "kernels/sums/pack.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>

#include "kernels/sums/pairing.h"
#include "kernels/sums/split.h"

namespace qualm::kernels {
namespace {

// Layers of fewer activations are small calls, which shall need no scratch memory.
constexpr int64_t kFewestToArrange = 64;

int64_t SumOf(std::span<const int8_t> b) {
  constexpr size_t kBlock = size_t{1} << 20;  // so many fit int32, which vectorizes
  int64_t total = 0;
  while (!b.empty()) {
    const size_t count = std::min(b.size(), kBlock);
    int32_t sum = 0;
    for (const int8_t v : b.first(count)) sum += v;
    total += sum;
    b = b.subspan(count);
  }
  return total;
}

// Lays the weights of one channel and piece as its activations are read (accumulate.h), quads
// `step` bytes apart, over zeros. Returns where the next piece begins.
int8_t* LayPiece(const int8_t* b, int64_t piece, int64_t step, int8_t* to) {
  const int64_t rest = piece % 4;
  for (const int8_t* end = b + piece - rest; b != end; b += 4, to += step) std::memcpy(to, b, 4);
  if (rest == 0) return to;
  // The last quad has the last 4 activations; a piece of fewer ones is copied to a quad.
  const int64_t gap = piece < 4 ? 0 : 4 - rest;
  std::memcpy(to + gap, b, static_cast<size_t>(rest));
  return to + step;
}

}  // namespace

int64_t ZeroPointOfA(const LinearParams& params) {
  return int64_t{params.x_zero_point} + (params.input_type == ElementType::kS8 ? 128 : 0);
}

int64_t ZeroPointOfB(const LinearParams& params, int64_t channel) {
  const size_t i = params.w_zero_point.size() == 1 ? 0 : static_cast<size_t>(channel);
  return int64_t{params.w_zero_point[i]} - (params.weights.type == ElementType::kU8 ? 128 : 0);
}

TermRange TermsOf(const LinearParams& params) {
  const int64_t za = ZeroPointOfA(params);
  return {0 - za, 255 - za};
}

TermRange PaddedTermsOf(const LinearParams& params) {
  const TermRange terms = TermsOf(params);
  return {std::min<int64_t>(terms.low, 0), std::max<int64_t>(terms.high, 0)};
}

// Each term (a - za)(b - zb) is linear in a - za, so it is extreme at an end of `terms`.
SumWidth SumWidthOf(std::span<const int8_t> b, TermRange terms, int64_t zb, int64_t bias) {
  // Most often any weights would do: no term leaves [-255, 255] * [-reach, reach].
  const int64_t reach = std::max(-terms.low, terms.high);
  const auto depth = static_cast<int64_t>(b.size());
  if (zb >= -128 && zb <= 127 && reach < 1 << 20 && depth < 1 << 20 &&
      255 * reach * depth + std::max(bias, -bias) <= INT32_MAX)
    return SumWidth::k32;
  // Sum of the positive and (as a magnitude) of the negative b - zb.
  const __int128 total = SumOf(b) - static_cast<__int128>(b.size()) * zb;
  __int128 positive;
  if (zb < -128) {
    positive = total;
  } else if (zb > 127) {
    positive = 0;
  } else {
    int64_t sum = 0;
    for (const int8_t v : b) sum += std::max<int>(v - static_cast<int>(zb), 0);
    positive = sum;
  }
  const __int128 negative = positive - total;
  const __int128 min = positive * terms.low - negative * terms.high + bias;
  const __int128 max = positive * terms.high - negative * terms.low + bias;
  if (min >= INT32_MIN && max <= INT32_MAX) return SumWidth::k32;
  if (min >= INT64_MIN && max <= INT64_MAX) return SumWidth::k64;
  return SumWidth::k128;
}

namespace {

PackedWeights LayWeights(const LinearParams& params, TermRange terms, int64_t piece) {
  PackedWeights packed;
  packed.traits = CurrentAccumulateTraits();
  packed.channels = params.weights.rows;
  packed.depth = params.weights.columns;
  packed.piece = piece;
  packed.quads = piece == 0 ? 0 : packed.depth / piece * (piece / 4 + (piece % 4 != 0));
  const int64_t width = packed.traits.panel_width;
  const int64_t lanes = packed.traits.lanes;
  const int64_t panels = packed.channels / width + (packed.channels % width != 0);

  // Checked before any size is used: weights without columns may claim any number of channels.
  const __int128 padded_channels = static_cast<__int128>(panels) * width;
  const __int128 bytes = padded_channels * packed.quads * 4;
  if (bytes > PTRDIFF_MAX || padded_channels > PTRDIFF_MAX / int64_t{sizeof(__int128)}) {
    throw std::bad_alloc();
  }
  packed.panels.resize(static_cast<size_t>(panels));
  packed.zero.resize(static_cast<size_t>(panels * width));
  packed.offset.resize(packed.zero.size());
  packed.zero_low.resize(packed.zero.size());
  packed.offset_low.resize(packed.zero.size());
  packed.zeros.resize(static_cast<size_t>(width));
  packed.weights = hwy::AllocateAligned<int8_t>(std::max<size_t>(static_cast<size_t>(bytes), 1));
  if (packed.weights == nullptr) throw std::bad_alloc();
  std::memset(packed.weights.get(), 0, static_cast<size_t>(bytes));

  const int64_t za = ZeroPointOfA(params);
  const bool unsigned_weights = params.weights.type == ElementType::kU8;
  std::vector<int8_t> moved(unsigned_weights ? static_cast<size_t>(packed.depth) : 0);

  for (int64_t p = 0; p < panels; ++p) {
    PackedPanel& panel = packed.panels[static_cast<size_t>(p)];
    const int64_t first = p * width;
    const int64_t end = std::min(first + width, packed.channels);
    panel.vectors = (end - first + lanes - 1) / lanes;
    int8_t* panel_weights = packed.OfPanel(static_cast<size_t>(p));
    for (int64_t n = first; n < end; ++n) {
      std::span<const int8_t> b;  // of one channel; there may be no memory where depth is 0
      if (packed.depth > 0) {
        b = {static_cast<const int8_t*>(params.weights.data) + n * params.weights.row_stride,
             static_cast<size_t>(packed.depth)};
      }
      if (unsigned_weights) {
        for (size_t k = 0; k < b.size(); ++k) moved[k] = static_cast<int8_t>(b[k] ^ -128);
        b = moved;
      }
      const int64_t sum_b = SumOf(b);
      int8_t* to = panel_weights + (n - first) * 4;
      for (int64_t k = 0; k < packed.depth; k += piece) {
        to = LayPiece(b.data() + k, piece, 4 * panel.vectors * lanes, to);
      }

      const size_t i = static_cast<size_t>(n);
      const int64_t zb = ZeroPointOfB(params, n);
      const int64_t bias = params.bias_i32.empty() ? 0 : params.bias_i32[i];
      packed.zero[i] = zb;
      packed.offset[i] =
          bias - static_cast<__int128>(za) * sum_b + static_cast<__int128>(za) * zb * packed.depth;
      packed.zero_low[i] = static_cast<int32_t>(zb);
      packed.offset_low[i] = static_cast<int32_t>(packed.offset[i]);
      // sdot takes a - 128 for a (quads-inl.h).
      if (packed.traits.quad_sum == internal::QuadSum::kDot) {
        packed.offset_low[i] = static_cast<int32_t>(packed.offset[i] + 128 * __int128{sum_b});
      }
      panel.needs_row_sums = panel.needs_row_sums || zb != 0;
      panel.sum_width = std::max(panel.sum_width, SumWidthOf(b, terms, zb, bias));
    }
  }
  return packed;
}

std::vector<PanelWeights> PanelsOf(const PackedWeights& packed) {
  std::vector<PanelWeights> panels;
  for (size_t p = 0; p < packed.panels.size(); ++p) {
    panels.push_back({packed.panels[p].vectors * packed.traits.lanes, packed.OfPanel(p)});
  }
  return panels;
}

// Lets as many panels as possible take the saturating path. `arranges`: rows may be copied before
// they are read (arrange.h).
void ChoosePaths(bool arranges, PackedWeights* packed) {
  if (!packed->traits.has_saturating_path) return;
  const std::vector<PanelWeights> panels = PanelsOf(*packed);
  if (arranges) packed->pairings = PairActivations(packed->depth, panels);
  // Without widened rows twice as many extra places are worth their price.
  const int64_t most =
      arranges ? MostExtraPlaces(packed->quads) : std::min(kMostExtraPlaces, packed->quads);
  for (size_t p = 0; p < panels.size(); ++p) {
    PackedPanel& panel = packed->panels[p];
    // Wide sums take their activations in parts (row_block.cc): too rare to do more for.
    const bool is_narrow = panel.sum_width == SumWidth::k32;
    panel.adds_pairs = SplitPanel(packed->quads, panels[p], is_narrow ? most : 0, &panel.extra);
    panel.takes_widened = arranges && is_narrow && !panel.adds_pairs;
  }
}

}  // namespace

PackedWeights PackPieces(const LinearParams& params, TermRange terms, int64_t piece) {
  PackedWeights packed = LayWeights(params, terms, piece);
  ChoosePaths(false, &packed);
  return packed;
}

PackedWeights PackWeights(const LinearParams& params, TermRange terms) {
  PackedWeights packed = LayWeights(params, terms, params.weights.columns);
  ChoosePaths(packed.depth >= kFewestToArrange, &packed);
  return packed;
}

Epilogue PackEpilogue(const LinearParams& params) {
  return Epilogue::Make({.channels = params.weights.rows,
                         .x_scale = params.x_scale,
                         .w_scale = params.w_scale,
                         .y_scale = params.y_scale,
                         .y_zero_point = params.y_zero_point,
                         .bias = params.bias,
                         .output_type = params.output_type,
                         .range = params.range,
                         .requantization = params.requantization});
}

}  // namespace qualm::kernels
