// SPDX-License-Identifier: Apache-2.0
// A case: one complete, printable problem. A case holds everything that a subject needs to know.
// docs/case-format.md is the file form; core/io/case_json.h reads and writes it.
#ifndef QUALM_CORE_CASE_H_
#define QUALM_CORE_CASE_H_

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/float_format.h"
#include "core/op.h"
#include "core/tensor.h"
#include "core/types.h"

namespace qualm {

// real = scale * (code - zero_point). One entry each per tensor, or one per channel.
// Scales are finite and > 0 (denormals are valid); zero points are any int32.
struct QParams {
  std::vector<float> scale = {1.0f};
  std::vector<int32_t> zero_point = {0};

  float scale_at(int64_t channel) const {
    return scale[scale.size() == 1 ? 0 : static_cast<size_t>(channel)];
  }
  int32_t zero_point_at(int64_t channel) const {
    return zero_point[zero_point.size() == 1 ? 0 : static_cast<size_t>(channel)];
  }
  friend bool operator==(const QParams&, const QParams&) = default;
};

// How an accumulator becomes a code (docs/quantization.md): the exact meaning, or the arithmetic
// of a backend that the network was calibrated for.
//   kFloat32     rne(float(acc + bias) * float32 multiplier) + zero point, as FBGEMM and QNNPACK
//   kFixedQ31    rounding doubling high multiply, then rounding shift: gemmlowp, TFLite
//   kFixedRndnu  one rounding shift, half up, of the 64-bit product: XNNPACK
enum class Requant : uint8_t { kExact, kFloat32, kFixedQ31, kFixedRndnu };
inline constexpr std::array<std::string_view, 4> kRequantNames{"exact", "float32", "fixed_q31",
                                                               "fixed_rndnu"};
constexpr std::span<const std::string_view> NamesOf(Requant /*any*/) { return kRequantNames; }

// The function that a table operation applies to the real value of a code.
enum class Function : uint8_t { kRelu, kLeakyRelu, kHardSwish, kSigmoid, kTanh };
inline constexpr std::array<std::string_view, 5> kFunctionNames{"relu", "leaky_relu", "hardswish",
                                                                "sigmoid", "tanh"};
constexpr std::span<const std::string_view> NamesOf(Function /*any*/) { return kFunctionNames; }

// choose_qparams: how scales and zero points follow from batches of float32 values. The meaning is
// PyTorch's observers, float32 step by step. dynamic_linear chooses the scale of x by them too.
struct Observer {
  enum class Kind : uint8_t { kMinMax, kMovingAverage, kHistogram };
  Kind kind = Kind::kMinMax;
  bool symmetric = false;
  bool reduce_range = false;
  DType dtype = DType::kU8;                // of the codes: u8, s8, or a type of kMxElements
  int32_t quant_min = 0, quant_max = 255;  // before reduce_range; inside dtype
  float averaging_constant = 0.01f;        // kMovingAverage
  friend bool operator==(const Observer&, const Observer&) = default;
};
inline constexpr std::array<std::string_view, 3> kObserverNames{"min_max", "moving_average",
                                                                "histogram"};
constexpr std::span<const std::string_view> NamesOf(Observer::Kind /*any*/) {
  return kObserverNames;
}

// How a scale and zero point follow from the smallest and largest (of dynamic_linear: finite) value
// of x, float32 (kAten: float64) step by step. Of choose_qparams another rule than kObserver goes
// with a min_max observer.
//   kObserver  as PyTorch's observers
//   kAten      torch._choose_qparams_per_tensor, quantized::linear_dynamic
//   kOnnx      ONNX Runtime's DynamicQuantizeLinear
// Of choose_qparams alone, the shared scale of microscaling (MX), a power of two, from the largest
// magnitude a, for elements of a small float type whose largest value is v, 2^e at least:
//   kMxFloor    2^(floor(log2 a) - e), OCP Microscaling Formats 1.0, 6.3
//   kMxCeil     2^(ceil(log2 a) - e)
//   kMxEven     as kMxFloor, of a rounded to the significant bits of the element type
//   kMxRceil    the least power of two that is a/v at least, cvt.rp.satfinite.ue8m0x2 of PTX
//   kMxNearest  a/v, cast to f8e8m0fnu
enum class QParamsRule : uint8_t {
  kObserver,
  kAten,
  kOnnx,
  kMxFloor,
  kMxCeil,
  kMxEven,
  kMxRceil,
  kMxNearest
};
inline constexpr std::array<std::string_view, 8> kQParamsRuleNames{
    "observer", "aten", "onnx", "mx_floor", "mx_ceil", "mx_even", "mx_rceil", "mx_nearest"};
constexpr bool IsMx(QParamsRule rule) { return rule >= QParamsRule::kMxFloor; }
constexpr std::span<const std::string_view> NamesOf(QParamsRule /*any*/) {
  return kQParamsRuleNames;
}

// How much of a tensor shares one scale and zero point: the whole tensor, or one row.
enum class Granularity : uint8_t { kTensor, kRow };
inline constexpr std::array<std::string_view, 2> kGranularityNames{"tensor", "row"};
constexpr std::span<const std::string_view> NamesOf(Granularity /*any*/) {
  return kGranularityNames;
}

// The enumerations of parameters. NamesOf lists the spellings of case files, indexed by value. Its
// size is the number of values.
template <class E>
concept NamedEnum = requires(E e) { NamesOf(e); };
template <NamedEnum E>
constexpr size_t CountOf() {
  return NamesOf(E{}).size();
}
template <NamedEnum E>
constexpr std::string_view Name(E value) {
  return NamesOf(value)[static_cast<size_t>(value)];
}
template <NamedEnum E>
constexpr std::optional<E> Parse(std::string_view name) {
  for (size_t i = 0; i < CountOf<E>(); ++i) {
    if (NamesOf(E{})[i] == name) return static_cast<E>(i);
  }
  return std::nullopt;
}

// What triage said of an answer when it could ask further cases.
struct Explanation {
  std::string kind;      // of FindingKind; "" where nothing was said
  std::string cause;     // one sentence
  std::string causes;    // names of causes, between " + "; "" where an experiment showed the cause
  std::string evidence;  // lines
  // Names of causes, between "; ", that give the answer and that other answers contradicted.
  std::string ruled_out = {};
  friend bool operator==(const Explanation&, const Explanation&) = default;
};

// The output that somebody else's software gave for this case.
struct Observed {
  std::string by;  // free text: library, version, instruction set
  Tensor y;        // of out_dtype, the shape of the output
  Explanation why = {};
  // Of an f32 y: its numbers that may be any real that prints so (index, "0.0160"), by index. y
  // holds the nearest float32.
  std::vector<std::pair<int64_t, std::string>> printed = {};
  friend bool operator==(const Observed&, const Observed&) = default;
};

// A number of a case as somebody printed it: any real that prints so, with as many digits, may have
// been meant. The case holds the nearest float32.
struct Printed {
  enum class List : uint8_t { kX, kXScale, kWScale, kOutScale, kMultiplier, kBias };
  List list = List::kX;
  int64_t index = 0;  // in the list
  std::string text;   // as ParseDecimal takes it: "0.0160"
  friend bool operator==(const Printed&, const Printed&) = default;
};

// The window of convolutions and pools over NHWC images. Sizes in elements, all >= 0 unless said.
struct Window {
  int64_t batch = 0;
  int64_t in_h = 0, in_w = 0;
  int64_t in_c = 0;
  int64_t kernel_h = 1, kernel_w = 1;  // >= 1
  int64_t stride_h = 1, stride_w = 1;  // >= 1
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  int64_t dilation_h = 1, dilation_w = 1;  // >= 1
  int64_t groups = 1;                      // convolutions; divides in_c and the output channels
  bool ceil_mode = false;                  // pools: as PyTorch, see docs/quantization.md
  bool count_include_pad = false;          // avg_pool: padding counts in the divisor

