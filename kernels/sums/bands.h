// SPDX-License-Identifier: Apache-2.0
// Where convolutions read activations that they do not gather: in the images, or, where there is
// padding or a gap between pixels, in a padded copy of a band of them. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_BANDS_H_
#define QUALM_KERNELS_SUMS_BANDS_H_

#include <cstdint>

#include "kernels/images.h"
#include "kernels/window.h"

namespace qualm::kernels {

inline bool IsPadded(const WindowGeometry& w) {
  return w.pad_top > 0 || w.pad_bottom > 0 || w.pad_left > 0 || w.pad_right > 0;
}

// Some lines and columns of the output pixels of one image.
struct Band {
  int64_t pixel = 0;  // the first one, of batch * OH * OW, row-major
  int64_t out_w = 0;  // from line to line
  int64_t image = 0;
  int64_t line = 0;  // of the output
  int64_t column = 0;
  int64_t lines = 0;
  int64_t columns = 0;
  // Set by Place:
  const uint8_t* x = nullptr;  // channel 0 under the first tap of the first one
  int64_t x_line = 0;          // bytes from line to line of the input
  int64_t x_pixel = 0;         // from pixel to pixel of a line
};

// The output of images cut into bands whose copies stay in the L2 cache.
class Bands {
 public:
  // Whether some output pixels fit into a copy.
  static bool Fit(const WindowGeometry& window, int64_t channels);

  // `window` has the sizes of the images; there are outputs, and Fit.
  Bands(const WindowGeometry& window, int64_t batch, int64_t channels, int64_t threads);

  int64_t count() const { return count_; }
  int64_t bytes() const { return bytes_; }  // of a copy

  Band At(int64_t band) const;
  // Where to read it: in the images where `copy` is null, which then have no padding. The padding
  // of a copy has the byte `padding`.
  void Place(const ConstImages& x, uint8_t padding, uint8_t* copy, Band* band) const;

 private:
  WindowGeometry window_;
  int64_t channels_;
  int64_t out_h_;
  int64_t out_w_;
  int64_t lines_;    // of a band, at most
  int64_t columns_;  // the same
  int64_t count_;
  int64_t bytes_;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_BANDS_H_
