// SPDX-License-Identifier: Apache-2.0
#include "core/finding_kind.h"

#include <gtest/gtest.h>

namespace qualm {
namespace {

TEST(FindingKinds, AreReadByTheirNames) {
  for (int i = 0; i <= static_cast<int>(FindingKind::kUnknown); ++i) {
    const auto kind = static_cast<FindingKind>(i);
    EXPECT_EQ(ParseFindingKind(Name(kind)), kind);
  }
  EXPECT_EQ(ParseFindingKind("saturation"), std::nullopt);
}

}  // namespace
}  // namespace qualm
