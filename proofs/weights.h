// SPDX-License-Identifier: Apache-2.0
// Weights that a file gives as float32, as codes.
#ifndef QUALM_PROOFS_WEIGHTS_H_
#define QUALM_PROOFS_WEIGHTS_H_

#include "core/case.h"

namespace qualm::proofs {

// The layer with s8 weights of zero point 0, per tensor or per channel: scales as PyTorch's
// symmetric min_max observers choose them, codes exact. Throws InputError "what" for weights that
// are not finite.
Case WithCodes(const Case& layer, bool per_channel);

}  // namespace qualm::proofs

#endif  // QUALM_PROOFS_WEIGHTS_H_