  bool has_padding() const { return (pad_top | pad_bottom | pad_left | pad_right) != 0; }
  void drop_padding() { pad_top = pad_bottom = pad_left = pad_right = 0; }
  // Output size; 0 where the dilated kernel does not fit the padded input.
  int64_t out_h() const;
  int64_t out_w() const;
  friend bool operator==(const Window&, const Window&) = default;
};

// Tensors are row-major. Their shapes follow from the Layout of the operation (core/op.h), their
// types and the lists that may have N entries from its row; docs/quantization.md says what
// the operation computes. M, N and K of operations with a window are derived: M = batch*OH*OW; K =
// R*S*C/groups, or R*S of a pool. With N = 1 a list has one entry in both forms, and per_channel
// tells them apart: some backends compute the two differently.
struct Case {
  Op op = Op::kLinear;
  int64_t M = 0;
  int64_t N = 0;
  int64_t K = 0;  // terms of one sum: linear, dynamic_linear, convolutions, pools; else 0

  Tensor x;
  Tensor w;       // weights, or a second input (OpRow::second); else empty
  Window window;  // convolutions and pools; else default
  QParams x_q;
  QParams w_q;
  QParams out_q;
  bool per_channel = false;
  std::vector<float> multiplier;        // requantize only; empty: x_scale*w_scale/out_scale
  Function function = Function::kRelu;  // table only
  float negative_slope = 0.01f;         // table with kLeakyRelu only; finite, >= 0
  // choose_qparams. dynamic_linear has symmetric, reduce_range, dtype, quant_min and quant_max.
  Observer observer;
  QParamsRule rule = QParamsRule::kObserver;  // choose_qparams, dynamic_linear
  // choose_qparams by another rule than kObserver: the code (of MX the element) of every value of x
  // stands in the output too, behind scales and zero points.
  bool codes = false;
  Granularity x_gran = Granularity::kTensor;  // dynamic_linear only
  // linear, dynamic_linear: so many elements of a row of w, one behind the other, share a scale and
  // a zero point; the last block of a row may be shorter. 0: no blocks. With blocks per_channel is
  // true, and w_q has RowBlocks entries for each channel, channel by channel: WEntry finds them.
  int32_t w_block = 0;
  // linear: 0, or w_block: the rows of x lie in such blocks too. x_q then has RowBlocks entries for
  // each row, row by row: XEntry finds them.
  int32_t x_block = 0;
  FloatRounding rounding = FloatRounding::kNearestEven;  // cast only
  FloatOverflow overflow = FloatOverflow::kInfinity;     // cast only

