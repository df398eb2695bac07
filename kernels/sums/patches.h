// SPDX-License-Identifier: Apache-2.0
// Where the window of a convolution lies over its input, and the activations under it. Internal to
// kernels/.
#ifndef QUALM_KERNELS_SUMS_PATCHES_H_
#define QUALM_KERNELS_SUMS_PATCHES_H_

#include <cstdint>

#include "kernels/images.h"
#include "kernels/window.h"

namespace qualm::kernels {

// Taps [begin, end) of one axis lie in the input, the others in the padding.
struct TapRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

// The window over one output pixel. Taps count in steps of the dilation.
struct Placement {
  TapRange rows;
  TapRange columns;
  const uint8_t* x = nullptr;  // channel 0 at the first tap in the input; null if there is none
  int64_t row_step = 0;        // bytes of x from tap to tap
  int64_t column_step = 0;

  bool InPadding() const { return rows.size() == 0 || columns.size() == 0; }
};

// A valid window over valid images (layer_validate.h).
class Placer {
 public:
  Placer(const WindowGeometry& window, const ConstImages& x);

  // Output pixel `pixel` of batch * OH * OW, row-major.
  Placement At(int64_t pixel) const;

  bool IsWhole(const Placement& place) const {
    return place.rows.size() == window_.kernel_h && place.columns.size() == window_.kernel_w;
  }

  // How many consecutive output pixels, from each multiple of it on, have placements whose first
  // activations are equally far apart, and how far.
  struct Run {
    int64_t pixels = 1;
    int64_t stride = 0;
  };
  Run LongestRun() const;

  // Copies channels [first, first + channels) under the window to patch [R, S, channels], with
  // `padding` where there are none.
  void Gather(const Placement& place, int64_t first, int64_t channels, uint8_t padding,
              uint8_t* patch) const;

 private:
  WindowGeometry window_;
  const ConstImages& x_;
  int64_t out_h_;
  int64_t out_w_;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_PATCHES_H_
