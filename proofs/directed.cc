// SPDX-License-Identifier: Apache-2.0
#include "proofs/directed.h"

#include <algorithm>

#include "core/rng.h"
#include "core/slice.h"

namespace qualm::proofs {

Case RawSumsOf(const Case& layer, int64_t rows) {
  Case c = slice::SumsOf(layer);
  c.per_channel = false;
  c.x_q = c.w_q = QParams{};
  if (IsConv(c.op)) {
    const Window& v = layer.window;
    c.window = {};
    c.window.batch = rows;
    c.window.in_h = c.window.kernel_h = v.kernel_h;
    c.window.in_w = c.window.kernel_w = v.kernel_w;
    c.window.in_c = v.in_c;
    c.window.groups = v.groups;
    DeriveSizes(&c);
  } else {
    c.M = rows;
  }
  c.x = Tensor(layer.x.dtype(), ShapeOfX(c));
  return c;
}

Case Directed(const Case& layer, Codes x, int64_t rows, uint64_t seed) {
  Case c = RawSumsOf(layer, rows);
  if (c.N == 0) return c;
  Rng rng(seed);
  const Terms terms = TermsOf(layer);
  const int64_t groups = IsConv(c.op) ? c.window.groups : 1;
  const int64_t per_group = c.N / groups, channels = terms.depth * groups;
  int64_t at = 0;
  for (int64_t row = 0; row < rows; ++row) {
    // The channel whose weights the row follows, in each group, and how faithfully.
    const int64_t n = rng.Between(0, per_group - 1);
    const bool high = rng.Chance(1, 2);
    const int64_t astray = rng.Chance(1, 2) ? 0 : rng.Between(1, 8);  // of 16
    for (int64_t tap = 0; tap < terms.taps; ++tap) {
      for (int64_t channel = 0; channel < channels; ++channel, ++at) {
        const int64_t group = channel / terms.depth;
        const int64_t term = tap * terms.depth + channel % terms.depth;
        const int32_t w = c.w.IntAt((group * per_group + n) * terms.count() + term);
        int32_t code = (w > 0) == high ? x.hi : x.lo;
        if (rng.Between(0, 15) < astray) {
          code = static_cast<int32_t>(rng.Between(x.lo, x.hi));
        } else if (rng.Chance(1, 16)) {
          code = std::clamp(code + (code == x.hi ? -1 : 1), x.lo, x.hi);
        }
        c.x.SetInt(at, code);
      }
    }
  }
  return c;
}

}  // namespace qualm::proofs
