// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <memory>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/faulty/kernel.h"
#include "adapters/host/in_process.h"
#include "adapters/host/threads.h"
#include "adapters/kinds.h"
#include "adapters/registry.h"
#include "core/scaled_cast.h"
#include "core/status.h"

namespace qualm {
namespace {

using faulty::Fault;
using faulty::Faults;

bool InputIsU8(const Case& c) { return c.x.dtype() == DType::kU8; }
bool InputIsS8(const Case& c) { return c.x.dtype() == DType::kS8; }
bool BothAreS8(const Case& c) { return InputIsS8(c) && c.w.dtype() == DType::kS8; }
bool WeightZeroPointsAreU8(const Case& c) {
  return c.w.dtype() == DType::kU8 && std::ranges::all_of(c.w_q.zero_point, [](int32_t z) {
           return RangeOf(DType::kU8).min <= z && z <= RangeOf(DType::kU8).max;
         });
}

bool IsInBlocks(const Case& c) { return c.w_block != 0; }
bool IsInBlocksOfCodes(const Case& c) { return IsInBlocks(c) && !HasFloatX(c); }
bool InputIsWide(const Case& c) { return IsWideCode(c.x.dtype()); }
bool HasNibbles(const Case& c) { return BitsOf(c.w.dtype()) == 4; }

using Cases = bool (*)(const Case& c);
bool All(const Case&) { return true; }

// A fault of the kernel's own, or the cause of its info in the cases of `where`.
struct Planted {
  Planted(FaultInfo fault, Fault of_kernel) : info(std::move(fault)), own(of_kernel) {}
  Planted(FaultInfo fault, Cases in = All)  // NOLINT(google-explicit-constructor)
      : info(std::move(fault)), where(in) {}
  FaultInfo info;
  Fault own = Fault::kNone;
  Cases where = All;
};

const std::vector<Planted>& Table() {
  using Kind = FindingKind;
  const std::vector<Op> codes{Op::kQuantize, Op::kRequantize, Op::kLinear};
  const std::vector<Op> elementwise{Op::kQuantize, Op::kDequantize, Op::kRequantize};
  const std::vector<Op> accumulators{Op::kRequantize, Op::kLinear};
  const std::vector<Op> quantize{Op::kQuantize};
  const std::vector<Op> dequantize{Op::kDequantize};
  const std::vector<Op> linear{Op::kLinear};
  const std::vector<Op> pairs{Op::kLinear, Op::kConv2d};
  const std::vector<Op> convolutions{Op::kConv2d, Op::kDepthwise};
  const std::vector<Op> conv2d{Op::kConv2d};
  const std::vector<Op> depthwise{Op::kDepthwise};
  const std::vector<Op> averages{Op::kAvgPool, Op::kGlobalAvgPool};
  const std::vector<Op> multipliers{Op::kLinear, Op::kRescale, Op::kMul, Op::kConcat};
  const std::vector<Op> two_operands = OpsWhere(HasTwoOperands);
  const std::vector<Op> observers{Op::kChooseQParams};
  const std::vector<Op> to_codes{Op::kQuantize, Op::kRequantize};
  const std::vector<Op> rescale{Op::kRescale};
  const std::vector<Op> max_pool{Op::kMaxPool};
  const std::vector<Op> avg_pool{Op::kAvgPool};
  const std::vector<Op> mul{Op::kMul};
  const std::vector<Op> concat{Op::kConcat};
  const std::vector<Op> tables{Op::kTable};
  const std::vector<Op> softmax{Op::kSoftmax};
  const std::vector<Op> chosen{Op::kChooseQParams, Op::kDynamicLinear};
  const std::vector<Op> dynamic{Op::kDynamicLinear};
  const std::vector<Op> casts{Op::kCast};
  const std::vector<Op> products{Op::kLinear, Op::kConv2d, Op::kDepthwise};
  const std::vector<Op> with_blocks = OpsWhere([](Op op) { return RowOf(op).blocks; });
  const std::vector<Op> pools{Op::kMaxPool, Op::kAvgPool};
  const std::vector<Op> images{Op::kConv2d, Op::kMaxPool, Op::kAvgPool};
  const std::vector<Op> requantize{Op::kRequantize};
  static const std::vector<Planted> table{
      {{"pair-saturation", "PyTorch issue 44939, FBGEMM issue 125, oneDNN issue 476",
        "u8*s8 products of neighbouring k are added in a saturating int16", pairs,
        Kind::kPairSaturation, "pair saturation"},
       InputIsU8},
      {{"s8-pair-wraps", "ONNX Runtime issue 31573, gemmlowp issue 174",
        "s8*s8 products of neighbouring k are added in an int16 that wraps: only four -128 do it",
        linear, Kind::kPairSaturation, "int16 pair wrap"},
       BothAreS8},
      {{"int32-wraps", "CMSIS-NN c8cfa298, KleidiAI 1cb4545",
        "the corrected sum is kept in an int32 that wraps", linear, Kind::kInt32Overflow,
        "int32 wrap"}},
      {{"u8-as-s8", "oneDNN 14b7d601e3, oneDNN issue 892",
        "activations are sign-extended: codes from 128 on lose 256", linear, Kind::kIndex,
        "input sign in the products"},
       InputIsU8},
      {{"k-tail", "gemmlowp dd4f60f", "a remainder of one k is dropped (K % 4 == 1)", linear,
        Kind::kTail, "last product dropped"},
       [](const Case& c) { return c.K % 4 == 1; }},
      {{"k-zero", "gemmlowp dd4f60f", "the loop over k runs at least once, also for K = 0", linear,
        Kind::kMemory},
       Fault::kKZero},
      {{"k-over-read", "ruy 388ffd2, QNNPACK e1b8000",
        "blocks of four k are loaded whole; what lies past the row does not change the result",
        linear, Kind::kMemory},
       Fault::kKOverRead},
      {{"zp-term-float", "oneDNN ab09db98e9", "x_zp times the column sum is computed in float32",
        linear, Kind::kRounding, "float32 zero-point term"}},
      {{"padded-k-zero-points", "XNNPACK be5a1fe612, oneDNN f8bfa17025",
        "K*x_zp*w_zp uses K rounded up to the block of four", linear, Kind::kZeroPoint,
        "padded K in K*zx*zw"}},
      {{"negated-zp-int8", "CMSIS-NN ca55ad23, oneDNN 96da53e79a",
        "-x_zp is kept in an int8: -128 becomes its own negative", linear, Kind::kZeroPoint,
        "negated zero point as int8"},
       [](const Case& c) { return InputIsS8(c) && c.x_q.zero_point[0] == -128; }},
      {{"weight-zp-int8", "oneDNN 96da53e79a", "the zero point of u8 weights is kept in an int8",
        linear, Kind::kZeroPoint, "weight zero point as int8"},
       WeightZeroPointsAreU8},
      {{"row-sum-of-row-0", "ONNX Runtime issue 29853, XNNPACK e7e001f2a8",
        "every row is corrected with the sum of the first row", linear, Kind::kIndex,
        "row sum of row 0"}},
      {{"stale-column-sums", "XNNPACK 866f7b3916: set-up not refreshed for a known shape",
        "the weights' sums are kept from the call before where the shape is the same", linear,
        Kind::kNondeterminism},
       Fault::kStaleColumnSums},
      {{"bias-wraps", "ONNX Runtime issue 21000",
        "a float bias of 2^31 units of x_scale*w_scale or more is converted to int32 unclamped",
        linear, Kind::kInt32Overflow, "bias wraps"}},
      {{"scale-in-float", "TVM d7d8fdbc9c, TensorFlow issue 23800",
        "x_scale*w_scale is rounded to float32 first", linear, Kind::kRounding,
        "float32 scale product"}},
      {{"multiplier-in-double", "what passes for exact: 147 * (1.0 / 98) < 1.5",
        "the multiplier and its product with the sum are float64: some exact ties are missed",
        multipliers, Kind::kRounding, "float64 multiplier"},
       [](const Case& c) { return !c.bias; }},
      {{"one-tie", "Intel's division table of 1994: right on nearly every input",
        "0.5 is rounded to 1, every other tie to even: one input of 2^32", to_codes, Kind::kTie},
       Fault::kOneTie},
      {{"zp-before-rounding", "PyTorch pull request 37188, FBGEMM 473ab92ae",
        "the zero point is added before rounding: an odd one turns ties the other way",
        accumulators, Kind::kTie, "zero point before rounding"}},
      {{"ties-away", "ONNX Runtime issue 18576, ruy 8525a43", "ties are rounded away from zero",
        accumulators, Kind::kTie, "half away from zero"}},
      {{"reciprocal", "QNNPACK's and ATen's x * (1/s)", "x/s is computed as x * (1/s) in float32",
        quantize, Kind::kRounding, "x * fl(1/s)"}},
      {{"tail-rounds-away", "FBGEMM 473ab92ae, PyTorch issue 13960",
        "the last N % 8 columns round ties away from zero, the others to even", quantize,
        Kind::kTail},
       Fault::kTailRoundsAway},
      {{"alignment-head", "PyTorch issue 107030",
        "columns before the first 32-byte boundary round ties away from zero", quantize,
        Kind::kMemory},
       Fault::kAlignmentHead},
      {{"caller-rounding", "code that calls nearbyint and sets no rounding mode",
        "rounds in whatever mode the caller has set", quantize, Kind::kRounding},
       Fault::kCallerRounding},
      {{"clamp-after-conversion", "PyTorch issue 133557, oneDNN b3c91034c9",
        "x/s of 2^31 and more, +inf too, becomes INT32_MIN before the clamp", quantize,
        Kind::kClamp, "conversion overflow"}},
      {{"nan-order", "oneDNN 105ecd983f",
        "min and max have their operands swapped: NaN becomes the lower bound", quantize,
        Kind::kClamp, "NaN as lower bound"}},
      {{"difference-int8", "CMSIS-NN ca55ad23", "q - zp of s8 codes saturates at int8", dequantize,
        Kind::kZeroPoint, "int8 difference"},
       InputIsS8},
      {{"truncating-narrow", "RISC-V DemoteTo under GCC 15: Highway 3b9166ff",
        "the result is cut to 8 bits instead of saturated", accumulators, Kind::kClamp,
        "truncating narrow"}},
      {{"relu-clamp-zero", "ncnn b760e22da, ExecuTorch pull request 18462",
        "the fused relu clamps at code 0 instead of the output zero point", codes, Kind::kClamp,
        "relu at code 0"}},
      {{"scale-index", "ncnn e7602a206, oneDNN d4e2b6ec75",
        "the weight scale of channel n is taken from n % 8", linear, Kind::kIndex,
        "channel modulo 8"}},
      {{"group-scale-index", "ncnn e050d596b, ncnn 31cf7f3c5",
        "the weight scale of a grouped convolution is indexed within the group", convolutions,
        Kind::kIndex, "channel within group"}},
      {{"overlapped-tail", "FBGEMM 21ea7ed47",
        "the tail is a vector that ends at the last column, also in rows shorter than it",
        elementwise, Kind::kMemory},
       Fault::kOverlappedTail},
      {{"half-tail", "CMSIS-NN 46e2b43b",
        "of a tail of more than four columns only four are stored", accumulators, Kind::kTail},
       Fault::kHalfTail},
      {{"store-order", "XNNPACK 5673c10203",
        "N % 4 == 3: the vector is shifted before the last row is stored", linear, Kind::kIndex},
       Fault::kStoreOrder},
      {{"stride-ignored", "PyTorch issue 75009, QNNPACK 8a3311b", "rows of x are taken to be dense",
        linear, Kind::kMemory},
       Fault::kStrideIgnored},
      {{"output-not-cleared", "ruy 51b518e: accumulator not cleared",
        "an s32 output is added to what lay in the buffer", linear, Kind::kMemory},
       Fault::kOutputNotCleared},
      {{"input-shifted-in-place", "XNNPACK f45b3ea023, oneDNN ad31a370c4: s8 turned into u8",
        "s8 activations are turned into u8 where they lie, and left so", linear, Kind::kMemory},
       Fault::kInputShiftedInPlace},
      {{"overlapped-tail-in-place", "FBGEMM 21ea7ed47",
        "the tail is a vector that ends at the last column: in place it reads outputs as inputs",
        rescale, Kind::kMemory},
       Fault::kOverlappedTailInPlace},
      {{"taps-int16", "ncnn d7bd41583",
        "s8*s8 products of three taps are added in an int16 that wraps", depthwise,
        Kind::kPairSaturation, "int16 wrap of taps"},
       BothAreS8},
      {{"padding-is-code-zero", "XNNPACK 8c96521d55, TVM pull request 4807",
        "padding is filled with code 0 instead of the zero point", convolutions, Kind::kPadding,
        "padding of code 0"}},
      {{"row-bound", "CMSIS-NN 804ae776",
        "the last row of the window is bounded as if it began at row 0: rows below the image are "
        "read",
        depthwise, Kind::kMemory},
       Fault::kRowBound},
      {{"kernel-width-bound", "oneDNN 06e305eb5d",
        "columns of the kernel are bounded by its height", conv2d, Kind::kIndex,
        "kernel width bounded by height"}},
      {{"max-pool-start", "ONNX Runtime issue 3442: s8 clipped to [-127, 127]",
        "the maximum of s8 codes starts at -127", max_pool, Kind::kClamp, "maximum from -127"}},
      {{"average-sums-u16", "TensorFlow issue 23598", "u8 codes are summed in a uint16 that wraps",
        averages, Kind::kInt32Overflow, "16-bit sum"},
       InputIsU8},
      {{"divisor-unclipped", "PyTorch pull request 28260",
        "the divisor counts positions past the bottom and the right edge", avg_pool, Kind::kPadding,
        "unclipped divisor"},
       [](const Case& c) { return !c.window.count_include_pad; }},
      {{"product-int16", "CMSIS-NN c8cfa298: narrow products",
        "the product of the two differences is kept in an int16 that wraps", mul,
        Kind::kInt32Overflow, "int16 product"}},
      {{"left-shift-dropped", "CMSIS-NN 083c8177, PyTorch issue 33466",
        "a multiplier of 1 or more loses the power of two that made it so", two_operands,
        Kind::kRounding, "left shift dropped"}},
      {{"concat-first-params", "XNNPACK 801d2c2d7e: parameters of another operation",
        "every input of a concat is rescaled with the parameters of the first", concat,
        Kind::kIndex, "first operand for all"}},
      {{"table-ties-away", "TFLite lookup tables: TfLiteRound",
        "entries of a table are rounded half away from zero", tables, Kind::kTie,
        "half away from zero"}},
      {{"table-index-offset", "CMSIS-NN de79398a: signed table index",
        "a table made from the lowest code up is indexed with the byte of an s8 code", tables,
        Kind::kIndex, "table index offset"}},
      {{"softmax-no-half", "QNNPACK u8lut32norm without its rounding term",
        "the quotient of a softmax is truncated instead of rounded", softmax, Kind::kRounding,
        "truncation"}},
      {{"softmax-max-not-subtracted",
        "QNNPACK softargmax: table taken at 255 instead of the row's largest code",
        "distances of a softmax are taken from the largest code of the type", softmax,
        Kind::kZeroPoint, "maximum not subtracted"}},
      {{"softmax-distance-int8", "CMSIS-NN de79398a, TensorFlow issue 48521",
        "the distance from the largest code saturates at int8", softmax, Kind::kClamp,
        "int8 distance"}},
      {{"reduce-range-ignored", "PyTorch issue 44939: codes past 127 in an 8-bit layer",
        "the range is spread over all codes although half of them were asked for", chosen,
        Kind::kClamp, "reduce_range ignored"}},
      {{"cast-saturates", "PTX ISA, cvt: conversions to float8 need .satfinite",
        "a number beyond the largest value becomes it, although infinity or NaN was asked for",
        casts, Kind::kClamp, "cast saturates"}},
      {{"no-scale-floor", "PyTorch observers' eps, 2^-23",
        "a constant or tiny tensor gets a scale of 0 or nearly so", observers, Kind::kClamp,
        "no scale floor"}},
      {{"range-without-zero", "FBGEMM ChooseQuantizationParams: 0 must be a code",
        "min and max are not widened to hold 0 between them", chosen, Kind::kZeroPoint,
        "range without zero"}},
      {{"averaging-in-double", "an observer rewritten with doubles inside",
        "the moving average is kept in double and rounded at the end", observers, Kind::kRounding,
        "double average"}},
      {{"scale-of-row-0", "XNNPACK cceb0e4152: one choice taken for all batches",
        "the sums of every row are multiplied by the scale that row 0 has chosen", dynamic,
        Kind::kIndex, "scale of row 0"}},
      {{"zero-point-of-row-0", "XNNPACK cceb0e4152: one choice taken for all batches",
        "the zero point that row 0 has chosen is taken out of every row", dynamic, Kind::kIndex,
        "zero point of row 0"}},
      {{"bias-per-k-block", "XNNPACK's loops over k and n with a bias that is read again",
        "channels from 4 on add an int32 bias once for each block of 256 k", linear, Kind::kIndex},
       Fault::kBiasPerBlockOfK},
      {{"channel-index-u8", "ncnn e7602a206: scales of a block",
        "the weight scale of channel n is taken from n % 256", products, Kind::kIndex,
        "scale of channel n % 256"}},
      {{"row-index-u8", "ONNX Runtime issue 29853",
        "row m is corrected with the sum of row m % 256", linear, Kind::kIndex,
        "row sum modulo 256"}},
      {{"deep-channel-tap", "oneDNN's loops over blocks of 64 input channels",
        "from the ninth pixel on, input channels from 192 on are read from the first tap", conv2d,
        Kind::kIndex},
       Fault::kDeepChannelTap},
      {{"group-block-scale", "ncnn e050d596b: scales of eight groups at a time",
        "the weight scale of group g is that of group g % 8", conv2d, Kind::kIndex},
       Fault::kGroupBlockScale},
      {{"element-index-u16", "an index of 16 bits, as in CMSIS-NN's block sizes",
        "element n of the second operand is taken from n % 65536", two_operands, Kind::kIndex,
        "second operand of element n % 65536"}},
      {{"chunk-edge", "PyTorch's at::parallel_for with an end that is left out",
        "the last of each 16,384 elements of a row is not written", elementwise, Kind::kMemory},
       Fault::kChunkEdge},
      {{"softmax-row-block", "a sum per block of a row that is not carried on",
        "the sum of a softmax is that of the last block of 2,048", softmax, Kind::kIndex,
        "softmax of the last block of 2048"}},
      {{"image-row-buffer", "CMSIS-NN's buffers of a line",
        "columns from 64 on are those 64 to the left", pools, Kind::kIndex,
        "pixels of a buffer of 64 columns"}},
      {{"observer-first-block", "an observer that samples",
        "values behind the first 4,096 of a row do not count", observers, Kind::kTail,
        "range of the first block of 4096"}},
      {{"stale-scales", "XNNPACK 866f7b3916: set-up not refreshed for known weights",
        "while the weights are the same the scales of the call before are kept", linear,
        Kind::kNondeterminism},
       Fault::kStaleScales},
      {{"stale-bias", "PyTorch's packed parameters: a bias that was packed with the weights",
        "while the weights are the same the bias of the call before is kept", linear,
        Kind::kNondeterminism},
       Fault::kStaleBias},
      {{"stale-clamp", "XNNPACK 866f7b3916, oneDNN's primitive cache",
        "while the weights are the same the clamp and relu of the call before are kept", linear,
        Kind::kNondeterminism},
       Fault::kStaleClamp},
      {{"stale-scratch", "ruy 51b518e: accumulator not cleared",
        "the first output is added to that of the run before of the same packed layer", linear,
        Kind::kNondeterminism},
       Fault::kStaleScratch},
      {{"shared-scratch", "a static buffer in a kernel that threads share",
        "sums go through memory that all callers share", linear, Kind::kNondeterminism},
       Fault::kSharedScratch},
      {{"leaves-rounding", "a kernel that sets the rounding mode and returns early",
        "leaves the rounding mode at toward zero", quantize, Kind::kMemory},
       Fault::kLeavesRounding},
      {{"blocks-signals", "a library that starts its threads in the first call",
        "leaves a signal blocked", rescale, Kind::kMemory},
       Fault::kBlocksSignals},
      {{"leaks-per-call", "oneDNN's scratchpads, PyTorch's packed weights",
        "keeps 108 bytes of memory for each call", dequantize, Kind::kMemory},
       Fault::kLeaksPerCall},
      {{"shared-first-params", "a + a taken for 2 * a",
        "operands that are one buffer both have the parameters of the first", two_operands,
        Kind::kMemory},
       Fault::kSharedFirstParameters},
      {{"second-read-again", "FBGEMM 21ea7ed47",
        "the tail is a vector that overlaps the one before, whose second operand is read again",
        two_operands, Kind::kMemory},
       Fault::kSecondReadAgain},
      {{"weight-stride-ignored", "PyTorch issue 75009", "rows of weights are taken to be dense",
        linear, Kind::kMemory},
       Fault::kWeightStrideIgnored},
      {{"line-stride-ignored", "QNNPACK 8a3311b", "lines of images are taken to be dense", images,
        Kind::kMemory},
       Fault::kLineStrideIgnored},
      {{"row-offset-u32", "FBGEMM f97fe45d3",
        "the distance of a row from the first one is an unsigned 32-bit number", linear,
        Kind::kMemory},
       Fault::kRowOffsetU32},
      {{"power-shift-wraps", "gemmlowp ea3a4bf, CMSIS-NN 413d9a9f: shifts of 31 and more",
        "a multiplier of 2^-32 to 2^-39, a shift alone, is shifted modulo 32", requantize,
        Kind::kRounding},
       Fault::kPowerShiftWraps},
      {{"negated-term-int32", "KleidiAI 1cb4545, XNNPACK 3ec5444eb7",
        "a zero point times a sum of codes is negated in int32: -2^31 is its own negative", linear,
        Kind::kInt32Overflow, "zero-point term negated in int32"},
       [](const Case& c) { return c.x_q.zero_point[0] != INT32_MIN; }},
      {{"code-sum-lanes", "XNNPACK 06e8397fe1, Highway c5ef9339",
        "sums of s8 weights are kept in int16 lanes that are emptied after 257 vectors of 8: 256 "
        "hold",
        linear, Kind::kInt32Overflow,
        "column sum in 8 int16 lanes that wrap, emptied every 257 additions"},
       [](const Case& c) { return c.w.dtype() == DType::kS8; }},
      {{"nibbles-swapped", "the two orders of packed int4: ONNX low first, AWQ interleaved",
        "the high bits of a byte are taken for the first of its weights", products, Kind::kIndex,
        "weights of a byte reversed"}},
      {{"nibble-sign", "a mask with 15 where a shift up and an arithmetic shift down was meant",
        "s4 weights are read as 0 to 15", products, Kind::kIndex, "weight sign"},
       [](const Case& c) { return c.w.dtype() == DType::kS4; }},
      {{"odd-nibble", "a loop over bytes of weights, K / 2 of each row",
        "the last weight of a row of odd length is left out", products, Kind::kTail,
        "last weight of an odd row dropped"},
       HasNibbles},
      {{"block-neighbour", "an index of blocks that begins at 1, or is moved on too early",
        "the scale of each block of weights is that of the block behind it", with_blocks,
        Kind::kIndex, "scale of the block behind"},
       IsInBlocks},
      {{"block-last", "a number of blocks that is K / block, not its ceiling",
        "the last block of weights is left out where it is shorter than the others", with_blocks,
        Kind::kTail, "short block dropped"},
       IsInBlocks},
      {{"block-zero-point", "zero points packed for a channel, read without the block's index",
        "the zero point of a channel's first block of weights is that of all its blocks",
        with_blocks, Kind::kZeroPoint, "zero point of the first block"},
       IsInBlocks},
      {{"block-lowest-code", "ggml issue 1393: _mm256_sign_epi8 leaves -128 as it is",
        "in blocks, -128 times a negative weight has the wrong sign", linear, Kind::kIndex,
        "sign of -128 lost"},
       IsInBlocksOfCodes},
      {{"operand-zero-point", "a sum of two tensors that reads one zero point",
        "the zero point of the first operand is taken out of both", two_operands, Kind::kZeroPoint,
        "zero point of the first operand for both"}},
      {{"half-added-and-cut", "(int)(x / s + 0.5)",
        "a half is added and the fraction cut, also below zero", quantize, Kind::kRounding,
        "half added and cut"}},
      {{"one-column-zero-point", "a path for products of a matrix and a vector",
        "with one output channel the weight zero point is not taken out", linear, Kind::kZeroPoint,
        "weight zero point ignored"},
       [](const Case& c) { return c.N == 1; }},
      {{"hardswish-limit", "x * relu(x + 3) / 6 with a relu in the place of relu6",
        "hardswish grows with the square of x", tables, Kind::kClamp,
        "hardswish without its limit"}},
      {{"average-truncated", "sum / count in integers",
        "an average is cut to a whole number of input steps before it is rescaled", avg_pool,
        Kind::kRounding, "average truncated first"}},
      {{"int16-differences", "saturating multiply-accumulate instructions of 16 bits",
        "products of codes less their zero points are added in an int16 that saturates", products,
        Kind::kPairSaturation, "products of differences in an int16 that saturates"}},
      {{"softmax-largest-tail", "a loop for the maximum that leaves out what fills no vector",
        "the largest code of a row is looked for without the last N % 16", softmax, Kind::kTail,
        "largest code without the last N % 16"}},
      {{"image-bias-twice", "a bias that stays in the accumulators from image to image",
        "images behind the first add the bias twice", conv2d, Kind::kIndex,
        "bias twice + only in images behind the first"}},
      {{"wide-sum-int32", "CMSIS-NN and ruy beside 16-bit activations: K * 2^15 * 2^7 leaves int32",
        "sums of 16-bit activations are kept in an int32 that wraps", products,
        Kind::kInt32Overflow, "int32 wrap"},
       InputIsWide},
      {{"wide-sum-saturates", "an int64 sum that is cut to the int32 of a multiplier too early",
        "sums of 16-bit activations saturate in int32", convolutions, Kind::kInt32Overflow,
        "sum in an int32 that saturates"},
       InputIsWide},
      {{"wide-input-int8", "an 8-bit path that is taken for 16-bit activations",
        "16-bit activations are read as int8", products, Kind::kIndex,
        "input codes in an int8 that wraps"},
       InputIsWide},
      {{"wide-product-int16", "16-bit lanes of an 8-bit kernel",
        "each product of 16-bit activations is kept in an int16 that wraps", products,
        Kind::kInt32Overflow, "products in an int16 that wraps"},
       InputIsWide},
      {{"bias-int16", "a bias with the type of 16-bit activations",
        "the int32 bias is kept in an int16 that wraps", linear, Kind::kInt32Overflow,
        "int32 bias in an int16 that wraps"}},
      {{"wide-lowest-code", "the symmetric range of 16x8 quantization taken for that of int16",
        "code -32768 is never given", products, Kind::kClamp, "lower bound -32767"},
       InputIsWide},
  };
  return table;
}

const Planted* Find(std::string_view id) {
  const auto& table = Table();
  const auto at = std::find_if(table.begin(), table.end(),
                               [id](const Planted& planted) { return planted.info.id == id; });
  return at == table.end() ? nullptr : &*at;
}

Faults FaultsOf(const std::vector<const Planted*>& planted) {
  Faults faults;
  for (const Planted* one : planted) {
    if (one->own != Fault::kNone) {
      faults.own.set(static_cast<size_t>(one->own));
      continue;
    }
    const auto causes = triage::CausesNamed(one->info.cause, one->info.ops.front());
    QUALM_CHECK(!causes.empty());
    for (const triage::Cause* named : causes) {
      triage::Cause cause = *named;
      cause.applies = [where = one->where, applies = cause.applies](const Case& c) {
        return where(c) && applies(c);
      };
      faults.causes.push_back(std::move(cause));
    }
  }
  return faults;
}

// Changes thread or process after a call as the faults do, and leaves it so.
void LeaveBehind(const Faults& faults) {
  if (faults.Has(Fault::kLeavesRounding)) std::fesetround(FE_TOWARDZERO);
  if (faults.Has(Fault::kBlocksSignals)) {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  }
  if (faults.Has(Fault::kLeaksPerCall)) {
    struct Leaked {
      Leaked* before;
      char bytes[100];
    };
    static std::atomic<Leaked*> last;  // so that leak checkers of the harness itself see no leak
    auto* const leaked = new Leaked{last.load(), {}};
    while (!last.compare_exchange_weak(leaked->before, leaked)) continue;
  }
}

class FaultySubject final : public InProcessSubject {
 public:
  FaultySubject(std::string name, std::vector<const Planted*> planted)
      : name_(std::move(name)),
        planted_(std::move(planted)),
        faults_(FaultsOf(planted_)),
        kernel_(faults_) {}

