// SPDX-License-Identifier: Apache-2.0
// One row per operation: what it is called, which operands, types, shapes and parameters it has.
// Code that reads, writes, sends, checks or shrinks cases walks these rows. The meaning of an
// operation is in its own code (oracles/exact/meanings.cc, adapters/native.cc). Generators,
// properties and causes that are about one operation name it.
//
// To add an operation: its enumerator, its row below, and the files that docs/hacking.md names.
#ifndef QUALM_CORE_OP_H_
#define QUALM_CORE_OP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"

namespace qualm {

// The operations. docs/quantization.md says what each of them computes. The values are part of
// every drawn case's seed, and adapters/qualm_plugin.h has the same numbers: a new operation goes
// to the end.
enum class Op : uint8_t {
  kQuantize,
  kDequantize,
  kRequantize,
  kLinear,
  kConv2d,
  kDepthwise,
  kAdd,
  kMul,
  kMaxPool,
  kAvgPool,
  kGlobalAvgPool,
  kRescale,
  kConcat,
  kTable,
  kSoftmax,
  kChooseQParams,
  kSub,
  kDynamicLinear,
  kCast,
};

// How the shapes of x, w and the output y follow from the sizes M, N, K of a case, or from its
// window. The channel is the last axis of y.
enum class Layout : uint8_t {
  kElements,  // x [M,N], w [M,N] if there is one -> y [M,N]
  kProducts,  // x [M,K], w [N,K] -> y [M,N]
  kConv,      // x [batch,H,W,C], w [N,R,S,C/groups] -> y [batch,OH,OW,N]; M and K are derived
  kPool,      // x [batch,H,W,C] -> y [batch,OH,OW,C]; M and K are derived, N = C
  kColumns,   // x [M,A], w [M,N-A] -> y [M,N]
  // x [batches,M,N] -> y [2, M or 1]: scales, then zero points. With Case::codes y is one row:
  // scales, zero points, and the code of each element of x.
  kBatches,
};

// The role of the tensor w of a case.
enum class Second : uint8_t {
  kNone,
  kWeights,  // of its own type, with scale and zero point, for sums of products
  kInput,    // a second input of the type of x; case files call x and w `a` and `b`
};

// How two operands that meet element by element are combined.
enum class Combine : uint8_t { kNone, kSum, kDifference, kProduct };

// How the output changes when x changes. The properties is_monotone and negation hold for the
// operations that say so here.
enum class Response : uint8_t {
  kUnsaid,           // refused below: a new operation has to say
  kNone,             // neither of the two
  kRises,            // a larger element of x makes no output smaller
  kMirrors,          // -x gives the negated real value; of a sum of operands, -a and -b
  kRisesAndMirrors,  // both
};

// Which scale and zero point the output has.
enum class OutQParams : uint8_t {
  kNone,
  kOwn,
  kOfInput,  // those of x, and the type of x
  kFixed,    // scale 2^-8 and the lowest code, and the type of x
};

// The list of parameters that per_channel makes one per channel.
enum class PerChannel : uint8_t {
  kNone,
  kX,
  kW,  // of requantize: Case::multiplier, where that is not empty
  kOut,
  kXAndOut,  // scales of a cast
  kRows,     // no list; per_channel here: one scale and zero point of the output for each row m
};

// The element types of an operand. The first one is the default of case files.
struct DTypeList {
  std::array<DType, 15> list{};
  size_t count = 0;
  constexpr const DType* begin() const { return list.data(); }
  constexpr const DType* end() const { return list.data() + count; }
  constexpr DType front() const { return list[0]; }
  constexpr bool contains(DType dtype) const {
    for (DType each : *this) {
      if (each == dtype) return true;
    }
    return false;
  }
};
std::string Join(const DTypeList& types, std::string_view word = " or ");  // "u8 or s8"

inline constexpr DTypeList kCodes{{DType::kU8, DType::kS8}, 2};
// The codes of operations that have some of 16 bits too.
inline constexpr DTypeList kWideCodes{{DType::kU8, DType::kS8, DType::kS16, DType::kU16}, 4};
// The codes of quantize and dequantize.
inline constexpr DTypeList kEveryCode{{DType::kU8, DType::kS8, DType::kS16, DType::kU16, DType::kU4,
                                       DType::kS4, DType::kU2, DType::kS2},
                                      8};
inline constexpr DTypeList kWeightCodes{
    {DType::kS8, DType::kU8, DType::kS4, DType::kU4, DType::kS2, DType::kU2}, 6};
inline constexpr DTypeList kCodesOrFloat{
    {DType::kU8, DType::kS8, DType::kF32, DType::kS16, DType::kU16}, 5};
// The elements that share a scale of microscaling (MX).
inline constexpr DTypeList kMxElements{
    {DType::kF8E4M3FN, DType::kF8E5M2, DType::kF6E2M3FN, DType::kF6E3M2FN, DType::kF4E2M1FN}, 5};
inline constexpr DTypeList kCodesOrMxElements{
    {DType::kU8, DType::kS8, DType::kF8E4M3FN, DType::kF8E5M2, DType::kF6E2M3FN, DType::kF6E3M2FN,
     DType::kF4E2M1FN},
    7};
inline constexpr DTypeList kReals{{DType::kF32}, 1};
inline constexpr DTypeList kSums{{DType::kS32}, 1};
inline constexpr DTypeList kFloats{
    {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3FN, DType::kF8E5M2, DType::kF8E4M3FNUZ,
     DType::kF8E5M2FNUZ, DType::kF8E4M3, DType::kF8E3M4, DType::kF8E4M3B11FNUZ, DType::kF6E2M3FN,
     DType::kF6E3M2FN, DType::kF4E2M1FN, DType::kF8E8M0FNU, DType::kUE4M3},
    15};
inline constexpr DTypeList kAnyOutput{
    {DType::kU8, DType::kS8, DType::kS32, DType::kF32, DType::kS16, DType::kU16}, 6};

struct OpRow {
  Op op;
  std::string_view name;
  Layout layout = Layout::kElements;
  DTypeList x_types = kCodes;
  bool x_qparams = true;  // x has a scale and a zero point
  Second second = Second::kNone;
  Combine combine = Combine::kNone;
  Response response = Response::kUnsaid;
  DTypeList out_types = kCodes;  // ignored for kOfInput and kFixed
  OutQParams out_q = OutQParams::kOwn;
  PerChannel per_channel = PerChannel::kNone;
  bool relu = true;
  bool clamp = true;               // [out_min, out_max] of integer outputs
  bool bias = false;               // float32, one per output channel
  bool bias_i32 = false;           // or int32
  bool requant = false;            // Case::requant other than exact
  bool multiplier = false;         // Case::multiplier, or a quotient of scales in its place
  bool in_place = false;           // y may be x: elements of one size
  bool depthwise = false;          // kConv: one group per input channel
  bool whole_image = false;        // kPool: the window is the image
  bool dilation = false;           // kConv, kPool
  bool ceil_mode = false;          // kPool
  bool count_include_pad = false;  // kPool: averages
  bool function = false;           // Case::function, negative_slope
  bool observer = false;           // Observer::kind, averaging_constant; Case::codes
  bool qparams = false;            // the other members of Observer: inputs of the choice
  bool cast = false;               // Case::rounding, overflow; scales, no zero points
  bool blocks = false;             // Case::w_block
  bool x_blocks = false;           // Case::x_block
  bool float_x = false;            // x may be f32 too, without scale and zero point: HasFloatX
  bool rule = false;               // Case::rule
  bool dynamic = false;            // chooses scale and zero point of x itself: Case::x_gran
};

namespace internal {
// Adds to a row what linear and the convolutions have in common.
constexpr OpRow SumOfProducts(OpRow row) {
  row.second = Second::kWeights;
  row.response = Response::kNone;
  row.x_types = kWideCodes;
  row.out_types = kAnyOutput;
  row.per_channel = PerChannel::kW;
  row.bias = row.bias_i32 = row.requant = true;
  return row;
}
}  // namespace internal

// In the order in which `qualm list ops` prints them.
inline constexpr std::array kOpRows{
    OpRow{.op = Op::kQuantize,
          .name = "quantize",
          .x_types = kReals,
          .x_qparams = false,
          .response = Response::kRisesAndMirrors,
          .out_types = kEveryCode,
          .per_channel = PerChannel::kOut,
          .x_blocks = true},
    OpRow{.op = Op::kDequantize,
          .name = "dequantize",
          .x_types = kEveryCode,
          .response = Response::kNone,
          .out_types = kReals,
          .out_q = OutQParams::kNone,
          .per_channel = PerChannel::kX,
          .relu = false,
          .clamp = false,
          .x_blocks = true},
    OpRow{.op = Op::kRequantize,
          .name = "requantize",
          .x_types = kSums,
          .response = Response::kRisesAndMirrors,
          .out_types = kWideCodes,
          .per_channel = PerChannel::kW,
          .requant = true,
          .multiplier = true},
    OpRow{.op = Op::kRescale,
          .name = "rescale",
          .response = Response::kRisesAndMirrors,
          .in_place = true},
    OpRow{.op = Op::kAdd,
          .name = "add",
          .second = Second::kInput,
          .combine = Combine::kSum,
          .response = Response::kRisesAndMirrors,
          .in_place = true},
    OpRow{.op = Op::kSub,
          .name = "sub",
          .second = Second::kInput,
          .combine = Combine::kDifference,
          .response = Response::kRisesAndMirrors,
          .in_place = true},
    OpRow{.op = Op::kMul,
          .name = "mul",
          .second = Second::kInput,
          .combine = Combine::kProduct,
          .response = Response::kMirrors,
          .in_place = true},
    internal::SumOfProducts({.op = Op::kLinear,
                             .name = "linear",
                             .layout = Layout::kProducts,
                             .blocks = true,
                             .x_blocks = true,
                             .float_x = true}),
    internal::SumOfProducts(
        {.op = Op::kConv2d, .name = "conv2d", .layout = Layout::kConv, .dilation = true}),
    internal::SumOfProducts({.op = Op::kDepthwise,
                             .name = "depthwise",
                             .layout = Layout::kConv,
                             .depthwise = true,
                             .dilation = true}),
    OpRow{.op = Op::kMaxPool,
          .name = "max_pool",
          .layout = Layout::kPool,
          .response = Response::kRises,
          .out_q = OutQParams::kOfInput,
          .dilation = true,
          .ceil_mode = true},
    OpRow{.op = Op::kAvgPool,
          .name = "avg_pool",
          .layout = Layout::kPool,
          .response = Response::kRisesAndMirrors,
          .ceil_mode = true,
          .count_include_pad = true},
    OpRow{.op = Op::kGlobalAvgPool,
          .name = "global_avg_pool",
          .layout = Layout::kPool,
          .response = Response::kRisesAndMirrors,
          .whole_image = true},
    OpRow{.op = Op::kConcat,
          .name = "concat",
          .layout = Layout::kColumns,
          .second = Second::kInput,
          .response = Response::kRises},
    // hardswish falls and rises; is_monotone leaves it out.
    OpRow{.op = Op::kTable,
          .name = "table",
          .response = Response::kRises,
          .relu = false,
          .in_place = true,
          .function = true},
    OpRow{.op = Op::kSoftmax,
          .name = "softmax",
          .response = Response::kNone,
          .out_q = OutQParams::kFixed,
          .relu = false},
    OpRow{.op = Op::kChooseQParams,
          .name = "choose_qparams",
          .layout = Layout::kBatches,
          .x_types = kReals,
          .x_qparams = false,
          .response = Response::kNone,
          .out_types = kReals,
          .out_q = OutQParams::kNone,
          .per_channel = PerChannel::kRows,
          .relu = false,
          .clamp = false,
          .observer = true,
          .qparams = true,
          .rule = true},
    OpRow{.op = Op::kDynamicLinear,
          .name = "dynamic_linear",
          .layout = Layout::kProducts,
          .x_types = kReals,
          .x_qparams = false,
          .second = Second::kWeights,
          .response = Response::kNone,
          .out_types = kReals,
          .out_q = OutQParams::kNone,
          .per_channel = PerChannel::kW,
          .clamp = false,
          .bias = true,
          .qparams = true,
          .blocks = true,
          .rule = true,
          .dynamic = true},
    // Larger inputs may overflow to NaN, and a NaN has no place in an order.
    OpRow{.op = Op::kCast,
          .name = "cast",
          .x_types = kFloats,
          .x_qparams = false,
          .response = Response::kNone,
          .out_types = kFloats,
          .out_q = OutQParams::kNone,
          .per_channel = PerChannel::kXAndOut,
          .relu = false,
          .clamp = false,
          .cast = true,
          .x_blocks = true},
};
inline constexpr size_t kOpCount = kOpRows.size();

namespace internal {
// Place of each operation's row, by the value of the operation; kOpCount where there is none.
constexpr std::array<size_t, kOpCount> PlacesOfRows() {
  std::array<size_t, kOpCount> places{};
  places.fill(kOpCount);
  for (size_t i = 0; i < kOpCount; ++i) places.at(static_cast<size_t>(kOpRows[i].op)) = i;
  return places;
}
inline constexpr std::array<size_t, kOpCount> kPlaces = PlacesOfRows();
constexpr bool EveryOpHasARow() {
  for (const size_t place : kPlaces) {
    if (place == kOpCount) return false;
  }
  return true;
}
static_assert(EveryOpHasARow(), "two rows of one operation, or an enumerator without a row");
constexpr bool EveryRowSaysItsResponse() {
  for (const OpRow& row : kOpRows) {
    if (row.response == Response::kUnsaid) return false;
  }
  return true;
}
static_assert(EveryRowSaysItsResponse(), "an operation does not say how its output follows x");
}  // namespace internal

constexpr const OpRow& RowOf(Op op) { return kOpRows[internal::kPlaces[static_cast<size_t>(op)]]; }

// Every operation, in the order in which `qualm list ops` prints them.
std::span<const Op> AllOps();
constexpr std::string_view Name(Op op) { return RowOf(op).name; }
std::optional<Op> ParseOp(std::string_view name);
// The operations for which `has` is true, in the order of AllOps.
std::vector<Op> OpsWhere(bool (*has)(Op));

constexpr bool IsConv(Op op) { return RowOf(op).layout == Layout::kConv; }
constexpr bool IsPool(Op op) { return RowOf(op).layout == Layout::kPool; }
constexpr bool HasWindow(Op op) { return IsConv(op) || IsPool(op); }
constexpr bool HasWeights(Op op) { return RowOf(op).second == Second::kWeights; }
// Each output of linear and of the convolutions is a sum of K products of codes that the case
// gives. dynamic_linear is not one of them: it makes the codes of x itself. A linear of f32 x has
// the operation and not the codes, so whoever has a case asks HasSums of the case.
constexpr bool HasSums(Op op) { return HasWeights(op) && RowOf(op).x_qparams; }
// A larger element of x makes no output smaller.
constexpr bool RisesWithX(Op op) {
  const Response response = RowOf(op).response;
  return response == Response::kRises || response == Response::kRisesAndMirrors;
}
// The negated x, or both negated operands of a sum, give the negated real value.
constexpr bool MirrorsX(Op op) {
  const Response response = RowOf(op).response;
  return response == Response::kMirrors || response == Response::kRisesAndMirrors;
}
// x_block of this operation is along the terms of a sum, beside blocks of weights.
constexpr bool SumsXInBlocks(Op op) { return RowOf(op).x_blocks && HasWeights(op); }
// x and w are inputs of one kind, which case files call a and b.
constexpr bool HasTwoInputs(Op op) { return RowOf(op).second == Second::kInput; }
// x and w meet element by element: y[i] follows from x[i] and w[i].
constexpr bool HasTwoOperands(Op op) { return RowOf(op).combine != Combine::kNone; }
// a + b or a - b.
constexpr bool AddsOperands(Op op) {
  return RowOf(op).combine == Combine::kSum || RowOf(op).combine == Combine::kDifference;
}
// The sign of b in a + b or a - b: -1 for a difference, else 1.
constexpr int SignOfSecond(Op op) { return RowOf(op).combine == Combine::kDifference ? -1 : 1; }
constexpr bool HasW(Op op) { return RowOf(op).second != Second::kNone; }
constexpr bool HasOutQParams(Op op) { return RowOf(op).out_q == OutQParams::kOwn; }
// The output has the type of x.
constexpr bool KeepsType(Op op) {
  return RowOf(op).out_q == OutQParams::kOfInput || RowOf(op).out_q == OutQParams::kFixed;
}
// Some list of parameters may have one entry per output channel.
constexpr bool HasChannelList(Op op) {
  return RowOf(op).per_channel != PerChannel::kNone && RowOf(op).per_channel != PerChannel::kRows;
}
// Elementwise, with elements of one size in x and the output.
constexpr bool CanRunInPlace(Op op) { return RowOf(op).in_place; }

}  // namespace qualm

#endif  // QUALM_CORE_OP_H_
