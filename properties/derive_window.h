// SPDX-License-Identifier: Apache-2.0
// The part of derive::Columns that knows about windows.
#ifndef QUALM_PROPERTIES_DERIVE_WINDOW_H_
#define QUALM_PROPERTIES_DERIVE_WINDOW_H_

#include <cstdint>
#include <span>

#include "core/case.h"

namespace qualm::derive::internal {

// Tensors, window and sizes of derive::Columns for convolutions and pools; lists are the caller's.
Case WindowColumns(const Case& c, std::span<const int64_t> columns);

}  // namespace qualm::derive::internal

#endif  // QUALM_PROPERTIES_DERIVE_WINDOW_H_
