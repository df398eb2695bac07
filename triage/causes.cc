// SPDX-License-Identifier: Apache-2.0
// The table of causes: AllCauses(). The small functions that its rows name stand before it, stage
// by stage. "The subject" and whose arithmetic it is come before a row's sentence in
// attribution.cc.
#include "triage/causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/float_format.h"
#include "core/slice.h"
#include "core/status.h"
#include "oracles/exact/exact.h"
#include "oracles/headroom/headroom.h"
#include "triage/cause_families.h"
#include "triage/stages.h"

namespace qualm::triage {
namespace {

// ---- Where a cause applies.

bool Always(const Case&) { return true; }

template <Op... kOps>
bool Is(const Case& c) {
  return ((c.op == kOps) || ...);
}

template <bool (*kHas)(Op op)>
bool Of(const Case& c) {
  return kHas(c.op);
}

bool ChoosesScales(const Case& c) { return RowOf(c.op).dynamic; }
bool Pairs(const Case& c) {
  return headroom::HasPairs(c) || (ChoosesScales(c) && c.w.dtype() == DType::kS8);
}
bool Groups(const Case& c) { return c.window.groups > 1; }
// A float bias of an operation that could also have an int32 bias.
bool HasBias(const Case& c) { return c.bias.has_value() && RowOf(c.op).bias_i32; }
bool ChoosesForRows(const Case& c) { return c.x_gran == Granularity::kRow && c.M > 1; }
bool Quantizes(const Case& c) { return c.op == Op::kQuantize || ChoosesScales(c) || c.codes; }
bool CodesOfInput(const Case& c) { return IsCode(c.x.dtype()); }
template <DType kType>
bool InputOf(const Case& c) {
  return c.x.dtype() == kType && HasXQParams(c);
}
bool OutputsOfS8(const Case& c) { return c.out_dtype == DType::kS8 && HasOutQParams(c.op); }
// A depthwise convolution with several output channels of each input channel.
bool HasMultiplier(const Case& c) {
  return c.op == Op::kDepthwise && c.window.groups > 1 && c.N > c.window.groups;
}
bool Weights(const Case& c) { return !c.w.empty(); }
bool HasCodesOut(const Case& c) { return IsCode(c.out_dtype); }
bool SumsToCodes(const Case& c) {
  return HasSums(c) && IsCode(c.out_dtype) && c.requant == Requant::kExact;
}

// The output, or x of dynamic_linear, or the codes of choose_qparams: a real value rounded once to
// a code. The other requantization modes round in several steps, and the causes about that one
// rounding do not apply to them.
bool RoundsReal(const Case& c) {
  const bool to_output = IsCode(c.out_dtype) && HasOutQParams(c.op);
  return (to_output || ChoosesScales(c) || c.codes) && c.requant == Requant::kExact;
}
// The rounding happens while the case runs; a table is rounded in advance.
bool Converts(const Case& c) { return RoundsReal(c) && !RowOf(c.op).function; }
// And the codes of the output have the other sign than those of the input.
template <DType kFrom>
bool ChangesSign(const Case& c) {
  return c.x.dtype() == kFrom && c.out_dtype != kFrom && IsCode(c.out_dtype) && Converts(c);
}
// The operation multiplies an integer by scales.
bool Multiplies(const Case& c) { return Converts(c) && RowOf(c.op).x_qparams; }

bool Observes(const Case& c) {
  return RowOf(c.op).observer && c.observer.kind != Observer::Kind::kHistogram && !IsMx(c.rule);
}

bool ChoosesQParams(const Case& c) { return Observes(c) || ChoosesScales(c); }

bool ObservesOneValue(const Case& c) {
  if (!Observes(c) || c.x.empty()) return false;
  const auto x = c.x.as<float>();
  return std::ranges::adjacent_find(x, std::not_equal_to()) == x.end();
}

bool ChoosesMx(const Case& c) { return IsMx(c.rule); }

// Parameters that every rule takes: min_max, u8, all codes, not symmetric, no reduce_range.
bool ChoosesByAnyRule(const Case& c) { return RowOf(c.op).rule && c.observer == Observer{}; }

// ---- How a cause changes the stages.

// The class of the hook tells among which hooks of the stages it stands.
template <auto kHook, auto kValue>
bool Set(Stages& s) {
  const auto set = [](auto& hooks) {
    if constexpr (requires { hooks.*kHook; }) hooks.*kHook = kValue;
  };
  if constexpr (requires(SumSteps steps) { steps.*kHook; }) set(s.Sums());
  set(s), set(s.pool), set(s.softmax), set(s.choice), set(s.codes);
  return true;
}

template <QParamsRule kRule>
bool SetRule(Stages& s) {
  return Replace(s.c.rule, kRule);
}

// ---- Operands.

float WithoutDenormal(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

bool FlushDenormalInputs(Stages& s) {
  bool changes = false;
  for (float& x : s.c.x.as<float>()) {
    if (!std::isnan(x)) changes |= Replace(x, WithoutDenormal(x));
  }
  return changes;
}

bool FlushDenormals(Stages& s) {
  if (s.c.op != Op::kQuantize) return Set<&Stages::finish, WithoutDenormal>(s);
  bool changes = false;
  int64_t i = 0;
  for (float& x : s.c.x.as<float>()) {
    const float scale = WithoutDenormal(s.c.out_q.scale_at(i++ % s.c.N));
    if (std::isnan(x)) continue;
    float value = WithoutDenormal(x);
    // x/0 is infinite; the conversion of 0/0 gives the smallest integer.
    if (scale == 0) value = value > 0 ? INFINITY : -INFINITY;
    changes |= Replace(x, value);
  }
  return changes;
}

// Of a product with the smallest denormal in the place of any other one only the sign is left.
bool FlushDenormalScales(Stages& s) {
  bool changes = false;
  for (float& scale : s.c.x_q.scale)
    if (WithoutDenormal(scale) == 0) changes |= Replace(scale, 0x1p-149f);
  return Set<&Stages::finish, WithoutDenormal>(s) && changes;
}

template <auto... kTensors>
bool ReadWithOtherSign(Stages& s) {
  ((s.c.*kTensors = OtherSign(s.c.*kTensors)), ...);
  return true;
}

bool PackedWeights(const Case& c) { return BitsOf(c.w.dtype()) < 8; }

// Weight i is the one at from(i, in_byte, K), where so many share a byte and K are in a row. Bits
// that no weight has are 0.
template <int64_t (*kFrom)(int64_t i, int64_t in_byte, int64_t K)>
bool ReadPacked(Stages& s) {
  const Tensor packed = s.c.w;
  const int64_t in_byte = 8 / BitsOf(packed.dtype());
  for (int64_t i = 0; i < packed.size(); ++i) {
    const int64_t from = kFrom(i, in_byte, s.c.K);
    s.c.w.SetInt(i, from < packed.size() ? packed.IntAt(from) : 0);
  }
  return s.c.w != packed;
}

// As a kernel does that takes the high half of a byte first.
int64_t ReversedInByte(int64_t i, int64_t in_byte, int64_t) {
  return i / in_byte * in_byte + in_byte - 1 - i % in_byte;
}

// The byte is found by the place in the whole tensor, the part of it by the place in the row: the
// two differ where a row does not end with a byte.
int64_t PartOfByteByColumn(int64_t i, int64_t in_byte, int64_t K) {
  return i / in_byte * in_byte + i % K % in_byte;
}

// Each row begins at n * (K / 2) bytes, as if K filled whole bytes.
int64_t RowsOfWholeBytes(int64_t i, int64_t in_byte, int64_t K) {
  return i / K * (K - K % in_byte) + i % K;
}

bool SwapParameters(Stages& s) {
  std::swap(s.c.x_q, s.c.w_q);
  return s.c.x_q != s.c.w_q;
}

// ---- Geometry and padding.

// The numbers of a window along one axis.
struct Axis {
  int64_t Window::* in;
  int64_t Window::* kernel;
  int64_t Window::* stride;
  int64_t Window::* dilation;
  int64_t Window::* pad_before;
  int64_t Window::* pad_after;
  int64_t (Window::*outputs)() const;
};
constexpr Axis kRows{&Window::in_h,    &Window::kernel_h,   &Window::stride_h, &Window::dilation_h,
                     &Window::pad_top, &Window::pad_bottom, &Window::out_h};
constexpr Axis kColumns{&Window::in_w,       &Window::kernel_w, &Window::stride_w,
                        &Window::dilation_w, &Window::pad_left, &Window::pad_right,
                        &Window::out_w};

// Gives the window so many outputs along the axis. Where they reach beyond the padding, it grows,
// by more than they reach. Where there would be more outputs, what only those reach goes: first of
// the padding, then of the image. A single output needs no stride that comes to a second one.
void MakeOutputs(Window& v, const Axis& axis, int64_t outputs) {
  if ((v.*axis.outputs)() < outputs)
    v.*axis.pad_after = outputs * v.*axis.stride + v.*axis.kernel * v.*axis.dilation;
  while ((v.*axis.outputs)() > outputs && v.*axis.pad_after > 0) --(v.*axis.pad_after);
  if (outputs == 1 && (v.*axis.outputs)() > 1) v.*axis.stride = v.*axis.pad_before + v.*axis.in;
  while ((v.*axis.outputs)() > outputs) --(v.*axis.in);
}

// Edits the window of a kernel that makes as many outputs as before; false if no case is like that.
bool EditWindow(Stages& s, void (*edit)(Window& window)) {
  const Case before = s.c;
  Window v = before.window;
  edit(v);
  MakeOutputs(v, kRows, before.window.out_h());
  MakeOutputs(v, kColumns, before.window.out_w());
  s.c = slice::Crop(before, 0, before.window.in_h - v.in_h, 0, before.window.in_w - v.in_w);
  s.c.window = v;
  DeriveSizes(&s.c);
  return v != before.window && s.c.output_shape() == before.output_shape() && Validate(s.c).empty();
}

// Takes one number of the window for another one too.
template <auto kTo, auto kFrom>
bool TakeForBoth(Stages& s) {
  return EditWindow(s, [](Window& v) { v.*kTo = v.*kFrom; });
}

// One number for both sides of an axis: half of their sum, `kMore` before it is halved. What is
// behind the image the other half.
template <int kMore, auto kBefore, auto kAfter>
void HalveSides(Window& v) {
  const int64_t both = v.*kBefore + v.*kAfter;
  v.*kBefore = (both + kMore) / 2;
  v.*kAfter = both - v.*kBefore;
}
template <int kMore>
bool HalveRows(Stages& s) {
  return EditWindow(s, HalveSides<kMore, &Window::pad_top, &Window::pad_bottom>);
}
template <int kMore>
bool HalveColumns(Stages& s) {
  return EditWindow(s, HalveSides<kMore, &Window::pad_left, &Window::pad_right>);
}
template <int kMore>
bool HalveAll(Stages& s) {
  return EditWindow(s, [](Window& v) {
    HalveSides<kMore, &Window::pad_top, &Window::pad_bottom>(v);
    HalveSides<kMore, &Window::pad_left, &Window::pad_right>(v);
  });
}

void IgnoreDilation(Window& v) { v.dilation_h = v.dilation_w = 1; }

// Each element of the image from another place; false where none has changed.
bool EditPixels(Stages& s, const std::function<int64_t(const Window& window, int64_t i)>& from) {
  const Tensor old = s.c.x;
  for (int64_t i = 0; i < old.size(); ++i) s.c.x.CopyFrom(old, from(s.c.window, i), 1, i);
  return s.c.x != old;
}

bool IsGrouped(const Case& c) {
  return IsConv(c.op) && c.window.groups > 1 && c.window.in_c % c.window.groups == 0;
}

template <auto kNumber>
void IgnoreNumber(Window& v) {
  v.*kNumber = 1;
}

int64_t NotBeyondHeight(const Window& window, int64_t, const Tap& tap) {
  return tap.s < window.kernel_h ? tap.x_row : -1;
}

void IncludeInMaximum(PoolWindow& window, int64_t code) {
  if (window.inside < window.positions) window.largest = std::max(window.largest, code);
}

void CodeZeroUnderWindow(PoolWindow& window) {
  window.terms = window.with_padding;
  IncludeInMaximum(window, 0);
}

bool PadWithCodeZero(Stages& s) {
  return IsConv(s.c.op) ? Set<&SumSteps::padding_code, 0>(s)
                        : Set<&PoolHooks::window_padding, CodeZeroUnderWindow>(s);
}

void ZeroPointInMaximum(PoolWindow& window) {
  if (window.inside < window.with_padding)
    window.largest = std::max<int64_t>(window.largest, window.zero_point);
}
void ZeroPointBesideInMaximum(PoolWindow& window) { IncludeInMaximum(window, window.zero_point); }

// A tap in the padding reads the zero point of s8 codes as a uint8.
bool PadWithUnsignedZeroPoint(Stages& s) {
  const int32_t zero_point = s.c.x_q.zero_point_at(0);
  if (zero_point >= 0 || zero_point < INT8_MIN) return false;
  s.Sums().padding_code = zero_point + 256;
  return true;
}

// The taps of each input channel in an int16 of its own, which wraps.
bool TapsInInt16(Stages& s) {
  const auto channels = static_cast<size_t>(s.c.window.in_c / s.c.window.groups);
  s.Sums().add = [channels](DType, Codes x, Codes w) {
    int64_t sum = 0;
    for (size_t channel = 0; channel < channels; ++channel) {
      int64_t of_taps = 0;
      for (size_t k = channel; k < x.size(); k += channels) of_taps += int64_t{x[k]} * w[k];
      sum += Wrapped<int16_t>(of_taps);
    }
    return sum;
  };
  return true;
}

// Beyond the last channel it reads the last ones, or the first ones.
template <bool kModulo>
bool GroupStepOfOutputs(Stages& s) {
  return EditPixels(s, [outputs = s.c.N / s.c.window.groups](const Window& v, int64_t i) {
    const int64_t channel = i % v.in_c, of_group = v.in_c / v.groups;
    const int64_t first = channel / of_group * outputs, at = channel % of_group;
    return i - channel +
           (kModulo ? (first + at) % v.in_c : std::min(first, v.in_c - of_group) + at);
  });
}

template <auto kPositions>
void DivideBy(PoolWindow& window) {
  window.divisor = std::max<int64_t>(window.*kPositions, 1);
}

// ---- Weights in blocks.

// Takes the scale of the entry `kStep` places behind, where there is one.
template <int64_t kStep>
bool ScaleOfBlockBeside(Stages& s) {
  return Reindex(s.c.w_q.scale, [](int64_t i, int64_t count) {
    return i + kStep < 0 || i + kStep >= count ? i : i + kStep;
  });
}

// In each row, what block kFrom(block) has of kList, scales or zero points; where the row has no
// such block, its own.
template <auto kQ, auto kList, int64_t (*kFrom)(int64_t block)>
bool OfBlockInRow(Stages& s) {
  const int64_t blocks = RowBlocks(s.c);
  return Reindex(s.c.*kQ.*kList, [blocks](int64_t i, int64_t) {
    const int64_t block = i % blocks, from = kFrom(block);
    return from < 0 || from >= blocks ? i : i - block + from;
  });
}
int64_t BlockBehind(int64_t block) { return block + 1; }
int64_t BlockBefore(int64_t block) { return block - 1; }
int64_t OtherBlockOfPair(int64_t block) { return block ^ 1; }
int64_t FirstBlock(int64_t) { return 0; }
template <int64_t (*kFrom)(int64_t block)>
bool ParametersOfBlockInRow(Stages& s) {
  const bool scales = OfBlockInRow<&Case::w_q, &QParams::scale, kFrom>(s);
  return OfBlockInRow<&Case::w_q, &QParams::zero_point, kFrom>(s) || scales;
}
// With one row the one reads the same as the other.
bool HasOneRow(const Case& c) { return c.N == 1; }

bool XHasBlocks(const Case& c) { return c.x_block != 0 && c.M > 0 && RowBlocks(c) > 1; }

bool XScalesOfRow0(Stages& s) {
  const int64_t blocks = RowBlocks(s.c);
  return Reindex(s.c.x_q.scale, [blocks](int64_t i, int64_t) { return i % blocks; });
}

// Linear with f32 outputs, both of whose operands have blocks, as those of llama.cpp.
bool AddsScaledBlocks(const Case& c) {
  return c.op == Op::kLinear && c.w_block != 0 && c.x_block != 0 && c.out_dtype == DType::kF32 &&
         !HasFloatX(c);
}

bool IsSubnormalHalf(float scale) { return scale != 0 && std::abs(scale) < 0x1p-14f; }

bool FlushScales(Stages& s) {
  bool changes = false;
  for (QParams* q : {&s.c.w_q, &s.c.x_q}) {
    for (float& scale : q->scale) {
      if (!IsSubnormalHalf(scale)) continue;
      scale = 0;
      changes = true;
    }
  }
  return changes;
}

double InHalf(double value) { return DecodeFloat(DType::kF16, EncodeFloat(DType::kF16, value)); }

// The scale of a block of weights becomes the rounded product for the row, that of x becomes 1.
bool RoundProductsOfScales(Stages& s) {
  s.edit_row = [](Case& c, int64_t) {
    for (int64_t n = 0; n < c.N; ++n) {
      for (int64_t k = 0; k < c.K; k += c.w_block) {
        float& scale = c.w_q.scale[WEntry(c, n, k)];
        const double product =
            static_cast<double>(scale) * static_cast<double>(c.x_q.scale[XEntry(c, 0, k)]);
        scale = static_cast<float>(std::clamp(InHalf(product), -65504.0, 65504.0));
      }
    }
    std::ranges::fill(c.x_q.scale, 1.0f);
    return true;
  };
  return true;
}

bool HasShortBlock(const Case& c) { return c.w_block != 0 && c.K % c.w_block != 0; }

// The real values of the weights in the last block are 0.
bool DropLastBlock(Stages& s) {
  Case& c = s.c;
  for (int64_t n = 0; n < c.N; ++n) {
    c.w_q.zero_point[WEntry(c, n, c.K - 1)] = 0;
    for (int64_t k = (c.K - 1) / c.w_block * c.w_block; k < c.K; ++k) c.w.SetInt(n * c.K + k, 0);
  }
  return true;
}

// ---- The lowest code of s8, which has no negative in 8 bits.

bool MultipliesLowest(const Case& c) {
  if (!HasSums(c.op) || c.x.dtype() != DType::kS8) return false;
  if (c.w_block == 0 && InfoOf(c.w.dtype()).format != DTypeRow::Format::kSigned) return false;
  return std::ranges::count(c.x.as<int8_t>(), INT8_MIN) != 0;
}

// By what the sum moves where a kernel multiplies |w| by x with the sign of w, in 8 bits.
int64_t MovedByLowest(Codes x, Codes w, int32_t w_zero_point) {
  int64_t moved = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    const int64_t weight = int64_t{w[k]} - w_zero_point;
    if (x[k] == INT8_MIN && weight < 0) moved += 2 * -int64_t{INT8_MIN} * weight;
  }
  return moved;
}

void MoveByLowest(SumTerms& terms) { terms.products += MovedByLowest(terms.x, terms.w, 0); }

// As a loop that takes two blocks at a time, and what is left in another way.
bool LoseSignOfLowestInPairs(Stages& s) {
  s.block_moved = MovedByLowest;
  s.moves_whole_pairs = true;
  return RowBlocks(s.c) > 1;
}
bool MultipliesLowestInBlocks(const Case& c) { return c.w_block != 0 && MultipliesLowest(c); }

bool LoseSignOfLowest(Stages& s) {
  if (s.c.w_block == 0) return Set<&SumSteps::edit_terms, MoveByLowest>(s);
  s.block_moved = MovedByLowest;
  s.moves_parts = true;
  return true;
}

// ---- Tail.

template <int64_t kLanes>
bool HasTail(const Case& c) {
  if ((c.op != Op::kLinear && !ChoosesScales(c)) || c.K == 0) return false;
  return kLanes == 1 || c.K % kLanes != 0;
}

// The row of the last term, or the row with half as many lanes, may drop the same.
template <int64_t kLanes>
bool DropsTheSameAsFewerLanes(const Case& c) {
  return c.K % kLanes == c.K % (kLanes / 2);
}

// With one lane the tail is the last term.
template <int64_t kLanes>
int64_t TermsLeft(const Case& c) {
  return kLanes == 1 ? c.K - 1 : c.K - c.K % kLanes;
}

// Rows of 4 bits that a loop over pairs of them does not fill.
bool EndsInsideAByte(const Case& c) {
  return HasSums(c) && BitsOf(c.w.dtype()) == 4 && c.K % 2 != 0;
}

template <int64_t kLanes>
bool DropProducts(Stages& s) {
  s.Sums().added = TermsLeft<kLanes>(s.c);
  return true;
}

template <int64_t kLanes>
bool DropTerms(Stages& s) {
  std::vector<int64_t> left(static_cast<size_t>(TermsLeft<kLanes>(s.c)));
  std::iota(left.begin(), left.end(), 0);
  s.c = slice::Terms(s.c, left);
  return true;
}

// ---- Accumulate.

template <Lanes kHow>
int64_t Add(DType x_dtype, Codes x, Codes w) {
  return AddInLanes(kHow, x_dtype, x, w);
}
// An int16 that wraps, and is emptied after so many products: a kernel of s8 by s8.
constexpr Lanes WrapOf(int64_t products) { return {1, 1, products, true}; }

// As products of int8 arrays are int8 arrays (NumPy's matmul).
int64_t InTypeOfCodes(DType x_dtype, Codes x, Codes w) {
  int64_t sum = 0;
  for (size_t k = 0; k < x.size(); ++k) sum += int64_t{x[k]} * w[k];
  return x_dtype == DType::kS8 ? Wrapped<int8_t>(sum) : Wrapped<uint8_t>(sum);
}

template <class Integer>
__int128 Wrap(__int128 value) {
  return static_cast<Integer>(static_cast<std::make_unsigned_t<Integer>>(value));
}

void WrapSumInt16(PoolWindow& window) { window.sum = static_cast<int16_t>(window.sum); }

void SaturateSumInt16(PoolWindow& window) { window.sum = Saturated<int16_t>(window.sum); }

void SubtractZeroPointOnce(PoolWindow& window) {
  window.terms = std::min<int64_t>(window.terms, 1);
}

// The zero points are taken out in 16 bits too.
template <int64_t (*kKeep)(int64_t)>
void SumOfDifferences(PoolWindow& window) {
  window.sum = kKeep(window.sum - window.terms * window.zero_point);
  window.terms = 0;
}

// Each code, or its distance from the zero point, divided and cut before it is added.
template <bool kDistances>
void DivideEach(PoolWindow& window) {
  const int64_t zero = kDistances ? window.zero_point : 0;
  window.sum = 0;
  for (const int32_t code : window.codes) window.sum += (code - zero) / window.divisor;
  window.terms = kDistances ? 0 : 1;
  window.divisor = 1;
}

void WrapSum16(PoolWindow& window) {
  window.sum = window.dtype == DType::kS8 ? int64_t{static_cast<int16_t>(window.sum)}
                                          : int64_t{static_cast<uint16_t>(window.sum)};
}

void WrapSum8(PoolWindow& window) {
  window.sum = window.dtype == DType::kS8 ? int64_t{static_cast<int8_t>(window.sum)}
                                          : int64_t{static_cast<uint8_t>(window.sum)};
}

// A count of 256 would be a division by zero: there a kernel fails otherwise.
void CountInByte(PoolWindow& window) {
  if (window.divisor % 256 != 0) window.divisor %= 256;
}

void CompareWithOtherSign(PoolWindow& window) { window.largest = window.largest_of_other_sign; }

void StartAtZero(PoolWindow& window) { window.largest = std::max<int64_t>(window.largest, 0); }

void StartAtMinus127(PoolWindow& window) {
  window.largest = std::max<int64_t>(window.largest, -127);
}

// ---- Offset.

// A wrong zero point in place of z.
int32_t Ignored(int32_t) { return 0; }
int32_t Negated(int32_t z) { return z == INT32_MIN ? z : -z; }
int32_t OneMore(int32_t z) { return z == INT32_MAX ? z : z + 1; }
int32_t OneLess(int32_t z) { return z == INT32_MIN ? z : z - 1; }
int32_t InInt8(int32_t z) { return static_cast<int8_t>(z); }
int32_t InUint8(int32_t z) { return z >= -128 ? static_cast<uint8_t>(z) : z; }
int32_t Raised(int32_t z) { return z > INT32_MAX - 128 ? z : z + 128; }
int32_t Lowered(int32_t z) { return z < INT32_MIN + 128 ? z : z - 128; }
int32_t NegatedInInt8(int32_t z) { return -int32_t{static_cast<int8_t>(-int64_t{z})}; }

template <auto kQ, int32_t (*kWrong)(int32_t)>
bool EditZeroPoint(Stages& s) {
  std::vector<int32_t> wrong = (s.c.*kQ).zero_point;
  for (int32_t& z : wrong) z = kWrong(z);
  return Replace((s.c.*kQ).zero_point, std::move(wrong));
}

template <auto kOne, auto kOther, int32_t (*kWrong)(int32_t)>
bool EditZeroPoints(Stages& s) {
  const bool one = EditZeroPoint<kOne, kWrong>(s);
  return EditZeroPoint<kOther, kWrong>(s) || one;
}

template <auto kTensor, auto kQ>
bool ZeroPointInOwnType(Stages& s) {
  const bool is_signed = (s.c.*kTensor).dtype() == DType::kS8;
  std::vector<int32_t> kept = (s.c.*kQ).zero_point;
  for (int32_t& z : kept) z = is_signed ? int32_t{static_cast<int8_t>(z)} : static_cast<uint8_t>(z);
  return IsCode((s.c.*kTensor).dtype()) && Replace((s.c.*kQ).zero_point, std::move(kept));
}

bool SwapZeroPoints(Stages& s) {
  std::vector<int32_t>&x = s.c.x_q.zero_point, &w = s.c.w_q.zero_point;
  if (x.size() != w.size()) {  // one for each channel of the weights
    if (!SumsOfCodes(s.c)) return false;
    s.Sums().edit_terms = [](SumTerms& t) { std::swap(t.zx, t.zw); };
    return true;
  }
  std::swap(x, w);
  return x != w;
}

// Codes less their zero point, kept in 8 bits: as codes of that type whose zero point is 0.
template <auto kTensor, auto kQ, class Narrow, bool kWraps>
bool NarrowDifference(Stages& s) {
  const Tensor codes = s.c.*kTensor;
  std::vector<int32_t>& zero_points = (s.c.*kQ).zero_point;
  if (!IsCode(codes.dtype()) || zero_points.empty()) return false;
  // Of weights a channel is a row, of all else a column.
  const int64_t channels = std::ssize(zero_points), of_channel = codes.size() / channels;
  const bool rows = &(s.c.*kTensor) == &s.c.w && HasWeights(s.c.op);
  Tensor differences(std::is_signed_v<Narrow> ? DType::kS8 : DType::kU8, codes.shape());
  bool changes = false;
  for (int64_t i = 0; i < codes.size(); ++i) {
    const int64_t difference =
        int64_t{codes.IntAt(i)} -
        zero_points[static_cast<size_t>(rows ? i / of_channel : i % channels)];
    const int64_t kept = kWraps
                             ? int64_t{static_cast<Narrow>(difference)}
                             : std::clamp<int64_t>(difference, std::numeric_limits<Narrow>::min(),
                                                   std::numeric_limits<Narrow>::max());
    changes |= kept != difference;
    differences.SetInt(i, static_cast<int32_t>(kept));
  }
  s.c.*kTensor = std::move(differences);
  std::ranges::fill(zero_points, 0);
  return changes;
}

// Of both operands of an elementwise operation.
template <bool kWraps>
bool NarrowDifferences(Stages& s) {
  const bool of_a = NarrowDifference<&Case::x, &Case::x_q, int8_t, kWraps>(s);
  const bool of_b = NarrowDifference<&Case::w, &Case::w_q, int8_t, kWraps>(s);
  return of_a || of_b;
}

template <Tensor Case::* kTensor>
bool NegativeCodesAs0(Stages& s) {
  Tensor& codes = s.c.*kTensor;
  bool changes = false;
  for (int64_t i = 0; i < codes.size(); ++i) {
    if (codes.IntAt(i) >= 0) continue;
    codes.SetInt(i, 0);
    changes = true;
  }
  return changes;
}

bool RaiseNegativeCodes(Stages& s) {
  bool changes = false;
  for (int8_t& code : s.c.x.as<int8_t>()) {
    changes |= code < 0;
    code = static_cast<int8_t>(code + (code < 0 ? 1 : 0));
  }
  return changes;
}

template <auto kTensor, auto kQ>
bool NarrowToOwnType(Stages& s) {
  return (s.c.*kTensor).dtype() == DType::kU8 ? NarrowDifference<kTensor, kQ, uint8_t, true>(s)
                                              : NarrowDifference<kTensor, kQ, int8_t, true>(s);
}

template <auto kQ>
bool ZeroPointOfChannel0(Stages& s) {
  std::vector<int32_t>& list = (s.c.*kQ).zero_point;
  if (list.empty()) return false;
  return Replace(list, std::vector<int32_t>(list.size(), list.front()));
}

// From where the products take the weight of term k.
int64_t HalvesAsNeighbours(int64_t k) {
  const int64_t j = k % 32;
  return k - j + (j < 16 ? 2 * j : 2 * j - 31);
}
int64_t NeighboursAsHalves(int64_t k) {
  const int64_t j = k % 32;
  return k - j + j / 2 + j % 2 * 16;
}
int64_t SwappedNeighbours(int64_t k) { return k ^ 1; }
int64_t SwappedHalves(int64_t k) { return k ^ 16; }

// What would lie beyond the row stays where it is; beyond a row of blocks, which is filled up, are
// zero points.
template <int64_t (*kFrom)(int64_t k)>
bool ReadWeightsFrom(Stages& s) {
  if (s.c.w_block != 0 || HasFloatX(s.c)) {
    const Tensor old = s.c.w;
    for (int64_t i = 0; i < old.size(); ++i) {
      const int64_t from = kFrom(i % s.c.K);
      if (from < s.c.K) {
        s.c.w.SetInt(i, old.IntAt(i - i % s.c.K + from));
      } else if (s.c.w_block != 0) {
        // Of a zero point that is no code nobody knows what fills the row up.
        const int32_t zero_point = s.c.w_q.zero_point[WEntry(s.c, i / s.c.K, i % s.c.K)];
        const CodeRange codes = RangeOf(s.c.w.dtype());
        if (zero_point < codes.min || zero_point > codes.max) return false;
        s.c.w.SetInt(i, zero_point);
      }
    }
    return s.c.w != old;
  }
  s.Sums().read_w = [](int64_t row, int64_t term, int64_t columns) {
    const int64_t from = kFrom(term);
    return row * columns + (from < columns ? from : term);
  };
  return true;
}

// The result times 2^-kShift.
template <int kShift>
bool ScaleResult(Stages& s) {
  for (float& scale : s.c.out_q.scale) {
    scale = std::ldexp(scale, kShift);
    if (!std::isnormal(scale)) return false;
  }
  return !s.c.out_q.scale.empty();
}

bool UnitScales(Stages& s) {
  bool changes = false;
  for (std::vector<float>* list :
       {&s.c.x_q.scale, &s.c.w_q.scale, &s.c.out_q.scale, &s.c.multiplier})
    for (float& scale : *list) changes |= Replace(scale, 1.0f);
  return changes;
}

template <class Code>
__int128 ClampToCodes(__int128 value) {
  return std::clamp<__int128>(value, std::numeric_limits<Code>::min(),
                              std::numeric_limits<Code>::max());
}

bool ClampSumFirst(Stages& s) {
  s.integer = s.c.out_dtype == DType::kS8    ? ClampToCodes<int8_t>
              : s.c.out_dtype == DType::kU8  ? ClampToCodes<uint8_t>
              : s.c.out_dtype == DType::kS16 ? ClampToCodes<int16_t>
                                             : ClampToCodes<uint16_t>;
  return true;
}

// (x - zx - zw) * w.
void TakeWeightZeroPointFromInput(SumTerms& t) { t.zx += std::exchange(t.zw, 0); }

void RoundCountUp(SumTerms& t) { t.count = (t.count + 3) / 4 * 4; }

void CountPaddedTaps(SumTerms& t) { t.products += t.padding_taps * t.zx * t.zw; }

void TakeFirstRowSum(SumTerms& t) { t.x_sum = t.x_sums[0]; }

// -2^31 is its own negative in int32.
void NegateTermsInInt32(SumTerms& t) {
  for (const int64_t term : {t.zx * t.w_sum, t.zw * t.x_sum})
    t.products -= term == INT32_MIN ? int64_t{1} << 32 : 0;
}

void ZeroPointTermInFloat(SumTerms& t) {
  const float term = static_cast<float>(t.zx) * static_cast<float>(t.w_sum);
  t.products += t.zx * t.w_sum - static_cast<int64_t>(term);
}

// ---- Bias.

// A float bias in units of x_scale*w_scale, computed in float64 as kernels convert it.
double BiasUnits(const Case& c, float bias, int64_t n) {
  const double unit = static_cast<double>(c.x_q.scale_at(0)) * c.w_q.scale_at(n);
  return bias / unit;
}

double HalfAwayOfDouble(double value) { return std::round(value); }
double HalfEvenOfDouble(double value) { return std::nearbyint(value); }
double HalfUpOfDouble(double value) { return std::floor(value + 0.5); }
double CutDouble(double value) { return std::trunc(value); }
double FloorOfDouble(double value) { return std::floor(value); }

// `convert` makes an int32 of the bias in these units, or nullopt where the bias stays float.
bool ConvertBias(Stages& s, std::optional<int32_t> (*convert)(double units),
                 double (*round)(double) = HalfEvenOfDouble) {
  Case& c = s.c;
  c.bias_i32.emplace();
  bool changes = false;
  for (float& bias : *c.bias) {
    const std::optional<int32_t> units =
        convert(round(BiasUnits(c, bias, std::ssize(*c.bias_i32))));
    c.bias_i32->push_back(units.value_or(0));
    if (!units) continue;
    bias = 0;
    changes = true;
  }
  return changes;
}

// In units of channel 0, then scaled as every channel is.
bool ConvertBiasByChannel0(Stages& s) {
  Case& c = s.c;
  c.bias_i32.emplace();
  for (float& bias : *c.bias) {
    const double units = HalfEvenOfDouble(BiasUnits(c, std::exchange(bias, 0), 0));
    c.bias_i32->push_back(static_cast<int32_t>(std::clamp<double>(units, INT32_MIN, INT32_MAX)));
  }
  return true;
}

template <bool kOfX, bool kOfW>
bool ScaleBias(Stages& s) {
  for (size_t n = 0; n < s.c.bias->size(); ++n) {
    float& bias = (*s.c.bias)[n];
    if (kOfX) bias *= s.c.x_q.scale_at(0);
    if (kOfW) bias *= s.c.w_q.scale_at(static_cast<int64_t>(n));
  }
  return Validate(s.c).empty();
}

bool FitsInt32(double units) { return std::abs(units) < 0x1p31; }

std::optional<int32_t> WrappedUnits(double units) {
  if (FitsInt32(units)) return std::nullopt;
  if (!(std::abs(units) < 0x1p63)) return INT32_MIN;
  return static_cast<int32_t>(static_cast<int64_t>(units));
}

std::optional<int32_t> MinimumOfUnits(double units) {
  return FitsInt32(units) ? std::nullopt : std::optional(INT32_MIN);
}

std::optional<int32_t> RoundedUnits(double units) {
  return Saturated<int32_t>(static_cast<int64_t>(std::clamp(units, -0x1p62, 0x1p62)));
}

std::optional<int32_t> ConvertedUnits(double units) {
  return FitsInt32(units) ? static_cast<int32_t>(units) : INT32_MIN;
}

bool IgnoreBias(Stages& s) {
  const bool changes = s.c.bias || s.c.bias_i32;
  s.c.bias.reset();
  s.c.bias_i32.reset();
  return changes;
}

// ---- Index.

bool IndexChannelsModulo(Stages& s, int64_t modulo) {
  return s.c.N > 0 && ReindexScales(s.c, [modulo](int64_t n, int64_t) { return n % modulo; });
}

bool OffsetTableIndex(Stages& s) {
  for (uint8_t& byte : s.c.x.bytes()) byte ^= 0x80;
  return true;
}

// ---- Round.

bool RoundScaleProduct(Stages& s) {
  Case& c = s.c;
  if (c.w_q.scale.empty() || !c.multiplier.empty() || c.out_dtype == DType::kS32) return false;
  for (float& scale : c.w_q.scale) {
    scale *= c.x_q.scale_at(0);
    if (!std::isfinite(scale)) return false;
  }
  c.x_q.scale = {1.0f};
  return true;
}

// The real value in float32 arithmetic, every step rounded. Where 0 meets a reciprocal that
// overflowed, their product is NaN, which cvtps2dq (x86) converts to -2^31 and fcvtns (Arm) to 0.
template <bool kReciprocal, bool kNanIsZero = false>
float InFloat(const RealOutput& o) {
  const auto over = [](float a, float b) { return kReciprocal ? a * (1.0f / b) : a / b; };
  if (o.c.op == Op::kQuantize) {
    const float x = o.c.x.FloatAt(o.index);
    const float value = over(x, o.c.out_q.scale_at(o.channel()));
    if (std::isnan(x)) return 0;
    return !std::isnan(value) ? value : kNanIsZero ? 0 : -0x1p31f;
  }
  const Factors f = FactorsOf(o);
  const auto multiplier = static_cast<float>(f.multiplier), offset = static_cast<float>(f.offset);
  const auto sum = static_cast<float>(f.sum), y = static_cast<float>(f.y);
  if (AddsOperands(o.c.op)) {
    const float scale = o.c.w_q.scale_at(0);
    return over(multiplier, y) * sum + over(scale, y) * static_cast<float>(f.offset / scale);
  }
  return (sum + (o.c.bias ? offset / multiplier : 0)) *
         (over(multiplier, y) / static_cast<float>(f.divisor));
}

// Divides where the product is not finite.
RoundedOutput TimesReciprocalIfFinite(const RealOutput& o) {
  const float value = o.c.x.FloatAt(o.index) * (1.0f / o.c.out_q.scale_at(o.channel()));
  return {std::isfinite(value) ? std::nearbyint(static_cast<double>(value)) : o.rounded()};
}

// The sum is dequantized in float32 first, and then divided by the output scale.
float DequantizedFirst(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  const auto multiplier = static_cast<float>(f.multiplier), offset = static_cast<float>(f.offset);
  const float value = static_cast<float>(f.sum) * multiplier + (o.c.bias ? offset : 0);
  return value / static_cast<float>(f.divisor) / static_cast<float>(f.y);
}

// The real value in float64 arithmetic, which misses ties: the cause "float64 multiplier".
double InDouble(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  if (AddsOperands(o.c.op)) return (f.multiplier * f.sum + f.offset) / f.y;
  return f.sum * (f.multiplier / f.y / f.divisor) + f.offset / f.y;
}

template <auto kValue>
RoundedOutput RoundValue(const RealOutput& o) {
  return {std::nearbyint(static_cast<double>(kValue(o)))};
}

// floor(v + 0.5f), roundf(v) and (int)(v + copysignf(0.5f, v)).
template <class T>
T HalfAddedAndFloored(T value) {
  return std::floor(value + T{0.5});
}
template <class T>
T HalfAwayFromZero(T value) {
  return std::round(value);
}
template <class T>
T HalfAddedAndTruncated(T value) {
  return std::trunc(value + std::copysign(T{0.5}, value));
}
template <auto kValue, auto kRound>
RoundedOutput RoundedOtherwise(const RealOutput& o) {
  return {static_cast<double>(kRound(kValue(o)))};
}

RoundedOutput FloatZeroPointFirst(const RealOutput& o) {
  const float moved = InFloat<false>(o) + static_cast<float>(o.zero_point());
  return {std::nearbyint(static_cast<double>(moved)), true};
}

RoundedOutput ZeroPointBeforeRounding(const RealOutput& o) {
  const bool to_other = o.is_tie() && o.zero_point() % 2 != 0;
  return {o.rounded() + o.zero_point() + (to_other ? o.exact.rest : 0), true};
}

// The exact result of a tie is its even neighbour; the odd neighbour is `rest` (1 or -1) away from
// it.
RoundedOutput HalfAway(const RealOutput& o) {
  const bool is_inner = o.rounded() * o.exact.rest >= 0;
  return {o.rounded() + (o.is_tie() && is_inner ? o.exact.rest : 0)};
}

RoundedOutput HalfUp(const RealOutput& o) {
  return {o.rounded() + (o.is_tie() && o.exact.rest > 0 ? 1 : 0)};
}

// `r % 2 == 1` holds for no negative r, so that an odd r next to a negative tie is kept: the floor
// of the value, or the floor of a half more.
template <int kTo>
RoundedOutput HalfBelowZero(const RealOutput& o) {
  const bool moves = o.is_tie() && o.exact.rest == kTo;
  const double neighbour = o.rounded() + o.exact.rest;
  return {moves && std::min(o.rounded(), neighbour) < 0 ? neighbour : o.rounded()};
}

RoundedOutput Truncate(const RealOutput& o) {
  const bool is_outer = o.rounded() * o.exact.rest < 0;
  return {o.rounded() + (is_outer ? o.exact.rest : 0)};
}

// The zero point comes first.
RoundedOutput HalfAwayOfCode(const RealOutput& o) {
  const double code = o.rounded() + o.zero_point();
  return {code + (o.is_tie() && code * o.exact.rest >= 0 ? o.exact.rest : 0), true};
}
RoundedOutput TruncateCode(const RealOutput& o) {
  const double code = o.rounded() + o.zero_point();
  return {code + (code * o.exact.rest < 0 ? o.exact.rest : 0), true};
}

// Both operands times their scales in float32, and the quotient of the sum.
float OperandsInFloat(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  const float scale = o.c.w_q.scale_at(0);
  return (static_cast<float>(f.multiplier) * static_cast<float>(f.sum) +
          scale * static_cast<float>(f.offset / scale)) /
         static_cast<float>(f.y);
}

// Both ratios of scales with so many bits behind the point, and ties up, or to even.
template <int kBits, bool kUp = true>
RoundedOutput RatiosInBits(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  const double scale = o.c.w_q.scale_at(0), unit = std::ldexp(1.0, kBits);
  const double sum = f.sum * std::nearbyint(f.multiplier / f.y * unit) +
                     f.offset / scale * std::nearbyint(scale / f.y * unit);
  return {kUp ? std::floor(sum / unit + 0.5) : std::nearbyint(sum / unit)};
}

// An average that is a whole number of input steps before it is rescaled.
template <double (*kRound)(double)>
RoundedOutput AverageFirst(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  return {std::nearbyint(kRound(f.sum / f.divisor) * f.multiplier / f.y)};
}

RoundedOutput ClampBeforeZeroPoint(const RealOutput& o) {
  const CodeRange range = RangeOf(o.c.out_dtype);
  return {std::clamp<double>(o.rounded(), range.min, range.max)};
}

double RealAt(const Tensor& codes, int64_t i, const QParams& q) {
  return static_cast<double>(int64_t{codes.IntAt(i)} - q.zero_point_at(0)) * q.scale_at(0);
}

// The real value of an element in output steps.
double InSteps(const RealOutput& o, const Tensor& codes, const QParams& q) {
  return RealAt(codes, o.index, q) / o.c.out_q.scale_at(0);
}

template <double (*kRound)(double)>
RoundedOutput OperandsRoundedFirst(const RealOutput& o) {
  const double a = kRound(InSteps(o, o.c.x, o.c.x_q)), b = kRound(InSteps(o, o.c.w, o.c.w_q));
  return {o.c.op == Op::kSub ? a - b : a + b};
}

template <bool kFirst>
RoundedOutput FactorRoundedFirst(const RealOutput& o) {
  const double a = InSteps(o, o.c.x, o.c.x_q), b = InSteps(o, o.c.w, o.c.w_q);
  return {std::nearbyint((kFirst ? std::nearbyint(a) * b : a * std::nearbyint(b)) *
                         o.c.out_q.scale_at(0))};
}

// Code and zero point in output steps, each rounded to an integer, which saturates where a double
// has no units any more.
RoundedOutput ZeroPointRescaledToo(const RealOutput& o) {
  const double scale = o.c.x_q.scale_at(0), of_output = o.c.out_q.scale_at(0);
  const auto steps = [&](double code) {
    return std::clamp(std::nearbyint(code * scale / of_output), -0x1p53, 0x1p53);
  };
  return {steps(o.c.x.IntAt(o.index)) - steps(o.c.x_q.zero_point_at(0))};
}

// x * (x + 3) / 6 where x is 3 or more: the fast part of the function goes on.
RoundedOutput HardSwishWithoutLimit(const RealOutput& o) {
  const double x = RealAt(o.c.x, o.index, o.c.x_q);
  if (x <= 3) return {o.rounded()};
  const long double value = static_cast<long double>(x) * (static_cast<long double>(x) + 3) / 6 /
                            static_cast<long double>(o.c.out_q.scale_at(0));
  return {static_cast<double>(std::nearbyint(value))};
}

// Elements of the second input are codes of the first one's parameters for a while.
RoundedOutput ThroughCodesOfTheFirst(const RealOutput& o) {
  const Case& c = o.c;
  const int64_t columns = c.x.shape()[1], n = o.channel() - columns;
  if (n < 0) return {o.rounded()};
  const CodeRange range = RangeOf(c.x.dtype());
  const int64_t i = o.index / c.N * (c.N - columns) + n;
  const double value = RealAt(c.w, i, c.w_q);
  const double scale = c.x_q.scale_at(0), zero = c.x_q.zero_point_at(0);
  const double code =
      std::clamp<double>(std::nearbyint(value / scale) + zero, range.min, range.max);
  return {std::nearbyint((code - zero) * scale / c.out_q.scale_at(0))};
}

bool CopyOfOneZeroPoint(Stages& s) {
  const std::vector<int32_t>& zero = s.c.out_q.zero_point;
  const bool both = HasTwoInputs(s.c.op);
  if (s.c.x_q.zero_point != zero || (both && s.c.w_q.zero_point != zero)) return false;
  const bool of_x = Replace(s.c.x_q.scale, s.c.out_q.scale);
  return (both && Replace(s.c.w_q.scale, s.c.out_q.scale)) || of_x;
}

// As a table of scales that are stored in half the space.
template <int kBits>
bool WeightScalesIn(Stages& s) {
  bool changes = false;
  for (float& scale : s.c.w_q.scale) {
    int exponent = 0;
    const float mantissa = std::nearbyint(std::ldexp(std::frexp(scale, &exponent), kBits));
    const float kept = std::ldexp(mantissa, exponent - kBits);
    if (!std::isnormal(kept)) return false;
    changes |= Replace(scale, kept);
  }
  return changes;
}

bool WeightsOfOtherMajor(Stages& s) {
  const int64_t channels = s.c.window.groups, multiplier = s.c.N / channels, row = s.c.K;
  const Tensor old = s.c.w;
  for (int64_t n = 0; n < s.c.N; ++n)
    s.c.w.CopyFrom(old, (n % channels * multiplier + n / channels) * row, row, n * row);
  return s.c.w != old;
}

bool DropLowestBitOfWeights(Stages& s) {
  const Tensor old = s.c.w;
  for (int64_t i = 0; i < s.c.w.size(); ++i) s.c.w.SetInt(i, s.c.w.IntAt(i) & ~1);
  return s.c.w != old;
}

// Into a u8 the codes of s8 fit, and the other way round.
RoundedOutput Int8BeforeZeroPoint(const RealOutput& o) {
  return {std::clamp<double>(o.rounded(), INT8_MIN, INT8_MAX)};
}

RoundedOutput WrapInt8BeforeZeroPoint(const RealOutput& o) {
  const auto whole = static_cast<int64_t>(std::clamp(o.rounded(), -0x1p62, 0x1p62));
  return {static_cast<double>(static_cast<int8_t>(whole))};
}

// The branch of leaky_relu by the sign of the code, not by that of the number.
RoundedOutput SlopeByCode(const RealOutput& o) {
  const int64_t code = o.c.x.IntAt(o.index), x = code - o.c.x_q.zero_point_at(0);
  const auto scales = [&](double slope) {
    return std::nearbyint(static_cast<double>(x) * slope *
                          static_cast<double>(o.c.x_q.scale_at(0)) / o.c.out_q.scale_at(0));
  };
  if ((code < 0) == (x < 0)) return {o.rounded()};
  return {scales(code < 0 ? o.c.negative_slope : 1)};
}

RoundedOutput UnscaledSlope(const RealOutput& o) {
  const int64_t x = int64_t{o.c.x.IntAt(o.index)} - o.c.x_q.zero_point_at(0);
  return {x < 0 ? std::nearbyint(static_cast<double>(x) * o.c.negative_slope) : o.rounded()};
}

RoundedOutput CopiedAboveZero(const RealOutput& o) {
  const int64_t code = o.c.x.IntAt(o.index);
  return {code < o.c.x_q.zero_point_at(0) ? o.rounded()
                                          : static_cast<double>(code - o.zero_point())};
}

RoundedOutput UnscaledAboveZero(const RealOutput& o) {
  const int64_t x = int64_t{o.c.x.IntAt(o.index)} - o.c.x_q.zero_point_at(0);
  return {x < 0 ? o.rounded() : static_cast<double>(x)};
}

// The bound of a relu keeps the zero point.
RoundedOutput WithoutZeroPoint(const RealOutput& o) { return {o.rounded(), true}; }

// The real value to an integer, and that over the output scale to one again.
template <bool kSaturates>
RoundedOutput RoundBeforeOutputScale(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  double real = std::nearbyint((f.sum * f.multiplier + f.offset) / f.divisor);
  if (kSaturates) {
    const CodeRange codes = RangeOf(o.c.out_dtype);
    real = std::clamp<double>(real, codes.min, codes.max);
  }
  return {std::nearbyint(real / f.y)};
}

bool TakesRealBias(const Case& c) {
  return HasSums(c.op) && c.bias_i32 && c.out_dtype != DType::kS32 && c.requant == Requant::kExact;
}
template <bool kInOutputSteps>
bool IntegersAsRealBias(Stages& s) {
  s.c.bias.emplace();
  for (const int32_t each : *s.c.bias_i32)
    s.c.bias->push_back(static_cast<float>(each) * (kInOutputSteps ? s.c.out_q.scale_at(0) : 1));
  s.c.bias_i32.reset();
  return std::ranges::all_of(*s.c.bias, [](float each) { return std::isfinite(each); });
}

// scale * code - scale * zero point.
float TwoProducts(const Case& c, int64_t channel, __int128 integer) {
  const float scale = c.x_q.scale_at(channel);
  const int32_t zero = c.x_q.zero_point_at(channel);
  return scale * static_cast<float>(integer + zero) - scale * static_cast<float>(zero);
}

__int128 InInt16(__int128 value) { return std::clamp<__int128>(value, INT16_MIN, INT16_MAX); }

__int128 InFloat32(__int128 value) { return static_cast<__int128>(static_cast<float>(value)); }

bool ScalesIntegers(const Case& c) { return SumsOfCodes(c) || c.op == Op::kRequantize; }

// Of 11 significant bits, ties to even, and at most the largest float16.
__int128 InFloat16(__int128 value) {
  constexpr double kMost = 65504;
  const auto number = static_cast<double>(value);
  const int exponent = std::ilogb(number == 0 ? 1 : number) - 10;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(number, -exponent)), exponent);
  return static_cast<__int128>(std::clamp(rounded, -kMost, kMost));
}

