// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "adapters/host/arena.h"
#include "adapters/host/block_formats.h"
#include "adapters/host/in_process.h"
#include "adapters/host/nbits.h"
#include "adapters/host/threads.h"
#include "adapters/kinds.h"
#include "core/enclosure.h"
#include "core/float_format.h"
#include "core/scaled_cast.h"
#include "core/status.h"
#include "kernels/binary.h"
#include "kernels/block_linear.h"
#include "kernels/cast.h"
#include "kernels/common/fused.h"
#include "kernels/concat.h"
#include "kernels/conv.h"
#include "kernels/dynamic_linear.h"
#include "kernels/elementwise.h"
#include "kernels/images.h"
#include "kernels/intervals/intervals.h"
#include "kernels/linear.h"
#include "kernels/nbits_linear.h"
#include "kernels/observer.h"
#include "kernels/pool.h"
#include "kernels/softmax.h"
#include "kernels/table.h"
#include "kernels/targets.h"
#include "kernels/types.h"
#include "kernels/unpack.h"
#include "kernels/window.h"

namespace qualm {
namespace {

using kernels::ConstMatrix;
using kernels::ElementType;
using kernels::MutableMatrix;
using kernels::OutputRange;

// Of weights of fewer than 8 bits, the type into which they are unpacked.
ElementType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kU2:
    case DType::kU4:
    case DType::kU8: return ElementType::kU8;
    case DType::kS2:
    case DType::kS4:
    case DType::kS8: return ElementType::kS8;
    case DType::kS32: return ElementType::kS32;
    case DType::kF32: return ElementType::kF32;
    default: break;
  }
  QUALM_CHECK(!"kernels lack this type");
  return ElementType::kF32;
}

kernels::FloatType FloatTypeOf(DType dtype) {
  const FloatFormat& f = InfoOf(dtype).floating;
  return {BitsOf(dtype),
          f.exponent_bits,
          f.fraction_bits,
          f.bias,
          static_cast<kernels::FloatEnds>(f.top),
          f.has_sign};
}
static_assert(
    static_cast<int>(FloatFormat::Top::kFinite) == static_cast<int>(kernels::FloatEnds::kFinite) &&
        static_cast<int>(FloatRounding::kUp) == static_cast<int>(kernels::CastRounding::kUp) &&
        static_cast<int>(FloatOverflow::kNan) == static_cast<int>(kernels::CastOverflow::kNan),
    "choices of casts are passed on by their number");

