// SPDX-License-Identifier: Apache-2.0
// For the tests of convolutions: one complete problem, and a way to run it between guard pages.
#ifndef QUALM_KERNELS_SUMS_CONV_TESTING_H_
#define QUALM_KERNELS_SUMS_CONV_TESTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/conv.h"
#include "kernels/sums/linear_testing.h"

namespace qualm::kernels::testing {

struct ConvProblem {
  // The members that a linear layer has too. m and k follow from the rest (Derive); n counts output
  // channels; x holds the codes of the images, dense [batch,H,W,C]; x_gap is not used.
  Problem layer;
  int64_t batch = 1, height = 1, width = 1, in_channels = 1;
  int64_t groups = 1;
  WindowGeometry window;  // without in_h and in_w
  int64_t pixel_gap = 0, row_gap = 0, image_gap = 0;

  void Derive();
  int64_t OutHeight() const;
  int64_t OutWidth() const;
  std::string Describe() const;
};

// Weights of the problem, packed for this thread's target, from memory that ends at a guard page.
Status PackProblem(const ConvProblem& p, PackedConv* packed);

// The images at `data`, with the problem's gaps.
ConstImages ImagesAt(const ConvProblem& p, const uint8_t* data);
size_t ImageBytes(const ConvProblem& p);
void SpreadImages(const ConvProblem& p, uint8_t* to);

// Packs and runs on this thread's target between guard pages, with read-only inputs. Checks that
// gaps between output pixels are untouched. Dense [m,n] codes or float bits.
std::vector<int32_t> RunProblem(const ConvProblem& p, uint8_t poison = 0xA5,
                                ThreadPool* pool = nullptr);

// As PlainOutputs of a linear layer: the same without gaps.
std::vector<int32_t> PlainOutputs(ConvProblem p);

// Fills in the codes of x and w, after the geometry is complete.
void FillBoth(Choices& choices, Data data, ConvProblem& p);

}  // namespace qualm::kernels::testing

#endif  // QUALM_KERNELS_SUMS_CONV_TESTING_H_
