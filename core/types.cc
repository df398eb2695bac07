// SPDX-License-Identifier: Apache-2.0
#include "core/types.h"

namespace qualm {
namespace {

constexpr bool RowsStandByValue() {
  for (size_t i = 0; i < kDTypeCount; ++i) {
    if (kDTypeRows[i].dtype != static_cast<DType>(i)) return false;
  }
  return true;
}
static_assert(RowsStandByValue(), "InfoOf looks an element type up by its value");

}  // namespace

std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeRow& type : kDTypeRows) {
    if (type.name == name) return type.dtype;
  }
  return std::nullopt;
}

}  // namespace qualm
