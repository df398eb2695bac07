// SPDX-License-Identifier: Apache-2.0
// Sizes of real layers: several blocks of K with several panels of channels, long M, wide N, deep
// and grouped convolutions, wide images, long rows. A kernel that is right for 40 columns may keep
// the wrong thing between two blocks of 256. Most of such a tensor is a short pattern: it costs
// little to fill, and a wrong index still reads a wrong code.
#ifndef QUALM_PROPERTIES_GEN_LAYER_H_
#define QUALM_PROPERTIES_GEN_LAYER_H_

#include <cstdint>

#include "properties/gen/values.h"

namespace qualm::gen::internal {

// From `low` to `high`, each factor of 2 as likely as another.
int64_t LogBetween(Rng& rng, int64_t low, int64_t high);

// M, N and K of an operation with Layout::kProducts.
void DrawLayerProducts(Rng& rng, Case& c);
// The same where all three are middling, M from 4, N from 16 and K from 32 on, as in the small
// layers of real networks. Libraries change from one way of computing to another among them.
void DrawMiddlingProducts(Rng& rng, Case& c);
// The input and output channels of a convolution for such a layer; its window is drawn.
void DrawMiddlingChannels(Rng& rng, Case& c);

// Output pixels along the two axes of a window: some in both, or hundreds along one.
struct OutputPixels {
  int64_t h = 1, w = 1;
};
OutputPixels DrawLayerPixels(Rng& rng);
OutputPixels DrawMiddlingPixels(Rng& rng);
// Groups, input and output channels of a convolution; its window is drawn.
void DrawLayerChannels(Rng& rng, Case& c);
// Whether the weights of a layer have a scale per channel: mostly, where there are many groups or
// channels, because that is what kernels get wrong there.
void DrawLayerList(Rng& rng, Case& c);
// Channels of a pool whose window is drawn.
int64_t DrawLayerPlanes(Rng& rng, const Case& c);

// Codes that repeat after a few, or one per row, with some others among them: no two rows and no
// two blocks of a power of two look alike.
void FillLayer(Rng& rng, int64_t columns, Tensor& codes);

// The theme of all but the sizes of such a case.
Theme ThemeOfLayer(Rng& rng);

// A number of elements, beyond the 32 to 4,096 that a block or a register may hold.
int64_t DrawFarLength(Rng& rng);
// The place, in a row of that many elements, of one that decides: among the last ones, or right
// behind a block.
int64_t FarPlace(Rng& rng, int64_t length);

// Is the case wide enough that it tells a wrong index from a right one after Repeated?
bool CanRepeat(const Case& small);
// A drawn case of an operation on elements, of concat, or of choose_qparams, repeated in rows and
// columns until it has hundreds to 70,000 elements; softmax has rows of up to 4,096.
Case Repeated(Rng& rng, const Case& small);

}  // namespace qualm::gen::internal

#endif  // QUALM_PROPERTIES_GEN_LAYER_H_