// A multiplier of 1 or more is a fraction below 1 and a left shift, and the sum is shifted first,
// in an int32 that wraps.
RoundedOutput ShiftLeftInInt32(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  int shift = 0;
  const double fraction = std::frexp(f.multiplier / f.y / f.divisor, &shift);
  if (shift <= 0) return {o.rounded()};
  const auto shifted = shift < 32 ? static_cast<int64_t>(std::ldexp(f.sum, shift)) : 0;
  const auto kept = static_cast<int32_t>(static_cast<uint32_t>(shifted));
  return {std::nearbyint(static_cast<double>(kept) * fraction + f.offset / f.y)};
}

// A multiplier of 2^k is a left shift whose count has the wrong sign. An instruction takes the
// lowest five bits of it, 32 - k.
RoundedOutput ShiftByTheOtherSign(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  int exponent = 0;
  const double fraction = std::frexp(f.multiplier / f.y / f.divisor, &exponent);
  const int shift = exponent - 1;
  if (fraction != 0.5 || shift < 1 || f.offset != 0) return {o.rounded()};
  const auto bits = static_cast<uint32_t>(static_cast<int64_t>(f.sum)) << (-shift & 31);
  return {static_cast<double>(static_cast<int32_t>(bits))};
}

// A multiplier of 1 or more is a fraction below 1 and a left shift by n. It is shifted right by -n,
// of which an instruction takes the lowest five bits.
RoundedOutput LeftShiftToTheRight(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  const double multiplier = f.multiplier / f.y / f.divisor;
  int shift = 0;
  (void)std::frexp(multiplier, &shift);
  if (shift < 1 || f.offset != 0) return {o.rounded()};
  return {std::nearbyint(std::ldexp(f.sum * multiplier, -shift - (-shift & 31)))};
}