  std::string_view name() const override { return name_; }

  std::string CannotRun(const Case& c) const override {
    if (!Offers(c.op)) return "the fault is not in " + std::string(Name(c.op));
    if (c.requant != Requant::kExact) {
      return "planted faults have no requantization " + std::string(Name(c.requant));
    }
    if ((BitsOf(c.x.dtype()) < 8 || BitsOf(c.out_dtype) < 8) && faults_.own.any())
      return "this planted fault has elements of whole bytes";
    if (IsScaledCast(c) && faults_.own.any())
      return "this planted fault is not in " + std::string(kOfScaledCasts);
    if (HasElementBlocks(c) && faults_.own.any())
      return "this planted fault is not in " + std::string(kElementsInBlocks);
    if (HasFloatX(c) && !KnowsFloatX())
      return "this planted fault is not in " + std::string(kOfFloatX);
    if (IsInBlocks(c) && !HasFloatX(c) && !KnowsBlocks())
      return "this planted fault is not in " + std::string(kInBlocks);
    if (BitsOf(c.w.dtype()) < 8 && faults_.own.any())
      return "this planted fault has weights of whole bytes";
    return "";
  }
  bool Offers(Op op) const override {
    return planted_.empty() || std::ranges::any_of(planted_, [&](const Planted* planted) {
             return std::ranges::count(planted->info.ops, op) != 0;
           });
  }

