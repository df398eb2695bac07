// SPDX-License-Identifier: Apache-2.0
// ONNX's DynamicQuantizeLinear, and the layer that is made of it. Implementations differ in how
// they round, and in how they add.
#ifndef QUALM_ORACLES_CONVENTIONS_ONNX_H_
#define QUALM_ORACLES_CONVENTIONS_ONNX_H_

#include "oracles/conventions/convention.h"
#include "oracles/conventions/definition.h"
#include "oracles/conventions/dynamic_linear.h"
#include "oracles/exact/dynamic_linear.h"

namespace qualm::conventions {

// Rounds to an integer.
using RoundFloat = float (*)(float);

// Its scale and zero point, for a range that holds 0. Implementations differ in what zeros get.
exact::AtenChoice OnnxChoice(exact::ObservedRange range, RoundFloat round,
                             exact::AtenChoice of_zeros = {1, 0});
// choose_qparams by these steps, whose codes `quantize` gives; without a name. In observers.cc.
Convention OnnxChooseQParams(RoundFloat round, Convention quantize,
                             exact::AtenChoice of_zeros = {1, 0});
// DynamicQuantizeLinear, MatMulInteger, Cast, Mul with fl(x_scale*w_scale), Add: what ONNX
// Runtime's quantize_dynamic makes of a layer. `quantize` gives the codes of x; of `sums`, how
// products are added.
DynamicLinear OnnxDynamicLinear(RoundFloat round, Convention quantize, Definition sums);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_ONNX_H_