// Fixed point with 8 bits behind the point, half up.
RoundedOutput In256ths(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  const float ratio = static_cast<float>(f.multiplier) / static_cast<float>(f.y);
  return {std::floor((f.sum * std::nearbyint(256.0 * static_cast<double>(ratio)) + 128) / 256)};
}

float InFloatSteps(const Case& c, int64_t channel, __int128 integer) {
  const float value = static_cast<float>(integer) * (c.x_q.scale_at(0) * c.w_q.scale_at(channel));
  return c.bias ? value + (*c.bias)[static_cast<size_t>(channel)] : value;
}

// In float64, and the sum of both terms once more to float32.
float InDoubleSteps(const Case& c, int64_t channel, __int128 integer) {
  const double unit = static_cast<double>(c.x_q.scale_at(0)) * c.w_q.scale_at(channel);
  const double bias = c.bias ? (*c.bias)[static_cast<size_t>(channel)] : 0;
  return static_cast<float>(static_cast<double>(integer) * unit + bias);
}

bool MultiplyInFloat(Stages& s) {
  return IsCode(s.c.out_dtype) ? Set<&CodeHooks::round, RoundValue<InFloat<false>>>(s)
                               : Set<&Stages::real, InFloatSteps>(s);
}

// A multiplier of 1 or more is a fraction below 1 and a left shift, and the left shift is lost.
bool DropLeftShift(Stages& s) {
  float& a = s.c.x_q.scale[0];
  float& b = s.c.w_q.scale[0];
  float& y = s.c.out_q.scale[0];
  struct Dropped {
    float* scale;
    int shift;
  };
  std::vector<Dropped> dropped;
  const auto drop = [&](double multiplier, float& scale) {
    int shift = 0;
    (void)std::frexp(multiplier, &shift);
    dropped.push_back({&scale, std::max(shift, 0)});
  };
  if (s.c.op == Op::kMul) {
    drop(static_cast<double>(a) * b / y, a);
  } else {
    drop(static_cast<double>(a) / y, a);
    if (HasTwoInputs(s.c.op)) drop(static_cast<double>(b) / y, b);
  }
  // All scales grow together, so that none gets too small for a float32.
  int up = 0;
  bool changes = false;
  for (const auto& [scale, shift] : dropped) {
    up = std::max(up, shift - std::ilogb(*scale) + std::numeric_limits<float>::min_exponent);
    changes |= shift > 0;
  }
  for (const auto& [scale, shift] : dropped) *scale = std::ldexp(*scale, up - shift);
  y = std::ldexp(y, up);
  // a and b are finite where y is: of a sum they are below y now; of a product they have not grown,
  // or a has been the least normal float32.
  return changes && std::isfinite(y);
}

bool RoundsScaledIntegers(const Case& c) {
  return RoundsReal(c) && (HasSums(c) || c.op == Op::kRequantize);
}

// The multiplier of each channel of sums, beside the number that makes it. `edit` says whether it
// has changed that one to a normal number.
bool EditMultipliers(Stages& s, bool (*edit)(double multiplier, float& factor)) {
  Case& c = s.c;
  bool changes = false;
  for (float& factor : c.multiplier) changes |= edit(factor, factor);
  for (float& scale : c.w_q.scale)
    changes |= edit(static_cast<double>(c.x_q.scale_at(0)) * scale / c.out_q.scale_at(0), scale);
  return changes;
}

// The same as DropLeftShift of sums, channel by channel.
bool DropLeftShiftsOfSums(Stages& s) {
  return EditMultipliers(s, [](double multiplier, float& factor) {
    int shift = 0;
    (void)std::frexp(multiplier, &shift);
    if (shift <= 0) return false;
    factor = std::ldexp(factor, -shift);
    return std::isnormal(factor);
  });
}

// A kernel whose multiplier is a fraction of 31 bits takes 1 - 2^-31, which gives an integer below
// 2^30 back as 1 does.
bool MultiplierOfOne(Stages& s) {
  return EditMultipliers(s, [](double multiplier, float& factor) {
    if (multiplier <= 1) return false;
    factor = static_cast<float>(factor / multiplier);
    return std::isnormal(factor);
  });
}

// ---- Clamp.

// On what the sum is before its bias.
template <bool kAgainBehindIt>
bool ReluBeforeBias(Stages& s) {
  if (!s.c.relu || (!s.c.bias && !s.c.bias_i32)) return false;
  s.c.relu = kAgainBehindIt;
  s.Sums().edit_bias = [](SumTerms& t) {
    const auto sum = static_cast<int64_t>(t.corrected() - t.bias);
    if (sum < 0) t.products -= sum;
  };
  return true;
}

bool ReluAtCodeZero(Stages& s) {
  Case& c = s.c;
  c.out_min = std::max(c.out_min, 0);
  return Replace(c.relu, false) && c.out_min <= c.out_max;
}

// The bounds hold of the rounded value, before the zero point is added; behind it those of the
// type.
template <bool kIfNarrow, bool kRelu>
bool BoundsBeforeZeroPoint(Stages& s) {
  const CodeRange range = RangeOf(s.c.out_dtype);
  if (kIfNarrow && s.c.out_min == range.min && s.c.out_max == range.max) return false;
  s.codes.bounds_first = true;
  s.codes.relu_first = kRelu;
  return true;
}

float WithoutNegative(float value) { return value < 0 ? 0.0f : value; }

bool AddRelu(Stages& s) {
  if (s.c.out_dtype == DType::kF32) return Set<&Stages::finish, WithoutNegative>(s);
  s.c.relu = true;
  return Validate(s.c).empty();
}

bool ReluFromAbove(Stages& s) {
  s.c.relu = false;
  for (const int32_t z : s.c.out_q.zero_point) s.c.out_max = std::min(s.c.out_max, z);
  return s.c.out_min <= s.c.out_max;
}

bool ReluInsteadOfBound(Stages& s) {
  return s.c.relu && Replace(s.c.out_min, RangeOf(s.c.out_dtype).min);
}

bool ClampToType(Stages& s) {
  const CodeRange range = RangeOf(s.c.out_dtype);
  const bool low = Replace(s.c.out_min, range.min), high = Replace(s.c.out_max, range.max);
  return low || high;
}

double KeepLow32Bits(double value) {
  return std::abs(value) < 0x1p62 ? static_cast<int32_t>(static_cast<int64_t>(value)) : 0;
}

double KeepTwiceIn32Bits(double value) { return std::floor(KeepLow32Bits(2 * value) / 2); }

template <int kBy>
double MovedBy(DType, double code) {
  return code + kBy;
}

// Of softmax: 256 where the exact code is that of 255.
RoundedOutput UnboundedShare(const RealOutput& o) {
  const exact::Integers& integers = o.outputs.integers();
  const int64_t sum = integers.counts[static_cast<size_t>(o.index / o.c.N)];
  const auto t = static_cast<int64_t>(integers.values[static_cast<size_t>(o.index)]);
  return {static_cast<double>((256 * t + sum / 2) / sum)};
}

double KeepLow16Bits(DType dtype, double code) {
  const auto whole = static_cast<int64_t>(std::clamp(code, -0x1p62, 0x1p62));
  return dtype == DType::kS16 ? static_cast<int16_t>(whole) : static_cast<uint16_t>(whole);
}

// The value reaches the narrow in a lane of int32, where it saturates.
double SaturateAtInt32(double rounded) { return std::clamp(rounded, -0x1p31, 0x1p31 - 1); }

template <double (*kKeep)(DType dtype, double code)>
bool NarrowTo(Stages& s) {
  s.codes.convert = SaturateAtInt32;
  s.codes.narrow = kKeep;
  return true;
}

