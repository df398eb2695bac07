// SPDX-License-Identifier: Apache-2.0
// The NumPy lines that people write to check a library, as the forum threads of corpus/forum did:
// dequantize, compute in floating point, then clip(round(y / scale) + zero_point). Zero points and
// codes are Python integers, so differences of codes are exact; np.round rounds ties to even.
//
//   numpy@float32   arrays and scales as np.float32 (x.dequantize(), .numpy())
//   numpy@float64   scales as Python floats, arrays float64 (.q_scale(), .int_repr())
//   +half_clip      thread 001: quantizes, but clips at the end of the range that reduce_range
//                   calibrates for (0..127, -64..63), which the library does not
//   +w_zp_from_x    thread 002: subtracts the weight zero point from x, and not from w
//
// Sums are added one product after the other, as a loop over k does. BLAS may add in another order;
// this matters only within some last bits of a tie. A NaN cast to a code is 0, as on x86.
#include "oracles/conventions/numpy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include "oracles/conventions/dequantized.h"

namespace qualm::conventions {
namespace {

template <std::floating_point T>
Value Gather(const Case& c, int64_t index, Trace* trace) {
  if (c.op == Op::kLinear) return DequantizedSum<T>(c, index, trace);
  if (HasTwoOperands(c.op)) return DequantizedOperands<T>(c, index, trace);
  Value value;
  if (c.op == Op::kQuantize) {
    SetNumber<T>(value, static_cast<T>(c.x.FloatAt(index)));
  } else {
    value.SetInt(c.x.IntAt(index));
  }
  return value;
}

template <std::floating_point T>
void Divide(Value& v, const Channel& c) {
  const T before = NumberOf<T>(v);
  const T quotient = before / static_cast<T>(c.scale);
  SetNumber(v, quotient);
  v.lossy = !(std::fma(quotient, static_cast<T>(c.scale), -before) == 0);
}
template <std::floating_point T>
void Round(Value& v, const Channel&) {
  SetNumber(v, RoundNearestEven(NumberOf<T>(v)));
}
template <std::floating_point T>
void AddZeroPoint(Value& v, const Channel& c) {
  SetNumber(v, NumberOf<T>(v) + static_cast<T>(c.zero_point));
}
// np.maximum: NaN stays.
template <std::floating_point T>
void Relu(Value& v, const Channel&) {
  const T before = NumberOf<T>(v);
  SetNumber(v, before < 0 ? T{0} : before);
}
template <std::floating_point T>
void ClipAndCast(Value& v, const Channel& c) {
  const T number = NumberOf<T>(v);
  v.lossy = std::isnan(number);
  v.SetInt(v.lossy ? 0
                   : static_cast<int64_t>(std::min(std::max(number, static_cast<T>(c.low)),
                                                   static_cast<T>(c.high))));
}
template <std::floating_point T>
void TimesScale(Value& v, const Channel& c) {
  const T product = static_cast<T>(v.integer - c.zero_point) * static_cast<T>(c.scale);
  v.SetReal(static_cast<float>(product));
}

template <std::floating_point T>
std::vector<Step> Steps(const Case& c) {
  if (c.op == Op::kDequantize) {
    return {{Stage::kScale, "(code - {zero_point}) * scale {scale}", TimesScale<T>}};
  }
  std::vector<Step> steps;
  if (c.relu) steps.push_back({Stage::kClamp, "np.maximum with 0", Relu<T>});
  steps.insert(steps.end(), {{Stage::kScale, "divided by scale {scale}", Divide<T>},
                             {Stage::kRound, "np.round, ties to even", Round<T>},
                             {Stage::kZeroPoint, "+ zero point {zero_point}", AddZeroPoint<T>},
                             {Stage::kClamp, "np.clip to {low}..{high}, astype", ClipAndCast<T>}});
  return steps;
}

Channel ChannelOf(const Case& c, int64_t n) {
  Channel channel;
  channel.low = c.out_min;
  channel.high = c.out_max;
  const QParams& q = c.op == Op::kDequantize ? c.x_q : c.out_q;
  channel.scale = q.scale_at(n);
  channel.zero_point = q.zero_point_at(n);
  return channel;
}

std::string CannotRun(const Case& c) {
  return FirstReason({
      Require(!c.bias_i32, "the bias must be float"),
      Require(c.op == Op::kDequantize || IsCode(c.out_dtype), "output must be codes"),
      Require(c.op != Op::kQuantize || !c.relu, "this function has no relu"),
  });
}

template <std::floating_point T>
Definition Dequantizing() {
  Definition definition;
  definition.name = "numpy@" + std::string(TypeName<T>());
  definition.description = "NumPy by hand: dequantize, compute in " + std::string(TypeName<T>()) +
                           ", divide by the scale, np.round, clip";
  definition.source = "forum threads 001, 002 and 004 (corpus/forum); numpy.round, numpy.clip";
  definition.satisfies = {"row_independence", "column_independence",
                          "per_channel_equals_per_tensor", "commutes"};
  definition.variations = {"V8", "V13", "V14", "V17", "V18", "V19"};
  definition.ops = {Op::kQuantize, Op::kDequantize, Op::kLinear, Op::kAdd, Op::kMul};
  definition.cannot_run = CannotRun;
  definition.wide_codes = definition.wide_sums = definition.small_codes = true;
  definition.element_blocks = true;
  definition.gather = [](const Case& c) { return EachAlone(c, Gather<T>); };
  definition.channel = ChannelOf;
  definition.steps = Steps<T>;
  return definition;
}

Definition HalfClip() {
  Definition definition = Dequantizing<float>();
  definition.name += "+half_clip";
  definition.description =
      "NumPy by hand: quantize in float32, clipped at the range that reduce_range calibrates for";
  definition.source = "forum thread 001 (corpus/forum/001-quantize.case.json)";
  definition.variations.emplace_back("V21");
  definition.ops = {Op::kQuantize};
  definition.cannot_run = [](const Case& c) { return FirstReason({CannotRun(c), WholeRange(c)}); };
  definition.channel = [](const Case& c, int64_t n) {
    Channel channel = ChannelOf(c, n);
    channel.low /= 2;
    channel.high /= 2;
    return channel;
  };
  return definition;
}

// Thread 002.
Value SumWithoutWeightZeroPoint(const Case& c, int64_t index, Trace* trace) {
  const int64_t m = index / c.N, n = index % c.N;
  const int64_t offset = int64_t{c.x_q.zero_point_at(0)} + c.w_q.zero_point_at(n);
  int64_t sum = 0;  // 2^28 terms below 2^33 * 2^8 may wrap, as NumPy's int64 does
  for (int64_t k = 0; k < c.K; ++k) {
    sum = static_cast<int64_t>(
        static_cast<uint64_t>(sum) +
        static_cast<uint64_t>((c.x.IntAt(m * c.K + k) - offset) * c.w.IntAt(n * c.K + k)));
  }
  Value value;
  value.SetInt(sum);
  Note(trace, Stage::kAccumulate,
       "sum of (x - " + std::to_string(c.x_q.zero_point_at(0)) + " - " +
           std::to_string(c.w_q.zero_point_at(n)) + ") * w: the weight zero point is taken from x",
       ValueText(value), c.w_q.zero_point_at(n) != 0);
  return value;
}
void TimesRatio(Value& v, const Channel& c) {
  v.SetWide(static_cast<double>(v.integer) *
            (static_cast<double>(c.a.scale) * static_cast<double>(c.b.scale) /
             static_cast<double>(c.scale)));
}

Definition WeightZeroPointFromX() {
  Definition definition;
  definition.name = "numpy@float64+w_zp_from_x";
  definition.description =
      "NumPy by hand: sums of (x - x_zp - w_zp) * w, the weight zero point taken from the input";
  definition.source = "forum thread 002 (corpus/forum/002-linear-by-hand.case.json)";
  definition.satisfies = {"row_independence", "column_independence", "k_permutation",
                          "per_channel_equals_per_tensor"};
  definition.variations = {"V14", "V16", "V18", "V20"};
  definition.ops = {Op::kLinear};
  definition.cannot_run = [](const Case& c) {
    return FirstReason(
        {CannotRun(c), Require(!c.bias && !c.relu, "this formula has no bias and no relu")});
  };
  definition.gather = [](const Case& c) { return EachAlone(c, SumWithoutWeightZeroPoint); };
  definition.channel = [](const Case& c, int64_t n) {
    Channel channel = ChannelOf(c, n);
    channel.a.scale = c.x_q.scale_at(0);
    channel.b.scale = c.w_q.scale_at(n);
    return channel;
  };
  definition.steps = [](const Case&) {
    return std::vector<Step>{
        {Stage::kScale, "times {a_scale}*{b_scale}/{scale} in float64", TimesRatio},
        {Stage::kRound, "np.round, ties to even", Round<double>},
        {Stage::kZeroPoint, "+ zero point {zero_point}", AddZeroPoint<double>},
        {Stage::kClamp, "np.clip to {low}..{high}, astype", ClipAndCast<double>}};
  };
  return definition;
}

}  // namespace

Definition DequantizingInFloat32() { return Dequantizing<float>(); }

std::vector<Convention> NumpyConventions() {
  std::vector<Convention> conventions;
  for (Definition& definition : std::array{DequantizingInFloat32(), Dequantizing<double>(),
                                           HalfClip(), WeightZeroPointFromX()}) {
    conventions.push_back(MakeConvention(std::move(definition)));
  }
  return conventions;
}

}  // namespace qualm::conventions