  // At most one of the two; N entries. bias is in real units, bias_i32 in units x_scale*w_scale[n].
  std::optional<std::vector<float>> bias;
  std::optional<std::vector<int32_t>> bias_i32;

  DType out_dtype = DType::kU8;
  int32_t out_min = 0;  // clamp of integer outputs, inside RangeOf(out_dtype)
  int32_t out_max = 255;
  bool relu = false;  // lower bound max(out_min, zero point); 0 for s32 and f32 outputs
  Requant requant = Requant::kExact;

  // Not part of the problem; carried along.
  std::string property;            // the claim this case is about, "" if none
  std::string contract;            // by which the claim was judged (ParseContract), "" if not told
  std::string note;                // one sentence for people
  std::optional<Tensor> expected;  // the exact output
  std::optional<Observed> observed;
  std::vector<Printed> printed;  // by list, then by index

  std::vector<int64_t> output_shape() const;
  // Has `y` the type and the shape of the output?
  bool HoldsOutput(const Tensor& y) const;
  friend bool operator==(const Case&, const Case&) = default;
};

// One member of a case. Code that visits the members through these rows cannot miss one.
struct Field {
  std::string_view name;  // of parameters and numbers of the window: their key in case files
  // A parameter belongs to the operations whose row says so; elsewhere it keeps its default.
  bool OpRow::* has = nullptr;
  bool OpRow::* required = nullptr;  // case files of these operations must give this parameter
  // Of a number of the window: the smallest valid one, which is also the simplest.
  int64_t least = -1;
  bool is_size = false;  // such a number is a dimension of x or w
  // Of a parameter that is a number: it lies in [lowest, highest]. Files, validation and fuzzing
  // ask this.
  double lowest = -std::numeric_limits<float>::max();
  double highest = std::numeric_limits<float>::max();
  bool is_code = false;  // the number is a code of Observer::dtype, which is read before it

