// SPDX-License-Identifier: Apache-2.0
// Functions of FBGEMM that PyTorch calls by itself, and recorded ones that no operation of a case
// computes (src/QuantUtils.cc @ 71d6f8b).
#ifndef QUALM_ORACLES_CONVENTIONS_FBGEMM_H_
#define QUALM_ORACLES_CONVENTIONS_FBGEMM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "oracles/conventions/convention.h"
#include "oracles/conventions/steps.h"

namespace qualm::conventions {

// Quantize<T, LEGACY> of QuantUtils.h: of a whole tensor, which is vector code, or of one number.
// LEGACY adds the zero point before it rounds, and the vector code fuses the two.
std::vector<Step> FbgemmQuantize(bool vector, bool legacy);

// The convolutions of FBGEMM in PyTorch's official wheel, torch-fbgemm@ISA; isa: avx2, avx512,
// vnni. held: FBGEMM_ENABLE_INSTRUCTIONS asks for less than the processor's VNNI.
Convention FbgemmOfWheel(const std::string& isa, bool held);

// RequantizeFixedPoint to u8: zero_point + ((value*multiplier + 2^(right_shift-1)) >> right_shift),
// ties toward +infinity; right_shift 1..62. The vector body keeps the low 32 bits before the clamp,
// the scalar tail does not.
int32_t FbgemmRequantizeFixedPoint(int32_t value, int32_t multiplier, int32_t right_shift,
                                   int32_t zero_point, bool vector_body);

// A 7x7x7 depthwise convolution, padding 3, of a 7x7x7 volume of codes x, all weights 1, scales of
// x and w 1, zero points of x and output 0: its 343 outputs, the same for every channel. The kernel
// sums the codes under the window in a saturating int16 (src/GenerateI8Depthwise.cc), which no 2-D
// window can fill; with a weight zero point the results are wrong from sum x > 32767 on.
std::vector<int32_t> FbgemmDepthwise3d(int32_t x, int32_t w_zero_point, float out_scale);

struct ChosenQParams {
  double scale = 0;
  int32_t zero_point = 0;
};

// ChooseQuantizationParams; min <= max, qmin < qmax inside 16 bits. An infinite end gives an
// infinite scale and the zero point INT32_MIN.
ChosenQParams FbgemmChooseQParams(float min, float max, int32_t qmin, int32_t qmax,
                                  bool preserve_sparsity, bool force_power_of_two);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_FBGEMM_H_