  std::string InstructionSet() const override { return "scalar"; }

 protected:
  std::string Execute(const Placed& placed, const RunContext& context) override {
    RunContext environment = context;
    environment.flush_denormals = false;
    if (!faults_.Has(Fault::kCallerRounding)) {
      environment.rounding = Rounding::kNearest;
    }
    {
      const ScopedEnvironment normal(environment);
      for (int i = 0; i < context.calls; ++i) kernel_.Run(placed, i > 0);
      if (context.callers > 1) CallTogether(placed, context);
    }
    LeaveBehind(faults_);
    return "";
  }

  std::string CannotRunAs(const Case& /*c*/, const RunContext& /*context*/) const override {
    return "";
  }

 private:
  bool KnowsBlocks() const {
    return std::ranges::any_of(planted_, [](const Planted* planted) {
      return planted->where == IsInBlocks || planted->where == IsInBlocksOfCodes;
    });
  }

  // Faults of what is done with weights alone, whatever x is.
  bool KnowsFloatX() const {
    constexpr std::array<std::string_view, 3> kOfWeights{"nibbles-swapped", "nibble-sign",
                                                         "weight-zp-int8"};
    return std::ranges::any_of(planted_, [&](const Planted* planted) {
      return planted->where == IsInBlocks || std::ranges::count(kOfWeights, planted->info.id) != 0;
    });
  }