  bool is_required(Op op) const { return required != nullptr && RowOf(op).*required; }
};
// Whether the value lies in the field's range. NaN lies in no range.
template <class T>
constexpr bool IsInRange(const Field& field, T value) {
  return value >= field.lowest && value <= field.highest;
}

template <class T>
struct FieldOf : Field {
  T& value;
};
template <class T>
FieldOf(Field, T&) -> FieldOf<T>;

namespace internal {

// The members of a case in three groups: structure (sizes, tensors, scales, types); parameters,
// which some operations have; remarks, which are no part of the problem. A member that is added to
// Case, Window or Observer and not named here does not compile. Inlined always, or
// each call would build 3 kB of Field objects.
template <class C>
[[gnu::always_inline]] constexpr auto FieldsOf(C& c) {
  auto& [op, M, N, K, x, w, window, x_q, w_q, out_q, per_channel, multiplier, function,
         negative_slope, observer, rule, codes, x_gran, w_block, x_block, rounding, overflow, bias,
         bias_i32, out_dtype, out_min, out_max, relu, requant, property, contract, note, expected,
         observed, printed] = c;
  auto& [batch, in_h, in_w, in_c, kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_bottom,
         pad_left, pad_right, dilation_h, dilation_w, groups, ceil_mode, count_include_pad] =
      window;
  auto& [kind, symmetric, reduce_range, dtype, quant_min, quant_max, averaging_constant] = observer;
  constexpr auto kObserver = &OpRow::observer;
  constexpr auto kQParams = &OpRow::qparams;
  return std::tuple{
      std::tuple{FieldOf{{"op"}, op},
                 FieldOf{{"M"}, M},
                 FieldOf{{"N"}, N},
                 FieldOf{{"K"}, K},
                 FieldOf{{.name = "batch", .least = 0, .is_size = true}, batch},
                 FieldOf{{.name = "H", .least = 0, .is_size = true}, in_h},
                 FieldOf{{.name = "W", .least = 0, .is_size = true}, in_w},
                 FieldOf{{.name = "C", .least = 0, .is_size = true}, in_c},
                 FieldOf{{.name = "R", .least = 1, .is_size = true}, kernel_h},
                 FieldOf{{.name = "S", .least = 1, .is_size = true}, kernel_w},
                 FieldOf{{.name = "stride", .least = 1}, stride_h},
                 FieldOf{{.name = "stride", .least = 1}, stride_w},
                 FieldOf{{.name = "pad", .least = 0}, pad_top},
                 FieldOf{{.name = "pad", .least = 0}, pad_bottom},
                 FieldOf{{.name = "pad", .least = 0}, pad_left},
                 FieldOf{{.name = "pad", .least = 0}, pad_right},
                 FieldOf{{.name = "dilation", .least = 1}, dilation_h},
                 FieldOf{{.name = "dilation", .least = 1}, dilation_w},
                 FieldOf{{.name = "groups", .least = 1}, groups},
                 FieldOf{{"x"}, x},
                 FieldOf{{"w"}, w},
                 FieldOf{{"x_q"}, x_q},
                 FieldOf{{"w_q"}, w_q},
                 FieldOf{{"out_q"}, out_q},
                 FieldOf{{"per_channel"}, per_channel},
                 FieldOf{{"out_dtype"}, out_dtype},
                 FieldOf{{"out_min"}, out_min},
                 FieldOf{{"out_max"}, out_max}},
      std::tuple{
          FieldOf{{.name = "multiplier", .has = &OpRow::multiplier}, multiplier},
          FieldOf{{.name = "bias", .has = &OpRow::bias}, bias},
          FieldOf{{.name = "bias_i32", .has = &OpRow::bias_i32}, bias_i32},
          FieldOf{{.name = "relu", .has = &OpRow::relu}, relu},
          FieldOf{{.name = "requant", .has = &OpRow::requant}, requant},
          FieldOf{{.name = "ceil_mode", .has = &OpRow::ceil_mode}, ceil_mode},
          FieldOf{{.name = "count_include_pad", .has = &OpRow::count_include_pad},
                  count_include_pad},
          FieldOf{{.name = "function", .has = &OpRow::function, .required = &OpRow::function},
                  function},
          FieldOf{{.name = "negative_slope", .has = &OpRow::function, .lowest = 0}, negative_slope},
          FieldOf{{.name = "observer", .has = kObserver, .required = kObserver}, kind},
          FieldOf{{.name = "symmetric", .has = kQParams}, symmetric},
          FieldOf{{.name = "reduce_range", .has = kQParams}, reduce_range},
          FieldOf{{.name = "dtype", .has = kQParams}, dtype},
          FieldOf{{.name = "codes", .has = kObserver}, codes},
          FieldOf{{.name = "quant_min", .has = kQParams, .is_code = true}, quant_min},
          FieldOf{{.name = "quant_max", .has = kQParams, .is_code = true}, quant_max},
          FieldOf{{.name = "averaging_constant", .has = kObserver, .lowest = 0, .highest = 1},
                  averaging_constant},
          FieldOf{{.name = "qparams_rule", .has = &OpRow::rule, .required = &OpRow::dynamic}, rule},
          FieldOf{{.name = "x_gran", .has = &OpRow::dynamic}, x_gran},
          FieldOf{{.name = "w_block", .has = &OpRow::blocks, .lowest = 0, .highest = 1 << 28},
                  w_block},
          FieldOf{{.name = "x_block", .has = &OpRow::x_blocks, .lowest = 0, .highest = 1 << 28},
                  x_block},
          FieldOf{{.name = "rounding", .has = &OpRow::cast}, rounding},
          FieldOf{{.name = "overflow", .has = &OpRow::cast}, overflow}},
      std::tuple{FieldOf{{"property"}, property}, FieldOf{{"contract"}, contract},
                 FieldOf{{"note"}, note}, FieldOf{{"expected"}, expected},
                 FieldOf{{"observed"}, observed}, FieldOf{{"printed"}, printed}}};
}
inline constexpr size_t kStructure = 0, kParameters = 1, kRemarks = 2;

template <size_t kGroup, class Visit, class C>
constexpr void WalkGroup(Visit& visit, C& c) {
  std::apply([&](const auto&... field) { (visit(field, field.value), ...); },
             std::get<kGroup>(FieldsOf(c)));
}
template <size_t kGroup, class Visit, class A, class B>
constexpr void WalkGroup(Visit& visit, A& a, B& b) {
  std::apply(
      [&](const auto&... of_a) {
        std::apply([&](const auto&... of_b) { (visit(of_a, of_a.value, of_b.value), ...); },
                   std::get<kGroup>(FieldsOf(b)));
      },
      std::get<kGroup>(FieldsOf(a)));
}

}  // namespace internal

// Calls visit(field, value) for every member that is part of the problem, the members of its window
// and observer one by one. The order is fixed: the operation first, parameters last. Visit must
// take each type that a member has: a member of a new type does not compile until somebody has said
// what it means to read, write, send or shrink it.
template <class C, class Visit>
constexpr void ForEachField(C& c, Visit&& visit) {
  internal::WalkGroup<internal::kStructure>(visit, c);
  internal::WalkGroup<internal::kParameters>(visit, c);
}
// The parameters alone.
template <class C, class Visit>
constexpr void ForEachParameter(C& c, Visit&& visit) {
  internal::WalkGroup<internal::kParameters>(visit, c);
}
// The numbers of the window alone: visit(field, int64_t number). In a valid case: >= field.least.
template <class C, class Visit>
constexpr void ForEachWindowNumber(C& c, Visit&& visit) {
  const auto visit_number = [&](const Field& field, auto& value) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, int64_t>) {
      if (field.least >= 0) visit(field, value);
    }
  };
  internal::WalkGroup<internal::kStructure>(visit_number, c);
}
// For two cases side by side: visit(field, value in a, value in b).
template <class A, class B, class Visit>
constexpr void ForEachField(A& a, B& b, Visit&& visit) {
  internal::WalkGroup<internal::kStructure>(visit, a, b);
  internal::WalkGroup<internal::kParameters>(visit, a, b);
}
template <class A, class B, class Visit>
constexpr void ForEachParameter(A& a, B& b, Visit&& visit) {
  internal::WalkGroup<internal::kParameters>(visit, a, b);
}
// The members that are no part of the problem.
template <class A, class B, class Visit>
constexpr void ForEachRemark(A& a, B& b, Visit&& visit) {
  internal::WalkGroup<internal::kRemarks>(visit, a, b);
}