bool NanToLowerBound(Stages& s) {
  bool changes = false;
  for (float& x : s.c.x.as<float>()) {
    if (!std::isnan(x)) continue;
    x = -INFINITY;
    changes = true;
  }
  return changes;
}

double NegativeAs127(double code) { return code < 0 ? 127 : code; }
__int128 InUint32(__int128 value) { return value < 0 ? value + (__int128{1} << 32) : value; }
__int128 SaturateAtInt8(__int128 value) { return std::clamp<__int128>(value, -128, 127); }

// ---- The table. The likelier cause comes first. Float64 comes before all others: it is wrong only
// next to ties, so it hardly ever gives the output of another cause by chance. Words in braces, in
// a name or a sentence, are replaced by what the operation calls its operands (WordsOf, below).

using Stage = CauseStage;
using Kind = FindingKind;

const Cause kCauses[] = {
    {Stage::kRound, Kind::kRounding, "float64 multiplier",
     "computes in float64, whose ties are not the exact ones", Multiplies,
     Set<&CodeHooks::round, RoundValue<InDouble>>, 6},
    {Stage::kRound, Kind::kRounding, "float64, then float32",
     "rounds to float64 first, then to float32",
     [](const Case& c) { return SumsOfCodes(c) && c.out_dtype == DType::kF32; },
     Set<&Stages::real, InDoubleSteps>},
    {Stage::kAccumulate, Kind::kPairSaturation, "pair saturation",
     "adds u8*s8 products in pairs in a saturating int16 (vpmaddubsw)", Pairs,
     Set<&SumSteps::add, Add<Lanes{2, 1, 1}>>, 4},
    {Stage::kAccumulate, Kind::kPairSaturation, "16-bit accumulation",
     "accumulates saturated pairs in a saturating int16 (acc16)", Pairs,
     Set<&SumSteps::add, Add<Lanes{2, 1, 128}>>, 6},
    {Stage::kAccumulate, Kind::kIndex, "sign of -128 lost",
     "multiplies the input code -128 by a negative weight with the wrong sign: in 8 bits -128 has "
     "no negative",
     MultipliesLowestInBlocks, LoseSignOfLowest, 3},
    {Stage::kAccumulate, Kind::kIndex, "sign of -128 lost, without blocks",
     "multiplies the input code -128 by a negative weight with the wrong sign: in 8 bits -128 has "
     "no negative",
     [](const Case& c) { return c.w_block == 0 && MultipliesLowest(c); }, LoseSignOfLowest},
    {Stage::kAccumulate, Kind::kIndex, "sign of -128 lost in pairs of blocks",
     "multiplies the input code -128 by a negative weight with the wrong sign, but not in the last "
     "of an odd number of blocks: in 8 bits -128 has no negative",
     MultipliesLowestInBlocks, LoseSignOfLowestInPairs, 6},
    {Stage::kAccumulate, Kind::kPairSaturation, "int16 pair wrap",
     "adds products in pairs in an int16 that wraps", Pairs, Set<&SumSteps::add, Add<WrapOf(2)>>},
    {Stage::kAccumulate, Kind::kPairSaturation, "int16 wrap of taps",
     "adds the products of three taps in an int16 that wraps", Pairs,
     Set<&SumSteps::add, Add<WrapOf(3)>>},
    {Stage::kAccumulate, Kind::kPairSaturation, "int16 wrap of a line of taps",
     "adds the products of one line of the kernel in an int16 that wraps", Of<IsConv>,
     [](Stages& s) {
       const int64_t line = s.c.K / s.c.window.kernel_h;
       s.Sums().add = [line](DType x_dtype, Codes x, Codes w) {
         return AddInLanes(WrapOf(line), x_dtype, x, w);
       };
       return line > 1;
     }},
    {Stage::kAccumulate, Kind::kPairSaturation, "int16 wrap of all products",
     "adds all products in an int16 that wraps",
     [](const Case& c) { return Pairs(c) || IsConv(c.op); },
     Set<&SumSteps::add, Add<WrapOf(int64_t{1} << 40)>>},
    {Stage::kAccumulate, Kind::kInt32Overflow, "sum in the type of the codes",
     "adds the products in the type of the codes, 8 bits that wrap",
     [](const Case& c) {
       return SumsOfCodes(c) && c.x.dtype() == c.w.dtype() && BitsOf(c.x.dtype()) == 8;
     },
     Set<&SumSteps::add, InTypeOfCodes>},
    {Stage::kAccumulate, Kind::kPairSaturation, "int16 wrap of nine products",
     "adds nine products in an int16 that wraps", Pairs, Set<&SumSteps::add, Add<WrapOf(9)>>,
     Cause::kBitsOfFamily},
    {Stage::kAccumulate, Kind::kInt32Overflow, "int16 product",
     "keeps the product of the two differences in an int16 that wraps", Is<Op::kMul>,
     Set<&Stages::integer, Wrap<int16_t>>},
    {Stage::kAccumulate, Kind::kInt32Overflow, "16-bit sum", "sums the codes in 16 bits that wrap",
     Is<Op::kAvgPool, Op::kGlobalAvgPool>, Set<&PoolHooks::under_window, WrapSum16>},
    {Stage::kAccumulate, Kind::kInt32Overflow, "8-bit sum", "sums the codes in 8 bits that wrap",
     Is<Op::kAvgPool, Op::kGlobalAvgPool>, Set<&PoolHooks::under_window, WrapSum8>,
     Cause::kBitsOfFamily},
    {Stage::kAccumulate, Kind::kInt32Overflow, "int16 sum", "sums the codes in an int16 that wraps",
     Is<Op::kAvgPool, Op::kGlobalAvgPool>, Set<&PoolHooks::under_window, WrapSumInt16>},
    {Stage::kAccumulate, Kind::kInt32Overflow, "int16 sum that saturates",
     "sums the codes in an int16 that saturates", Is<Op::kAvgPool, Op::kGlobalAvgPool>,
     Set<&PoolHooks::under_window, SaturateSumInt16>, Cause::kBitsOfFamily},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "zero point of a sum once",
     "subtracts the input zero point from a sum once, not once for each of its codes",
     Is<Op::kAvgPool, Op::kGlobalAvgPool>, Set<&PoolHooks::under_window, SubtractZeroPointOnce>},
    {Stage::kAccumulate, Kind::kInt32Overflow, "int16 sum of differences",
     "sums the codes less the zero point in an int16 that wraps",
     Is<Op::kAvgPool, Op::kGlobalAvgPool>,
     Set<&PoolHooks::under_window, SumOfDifferences<Wrapped<int16_t>>>},
    {Stage::kAccumulate, Kind::kInt32Overflow, "int16 sum of differences that saturates",
     "sums the codes less the zero point in an int16 that saturates",
     Is<Op::kAvgPool, Op::kGlobalAvgPool>,
     Set<&PoolHooks::under_window, SumOfDifferences<Saturated<int16_t>>>, Cause::kBitsOfFamily},
    {Stage::kAccumulate, Kind::kInt32Overflow, "count in 8 bits",
     "keeps the number of averaged codes in 8 bits",
     [](const Case& c) {
       return (c.op == Op::kAvgPool || c.op == Op::kGlobalAvgPool) && c.K > 256;
     },
     Set<&PoolHooks::window_padding, CountInByte>},
    {Stage::kAccumulate, Kind::kClamp, "maximum from -127",
     "starts the maximum of s8 codes at -127",
     [](const Case& c) { return c.op == Op::kMaxPool && c.x.dtype() == DType::kS8; },
     Set<&PoolHooks::under_window, StartAtMinus127>},
    {Stage::kPadding, Kind::kPadding, "padding of code 0", "fills the padding with code 0",
     Is<Op::kConv2d, Op::kDepthwise, Op::kMaxPool, Op::kAvgPool>, PadWithCodeZero},
    {Stage::kPadding, Kind::kPadding, "padding wins",
     "lets a padding of the zero point take part in the maximum", Is<Op::kMaxPool>,
     Set<&PoolHooks::window_padding, ZeroPointInMaximum>},
    {Stage::kPadding, Kind::kPadding, "padding and what lies beside it wins",
     "lets the zero point take part in the maximum of each window that leaves the image",
     Is<Op::kMaxPool>, Set<&PoolHooks::window_padding, ZeroPointBesideInMaximum>,
     Cause::kBitsOfFamily},
    {Stage::kPadding, Kind::kPadding, "padding of the unsigned zero point",
     "fills the padding with the zero point of x read as a uint8",
     [](const Case& c) { return IsConv(c.op) && c.x.dtype() == DType::kS8; },
     PadWithUnsignedZeroPoint},
    {Stage::kAccumulate, Kind::kPairSaturation, "taps of a channel in int16",
     "adds the products of the taps of each input channel in an int16 that wraps",
     [](const Case& c) { return IsConv(c.op) && SumsOfCodes(c); }, TapsInInt16,
     Cause::kBitsOfFamily},
    {Stage::kPadding, Kind::kPadding, "unclipped divisor",
     "counts positions past the bottom and the right edge in the divisor", Is<Op::kAvgPool>,
     Set<&PoolHooks::window_padding, DivideBy<&PoolWindow::not_before>>},
    {Stage::kPadding, Kind::kPadding, "padding in the divisor",
     "counts the padding in the divisor, though the case leaves it out",
     [](const Case& c) { return c.op == Op::kAvgPool && !c.window.count_include_pad; },
     Set<&PoolHooks::window_padding, DivideBy<&PoolWindow::with_padding>>},
    {Stage::kPadding, Kind::kPadding, "padding not in the divisor",
     "leaves the padding out of the divisor, which includes it",
     [](const Case& c) { return c.window.count_include_pad; },
     Set<&PoolHooks::window_padding, DivideBy<&PoolWindow::inside>>},
    {Stage::kPadding, Kind::kPadding, "kernel as divisor",
     "divides by the size of the kernel everywhere", Is<Op::kAvgPool>,
     Set<&PoolHooks::window_padding, DivideBy<&PoolWindow::positions>>},
    {Stage::kPadding, Kind::kPadding, "padding on other side",
     "pads the bottom as the top and the right as the left", Of<HasWindow>,
     [](Stages& s) {
       return EditWindow(s, [](Window& v) {
         std::swap(v.pad_top, v.pad_bottom);
         std::swap(v.pad_left, v.pad_right);
       });
     }},
    {Stage::kPadding, Kind::kPadding, "padding of other axis",
     "pads rows as columns and columns as rows", Of<HasWindow>,
     [](Stages& s) {
       return EditWindow(s, [](Window& v) {
         std::swap(v.pad_top, v.pad_left);
         std::swap(v.pad_bottom, v.pad_right);
       });
     }},
    {Stage::kGeometry, Kind::kIndex, "kernel width bounded by height",
     "takes columns of the kernel from its height on for padding",
     [](const Case& c) { return IsConv(c.op) && c.window.kernel_w > c.window.kernel_h; },
     Set<&SumSteps::x_row, NotBeyondHeight>},
    {Stage::kGeometry, Kind::kIndex, "strides swapped",
     "steps rows by the stride of columns and the reverse", Of<HasWindow>,
     [](Stages& s) { return EditWindow(s, [](Window& v) { std::swap(v.stride_h, v.stride_w); }); }},
    {Stage::kGeometry, Kind::kIndex, "dilations swapped",
     "spreads rows by the dilation of columns and the reverse", Of<HasWindow>,
     [](Stages& s) {
       return EditWindow(s, [](Window& v) { std::swap(v.dilation_h, v.dilation_w); });
     }},
    {Stage::kGeometry, Kind::kIndex, "dilation ignored", "ignores the dilation", Of<HasWindow>,
     [](Stages& s) { return EditWindow(s, IgnoreDilation); }},
    {Stage::kGeometry, Kind::kIndex, "group modulo",
     "takes output channel n to be of group n mod groups", Groups,
     Set<&SumSteps::group_modulo, true>},
    {Stage::kAccumulate, Kind::kInt32Overflow, "int32 wrap", "lets the sum wrap in int32",
     [](const Case& c) { return SumsOfCodes(c) || c.op == Op::kMul; },
     Set<&Stages::integer, Wrap<int32_t>>, 6},
    {Stage::kOffset, Kind::kZeroPoint, "maximum not subtracted",
     "takes distances from the largest code of the type instead of the row's", Is<Op::kSoftmax>,
     Set<&SoftmaxHooks::largest_of_type, true>},
    {Stage::kOffset, Kind::kZeroPoint, "maximum from 0",
     "starts the maximum of a row of s8 codes at 0",
     [](const Case& c) { return c.op == Op::kSoftmax && c.x.dtype() == DType::kS8; },
     Set<&SoftmaxHooks::least_largest, 0>},
    {Stage::kOffset, Kind::kZeroPoint, "range without zero", "does not widen the range to hold 0",
     ChoosesQParams, Set<&ChoiceHooks::range_without_zero, true>},
    {Stage::kClamp, Kind::kClamp, "reduce_range ignored",
     "spreads the range over all codes instead of half of them", Always,
     [](Stages& s) { return Replace(s.c.observer.reduce_range, false); }},
    {Stage::kOperands, Kind::kIndex, "one choice for all rows",
     "chooses one scale and zero point for all rows", ChoosesScales,
     [](Stages& s) { return Replace(s.c.x_gran, Granularity::kTensor); }},
    {Stage::kOperands, Kind::kIndex, "a choice for each row",
     "chooses a scale and zero point for each row", ChoosesScales,
     [](Stages& s) { return Replace(s.c.x_gran, Granularity::kRow); }},
    {Stage::kIndex, Kind::kIndex, "choice of row 0",
     "quantizes every row by the scale and zero point of row 0", ChoosesForRows,
     Set<&ChoiceHooks::choice_of_row_0, true>},
    {Stage::kIndex, Kind::kIndex, "scale of row 0",
     "takes the sums of every row times the scale of row 0", ChoosesForRows,
     Set<&ChoiceHooks::scale_of_row_0, true>},
    {Stage::kIndex, Kind::kIndex, "zero point of row 0",
     "takes the zero point of row 0 out of the sums of every row", ChoosesForRows,
     Set<&ChoiceHooks::zero_point_of_row_0, true>},
    {Stage::kOffset, Kind::kZeroPoint, "chosen zero point not taken out",
     "does not take the zero point out with which it quantized x", ChoosesScales,
     Set<&ChoiceHooks::zero_point_left_in, true>},
    {Stage::kOperands, Kind::kRounding, "rule of observers",
     "chooses scale and zero point as PyTorch's observers do", ChoosesByAnyRule,
     SetRule<QParamsRule::kObserver>},
    {Stage::kOperands, Kind::kRounding, "rule of ATen", "chooses scale and zero point as ATen does",
     ChoosesByAnyRule, SetRule<QParamsRule::kAten>},
    {Stage::kOperands, Kind::kRounding, "rule of ONNX",
     "chooses scale and zero point as DynamicQuantizeLinear does", ChoosesByAnyRule,
     SetRule<QParamsRule::kOnnx>},
    {Stage::kScale, Kind::kRounding, "MX scale of floor",
     "chooses the shared scale as OCP does, by the floor of log2 of the largest magnitude",
     ChoosesMx, SetRule<QParamsRule::kMxFloor>},
    {Stage::kScale, Kind::kRounding, "MX scale of ceil",
     "chooses the shared scale by the ceiling of log2 of the largest magnitude", ChoosesMx,
     SetRule<QParamsRule::kMxCeil>},
    {Stage::kScale, Kind::kRounding, "MX scale of even",
     "chooses the shared scale by the largest magnitude rounded to the element's bits", ChoosesMx,
     SetRule<QParamsRule::kMxEven>},
    {Stage::kScale, Kind::kRounding, "MX scale of rceil",
     "chooses the least shared scale under which no element saturates", ChoosesMx,
     SetRule<QParamsRule::kMxRceil>},
    {Stage::kScale, Kind::kRounding, "MX scale of nearest",
     "casts the largest magnitude over the largest element to the type of the shared scale",
     ChoosesMx, SetRule<QParamsRule::kMxNearest>},
    {Stage::kRound, Kind::kRounding, "MX elements truncated", "truncates elements toward zero",
     [](const Case& c) { return IsMx(c.rule) && c.codes; },
     [](Stages& s) { return Replace(s.c.rounding, FloatRounding::kTowardZero); }},
    {Stage::kOffset, Kind::kZeroPoint, "zero point from code 0",
     "counts the zero point from code 0 instead of from the lowest code",
     [](const Case& c) { return Observes(c) && c.observer.quant_min != 0; },
     Set<&ChoiceHooks::zero_point_from_0, true>},
    {Stage::kOffset, Kind::kZeroPoint, "lowest code over the scale",
     "takes (quant_min - min) / scale for the zero point, not quant_min - min / scale",
     [](const Case& c) { return ChoosesQParams(c) && c.observer.quant_min != 0; },
     Set<&ChoiceHooks::lowest_code_is_scaled, true>},
    {Stage::kRound, Kind::kClamp, "no scale floor", "lets a scale fall below 2^-23",
     [](const Case& c) { return Observes(c) && c.rule == QParamsRule::kObserver; },
     Set<&ChoiceHooks::least_scale, 0.0f>},
    {Stage::kAccumulate, Kind::kRounding, "double average", "keeps the moving average in double",
     [](const Case& c) { return c.observer.kind == Observer::Kind::kMovingAverage; },
     Set<&ChoiceHooks::averages_in_double, true>},
    {Stage::kClamp, Kind::kClamp, "int8 distance",
     "saturates the distance from the largest code at int8", Is<Op::kSoftmax>,
     Set<&SoftmaxHooks::most_distance, 127>},
    {Stage::kAccumulate, Kind::kClamp, "softmax distance in int8",
     "keeps the distance from the largest code in an int8 that wraps: what is 129 or more below it "
     "counts as it does",
     Is<Op::kSoftmax>, Set<&SoftmaxHooks::distance_wraps, true>},
    {Stage::kClamp, Kind::kClamp, "probability of 1 wraps",
     "keeps the low byte of a probability that rounds to 256/256, which is the lowest code",
     Is<Op::kSoftmax>,
     [](Stages& s) {
       s.codes.round = UnboundedShare;
       s.codes.narrow = KeepLowByte;
       return true;
     }},
    {Stage::kClamp, Kind::kClamp, "cast saturates",
     "gives the largest value where infinity or NaN is asked for", Is<Op::kCast>,
     [](Stages& s) { return Replace(s.c.overflow, FloatOverflow::kSaturate); }, 3},
    {Stage::kClamp, Kind::kClamp, "cast overflows",
     "gives infinity or NaN where the largest value or NaN is asked for", Is<Op::kCast>,
     [](Stages& s) { return Replace(s.c.overflow, FloatOverflow::kInfinity); }, 3},
    {Stage::kRound, Kind::kRounding, "cast truncates", "rounds toward zero", Is<Op::kCast>,
     [](Stages& s) { return Replace(s.c.rounding, FloatRounding::kTowardZero); }, 3},
    {Stage::kRound, Kind::kRounding, "cast rounds to nearest",
     "rounds to nearest even, whatever is asked for", Is<Op::kCast>,
     [](Stages& s) { return Replace(s.c.rounding, FloatRounding::kNearestEven); }},
    {Stage::kClamp, Kind::kClamp, "relu at code 0",
     "clamps the fused relu at code 0 instead of the output zero point", HasCodesOut,
     ReluAtCodeZero},
    {Stage::kClamp, Kind::kClamp, "relu instead of out_min",
     "puts the zero point of the fused relu in place of out_min, also where out_min is above it",
     HasCodesOut, ReluInsteadOfBound},
    {Stage::kClamp, Kind::kClamp, "relu ignored", "ignores the relu", Always,
     [](Stages& s) { return Replace(s.c.relu, false); }, 6},
    {Stage::kClamp, Kind::kClamp, "clamp ignored",
     "clamps to the type instead of [out_min, out_max]", Always, ClampToType, 6},
    {Stage::kClamp, Kind::kClamp, "clamp and relu ignored",
     "clamps to the type instead of [out_min, out_max], and ignores the relu",
     [](const Case& c) { return RowOf(c.op).relu; },
     [](Stages& s) {
       const bool relu = Replace(s.c.relu, false);
       return ClampToType(s) || relu;
     },
     Cause::kBitsOfFamily},
    {Stage::kClamp, Kind::kClamp, "conversion overflow",
     "turns values beyond int32 into INT32_MIN before the clamp (cvtps2dq)", Converts,
     Set<&CodeHooks::convert, HugeBecomesMinimum>, 7},
    {Stage::kClamp, Kind::kClamp, "conversion wraps",
     "keeps the low 32 bits of values beyond int32 before the clamp", Converts,
     Set<&CodeHooks::convert, KeepLow32Bits>},
    {Stage::kClamp, Kind::kClamp, "doubled value wraps",
     "keeps twice the value in an int32 that wraps: from 2^30 on it is another one", Converts,
     Set<&CodeHooks::convert, KeepTwiceIn32Bits>, Cause::kBitsOfFamily},
    {Stage::kClamp, Kind::kClamp, "truncating narrow", "keeps the low byte instead of saturating",
     RoundsReal, NarrowTo<KeepLowByte>},
    {Stage::kClamp, Kind::kClamp, "cast of C",
     "cuts to an int32, and keeps its low byte instead of saturating", RoundsReal,
     CastAsInC<Truncate>},
    {Stage::kClamp, Kind::kClamp, "truncating narrow to 16 bits",
     "keeps the low 16 bits instead of saturating",
     [](const Case& c) { return RoundsReal(c) && IsWideCode(c.out_dtype); },
     NarrowTo<KeepLow16Bits>},
    {Stage::kClamp, Kind::kClamp, "NaN as lower bound",
     "turns NaN into the lower bound instead of the zero point", Quantizes, NanToLowerBound},
    {Stage::kClamp, Kind::kZeroPoint, "int8 difference", "saturates code - zero_point at int8",
     Is<Op::kDequantize>, Set<&Stages::integer, SaturateAtInt8>},
    {Stage::kClamp, Kind::kZeroPoint, "uint32 difference",
     "computes code - zero_point in 32 bits without sign: 2^32 too much where it is negative",
     Is<Op::kDequantize>, Set<&Stages::integer, InUint32>},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "{w_zero_point} ignored", "ignores the {w_zero_point}",
     Always, EditZeroPoint<&Case::w_q, Ignored>, 4},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "{x_zero_point} ignored", "ignores the {x_zero_point}",
     Always, EditZeroPoint<&Case::x_q, Ignored>, 4},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "middle code for the weight zero point",
     "takes the middle of the weight codes, 8 of u4 and 0 of s4, for the weight zero point",
     [](const Case& c) { return HasWeights(c.op) && IsCode(c.w.dtype()); },
     [](Stages& s) {
       const CodeRange codes = RangeOf(s.c.w.dtype());
       std::vector<int32_t> middle(s.c.w_q.zero_point.size(), (codes.min + codes.max + 1) / 2);
       return Replace(s.c.w_q.zero_point, std::move(middle));
     },
     Cause::kBitsOfMistake, false, nullptr, false,
     [](const Case& c) { return RangeOf(c.w.dtype()).min != 0; }},
    {Stage::kOffset, Kind::kZeroPoint, "weight zero point taken from the input",
     "subtracts the weight zero point from the input instead of the weights: (x - x_zp - w_zp) * w",
     SumsOfCodes, Set<&SumSteps::edit_terms, TakeWeightZeroPointFromInput>},
    {Stage::kOffset, Kind::kZeroPoint, "padded K in K*zx*zw",
     "uses K rounded up to a multiple of 4 in the zero-point term",
     [](const Case& c) { return SumsOfCodes(c) && c.K % 4 != 0; },
     Set<&SumSteps::edit_terms, RoundCountUp>},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "{w_zero_point} as int8",
     "keeps the {w_zero_point} in an int8 that wraps", Always, EditZeroPoint<&Case::w_q, InInt8>},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "{x_zero_point} as int8",
     "keeps the {x_zero_point} in an int8 that wraps", Always, EditZeroPoint<&Case::x_q, InInt8>},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "negated zero point as int8",
     "keeps the negated {x_zero_point} in an int8, where -128 is its own negative", Always,
     EditZeroPoint<&Case::x_q, NegatedInInt8>},
    {Stage::kOffset, Kind::kIndex, "row sum of row 0", "corrects every row with the sum of row 0",
     [](const Case& c) { return SumsOfCodes(c) && c.M > 1; },
     Set<&SumSteps::edit_terms, TakeFirstRowSum>},
    {Stage::kOffset, Kind::kRounding, "float32 zero-point term",
     "computes x_zp times the column sum in float32", SumsOfCodes,
     Set<&SumSteps::edit_terms, ZeroPointTermInFloat>},
    {Stage::kOffset, Kind::kInt32Overflow, "zero-point term negated in int32",
     "negates a zero point times a sum of codes in int32, where -2^31 is its own negative",
     SumsOfCodes, Set<&SumSteps::edit_terms, NegateTermsInInt32>},
    {Stage::kTail, Kind::kTail, "last weight of an odd row dropped",
     "drops the product of the last weight of a row that ends inside a byte", EndsInsideAByte,
     DropProducts<2>},
    {Stage::kTail, Kind::kTail, "last product dropped", "drops the last product", HasTail<1>,
     DropProducts<1>},
    {Stage::kTail, Kind::kTail, "product tail of 4 dropped", "drops the last K % 4 products",
     HasTail<4>, DropProducts<4>},
    {Stage::kTail, Kind::kTail, "product tail of 8 dropped", "drops the last K % 8 products",
     HasTail<8>, DropProducts<8>},
    {Stage::kTail, Kind::kTail, "product tail of 16 dropped", "drops the last K % 16 products",
     HasTail<16>, DropProducts<16>},
    {Stage::kTail, Kind::kTail, "product tail of 32 dropped", "drops the last K % 32 products",
     HasTail<32>, DropProducts<32>},
    {Stage::kTail, Kind::kTail, "last term dropped",
     "drops the last term, in the zero-point sums too", HasTail<1>, DropTerms<1>},
    {Stage::kTail, Kind::kTail, "term tail of 4 dropped",
     "drops the last K % 4 terms, in the zero-point sums too", HasTail<4>, DropTerms<4>},
    {Stage::kTail, Kind::kTail, "term tail of 8 dropped",
     "drops the last K % 8 terms, in the zero-point sums too", HasTail<8>, DropTerms<8>},
    {Stage::kTail, Kind::kTail, "term tail of 16 dropped",
     "drops the last K % 16 terms, in the zero-point sums too", HasTail<16>, DropTerms<16>},
    {Stage::kTail, Kind::kTail, "term tail of 32 dropped",
     "drops the last K % 32 terms, in the zero-point sums too", HasTail<32>, DropTerms<32>},
    {Stage::kRound, Kind::kRounding, "float32 scale product",
     "rounds x_scale*w_scale to float32 first",
     [](const Case&
            c) { return (HasSums(c) || c.op == Op::kRequantize) && c.requant == Requant::kExact; },
     RoundScaleProduct},
    {Stage::kOperands, Kind::kRounding, "denormals are zero", "takes denormals for 0",
     [](const Case& c) {
       return c.op == Op::kQuantize || (c.out_dtype == DType::kF32 && !RowOf(c.op).observer);
     },
     FlushDenormals},
    {Stage::kOperands, Kind::kRounding, "denormals are zero, scales too",
     "takes denormals for 0, scales too", Is<Op::kDequantize>, FlushDenormalScales},
    {Stage::kOperands, Kind::kRounding, "denormal inputs are zero",
     "takes denormal inputs for 0, but not a denormal scale", Is<Op::kQuantize>,
     FlushDenormalInputs},
    {Stage::kRound, Kind::kRounding, "x * fl(1/s)",
     "multiplies by the float32 reciprocal of the scale", Quantizes,
     Set<&CodeHooks::round, RoundValue<InFloat<true>>>, 5},
    {Stage::kRound, Kind::kRounding, "x * fl(1/s), NaN is 0",
     "multiplies by the float32 reciprocal of the scale, and converts NaN, 0 times infinity, to 0",
     Quantizes, Set<&CodeHooks::round, RoundValue<InFloat<true, true>>>, Cause::kBitsOfFamily},
    {Stage::kRound, Kind::kRounding, "x * fl(1/s), where that is finite",
     "multiplies by the float32 reciprocal of the scale, and divides where that gives no finite "
     "number",
     Is<Op::kQuantize>, Set<&CodeHooks::round, TimesReciprocalIfFinite>, Cause::kBitsOfFamily},
    {Stage::kRound, Kind::kRounding, "fl(x / s)",
     "rounds the quotient to float32 before it rounds to a code", Quantizes,
     Set<&CodeHooks::round, RoundValue<InFloat<false>>>, 5},
    {Stage::kRound, Kind::kRounding, "float32 multiplier",
     "rounds the {sum} and the {multiplier} to float32 before the result",
     [](const Case& c) { return Multiplies(c) || (SumsOfCodes(c) && c.out_dtype == DType::kF32); },
     MultiplyInFloat, 5},
    {Stage::kRound, Kind::kRounding, "float32 reciprocal",
     "multiplies by {reciprocal} before rounding", Multiplies,
     Set<&CodeHooks::round, RoundValue<InFloat<true>>>, 6},
    {Stage::kRound, Kind::kRounding, "float32 value over the output scale",
     "rounds the {sum}, its real value and the quotient by the output scale to float32",
     [](const Case& c) { return Multiplies(c) && !AddsOperands(c.op); },
     Set<&CodeHooks::round, RoundValue<DequantizedFirst>>, 6},
    {Stage::kRound, Kind::kTie, "zero point before rounding (float32)",
     "adds the zero point in float32 before it rounds", Converts,
     Set<&CodeHooks::round, FloatZeroPointFirst>, 6},
    {Stage::kRound, Kind::kTie, "zero point before rounding",
     "adds the zero point before it rounds half to even", RoundsReal,
     Set<&CodeHooks::round, ZeroPointBeforeRounding>, 6},
    {Stage::kRound, Kind::kTie, "half away from zero", "rounds ties away from zero", RoundsReal,
     Set<&CodeHooks::round, HalfAway>, 3},
    {Stage::kRound, Kind::kTie, "half up", "rounds ties up", RoundsReal,
     Set<&CodeHooks::round, HalfUp>, 5},
    {Stage::kRound, Kind::kTie, "half down below zero",
     "rounds negative ties down, the others to even", RoundsReal,
     Set<&CodeHooks::round, HalfBelowZero<-1>>},
    {Stage::kRound, Kind::kTie, "half up below zero", "rounds negative ties up, the others to even",
     RoundsReal, Set<&CodeHooks::round, HalfBelowZero<1>>},
    {Stage::kRound, Kind::kRounding, "truncation", "truncates towards zero",
     [](const Case& c) { return RoundsReal(c) || c.op == Op::kSoftmax; },
     Set<&CodeHooks::round, Truncate>, 5},
    {Stage::kRound, Kind::kRounding, "ratio in 256ths",
     "rounds the ratio of scales to 256ths, and ties up", Is<Op::kRescale>,
     Set<&CodeHooks::round, In256ths>},
    {Stage::kClamp, Kind::kClamp, "reduce_range added",
     "spreads the range over half of the codes instead of all of them", ChoosesQParams,
     [](Stages& s) { return Replace(s.c.observer.reduce_range, true); }},
    {Stage::kRound, Kind::kRounding, "left shift dropped",
     "drops the power of two of a multiplier of 1 or more",
     [](const Case& c) { return HasTwoInputs(c.op) || c.op == Op::kRescale; }, DropLeftShift},
    {Stage::kBias, Kind::kInt32Overflow, "bias wraps",
     "lets a bias beyond int32 units of x_scale*w_scale wrap in int32", HasBias,
     [](Stages& s) { return ConvertBias(s, WrappedUnits); }},
    {Stage::kBias, Kind::kInt32Overflow, "bias conversion overflow",
     "turns a bias beyond int32 units of x_scale*w_scale into INT32_MIN", HasBias,
     [](Stages& s) { return ConvertBias(s, MinimumOfUnits); }},
    {Stage::kBias, Kind::kRounding, "int32 bias",
     "rounds the float bias to an int32 in units sx*sw first", HasBias,
     [](Stages& s) { return ConvertBias(s, RoundedUnits); }, 6},
    {Stage::kBias, Kind::kRounding, "int32 bias that overflows",
     "rounds the float bias to an int32 in units sx*sw first, beyond int32 to INT32_MIN", HasBias,
     [](Stages& s) { return ConvertBias(s, ConvertedUnits); }, Cause::kBitsOfFamily},
    {Stage::kBias, Kind::kIndex, "int32 bias in units of channel 0",
     "rounds the float bias to an int32 in units of sx times the weight scale of channel 0, and "
     "scales it with that of its own",
     HasBias, ConvertBiasByChannel0, Cause::kBitsOfFamily},
    {Stage::kBias, Kind::kIndex, "float bias in units of channel 0",
     "takes the float bias in units of the weight scale of channel 0, and scales it with that of "
     "its own",
     [](const Case& c) { return HasBias(c) && c.w_q.scale.size() > 1; },
     [](Stages& s) {
       const auto first = static_cast<double>(s.c.w_q.scale_at(0));
       bool changes = false;
       for (size_t n = 0; n < s.c.bias->size(); ++n) {
         const auto own = static_cast<double>(s.c.w_q.scale_at(static_cast<int64_t>(n)));
         float& bias = (*s.c.bias)[n];
         const auto moved = static_cast<float>(static_cast<double>(bias) * (own / first));
         if (std::isfinite(moved)) changes |= Replace(bias, moved);
       }
       return changes;
     },
     Cause::kBitsOfFamily},
    {Stage::kBias, Kind::kIndex, "bias times the weight scale",
     "multiplies the bias by the weight scale", HasBias, ScaleBias<false, true>,
     Cause::kBitsOfFamily},
    {Stage::kBias, Kind::kIndex, "bias times the input scale",
     "multiplies the bias by the input scale", HasBias, ScaleBias<true, false>,
     Cause::kBitsOfFamily},
    {Stage::kBias, Kind::kIndex, "bias times both scales",
     "takes the float bias to be in units of both scales", HasBias, ScaleBias<true, true>,
     Cause::kBitsOfFamily},
    {Stage::kBias, Kind::kIndex, "bias ignored", "ignores the bias", Always, IgnoreBias, 6},
    {Stage::kIndex, Kind::kIndex, "channel within group",
     "takes the scales of channels by their numbers within the group", Groups,
     [](Stages& s) { return IndexChannelsModulo(s, s.c.N / s.c.window.groups); }},
    {Stage::kIndex, Kind::kIndex, "scales by group",
     "takes the scale of channel g for the channels of group g", Groups,
     [](Stages& s) {
       const int64_t channels = std::max<int64_t>(s.c.N / s.c.window.groups, 1);
       return ReindexScales(s.c, [channels](int64_t n, int64_t) { return n / channels; });
     }},
    {Stage::kIndex, Kind::kIndex, "channel 0 for all",
     "takes the scale of channel 0 for every channel", Always,
     [](Stages& s) { return IndexChannelsModulo(s, 1); }},
    {Stage::kIndex, Kind::kIndex, "channel modulo 8",
     "takes the scale of channel n from channel n % 8", Always,
     [](Stages& s) { return IndexChannelsModulo(s, 8); }},
    {Stage::kIndex, Kind::kIndex, "channel modulo 16",
     "takes the scale of channel n from channel n % 16", Always,
     [](Stages& s) { return IndexChannelsModulo(s, 16); }},
    {Stage::kIndex, Kind::kIndex, "table index offset",
     "indexes a table that begins at the lowest code with the byte of the code",
     [](const Case& c) { return c.op == Op::kTable && c.x.dtype() == DType::kS8; },
     OffsetTableIndex},
    {Stage::kOperands, Kind::kIndex, "negative codes one entry on",
     "takes the entry behind that of a negative code",
     [](const Case& c) { return c.op == Op::kTable && c.x.dtype() == DType::kS8; },
     RaiseNegativeCodes, Cause::kBitsOfFamily},
    {Stage::kOperands, Kind::kIndex, "first operand for all",
     "takes the scale and zero point of the first operand for all", Is<Op::kConcat>,
     [](Stages& s) { return Replace(s.c.w_q, s.c.x_q); }},
    {Stage::kOperands, Kind::kIndex, "scale of the first operand for both",
     "takes the scale of the first operand for both", Of<HasTwoInputs>,
     [](Stages& s) { return Replace(s.c.w_q.scale, s.c.x_q.scale); }},
    {Stage::kOperands, Kind::kIndex, "scale of the second operand for both",
     "takes the scale of the second operand for both", Of<HasTwoInputs>,
     [](Stages& s) { return Replace(s.c.x_q.scale, s.c.w_q.scale); }},
    {Stage::kOperands, Kind::kIndex, "input sign in the products",
     "reads the input codes with the other signedness in the products, but not in their sums",
     SumsOfCodes, Set<&SumSteps::other_sign_in_products, true>},
    {Stage::kOperands, Kind::kIndex, "operands swapped",
     "takes the scale and zero point of each operand for the other", Of<HasTwoInputs>,
     SwapParameters},
    {Stage::kOperands, Kind::kIndex, "sign of both operands",
     "reads the codes of both operands with the other signedness", Of<HasTwoInputs>,
     ReadWithOtherSign<&Case::x, &Case::w>},
    {Stage::kIndex, Kind::kIndex, "scale of the block behind",
     "takes the scale of the block of weights behind the right one", HasBlocks,
     ScaleOfBlockBeside<1>, Cause::kBitsOfFamily},
    {Stage::kIndex, Kind::kIndex, "scale of the block before",
     "takes the scale of the block of weights before the right one", HasBlocks,
     ScaleOfBlockBeside<-1>, Cause::kBitsOfFamily},
    {Stage::kIndex, Kind::kIndex, "scale of the block behind in its row",
     "takes the scale of the block of weights behind the right one, of the last its own", HasBlocks,
     OfBlockInRow<&Case::w_q, &QParams::scale, BlockBehind>, Cause::kBitsOfFamily, false, nullptr,
     false, HasOneRow},
    {Stage::kIndex, Kind::kIndex, "scale of the block before in its row",
     "takes the scale of the block of weights before the right one, of the first its own",
     HasBlocks, OfBlockInRow<&Case::w_q, &QParams::scale, BlockBefore>, Cause::kBitsOfFamily, false,
     nullptr, false, HasOneRow},
    {Stage::kIndex, Kind::kIndex, "scale of the first block",
     "takes the scale of a channel's first block of weights for all of its blocks", HasBlocks,
     OfBlockInRow<&Case::w_q, &QParams::scale, FirstBlock>, Cause::kBitsOfFamily},
    {Stage::kIndex, Kind::kIndex, "parameters of the block behind",
     "takes the scale and zero point of the block of weights behind the right one, of the last its "
     "own",
     HasBlocks, ParametersOfBlockInRow<BlockBehind>, Cause::kBitsOfFamily},
    {Stage::kIndex, Kind::kIndex, "parameters of the block before",
     "takes the scale and zero point of the block of weights before the right one, of the first "
     "its own",
     HasBlocks, ParametersOfBlockInRow<BlockBefore>, Cause::kBitsOfFamily},
    {Stage::kIndex, Kind::kIndex, "parameters of the first block",
     "takes the scale and zero point of a channel's first block of weights for all of its blocks",
     HasBlocks, ParametersOfBlockInRow<FirstBlock>, Cause::kBitsOfFamily},
    {Stage::kIndex, Kind::kIndex, "scale of the other block of a pair",
     "takes the scale of the other block of a pair of blocks of weights", HasBlocks,
     OfBlockInRow<&Case::w_q, &QParams::scale, OtherBlockOfPair>, Cause::kBitsOfFamily},
    {Stage::kIndex, Kind::kIndex, "input scale of the other block of a pair",
     "takes the scale of the other block of a pair of blocks of input codes", XHasBlocks,
     OfBlockInRow<&Case::x_q, &QParams::scale, OtherBlockOfPair>, Cause::kBitsOfFamily},
    {Stage::kIndex, Kind::kIndex, "input scales of row 0",
     "takes the scales of the blocks of row 0 of the input for every row",
     [](const Case& c) { return c.x_block != 0 && c.K > 0 && c.M > 1; }, XScalesOfRow0,
     Cause::kBitsOfFamily},
    {Stage::kIndex, Kind::kIndex, "input scale of the block behind",
     "takes the scale of the block of input codes behind the right one, of the last its own",
     XHasBlocks, OfBlockInRow<&Case::x_q, &QParams::scale, BlockBehind>, Cause::kBitsOfFamily},
    {Stage::kIndex, Kind::kIndex, "input scale of the block before",
     "takes the scale of the block of input codes before the right one, of the first its own",
     XHasBlocks, OfBlockInRow<&Case::x_q, &QParams::scale, BlockBefore>, Cause::kBitsOfFamily},
    {Stage::kIndex, Kind::kIndex, "input scale of the first block",
     "takes the scale of a row's first block of input codes for all of its blocks", XHasBlocks,
     OfBlockInRow<&Case::x_q, &QParams::scale, FirstBlock>, Cause::kBitsOfFamily},
    {Stage::kScale, Kind::kRounding, "subnormal scales of blocks flushed",
     "takes scales of blocks that are subnormal in float16, below 2^-14, for 0", AddsScaledBlocks,
     FlushScales, Cause::kBitsOfFamily},
    {Stage::kScale, Kind::kRounding, "product of block scales in float16",
     "rounds the product of the scales of two blocks to float16", AddsScaledBlocks,
     RoundProductsOfScales, Cause::kBitsOfFamily},
    {Stage::kRound, Kind::kRounding, "float16 sum between blocks",
     "keeps the sum in a float16 from each block to the next", AddsScaledBlocks,
     Set<&Stages::behind_block, InHalf>, Cause::kBitsOfFamily},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "zero point of the first block",
     "takes the zero point of a channel's first block of weights for all of its blocks", HasBlocks,
     OfBlockInRow<&Case::w_q, &QParams::zero_point, FirstBlock>, Cause::kBitsOfFamily},
    {Stage::kIndex, Kind::kIndex, "scale of the short block left out",
     "does not multiply by the scale of the last block of weights where it is shorter",
     HasShortBlock,
     [](Stages& s) {
       bool changes = false;
       for (int64_t n = 0; n < s.c.N; ++n)
         changes |= Replace(s.c.w_q.scale[WEntry(s.c, n, s.c.K - 1)], 1.0f);
       return changes;
     },
     Cause::kBitsOfFamily},
    {Stage::kTail, Kind::kTail, "short block dropped",
     "drops the last block of weights where it is shorter than the others", HasShortBlock,
     DropLastBlock, Cause::kBitsOfFamily},
    {Stage::kTail, Kind::kTail, "last block dropped", "drops the last block of weights",
     [](const Case& c) { return c.w_block != 0 && c.K > 0; }, DropLastBlock, Cause::kBitsOfFamily},
    {Stage::kTail, Kind::kTail, "last of an odd number of blocks dropped",
     "drops the last block of weights where their number is odd",
     [](const Case& c) { return c.w_block != 0 && c.K > 0 && RowBlocks(c) % 2 == 1; },
     DropLastBlock, Cause::kBitsOfFamily},
    {Stage::kOperands, Kind::kIndex, "weights of a byte reversed",
     "reads the weights that share a byte in the reverse order", PackedWeights,
     ReadPacked<ReversedInByte>},
    {Stage::kOperands, Kind::kIndex, "rows of whole bytes",
     "begins each row of weights after the bytes that the row before fills, without its last part "
     "of a byte",
     [](const Case& c) { return PackedWeights(c) && HasSums(c.op) && c.N > 1; },
     ReadPacked<RowsOfWholeBytes>,
     Cause::kBitsOfFamily},
    {Stage::kOperands, Kind::kIndex, "part of a byte by column",
     "finds the byte of a weight by its place in all rows, but which part of it by k alone",
     [](const Case& c) { return PackedWeights(c) && HasSums(c.op) && c.N > 1; },
     ReadPacked<PartOfByteByColumn>, Cause::kBitsOfFamily},
    {Stage::kOperands, Kind::kIndex, "{x_sign}", "reads the {x_codes} with the other signedness",
     CodesOfInput, ReadWithOtherSign<&Case::x>},
    {Stage::kOperands, Kind::kIndex, "{w_sign}", "reads the {w_codes} with the other signedness",
     Weights, ReadWithOtherSign<&Case::w>},
};

