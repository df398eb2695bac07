// SPDX-License-Identifier: Apache-2.0
#include "core/op.h"

namespace qualm {
namespace {

constexpr std::array<Op, kOpCount> OpsOfRows() {
  std::array<Op, kOpCount> ops{};
  for (size_t i = 0; i < kOpCount; ++i) ops[i] = kOpRows[i].op;
  return ops;
}
constexpr std::array<Op, kOpCount> kOps = OpsOfRows();

}  // namespace

std::span<const Op> AllOps() { return kOps; }

std::optional<Op> ParseOp(std::string_view name) {
  for (const OpRow& row : kOpRows) {
    if (row.name == name) return row.op;
  }
  return std::nullopt;
}

std::vector<Op> OpsWhere(bool (*has)(Op)) {
  std::vector<Op> ops;
  for (const Op op : kOps) {
    if (has(op)) ops.push_back(op);
  }
  return ops;
}

std::string Join(const DTypeList& types, std::string_view word) {
  std::string text;
  for (const DType dtype : types) {
    if (!text.empty()) text += word;
    text += Name(dtype);
  }
  return text;
}

}  // namespace qualm