// Shapes of the tensors as the operation has them. Where M, N and K do not determine a dimension
// (the columns of concat's first input, the batches of choose_qparams), it is read from c.x; it is
// 0 if c.x has another rank. ShapeOfW is [0] if the operation has no w.
std::vector<int64_t> ShapeOfX(const Case& c);
std::vector<int64_t> ShapeOfW(const Case& c);

// The parameters that per_channel makes one per channel (PerChannel::kX, kW or kOut; a multiplier
// comes instead of w_q).
QParams& ChannelQParams(Case& c);
const QParams& ChannelQParams(const Case& c);
// Calls visit(q) for each of them: a cast has two, whose lists have as many entries, those of the
// output and of x.
template <class C, class Visit>
void ForEachChannelQParams(C& c, const Visit& visit) {
  visit(ChannelQParams(c));
  if (RowOf(c.op).per_channel == PerChannel::kXAndOut) visit(c.x_q);
}

// What those refuse who know no weights in blocks.
inline constexpr std::string_view kInBlocks = "weights in blocks";
// The same of activations, whose weights are in blocks too.
inline constexpr std::string_view kXInBlocks = "activations in blocks";

// Blocks of each row of w: entries of w_q for each channel, where w_q has some for each channel.
inline int64_t RowBlocks(const Case& c) {
  return c.w_block == 0 ? 1 : (c.K + c.w_block - 1) / c.w_block;
}
// The entry of w_q that weight k of channel n has, of a linear or dynamic_linear per channel.
inline size_t WEntry(const Case& c, int64_t n, int64_t k) {
  if (c.w_q.scale.size() == 1) return 0;
  return static_cast<size_t>(n * RowBlocks(c) + (c.w_block == 0 ? 0 : k / c.w_block));
}
// The entry of x_q that element k of row m of x has, of a linear.
inline size_t XEntry(const Case& c, int64_t m, int64_t k) {
  return c.x_block == 0 ? 0 : static_cast<size_t>(m * RowBlocks(c) + k / c.x_block);
}

