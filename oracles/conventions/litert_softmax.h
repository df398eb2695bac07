// SPDX-License-Identifier: Apache-2.0
// TensorFlow Lite's softmax of codes.
#ifndef QUALM_ORACLES_CONVENTIONS_LITERT_SOFTMAX_H_
#define QUALM_ORACLES_CONVENTIONS_LITERT_SOFTMAX_H_

#include <string>

#include "core/case.h"
#include "oracles/conventions/definition.h"

namespace qualm::conventions {

// The codes, before their clamp: in fixed point, as the reference kernel makes them, and in
// float32, as the optimized one does.
Definition::Gatherer LitertShares(const Case& c);
Definition::Gatherer LitertSharesInFloat(const Case& c);

// Why a softmax is refused, "" where it is not.
std::string LitertCannotShare(const Case& c, bool in_float);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_LITERT_SOFTMAX_H_
