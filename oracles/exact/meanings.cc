// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/meanings.h"

#include "core/status.h"

namespace qualm::exact {

// Each stands at the end of its operation's file.
extern const Meaning kQuantize, kDequantize, kRequantize, kLinear, kConv2d, kDepthwise, kAdd, kSub,
    kMul, kMaxPool, kAvgPool, kGlobalAvgPool, kRescale, kConcat, kTable, kSoftmax, kChooseQParams,
    kDynamicLinear, kCast;

const Meaning& MeaningOf(Op op) {
  switch (op) {
    case Op::kQuantize: return kQuantize;
    case Op::kDequantize: return kDequantize;
    case Op::kRequantize: return kRequantize;
    case Op::kLinear: return kLinear;
    case Op::kConv2d: return kConv2d;
    case Op::kDepthwise: return kDepthwise;
    case Op::kAdd: return kAdd;
    case Op::kSub: return kSub;
    case Op::kMul: return kMul;
    case Op::kMaxPool: return kMaxPool;
    case Op::kAvgPool: return kAvgPool;
    case Op::kGlobalAvgPool: return kGlobalAvgPool;
    case Op::kRescale: return kRescale;
    case Op::kConcat: return kConcat;
    case Op::kTable: return kTable;
    case Op::kSoftmax: return kSoftmax;
    case Op::kChooseQParams: return kChooseQParams;
    case Op::kDynamicLinear: return kDynamicLinear;
    case Op::kCast: return kCast;
  }
  QUALM_CHECK(!"unknown operation");
  return kQuantize;
}

}  // namespace qualm::exact