// A quantize, dequantize or cast whose rows have a scale and zero point for each block of x_block
// neighbouring elements, the last of which may be shorter.
inline bool HasElementBlocks(const Case& c) {
  return c.x_block != 0 && RowOf(c.op).layout == Layout::kElements;
}
// How many blocks a row has there: entries of the list for each row.
inline int64_t ElementBlocks(const Case& c) { return (c.N + c.x_block - 1) / c.x_block; }
// The entry of the lists of such an operation that element i of x has.
inline size_t ElementEntry(const Case& c, int64_t i) {
  if (c.x_block != 0) return static_cast<size_t>(i / c.N * ElementBlocks(c) + i % c.N / c.x_block);
  return c.per_channel ? static_cast<size_t>(i % c.N) : 0;
}
// What those refuse who know none.
inline constexpr std::string_view kElementsInBlocks = "scales of blocks of a row";

// A linear of float32 activations: x has no scale and no zero point, and the output is f32.
inline bool HasFloatX(const Case& c) { return RowOf(c.op).float_x && c.x.dtype() == DType::kF32; }
// What those refuse who know none.
inline constexpr std::string_view kOfFloatX = "linear of f32 x";
// x has a scale and a zero point.
inline bool HasXQParams(const Case& c) { return RowOf(c.op).x_qparams && !HasFloatX(c); }
// Each output is a sum of K products of codes that the case gives.
inline bool HasSums(const Case& c) { return HasSums(c.op) && !HasFloatX(c); }