// Everyday mistakes that single codes often look like by chance: tried as families are.
const Cause kMistakes[] = {
    {Stage::kClamp, Kind::kZeroPoint, "output zero point ignored", "ignores the output zero point",
     HasCodesOut, EditZeroPoint<&Case::out_q, Ignored>, 6},
    {Stage::kClamp, Kind::kZeroPoint, "output zero point subtracted",
     "subtracts the output zero point instead of adding it", HasCodesOut,
     EditZeroPoint<&Case::out_q, Negated>},
    {Stage::kClamp, Kind::kZeroPoint, "output zero point not added",
     "does not add the output zero point, though its relu is clamped there", [](const Case& c) {
       return HasCodesOut(c) && Converts(c) && RowOf(c.op).relu;
     },
     Set<&CodeHooks::round, WithoutZeroPoint>},
    {Stage::kRound, Kind::kClamp, "saturation before the output scale",
     "rounds the real value to a code and saturates it before it divides by the output scale",
     [](const Case& c) { return HasCodesOut(c) && Converts(c) && HasSums(c.op); },
     Set<&CodeHooks::round, RoundBeforeOutputScale<true>>},
    {Stage::kRound, Kind::kRounding, "rounding before the output scale",
     "rounds the real value to an integer before it divides by the output scale",
     [](const Case& c) { return HasCodesOut(c) && Converts(c) && HasSums(c.op); },
     Set<&CodeHooks::round, RoundBeforeOutputScale<false>>},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "zero points of x and output ignored",
     "ignores the zero points of x and of the output",
     [](const Case& c) {
       return c.op == Op::kAvgPool || c.op == Op::kGlobalAvgPool || c.op == Op::kRescale;
     },
     EditZeroPoints<&Case::x_q, &Case::out_q, Ignored>,
     7},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "{w_zero_point} added",
     "adds the {w_zero_point} instead of subtracting it", Always,
     EditZeroPoint<&Case::w_q, Negated>, 6},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "{x_zero_point} added",
     "adds the {x_zero_point} instead of subtracting it", Always,
     EditZeroPoint<&Case::x_q, Negated>, 6},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "both zero points added",
     "adds both zero points instead of subtracting them",
     [](const Case& c) { return SumsOfCodes(c) || HasTwoOperands(c.op); },
     EditZeroPoints<&Case::x_q, &Case::w_q, Negated>, 7},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "{w_zero_point} one too large",
     "takes the {w_zero_point} one too large", Always, EditZeroPoint<&Case::w_q, OneMore>, 7},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "{w_zero_point} one too small",
     "takes the {w_zero_point} one too small", Always, EditZeroPoint<&Case::w_q, OneLess>, 7},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "{x_zero_point} one too large",
     "takes the {x_zero_point} one too large", Always, EditZeroPoint<&Case::x_q, OneMore>, 7},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "{x_zero_point} one too small",
     "takes the {x_zero_point} one too small", Always, EditZeroPoint<&Case::x_q, OneLess>, 7},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "{w_zero_point} subtracted in int8",
     "subtracts the {w_zero_point} in an int8 that wraps", Weights,
     NarrowDifference<&Case::w, &Case::w_q, int8_t, true>, 7},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "{x_zero_point} subtracted in int8",
     "subtracts the {x_zero_point} in an int8 that wraps", CodesOfInput,
     NarrowDifference<&Case::x, &Case::x_q, int8_t, true>, 7},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "{w_zero_point} subtracted in uint8",
     "subtracts the {w_zero_point} in a uint8 that wraps", Weights,
     NarrowDifference<&Case::w, &Case::w_q, uint8_t, true>},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "{x_zero_point} subtracted in uint8",
     "subtracts the {x_zero_point} in a uint8 that wraps", CodesOfInput,
     NarrowDifference<&Case::x, &Case::x_q, uint8_t, true>},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "{w_zero_point} subtracted in 8 bits",
     "subtracts the {w_zero_point} in 8 bits that wrap, those of the codes", Weights,
     NarrowToOwnType<&Case::w, &Case::w_q>},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "{x_zero_point} subtracted in 8 bits",
     "subtracts the {x_zero_point} in 8 bits that wrap, those of the codes", CodesOfInput,
     NarrowToOwnType<&Case::x, &Case::x_q>},
    {Stage::kOffset, Kind::kZeroPoint, "taps in the padding in K*zx*zw",
     "counts the taps in the padding in the product of the two zero points", Of<IsConv>,
     Set<&SumSteps::edit_terms, CountPaddedTaps>},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "zero point of the first operand for both",
     "takes the zero point of the first operand for both", Of<HasTwoInputs>,
     [](Stages& s) { return Replace(s.c.w_q.zero_point, s.c.x_q.zero_point); }},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "zero point of the second operand for both",
     "takes the zero point of the second operand for both", Of<HasTwoInputs>,
     [](Stages& s) { return Replace(s.c.x_q.zero_point, s.c.w_q.zero_point); }},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "{w_zero_point} in the type of the codes",
     "keeps the {w_zero_point} in 8 bits that wrap, those of the codes", Weights,
     ZeroPointInOwnType<&Case::w, &Case::w_q>, Cause::kBitsOfFamily},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "{x_zero_point} in the type of the codes",
     "keeps the {x_zero_point} in 8 bits that wrap, those of the codes", CodesOfInput,
     ZeroPointInOwnType<&Case::x, &Case::x_q>, Cause::kBitsOfFamily},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "{w_zero_point} as a byte without sign",
     "reads the {w_zero_point} as a byte without sign: 256 too much where it is negative",
     [](const Case& c) { return c.w.dtype() == DType::kS8; }, EditZeroPoint<&Case::w_q, InUint8>,
     Cause::kBitsOfFamily},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "{x_zero_point} as a byte without sign",
     "reads the {x_zero_point} as a byte without sign: 256 too much where it is negative",
     InputOf<DType::kS8>, EditZeroPoint<&Case::x_q, InUint8>, Cause::kBitsOfFamily},
    {Stage::kClamp, Kind::kZeroPoint, "output zero point as a byte without sign",
     "reads the output zero point as a byte without sign: 256 too much where it is negative",
     OutputsOfS8, EditZeroPoint<&Case::out_q, InUint8>, Cause::kBitsOfFamily},
    {Stage::kClamp, Kind::kZeroPoint, "both zero points as bytes without sign",
     "reads the zero points of x and of the output as bytes without sign: 256 too much where they "
     "are negative",
     [](const Case& c) {
       return OutputsOfS8(c) && (c.op == Op::kTable || c.op == Op::kRescale || HasWindow(c.op)) &&
              c.x.dtype() == DType::kS8;
     },
     EditZeroPoints<&Case::x_q, &Case::out_q, InUint8>,
     Cause::kBitsOfFamily},
    {Stage::kClamp, Kind::kClamp, "negative results as 127",
     "gives 127 for each negative code: saturates it, as a byte without sign, again", OutputsOfS8,
     Set<&CodeHooks::stored, NegativeAs127>, Cause::kBitsOfFamily},
    {Stage::kClamp, Kind::kZeroPoint, "result raised by 128",
     "adds 128 to the codes between s8 inputs and u8 outputs", ChangesSign<DType::kS8>,
     Set<&CodeHooks::narrow, MovedBy<128>>, Cause::kBitsOfFamily},
    {Stage::kClamp, Kind::kZeroPoint, "result lowered by 128",
     "takes 128 from the codes between u8 inputs and s8 outputs", ChangesSign<DType::kU8>,
     Set<&CodeHooks::narrow, MovedBy<-128>>, Cause::kBitsOfFamily},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "input codes 128 too large",
     "reads each s8 input code 128 too large", InputOf<DType::kS8>,
     EditZeroPoint<&Case::x_q, Lowered>, Cause::kBitsOfRare},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "weights 128 too small",
     "reads each u8 weight 128 too small",
     [](const Case& c) { return HasWeights(c.op) && c.w.dtype() == DType::kU8; },
     EditZeroPoint<&Case::w_q, Raised>, Cause::kBitsOfRare},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "input codes 128 too small",
     "reads each u8 input code 128 too small", InputOf<DType::kU8>,
     EditZeroPoint<&Case::x_q, Raised>, Cause::kBitsOfRare},
    {Stage::kAccumulate, Kind::kInt32Overflow, "int16 product that saturates",
     "keeps the product of the two differences in an int16 that saturates", Is<Op::kMul>,
     Set<&Stages::integer, InInt16>},
    {Stage::kOperands, Kind::kRounding, "copied where zero points are equal",
     "copies the codes of inputs whose zero points are all that of the output, whatever the scales",
     Is<Op::kConcat, Op::kRescale>, CopyOfOneZeroPoint},
    {Stage::kScale, Kind::kRounding, "weight scales in float16",
     "rounds the weight scales to the 11 bits of a float16", SumsOfCodes, WeightScalesIn<11>},
    {Stage::kScale, Kind::kRounding, "weight scales in bfloat16",
     "rounds the weight scales to the 8 bits of a bfloat16", SumsOfCodes, WeightScalesIn<8>},
    {Stage::kOperands, Kind::kIndex, "weights of multiplier-major channels",
     "takes the weights of output channel n from channel n % C * multiplier + n / C", HasMultiplier,
     WeightsOfOtherMajor},
    {Stage::kRound, Kind::kRounding, "zero point rescaled on its own",
     "rescales code and zero point each on its own, and rounds both", Is<Op::kRescale>,
     Set<&CodeHooks::round, ZeroPointRescaledToo>},
    {Stage::kRound, Kind::kClamp, "hardswish without its limit",
     "computes hardswish as x * max(x + 3, 0) / 6, without the 6 from above",
     [](const Case& c) { return c.op == Op::kTable && c.function == Function::kHardSwish; },
     Set<&CodeHooks::round, HardSwishWithoutLimit>},
    {Stage::kRound, Kind::kRounding, "average truncated first",
     "truncates the average to a whole number of input steps before it rescales",
     Is<Op::kAvgPool, Op::kGlobalAvgPool>, Set<&CodeHooks::round, AverageFirst<CutDouble>>},
    {Stage::kAccumulate, Kind::kRounding, "each code divided first",
     "divides each code by the size of the window and cuts it, and then adds", Is<Op::kAvgPool>,
     Set<&PoolHooks::under_window, DivideEach<false>>},
    {Stage::kAccumulate, Kind::kRounding, "each distance divided first",
     "divides each code less the zero point by the size of the window and cuts it, and then adds",
     Is<Op::kAvgPool>, Set<&PoolHooks::under_window, DivideEach<true>>},
    {Stage::kClamp, Kind::kZeroPoint, "input zero point in place of the output's",
     "adds the {x_zero_point} instead of the output zero point",
     [](const Case& c) { return HasCodesOut(c) && RowOf(c.op).x_qparams && !HasSums(c); },
     [](Stages& s) {
       const std::vector<int32_t> zero(s.c.out_q.zero_point.size(), s.c.x_q.zero_point_at(0));
       return Replace(s.c.out_q.zero_point, zero);
     }},
    {Stage::kAccumulate, Kind::kClamp, "maximum from code 0", "starts the maximum of s8 codes at 0",
     [](const Case& c) { return c.op == Op::kMaxPool && c.x.dtype() == DType::kS8; },
     Set<&PoolHooks::under_window, StartAtZero>},
    {Stage::kIndex, Kind::kIndex, "output zero point of channel 0",
     "takes the output zero point of every channel from channel 0", Is<Op::kQuantize>,
     ZeroPointOfChannel0<&Case::out_q>},
    {Stage::kIndex, Kind::kIndex, "input zero point of channel 0",
     "takes the zero point of every channel from channel 0", Is<Op::kDequantize>,
     ZeroPointOfChannel0<&Case::x_q>},
    {Stage::kAccumulate, Kind::kRounding, "integer in float32",
     "rounds the integer to float32 before it is scaled",
     [](const Case& c) { return Multiplies(c) || (Converts(c) && c.op == Op::kRequantize); },
     Set<&Stages::integer, InFloat32>},
    {Stage::kAccumulate, Kind::kRounding, "integer in float16",
     "rounds the integer to float16 before it is scaled, beyond 65504 to that", ScalesIntegers,
     Set<&Stages::integer, InFloat16>, Cause::kBitsOfFamily},
    {Stage::kScale, Kind::kInt32Overflow, "left shift wraps",
     "shifts the sum left in an int32 that wraps, where a multiplier is 1 or more",
     RoundsScaledIntegers, Set<&CodeHooks::round, ShiftLeftInInt32>, Cause::kBitsOfFamily},
    {Stage::kScale, Kind::kRounding, "left shift of the other sign",
     "shifts by 32 - k bits where a multiplier is 2^k, 2 or more (the count has the wrong sign)",
     [](const Case& c) { return RoundsScaledIntegers(c) || c.op == Op::kRescale; },
     Set<&CodeHooks::round, ShiftByTheOtherSign>, Cause::kBitsOfRare},
    {Stage::kScale, Kind::kRounding, "left shift to the right",
     "shifts right by 32 - n bits where a multiplier of 1 or more takes a left shift by n",
     [](const Case& c) {
       return RoundsScaledIntegers(c) || c.op == Op::kRescale || c.op == Op::kMul;
     },
     Set<&CodeHooks::round, LeftShiftToTheRight>, Cause::kBitsOfRare},
    {Stage::kRound, Kind::kRounding, "operands in float32",
     "adds both operands times their scales in float32, and divides by the output scale",
     [](const Case& c) { return Multiplies(c) && AddsOperands(c.op); },
     Set<&CodeHooks::round, RoundValue<OperandsInFloat>>},
    {Stage::kRound, Kind::kRounding, "operands rounded first",
     "rounds each operand to whole output steps before it adds them",
     [](const Case& c) { return Multiplies(c) && AddsOperands(c.op); },
     Set<&CodeHooks::round, OperandsRoundedFirst<HalfEvenOfDouble>>},
    {Stage::kRound, Kind::kRounding, "operands rounded first, half away",
     "rounds each operand to whole output steps, half away from zero, before it adds them",
     [](const Case& c) { return Multiplies(c) && AddsOperands(c.op); },
     Set<&CodeHooks::round, OperandsRoundedFirst<HalfAwayOfDouble>>, Cause::kBitsOfFamily},
    {Stage::kRound, Kind::kRounding, "operands truncated first",
     "truncates each operand to whole output steps before it adds them",
     [](const Case& c) { return Multiplies(c) && AddsOperands(c.op); },
     Set<&CodeHooks::round, OperandsRoundedFirst<CutDouble>>, Cause::kBitsOfFamily},
    {Stage::kBias, Kind::kRounding, "int32 bias, cut",
     "cuts the float bias to an int32 in units sx*sw first", HasBias,
     [](Stages& s) { return ConvertBias(s, RoundedUnits, CutDouble); }, Cause::kBitsOfFamily},
    {Stage::kBias, Kind::kRounding, "int32 bias, rounded down",
     "rounds the float bias down to an int32 in units sx*sw first", HasBias,
     [](Stages& s) { return ConvertBias(s, RoundedUnits, FloorOfDouble); }, Cause::kBitsOfFamily},
    {Stage::kBias, Kind::kRounding, "int32 bias, half away",
     "rounds the float bias, half away from zero, to an int32 in units sx*sw first", HasBias,
     [](Stages& s) { return ConvertBias(s, RoundedUnits, HalfAwayOfDouble); },
     Cause::kBitsOfFamily},
    {Stage::kRound, Kind::kRounding, "average rounded down first",
     "rounds the average down to a whole number of input steps before it rescales",
     Is<Op::kAvgPool, Op::kGlobalAvgPool>, Set<&CodeHooks::round, AverageFirst<FloorOfDouble>>,
     Cause::kBitsOfFamily},
    {Stage::kRound, Kind::kRounding, "average rounded first, half up",
     "rounds the average to a whole number of input steps, half up, before it rescales",
     Is<Op::kAvgPool, Op::kGlobalAvgPool>, Set<&CodeHooks::round, AverageFirst<HalfUpOfDouble>>,
     Cause::kBitsOfFamily},
    {Stage::kRound, Kind::kRounding, "first factor rounded first",
     "rounds a to whole output steps before it multiplies by b", Is<Op::kMul>,
     Set<&CodeHooks::round, FactorRoundedFirst<true>>},
    {Stage::kRound, Kind::kRounding, "second factor rounded first",
     "rounds b to whole output steps before it multiplies by a", Is<Op::kMul>,
     Set<&CodeHooks::round, FactorRoundedFirst<false>>},
    {Stage::kRound, Kind::kRounding, "second input through codes of the first",
     "brings the second input to codes of the first one's scale, and these to the output",
     Is<Op::kConcat>, Set<&CodeHooks::round, ThroughCodesOfTheFirst>},
    {Stage::kOperands, Kind::kRounding, "lowest bit of the weights dropped",
     "drops the lowest bit of the weights", SumsOfCodes, DropLowestBitOfWeights},
    {Stage::kRound, Kind::kRounding, "ratios to 20 bits",
     "rounds the ratios of scales to 20 bits behind the point",
     [](const Case& c) { return Multiplies(c) && AddsOperands(c.op); },
     Set<&CodeHooks::round, RatiosInBits<20>>},
    {Stage::kRound, Kind::kRounding, "ratios to 10 bits, half to even",
     "rounds the ratios of scales to 10 bits behind the point, and ties to even",
     [](const Case& c) { return Multiplies(c) && AddsOperands(c.op); },
     Set<&CodeHooks::round, RatiosInBits<10, false>>, Cause::kBitsOfFamily},
    {Stage::kRound, Kind::kRounding, "ratios to 8 bits, half to even",
     "rounds the ratios of scales to 8 bits behind the point, and ties to even",
     [](const Case& c) { return Multiplies(c) && AddsOperands(c.op); },
     Set<&CodeHooks::round, RatiosInBits<8, false>>, Cause::kBitsOfFamily},
    {Stage::kRound, Kind::kRounding, "ratios to 16 bits, half to even",
     "rounds the ratios of scales to 16 bits behind the point, and ties to even",
     [](const Case& c) { return Multiplies(c) && AddsOperands(c.op); },
     Set<&CodeHooks::round, RatiosInBits<16, false>>, Cause::kBitsOfFamily},
    {Stage::kRound, Kind::kRounding, "average rounded first",
     "rounds the average to a whole number of input steps, half away from zero, before it rescales",
     Is<Op::kAvgPool, Op::kGlobalAvgPool>, Set<&CodeHooks::round, AverageFirst<HalfAwayOfDouble>>},
    {Stage::kRound, Kind::kRounding, "average rounded first, half to even",
     "rounds the average to a whole number of input steps, half to even, before it rescales",
     Is<Op::kAvgPool, Op::kGlobalAvgPool>, Set<&CodeHooks::round, AverageFirst<HalfEvenOfDouble>>},
    {Stage::kRound, Kind::kRounding, "slope not rescaled",
     "does not rescale the negative side of leaky_relu to the output scale",
     [](const Case& c) { return c.op == Op::kTable && c.function == Function::kLeakyRelu; },
     Set<&CodeHooks::round, UnscaledSlope>},
    {Stage::kRound, Kind::kIndex, "codes copied from 0 on",
     "copies the codes of numbers that are not negative, whatever the scales",
     [](const Case& c) { return c.op == Op::kTable && c.function == Function::kLeakyRelu; },
     Set<&CodeHooks::round, CopiedAboveZero>},
    {Stage::kRound, Kind::kIndex, "unscaled from 0 on",
     "does not rescale the positive side of leaky_relu to the output scale",
     [](const Case& c) { return c.op == Op::kTable && c.function == Function::kLeakyRelu; },
     Set<&CodeHooks::round, UnscaledAboveZero>},
    {Stage::kRound, Kind::kZeroPoint, "branch by the code",
     "takes a code below 0 for a negative number in leaky_relu, whatever the zero point",
     [](const Case& c) { return c.op == Op::kTable && c.function == Function::kLeakyRelu; },
     Set<&CodeHooks::round, SlopeByCode>, Cause::kBitsOfFamily},
    {Stage::kRound, Kind::kRounding, "scale * code - scale * zero point",
     "computes scale * code - scale * zero point in float32, each step rounded",
     Is<Op::kDequantize>, Set<&Stages::real, TwoProducts>},
    {Stage::kScale, Kind::kRounding, "left shift of a multiplier dropped",
     "drops the power of two of a multiplier of 1 or more", RoundsScaledIntegers,
     DropLeftShiftsOfSums},
    {Stage::kScale, Kind::kRounding, "multiplier of 1 at most",
     "takes a multiplier of 1 or more for the largest number below 1", RoundsScaledIntegers,
     MultiplierOfOne, Cause::kBitsOfFamily},
    {Stage::kClamp, Kind::kClamp, "clamp before the zero point",
     "clamps to the codes before it adds the zero point", Converts,
     Set<&CodeHooks::round, ClampBeforeZeroPoint>},
    {Stage::kClamp, Kind::kClamp, "clamp before a zero point that wraps",
     "clamps to the codes before it adds the zero point, in 8 bits that wrap",
     [](const Case& c) { return Converts(c) && IsByteCode(c.out_dtype); },
     [](Stages& s) {
       s.codes.round = ClampBeforeZeroPoint;
       s.codes.narrow = KeepLowByte;
       return true;
     }},
    {Stage::kClamp, Kind::kClamp, "bounds before the zero point",
     "applies out_min and out_max before it adds the output zero point", Converts,
     BoundsBeforeZeroPoint<false, false>},
    {Stage::kClamp, Kind::kClamp, "bounds and relu before the zero point",
     "applies out_min, out_max and the zero point of a relu before it adds the output zero point",
     [](const Case& c) { return Converts(c) && RowOf(c.op).relu; },
     BoundsBeforeZeroPoint<false, true>},
    {Stage::kClamp, Kind::kClamp, "narrow bounds before the zero point",
     "applies out_min and out_max before it adds the output zero point, where they are not those "
     "of the type",
     Converts, BoundsBeforeZeroPoint<true, false>},
    {Stage::kClamp, Kind::kClamp, "int32 before the zero point",
     "saturates the value at int32 before it adds the zero point", Converts,
     Set<&CodeHooks::convert, SaturateAtInt32>},
    {Stage::kClamp, Kind::kClamp, "int8 before the zero point",
     "saturates the value at int8 before it adds the zero point",
     [](const Case& c) { return Converts(c) && c.out_dtype == DType::kU8; },
     Set<&CodeHooks::round, Int8BeforeZeroPoint>},
    {Stage::kClamp, Kind::kClamp, "int8 that wraps before the zero point",
     "keeps the rounded value in an int8 that wraps before it adds the zero point", Converts,
     Set<&CodeHooks::round, WrapInt8BeforeZeroPoint>},
    {Stage::kClamp, Kind::kClamp, "relu before the bias",
     "applies the relu to the sum before it adds the bias, and not behind it", SumsOfCodes,
     ReluBeforeBias<false>},
    {Stage::kClamp, Kind::kClamp, "relu before and behind the bias",
     "applies the relu to the sum before it adds the bias, and again behind it", SumsOfCodes,
     ReluBeforeBias<true>},
    {Stage::kAccumulate, Kind::kIndex, "maximum with other sign",
     "compares codes with the other signedness", Is<Op::kMaxPool>,
     Set<&PoolHooks::under_window, CompareWithOtherSign>},
    {Stage::kPadding, Kind::kPadding, "left padding as the right", "pads the left as the right",
     Of<HasWindow>, TakeForBoth<&Window::pad_left, &Window::pad_right>},
    {Stage::kPadding, Kind::kPadding, "top padding as the left", "pads the left as the top",
     Of<HasWindow>, TakeForBoth<&Window::pad_left, &Window::pad_top>},
    {Stage::kPadding, Kind::kPadding, "left padding as the top", "pads the top as the left",
     Of<HasWindow>, TakeForBoth<&Window::pad_top, &Window::pad_left>},
    {Stage::kPadding, Kind::kPadding, "top padding as the bottom", "pads the top as the bottom",
     Of<HasWindow>, TakeForBoth<&Window::pad_top, &Window::pad_bottom>},
    {Stage::kPadding, Kind::kPadding, "top padding ignored", "pads the top by nothing",
     Of<HasWindow>, [](Stages& s) { return EditWindow(s, [](Window& v) { v.pad_top = 0; }); },
     Cause::kBitsOfFamily},
    {Stage::kPadding, Kind::kPadding, "left padding ignored", "pads the left by nothing",
     Of<HasWindow>, [](Stages& s) { return EditWindow(s, [](Window& v) { v.pad_left = 0; }); },
     Cause::kBitsOfFamily},
    {Stage::kPadding, Kind::kPadding, "top and left padding ignored",
     "pads the top and the left by nothing", Of<HasWindow>,
     [](Stages& s) { return EditWindow(s, [](Window& v) { v.pad_top = v.pad_left = 0; }); },
     Cause::kBitsOfFamily},
    {Stage::kPadding, Kind::kPadding, "left padding as half of both, rounded down",
     "pads the left by half of what both sides have together, rounded down", Of<HasWindow>,
     HalveColumns<0>, Cause::kBitsOfFamily},
    {Stage::kPadding, Kind::kPadding, "left padding as half of both, rounded up",
     "pads the left by half of what both sides have together, rounded up", Of<HasWindow>,
     HalveColumns<1>, Cause::kBitsOfFamily},
    {Stage::kPadding, Kind::kPadding, "top padding as half of both, rounded down",
     "pads the top by half of what top and bottom have together, rounded down", Of<HasWindow>,
     HalveRows<0>, Cause::kBitsOfFamily},
    {Stage::kPadding, Kind::kPadding, "top padding as half of both, rounded up",
     "pads the top by half of what top and bottom have together, rounded up", Of<HasWindow>,
     HalveRows<1>, Cause::kBitsOfFamily},
    {Stage::kPadding, Kind::kPadding, "paddings as halves, rounded down",
     "pads each side by half of what it and the opposite one have together, rounded down at top "
     "and left",
     Of<HasWindow>, HalveAll<0>, Cause::kBitsOfFamily},
    {Stage::kPadding, Kind::kPadding, "paddings as halves, rounded up",
     "pads each side by half of what it and the opposite one have together, rounded up at top "
     "and left",
     Of<HasWindow>, HalveAll<1>, Cause::kBitsOfFamily},
    {Stage::kGeometry, Kind::kIndex, "dilation of columns for both",
     "spreads rows by the dilation of columns", Of<HasWindow>,
     TakeForBoth<&Window::dilation_h, &Window::dilation_w>},
    {Stage::kGeometry, Kind::kIndex, "dilation of rows for both",
     "spreads columns by the dilation of rows", Of<HasWindow>,
     TakeForBoth<&Window::dilation_w, &Window::dilation_h>},
    {Stage::kGeometry, Kind::kIndex, "dilation of columns ignored",
     "ignores the dilation of columns", Of<HasWindow>,
     [](Stages& s) { return EditWindow(s, IgnoreNumber<&Window::dilation_w>); }},
    {Stage::kGeometry, Kind::kIndex, "dilation of rows ignored", "ignores the dilation of rows",
     Of<HasWindow>, [](Stages& s) { return EditWindow(s, IgnoreNumber<&Window::dilation_h>); }},
    {Stage::kGeometry, Kind::kIndex, "stride of columns ignored",
     "steps columns by one pixel instead of the stride", Of<HasWindow>,
     [](Stages& s) { return EditWindow(s, IgnoreNumber<&Window::stride_w>); }},
    {Stage::kGeometry, Kind::kIndex, "stride of rows ignored",
     "steps rows by one pixel instead of the stride", Of<HasWindow>,
     [](Stages& s) { return EditWindow(s, IgnoreNumber<&Window::stride_h>); }},
    {Stage::kGeometry, Kind::kIndex, "first image for all",
     "reads the first image for every image of a batch", Of<HasWindow>,
     [](Stages& s) {
       return EditPixels(s,
                         [](const Window& v, int64_t i) { return i % (v.in_h * v.in_w * v.in_c); });
     }},
    {Stage::kGeometry, Kind::kIndex, "channels of group 0 for all",
     "reads the input channels of group 0 for every group", IsGrouped,
     [](Stages& s) {
       return EditPixels(s, [](const Window& v, int64_t i) {
         const int64_t channel = i % v.in_c;
         return i - channel + channel % (v.in_c / v.groups);
       });
     }},
    {Stage::kGeometry, Kind::kIndex, "channels of the next group",
     "reads the input channels of the next group", IsGrouped,
     [](Stages& s) {
       return EditPixels(s, [](const Window& v, int64_t i) {
         const int64_t channel = i % v.in_c;
         return i - channel + (channel + v.in_c / v.groups) % v.in_c;
       });
     },
     Cause::kBitsOfFamily},
    {Stage::kBias, Kind::kIndex, "int32 bias as real numbers",
     "adds the int32 bias to the scaled sum, as if it were in real units", TakesRealBias,
     IntegersAsRealBias<false>},
    {Stage::kBias, Kind::kIndex, "int32 bias in output steps",
     "adds the int32 bias to the scaled sum, as if it were in steps of the output",
     [](const Case& c) { return TakesRealBias(c) && HasCodesOut(c); }, IntegersAsRealBias<true>},
    {Stage::kBias, Kind::kIndex, "bias in units of channel 0",
     "takes the int32 bias of every channel in units of the scale of channel 0",
     [](const Case& c) { return c.bias_i32 && c.w_q.scale.size() > 1; },
     [](Stages& s) {
       std::vector<float> bias;
       for (const int32_t value : *s.c.bias_i32)
         bias.push_back(
             static_cast<float>(double{s.c.x_q.scale_at(0)} * s.c.w_q.scale_at(0) * value));
       s.c.bias_i32.reset();
       s.c.bias = std::move(bias);
       return Validate(s.c).empty();
     }},
    {Stage::kBias, Kind::kIndex, "bias rounded from units of channel 0",
     "takes the int32 bias of every channel in units of the scale of channel 0, and rounds it to "
     "units of its own",
     [](const Case& c) { return c.bias_i32 && c.w_q.scale.size() > 1; },
     [](Stages& s) {
       bool changes = false;
       for (size_t n = 1; n < s.c.w_q.scale.size() && n < s.c.bias_i32->size(); ++n) {
         int32_t& bias = (*s.c.bias_i32)[n];
         const double units = std::nearbyint(static_cast<double>(s.c.w_q.scale[0]) /
                                             static_cast<double>(s.c.w_q.scale[n]) * bias);
         if (!(std::abs(units) <= INT32_MAX)) return false;
         changes |= units != bias;
         bias = static_cast<int32_t>(units);
       }
       return changes;
     }},
    {Stage::kGeometry, Kind::kIndex, "group step of outputs",
     "begins the input channels of group g at g times the outputs of a group", IsGrouped,
     GroupStepOfOutputs<false>, Cause::kBitsOfFamily},
    {Stage::kGeometry, Kind::kIndex, "group step of outputs, modulo C",
     "begins the input channels of group g at g times the outputs of a group, and goes on with "
     "channel 0 behind the last one",
     IsGrouped, GroupStepOfOutputs<true>, Cause::kBitsOfFamily},
    {Stage::kGeometry, Kind::kIndex, "stride of columns for both",
     "steps rows by the stride of columns", Of<HasWindow>,
     TakeForBoth<&Window::stride_h, &Window::stride_w>},
    {Stage::kGeometry, Kind::kIndex, "stride of rows for both",
     "steps columns by the stride of rows", Of<HasWindow>,
     TakeForBoth<&Window::stride_w, &Window::stride_h>},
    {Stage::kWZeroPoint, Kind::kZeroPoint, "{w_zero_point} subtracted, saturating",
     "subtracts the {w_zero_point} in an int8 that saturates", Weights,
     NarrowDifference<&Case::w, &Case::w_q, int8_t, false>},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "{x_zero_point} subtracted, saturating",
     "subtracts the {x_zero_point} in an int8 that saturates",
     [](const Case& c) { return CodesOfInput(c) && c.op != Op::kDequantize; },  // has its own row
     NarrowDifference<&Case::x, &Case::x_q, int8_t, false>},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "both zero points subtracted, saturating",
     "subtracts each zero point in an int8 that saturates",
     [](const Case& c) { return HasTwoOperands(c.op); }, NarrowDifferences<false>},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "both zero points subtracted in int8",
     "subtracts each zero point in an int8 that wraps",
     [](const Case& c) { return HasTwoOperands(c.op); }, NarrowDifferences<true>},
    {Stage::kOperands, Kind::kIndex, "negative weights as 0", "takes negative {w_codes} for 0",
     [](const Case& c) { return SumsOfCodes(c) && RangeOf(c.w.dtype()).min < 0; },
     NegativeCodesAs0<&Case::w>, Cause::kBitsOfFamily},
    {Stage::kOperands, Kind::kIndex, "negative input codes as 0",
     "takes negative input codes for 0",
     [](const Case&
            c) { return HasSums(c) && IsCode(c.x.dtype()) && RangeOf(c.x.dtype()).min < 0; },
     NegativeCodesAs0<&Case::x>, Cause::kBitsOfFamily},
    {Stage::kXZeroPoint, Kind::kZeroPoint, "zero points exchanged",
     "takes each zero point for the other operand: swaps the two zero points", Weights,
     SwapZeroPoints, 6},
    {Stage::kOperands, Kind::kIndex, "weights in halves of 32",
     "reads weights j and j + 16 of each 32 as 2j and 2j + 1 (nibbles in another order)",
     SumsOfCodes, ReadWeightsFrom<HalvesAsNeighbours>},
    {Stage::kOperands, Kind::kIndex, "weights as neighbours of 32",
     "reads weights 2j and 2j + 1 of each 32 as j and j + 16 (nibbles in another order)",
     SumsOfCodes, ReadWeightsFrom<NeighboursAsHalves>},
    {Stage::kOperands, Kind::kIndex, "halves of 32 swapped",
     "swaps weights j and j + 16 of each 32 (the high nibble first)", SumsOfCodes,
     ReadWeightsFrom<SwappedHalves>},
    {Stage::kOperands, Kind::kIndex, "neighbouring weights swapped",
     "swaps neighbouring weights (the high nibble first)", SumsOfCodes,
     ReadWeightsFrom<SwappedNeighbours>},
    {Stage::kScale, Kind::kRounding, "result doubled",
     "gives twice the value (a factor of 2 too much)", RoundsReal, ScaleResult<-1>, 7},
    {Stage::kScale, Kind::kRounding, "result halved",
     "gives half the value (a factor of 2 too little)", RoundsReal, ScaleResult<1>, 7},
    {Stage::kScale, Kind::kRounding, "multiplier ignored",
     "ignores the scales: takes the multiplier for 1", Multiplies, UnitScales},
    {Stage::kAccumulate, Kind::kClamp, "sum clamped early",
     "clamps the sum to the codes of the output before it is scaled", SumsToCodes, ClampSumFirst,
     7},
    {Stage::kRound, Kind::kTie, "zero point, then half away",
     "adds the zero point, then rounds ties away from zero", RoundsReal,
     Set<&CodeHooks::round, HalfAwayOfCode>, 6},
    {Stage::kRound, Kind::kRounding, "zero point, then truncation",
     "adds the zero point, then truncates towards zero", RoundsReal,
     Set<&CodeHooks::round, TruncateCode>, 6},
    {Stage::kClamp, Kind::kClamp, "relu on the wrong side",
     "clamps at real 0 from above instead of below",
     [](const Case& c) { return IsCode(c.out_dtype) && c.relu; }, ReluFromAbove},
    {Stage::kClamp, Kind::kClamp, "relu added", "applies a relu that the case does not have",
     [](const Case& c) {
       return !c.relu && (IsCode(c.out_dtype) ? HasOutQParams(c.op) : c.out_dtype == DType::kF32);
     },
     AddRelu, 7},
    {Stage::kRound, Kind::kTie, "zero point half away",
     "rounds ties of the zero point away from zero", ChoosesQParams,
     Set<&ChoiceHooks::round_zero_point, HalfAwayOfDouble>, 6},
    {Stage::kRound, Kind::kRounding, "zero point truncated", "truncates the zero point",
     ChoosesQParams, Set<&ChoiceHooks::round_zero_point, CutDouble>, 7},
    {Stage::kOffset, Kind::kZeroPoint, "range without zero, zero point beyond the codes",
     "does not widen the range to hold 0, nor keep the zero point within the codes", Observes,
     [](Stages& s) { return s.choice.range_without_zero = s.choice.any_zero_point = true; }},
    {Stage::kScale, Kind::kRounding, "range over half of the codes",
     "divides the largest magnitude by half of the number of codes",
     [](const Case& c) { return Observes(c) && c.observer.symmetric; },
     Set<&ChoiceHooks::over_half_the_codes, true>, 7},
    {Stage::kScale, Kind::kClamp, "equal values as zeros",
     "chooses scale 1 and zero point 0 where all values are equal",
     ObservesOneValue,
     Set<&ChoiceHooks::equal_values_are_zeros, true>, 7},
    {Stage::kScale, Kind::kClamp, "equal values by scale 1",
     "chooses scale 1 where all values are equal, and the zero point by it",
     ObservesOneValue,
     Set<&ChoiceHooks::equal_values_by_scale_1, true>, 7},
    {Stage::kClamp, Kind::kClamp, "highest code left out",
     "leaves the highest code out: computes with quant_max one lower", Observes,
     [](Stages& s) { return --s.c.observer.quant_max > s.c.observer.quant_min; }, 7},
    {Stage::kClamp, Kind::kClamp, "lowest code left out",
     "leaves the lowest code out: computes with quant_min one higher", Observes,
     [](Stages& s) { return ++s.c.observer.quant_min < s.c.observer.quant_max; }, 7},
};

