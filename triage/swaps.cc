// SPDX-License-Identifier: Apache-2.0
// The well-known wrong stages, likelier causes first.
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "triage/counterfactual.h"

namespace qualm::triage {
namespace {

constexpr auto kSwaps = std::to_array<SwapInfo>({
    {Swap::kPairSaturation, SwapStage::kAccumulate, FindingKind::kPairSaturation, "pair saturation",
     "adds u8*s8 products in pairs in a saturating int16 (vpmaddubsw)"},
    {Swap::kAcc16, SwapStage::kAccumulate, FindingKind::kPairSaturation, "16-bit accumulation",
     "accumulates saturated pairs in a saturating int16 (acc16)"},
    {Swap::kPairWraps, SwapStage::kAccumulate, FindingKind::kPairSaturation, "int16 pair wrap",
     "adds products in pairs in an int16 that wraps"},
    {Swap::kTapsWrap16, SwapStage::kAccumulate, FindingKind::kPairSaturation, "int16 wrap of taps",
     "adds the products of three taps in an int16 that wraps"},
    {Swap::kProductWraps16, SwapStage::kAccumulate, FindingKind::kInt32Overflow, "int16 product",
     "keeps the product of the two differences in an int16 that wraps"},
    {Swap::kSumWraps16, SwapStage::kAccumulate, FindingKind::kInt32Overflow, "16-bit sum",
     "sums the codes in 16 bits that wrap"},
    {Swap::kMaximumFromMinus127, SwapStage::kAccumulate, FindingKind::kClamp, "maximum from -127",
     "starts the maximum of s8 codes at -127"},
    {Swap::kPaddingIsCodeZero, SwapStage::kPadding, FindingKind::kPadding, "padding of code 0",
     "fills the padding with code 0"},
    {Swap::kPaddingIsZeroPoint, SwapStage::kPadding, FindingKind::kPadding, "padding wins",
     "lets a padding of the zero point take part in the maximum"},
    {Swap::kDivisorUnclipped, SwapStage::kPadding, FindingKind::kPadding, "unclipped divisor",
     "counts positions past the bottom and the right edge in the divisor"},
    {Swap::kDivisorCountsPadding, SwapStage::kPadding, FindingKind::kPadding,
     "padding in the divisor", "counts the padding in the divisor, which does not include it"},
    {Swap::kDivisorIgnoresPadding, SwapStage::kPadding, FindingKind::kPadding,
     "padding not in the divisor", "leaves the padding out of the divisor, which includes it"},
    {Swap::kDivisorIsKernel, SwapStage::kPadding, FindingKind::kPadding, "kernel as divisor",
     "divides by the size of the kernel everywhere"},
    {Swap::kPaddingOtherSide, SwapStage::kPadding, FindingKind::kPadding, "padding on other side",
     "pads the bottom as the top and the right as the left"},
    {Swap::kPaddingOtherAxis, SwapStage::kPadding, FindingKind::kPadding, "padding of other axis",
     "pads rows as columns and columns as rows"},
    {Swap::kKernelWidthAsHeight, SwapStage::kGeometry, FindingKind::kIndex,
     "kernel width bounded by height",
     "takes columns of the kernel from its height on for padding"},
    {Swap::kStridesSwapped, SwapStage::kGeometry, FindingKind::kIndex, "strides swapped",
     "steps rows by the stride of columns and the reverse"},
    {Swap::kDilationsSwapped, SwapStage::kGeometry, FindingKind::kIndex, "dilations swapped",
     "spreads rows by the dilation of columns and the reverse"},
    {Swap::kDilationIgnored, SwapStage::kGeometry, FindingKind::kIndex, "dilation ignored",
     "ignores the dilation"},
    {Swap::kGroupModulo, SwapStage::kGeometry, FindingKind::kIndex, "group modulo",
     "takes output channel n to be of group n mod groups"},
    {Swap::kWrap32, SwapStage::kAccumulate, FindingKind::kInt32Overflow, "int32 wrap",
     "lets the sum wrap in int32"},
    {Swap::kMaximumNotSubtracted, SwapStage::kOffset, FindingKind::kZeroPoint,
     "maximum not subtracted",
     "takes distances from the largest code of the type instead of the row's"},
    {Swap::kRangeWithoutZero, SwapStage::kOffset, FindingKind::kZeroPoint, "range without zero",
     "does not widen the range to hold 0"},
    {Swap::kReduceRangeIgnored, SwapStage::kClamp, FindingKind::kClamp, "reduce_range ignored",
     "spreads the range over all codes instead of half of them"},
    {Swap::kScaleFloorIgnored, SwapStage::kRound, FindingKind::kClamp, "no scale floor",
     "lets a scale fall below 2^-23"},
    {Swap::kAverageInDouble, SwapStage::kAccumulate, FindingKind::kRounding, "double average",
     "keeps the moving average in double"},
    {Swap::kDistanceAsInt8, SwapStage::kClamp, FindingKind::kClamp, "int8 distance",
     "saturates the distance from the largest code at int8"},
    {Swap::kReluAtZero, SwapStage::kClamp, FindingKind::kClamp, "relu at code 0",
     "clamps the fused relu at code 0 instead of the output zero point"},
    {Swap::kReluIgnored, SwapStage::kClamp, FindingKind::kClamp, "relu ignored",
     "ignores the relu"},
    {Swap::kClampIgnored, SwapStage::kClamp, FindingKind::kClamp, "clamp ignored",
     "clamps to the type instead of [out_min, out_max]"},
    {Swap::kHugeBecomesMinimum, SwapStage::kClamp, FindingKind::kClamp, "conversion overflow",
     "turns values beyond int32 into INT32_MIN before the clamp (cvtps2dq)"},
    {Swap::kWraps, SwapStage::kClamp, FindingKind::kClamp, "truncating narrow",
     "keeps the low byte instead of saturating"},
    {Swap::kNanBecomesMinimum, SwapStage::kClamp, FindingKind::kClamp, "NaN as lower bound",
     "turns NaN into the lower bound instead of the zero point"},
    {Swap::kDifferenceAsInt8, SwapStage::kClamp, FindingKind::kZeroPoint, "int8 difference",
     "saturates code - zero_point at int8"},
    {Swap::kWeightZeroPointIgnored, SwapStage::kOffset, FindingKind::kZeroPoint,
     "weight zero point ignored", "ignores the weight zero point"},
    {Swap::kInputZeroPointIgnored, SwapStage::kOffset, FindingKind::kZeroPoint,
     "input zero point ignored", "ignores the input zero point"},
    {Swap::kWeightZeroPointFromInput, SwapStage::kOffset, FindingKind::kZeroPoint,
     "weight zero point taken from the input",
     "subtracts the weight zero point from the input instead of the weights: (x - x_zp - w_zp) * "
     "w"},
    {Swap::kPaddedCrossTerm, SwapStage::kOffset, FindingKind::kZeroPoint, "padded K in K*zx*zw",
     "uses K rounded up to a multiple of 4 in the zero-point term"},
    {Swap::kWeightZeroPointAsInt8, SwapStage::kOffset, FindingKind::kZeroPoint,
     "weight zero point as int8", "keeps the weight zero point in an int8 that wraps"},
    {Swap::kInputZeroPointAsInt8, SwapStage::kOffset, FindingKind::kZeroPoint,
     "input zero point as int8", "keeps the input zero point in an int8 that wraps"},
    {Swap::kZeroPointsAsInt8, SwapStage::kOffset, FindingKind::kZeroPoint, "zero points as int8",
     "keeps both zero points in int8 that wraps"},
    {Swap::kNegatedZeroPointAsInt8, SwapStage::kOffset, FindingKind::kZeroPoint,
     "negated zero point as int8",
     "keeps the negated input zero point in an int8, where -128 is its own negative"},
    {Swap::kRowSumOfRow0, SwapStage::kOffset, FindingKind::kIndex, "row sum of row 0",
     "corrects every row with the sum of row 0"},
    {Swap::kZeroPointTermInFloat, SwapStage::kOffset, FindingKind::kRounding,
     "float32 zero-point term", "computes x_zp times the column sum in float32"},
    {Swap::kLastProductDropped, SwapStage::kTail, FindingKind::kTail, "last product dropped",
     "drops the last product"},
    {Swap::kProductTailDropped, SwapStage::kTail, FindingKind::kTail, "product tail of 4 dropped",
     "drops the last K % 4 products"},
    {Swap::kProductTailDropped8, SwapStage::kTail, FindingKind::kTail, "product tail of 8 dropped",
     "drops the last K % 8 products"},
    {Swap::kProductTailDropped16, SwapStage::kTail, FindingKind::kTail,
     "product tail of 16 dropped", "drops the last K % 16 products"},
    {Swap::kProductTailDropped32, SwapStage::kTail, FindingKind::kTail,
     "product tail of 32 dropped", "drops the last K % 32 products"},
    {Swap::kLastTermDropped, SwapStage::kTail, FindingKind::kTail, "last term dropped",
     "drops the last term, in the zero-point sums too"},
    {Swap::kTailDropped, SwapStage::kTail, FindingKind::kTail, "term tail of 4 dropped",
     "drops the last K % 4 terms, in the zero-point sums too"},
    {Swap::kTailDropped8, SwapStage::kTail, FindingKind::kTail, "term tail of 8 dropped",
     "drops the last K % 8 terms, in the zero-point sums too"},
    {Swap::kTailDropped16, SwapStage::kTail, FindingKind::kTail, "term tail of 16 dropped",
     "drops the last K % 16 terms, in the zero-point sums too"},
    {Swap::kTailDropped32, SwapStage::kTail, FindingKind::kTail, "term tail of 32 dropped",
     "drops the last K % 32 terms, in the zero-point sums too"},
    {Swap::kScaleProductInFloat, SwapStage::kRound, FindingKind::kRounding, "float32 scale product",
     "rounds x_scale*w_scale to float32 first"},
    {Swap::kDenormalsAreZero, SwapStage::kOperands, FindingKind::kRounding, "denormals are zero",
     "takes denormals for 0"},
    {Swap::kFloat64, SwapStage::kRound, FindingKind::kRounding, "float64 multiplier",
     "computes in float64, whose ties are not the exact ones"},
    {Swap::kFloatReciprocalInput, SwapStage::kRound, FindingKind::kRounding, "x * fl(1/s)",
     "multiplies by the float32 reciprocal of the scale"},
    {Swap::kFloatDivision, SwapStage::kRound, FindingKind::kRounding, "fl(x / s)",
     "rounds the quotient to float32 before it rounds to a code"},
    {Swap::kFloatMultiplier, SwapStage::kRound, FindingKind::kRounding, "float32 multiplier",
     "rounds the sum and the multiplier fl(fl(sx*sw)/sy) to float32 before the result"},
    {Swap::kFloatReciprocal, SwapStage::kRound, FindingKind::kRounding, "float32 reciprocal",
     "multiplies by fl(fl(sx*sw) * fl(1/sy)) before rounding"},
    {Swap::kFloatZeroPointFirst, SwapStage::kRound, FindingKind::kTie,
     "zero point before rounding (float32)", "adds the zero point in float32 before it rounds"},
    {Swap::kZeroPointBeforeRounding, SwapStage::kRound, FindingKind::kTie,
     "zero point before rounding", "adds the zero point before it rounds half to even"},
    {Swap::kHalfAway, SwapStage::kRound, FindingKind::kTie, "half away from zero",
     "rounds ties away from zero"},
    {Swap::kHalfUp, SwapStage::kRound, FindingKind::kTie, "half up", "rounds ties up"},
    {Swap::kTruncate, SwapStage::kRound, FindingKind::kRounding, "truncation",
     "truncates towards zero"},
    {Swap::kLeftShiftDropped, SwapStage::kRound, FindingKind::kRounding, "left shift dropped",
     "drops the power of two of a multiplier of 1 or more"},
    {Swap::kBiasWraps, SwapStage::kBias, FindingKind::kInt32Overflow, "bias wraps",
     "lets a bias beyond int32 units of x_scale*w_scale wrap in int32"},
    {Swap::kBiasBecomesMinimum, SwapStage::kBias, FindingKind::kInt32Overflow,
     "bias conversion overflow",
     "turns a bias beyond int32 units of x_scale*w_scale into INT32_MIN"},
    {Swap::kBiasRoundedToInt32, SwapStage::kBias, FindingKind::kRounding, "int32 bias",
     "rounds the float bias to an int32 in units sx*sw first"},
    {Swap::kBiasIgnored, SwapStage::kBias, FindingKind::kIndex, "bias ignored", "ignores the bias"},
    {Swap::kChannelWithinGroup, SwapStage::kIndex, FindingKind::kIndex, "channel within group",
     "indexes channel parameters within the group"},
    {Swap::kFirstChannelForAll, SwapStage::kIndex, FindingKind::kIndex, "channel 0 for all",
     "uses the parameters of channel 0 for every channel"},
    {Swap::kChannelModulo8, SwapStage::kIndex, FindingKind::kIndex, "channel modulo 8",
     "indexes channel parameters modulo 8"},
    {Swap::kChannelModulo16, SwapStage::kIndex, FindingKind::kIndex, "channel modulo 16",
     "indexes channel parameters modulo 16"},
    {Swap::kTableIndexOffset, SwapStage::kIndex, FindingKind::kIndex, "table index offset",
     "indexes a table that begins at the lowest code with the byte of the code"},
    {Swap::kFirstOperandForAll, SwapStage::kOperands, FindingKind::kIndex, "first operand for all",
     "takes the scale and zero point of the first operand for all"},
    {Swap::kInputOtherSignInProducts, SwapStage::kOperands, FindingKind::kIndex,
     "input sign in the products",
     "reads the input codes with the other signedness in the products, but not in their sums"},
    {Swap::kOperandsSwapped, SwapStage::kOperands, FindingKind::kIndex, "operands swapped",
     "takes the scale and zero point of each operand for the other"},
    {Swap::kOperandsOtherSign, SwapStage::kOperands, FindingKind::kIndex, "sign of both operands",
     "reads the codes of both operands with the other signedness"},
    {Swap::kInputOtherSign, SwapStage::kOperands, FindingKind::kIndex, "input sign",
     "reads the input codes with the other signedness"},
    {Swap::kWeightOtherSign, SwapStage::kOperands, FindingKind::kIndex, "weight sign",
     "reads the weight codes with the other signedness"},
});

}  // namespace

std::span<const SwapInfo> AllSwaps() { return kSwaps; }

namespace {

using Term = std::pair<std::string_view, std::string_view>;

constexpr Term kOfOperands[] = {
    {"input zero point", "zero point of a"},
    {"weight zero point", "zero point of b"},
    {"input codes", "codes of a"},
    {"weight codes", "codes of b"},
    {"input sign", "sign of a"},
    {"weight sign", "sign of b"},
};
constexpr Term kOfProducts[] = {{"x_scale*w_scale", "a_scale*b_scale"}, {"sx*sw", "sa*sb"}};
constexpr Term kOfTwoScales[] = {
    {"the multiplier fl(fl(sx*sw)/sy)", "the multipliers fl(sa/sy) and fl(sb/sy)"},
    {"fl(fl(sx*sw) * fl(1/sy))", "fl(sa * fl(1/sy)) and fl(sb * fl(1/sy))"},
};
constexpr Term kOfOneScale[] = {
    {"fl(fl(sx*sw)/sy)", "fl(sx/sy)"},
    {"fl(fl(sx*sw) * fl(1/sy))", "fl(sx * fl(1/sy))"},
};

void Put(std::span<const Term> terms, std::string& text) {
  for (const auto& [from, to] : terms) {
    for (size_t at = text.find(from); at != std::string::npos;
         at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
  }
}

}  // namespace

std::string InTermsOf(Op op, std::string text) {
  if (HasTwoInputs(op)) {
    Put(kOfOperands, text);
    if (op == Op::kMul) {
      Put(kOfProducts, text);
    } else {
      Put(kOfTwoScales, text);
    }
  } else if (!HasSums(op) && op != Op::kRequantize) {
    Put(kOfOneScale, text);
  }
  return text;
}

}  // namespace qualm::triage
