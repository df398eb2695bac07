// SPDX-License-Identifier: Apache-2.0
// The exact computation with stages swapped for well-known wrong ones. Attribution replays a
// failing case through these and looks for the smallest set of swaps that gives what the subject
// answered.
#ifndef QUALM_TRIAGE_COUNTERFACTUAL_H_
#define QUALM_TRIAGE_COUNTERFACTUAL_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "core/verdict.h"

namespace qualm::triage {

// Swaps of the same stage exclude each other.
enum class SwapStage : uint8_t {
  kOperands,
  kGeometry,
  kPadding,
  kTail,
  kAccumulate,
  kOffset,
  kBias,
  kIndex,
  kRound,
  kClamp
};

enum class Swap : uint8_t {
  // kOperands
  kInputOtherSign,            // u8 read as s8 or the reverse
  kInputOtherSignInProducts,  // only in the products, not in the sums that zero points multiply
  kWeightOtherSign,
  kOperandsOtherSign,   // both of add or mul
  kOperandsSwapped,     // each of them with the scale and zero point of the other
  kFirstOperandForAll,  // concat: the scale and zero point of the first
  kDenormalsAreZero,    // of quantize's x and scale; of float32 outputs
  // kGeometry; only where the output keeps its shape
  kStridesSwapped,
  kDilationsSwapped,
  kDilationIgnored,
  kKernelWidthAsHeight,  // taps of columns from the kernel's height on read padding
  kGroupModulo,          // output channel n is of group n mod groups
  // kPadding
  kPaddingIsCodeZero,
  kPaddingIsZeroPoint,  // max_pool: takes part in the maximum
  kPaddingOtherSide,    // top and bottom, left and right mixed up
  kPaddingOtherAxis,    // rows and columns mixed up
  kDivisorCountsPadding,
  kDivisorIgnoresPadding,
  kDivisorIsKernel,
  kDivisorUnclipped,  // positions past the bottom and the right edge count
  // kTail
  kLastProductDropped,  // the zero-point sums keep the term
  kProductTailDropped,  // the same for the last K % 4
  kProductTailDropped8,
  kProductTailDropped16,
  kProductTailDropped32,
  kLastTermDropped,  // altogether
  kTailDropped,      // the same for the last K % 4
  kTailDropped8,
  kTailDropped16,
  kTailDropped32,
  // kAccumulate
  kPairSaturation,
  kAcc16,  // pairs saturate and are added in saturating int16, blocks of 256
  kPairWraps,
  kTapsWrap16,      // three products
  kProductWraps16,  // mul
  kSumWraps16,      // averages
  kMaximumFromMinus127,
  kWrap32,
  kAverageInDouble,  // moving averages
  // kOffset
  kInputZeroPointIgnored,
  kWeightZeroPointIgnored,
  kWeightZeroPointFromInput,  // (x - zx - zw) * w
  kPaddedCrossTerm,           // K rounded up to a multiple of 4 in K*zx*zw
  kInputZeroPointAsInt8,      // wrapped
  kWeightZeroPointAsInt8,
  kZeroPointsAsInt8,  // both
  kNegatedZeroPointAsInt8,
  kRowSumOfRow0,
  kZeroPointTermInFloat,
  kMaximumNotSubtracted,  // softmax: distances from the largest code of the type
  kRangeWithoutZero,      // choose_qparams
  // kBias
  kBiasWraps,
  kBiasBecomesMinimum,
  kBiasIgnored,
  kBiasRoundedToInt32,
  // kIndex
  kFirstChannelForAll,
  kChannelModulo8,
  kChannelModulo16,
  kChannelWithinGroup,
  kTableIndexOffset,  // s8 codes: entry 0 is that of code -128, the index the code's byte
  // kRound
  kScaleProductInFloat,      // fl(sx*sw), the rest exact
  kFloatMultiplier,          // fl(fl(sx*sw)/sy) times fl(acc), half even
  kFloatReciprocal,          // the same with fl(1/sy)
  kFloat64,                  // multiplier and product in float64, whose ties are not the exact ones
  kFloatZeroPointFirst,      // zero point added in float before rounding
  kZeroPointBeforeRounding,  // exact sum, but the tie parity is that of value + zero point
  kFloatReciprocalInput,     // quantize: x * fl(1/s)
  kFloatDivision,            // quantize: fl(x/s)
  kHalfAway,
  kHalfUp,
  kTruncate,
  kLeftShiftDropped,   // rescale, add, mul, concat: multipliers of 1 and more
  kScaleFloorIgnored,  // choose_qparams: 2^-23
  // kClamp
  kReluAtZero,
  kReluIgnored,
  kClampIgnored,
  kWraps,               // low byte kept instead of saturating
  kHugeBecomesMinimum,  // conversion overflow gives INT32_MIN
  kNanBecomesMinimum,   // quantize: NaN gives the lower bound
  kDifferenceAsInt8,    // dequantize: q - z saturates at int8
  kDistanceAsInt8,      // softmax: the distance from the largest code does
  kReduceRangeIgnored,  // choose_qparams
};

struct SwapInfo {
  Swap swap;
  SwapStage stage;
  FindingKind kind;
  std::string_view name;      // short
  std::string_view sentence;  // what the subject does if this is it
};
// The likelier cause first: where several swaps give the same output, the first one is named.
std::span<const SwapInfo> AllSwaps();
// Names and sentences speak of input and weights, sx, sw and sy. The same in the terms of an
// operation that has none: of operands a and b, or of one scale.
std::string InTermsOf(Op op, std::string text);

// The output with these swaps (at most one per stage); nullopt where one of them means nothing for
// this case (no pairs, no bias, one channel).
std::optional<Tensor> Counterfactual(const Case& c, std::span<const Swap> swaps);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_COUNTERFACTUAL_H_
