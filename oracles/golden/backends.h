// SPDX-License-Identifier: Apache-2.0
// The convention that a recorded backend and instruction set follow.
#ifndef QUALM_ORACLES_GOLDEN_BACKENDS_H_
#define QUALM_ORACLES_GOLDEN_BACKENDS_H_

#include <string>

#include "core/io/golden.h"

namespace qualm::golden {

// "" where none is known. The convention of that name need not exist.
std::string ConventionName(const GoldenRecord& record);

}  // namespace qualm::golden

#endif  // QUALM_ORACLES_GOLDEN_BACKENDS_H_