// The real value in float32 or float64, and another rounding than nearbyint of it.
template <auto kValue>
void AddRoundedOtherwise(std::vector<Cause>& list, std::string_view name, std::string_view sentence,
                         bool (*applies)(const Case& c)) {
  using Value = decltype(kValue(std::declval<const RealOutput&>()));
  const auto add = [&](std::string_view how, std::string_view told, auto change) {
    list.push_back({Stage::kRound, Kind::kRounding, fmt::format("{}, {}", name, how),
                    fmt::format("{}, {}", sentence, told), applies, change, Cause::kBitsOfFamily,
                    true});
  };
  add("half up", "adds 0.5 in the same precision and rounds down",
      Set<&CodeHooks::round, RoundedOtherwise<kValue, HalfAddedAndFloored<Value>>>);
  add("half away", "and rounds ties of that away from zero",
      Set<&CodeHooks::round, RoundedOtherwise<kValue, HalfAwayFromZero<Value>>>);
  add("half added with its sign", "adds 0.5 with its sign in the same precision and truncates",
      Set<&CodeHooks::round, RoundedOtherwise<kValue, HalfAddedAndTruncated<Value>>>);
}

void AddFloatsRoundedOtherwise(std::vector<Cause>& list) {
  AddRoundedOtherwise<InFloat<false>>(list, "fl(x / s)", "rounds the quotient to float32",
                                      Quantizes);
  AddRoundedOtherwise<InFloat<true>>(
      list, "x * fl(1/s)", "multiplies by the float32 reciprocal of the scale", Quantizes);
  AddRoundedOtherwise<InFloat<false>>(
      list, "float32 multiplier", "rounds the {sum} and the {multiplier} to float32", Multiplies);
  AddRoundedOtherwise<InFloat<true>>(list, "float32 reciprocal",
                                     "multiplies by {reciprocal} in float32", Multiplies);
  AddRoundedOtherwise<DequantizedFirst>(
      list, "float32 value over the output scale",
      "rounds the {sum}, its real value and the quotient by the output scale to float32",
      [](const Case& c) { return Multiplies(c) && !AddsOperands(c.op); });
  const auto requantizes = [](const Case& c) { return c.op == Op::kRequantize && Converts(c); };
  AddRoundedOtherwise<InFloat<false>>(list, "float32 product",
                                      "multiplies by the multiplier in float32", requantizes);
  AddRoundedOtherwise<InDouble>(
      list, "float64 multiplier", "computes in float64",
      [](const Case& c) { return Multiplies(c) || (c.op == Op::kRequantize && Converts(c)); });
}

