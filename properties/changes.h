// SPDX-License-Identifier: Apache-2.0
// A case with one thing changed: what a subject that keeps too much of a problem may mix up.
#ifndef QUALM_PROPERTIES_CHANGES_H_
#define QUALM_PROPERTIES_CHANGES_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/case.h"

namespace qualm {

// Gives element i the code that is as far from the other end of its type.
void MirrorCode(Tensor& codes, int64_t i);

// How many changes there are of a case with outputs.
size_t ChangesOf(const Case& c);
// Makes change number `change` and returns what it is of: "the scale of x", "relu". The case may be
// as before, where there is nothing to change, and may be invalid.
std::string ApplyChange(size_t change, Case& c);

}  // namespace qualm

#endif  // QUALM_PROPERTIES_CHANGES_H_
