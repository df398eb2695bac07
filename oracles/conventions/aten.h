// SPDX-License-Identifier: Apache-2.0
// ATen's scalar quantize, dequantize and mul, which the qnnpack engine shares, and its choice of
// quantization parameters.
#ifndef QUALM_ORACLES_CONVENTIONS_ATEN_H_
#define QUALM_ORACLES_CONVENTIONS_ATEN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "oracles/conventions/definition.h"
#include "oracles/conventions/fbgemm.h"

namespace qualm::conventions {

// Whose quantize_val a build of ATen has: its own (Debian's builds), or FBGEMM's (USE_FBGEMM, the
// official wheels), which from 2.13 on adds the zero point before it rounds.
enum class AtenBuild : uint8_t { kPlain, kFbgemm, kFbgemmLegacy };

// quantize, dequantize, add and mul of an official wheel with vector code; no name.
Convention AtenWheel(AtenBuild build);

// quantize_val, dequantize_val and requantize_from_int of a build without FBGEMM
// (affine_quantizer_base.cpp); the channel also holds what add needs.
std::string AtenCannotRun(const Case& c);
Channel AtenChannel(const Case& c, int64_t n);
std::vector<Step> AtenSteps(const Case& c);

// The steps of a function of one operand through float32: dequantized by a_scale and a_zero_point,
// then `function`, then quantized. `vector`: as the vector loop computes, else as the scalar rest
// does; `fused`: so does the vector loop that dequantizes.
std::vector<Step> AtenThroughFloat(bool vector, bool fused, Step function, AtenBuild build);

// The code of a float32 number in units of 1/reciprocal, by vector code or by quantize_val; `scale`
// says what the reciprocal is.
std::vector<Step> AtenToCode(bool vector, const Step& scale, AtenBuild build);

// quant_utils::ChooseQuantizationParams as torch._choose_qparams_per_tensor calls it (0..255, or
// 0..127 under reduce_range). The scale stays float64. Finite min <= max.
ChosenQParams AtenChooseQParams(float min, float max, bool reduce_range);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_ATEN_H_
