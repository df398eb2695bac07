// SPDX-License-Identifier: Apache-2.0
#include "core/io/case_keys.h"

#include <array>
#include <initializer_list>

#include "core/case.h"

namespace qualm {
namespace {

using enum CaseKey;

// Set as a whole: an op that is added without keys here fails the round trip test.
CaseKeySet MakeKeys(Op op) {
  CaseKeySet keys;
  const auto add = [&keys](std::initializer_list<CaseKey> more) {
    for (const CaseKey key : more) keys.set(static_cast<size_t>(key));
  };
  add({kVersion, kOp, kProperty, kNote, kGran, kXDType, kOutDType, kExpected, kObserved,
       kObservedBy, kObservedY});
  const auto operand_x = [&] { add({kX, kXShape, kXScale, kXZp}); };
  const auto operands_ab = [&] { add({kA, kAScale, kAZp, kB, kBScale, kBZp}); };
  const auto out_q = [&] { add({kOutScale, kOutZp}); };
  const auto clamp = [&] { add({kOutMin, kOutMax}); };
  const auto sums = [&] {
    operand_x();
    out_q();
    clamp();
    add({kW, kWShape, kWDType, kWScale, kWZp, kBias, kBiasI32, kRelu, kRequant});
  };
  const auto image = [&] { add({kN, kH, kWidth}); };
  const auto window = [&] {
    image();
    add({kR, kS, kStride, kPad});
  };
  switch (op) {
    case Op::kQuantize:
      add({kM, kN, kX, kXShape, kRelu});
      out_q();
      clamp();
      break;
    case Op::kDequantize:
      add({kM, kN});
      operand_x();
      break;
    case Op::kRequantize:
      add({kM, kN, kMultiplier, kWScale, kWZp, kRelu, kRequant});
      operand_x();
      out_q();
      clamp();
      break;
    case Op::kLinear:
      add({kM, kN, kK});
      sums();
      break;
    case Op::kConv2d:
    case Op::kDepthwise:
      window();
      add({kIC, kOC, kDilation, kGroups});
      sums();
      break;
    case Op::kAdd:
    case Op::kMul:
      add({kM, kN, kRelu});
      operands_ab();
      out_q();
      clamp();
      break;
    case Op::kMaxPool:  // keeps the qparams of its input
      window();
      add({kC, kDilation, kCeilMode, kRelu});
      operand_x();
      clamp();
      break;
    case Op::kAvgPool:
      window();
      add({kC, kCeilMode, kCountIncludePad, kRelu});
      operand_x();
      out_q();
      clamp();
      break;
    case Op::kGlobalAvgPool:  // its window is the image
      image();
      add({kC, kRelu});
      operand_x();
      out_q();
      clamp();
      break;
    case Op::kRescale:
      add({kM, kN, kRelu});
      operand_x();
      out_q();
      clamp();
      break;
    case Op::kConcat:
      add({kM, kNA, kNB, kRelu});
      operands_ab();
      out_q();
      clamp();
      break;
    case Op::kTable:
      add({kM, kN, kFunction, kNegativeSlope});
      operand_x();
      out_q();
      clamp();
      break;
    case Op::kSoftmax:  // its output has one scale and zero point per type
      add({kM, kN});
      operand_x();
      clamp();
      break;
    case Op::kChooseQParams:
      add({kBatches, kM, kN, kX, kXShape, kObserver, kSymmetric, kReduceRange, kDType, kQuantMin,
           kQuantMax, kAveragingConstant});
      break;
  }
  return keys;
}

}  // namespace

const CaseKeySet& KeysOf(Op op) {
  static const std::array<CaseKeySet, kOpCount> sets = [] {
    std::array<CaseKeySet, kOpCount> made;
    for (size_t i = 0; i < kOpCount; ++i) made[i] = MakeKeys(static_cast<Op>(i));
    return made;
  }();
  return sets[static_cast<size_t>(op)];
}

OperandKeys OperandKeysOf(Op op) {
  if (HasTwoInputs(op)) return {kA, kAScale, kAZp, kB, kBScale, kBZp};
  return {kX, kXScale, kXZp, kW, kWScale, kWZp};
}

}  // namespace qualm