// Taps in the padding add nothing, so that they do not fill an int16 either: as code 0, whose real
// value is taken out again.
void AddWrapsWithoutPadding(std::vector<Cause>& list) {
  for (const bool line : {true, false}) {
    const std::string_view what = line ? "one line of the kernel" : "all taps";
    list.push_back(
        {Stage::kAccumulate, Kind::kPairSaturation,
         fmt::format("int16 wrap of {}, padding left out", what),
         fmt::format(
             "adds the products of {} in an int16 that wraps, those in the padding left out", what),
         [](const Case& c) { return IsConv(c.op) && c.window.has_padding(); },
         [line](Stages& s) {
           const int64_t products = line ? s.c.K / s.c.window.kernel_h : s.c.K;
           s.Sums().padding_code = 0;
           s.Sums().add = [products](DType x_dtype, Codes x, Codes w) {
             return AddInLanes(WrapOf(products), x_dtype, x, w);
           };
           s.Sums().edit_terms = [](SumTerms& t) {
             t.products += t.zx * (t.padding_w_sum - t.zw * t.padding_taps);
           };
           return products > 0;
         },
         Cause::kBitsOfFamily, true});
  }
}

// The words of an operation for its operands and their scales.
struct Words {
  std::string_view sum = "sum";  // the integer that is scaled
  std::string_view x_sign = "input sign", w_sign = "weight sign";
  std::string_view x_codes = "input codes", w_codes = "weight codes";
  std::string_view x_zero_point = "input zero point", w_zero_point = "weight zero point";
  std::string_view x_scale = "input scale", w_scale = "weight scale";
  std::string_view multiplier = "multiplier fl(fl(sx*sw)/sy)";
  std::string_view reciprocal = "fl(fl(sx*sw) * fl(1/sy))";
};