  // Callers that share only what a fault shares. A wrong output takes the place of y.
  void CallTogether(const Placed& placed, const RunContext& context) {
    const Case& c = *placed.problem;
    const Rows rows = RowsOf(c.output_shape());
    struct Callers {
      const Placed& placed;
      const Faults& faults;
      std::vector<std::vector<uint8_t>> outputs;
    } callers{placed, faults_, {}};
    callers.outputs.assign(
        static_cast<size_t>(context.callers),
        std::vector<uint8_t>(
            ScatteredBytes(c.out_dtype, rows.count, rows.columns, placed.y_stride - rows.columns),
            context.poison));
    RunOnThreads(
        context.callers, context.callers,
        [](void* argument, int64_t caller) {
          auto& it = *static_cast<Callers*>(argument);
          Placed own = it.placed;
          own.y = it.outputs[static_cast<size_t>(caller)].data();
          faulty::Kernel(it.faults).Run(own);
        },
        &callers);
    for (const std::vector<uint8_t>& output : callers.outputs) {
      if (TakeIfDifferent(output.data(), c.out_dtype, rows, placed.y_stride,
                          static_cast<uint8_t*>(placed.y)))
        return;
    }
  }

  std::string name_;
  std::vector<const Planted*> planted_;  // none: the implementation without a fault
  Faults faults_;
  faulty::Kernel kernel_;
};

constexpr std::string_view kPrefix = "faulty:";
constexpr std::string_view kNoFault = "faulty:none";

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const FaultInfo& info : ListFaults()) names.push_back(std::string(kPrefix) += info.id);
  return names;
}

std::unique_ptr<Subject> Make(const std::string& name) {
  if (!name.starts_with(kPrefix)) return nullptr;
  std::vector<const Planted*> planted;
  if (name != kNoFault) {
    for (const auto& id : std::views::split(std::string_view(name).substr(kPrefix.size()), '+')) {
      planted.push_back(Find(std::string_view(id.begin(), id.end())));
      if (planted.back() == nullptr) return nullptr;
    }
    if (planted.empty()) return nullptr;
  }
  return std::make_unique<FaultySubject>(name, std::move(planted));
}

std::vector<std::string> Expand(const std::string& pattern) {
  return pattern == "faulty:*" || pattern == "faulty@all" ? Names() : std::vector<std::string>{};
}

}  // namespace

std::span<const FaultInfo> ListFaults() {
  static const std::vector<FaultInfo> list = [] {
    std::vector<FaultInfo> infos;
    for (const Planted& planted : Table()) infos.push_back(planted.info);
    return infos;
  }();
  return list;
}

SubjectKind FaultySubjects() {
  return {"faulty",
          "planted faults, one per name; faulty:A+B has both, faulty:none is the same code without "
          "one, faulty:* all",
          "",
          Names,
          Make,
          Expand};
}

}  // namespace qualm