// x or the output has codes of 16 bits.
inline bool HasWideCodes(const Case& c) {
  return IsWideCode(c.x.dtype()) || IsWideCode(c.out_dtype);
}
// What those refuse who know none.
inline constexpr std::string_view kOfWideCodes = "codes of 16 bits";

// x or the output has codes of fewer than 8 bits.
inline bool HasSmallCodes(const Case& c) {
  return IsSmallCode(c.x.dtype()) || IsSmallCode(c.out_dtype);
}
// What those refuse who know none.
inline constexpr std::string_view kOfSmallCodes = "codes of fewer than 8 bits";

// What those refuse who choose no scales for microscaling.
inline constexpr std::string_view kOfMxScales = "MX scales";

// How many scales, and as many zero points, a choose_qparams gives.
inline int64_t ChosenCount(const Case& c) { return c.per_channel ? c.M : 1; }
// What those refuse who know a choose_qparams without codes alone.
inline constexpr std::string_view kWithCodes = "codes beside scales and zero points";

// The scale and zero point of each row of x follow from all rows.
inline bool RowsShareQParams(const Case& c) {
  return RowOf(c.op).dynamic && c.x_gran == Granularity::kTensor;
}

// The output parameters of an operation with OutQParams::kFixed: scale 2^-8, the lowest code.
QParams FixedOutQParams(DType out_dtype);

// Whether a requantize case has a multiplier, rather than a quotient of scales in its place. With
// N = 0, per_channel and default x_q and w_q the empty list counts as a multiplier.
bool UsesMultiplier(const Case& c);

// Derives M, N and K of a case with a window from it and from N (pools: N = in_c).
void DeriveSizes(Case* c);

// Whether each of the `out` windows along one axis has a tap inside [0, in): such a pool has a
// maximum and a divisor everywhere.
bool EveryWindowMeetsInput(int64_t out, int64_t in, int64_t kernel, int64_t stride, int64_t pad,
                           int64_t dilation);

// The input elements under one output of a convolution or pool, tap by tap in (r, s) order:
// `x_row` is the index of channel 0 of the pixel in x, or -1 where the tap lies in the padding
// (or, for pools with ceil_mode, beyond it).
struct Tap {
  int64_t r = 0, s = 0;
  int64_t x_row = -1;
};
// Taps of output pixel `m` (row-major over batch, out_h, out_w).
std::vector<Tap> TapsOf(const Window& window, int64_t m);

// The numbers of this list; none if the operation, or this case of it, has no such list of reals.
std::span<const float> ListOf(const Case& c, Printed::List list);

// Whether [out_min, out_max] is less than the whole output type, and what makes it the whole.
bool IsClamped(const Case& c);
void OpenClamp(Case* c);

// An elementwise operation over x [M,N], without clamp; scales and zero points are the caller's.
Case CaseOver(Op op, Tensor x, DType out_dtype);

// Smallest code that leaves the clamp: out_min, or the larger of it and the code of real 0 (0 for
// s32 outputs) under relu. If the zero point exceeds out_max, LowerBound exceeds out_max too, and
// every output is out_max. `channel` matters only to a quantize with one zero point per channel.
int64_t LowerBound(const Case& c, int64_t channel = 0);

// The problem alone: the same case without remarks (property, contract, note, expected, observed).
Case ProblemOf(const Case& c);

// Bytes that are equal for equal problems and differ for different ones.
std::string ProblemKey(const Case& c);

// Entries of all lists that stand beside the tensors: scales, zero points, multipliers, biases.
// Code that sends a case bounds the size of the message by this number.
size_t ListedValues(const Case& c);

// Checks every rule of the domain (docs/quantization.md): shapes, list lengths, finite positive
// scales, finite bias, clamp inside the type. Returns "" or "FIELD: what is wrong, what was
// expected".
std::string Validate(const Case& c);

// The types of the tensors: "u8*s8->u8".
std::string TypesText(const Case& c);

// One line for people and logs: sizes, types, and every parameter that is not the default, as
// "linear M=1 N=1 K=2 u8*s8->u8 per-tensor relu".
std::string Describe(const Case& c);

}  // namespace qualm

#endif  // QUALM_CORE_CASE_H_
