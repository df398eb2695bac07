// SPDX-License-Identifier: Apache-2.0
#include "core/io/case_keys.h"

#include <array>
#include <initializer_list>

#include "core/case.h"

namespace qualm {
namespace {

using enum CaseKey;

CaseKeySet MakeKeys(const OpRow& row) {
  CaseKeySet keys;
  const auto add = [&keys](std::initializer_list<CaseKey> more) {
    for (const CaseKey key : more) keys.set(static_cast<size_t>(key));
  };
  add({kVersion, kOp, kProperty, kContract, kNote, kGran, kXDType, kOutDType, kExpected, kObserved,
       kObservedBy, kObservedY, kObservedKind, kObservedCause, kObservedCauses, kObservedEvidence,
       kObservedRuledOut});
  switch (row.layout) {
    case Layout::kElements: add({kM, kN}); break;
    case Layout::kProducts: add({kM, kN, kK}); break;
    case Layout::kConv: add({kN, kH, kWidth, kIC, kOC, kR, kS, kStride, kPad, kGroups}); break;
    case Layout::kPool:
      add({kN, kH, kWidth, kC});
      if (!row.whole_image) add({kR, kS, kStride, kPad});
      break;
    case Layout::kColumns: add({kM, kNA, kNB}); break;
    case Layout::kBatches: add({kBatches, kM, kN}); break;
  }
  const OperandKeys operands = OperandKeysOf(row.op);
  add({operands.x});
  if (row.x_qparams) add({operands.x_scale, operands.x_zp});
  if (row.cast) add({kXScale, kOutScale});
  if (row.second != Second::kInput) add({kXShape});
  if (row.second != Second::kNone) add({operands.w, operands.w_scale, operands.w_zp});
  if (row.second == Second::kWeights) add({kWShape, kWDType});
  if (row.multiplier) add({kWScale, kWZp});
  if (row.out_q == OutQParams::kOwn) add({kOutScale, kOutZp});
  if (row.clamp) add({kOutMin, kOutMax});
  if (row.dilation) add({kDilation});
  const Case any;
  ForEachParameter(any, [&](const Field& field, const auto& /*value*/) {
    if (row.*field.has) add({*KeyNamed(field.name)});
  });
  return keys;
}

}  // namespace

const CaseKeySet& KeysOf(Op op) {
  static const std::array<CaseKeySet, kOpCount> sets = [] {
    std::array<CaseKeySet, kOpCount> made;
    for (const OpRow& row : kOpRows) made[static_cast<size_t>(row.op)] = MakeKeys(row);
    return made;
  }();
  return sets[static_cast<size_t>(op)];
}

OperandKeys OperandKeysOf(Op op) {
  if (HasTwoInputs(op)) return {kA, kAScale, kAZp, kB, kBScale, kBZp};
  return {kX, kXScale, kXZp, kW, kWScale, kWZp};
}

}  // namespace qualm