kernels::Requantization RequantizationOf(Requant requant) {
  switch (requant) {
    case Requant::kExact: break;
    case Requant::kFloat32: return kernels::Requantization::kFloat32;
    case Requant::kFixedQ31: return kernels::Requantization::kFixedQ31;
    case Requant::kFixedRndnu: return kernels::Requantization::kFixedRndnu;
  }
  return kernels::Requantization::kExact;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

// Compilers differ in which of Highway's two fallbacks they make. Both have one name as a subject,
// so that runs of different builds compare.
constexpr std::string_view kPortable = "portable";

std::string VariantOf(std::string_view target) {
  const std::string lower = Lower(target);
  return lower == "emu128" || lower == "scalar" ? std::string(kPortable) : lower;
}

// What a subject multiplies, at the end of its name: these weights alone.
enum class Weights : uint8_t { kAny, kQ4K, kNBits4, kNBits8 };
constexpr std::array<std::string_view, 4> kEndings{"", "+q4_k", "+nbits4", "+nbits8"};

std::string_view EndingOf(Weights weights) { return kEndings[static_cast<size_t>(weights)]; }
int NBitsOf(Weights weights) {
  return weights == Weights::kNBits4 ? 4 : weights == Weights::kNBits8 ? 8 : 0;
}
Weights WeightsOf(std::string_view name) {
  const auto named = std::ranges::find_if(
      kEndings, [&](std::string_view ending) { return !ending.empty() && name.ends_with(ending); });
  return named == kEndings.end() ? Weights::kAny : static_cast<Weights>(named - kEndings.begin());
}

std::string NameOf(std::string_view target, Weights weights = Weights::kAny) {
  return "native@" + VariantOf(target) + std::string(EndingOf(weights));
}

kernels::WindowGeometry WindowOf(const Window& v) {
  return {.in_h = v.in_h,
          .in_w = v.in_w,
          .kernel_h = v.kernel_h,
          .kernel_w = v.kernel_w,
          .stride_h = v.stride_h,
          .stride_w = v.stride_w,
          .pad_top = v.pad_top,
          .pad_bottom = v.pad_bottom,
          .pad_left = v.pad_left,
          .pad_right = v.pad_right,
          .dilation_h = v.dilation_h,
          .dilation_w = v.dilation_w};
}

kernels::PoolShape PoolShapeOf(const Case& c) {
  return {WindowOf(c.window), c.window.out_h(), c.window.out_w()};
}

// Pixels or lines have gaps between them; images have none of their own.
kernels::ConstImages ImagesOf(const Placed& placed) {
  const Case& c = *placed.problem;
  const Window& v = c.window;
  return {.data = placed.x,
          .type = TypeOf(c.x.dtype()),
          .batch = v.batch,
          .height = v.in_h,
          .width = v.in_w,
          .channels = v.in_c,
          .image_stride = v.in_h * placed.x_line_stride,
          .row_stride = placed.x_line_stride,
          .pixel_stride = placed.x_stride};
}

kernels::TableFunction FunctionOf(Function function) {
  switch (function) {
    case Function::kRelu: return kernels::TableFunction::kRelu;
    case Function::kLeakyRelu: return kernels::TableFunction::kLeakyRelu;
    case Function::kHardSwish: return kernels::TableFunction::kHardSwish;
    case Function::kSigmoid: return kernels::TableFunction::kSigmoid;
    case Function::kTanh: break;
  }
  return kernels::TableFunction::kTanh;
}

kernels::Quantization QuantizationOf(const QParams& q) {
  return {q.scale_at(0), q.zero_point_at(0)};
}

// A packed table or softmax: packed once, run many times.
struct Packed {
  kernels::Status status;
  kernels::PackedTable table;
  kernels::PackedSoftmax softmax;
};

Packed Pack(const Case& c) {
  Packed packed;
  if (c.op == Op::kSoftmax) {
    packed.status = kernels::PackedSoftmax::Build(c.x_q.scale_at(0), c.N, &packed.softmax);
    return packed;
  }
  packed.status = kernels::PackedTable::Build({.function = FunctionOf(c.function),
                                               .negative_slope = c.negative_slope,
                                               .x_type = TypeOf(c.x.dtype()),
                                               .x_q = QuantizationOf(c.x_q),
                                               .y_type = TypeOf(c.out_dtype),
                                               .y_q = QuantizationOf(c.out_q),
                                               .range = {c.out_min, c.out_max, c.relu}},
                                              &packed.table);
  return packed;
}

// All parameters that Pack reads. A table is the same for any number of columns.
auto PackedFrom(const Case& c) {
  return std::tuple(c.op, c.op == Op::kSoftmax ? c.N : 0, c.x.dtype(), c.x_q.scale_at(0),
                    c.x_q.zero_point_at(0), c.out_dtype, c.out_q.scale_at(0),
                    c.out_q.zero_point_at(0), c.out_min, c.out_max, c.relu, c.function,
                    c.negative_slope);
}

// Keeps the last few packed ones: packing takes longer than a run, and every question of CannotRun
// packs.
class PackedOnes {
 public:
  const Packed& For(const Case& c) {
    const auto from = PackedFrom(c);
    for (const Entry& entry : entries_) {
      if (entry.from == from) return entry.packed;
    }
    constexpr size_t kMost = 4;
    if (entries_.size() == kMost) entries_.pop_front();
    return entries_.emplace_back(from, Pack(c)).packed;
  }

 private:
  struct Entry {
    decltype(PackedFrom(Case())) from;
    Packed packed;
  };
  std::deque<Entry> entries_;
};

// The caller's threads, as the thread pool that the kernels expect.
class Pool final : public kernels::ThreadPool {
 public:
  explicit Pool(int threads) : threads_(threads) {}
  int64_t Threads() const override { return threads_; }
  void Run(int64_t tasks, void (*fn)(void* arg, int64_t task), void* arg) override {
    RunOnThreads(threads_, tasks, fn, arg);
  }

 private:
  int threads_;
};

kernels::QParamsRule RuleOf(QParamsRule rule) {
  switch (rule) {
    case QParamsRule::kObserver: return kernels::QParamsRule::kObserver;
    case QParamsRule::kAten: return kernels::QParamsRule::kAten;
    case QParamsRule::kOnnx: return kernels::QParamsRule::kOnnx;
    default: QUALM_CHECK(!IsMx(rule));
  }
  return kernels::QParamsRule::kObserver;
}

kernels::ObserverParams ObserverParamsOf(const Case& c) {
  const Observer& o = c.observer;
  return {.symmetric = o.symmetric,
          .reduce_range = o.reduce_range,
          .type = TypeOf(o.dtype),
          .quant_min = o.quant_min,
          .quant_max = o.quant_max,
          .rule = RuleOf(c.rule)};
}

// Why the kernels take no linear with x and w in blocks like this one; "" if they do. They take
// what kernels/block_linear.h stores: Q4_K times Q8_K where minima are wanted, else Q8_0 times
// Q8_0, or Q4_0 where codes have 4 bits.
std::string WhyNotInBlocks(const Case& c, bool minima) {
  if (c.bias || c.relu) return "the kernels take no bias and no relu beside x in blocks";
  if (c.x.dtype() != DType::kS8) return "the kernels take s8 x in blocks";
  const auto all = [](const std::vector<int32_t>& list, int32_t zero_point) {
    return std::ranges::all_of(list, [=](int32_t z) { return z == zero_point; });
  };
  if (minima) {
    if (!all(c.x_q.zero_point, 0)) return "beside x in blocks its zero points are 0";
    return WhyNotInFormat(kQ4K, c);
  }
  if (c.x_block != kernels::kBlockCodes) return "the kernels multiply blocks of 32 by blocks of 32";
  const DType w = c.w.dtype();
  if (w != DType::kS8 && w != DType::kS4 && w != DType::kU4)
    return "the kernels take s8, s4 or u4 w beside x in blocks";
  if (!all(c.x_q.zero_point, 0) || !all(c.w_q.zero_point, w == DType::kU4 ? 8 : 0))
    return "beside x in blocks the zero points of the kernels are 0, of u4 w 8";
  const auto is_half = [](float scale) { return CodeOf(DType::kF16, scale).has_value(); };
  if (!std::ranges::all_of(c.x_q.scale, is_half) || !std::ranges::all_of(c.w_q.scale, is_half))
    return "beside x in blocks the scales of the kernels are f16";
  return "";
}

// Writes a row of codes as blocks of kernels/block_linear.h. A last block that is shorter is filled
// with codes of 0.
void WriteBlocks(kernels::BlockFormat format, const uint8_t* codes, int64_t count, uint8_t zero,
                 const float* scales, uint8_t* to) {
  constexpr int64_t kBlock = kernels::kBlockCodes;
  for (int64_t first = 0; first < count; first += kBlock, ++scales) {
    const auto half = static_cast<uint16_t>(EncodeFloat(DType::kF16, *scales));
    std::memcpy(to, &half, sizeof half);
    to += sizeof half;
    std::array<uint8_t, kBlock> block;
    block.fill(zero);
    std::copy_n(codes + first, std::min(kBlock, count - first), block.begin());
    if (format == kernels::BlockFormat::kQ8_0) {
      to = std::ranges::copy(block, to).out;
    } else {
      for (size_t j = 0; j < kBlock / 2; ++j)
        *to++ = static_cast<uint8_t>(block[j] | block[j + kBlock / 2] << 4);
    }
  }
}

// The problem for which the kernels' source is evaluated on intervals.
intervals::Problem IntervalProblemOf(const Case& c) {
  intervals::Problem problem{.quantize = c.op == Op::kQuantize,
                             .zero_point = c.out_q.zero_point_at(0),
                             .signed_codes = RangeOf(c.out_dtype).min < 0,
                             .out_min = c.out_min,
                             .out_max = c.out_max,
                             .relu = c.relu};
  if (problem.quantize) {
    problem.denominator = c.out_q.scale_at(0);
  } else if (UsesMultiplier(c)) {
    problem.numerator_a = c.multiplier[0];
  } else {
    problem.numerator_a = c.x_q.scale_at(0);
    problem.numerator_b = c.w_q.scale_at(0);
    problem.denominator = c.out_q.scale_at(0);
  }
  return problem;
}

class NativeSubject final : public InProcessSubject, public EnclosingSubject {
 public:
  NativeSubject(std::string name, std::string target, Weights weights)
      : name_(std::move(name)), target_(std::move(target)), weights_(weights) {
    if (weights != Weights::kAny) set_contract({.sum = true, .offsets = weights == Weights::kQ4K});
  }

  std::string_view name() const override { return name_; }
  bool Offers(Op op) const override { return weights_ == Weights::kAny || op == Op::kLinear; }
  // Tables of real functions are refused where double does not decide an entry.
  std::string CannotRun(const Case& c) const override {
    const std::string ending(EndingOf(weights_));
    if (!Offers(c.op)) return "of " + ending.substr(1) + " there is linear alone";
    if (HasWideCodes(c)) return "the kernels take no " + std::string(kOfWideCodes);
    if (const int bits = NBitsOf(weights_); bits != 0) {
      if (!contract(c.op).adds_floats())
        return "nbits is judged under contract sum or a tree alone";
      return WhyNotNBits(bits, c);
    }
    if (HasFloatX(c)) return "the kernels take no " + std::string(kOfFloatX);
    // Their sums are in float32: nothing that the contract exact could judge.
    if (c.w_block != 0 && (c.x_block == 0 || !contract(c.op).adds_floats())) {
      return "the kernels take no " + std::string(kInBlocks) +
             " but beside x in blocks, under contract sum or a tree";
    }
    if (IsMx(c.rule)) return "the kernels choose no " + std::string(kOfMxScales);
    if (IsScaledCast(c)) return "the kernels have no " + std::string(kOfScaledCasts);
    if (HasElementBlocks(c)) return "";
    if (c.x_block != 0) return WhyNotInBlocks(c, weights_ == Weights::kQ4K);
    if (weights_ == Weights::kQ4K) return "q4_k has blocks of 32 of w and of x";
    return c.op == Op::kTable || c.op == Op::kSoftmax ? packed_.For(c).status.error : "";
  }
  Case Inside(const Case& c) const override {
    if (weights_ == Weights::kQ4K) return InsideFormat(kQ4K, c);
    return NBitsOf(weights_) == 0 ? c : InsideNBits(NBitsOf(weights_), c);
  }
  std::string InstructionSet() const override {
    const std::string variant = VariantOf(target_);
    return variant == kPortable ? "PORTABLE" : target_;
  }

  std::vector<std::string> Siblings() const override {
    std::vector<std::string> others;
    for (const std::string& target : kernels::SupportedTargets()) {
      if (target != target_) others.push_back(NameOf(target, weights_));
    }
    return others;
  }

  Outcome Run(const Case& c, const RunContext& context) override {
    // Set outside the trap: where a signal ends the call, no destructor inside the trap runs.
    const kernels::ScopedTarget target(target_);
    return InProcessSubject::Run(c, context);
  }
  std::string RunBulk() override {
    const kernels::ScopedTarget target(target_);
    return InProcessSubject::RunBulk();
  }

  std::string Evaluates(const Case& c) const override {
    if (c.per_channel || c.requant != Requant::kExact) return "";
    const bool fuses = Fuses();
    // Without fused multiply-adds a requantize leaves elements next to ties to scalar code.
    if (c.op != Op::kQuantize && !(c.op == Op::kRequantize && fuses)) return "";
    return fuses ? "the source of the kernel with fused multiply-adds"
                 : "the source of the kernel without fused multiply-adds";
  }
  std::optional<Codes> Enclose(const Case& c, uint32_t first, uint32_t last) override {
    const auto codes = intervals::CodesBetween(IntervalProblemOf(c), Fuses(), first, last);
    return codes ? std::optional(Codes{codes->lo, codes->hi}) : std::nullopt;
  }

 protected:
  bool HasThreads(Op op) const override { return HasWeights(op); }
  std::string CannotRunAs(const Case& c, const RunContext& context) const override {
    const bool layer = HasWeights(c.op) || (context.calls == 1 && context.callers == 1);
    return layer ? "" : "has nothing to pack";
  }

  std::string Execute(const Placed& laid, const RunContext& context) override {
    const Case& c = *laid.problem;
    if (!IsSmallCode(c.out_dtype)) return ExecuteRows(WithWholeBytes(laid), context);
    Placed placed = WithWholeBytes(laid);
    staged_y_.resize(static_cast<size_t>(c.M * c.N));
    placed.y = staged_y_.data();
    placed.y_stride = c.N;
    std::string error = ExecuteRows(placed, context);
    if (error.empty()) kernels::Pack(staged_y_, BitsOf(c.out_dtype), static_cast<uint8_t*>(laid.y));
    return error;
  }

 private:
  // A row whose blocks have scales of their own is one with a scale for each column.
  std::string ExecuteRows(const Placed& placed, const RunContext& context) {
    const Case& c = *placed.problem;
    if (!HasElementBlocks(c)) return ExecuteWhole(placed, context);
    const auto columns = static_cast<size_t>(c.N), block = static_cast<size_t>(c.x_block);
    const auto blocks = static_cast<size_t>(ElementBlocks(c));
    std::vector<float> scales(columns);
    std::vector<int32_t> zero_points(columns);
    for (size_t m = 0; m < static_cast<size_t>(c.M); ++m) {
      for (size_t n = 0; n < columns; ++n) {
        scales[n] = placed.scale[m * blocks + n / block];
        zero_points[n] = placed.zero_point[m * blocks + n / block];
      }
      // One side is float32, the other codes of a byte.
      const bool quantizes = c.op == Op::kQuantize;
      const auto row = static_cast<int64_t>(m);
      const auto* const from = static_cast<const uint8_t*>(placed.x);
      const ConstMatrix x{from + row * placed.x_stride * (quantizes ? 4 : 1), TypeOf(c.x.dtype()),
                          1, c.N, c.N};
      const MutableMatrix y{
          static_cast<uint8_t*>(placed.y) + row * placed.y_stride * (quantizes ? 1 : 4),
          TypeOf(c.out_dtype), 1, c.N, c.N};
      const kernels::Status status =
          quantizes ? kernels::Quantize(x, scales, zero_points, {c.out_min, c.out_max, c.relu}, y)
                    : kernels::Dequantize(x, scales, zero_points, y);
      if (!status.ok()) return status.error;
    }
    return "";
  }

  std::string ExecuteWhole(const Placed& placed, const RunContext& context) {
    const Case& c = *placed.problem;
    if (c.op == Op::kCast) {
      return kernels::Cast({placed.x, FloatTypeOf(c.x.dtype()), c.M, c.N, placed.x_stride},
                           static_cast<kernels::CastRounding>(c.rounding),
                           static_cast<kernels::CastOverflow>(c.overflow),
                           {placed.y, FloatTypeOf(c.out_dtype), c.M, c.N, placed.y_stride})
          .error;
    }
    const Rows x_rows = RowsOf(c.x.shape());
    const ConstMatrix x{placed.x, TypeOf(c.x.dtype()), x_rows.count, x_rows.columns,
                        placed.x_stride};
    const ConstMatrix w{placed.w, TypeOf(c.w.dtype()), c.M, RowsOf(c.w.shape()).columns,
                        placed.w_stride};
    const MutableMatrix y{placed.y, TypeOf(c.out_dtype), c.M, c.N, placed.y_stride};
    const OutputRange range{c.out_min, c.out_max, c.relu};
    const auto of = QuantizationOf;
    scratch_.Drop();
    multipliers_.Drop();
    x_blocks_.Drop();
    w_blocks_.Drop();
    if (NBitsOf(weights_) != 0) return NBitsLinear(placed, context, x, y);
    if (c.x_block != 0) return BlockLinear(placed, context, y);
    switch (c.op) {
      case Op::kQuantize:
        return kernels::Quantize(x, placed.scale, placed.zero_point, range, y).error;
      case Op::kDequantize: return kernels::Dequantize(x, placed.scale, placed.zero_point, y).error;
      case Op::kRequantize:
        return kernels::Requantize(x, PlaceMultipliers(placed, context), placed.zero_point[0],
                                   range, y, RequantizationOf(c.requant))
            .error;
      case Op::kRescale: return kernels::RescaleCodes(x, of(c.x_q), of(c.out_q), range, y).error;
      case Op::kAdd: return kernels::Add(x, of(c.x_q), w, of(c.w_q), of(c.out_q), range, y).error;
      case Op::kSub: return kernels::Sub(x, of(c.x_q), w, of(c.w_q), of(c.out_q), range, y).error;
      case Op::kMul: return kernels::Mul(x, of(c.x_q), w, of(c.w_q), of(c.out_q), range, y).error;
      case Op::kMaxPool:
        return kernels::MaxPool(ImagesOf(placed), PoolShapeOf(c), c.out_q.zero_point[0], range, y)
            .error;
      case Op::kAvgPool:
        return kernels::AvgPool(ImagesOf(placed), PoolShapeOf(c), c.window.count_include_pad,
                                of(c.x_q), of(c.out_q), range, y)
            .error;
      case Op::kGlobalAvgPool:
        return kernels::GlobalAvgPool(ImagesOf(placed), of(c.x_q), of(c.out_q), range, y).error;
      case Op::kLinear: return Linear(placed, context, x, y);
      case Op::kConv2d:
      case Op::kDepthwise: return Conv(placed, context, y);
      case Op::kConcat: {
        const std::array<kernels::ConcatInput, 2> inputs{{{x, of(c.x_q)}, {w, of(c.w_q)}}};
        return kernels::Concat(inputs, of(c.out_q), range, y).error;
      }
      case Op::kTable:
        return WithPacked(c, context,
                          [&](const Packed& packed) { return packed.table.Run(x, y).error; });
      case Op::kSoftmax:
        return WithPacked(c, context, [&](const Packed& packed) {
          return packed.softmax.Run(x, range, y).error;
        });
      case Op::kChooseQParams: return ChooseQParams(placed, context);
      case Op::kDynamicLinear: return DynamicLinear(placed, context, x, y);
      case Op::kCast: break;  // above
    }
    return "no native kernel has this operation";
  }

  std::string TouchedOutside() const override {
    if (!scratch_.OutsideIntact()) return "the scratch memory";
    if (!x_blocks_.OutsideIntact() || !w_blocks_.OutsideIntact()) return "the blocks";
    return multipliers_.OutsideIntact() ? "" : "the multipliers";
  }

  // The kernels take weights of whole bytes: narrower ones are unpacked first.
  Placed WithWholeBytes(Placed placed) {
    const auto unpack = [this](const Tensor& codes, const void*& at) {
      if (!IsSmallCode(codes.dtype())) return;
      unpacked_.resize(static_cast<size_t>(codes.size()));
      kernels::Unpack({static_cast<const uint8_t*>(at), BitsOf(codes.dtype()),
                       InfoOf(codes.dtype()).format == DTypeRow::Format::kSigned},
                      unpacked_);
      at = unpacked_.data();
    };
    unpack(placed.problem->x, placed.x);  // who has one of these has no w of fewer bits
    unpack(placed.problem->w, placed.w);
    return placed;
  }

  bool Fuses() const {
    const kernels::ScopedTarget target(target_);
    return kernels::FusesMultiplyAdd();
  }
  // Packs again where the environment of the run must not matter to packing either.
  template <class Run>
  std::string WithPacked(const Case& c, const RunContext& context, const Run& run) const {
    if (context.rounding == Rounding::kNearest && !context.flush_denormals) {
      const Packed& packed = packed_.For(c);
      return packed.status.ok() ? run(packed) : packed.status.error;
    }
    const Packed packed = Pack(c);
    return packed.status.ok() ? run(packed) : packed.status.error;
  }

  // Weights as rows of K, for linear and convolutions.
  static kernels::LinearParams ParamsOf(const Placed& placed) {
    const Case& c = *placed.problem;
    return {.weights = {placed.w, TypeOf(c.w.dtype()), c.N, c.K, placed.w_stride},
            .input_type = TypeOf(c.x.dtype()),
            .x_scale = c.x_q.scale[0],
            .x_zero_point = c.x_q.zero_point[0],
            .w_scale = placed.scale,
            .w_zero_point = placed.zero_point,
            .bias = placed.bias,
            .bias_i32 = placed.bias_i32,
            .output_type = TypeOf(c.out_dtype),
            .y_scale = c.out_q.scale[0],
            .y_zero_point = c.out_q.zero_point[0],
            .range = {c.out_min, c.out_max, c.relu},
            .requantization = RequantizationOf(c.requant)};
  }

  // Runs a packed layer as often, and from as many threads at once, as `context` asks. The other
  // callers have outputs and scratch of their own; an answer that differs from y replaces y, so
  // that a comparison of y sees it.
  template <class Packed, class Input>
  std::string RunPacked(const Packed& packed, const Placed& placed, const Input& x,
                        const MutableMatrix& y, std::span<uint8_t> scratch, Pool& pool,
                        const RunContext& context) const {
    std::string error;
    for (int i = 0; i < context.calls && error.empty(); ++i)
      error = packed.Run(x, y, scratch, &pool).error;
    if (context.callers == 1 || !error.empty() || y.rows * y.columns == 0) return error;
    const DType dtype = placed.problem->out_dtype;
    const Rows rows{y.rows, y.columns};
    struct Callers {
      const Packed& packed;
      const Input& x;
      const MutableMatrix& y;
      const std::string& target;  // of this thread only, so each caller sets it
      std::vector<std::vector<uint8_t>> outputs;
    } callers{packed, x, y, target_, {}};
    callers.outputs.assign(static_cast<size_t>(context.callers),
                           std::vector<uint8_t>(ScatteredBytes(dtype, rows.count, rows.columns,
                                                               y.row_stride - y.columns),
                                                context.poison));
    RunOnThreads(
        context.callers, context.callers,
        [](void* argument, int64_t caller) {
          auto& it = *static_cast<Callers*>(argument);
          const kernels::ScopedTarget target(it.target);
          MutableMatrix own = it.y;
          own.data = it.outputs[static_cast<size_t>(caller)].data();
          (void)it.packed.Run(it.x, own);  // an output left unwritten differs from y
        },
        &callers);
    for (const std::vector<uint8_t>& output : callers.outputs) {
      if (TakeIfDifferent(output.data(), dtype, rows, y.row_stride, static_cast<uint8_t*>(y.data)))
        break;
    }
    return "";
  }

  std::string Linear(const Placed& placed, const RunContext& context, const ConstMatrix& x,
                     const MutableMatrix& y) {
    kernels::PackedLinear packed;
    const kernels::Status status = kernels::PackedLinear::Pack(ParamsOf(placed), &packed);
    if (!status.ok()) return status.error;
    Pool pool(context.threads);
    const size_t bytes = packed.ScratchBytes(x.rows, &pool);
    uint8_t* const scratch = scratch_.Prepare(bytes, 0, 1, context);
    return RunPacked(packed, placed, x, y, {scratch, bytes}, pool, context);
  }

  // By the packed matrix, and each output once more as a dot product, which has the same bits.
  std::string BlockLinear(const Placed& placed, const RunContext& context, const MutableMatrix& y) {
    using kernels::BlockFormat;
    const Case& c = *placed.problem;
    const bool nibbles = BitsOf(c.w.dtype()) == 4;
    // s4 codes are of 0 what u4 codes are of 8.
    const uint8_t flip = c.w.dtype() == DType::kS4 ? 8 : 0;
    const int64_t count = RowBlocks(c);
    const auto blocks = [&](GuardedBuffer& buffer, BlockFormat format, int64_t rows,
                            const void* codes, int64_t stride, std::span<const float> scales) {
      const int64_t row_bytes = count * BlockBytes(format);
      uint8_t* const to = buffer.Prepare(static_cast<size_t>(rows * row_bytes), 0, 1, context);
      const bool of_w = format == BlockFormat::kQ4_0;
      std::vector<uint8_t> row(static_cast<size_t>(c.K));
      for (int64_t i = 0; i < rows; ++i) {
        std::copy_n(static_cast<const uint8_t*>(codes) + i * stride, c.K, row.begin());
        if (of_w)
          std::ranges::transform(row, row.begin(), [&](uint8_t code) {
            return static_cast<uint8_t>((code ^ flip) & 15);
          });
        WriteBlocks(format, row.data(), c.K, of_w ? 8 : 0, scales.data() + i * count,
                    to + i * row_bytes);
      }
      return kernels::ConstBlocks{to, format, rows, count, row_bytes};
    };
    const auto stored = [&](GuardedBuffer& buffer, BlockFormat format, int64_t rows,
                            const PackedRows& from) {
      const auto size = static_cast<size_t>(rows * from.row_bytes);
      uint8_t* const to = buffer.Prepare(size, 0, 1, context);
      std::ranges::copy(from.bytes, to);
      return kernels::ConstBlocks{to, format, rows, PackedDepth(kQ4K, c.K) / kQ4K.super_block,
                                  from.row_bytes};
    };
    kernels::ConstBlocks x, w;
    if (weights_ == Weights::kQ4K) {
      x = stored(x_blocks_, BlockFormat::kQ8_K, c.M, PackedActivations(kQ4K, c));
      w = stored(w_blocks_, BlockFormat::kQ4_K, c.N, PackedWeights(kQ4K, c));
    } else {
      x = blocks(x_blocks_, BlockFormat::kQ8_0, c.M, placed.x, placed.x_stride, c.x_q.scale);
      w = blocks(w_blocks_, nibbles ? BlockFormat::kQ4_0 : BlockFormat::kQ8_0, c.N, placed.w,
                 placed.w_stride, placed.scale);
    }
    kernels::PackedBlockLinear packed;
    const kernels::Status status = kernels::PackedBlockLinear::Pack(w, &packed);
    if (!status.ok()) return status.error;
    Pool pool(context.threads);
    const size_t bytes = packed.ScratchBytes(c.M, &pool);
    uint8_t* const scratch = scratch_.Prepare(bytes, 0, 1, context);
    std::string error = RunPacked(packed, placed, x, y, {scratch, bytes}, pool, context);
    for (int64_t i = 0; error.empty() && i < c.M * c.N; ++i) {
      const float of_matrix = static_cast<const float*>(y.data)[i / c.N * y.row_stride + i % c.N];
      const auto* const row = static_cast<const uint8_t*>(x.data) + i / c.N * x.row_stride;
      const auto* const channel = static_cast<const uint8_t*>(w.data) + i % c.N * w.row_stride;
      float dot = 0;
      error = kernels::BlockDot(w.format, channel, row, w.blocks, &dot).error;
      if (error.empty() && std::bit_cast<uint32_t>(dot) != std::bit_cast<uint32_t>(of_matrix))
        error = "output " + std::to_string(i) + " is another one as a dot product";
    }
    return error;
  }

  // By the packed matrix, and each output once more as a layer of its own, which has the same bits.
  std::string NBitsLinear(const Placed& placed, const RunContext& context, const ConstMatrix& x,
                          const MutableMatrix& y) {
    const Case& c = *placed.problem;
    if (HasFloatX(c))
      return NBitsLinearOf(placed, context, x, y, [&](int64_t row) {
        return ConstMatrix{static_cast<const float*>(x.data) + row * x.row_stride, x.type, 1, c.K,
                           c.K};
      });
    const kernels::ConstCodedRows codes{static_cast<const int8_t*>(placed.x), c.M, c.K,
                                        placed.x_stride, c.x_q.scale.data()};
    return NBitsLinearOf(placed, context, codes, y, [&](int64_t row) {
      return kernels::ConstCodedRows{codes.codes + row * codes.row_stride, 1, c.K, c.K,
                                     codes.scales + row * RowBlocks(c)};
    });
  }
  template <class Input, class RowOfX>
  std::string NBitsLinearOf(const Placed& placed, const RunContext& context, const Input& x,
                            const MutableMatrix& y, const RowOfX& row_of_x) {
    const Case& c = *placed.problem;
    const NBitsInputs inputs = NBitsInputsOf(c);
    uint8_t* const codes = w_blocks_.Prepare(inputs.codes.size(), 0, 1, context);
    std::ranges::copy(inputs.codes, codes);
    const auto part = [](const auto& list, int64_t n, int64_t rows) {
      return list.empty() ? nullptr : list.data() + std::ssize(list) / rows * n;
    };
    const auto pack = [&](int64_t first, int64_t count, kernels::PackedNBitsLinear& packed) {
      const int64_t bytes = std::ssize(inputs.codes) / std::max<int64_t>(c.N, 1);
      return kernels::PackedNBitsLinear::Pack({.bits = BitsOf(c.w.dtype()),
                                               .channels = count,
                                               .depth = c.K,
                                               .block = NBitsBlock(c),
                                               .codes = codes + first * bytes,
                                               .scales = part(inputs.scales, first, c.N),
                                               .zero_points = part(inputs.zero_points, first, c.N),
                                               .bias = part(placed.bias, first, c.N)},
                                              &packed)
          .error;
    };
    kernels::PackedNBitsLinear packed;
    std::string error = pack(0, c.N, packed);
    if (!error.empty()) return error;
    Pool pool(context.threads);
    const size_t bytes = packed.ScratchBytes(c.M, &pool);
    uint8_t* const scratch = scratch_.Prepare(bytes, 0, 1, context);
    error = RunPacked(packed, placed, x, y, {scratch, bytes}, pool, context);
    for (int64_t n = 0; n < c.N && c.M != 0 && error.empty(); ++n) {
      error = pack(n, 1, packed);
      for (int64_t m = 0; m < c.M && error.empty(); ++m) {
        const float of_matrix = static_cast<const float*>(y.data)[m * y.row_stride + n];
        float alone = 0;
        error = packed.Run(row_of_x(m), {&alone, ElementType::kF32, 1, 1, 1}).error;
        const bool both_nan = alone != alone && of_matrix != of_matrix;
        if (error.empty() && !both_nan &&
            std::bit_cast<uint32_t>(alone) != std::bit_cast<uint32_t>(of_matrix))
          error = "output " + std::to_string(m * c.N + n) + " is another one by itself";
      }
    }
    return error;
  }

  std::string DynamicLinear(const Placed& placed, const RunContext& context, const ConstMatrix& x,
                            const MutableMatrix& y) {
    const Case& c = *placed.problem;
    kernels::PackedDynamicLinear packed;
    const kernels::Status status = kernels::PackedDynamicLinear::Pack(
        {.weights = {placed.w, TypeOf(c.w.dtype()), c.N, c.K, placed.w_stride},
         .w_scale = placed.scale,
         .w_zero_point = placed.zero_point,
         .bias = placed.bias,
         .relu = c.relu,
         .per_row = c.x_gran == Granularity::kRow,
         .qparams = ObserverParamsOf(c)},
        &packed);
    if (!status.ok()) return status.error;
    Pool pool(context.threads);
    const size_t bytes = packed.ScratchBytes(x.rows, &pool);
    uint8_t* const scratch = scratch_.Prepare(bytes, 0, 1, context);
    return RunPacked(packed, placed, x, y, {scratch, bytes}, pool, context);
  }

  std::string Conv(const Placed& placed, const RunContext& context, const MutableMatrix& y) {
    const Case& c = *placed.problem;
    kernels::PackedConv packed;
    const kernels::Status status = kernels::PackedConv::Pack({.layer = ParamsOf(placed),
                                                              .in_channels = c.window.in_c,
                                                              .groups = c.window.groups,
                                                              .window = WindowOf(c.window)},
                                                             &packed);
    if (!status.ok()) return status.error;
    const kernels::ConstImages x = ImagesOf(placed);
    Pool pool(context.threads);
    const size_t bytes = packed.ScratchBytes(x.batch, x.height, x.width, &pool);
    uint8_t* const scratch = scratch_.Prepare(bytes, 0, 1, context);
    return RunPacked(packed, placed, x, y, {scratch, bytes}, pool, context);
  }

  // Observes batch after batch into states in scratch memory. Scales and zero points follow from
  // the last states.
  std::string ChooseQParams(const Placed& placed, const RunContext& context) {
    const Case& c = *placed.problem;
    const Observer& o = c.observer;
    const bool histogram = o.kind == Observer::Kind::kHistogram;
    const auto columns = static_cast<size_t>(ChosenCount(c));
    const size_t code_bytes = c.codes ? static_cast<size_t>(c.N) : 0;
    const size_t state_bytes =
        histogram ? sizeof(kernels::HistogramState) : columns * sizeof(kernels::MinMaxState);
    uint8_t* const scratch = scratch_.Prepare(state_bytes + columns * sizeof(int32_t) + code_bytes,
                                              0, sizeof(int32_t), context);
    auto* const states = reinterpret_cast<kernels::MinMaxState*>(scratch);
    auto* const counts = reinterpret_cast<kernels::HistogramState*>(scratch);
    if (histogram) {
      new (counts) kernels::HistogramState();
    } else {
      std::uninitialized_value_construct_n(states, columns);
    }
    for (int64_t b = 0; b < c.x.shape()[0]; ++b) {
      const auto* const from = static_cast<const float*>(placed.x) + b * c.M * placed.x_stride;
      const ConstMatrix batch{from, ElementType::kF32, c.M, c.N, placed.x_stride};
      const kernels::Status status =
          histogram ? kernels::ObserveHistogram(batch, counts)
          : o.kind == Observer::Kind::kMinMax
              ? kernels::ObserveMinMax(batch, {states, columns})
              : kernels::ObserveMovingAverage(batch, o.averaging_constant, {states, columns});
      if (!status.ok()) return status.error;
    }
    const kernels::ObserverParams params = ObserverParamsOf(c);
    auto* const scale = static_cast<float*>(placed.y);
    auto* const zero_point = reinterpret_cast<int32_t*>(scratch + state_bytes);
    const kernels::Status status =
        histogram ? kernels::ChooseQParams(params, *counts, scale, zero_point)
                  : kernels::ChooseQParams(params, std::span(states, columns), {scale, columns},
                                           {zero_point, columns});
    std::copy_n(zero_point, columns,
                scale + (c.codes ? static_cast<int64_t>(columns) : placed.y_stride));
    if (!status.ok() || !c.codes) return status.error;
    return CodesBehind(placed, scale, zero_point, reinterpret_cast<uint8_t*>(zero_point + columns));
  }

  // Each row of each batch by its scale and zero point. `codes` has room for one row.
  static std::string CodesBehind(const Placed& placed, const float* scale,
                                 const int32_t* zero_point, uint8_t* codes) {
    const Case& c = *placed.problem;
    const auto* from = static_cast<const float*>(placed.x);
    float* to = static_cast<float*>(placed.y) + 2 * ChosenCount(c);
    for (int64_t row = 0; row < c.x.shape()[0] * c.M; ++row, to += c.N, from += placed.x_stride) {
      const int64_t m = c.per_channel ? row % c.M : 0;
      if (std::isinf(scale[m])) {  // x / infinity is 0
        std::fill_n(to, c.N, static_cast<float>(zero_point[m]));
        continue;
      }
      const kernels::Status status = kernels::Quantize(
          {from, ElementType::kF32, 1, c.N, c.N}, {scale + m, 1}, {zero_point + m, 1},
          {.min = 0, .max = 255}, {codes, ElementType::kU8, 1, c.N, c.N});
      if (!status.ok()) return status.error;
      std::copy_n(codes, c.N, to);
    }
    return "";
  }

  std::span<const kernels::Multiplier> PlaceMultipliers(const Placed& placed,
                                                        const RunContext& context) {
    const Case& c = *placed.problem;
    std::vector<kernels::Multiplier> list;
    for (const float scale : placed.scale) {
      list.push_back(c.multiplier.empty()
                         ? kernels::Multiplier{c.x_q.scale[0], scale, c.out_q.scale[0]}
                         : kernels::Multiplier{.numerator_a = scale});
    }
    const std::span<const kernels::Multiplier> span(list);
    uint8_t* const at =
        multipliers_.Prepare(span.size_bytes(), 0, alignof(kernels::Multiplier), context);
    if (!span.empty()) std::memcpy(at, span.data(), span.size_bytes());
    return {reinterpret_cast<const kernels::Multiplier*>(at), span.size()};
  }

  std::string name_;
  mutable PackedOnes packed_;
  std::string target_;
  Weights weights_;
  std::vector<uint8_t> unpacked_;  // x or weights of fewer than 8 bits
  std::vector<uint8_t> staged_y_;  // outputs of fewer, before they are packed
  GuardedBuffer scratch_;
  GuardedBuffer multipliers_;
  GuardedBuffer x_blocks_, w_blocks_;
};

// Names of targets (kernels/targets.h), to tell an instruction set that is not to be had from a
// misspelt one.
constexpr std::array<std::string_view, 29> kTargets{"avx2_vnni",
                                                    "sve2_128_i8mm",
                                                    "sve_256_i8mm",
                                                    "sve2_i8mm",
                                                    "sve_i8mm",
                                                    "neon_bf16_i8mm",
                                                    "neon_dot",
                                                    "avx10_2",
                                                    "avx3_spr",
                                                    "avx3_zen4",
                                                    "avx3_dl",
                                                    "avx3",
                                                    "avx2",
                                                    "sse4",
                                                    "ssse3",
                                                    "sse2",
                                                    "sve2_128",
                                                    "sve_256",
                                                    "sve2",
                                                    "sve",
                                                    "neon_bf16",
                                                    "neon",
                                                    "neon_without_aes",
                                                    "ppc10",
                                                    "ppc9",
                                                    "ppc8",
                                                    "rvv",
                                                    "emu128",
                                                    "scalar"};

std::vector<std::string> TargetNames() {
  std::vector<std::string> names;
  for (const std::string& target : kernels::SupportedTargets()) names.push_back(NameOf(target));
  return names;
}

std::vector<std::string> Names() {
  std::vector<std::string> names = TargetNames();
  names.insert(names.begin(), "native");
  for (const std::string_view ending : kEndings)
    if (!ending.empty()) names.push_back("native" + std::string(ending));
  return names;
}

std::unique_ptr<Subject> Make(const std::string& name) {
  const Weights weights = WeightsOf(name);
  const std::string_view of_target =
      std::string_view(name).substr(0, name.size() - EndingOf(weights).size());
  if (of_target == "native") {
    return std::make_unique<NativeSubject>(name, kernels::SupportedTargets().front(), weights);
  }
  constexpr std::string_view kPrefix = "native@";
  if (!of_target.starts_with(kPrefix)) return nullptr;
  const std::string wanted = Lower(of_target.substr(kPrefix.size()));
  std::string available;
  for (const std::string& target : kernels::SupportedTargets()) {
    if (Lower(target) == wanted || VariantOf(target) == wanted)
      return std::make_unique<NativeSubject>(NameOf(target, weights), target, weights);
    available += (available.empty() ? "" : ", ") + VariantOf(target);
  }
  if (std::ranges::count(kTargets, wanted) == 0) return nullptr;
  throw Unavailable("subject '" + name + "': this processor or build has no " + wanted +
                    ", it has " + available);
}

std::vector<std::string> Expand(const std::string& pattern) {
  std::vector<std::string> names;
  const std::string lower = Lower(pattern), all = "native@all";
  const std::string_view ending = EndingOf(WeightsOf(lower));
  if (lower != all + std::string(ending)) return names;
  for (const std::string& name : TargetNames()) names.push_back(name + std::string(ending));
  return names;
}

}  // namespace

SubjectKind NativeSubjects() {
  return {
      "native",
      "the kernels of this project; @TARGET forces an instruction set, @all is each; +q4_k: Q4_K, "
      "+nbits4, +nbits8: MatMulNBits",
      "",
      Names,
      Make,
      Expand};
}

}  // namespace qualm