Words WordsOf(Op op) {
  if (HasWeights(op) || op == Op::kRequantize) return {};
  const bool adds = AddsOperands(op) || op == Op::kAvgPool || op == Op::kGlobalAvgPool;
  const std::string_view code = "code less its zero point";
  if (!HasTwoInputs(op))
    return {.sum = adds ? "sum" : code,
            .multiplier = "multiplier fl(sx/sy)",
            .reciprocal = "fl(sx * fl(1/sy))"};
  const bool is_product = op == Op::kMul;
  return {is_product ? "product"
          : adds     ? "sum"
                     : code,
          "sign of a",
          "sign of b",
          "codes of a",
          "codes of b",
          "zero point of a",
          "zero point of b",
          "scale of a",
          "scale of b",
          is_product ? "multiplier fl(fl(sa*sb)/sy)" : "multipliers fl(sa/sy) and fl(sb/sy)",
          is_product ? "fl(fl(sa*sb) * fl(1/sy))" : "fl(sa * fl(1/sy)) and fl(sb * fl(1/sy))"};
}

// Replaces the names in braces by the words.
std::string Written(std::string_view text, const Words& words) {
  return fmt::format(
      fmt::runtime(text), fmt::arg("sum", words.sum), fmt::arg("x_sign", words.x_sign),
      fmt::arg("w_sign", words.w_sign), fmt::arg("x_codes", words.x_codes),
      fmt::arg("w_codes", words.w_codes), fmt::arg("x_zero_point", words.x_zero_point),
      fmt::arg("w_zero_point", words.w_zero_point), fmt::arg("x_scale", words.x_scale),
      fmt::arg("w_scale", words.w_scale), fmt::arg("multiplier", words.multiplier),
      fmt::arg("reciprocal", words.reciprocal));
}

}  // namespace

std::string Cause::NameFor(Op op) const { return Written(name, WordsOf(op)); }
std::string Cause::SentenceFor(Op op) const { return Written(sentence, WordsOf(op)); }

namespace {

// Those of the products that are found in some terms of a sum alone.
constexpr std::array kCausesOfSomeTerms{"input sign in the products", "pair saturation",
                                        "int16 pair wrap"};

constexpr std::string_view kOnly = ", only ";

// Whole blocks of the sum are added by other instructions than what is left over.
void AddCausesOfTerms(std::vector<Cause>& list) {
  const size_t wholes = list.size();
  for (size_t i = 0; i < wholes; ++i) {
    const Cause whole = list[i];
    if (!std::ranges::count(kCausesOfSomeTerms, whole.name)) continue;
    for (const int64_t lanes : {4, 8, 16, 32, 64}) {
      const auto add = [&](Kind kind, std::string_view where, auto any, auto terms) {
        const std::string only = fmt::format("{}{} K % {} terms", kOnly, where, lanes);
        list.push_back(
            {whole.stage, kind, whole.name + only, whole.sentence + only,
             [=, applies = whole.applies](const Case& c) { return applies(c) && any(c.K); },
             [=, change = whole.change](Stages& s) {
               if (!change(s)) return false;
               s.Sums().changed_terms = [=](int64_t count) {
                 return terms(count, count - count % lanes);
               };
               return true;
             },
             Cause::kBitsOfFamily, true});
      };
      add(
          Kind::kTail, "in the last", [=](int64_t count) { return count % lanes != 0; },
          [](int64_t count, int64_t body) { return std::pair(body, count); });
      add(
          whole.kind, "before the last", [=](int64_t count) { return count >= lanes; },
          [](int64_t, int64_t body) { return std::pair(int64_t{0}, body); });
    }
  }
}

}  // namespace

bool IsInSomeTerms(const Cause& some, const Cause& whole) {
  return some.name.starts_with(whole.name + std::string(kOnly));
}

namespace {

// The causes that mean the same of weights in blocks.
constexpr std::array<std::string_view, 91> kOfBlocksToo{
    "scale of the short block left out",
    "bias twice",
    "bias subtracted",
    "sign of -128 lost",
    "sign of -128 lost in pairs of blocks",
    "scale of the block behind",
    "scale of the block before",
    "zero point of the first block",
    "short block dropped",
    "last block dropped",
    "scale of the block behind in its row",
    "scale of the block before in its row",
    "scale of the first block",
    "parameters of the block behind",
    "parameters of the block before",
    "parameters of the first block",
    "input scale of the block behind",
    "input scale of the block before",
    "input scale of the first block",
    "relu at code 0",
    "relu instead of out_min",
    "relu ignored",
    "relu added",
    "relu on the wrong side",
    "clamp ignored",
    "clamp and relu ignored",
    "conversion overflow",
    "truncating narrow",
    "output zero point ignored",
    "{w_zero_point} ignored",
    "{x_zero_point} ignored",
    "{w_zero_point} added",
    "{x_zero_point} added",
    "both zero points added",
    "{w_zero_point} as int8",
    "{x_zero_point} as int8",
    "negated zero point as int8",
    "{w_zero_point} one too large",
    "{x_zero_point} one too large",
    "{w_zero_point} one too small",
    "{x_zero_point} one too small",
    "last term dropped",
    "term tail of 4 dropped",
    "term tail of 8 dropped",
    "term tail of 16 dropped",
    "term tail of 32 dropped",
    "zero point before rounding",
    "half away from zero",
    "half up",
    "half down below zero",
    "half up below zero",
    "truncation",
    "zero point, then half away",
    "zero point, then truncation",
    "bias ignored",
    "lowest bit of the weights dropped",
    "weights of a byte reversed",
    "high half of a byte without sign",
    "low half of a byte without sign",
    "high half of a byte with sign",
    "low half of a byte with sign",
    "sign borrows",
    "chosen zero point not taken out",
    "weights in halves of 32",
    "weights as neighbours of 32",
    "neighbouring weights swapped",
    "halves of 32 swapped",
    "{x_sign}",
    "{w_sign}",
    "one choice for all rows",
    "a choice for each row",
    "choice of row 0",
    "rule of observers",
    "rule of ATen",
    "rule of ONNX",
    "result doubled",
    "result halved",
    "lowest of the {x_codes} as its neighbour",
    "highest of the {x_codes} as its neighbour",
    "negative weights as 0",
    "negative input codes as 0",
    "scale of the other block of a pair",
    "input scale of the other block of a pair",
    "input scales of row 0",
    "last of an odd number of blocks dropped",
    "subnormal scales of blocks flushed",
    "product of block scales in float16",
    "float16 sum between blocks",
    "middle code for the weight zero point",
    "codes of weights in rows of whole blocks, read at a stride of K",
    "codes of weights in rows of whole blocks that are not filled up",
};

}  // namespace

namespace {

// Of rows that differ in a number of lanes.
decltype(Cause::repeats) RepeatsOf(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, decltype(Cause::repeats)>, 4> kTails{
      {{" tail of 4 dropped", DropsTheSameAsFewerLanes<4>},
       {" tail of 8 dropped", DropsTheSameAsFewerLanes<8>},
       {" tail of 16 dropped", DropsTheSameAsFewerLanes<16>},
       {" tail of 32 dropped", DropsTheSameAsFewerLanes<32>}}};
  for (const auto& [ending, repeats] : kTails)
    if (name.ends_with(ending)) return repeats;
  return nullptr;
}

}  // namespace

std::span<const Cause> AllCauses() {
  static const std::vector<Cause> all = [] {
    std::vector<Cause> list(std::begin(kCauses), std::end(kCauses));
    for (Cause& cause : list)
      if (cause.repeats == nullptr) cause.repeats = RepeatsOf(cause.name);
    for (const Cause& cause : kMistakes) list.emplace_back(cause).of_family = true;
    AddFloatsRoundedOtherwise(list);
    AddWrapsWithoutPadding(list);
    for (std::vector<Cause> rows : {CausesOfFamilies(), CausesOfVariants()}) {
      for (Cause& cause : rows) {
        cause.of_family = true;
        if (cause.bits == Cause::kBitsOfMistake) cause.bits = Cause::kBitsOfFamily;
        list.push_back(std::move(cause));
      }
    }
    AddCausesOfTerms(list);
    for (Cause& cause : list)
      cause.knows_blocks |= std::ranges::count(kOfBlocksToo, cause.name) != 0;
    return list;
  }();
  return all;
}

std::span<const Cause> AllPlaces() {
  static const std::vector<Cause> all = [] {
    std::vector<Cause> list = Places();
    for (Cause& place : list) {
      place.bits = Cause::kBitsOfPlace;
      place.knows_blocks = true;
    }
    return list;
  }();
  return all;
}

std::span<const Cause> KnownArithmetic() {
  static const std::vector<Cause> all = [] {
    std::vector<Cause> list;
    for (const Convention& convention : AllConventions()) {
      Cause cause{Stage::kConvention,
                  Kind::kRounding,
                  convention.name,
                  "computes as " + convention.name + " does",
                  [&convention](const Case& c) { return convention.cannot_run(c).empty(); },
                  [](Stages&) { return true; },
                  Cause::kBitsOfConvention};
      cause.convention = &convention;
      list.push_back(std::move(cause));
    }
    return list;
  }();
  return all;
}

double BitsOf(std::span<const Cause* const> causes) {
  double bits = 0;
  for (const Cause* cause : causes) bits += cause->bits;
  return bits;
}

bool Cause::is_arithmetic() const {
  return stage == Stage::kConvention || kind == Kind::kPairSaturation ||
         kind == Kind::kInt32Overflow || kind == Kind::kRounding || kind == Kind::kTie ||
         kind == Kind::kZeroPoint || (kind == Kind::kClamp && stage != Stage::kPlace);
}

const Cause& CauseNamed(std::string_view name) {
  const std::span<const Cause> all = AllCauses();
  const auto found =
      std::ranges::find(all, name, [](const Cause& cause) { return Written(cause.name, {}); });
  QUALM_CHECK(found != all.end());
  return *found;
}

constexpr std::string_view kAnd = " + ";

std::string NamesOf(std::span<const Cause* const> causes, Op op) {
  std::string text;
  for (const Cause* cause : causes) {
    if (!text.empty()) text += kAnd;
    text += cause->NameFor(op);
  }
  return text;
}

std::vector<const Cause*> CausesNamed(std::string_view names, Op op) {
  std::vector<const Cause*> causes;
  for (size_t from = 0; from <= names.size();) {
    const size_t to = std::min(names.find(kAnd, from), names.size());
    const std::string_view name = names.substr(from, to - from);
    const Cause* found = nullptr;
    for (const std::span<const Cause> all : {AllCauses(), KnownArithmetic(), AllPlaces()}) {
      const auto cause = std::ranges::find_if(
          all, [&](const Cause& each) { return each.NameFor(op) == name || each.name == name; });
      if (cause != all.end()) found = &*cause;
    }
    if (found == nullptr) return {};
    causes.push_back(found);
    from = to + kAnd.size();
  }
  return causes;
}

const Convention* ModelOf(const Contract& contract) {
  return FindConvention(contract.convention);  // none has the empty name of the exact contract
}

const Convention* ModelOf(const Case& c) {
  return c.contract.empty() ? nullptr : ModelOf(ParseContract(c.contract));
}

Tensor RightOutput(const Case& c, const Convention* model) {
  const bool has = model != nullptr && model->cannot_run(c).empty();
  return has ? model->run(c).y : exact::Evaluate(c);
}

namespace {

void CopyOutput(const Tensor& from, int64_t at, Tensor& to, int64_t i) {
  to.CopyFrom(from, at, 1, i);
}

// The model's output of the edited case. Sums that the stages moved are moved by another int32
// bias, which every convention adds to the sum before anything else.
std::optional<Tensor> ChangedModel(const Stages& stages, const Convention& model) {
  constexpr int64_t kMostMoved = 4096;
  const Case& c = stages.c;
  if (model.run_moved && stages.block_moved && stages.moves_parts) {
    Stages others = stages;
    others.block_moved = nullptr;
    const auto moved = others.Moved();
    const bool alone = moved && moved->empty() && Validate(c).empty();
    return alone && model.cannot_run(c).empty()
               ? std::optional(model.run_moved(c, stages.block_moved))
               : std::nullopt;
  }
  const std::optional<std::vector<__int128>> moved = stages.Moved();
  if (!moved || !Validate(c).empty() || !model.cannot_run(c).empty()) return std::nullopt;
  Tensor y = model.run(c).y;
  int64_t left = kMostMoved;
  for (const __int128& by : *moved) {
    if (by == 0) continue;
    const int64_t i = &by - moved->data();
    Case one = slice::OneOutput(c, i);
    const __int128 bias = by + (one.bias_i32 ? one.bias_i32->front() : 0);
    if (one.bias || bias != static_cast<int32_t>(bias) || --left < 0) return std::nullopt;
    // A tail may compute differently than a body: the output alone must have the same bits.
    if (!model.cannot_run(one).empty() || model.run(one).y.BitsAt(0) != y.BitsAt(i))
      return std::nullopt;
    one.bias_i32.emplace(1, static_cast<int32_t>(bias));
    if (!model.cannot_run(one).empty()) return std::nullopt;
    CopyOutput(model.run(one).y, 0, y, i);
  }
  return y;
}

}  // namespace

std::optional<Tensor> Counterfactual(const Case& c, std::span<const Cause* const> causes,
                                     const Convention* model) {
  if (HasElementBlocks(c)) {
    const auto flat = Counterfactual(slice::BlocksAsChannels(ProblemOf(c)), causes, model);
    return flat ? std::optional(slice::InRowsOf(c, *flat)) : std::nullopt;
  }
  Stages stages;
  stages.c = ProblemOf(c);
  bool changes = causes.empty();
  for (const Cause* cause : causes) {
    // Of several causes those act that can here; a place that is none means another case.
    Stages changed = stages;
    const bool known = (c.w_block == 0 && !HasFloatX(c)) || cause->knows_blocks;
    // What an earlier cause moved may leave nothing to act on: a zero point that is no code.
    const bool applies = cause->applies(c) && (!changes || cause->applies(stages.c));
    const bool acts = known && applies && cause->change(changed);
    if (!acts && cause->stage == Stage::kPlace) return std::nullopt;
    if (!acts) continue;
    stages = std::move(changed);
    changes |= cause->stage != Stage::kPlace;
  }
  if (!changes) return std::nullopt;
  const auto named =
      std::ranges::find_if(causes, [](const Cause* cause) { return cause->convention != nullptr; });
  if (named != causes.end()) model = (*named)->convention;
  std::optional<Tensor> y = model == nullptr ? stages.Evaluate() : ChangedModel(stages, *model);
  // A tree has no bias by which its sums could be moved; where it does not round, they are exact.
  if (!y && model != nullptr && model->name.starts_with(kTreeContract)) y = stages.Evaluate();
  if (!y || !stages.only_at) return y;
  const Tensor right = RightOutput(c, model);
  for (int64_t i = 0; i < y->size(); ++i) {
    if (!stages.only_at(i / c.N, i % c.N)) CopyOutput(right, i, *y, i);
  }
  return y;
}

std::optional<Tensor> Counterfactual(const Case& c, const Cause& cause, const Convention* model) {
  const Cause* const one = &cause;
  return Counterfactual(c, {&one, 1}, model);
}

std::function<bool(int64_t row, int64_t column)> PlaceIn(const Case& c, const Cause& place) {
  if (!place.applies(c)) return nullptr;
  Stages stages;
  stages.c = ProblemOf(c);
  place.change(stages);
  return stages.only_at;
}

}  // namespace qualm::triage
