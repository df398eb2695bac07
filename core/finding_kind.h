// SPDX-License-Identifier: Apache-2.0
#ifndef QUALM_CORE_FINDING_KIND_H_
#define QUALM_CORE_FINDING_KIND_H_

#include <optional>
#include <string_view>

#include "core/verdict.h"

namespace qualm {

// The kind that Name gives this name; nullopt: there is none.
std::optional<FindingKind> ParseFindingKind(std::string_view name);

}  // namespace qualm

#endif  // QUALM_CORE_FINDING_KIND_H_
