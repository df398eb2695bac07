// SPDX-License-Identifier: Apache-2.0
#include "core/finding_kind.h"

namespace qualm {

std::optional<FindingKind> ParseFindingKind(std::string_view name) {
  // kUnknown is the last kind: a kind behind it would not be found.
  for (int i = 0; i <= static_cast<int>(FindingKind::kUnknown); ++i) {
    if (Name(static_cast<FindingKind>(i)) == name) return static_cast<FindingKind>(i);
  }
  return std::nullopt;
}

}  // namespace qualm
